"""What a method is: its settings, its server, its agent, and the Flower strategy around them.

A method registers once, by a :class:`Method` in the ``__init__`` of its own folder. The command
line, the run-config, the strategies and the clients all read that one object. Everything that
takes long to import is named by ``"module:attribute"`` and imported when it is first used.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from flwr_fbo.core.evaluation import Evaluation, Evaluator, Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.settings import Settings
from flwr_fbo.core.space import Space
from flwr_fbo.methods.owner import Owner
from flwr_fbo.privacy.releases import Release
from flwr_fbo.privacy.statement import PrivacyStatement
from flwr_fbo.tasks.task import Seeks, Task


@dataclass(frozen=True)
class RunParameters:
    """What a method's server needs besides its settings to serve one run."""

    space: Space
    agents: int
    rounds: int
    seed: int = 0
    #: Longest time in seconds that a round may take, and a node may take to connect.
    timeout: float = 3600.0
    #: Share of the asked agents whose replies end a round before its timeout.
    quorum: float = 1.0
    #: File of the privacy ledger; without a file, charges are kept in memory only.
    ledger: Path | None = None
    #: The task, for methods that must know more of it than its space.
    task: Task | None = None


class MethodServer(ABC):
    """The server half of a method: a :class:`~flwr_fbo.core.protocol.Server` that can report.

    The first group of methods is the state machine. The second group says what a run's
    result, report and progress show; each has a default for methods with nothing to say.
    """

    #: The method's name, as it is registered.
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
        """Make the server of one run; ``options`` are those of its :class:`Method`."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Say whether there is nothing left to ask."""

    @abstractmethod
    def setup(self) -> Setup:
        """Return what every agent must know before its first request."""

    @abstractmethod
    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the round's request for each of the present agents that is asked."""

    @abstractmethod
    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in the round's checked replies and go on to the next round."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that :meth:`load_state_dict` needs: JSON values and numpy arrays."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""

    @property
    def exploring(self) -> bool:
        """Say whether the agents still evaluate their initial points."""
        return False

    def close_files(self) -> None:  # noqa: B027 - most servers hold no file
        """Close the files that the server holds open."""

    # -- what a run reports ------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Say whether the run did all that its settings ask for."""
        return self.finished

    def evaluations_per_agent(self) -> int | None:
        """Return how many evaluations each agent makes in the run; None where that varies."""
        return None

    def statement(self) -> PrivacyStatement:
        """Return what the run guarantees; by default nothing is private."""
        return PrivacyStatement(self.name, self.agents, notice=self.notice())

    def notice(self) -> str:
        """Return what a person must know before trusting the run's privacy, or nothing."""
        return ""

    def warnings(self) -> list[str]:
        """Return what a person must hear before the run spends anything."""
        return []

    def best(self) -> float | None:
        """Return the mean best score, where agents send their scores (research only)."""
        return None

    @property
    def charges(self) -> int:
        """Return how many releases were charged to a ledger."""
        return 0

    def release(self) -> Release | None:
        """Return the last vector that was made public, where the method has releases."""
        return None

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """Return one point for all agents, computed from the releases; None without any."""
        return None

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """Return what the result file says besides what all results say."""
        return {}

    def files(self) -> dict[str, str]:
        """Return texts to keep in the run directory at the end, by file name."""
        return {}


@dataclass(frozen=True)
class Method:
    """One registration of a method.

    Parameters
    ----------
    name
        The name on the command line, such as ``"dp-fts-de"``.
    summary
        One line for lists.
    settings, server, agent, strategy
        Where the settings class, the :class:`MethodServer` class, the function that makes an
        agent, and the Flower strategy class are: ``"module:attribute"``.
    agent_kind
        The word in the setup message that tells a client which agent to make.
    seeks
        Tasks that the method is for: ``"any"``, or only tasks with one optimum for all agents
        (``"global"``), which then comes before a method of the same name for any task.
    options
        What the server is given besides the run and the settings.
    presets
        ``"module:function"`` of (task, seed): settings that follow from the task.
    paper_settings
        Settings of the paper's experiments, applied by ``preset = "paper"``.
    bibtex
        How to cite the paper behind the method; empty for methods that serve as baselines.
    answers_early
        Whether an agent can reply while its evaluation still runs.
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
    paper_settings: Mapping[str, Any] = field(default_factory=dict)
    bibtex: str = ""
    answers_early: bool = False

    @property
    def settings_class(self) -> type[Settings]:
        """Return the class of the method's settings."""
        found: type[Settings] = located(self.settings)
        return found

    @property
    def server_class(self) -> type[MethodServer]:
        """Return the class of the method's server."""
        found: type[MethodServer] = located(self.server)
        return found

    @property
    def strategy_class(self) -> Any:
        """Return the Flower strategy class. This imports Flower."""
        return located(self.strategy)

    def make_server(self, run: RunParameters, settings: Settings) -> MethodServer:
        """Make the server of one run."""
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
        """Make the agent that answers requests under this setup, within its owner's limits."""
        agent: Agent = located(self.agent)(setup, evaluator, records, seed, owner)
        return agent

    def presets_for(self, task: Task, seed: int) -> dict[str, Any]:
        """Return the settings that follow from the task where nothing else is given."""
        return dict(located(self.presets)(task, seed)) if self.presets else {}


def located(where: str) -> Any:
    """Import ``"module:attribute"`` and return the attribute."""
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def score_range_presets(task: Task, seed: int) -> dict[str, Any]:
    """Return the range of the scores as settings, where the task states the range."""
    if task.score_range is None:
        return {}
    low, high = task.score_range
    return {"reward-low": low, "reward-high": high}


__all__ = [
    "Method",
    "MethodServer",
    "RunParameters",
    "Seeks",
    "located",
    "score_range_presets",
]
