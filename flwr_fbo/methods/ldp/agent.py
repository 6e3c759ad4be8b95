"""An agent whose reward becomes private before it leaves, and who counts what that costs.

An agent answers ``play`` with one number and nothing else. Whether it answers depends only on
how often it has, never on its data; so does everything else that can be seen of it. In
particular an evaluation that fails is answered like the worst reward, with noise: to decline
would tell something about the data for nothing.

The records hold every answer, noise included, together with its charge. An answer is recorded
before it leaves, so that a crash may cost privacy that nobody received, but never the reverse;
asked again for the same round, the agent repeats it.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.ldp.curator import curator
from flwr_fbo.methods.ldp.server import BUDGET, KIND
from flwr_fbo.methods.owner import Owner
from flwr_fbo.privacy import checks
from flwr_fbo.privacy.entropy import Entropy, system_entropy
from flwr_fbo.privacy.local import GaussianReward, LaplaceReward, LocalBudget

#: Kind of the records that hold answers.
ANSWER = "ldp-answer"


class RewardAgent:
    """See the module; implements :class:`flwr_fbo.core.protocol.Agent`.

    The owner's own bounds hold whatever a server asks, and its ``epsilon-limit`` can only lower
    them: ``limit`` on the epsilon of these records (basic composition), and ``budget``, the
    owner's books over all the runs it takes part in. With either, a setup without privacy is
    refused; so it is by an agent that has given private answers before.
    """

    def __init__(
        self,
        setup: Setup,
        evaluator: Evaluator,
        records: Records,
        seed: tuple[int, ...] = (),
        limit: float | None = None,
        budget: LocalBudget | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        if setup.kind != KIND:
            raise ValueError(f"an LDP agent needs a setup of kind {KIND!r}, but got {setup.kind!r}")
        values = setup.values
        bound = checks.positive("bound", values["bound"])
        self._worst = -(bound + checks.positive("noise-bound", values["noise-bound"]))
        self._offset = float(values["offset"])
        self._curator: LaplaceReward | GaussianReward | None = None
        if "epsilon" in values:
            self._curator = curator(values)
            asked = checks.positive("epsilon-limit", values["epsilon-limit"])
            self._limit = asked if limit is None else min(asked, limit)
        self._budget = budget
        self._entropy = system_entropy() if entropy is None else entropy
        self._evaluator, self._records = evaluator, records
        self._answers = {int(r["round"]): float(r["reward"]) for r in records.read(ANSWER)}
        self._charges = [float(r["epsilon"]) for r in records.read(ANSWER)]
        bounded = limit is not None or budget is not None or self._charges
        if self._curator is None and bounded:
            raise checks.PrivacyError(
                "an agent whose answers are bounded by a budget, or were private before, gives "
                "none without privacy, but the setup has no `epsilon`"
            )

    @property
    def private(self) -> bool:
        """Whether answers have noise that nobody can foretell."""
        return self._curator is not None and self._entropy.private

    @property
    def spent(self) -> float:
        """Epsilon of all answers so far: k answers cost k epsilon."""
        return math.fsum(self._charges)

    def answer(self, request: Request) -> Reply:
        """See :class:`flwr_fbo.core.protocol.Agent`."""
        if request.kind != "play":
            raise ValueError(f"an LDP agent does not know the request {request.kind!r}")
        if self._curator is None:
            return _reply(self._reward(request))
        if request.round not in self._answers:
            if not self._affords(self._curator):
                return Reply(declined=BUDGET)
            self._charge(request, self._curator)
        return _reply(self._answers[request.round])

    def _affords(self, mechanism: LaplaceReward | GaussianReward) -> bool:
        # A limit of k epsilon must pay for k answers, whatever the rounding.
        if self.spent + mechanism.epsilon > self._limit * (1.0 + 1e-12):
            return False
        return self._budget is None or not self._budget.would_exceed(mechanism)

    def _charge(self, request: Request, mechanism: LaplaceReward | GaussianReward) -> None:
        raw = self._reward(request)
        if self._budget is None:
            reward = mechanism.release(raw, self._entropy)
        else:
            reward = self._budget.answer(mechanism, raw, self._entropy, request.round)
        record = {"round": request.round, "reward": reward, "epsilon": mechanism.epsilon}
        self._records.append(ANSWER, record)
        self._answers[request.round] = reward
        self._charges.append(mechanism.epsilon)

    def _reward(self, request: Request) -> float:
        """The reward less the offset; the worst that is believed possible for a failure."""
        point = np.asarray(request.arrays["point"], dtype=np.float64)
        evaluation = self._evaluator(point, round=request.round, source="server")
        return self._worst if evaluation.score is None else evaluation.score - self._offset


def _reply(reward: float) -> Reply:
    return Reply({"reward": np.array(reward, dtype=np.float64)})


def make_agent(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], owner: Owner
) -> RewardAgent:
    """Make an agent that answers with private rewards, within its owner's limits."""
    gaussian = setup.values.get("mechanism") == "gaussian"
    limit, budget = owner.epsilon_limit, None
    if owner.budget_file is not None and limit is not None:
        delta = owner.delta_limit if gaussian else 0.0
        budget = owner.stack.enter_context(
            LocalBudget.open(owner.budget_file, owner.name, limit, delta)
        )
    return RewardAgent(setup, evaluator, records, seed, limit=limit, budget=budget)
