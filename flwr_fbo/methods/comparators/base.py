"""The base of the comparators' servers: they ask for rewards of points and report one point.

The comparators' agents are :class:`~flwr_fbo.methods.fed_pne.agent.FedPNEAgent`. All methods
therefore face the same objectives, count evaluations alike, and report the same cumulative regret
per agent. Methods made for one objective run on the *global* objective, as in the paper: in a
round every agent evaluates the same point, and the mean of the answers is one evaluation
(Remark 4.1).

The state of a :class:`PullServer` is the history of its answers. Restoring repeats the answers,
which also restores libraries whose own state cannot be stored.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup, checked_reply
from flwr_fbo.core.settings import Settings, SettingsError, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.methods.fed_pne.regret import regret_per_agent
from flwr_fbo.methods.fed_pne.server import KIND
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.methods.method import MethodServer, RunParameters


@dataclass(frozen=True)
class ComparatorSettings(Settings):
    """The settings that every comparator has."""

    budget: int = setting(
        1000, "evaluations that each agent makes in the whole run (T)", at_least(1)
    )
    reward_low: float = setting(0.0, "score that counts as reward 0")
    reward_high: float = setting(1.0, "score that counts as reward 1")
    idle_rounds: int = setting(
        20, "rounds in a row without any answer after which the run ends", at_least(1)
    )

    def check(self) -> None:
        """Raise SettingsError where the range of scores is empty."""
        if not self.reward_low < self.reward_high:
            raise SettingsError(
                "`reward-low` must be < `reward-high`, but got "
                f"(reward-low={self.reward_low}, reward-high={self.reward_high})"
            )


S = TypeVar("S", bound=ComparatorSettings)


class ComparatorServer(MethodServer, Generic[S]):
    """A server that seeks one point for all agents, and reports that point.

    Parameters
    ----------
    space
        The search space.
    agents
        How many agents take part.
    settings
        The settings of the method.
    seed
        Seed of the method's own randomness, which is public.
    """

    def __init__(self, space: Space, agents: int, settings: S, seed: int) -> None:
        if agents < 1:
            raise ValueError(f"`agents` must be >= 1, but got {agents}")
        self.space, self.agents, self.settings, self._seed = space, agents, settings, seed
        self.round = 0
        self.sent = np.zeros(agents, dtype=np.int64)  # numbers sent by each agent
        self.idle = 0  # rounds in a row without any answer

    @classmethod
    def for_run(cls, run: RunParameters, settings: Any, **options: Any) -> Self:
        """Make the server of one run."""
        return cls(run.space, run.agents, settings, run.seed)

    @abstractmethod
    def best_point(self) -> Array:
        """Return the point to use in the end: (D,)."""

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """Return the recommended point, the regret and what the run cost."""
        return {
            "cumulative_regret_per_agent": regret_per_agent(histories),
            "rounds": self.round,
            "numbers_sent_per_agent": float(np.mean(self.sent)),
            "recommended": {"params": self.space.from_unit(self.best_point())},
        }


@dataclass(frozen=True, eq=False)
class Ask:
    """Points to pull, and how often. With ``per_agent``, row ``n`` is for agent ``n`` alone."""

    points: Array  # (K, D)
    pulls: Indices  # (K,)
    per_agent: bool = False


class PullServer(ComparatorServer[S]):
    """A server around a method that asks for rewards of points and is given the rewards.

    A subclass defines :meth:`start`, :meth:`ask`, :meth:`tell` and :meth:`best_point`.
    """

    rounds: int | None = None
    #: Evaluations that each agent was asked for so far.
    used: int
    _open: Ask  # the question of this round

    def __init__(self, space: Space, agents: int, settings: S, seed: int) -> None:
        super().__init__(space, agents, settings, seed)
        self._restart()

    @abstractmethod
    def start(self, rng: np.random.Generator) -> None:
        """Begin the method anew; all its public randomness comes from ``rng``."""

    @abstractmethod
    def ask(self) -> Ask:
        """Return what to pull next; called once before every :meth:`tell`."""

    @abstractmethod
    def tell(self, ask: Ask, rewards: Array, replies: int) -> None:
        """Take in the mean rewards (K,) over ``replies`` agents.

        Where each agent has its own point, rewards of absent agents are NaN.
        """

    @property
    def finished(self) -> bool:
        """Say whether the budget is spent, or no agent answers any more."""
        return self.used >= self.settings.budget or self.idle >= self.settings.idle_rounds

    @property
    def left(self) -> int:
        """Return how many evaluations each agent may still make."""
        return self.settings.budget - self.used

    def setup(self) -> Setup:
        """Return the setup of Fed-PNE's agents, without noise."""
        s = self.settings
        agent = FedPNESettings(budget=s.budget, reward_low=s.reward_low, reward_high=s.reward_high)
        return Setup(KIND, self.space, agent.to_mapping())

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the open question, for all agents that are present."""
        if self.finished:
            return {}
        return {n: self._request(n) for n in sorted(set(present)) if 0 <= n < self.agents}

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in one round; with no answer at all, the same question stays open."""
        for agent, reply in replies.items():  # check all replies before any is used
            if self.finished or not 0 <= agent < self.agents:
                raise ReplyError(f"agent {agent} answers without being asked")
            checked_reply(self._request(agent), reply)
        means = {n: r.arrays["means"] for n, r in replies.items() if not r.declined}
        self.round += 1
        self.idle = 0 if means else self.idle + 1
        if not means:
            return
        for agent, sent in means.items():
            self.sent[agent] += len(sent)
        if self._open.per_agent:
            rewards = np.full(self.agents, np.nan)
            rewards[list(means)] = [float(m[0]) for m in means.values()]
        else:
            rewards = np.stack([means[n] for n in sorted(means)]).mean(axis=0)  # (K,)
        self._record(rewards, len(means))

    def state_dict(self) -> dict[str, Any]:
        """Return every answer so far, one after another in one array."""
        rewards = [r for r, _ in self._answers]
        return {
            "round": self.round,
            "idle": self.idle,
            "sent": self.sent.copy(),
            "rewards": np.concatenate([np.zeros(0), *rewards]),
            "sizes": np.array([len(r) for r in rewards], dtype=np.int64),
            "replies": np.array([n for _, n in self._answers], dtype=np.int64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Start the method anew, and repeat all stored answers."""
        self._restart()
        answers = np.split(np.asarray(state["rewards"]), np.cumsum(state["sizes"])[:-1])
        # With no answers at all, np.split still returns one empty array.
        for rewards, replies in zip(
            answers[: len(state["replies"])], state["replies"], strict=True
        ):
            self._record(rewards, int(replies))
        self.round, self.idle = state["round"], state["idle"]
        self.sent = np.array(state["sent"], dtype=np.int64)

    def _restart(self) -> None:
        """Begin the method anew, without answers."""
        self.used = self.idle = 0
        self._answers: list[tuple[Array, int]] = []
        self.start(np.random.default_rng(self._seed))
        self._open = self.ask()

    def _record(self, rewards: Array, replies: int) -> None:
        """Pass one answer to the method, and ask the next question."""
        self._answers.append((rewards, replies))
        self.used += 1 if self._open.per_agent else int(self._open.pulls.sum())
        self.tell(self._open, rewards, replies)
        if not self.finished:
            self._open = self.ask()

    def _request(self, agent: int) -> Request:
        """Return the open question as one agent is asked it."""
        rows = slice(agent, agent + 1) if self._open.per_agent else slice(None)
        pulls = self._open.pulls[rows].astype(np.float64)
        return Request(
            kind="pull",
            round=self.round,
            values={"phase": len(self._answers)},
            arrays={"points": self._open.points[rows], "pulls": pulls},
            expects={"means": (len(pulls),)},
        )


def import_extra(extra: str, module: str) -> Any:
    """Return a module that only an extra installs, or raise ImportError that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ImportError(
            f"this comparator needs {package}: install it with `pip install 'flwr-fbo[{extra}]'`"
        ) from None
