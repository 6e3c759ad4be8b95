"""What is tuned: the Task protocol, and the decorator that makes one of a function.

A task is one party's problem. The framework copies it for every agent, calls
:meth:`Task.prepare` once with that agent's :class:`Partition`, and then :meth:`Task.evaluate`
with parameter values as often as the agent decides. Scores are always maximised.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from flwr_fbo.core.settings import Settings
from flwr_fbo.core.space import Space, Value

Params = Mapping[str, Value]
#: What is sought: each agent's own optimum, or one for all agents.
Seeks = Literal["own", "global"]


@dataclass(frozen=True)
class Partition:
    """Which share of the data an agent holds.

    ``seed`` is the run's seed: whatever a task draws to divide or generate data must depend
    only on it and on ``index``. ``config`` is the node's own configuration in a deployment.
    """

    index: int
    count: int
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(
                f"`0 <= index < count` must hold, but got (index={self.index}, count={self.count})"
            )

    def rng(self, *purpose: int) -> np.random.Generator:
        """A generator for this agent's share of the data, different for every purpose."""
        return np.random.default_rng([self.seed, self.index, *purpose])

    def shared_rng(self, *purpose: int) -> np.random.Generator:
        """A generator that is the same for all agents of the run."""
        return np.random.default_rng([self.seed, 2**32 - 1, *purpose])


class Task(ABC):
    """One party's problem: a search space, and a score to maximise over it."""

    #: What the score is, for people: "auc", "accuracy", "negative log loss".
    metric: str = "score"
    #: Bounds on the score where it has any; Fed-PNE and local privacy need them.
    score_range: tuple[float, float] | None = None
    #: How many parties the data set holds; None where any number can be made.
    parties: int | None = None
    #: How many agents a simulation has where nothing is said; None means as many as parties.
    default_agents: ClassVar[int | None] = None
    #: Whether each agent seeks its own optimum, or all seek one.
    seeks: ClassVar[Seeks] = "own"
    #: What may be set with ``--set`` or run-config; an instance is given to ``__init__``.
    settings_class: ClassVar[type[Settings]] = Settings
    #: Strategy settings that the papers used on this task, applied by ``preset = "paper"``.
    paper_settings: ClassVar[Mapping[str, Any]] = {}
    #: Settings of the task itself in the papers, applied by the same preset.
    paper_task_settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = self.settings_class() if settings is None else settings

    @property
    @abstractmethod
    def space(self) -> Space:
        """The search space; it may depend on the task's settings, never on an agent's data."""

    def fetch(self) -> None:  # noqa: B027 - optional on purpose
        """Have the data on this machine; a simulation calls it once, before agents start."""

    def prepare(self, partition: Partition) -> None:  # noqa: B027 - optional on purpose
        """Load this agent's share of the data. Called once, before the first evaluation."""

    @abstractmethod
    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """The score of these parameter values; an exception or a non-finite score is a failure."""

    def expected(self, params: Params) -> float | None:
        """The noise-free score, where it is known (synthetic tasks)."""
        return None

    def optimum(self) -> float | None:
        """The largest noise-free score, where it is known (synthetic tasks)."""
        return None

    @property
    def name(self) -> str:
        """The name shown to people."""
        return type(self).__name__.removesuffix("Task").lower()


#: What a function may ask for by name, beside the parameter values.
GIVEN = ("data", "partition", "rng")


def _required(function: Callable[..., float]) -> list[str]:
    """The arguments that a function cannot do without."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind not in kinds
    ]


class FunctionTask(Task):
    """A task made of a function by :func:`task`."""

    def __init__(
        self,
        function: Callable[..., float],
        space: Space,
        metric: str = "score",
        prepare: Callable[[Partition], Any] | None = None,
        score_range: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        self._function, self._space, self._prepare = function, space, prepare
        self.metric, self.score_range = metric, score_range
        self._wants = set(inspect.signature(function).parameters)
        strange = [name for name in _required(function)[1:] if name not in GIVEN]
        if strange:
            raise TypeError(
                f"beside the parameter values a task is given {', '.join(GIVEN)} if it names them, "
                f"but {function.__name__}{inspect.signature(function)} asks for `{strange[0]}`"
            )
        if prepare is None and "data" in _required(function):
            raise TypeError(
                f"{function.__name__}{inspect.signature(function)} asks for `data`, which "
                "`prepare=` must name a function for"
            )
        if prepare is not None and "data" not in self._wants:
            raise TypeError(
                f"a task with `prepare` takes what it returned as `data`, but "
                f"{function.__name__}{inspect.signature(function)} has no such parameter"
            )
        self._extra: dict[str, Any] = {}

    @property
    def space(self) -> Space:
        """See :class:`Task`."""
        return self._space

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self._function.__name__)

    @property
    def where(self) -> str:
        """``module:attribute`` of the function."""
        return f"{self._function.__module__}:{self._function.__qualname__}"

    def prepare(self, partition: Partition) -> None:
        """See :class:`Task`."""
        self._extra = {"partition": partition}
        if self._prepare is not None:
            self._extra["data"] = self._prepare(partition)

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Call the function with whichever of data, partition and rng it asks for."""
        extra = {"rng": rng, **self._extra}
        return self._function(params, **{k: v for k, v in extra.items() if k in self._wants})


def task(
    *,
    space: Space | Mapping[str, Any],
    metric: str = "score",
    prepare: Callable[[Partition], Any] | None = None,
    score_range: tuple[float, float] | None = None,
) -> Callable[[Callable[..., float]], FunctionTask]:
    """Make a task of a function of the parameter values.

    The function takes ``params`` and, if it names them, ``data`` (what ``prepare`` returned
    for this agent), ``partition`` and ``rng``::

        @task(space={"C": Float(1e-2, 1e2, log=True)}, metric="accuracy", prepare=load)
        def svm(params, data): ...
    """
    whole = space if isinstance(space, Space) else Space(space)
    return lambda function: FunctionTask(function, whole, metric, prepare, score_range)
