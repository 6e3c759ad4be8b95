"""An agent that does not trust the server: its vectors are made private before they leave.

A :class:`LocallyPrivateAgent` is put around any agent that sends ``omega``, whatever the strategy.
:class:`flwr_fbo.privacy.local.LocalGaussian` clips a vector, adds the noise and states the cost;
its sensitivity is 2 S, the largest distance of two clipped vectors. The budget is a file of the
agent's own, which outlives the run. Every vector that was sent is recorded. To a repeated request
the agent sends the recorded vector again, which costs nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.methods.owner import OWNER, Owner
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.privacy.budget import BudgetExceeded
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import Entropy, system_entropy
from flwr_fbo.privacy.local import LocalBudget, LocalGaussian

#: The word with which an agent declines where its budget does not suffice for one more reply.
BUDGET = "budget"
#: The word with which an agent declines a request for more than its owner's limit allows.
REFUSED = "refused"


class LocallyPrivateAgent:
    """An agent that adds noise to the vectors of another agent, and pays from its own budget.

    Parameters
    ----------
    agent : Agent
        The agent whose vectors are made private.
    settings : ThompsonSettings
        The settings of the run; ``local_epsilon`` must be set.
    records : Records
        Where the vectors that were sent are recorded.
    ledger : Path
        The file of the agent's budget.
    owner : str
        The name of the agent in the ledger.
    vectors_only : bool
        Decline requests that expect anything but a vector: nothing else is made private.
    entropy : Entropy, optional
        The source of the noise; by default the operating system's.
    """

    #: The kind of the records of sent vectors.
    KIND = "local-answer"

    def __init__(
        self,
        agent: Agent,
        settings: ThompsonSettings,
        records: Records,
        ledger: Path,
        owner: str,
        vectors_only: bool = False,
        entropy: Entropy | None = None,
    ) -> None:
        if settings.local_epsilon is None:
            raise ValueError("`local-epsilon` must be set for an agent with local privacy")
        self._agent, self._settings, self._records = agent, settings, records
        self._ledger, self._owner = ledger, owner
        self._vectors_only = vectors_only
        self._entropy = entropy or system_entropy()
        clip = settings.local_clip or settings.max_norm
        # The noise is fixed here, for `local_answers` vectors: once they are spent, agents decline.
        self.mechanism = LocalGaussian.for_budget(
            clip, settings.local_epsilon, settings.local_delta, settings.local_answers
        )

    def answer(self, request: Request) -> Reply:
        """Return the reply with a private vector; decline where the budget does not suffice."""
        if self._vectors_only and set(request.expects) - {"omega"}:
            return Reply(declined=REFUSED)  # before anything is evaluated for it
        reply = self._agent.answer(request)
        if "omega" not in reply.arrays:
            return reply
        # One vector a round: a second draw of noise on the same vector would cost once more.
        sent = {r["round"]: r["omega"] for r in self._records.read(self.KIND)}
        if request.round not in sent:
            try:
                private = self._with_noise(reply.arrays["omega"], request.round)
            except BudgetExceeded:
                return Reply(declined=BUDGET)
            # A crash between the charge and this record costs one more charge, and never one less.
            record = {"round": request.round, "omega": private.tolist()}
            self._records.append(self.KIND, record)
            sent[request.round] = record["omega"]
        return Reply({**reply.arrays, "omega": np.array(sent[request.round])})

    def _with_noise(self, omega: Array, round: int) -> Array:
        """Charge the budget and return the vector with noise; raise where the budget is spent."""
        s = self._settings
        assert s.local_epsilon is not None
        with LocalBudget.open(self._ledger, self._owner, s.local_epsilon, s.local_delta) as budget:
            sent = len(self._records.read(self.KIND))
            if budget.charges < sent:
                raise PrivacyError(
                    f"{self._ledger}: the ledger holds {budget.charges} charges, but {sent} "
                    "vectors were sent: what was spent is unknown"
                )
            return budget.answer(self.mechanism, omega, self._entropy, round)


def with_local_privacy(agent: Agent, setup: Setup, records: Records, owner: Owner) -> Agent:
    """Return the agent with local privacy, by the smaller of the run's and the owner's epsilon.

    Where neither sets an epsilon, the agent is returned as it is.
    """
    of_run, limit = setup.values.get("local-epsilon"), owner.epsilon_limit
    limits = [float(v) for v in (of_run, limit) if v]
    if not limits:
        return agent
    values = {**setup.values, "local-epsilon": min(limits)}
    if limit is not None:
        # The owner's delta holds, whatever the server asks for: a large delta is no noise at all.
        values["local-delta"] = owner.delta_limit
    settings = ThompsonSettings.from_mapping(values)
    name = owner.name if limit is None else OWNER
    return LocallyPrivateAgent(
        agent, settings, records, owner.ledger_file, name, vectors_only=limit is not None
    )
