"""The learner as a server: each play is sent to an agent, one private number comes back.

A round asks for the rewards that the learner's next update still lacks, each of another agent
drawn at random: one agent for most learners, and the k of an epoch for MoMA. Where k exceeds
the number of agents that are there, an epoch takes several rounds; agents that have not
answered in this epoch are then drawn first. An agent that declines for its budget is not asked
again; its play goes to another agent in the next round.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.settings import Scalar, SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.ldp.learners import make_learner
from flwr_fbo.methods.ldp.problem import problem_of
from flwr_fbo.methods.ldp.regret import cumulative_regret
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.method import MethodServer, RunParameters
from flwr_fbo.tasks.task import Partition, Task

KIND = "ldp"
#: What an agent says when an answer would exceed its budget.
BUDGET = "budget"
#: So many rounds in a row in which agents were asked and none answered end the run.
PATIENCE = 100


class RewardServer(MethodServer):
    """The server of LDP-BO around a learner."""

    #: Agents repeat answers that a crash lost, at no cost: rounds need not be stored one by one.
    #: If other agents are there after a crash than before it, the server's own figure of what
    #: they spent may miss up to a second's answers; the agents' books, which decide, miss none.
    checkpoint_seconds = 1.0

    def __init__(
        self,
        space: Space,
        agents: int,
        settings: LDPSettings,
        learner: str,
        seed: int = 0,
        covariance: Array | None = None,
    ) -> None:
        if agents < 1:
            raise SettingsError(f"`agents` must be >= 1, but got {agents!r}")
        self.space, self.agents, self.settings = space, agents, settings
        self.learner = make_learner(learner, space, settings, seed, covariance)
        self.round = 0
        #: A play that is declined or lost takes another round.
        self.rounds: int | None = None
        self.exhausted: set[int] = set()
        self.refused = self.failures = 0
        self.answers = np.zeros(agents, dtype=np.int64)  # that agents may have charged
        self._seed, self._idle = seed, 0
        self._task: Task | None = None
        self._asked: set[int] = set()  # in this round
        self._epoch: set[int] = set()  # agents that answered in this epoch
        self._pending: list[float] = []  # rewards towards the next update
        self._played: list[Array] = []
        self._next: Array | None = None

    @classmethod
    def for_run(cls, run: RunParameters, settings: LDPSettings, **options: Any) -> Self:
        """Make the server of one run, with the covariance of the task's problem if it has one."""
        problem = None if run.task is None else problem_of(run.task, run.seed)
        covariance = getattr(problem, "covariance", None)
        server = cls(run.space, run.agents, settings, str(options["method"]), run.seed, covariance)
        server._task = run.task
        return server

    @property
    def played(self) -> Array:
        """The points whose rewards arrived, in order: (plays, D)."""
        return np.reshape(self._played, (len(self._played), self.space.dimension))

    @property
    def finished(self) -> bool:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        return bool(self.stopped)

    @property
    def stopped(self) -> str:
        """Why no more is asked: ``"done"``, ``"budgets"`` or ``"no-answers"``; else empty."""
        if len(self._played) >= self.settings.budget:
            return "done"
        if len(self.exhausted) >= self.agents:
            return "budgets"
        return "no-answers" if self._idle >= PATIENCE else ""

    def setup(self) -> Setup:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        s = self.settings
        values: dict[str, Scalar] = {
            "bound": s.bound,
            "noise-bound": s.noise_bound,
            "offset": s.reward_offset,
        }
        if s.epsilon is None:
            return Setup(KIND, self.space, values)
        values |= {"epsilon": s.epsilon, "epsilon-limit": self.epsilon_limit}
        values |= {"mechanism": s.mechanism, "delta": s.delta}
        return Setup(KIND, self.space, values)

    @property
    def epsilon_limit(self) -> float:
        """What an agent may spend: as set, or the least with which all plays can be made."""
        if self.settings.epsilon_limit is not None:
            return self.settings.epsilon_limit
        return (self.settings.epsilon or 0.0) * math.ceil(self.settings.budget / self.agents)

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        if self.finished:
            return {}
        chosen = self._draw(present, self._wanted)
        self._asked |= set(chosen)
        point = self._point()
        return {
            n: Request("play", self.round, {}, {"point": point}, {"reward": ()}) for n in chosen
        }

    def _draw(self, present: Sequence[int], count: int) -> list[int]:
        """Agents drawn without replacement, those that are new to this epoch first."""
        able = sorted(set(present) - self.exhausted)
        rng = np.random.default_rng([self._seed, self.round, 3])
        order = [able[i] for i in rng.permutation(len(able))]
        return sorted(order, key=lambda n: n in self._epoch)[:count]

    def _point(self) -> Array:
        if self._next is None:
            self._next = self.learner.suggest()[0]  # the plays of an update are all alike
        return self._next

    def close(self, replies: Mapping[int, Reply]) -> None:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        asked = self._asked
        unpaid = {n for n, reply in replies.items() if reply.declined == BUDGET}
        self.answers[sorted(asked - unpaid)] += 1  # one that stayed silent may have paid
        self.exhausted |= unpaid
        self.refused += len(unpaid)
        self.failures += sum(r.declined not in ("", BUDGET) for r in replies.values())
        rewards = {n: float(r.arrays["reward"]) for n, r in replies.items() if not r.declined}
        self._take(dict(sorted(rewards.items())[: self._wanted]))
        self._idle = 0 if rewards or unpaid or not asked else self._idle + 1
        self._asked = set()
        self.round += 1

    @property
    def _wanted(self) -> int:
        """How many rewards the next update still lacks, as far as the budget goes."""
        left = self.settings.budget - len(self._played)
        return min(self.learner.plays - len(self._pending), left)

    def _take(self, rewards: Mapping[int, float]) -> None:
        point = self._point()
        self._played += [point] * len(rewards)
        self._pending += rewards.values()
        self._epoch |= set(rewards)
        if len(self._pending) < self.learner.plays:
            return
        points = np.repeat(point[None, :], self.learner.plays, axis=0)
        self.learner.update(points, np.array(self._pending))
        self._pending, self._epoch, self._next = [], set(), None

    def report(self) -> dict[str, Any]:
        """What the server knows of the run so far, JSON-ready.

        ``epsilon_per_agent_max`` is an upper bound: answers that were lost are counted, since
        their agents have charged them.
        """
        epsilon, most = self.settings.epsilon, int(self.answers.max())
        gaussian = self.settings.mechanism == "gaussian"
        return {
            "plays": len(self._played),
            "budget": self.settings.budget,
            "stopped": self.stopped,
            "refused": self.refused,
            "failures": self.failures,
            "private": epsilon is not None,
            "epsilon_per_answer": epsilon,
            "epsilon_per_agent_max": None if epsilon is None else epsilon * most,
            "delta_per_agent_max": self.settings.delta * most if epsilon and gaussian else 0.0,
            "recommendation": self.space.from_unit(self.learner.recommend()),
        }

    def state_dict(self) -> dict[str, Any]:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        return {
            "round": self.round,
            "learner": self.learner.state_dict(),
            "exhausted": sorted(self.exhausted),
            "refused": self.refused,
            "failures": self.failures,
            "answers": self.answers.copy(),
            "idle": self._idle,
            "asked": sorted(self._asked),
            "epoch": sorted(self._epoch),
            "pending": list(self._pending),
            "played": self.played.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        self.round = int(state["round"])
        self.learner.load_state_dict(state["learner"])
        self.exhausted = set(state["exhausted"])
        self.refused, self.failures = int(state["refused"]), int(state["failures"])
        self.answers = np.array(state["answers"], dtype=np.int64)
        self._idle, self._asked = int(state["idle"]), set(state["asked"])
        self._epoch = set(state["epoch"])
        self._pending = [float(r) for r in state["pending"]]
        self._played = list(np.array(state["played"], dtype=np.float64))
        self._next = None

    # -- what a run reports ------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Say whether all plays were made."""
        return self.stopped == "done"

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """Return plays, refusals, the recommended point and, where known, the regret."""
        found = self.report()
        return {
            "cumulative_regret": self._regret() if histories else None,
            "recommended": {"params": found["recommendation"]},
            **{k: found[k] for k in ("plays", "stopped", "refused", "epsilon_per_answer")},
            "epsilon_per_agent_max": found["epsilon_per_agent_max"],
        }

    def _regret(self) -> list[float] | None:
        """Return R_t after each play; only a simulation has the data to know it."""
        if self._task is None:
            return None
        mine = copy.copy(self._task)
        mine.prepare(Partition(0, self.agents, self._seed))
        regret = cumulative_regret(self.played, mine)
        return None if regret is None else regret.tolist()

    def privacy(self) -> dict[str, Any] | None:
        """Return the most that any agent's answers have cost it."""
        found = self.report()
        if not found["private"]:
            return None
        return {
            "epsilon": found["epsilon_per_agent_max"],
            "delta": found["delta_per_agent_max"],
            "budget": self.epsilon_limit,
            "private": True,
            "exhausted": found["stopped"] == "budgets",
            "local": True,
        }
