"""What is tuned: the class Task, and the decorator that makes a task from a function.

A task is the tuning problem of one party. The framework copies the task for every agent, calls
:meth:`Task.prepare` once with the :class:`Partition` of the agent, and then calls
:meth:`Task.evaluate` with parameter values as often as the agent decides. Scores are always
maximised.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from flwr_fbo.core.reports import report
from flwr_fbo.core.settings import Settings, SettingsError
from flwr_fbo.core.space import Space, Value

Params = Mapping[str, Value]
#: Which optimum agents look for: each agent its own, or all agents the same one.
Seeks = Literal["own", "global"]


@dataclass(frozen=True)
class Partition:
    """The share of the data that one agent holds.

    Parameters
    ----------
    index : int
        Number of the agent, from 0.
    count : int
        Number of agents among which the data are divided.
    seed : int
        Seed of the run. A task that divides or generates data with random numbers takes these
        numbers from :meth:`rng` or :meth:`shared_rng`, so that the data follow from the seed.
    config : mapping
        Configuration of the node in a deployment, such as ``data-dir``; empty in a simulation.

    Examples
    --------
    >>> first, second = Partition(0, 2, seed=7), Partition(1, 2, seed=7)
    >>> first.rng().random() == second.rng().random()
    False
    >>> first.shared_rng().random() == second.shared_rng().random()
    True
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
        """Return a random generator of this agent alone.

        Parameters
        ----------
        *purpose : int
            Numbers that keep the streams of one agent apart, such as 0 for dividing its data
            and 1 for generating them.
        """
        return np.random.default_rng([self.seed, self.index, *purpose])

    def shared_rng(self, *purpose: int) -> np.random.Generator:
        """Return a random generator that draws the same numbers at all agents of the run.

        Parameters
        ----------
        *purpose : int
            Numbers that keep the shared streams apart.
        """
        # No agent has the index 2^32 - 1, so the shared streams are nobody's own.
        return np.random.default_rng([self.seed, 2**32 - 1, *purpose])


class Task(ABC):
    """The tuning problem of one party: a search space, and a score to maximise.

    Subclasses define :attr:`space` and :meth:`evaluate`, and usually :meth:`prepare`.

    Parameters
    ----------
    settings : Settings, optional
        An instance of :attr:`settings_class`; the defaults of that class if not given.

    Examples
    --------
    >>> from flwr_fbo.core.space import Float
    >>> class HillTask(Task):
    ...     metric = "height"
    ...
    ...     @property
    ...     def space(self):
    ...         return Space({"x": Float(0.0, 1.0)})
    ...
    ...     def prepare(self, partition):
    ...         self.top = (partition.index + 1) / (partition.count + 1)
    ...
    ...     def evaluate(self, params, *, rng):
    ...         return 1.0 - abs(params["x"] - self.top)
    >>> hill = HillTask()
    >>> hill.prepare(Partition(index=0, count=3))
    >>> hill.evaluate({"x": 0.25}, rng=np.random.default_rng(0))
    1.0
    """

    #: Name of the task for people; where empty, the class's name in lower case without "Task".
    label: ClassVar[str] = ""
    #: What the score measures: "auc", "accuracy", "negative log loss".
    metric: str = "score"
    #: Bounds of the score, None where the score has none; Fed-PNE and local privacy need bounds.
    #: Where unset, ``dp-fts-de`` takes 0 to 1 for metrics such as an accuracy (tasks/metrics.py).
    score_range: tuple[float, float] | None = None
    #: Number of parties in the data set; None where the data can be divided among any number.
    parties: int | None = None
    #: Number of agents of a simulation that sets no number; None stands for ``parties``.
    default_agents: ClassVar[int | None] = None
    #: Whether each agent looks for its own optimum, or all agents look for the same one.
    seeks: ClassVar[Seeks] = "own"
    #: Class of the task's settings: the keys of ``--set`` and run-config.
    settings_class: ClassVar[type[Settings]] = Settings
    #: Strategy settings of the papers' experiments on this task, for ``preset = "paper"``.
    paper_settings: ClassVar[Mapping[str, Any]] = {}
    #: Task settings of the papers' experiments, for ``preset = "paper"``.
    paper_task_settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = self.settings_class() if settings is None else settings

    @property
    @abstractmethod
    def space(self) -> Space:
        """Return the search space.

        The space is public: the space may depend on the settings, but never on an agent's data.
        """

    def check_agents(self, count: int, seed: int = 0) -> None:
        """Raise SettingsError if the data cannot be divided among this number of agents.

        A simulation calls this method before any agent starts.

        Parameters
        ----------
        count : int
            Number of agents.
        seed : int
            Seed of the run, for tasks that divide their data with random numbers.
        """
        if self.parties is not None and count > self.parties:
            raise SettingsError(
                f"the data of `{self.name}` belong to {self.parties} parties, so `agents` must be "
                f"at most {self.parties}, but got {count}"
            )

    def fetch(self) -> None:  # noqa: B027 - optional on purpose
        """Download the data to this machine; a simulation calls this once before agents start."""

    def prepare(self, partition: Partition) -> None:  # noqa: B027 - optional on purpose
        """Load the share of the data that one agent holds.

        Every agent calls this method once, before its first evaluation.

        Parameters
        ----------
        partition : Partition
            The share of the agent.
        """

    @abstractmethod
    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Return the score of parameter values; larger is better.

        An exception, or a score that is not a finite number, is recorded as a failed evaluation.

        Parameters
        ----------
        params : mapping
            A value for every parameter of the space, by the name of the parameter.
        rng : numpy.random.Generator
            Source of random numbers for this evaluation. Take all random numbers from this
            generator, so that a repeated run gives the same score.
        """

    def report(self, step: int, score: float) -> None:
        """Report the score of the evaluation at a step, such as an epoch.

        Call this method from :meth:`evaluate`. If the evaluation looks hopeless beside the party's
        earlier ones, the method raises an error that ends the evaluation.

        Parameters
        ----------
        step : int
            The number of the step, from 1. The last step that is reported is the cost.
        score : float
            The score at this step.
        """
        report(step, score)

    def warm_start(self) -> Any:
        """Return what the party knows already: see :mod:`flwr_fbo.tasks.warm_start`.

        Every agent calls this method after :meth:`prepare`, before its first evaluation. The
        settings are the party's own data. They never leave the party, and count in what the agent
        shares under the same guarantee.

        Returns
        -------
        list or optuna.Study
            Settings, or pairs of a setting and its score. A setting without a score is evaluated
            first. The complete trials of a study in the space count as settings with scores.
        """
        return ()

    def expected(self, params: Params) -> float | None:
        """Return the score without noise, or None where this score is not known.

        Parameters
        ----------
        params : mapping
            A value for every parameter of the space.
        """
        return None

    def optimum(self) -> float | None:
        """Return the largest score without noise, or None where this score is not known."""
        return None

    @property
    def name(self) -> str:
        """Return the name of the task for people."""
        return self.label or type(self).__name__.removesuffix("Task").lower()


def number(params: Params, name: str) -> float:
    """Return the value of a numeric parameter as a float.

    Examples
    --------
    >>> number({"batch-size": 32}, "batch-size")
    32.0
    """
    value = params[name]
    if type(value) is float:  # the check of an abstract class takes longer than many a task
        return value
    if not isinstance(value, Real):
        raise TypeError(f"the parameter `{name}` must be a number, but got {value!r}")
    return float(value)


#: Optional arguments of a task function, beside the parameter values.
OPTIONAL_ARGUMENTS = ("data", "partition", "rng", "report")


class FunctionTask(Task):
    """A task that calls a function for every evaluation; :func:`task` makes such tasks.

    Parameters
    ----------
    function : callable
        Returns the score of the parameter values, which are its first argument.
    space : Space
        The search space.
    metric : str
        What the score measures, for people.
    prepare : callable, optional
        Returns the data of one agent from the agent's :class:`Partition`.
    score_range : tuple of float, optional
        Lowest and highest possible score.
    warm_start : list, optuna.Study or callable, optional
        What a party knows already, or a function that returns it for a :class:`Partition`.
    """

    def __init__(
        self,
        function: Callable[..., float],
        space: Space,
        metric: str = "score",
        prepare: Callable[[Partition], Any] | None = None,
        score_range: tuple[float, float] | None = None,
        warm_start: Any = (),
    ) -> None:
        super().__init__()
        self._warm_start = warm_start
        _check_arguments(function, prepare)
        self._function, self._space, self._prepare = function, space, prepare
        self.metric, self.score_range = metric, score_range
        # Found once: a signature is slow to inspect at every evaluation.
        self._accepted = set(inspect.signature(function).parameters)
        self._arguments: dict[str, Any] = {}

    def __call__(self, *arguments: Any, **named: Any) -> float:
        """Call the function as it was written, for tests and for use outside a federation."""
        return self._function(*arguments, **named)

    @property
    def space(self) -> Space:
        """Return the search space that the task was made with."""
        return self._space

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return str(self._function.__name__)

    @property
    def import_path(self) -> str:
        """Return ``module:attribute`` of the function."""
        return f"{self._function.__module__}:{self._function.__qualname__}"

    def prepare(self, partition: Partition) -> None:
        """Load the data of one agent with the function given as ``prepare``, if there is one."""
        self._arguments = {"partition": partition}
        if self._prepare is not None:
            self._arguments["data"] = self._prepare(partition)

    def warm_start(self) -> Any:
        """Return what the task was made with as ``warm_start``."""
        return self._warm_start

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Call the function, with those of data, partition, rng and report that it names."""
        available = {"rng": rng, "report": report, **self._arguments}
        # A function gets only the arguments that it names, so it needs no `**kwargs`.
        named = {name: value for name, value in available.items() if name in self._accepted}
        return self._function(params, **named)


def _required_arguments(function: Callable[..., float]) -> list[str]:
    """Return the names of the arguments that have no default."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind not in variadic
    ]


def _check_arguments(
    function: Callable[..., float], prepare: Callable[[Partition], Any] | None
) -> None:
    """Raise TypeError unless a task can pass everything that the function requires."""
    signature = f"{function.__name__}{inspect.signature(function)}"
    required = _required_arguments(function)
    for name in required[1:]:
        if name not in OPTIONAL_ARGUMENTS:
            raise TypeError(
                "after the parameter values, a task function may require only "
                f"{', '.join(OPTIONAL_ARGUMENTS)}, but {signature} asks for `{name}`"
            )
    if prepare is None and "data" in required:
        raise TypeError(
            f"{signature} asks for `data`, so `prepare=` must be a function that returns them"
        )
    if prepare is not None and "data" not in inspect.signature(function).parameters:
        raise TypeError(
            f"what `prepare` returns is passed as `data`, so the function must have a parameter "
            f"`data`, but {signature} has none"
        )


def task(
    *,
    space: Space | Mapping[str, Any],
    metric: str = "score",
    prepare: Callable[[Partition], Any] | None = None,
    score_range: tuple[float, float] | None = None,
    warm_start: Any = (),
) -> Callable[[Callable[..., float]], FunctionTask]:
    """Make a task from a function that returns a score.

    The first argument of the function is a mapping with the parameter values. The function may
    also name ``data`` (what ``prepare`` returned for this agent), ``partition``, ``rng`` (a numpy
    generator) and ``report`` (see :meth:`Task.report`) among its arguments.

    Parameters
    ----------
    space : Space or mapping
        The search space, or the parameters of the space by name.
    metric : str
        What the score measures, for people.
    prepare : callable, optional
        Returns the data of one agent from the agent's :class:`Partition`; called once per agent.
    score_range : tuple of float, optional
        Lowest and highest possible score; Fed-PNE and local privacy need this range.
    warm_start : list, optuna.Study or callable, optional
        What a party knows already: settings, pairs of a setting and its score, or an Optuna study;
        or a function that returns one of these for a :class:`Partition`.

    Returns
    -------
    callable
        A decorator that turns the function into a :class:`FunctionTask`.

    Examples
    --------
    >>> from flwr_fbo.core.space import Float
    >>> @task(space={"x": Float(0.0, 1.0)}, prepare=lambda partition: 0.1 * partition.index)
    ... def hill(params, data):
    ...     return 1.0 - abs(params["x"] - data)
    >>> hill.prepare(Partition(index=2, count=3))
    >>> hill.evaluate({"x": 0.2}, rng=np.random.default_rng(0))
    1.0
    """
    whole = space if isinstance(space, Space) else Space(space)
    return lambda function: FunctionTask(function, whole, metric, prepare, score_range, warm_start)
