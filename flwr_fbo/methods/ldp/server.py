"""The server of LDP-BO: a learner's plays go to agents, and one private number comes back each.

A round asks for the rewards that the learner's next update still lacks, each from another agent
drawn at random: one agent for most learners, and the k agents of an epoch for MoMA. With fewer
than k agents present, an epoch takes several rounds; agents that have not answered in this epoch
are then drawn first. An agent that declines because its budget is spent is not asked again. Its
play goes to another agent in the next round.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.settings import Scalar, SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.ldp.learner import Learner
from flwr_fbo.methods.ldp.learners import check_privacy, make_learner
from flwr_fbo.methods.ldp.problem import problem_of
from flwr_fbo.methods.ldp.regret import regret_of_plays
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.method import MethodServer, RunParameters, load_attribute
from flwr_fbo.privacy.statement import NEVER_COVERED, PrivacyStatement, versions
from flwr_fbo.tasks.task import Partition, Task

KIND = "ldp"
#: The word with which an agent declines when an answer would exceed its budget.
BUDGET = "budget"
#: The run ends after this many rounds in a row in which agents were asked and none answered.
MOST_IDLE_ROUNDS = 100
#: Agents that are drawn at once, and how often, before all that are left are listed.
DRAWS, MOST_DRAWS = 16, 1000


class RewardServer(MethodServer):
    """The server of LDP-BO, which passes plays and rewards between a learner and agents.

    Parameters
    ----------
    space
        The search space.
    agents
        How many agents take part.
    settings
        The settings of the method.
    learner
        Suggests points and takes in rewards.
    seed
        Seed of the draws of agents.
    task
        The task, for the regret; without a task the regret is unknown.
    """

    #: Agents repeat answers that a crash lost, at no cost, so rounds need not be stored one by one.
    #: If other agents are present after a crash than before, the server's own figure of what agents
    #: spent may miss up to a second's answers. The agents' records, which decide, miss none.
    checkpoint_seconds = 1.0

    def __init__(
        self,
        space: Space,
        agents: int,
        settings: LDPSettings,
        learner: Learner,
        seed: int = 0,
        task: Task | None = None,
    ) -> None:
        if agents < 1:
            raise SettingsError(f"`agents` must be >= 1, but got {agents!r}")
        self.space, self.agents, self.settings = space, agents, settings.for_agents(agents)
        self.learner = learner
        self.round = 0
        #: Unknown: a play that is declined or lost takes another round.
        self.rounds: int | None = None
        self.exhausted: set[int] = set()  # agents whose budget is spent
        self.refused = self.failures = 0
        self.answers = np.zeros(agents, dtype=np.int64)  # that agents may have paid for
        self.paid = np.zeros(agents, dtype=np.int64)  # that came, so that they were paid for
        self._seed, self._idle, self._task = seed, 0, task
        self._asked: set[int] = set()  # in this round
        self._epoch: set[int] = set()  # agents that answered in this epoch
        self._pending: list[float] = []  # rewards for the next update
        self._played: list[Array] = []
        self._next: Array | None = None

    @classmethod
    def for_run(cls, run: RunParameters, settings: LDPSettings, **options: Any) -> Self:
        """Make the server of one run, with the covariance of the task's problem if there is one.

        The options are the method's name, where the class of its learner is, and whether the
        method is for private rewards (None is for both).
        """
        settings = settings.for_agents(max(run.agents, 1))  # the constructor refuses 0 agents
        check_privacy(options["method"], options["private"], settings)
        problem = None if run.task is None else problem_of(run.task, run.seed)
        covariance = getattr(problem, "covariance", None)
        kind = load_attribute(options["learner"])
        learner = make_learner(kind, run.space, settings, run.seed, covariance)
        return cls(run.space, run.agents, settings, learner, run.seed, run.task)

    @property
    def played(self) -> Array:
        """Return the points whose rewards arrived, in order: (plays, D)."""
        return np.reshape(self._played, (len(self._played), self.space.dimension))

    @property
    def finished(self) -> bool:
        """Say whether there is nothing left to ask."""
        return bool(self.stopped)

    @property
    def stopped(self) -> str:
        """Return why the run ended: ``"done"``, ``"budgets"``, ``"no-answers"``; else empty."""
        if len(self._played) >= self.settings.budget:
            return "done"
        if len(self.exhausted) >= self.agents:
            return "budgets"
        return "no-answers" if self._idle >= MOST_IDLE_ROUNDS else ""

    def setup(self) -> Setup:
        """Return the space, the bounds and the mechanism, which are public."""
        s = self.settings
        values: dict[str, Scalar] = {
            "bound": s.bound,
            "noise-bound": s.noise_bound,
            "offset": s.reward_offset,
        }
        if s.epsilon is None or s.epsilon_per_answer is None:
            return Setup(KIND, self.space, values)
        values |= {"epsilon": s.epsilon, "epsilon-per-answer": s.epsilon_per_answer}
        values |= {"mechanism": s.mechanism}
        if s.mechanism == "gaussian" and s.delta_per_answer is not None:
            values["delta-per-answer"] = s.delta_per_answer
        return Setup(KIND, self.space, values)

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the next play, for as many agents as the next update needs."""
        if self.finished:
            return {}
        chosen = self._draw(present, self._wanted)
        self._asked |= set(chosen)
        point = self._point()
        return {
            n: Request("play", self.round, {}, {"point": point}, {"reward": ()}) for n in chosen
        }

    def _draw(self, present: Sequence[int], count: int) -> list[int]:
        """Draw agents without replacement, those that are new to this epoch first."""
        # Keyed by the round, so that asking twice draws the same agents.
        rng = np.random.default_rng([self._seed, self.round, 3])
        chosen = self._draw_by_trial(rng, count) if len(present) == self.agents else None
        if chosen is not None:
            return chosen
        able = sorted(set(present) - self.exhausted)
        order = [able[i] for i in rng.permutation(len(able))]
        return sorted(order, key=lambda n: n in self._epoch)[:count]

    def _draw_by_trial(self, rng: np.random.Generator, count: int) -> list[int] | None:
        """Draw agents where all are present, whatever their number; None where few are left.

        An agent that cannot answer, or has answered in this epoch, is drawn again. Over a whole run
        in which every agent is spent that takes ln(N) draws a play on average.
        """
        if self.agents - len(self.exhausted) - len(self._epoch) < count:
            return None
        chosen: list[int] = []
        for _ in range(MOST_DRAWS):
            for n in rng.integers(self.agents, size=DRAWS).tolist():
                if n not in self.exhausted and n not in self._epoch and n not in chosen:
                    chosen.append(n)
                    if len(chosen) == count:
                        return chosen
        return None

    def _point(self) -> Array:
        """Return the point of the next update, whose plays are all equal: (D,)."""
        if self._next is None:
            self._next = self.learner.suggest()[0]
        return self._next

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in the round's rewards, and the agents whose budget is spent."""
        asked = self._asked
        unpaid = {n for n, reply in replies.items() if reply.declined == BUDGET}
        # An agent that stayed silent may have paid for an answer that was lost.
        self.answers[list(asked - unpaid)] += 1
        self.exhausted |= unpaid
        self.refused += len(unpaid)
        self.failures += sum(r.declined not in ("", BUDGET) for r in replies.values())
        rewards = {n: float(r.arrays["reward"]) for n, r in replies.items() if not r.declined}
        self._note_paid(rewards)
        # Rewards beyond those wanted belong to this point, and must not count for the next.
        self._take(dict(sorted(rewards.items())[: self._wanted]))
        self._idle = 0 if rewards or unpaid or not asked else self._idle + 1
        self._asked = set()
        self.round += 1

    def _note_paid(self, answered: Collection[int]) -> None:
        """Count the answers that came, and do not ask an agent again that cannot pay for more."""
        whole, each = self.settings.epsilon, self.settings.epsilon_per_answer
        if whole is None or each is None:
            return
        for n in answered:
            self.paid[n] += 1
            if (self.paid[n] + 1) * each > whole * (1.0 + 1e-12):
                self.exhausted.add(n)

    @property
    def _wanted(self) -> int:
        """Return how many rewards the next update still lacks, within the budget of plays."""
        left = self.settings.budget - len(self._played)
        return min(self.learner.plays - len(self._pending), left)

    def _take(self, rewards: Mapping[int, float]) -> None:
        """Add rewards to the next update, and update the learner when all are there."""
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
        """Return what the server knows of the run so far, JSON-ready.

        ``epsilon_per_agent_max`` is an upper bound: answers that were lost are counted, because
        their agents have paid for them.
        """
        s, most = self.settings, int(self.answers.max())
        epsilon, delta = s.epsilon_per_answer, s.delta_per_answer or 0.0
        return {
            "plays": len(self._played),
            "budget": self.settings.budget,
            "stopped": self.stopped,
            "refused": self.refused,
            "failures": self.failures,
            "private": epsilon is not None,
            "epsilon_per_answer": epsilon,
            "epsilon_per_agent_max": None if epsilon is None else epsilon * most,
            "delta_per_agent_max": delta * most if s.mechanism == "gaussian" else 0.0,
            "recommendation": self.space.from_unit(self.learner.recommend()),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return {
            "round": self.round,
            "learner": self.learner.state_dict(),
            "exhausted": sorted(self.exhausted),
            "refused": self.refused,
            "failures": self.failures,
            "answers": self.answers.copy(),
            "paid": self.paid.copy(),
            "idle": self._idle,
            "asked": sorted(self._asked),
            "epoch": sorted(self._epoch),
            "pending": list(self._pending),
            "played": self.played.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        self.round = int(state["round"])
        self.learner.load_state_dict(state["learner"])
        self.exhausted = set(state["exhausted"])
        self.refused, self.failures = int(state["refused"]), int(state["failures"])
        self.answers = np.array(state["answers"], dtype=np.int64)
        self.paid = np.array(state["paid"], dtype=np.int64)
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
        """Return R_t after each play; None outside simulations, which alone have the data."""
        if self._task is None:
            return None
        mine = copy.copy(self._task)
        mine.prepare(Partition(0, self.agents, self._seed))
        regret = regret_of_plays(self.played, mine)
        return None if regret is None else regret.tolist()

    def statement(self) -> PrivacyStatement:
        """Return what each answer and each agent's whole run guarantee, against everybody."""
        s = self.settings
        if s.epsilon is None or s.epsilon_per_answer is None:
            return super().statement()
        most = int(self.answers.max(initial=0))
        answers = math.ceil(self.settings.budget / self.agents)
        gaussian = s.mechanism == "gaussian"
        delta = answers * (s.delta_per_answer or 0.0) if gaussian else 0.0
        return PrivacyStatement(
            method=self.name,
            agents=self.agents,
            relation="all rewards of a party replaced by any others",
            trust="local",
            mechanism=(
                f"each party adds {s.mechanism.capitalize()} noise to each of its answers, before "
                f"it leaves: epsilon {s.epsilon_per_answer:.4g} an answer, {answers} answers"
            ),
            epsilon=s.epsilon,
            delta=delta,
            spent=s.epsilon_per_answer * most,
            budget=s.epsilon,
            exhausted=self.stopped == "budgets",
            not_covered=NEVER_COVERED,
            versions=versions(),
        )
