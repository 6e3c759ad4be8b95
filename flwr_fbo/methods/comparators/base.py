"""What the comparators' servers share: ask for the rewards of points, take in what came back.

Their agents are :class:`~flwr_fbo.methods.fed_pne.agent.FedPNEAgent`, so all methods face the same
objectives, count evaluations alike and report the same cumulative regret per agent. Methods made
for one objective run on the *global* one, as in the paper: a round asks every agent for the same
point, and the mean of the answers is one evaluation (Remark 4.1).

State is the history of answers. Restoring replays it, which also restores libraries whose state
cannot be stored.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup, checked
from flwr_fbo.core.settings import Settings, SettingsError, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.methods.fed_pne.regret import regret_per_agent
from flwr_fbo.methods.fed_pne.server import KIND
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.methods.method import MethodServer, RunParameters


@dataclass(frozen=True)
class ComparatorSettings(Settings):
    """What every comparator needs to know."""

    budget: int = setting(1000, "evaluations each agent makes in all (T)", at_least(1))
    reward_low: float = setting(0.0, "score that counts as reward 0")
    reward_high: float = setting(1.0, "score that counts as reward 1")
    idle_rounds: int = setting(
        20, "rounds in a row without any answer after which the run ends", at_least(1)
    )

    def check(self) -> None:
        """The range must not be empty."""
        if not self.reward_low < self.reward_high:
            raise SettingsError(
                "`reward-low` must be < `reward-high`, but got "
                f"(reward-low={self.reward_low}, reward-high={self.reward_high})"
            )


@dataclass(frozen=True, eq=False)
class Ask:
    """Points to pull, and how often. With ``each``, row ``n`` is for agent ``n`` alone."""

    points: Array  # (K, D)
    pulls: Indices  # (K,)
    each: bool = False


S = TypeVar("S", bound=ComparatorSettings)


class PullServer(MethodServer, Generic[S]):
    """A :class:`~flwr_fbo.core.protocol.Server` around a method that asks and is told."""

    rounds: int | None = None
    #: Evaluations that each agent was asked for so far.
    used: int
    _idle: int  # rounds in a row without any answer
    _open: Ask  # what is being asked

    def __init__(self, space: Space, agents: int, settings: S, seed: int) -> None:
        if agents < 1:
            raise ValueError(f"`agents` must be >= 1, but got {agents}")
        self.space, self.agents, self.settings, self._seed = space, agents, settings, seed
        self.round = 0
        self.sent = np.zeros(agents, dtype=np.int64)
        self._restart()

    @classmethod
    def for_run(cls, run: RunParameters, settings: Any, **options: Any) -> Self:
        """Make the server of one run."""
        return cls(run.space, run.agents, settings, run.seed)

    @abstractmethod
    def start(self, rng: np.random.Generator) -> None:
        """Begin the method anew; all its public randomness comes from ``rng``."""

    @abstractmethod
    def ask(self) -> Ask:
        """What to pull next; called once before every :meth:`tell`."""

    @abstractmethod
    def tell(self, ask: Ask, rewards: Array, replies: int) -> None:
        """The mean rewards (K,); NaN for agents that are away when each has its own point."""

    @abstractmethod
    def recommend(self) -> Array:
        """The point to use in the end: (D,)."""

    @property
    def finished(self) -> bool:
        """Whether the budget is spent, or nobody answers any more."""
        return self.used >= self.settings.budget or self._idle >= self.settings.idle_rounds

    @property
    def left(self) -> int:
        """Evaluations each agent may still make."""
        return self.settings.budget - self.used

    def setup(self) -> Setup:
        """The agents are those of Fed-PNE, without noise."""
        s = self.settings
        agent = FedPNESettings(budget=s.budget, reward_low=s.reward_low, reward_high=s.reward_high)
        return Setup(KIND, self.space, agent.to_mapping())

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """The open question, for all who are present."""
        if self.finished:
            return {}
        return {n: self._request(n) for n in sorted(set(present)) if 0 <= n < self.agents}

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in one round; with no answer at all it is asked again."""
        for agent, reply in replies.items():
            if self.finished or not 0 <= agent < self.agents:
                raise ReplyError(f"agent {agent} answers without being asked")
            checked(self._request(agent), reply)
        means = {n: r.arrays["means"] for n, r in replies.items() if not r.declined}
        self.round += 1
        self._idle = 0 if means else self._idle + 1
        if not means:
            return
        for agent, sent in means.items():
            self.sent[agent] += len(sent)
        if self._open.each:
            rewards = np.full(self.agents, np.nan)
            rewards[list(means)] = [float(m[0]) for m in means.values()]
        else:
            rewards = np.stack([means[n] for n in sorted(means)]).mean(axis=0)  # (K,)
        self._take(rewards, len(means))

    def state_dict(self) -> dict[str, Any]:
        """Every answer so far, end to end."""
        rewards = [r for r, _ in self._answers]
        return {
            "round": self.round,
            "idle": self._idle,
            "sent": self.sent.copy(),
            "rewards": np.concatenate([np.zeros(0), *rewards]),
            "sizes": np.array([len(r) for r in rewards], dtype=np.int64),
            "replies": np.array([n for _, n in self._answers], dtype=np.int64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Start anew and replay."""
        self._restart()
        answers = np.split(np.asarray(state["rewards"]), np.cumsum(state["sizes"])[:-1])
        for rewards, replies in zip(
            answers[: len(state["replies"])], state["replies"], strict=True
        ):
            self._take(rewards, int(replies))
        self.round, self._idle = state["round"], state["idle"]
        self.sent = np.array(state["sent"], dtype=np.int64)

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """Return the recommended point, the regret and what the run cost."""
        return comparator_findings(self, histories)

    def _restart(self) -> None:
        self.used = self._idle = 0
        self._answers: list[tuple[Array, int]] = []
        self.start(np.random.default_rng(self._seed))
        self._open = self.ask()

    def _take(self, rewards: Array, replies: int) -> None:
        self._answers.append((rewards, replies))
        self.used += 1 if self._open.each else int(self._open.pulls.sum())
        self.tell(self._open, rewards, replies)
        if not self.finished:
            self._open = self.ask()

    def _request(self, agent: int) -> Request:
        rows = slice(agent, agent + 1) if self._open.each else slice(None)
        pulls = self._open.pulls[rows].astype(np.float64)
        return Request(
            kind="pull",
            round=self.round,
            values={"phase": len(self._answers)},
            arrays={"points": self._open.points[rows], "pulls": pulls},
            expects={"means": (len(pulls),)},
        )


class _Recommends(Protocol):
    space: Space
    round: int
    sent: Indices

    def recommend(self) -> Array: ...


def comparator_findings(
    server: _Recommends, histories: Sequence[Sequence[Evaluation]]
) -> dict[str, Any]:
    """Return what a comparator's result says besides what all results say."""
    return {
        "cumulative_regret_per_agent": regret_per_agent(histories),
        "rounds": server.round,
        "numbers_sent_per_agent": float(np.mean(server.sent)),
        "recommended": {"params": server.space.from_unit(server.recommend())},
    }


def need(extra: str, module: str) -> Any:
    """A module that only an extra installs, or the error that says which."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ImportError(
            f"this comparator needs {package}: install it with `pip install 'flwr-fbo[{extra}]'`"
        ) from None
