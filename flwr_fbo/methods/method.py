"""The parts of a method: its settings, its server, its agent, and the Flower strategy around them.

A method registers once, by a :class:`Method` in the ``__init__`` of its own folder. The command
line, the run-config, the strategies and the clients all read this one object. Classes that are slow
to import are named by ``"module:attribute"`` and imported at their first use.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation, Evaluator, Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.settings import Settings, SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.owner import Owner
from flwr_fbo.privacy.releases import Release
from flwr_fbo.privacy.statement import PrivacyStatement
from flwr_fbo.tasks.metrics import known_range
from flwr_fbo.tasks.task import Seeks, Task


@dataclass(frozen=True)
class RunParameters:
    """The parameters of one run that a method's server needs beside its settings.

    Parameters
    ----------
    space
        The search space.
    agents, rounds, seed
        The number of agents, the number of planned rounds, and the seed.
    timeout
        The most seconds that a round may take, and that nodes may take to connect.
    quorum
        The share of the asked agents whose replies end a round before its timeout.
    ledger
        The file of the privacy ledger; without a file, charges are kept in memory only.
    task
        The task, for methods that need more of the task than its space.
    run
        The identity of the run, which its ledger holds.
    """

    space: Space
    agents: int
    rounds: int
    seed: int = 0
    timeout: float = 3600.0
    quorum: float = 1.0
    ledger: Path | None = None
    task: Task | None = None
    run: str = ""


class MethodServer(ABC):
    """The server half of a method: a :class:`~flwr_fbo.core.protocol.Server` that can report.

    The first group of methods is the state machine. The second group is for the result, the report
    and the progress of a run. Each method of the second group has a default.
    """

    #: The name under which the method is registered.
    name: str = ""
    agents: int
    round: int
    rounds: int | None
    #: Whether the number of rounds sets the length of the run, and not a budget.
    counts_rounds: ClassVar[bool] = False
    #: Whether a round without any reply is asked again instead of being closed.
    repeats_silent_rounds: ClassVar[bool] = False
    #: Seconds between two checkpoints; 0 is one after every round.
    checkpoint_seconds: ClassVar[float] = 0.0

    # -- the state machine -------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def for_run(cls, run: RunParameters, settings: Any, **options: Any) -> Self:
        """Return the server of one run; ``options`` are those of its :class:`Method`."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Return whether no round is left."""

    @abstractmethod
    def setup(self) -> Setup:
        """Return the setup that every agent receives before its first request."""

    @abstractmethod
    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request of the open round for each present agent that takes part."""

    @abstractmethod
    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in the checked replies of the open round, by agent, and open the next round."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values and numpy arrays, for :meth:`load_state_dict`."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""

    @property
    def exploring(self) -> bool:
        """Return whether the agents still evaluate their initial points."""
        return False

    def close_files(self) -> None:  # noqa: B027 - most servers have no open file
        """Close the server's open files, such as the ledger."""

    def note_setup(self, setup: Setup) -> None:  # noqa: B027 - most servers need no note
        """Take note of the setup that agents receive, which names the run."""

    @property
    def legs_left(self) -> bool:
        """Return whether the round that was closed last has further messages, such as a sum's."""
        return False

    # -- what a run reports ------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Return whether the run did all that its settings ask for."""
        return self.finished

    def evaluations_per_agent(self) -> int | None:
        """Return how many evaluations each agent makes in the run; None where that varies."""
        return None

    def statement(self) -> PrivacyStatement:
        """Return the privacy statement of the run; by default nothing is private."""
        return PrivacyStatement(self.name, self.agents, notice=self.notice())

    def notice(self) -> str:
        """Return why the run is less private than its numbers suggest; empty if it is not."""
        return ""

    def warnings(self) -> list[str]:
        """Return warnings that a person should read before the run spends anything."""
        return []

    def best(self) -> float | None:
        """Return the mean best score, where agents send their scores (research only)."""
        return None

    @property
    def charges(self) -> int:
        """Return the number of releases that were charged to a ledger."""
        return 0

    def release(self) -> Release | None:
        """Return the last release; None before the first one, and for methods without releases."""
        return None

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """Return one setting for all agents, computed from the releases; None without releases."""
        return None

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """Return results that only this method has, for the result file."""
        return {}

    def files(self) -> dict[str, str]:
        """Return texts to write into the run directory at the end, by file name."""
        return {}


class Together(Protocol):
    """What computes for many agents of one process at once, before each of them is asked.

    What an agent then does must be the same, to the last bit, as without it.
    """

    def can(self, agent: Agent, request: Request) -> bool:
        """Return whether an agent makes its evaluations and its reply in two steps."""

    def prepare_work(self, agents: Sequence[Any], requests: Sequence[Request]) -> None:
        """Compute what :meth:`work` of the agents will need."""

    def work(self, agent: Any, request: Request) -> None:
        """Let an agent make the evaluations of a request that are not recorded yet."""

    def prepare_replies(self, agents: Sequence[Any], requests: Sequence[Request]) -> None:
        """Compute what :meth:`reply` of the agents will need."""

    def reply(self, agent: Any, request: Request) -> Reply:
        """Return the reply of an agent that has made its evaluations."""


@dataclass(frozen=True)
class Method:
    """The registration of a method.

    Parameters
    ----------
    name
        The name on the command line, such as ``"dp-fts-de"``.
    summary
        One line for lists.
    settings, server, agent, strategy
        The settings class, the :class:`MethodServer` class, the function that makes an agent, and
        the Flower strategy class, each as ``"module:attribute"``.
    agent_kind
        The word in the setup message from which a client knows which agent to make.
    seeks
        The tasks that the method is for: ``"any"``, or only tasks with one optimum for all agents
        (``"global"``). For such tasks, a ``"global"`` method comes before an ``"any"`` method of
        the same name.
    options
        Further arguments of the server.
    presets
        ``"module:function"`` of (task, seed): settings that follow from the task.
    space_presets
        ``"module:function"`` of (space): settings that follow from the search space.
    paper_settings
        Settings of the paper's experiments, applied by ``preset = "paper"``.
    bibtex
        How to cite the paper behind the method; empty for methods that serve as baselines.
    answers_early
        Whether an agent can reply although its evaluation still runs.
    summand
        ``"module:function"`` of (setup, evaluator, records, seed, request): an agent's vector for a
        secure sum. Empty where the method has no secure sums.
    together
        ``"module:class"`` of a :class:`Together`, which computes for many agents of this kind at
        once. Empty where every agent computes alone.
    """

    name: str
    summary: str
    settings: str
    server: str
    agent: str
    agent_kind: str
    strategy: str = "flwr_fbo.strategies.base:FBOStrategy"
    seeks: Literal["any", "global"] = "any"
    options: Mapping[str, Any] = field(default_factory=dict)
    presets: str = ""
    space_presets: str = ""
    paper_settings: Mapping[str, Any] = field(default_factory=dict)
    bibtex: str = ""
    answers_early: bool = False
    summand: str = ""
    together: str = ""

    @property
    def settings_class(self) -> type[Settings]:
        """Return the class of the method's settings."""
        settings: type[Settings] = load_attribute(self.settings)
        return settings

    @property
    def server_class(self) -> type[MethodServer]:
        """Return the class of the method's server."""
        server: type[MethodServer] = load_attribute(self.server)
        return server

    @property
    def strategy_class(self) -> Any:
        """Return the Flower strategy class, whose import needs Flower."""
        return load_attribute(self.strategy)

    def make_server(self, run: RunParameters, settings: Settings) -> MethodServer:
        """Return the server of one run."""
        server = self.server_class.for_run(run, settings, **self.options)
        server.name = self.name
        return server

    def make_agent(
        self,
        setup: Setup,
        evaluator: Evaluator,
        records: Records,
        seed: tuple[int, ...],
        owner: Owner,
    ) -> Agent:
        """Return the agent that answers requests under this setup, within its owner's limits."""
        agent: Agent = load_attribute(self.agent)(setup, evaluator, records, seed, owner)
        return agent

    def agents_together(self) -> Together | None:
        """Return what computes for many agents at once; None where every agent computes alone."""
        return load_attribute(self.together)() if self.together else None

    def summand_of(
        self,
        setup: Setup,
        evaluator: Evaluator,
        records: Records,
        seed: tuple[int, ...],
        request: Request,
    ) -> Array:
        """Return the vector that an agent adds to a secure sum."""
        if not self.summand:
            raise SettingsError(f"the strategy {self.name!r} has no secure sums")
        vector: Array = load_attribute(self.summand)(setup, evaluator, records, seed, request)
        return vector

    def presets_for(self, task: Task, seed: int) -> dict[str, Any]:
        """Return settings that follow from the task, for those that the user does not set."""
        of_task = load_attribute(self.presets)(task, seed) if self.presets else {}
        return {**self.presets_in(task.space), **of_task}

    def presets_in(self, space: Space | None) -> dict[str, Any]:
        """Return settings that follow from the space, for those that the user does not set."""
        if space is None or not self.space_presets:
            return {}
        return dict(load_attribute(self.space_presets)(space))


def load_attribute(where: str) -> Any:
    """Return the attribute that ``"module:attribute"`` names, after importing the module."""
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def score_range_presets(task: Task, seed: int) -> dict[str, Any]:
    """Return the range of the scores as settings, where the task or its metric's name states it."""
    found = task.score_range or known_range(task.metric)
    if found is None:
        return {}
    low, high = found
    return {"reward-low": low, "reward-high": high}


__all__ = [
    "Method",
    "MethodServer",
    "RunParameters",
    "Seeks",
    "Together",
    "load_attribute",
    "score_range_presets",
]
