"""An agent whose reward becomes private before the reward leaves, and that counts the cost.

An agent answers ``play`` with one number and nothing else. Whether the agent answers depends only
on how often it has answered, never on its data; the same holds for everything else that others
can see. In particular, a failed evaluation is answered like the worst reward, with noise.
Declining instead would reveal something about the data.

The records hold every answer, noise included, together with its privacy cost. An answer is
recorded before it leaves. A crash may therefore cost privacy for an answer that nobody received,
but an answer is never received without its cost. For a round that is asked again, the agent
repeats the recorded answer.
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
    """The agent of LDP-BO, which answers each play with one private reward.

    The owner's bounds ``limit`` and ``budget`` hold whatever a server asks; the server's
    ``epsilon`` can only lower them. With either bound the agent refuses a setup without
    privacy. So does an agent that has given private answers before.

    Parameters
    ----------
    setup
        Bounds, epsilon and mechanism, which are public.
    evaluator
        Makes and records the evaluations.
    records
        Where answers are kept.
    seed
        Not used: privacy noise must not depend on a seed.
    limit
        The owner's limit on the epsilon of all answers in these records (basic composition).
    budget
        The owner's ledger over all runs.
    entropy
        The source of privacy noise: the operating system, unless a test gives another source.
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
        # The agent checks every number itself, because it does not trust the server.
        values = setup.values
        bound = checks.positive("bound", values["bound"])
        self._worst = -(bound + checks.positive("noise-bound", values["noise-bound"]))
        self._offset = float(values["offset"])
        self._mechanism: LaplaceReward | GaussianReward | None = None
        if "epsilon-per-answer" in values:
            self._mechanism = curator(values)
            asked = checks.positive("epsilon", values["epsilon"])
            self._limit = asked if limit is None else min(asked, limit)
        self._budget = budget
        self._entropy = system_entropy() if entropy is None else entropy
        self._evaluator, self._records = evaluator, records
        self._answers = {int(r["round"]): float(r["reward"]) for r in records.read(ANSWER)}
        self._costs = [float(r["epsilon"]) for r in records.read(ANSWER)]
        bounded = limit is not None or budget is not None or self._costs
        if self._mechanism is None and bounded:
            raise checks.PrivacyError(
                "the setup must have an epsilon for an agent with a privacy limit, or with private "
                "answers in its journal, but the setup has none"
            )

    @property
    def private(self) -> bool:
        """Say whether answers have noise that nobody can predict."""
        return self._mechanism is not None and self._entropy.private

    @property
    def spent(self) -> float:
        """Return the epsilon of all answers so far: k answers cost k epsilon."""
        return math.fsum(self._costs)

    def answer(self, request: Request) -> Reply:
        """Return the reward of one play, private where the setup has an epsilon."""
        if request.kind != "play":
            raise ValueError(f"an LDP agent does not know the request {request.kind!r}")
        if self._mechanism is None:
            return _reply(self._reward(request))
        if request.round not in self._answers:
            # Checked before the evaluation: nothing is evaluated for an answer not given.
            if not self._affords(self._mechanism):
                return Reply(declined=BUDGET)
            self._release(request, self._mechanism)
        return _reply(self._answers[request.round])

    def _affords(self, mechanism: LaplaceReward | GaussianReward) -> bool:
        """Say whether one more answer stays within all limits."""
        # A limit of k epsilon must pay for k answers, whatever the rounding.
        if self.spent + mechanism.epsilon > self._limit * (1.0 + 1e-12):
            return False
        return self._budget is None or not self._budget.would_exceed(mechanism)

    def _release(self, request: Request, mechanism: LaplaceReward | GaussianReward) -> None:
        """Evaluate a play, add noise, and record the answer with its cost."""
        raw = self._reward(request)
        if self._budget is None:
            reward = mechanism.release(raw, self._entropy)
        else:
            reward = self._budget.answer(mechanism, raw, self._entropy, request.round)
        # Recorded before it can leave. The owner's ledger has charged it already.
        record = {"round": request.round, "reward": reward, "epsilon": mechanism.epsilon}
        self._records.append(ANSWER, record)
        self._answers[request.round] = reward
        self._costs.append(mechanism.epsilon)

    def _reward(self, request: Request) -> float:
        """Return the score minus the offset, or the worst possible reward for a failure."""
        point = np.asarray(request.arrays["point"], dtype=np.float64)
        evaluation = self._evaluator(point, round=request.round, source="server")
        return self._worst if evaluation.score is None else evaluation.score - self._offset


def _reply(reward: float) -> Reply:
    return Reply({"reward": np.array(reward, dtype=np.float64)})


def make_agent(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], owner: Owner
) -> RewardAgent:
    """Make an agent that answers with private rewards, within its owner's limits."""
    budget = owner.open_budget()
    return RewardAgent(setup, evaluator, records, seed, limit=owner.epsilon_limit, budget=budget)
