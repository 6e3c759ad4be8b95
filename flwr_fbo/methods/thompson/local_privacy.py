"""An agent that does not trust the server: its vectors are made private before they leave.

Works around any agent that sends ``omega``, whatever the strategy. The noise, the accounting
and the bound 2 S on what one agent's data can change are those of
:class:`flwr_fbo.privacy.local.LocalGaussian`; the budget is the agent's own file and outlives
the run. A vector that was sent is recorded: asked again for the same round, the agent repeats
it, which costs nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.privacy.budget import BudgetExceeded
from flwr_fbo.privacy.entropy import Entropy, system_entropy
from flwr_fbo.privacy.local import LocalBudget, LocalGaussian

#: The word with which an agent refuses an answer that it cannot pay for.
BUDGET = "budget"


class LocallyPrivateAgent:
    """Adds an agent's own noise to the ``omega`` of its replies."""

    KIND = "local-answer"

    def __init__(
        self,
        agent: Agent,
        settings: ThompsonSettings,
        records: Records,
        ledger: Path,
        owner: str,
        entropy: Entropy | None = None,
    ) -> None:
        if settings.local_epsilon is None:
            raise ValueError("`local-epsilon` must be set for an agent with local privacy")
        self._agent, self._settings, self._records = agent, settings, records
        self._ledger, self._owner = ledger, owner
        self._entropy = entropy or system_entropy()
        clip = settings.local_clip or settings.longest
        self.mechanism = LocalGaussian.for_budget(
            clip, settings.local_epsilon, settings.local_delta, settings.local_answers
        )

    def answer(self, request: Request) -> Reply:
        """See :class:`flwr_fbo.core.protocol.Agent`."""
        reply = self._agent.answer(request)
        if "omega" not in reply.arrays:
            return reply
        sent = {r["round"]: r["omega"] for r in self._records.read(self.KIND)}
        if request.round not in sent:
            try:
                private = self._pay(reply.arrays["omega"], request.round)
            except BudgetExceeded:
                return Reply(declined=BUDGET)
            record = {"round": request.round, "omega": private.tolist()}
            self._records.append(self.KIND, record)
            sent[request.round] = record["omega"]
        return Reply({**reply.arrays, "omega": np.array(sent[request.round])})

    def _pay(self, omega: Array, round: int) -> Array:
        s = self._settings
        assert s.local_epsilon is not None
        with LocalBudget.open(self._ledger, self._owner, s.local_epsilon, s.local_delta) as budget:
            return budget.answer(self.mechanism, omega, self._entropy, round)


def with_local_privacy(agent: Agent, setup: Setup, records: Records, owner: Owner) -> Agent:
    """Return the agent, made locally private by the stricter of the run's and the owner's limit.

    Without either limit, the agent is returned as it is.
    """
    asked = setup.values.get("local-epsilon")
    limits = [float(v) for v in (asked, owner.epsilon_limit) if v]
    if not limits:
        return agent
    settings = ThompsonSettings.from_mapping({**setup.values, "local-epsilon": min(limits)})
    assert owner.ledger is not None
    return LocallyPrivateAgent(agent, settings, records, owner.ledger, owner.name)
