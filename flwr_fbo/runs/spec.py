"""The specification of a run: one flat set of kebab-case keys, from any source.

``flwr run --run-config``, ``flwr-fbo run --set`` and Python give the same keys. The keys are those
of :class:`RunSettings`, of the method's settings and of the task's settings. Each is declared once,
in its own settings class. In a run-config, ``settings = "epsilon=5 regions=4"`` holds keys of the
method and the task. Python may give the task and the strategy as objects, which stand for their
names and for the settings that they were made with.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from flwr_fbo.core.settings import (
    Settings,
    SettingsError,
    above,
    at_least,
    kebab,
    setting,
    unknown_keys,
    within,
)
from flwr_fbo.methods.method import Method
from flwr_fbo.methods.registry import find_method, method_names
from flwr_fbo.runs.sizes import check_sizes
from flwr_fbo.tasks import Task, check_importable, find, name_of


@dataclass(frozen=True)
class RunSettings(Settings):
    """The settings of a run as a whole, for any method and task."""

    task: str = setting("digits", "built-in task, or module:attribute of a task of your own")
    strategy: str = setting("dp-fts-de", "method by which agents tune, together or alone")
    agents: int = setting(
        0, "number of agents; 0 is as many as parties or connected nodes", at_least(0)
    )
    rounds: int = setting(
        20,
        "rounds after the initial points; an agent makes `parallel` evaluations in each, or one",
        at_least(0),
    )
    seed: int = setting(0, "seed of everything but privacy noise", at_least(0))
    preset: Literal["default", "paper"] = setting(
        "default", "`paper`: the settings of the papers' experiments"
    )
    timeout: float = setting(
        3600.0,
        "seconds that a round may take; in a simulation also the most for one evaluation",
        above(0),
    )
    round_quorum: float = setting(
        1.0,
        "share of the asked agents whose replies end a round before its timeout",
        within(0, 1, open_low=True),
    )
    answer_within: float | None = setting(
        None,
        "seconds after which an agent replies from its finished evaluations although another "
        "still runs; where unset, an agent waits for its evaluation",
        at_least(0),
    )
    max_seconds: float | None = setting(
        None, "the run ends with the round in which it has taken this many seconds", above(0)
    )
    max_evaluations: int | None = setting(
        None, "the run ends with the round in which all agents together have made this many "
        "evaluations; simulations only",
        above(0),
    )  # fmt: skip
    patience: int | None = setting(
        None, "the run ends after this many rounds without a rise of the mean best score; "
        "simulations only",
        above(0),
    )  # fmt: skip
    target_score: float | None = setting(
        None, "the run ends when the mean best score reaches this score; simulations only"
    )
    track: Literal["none", "tensorboard", "wandb", "mlflow"] = setting(
        "none", "tracker that rounds are logged to; scores too, where the run is a simulation"
    )
    node_ids: str = setting(
        "", "the nodes of a deployment by the numbers of their parties, such as `17,5,42` for "
        "parties 0, 1 and 2; no other node can take a party's place",
    )  # fmt: skip
    run_name: str = setting("", "name of the run's directory below the home of runs")


#: The key of a run-config that holds settings of method and task.
SETTINGS = "settings"
#: The rules that end a run early.
STOPPING = ("max_seconds", "max_evaluations", "patience", "target_score")


@runtime_checkable
class ConfiguredStrategy(Protocol):
    """A strategy object, whatever its class.

    Parameters
    ----------
    method
        The method of the strategy.
    stated
        The settings that the strategy was given, by kebab-case key.
    """

    method: Method
    stated: Mapping[str, Any]


@dataclass(frozen=True)
class RunSpec:
    """A run that can be started.

    Parameters
    ----------
    run
        The settings of the run as a whole.
    task, method
        The task and the method, made from the names in the settings.
    settings
        The settings of the method.
    """

    run: RunSettings
    task: Task
    method: Method
    settings: Settings

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> RunSpec:
        """Return the run that the keys describe.

        An unknown key raises SettingsError with the nearest known key.
        """
        given = expand_settings(given)
        stated = names_and_values({key: value for key, value in given.items() if value != ""})
        # The run's own settings name the task and the method, which decide the other keys.
        run = RunSettings.from_mapping(_share(stated, RunSettings))
        task = given["task"] if not isinstance(given.get("task", ""), str) else find(run.task)
        method = find_method(run.strategy, task.seeks)
        _check_seeks(given.get("strategy"), method, task)
        settings_class = method.settings_class
        keys = settings_class.keys()
        if "parallel" in stated and "parallel" not in {*keys, *task.settings_class.keys()}:
            raise SettingsError(_no_parallel(run.strategy))
        known = {*RunSettings.keys(), *keys, *task.settings_class.keys()}
        _check_strategy_has(stated.keys() - known, run.strategy)
        unknown_keys(stated, known)
        paper = run.preset == "paper"
        made = _make_task(task, stated, paper)
        # Given settings come before those of the paper, and these before those of the task.
        presets = method.presets_for(made, run.seed)
        if paper:
            presets |= {**method.paper_settings, **task.paper_settings}
        presets = {key: value for key, value in presets.items() if key in keys}
        settings = settings_class.from_mapping(_share(stated, settings_class), presets)
        node_ids_of(run.node_ids)  # raises an error for a wrong text
        check_sizes(settings, run.agents, run.rounds, made.space.dimension)
        # Agents that reply early evaluate in another process, which must import the task.
        if run.answer_within is not None:
            _check_answers_early(run, method)
            check_importable(made)
        return cls(run, made, method, settings)

    def keys(self) -> set[str]:
        """Return all keys of this run: its own, its method's and its task's."""
        parts = (RunSettings, type(self.settings), type(self.task.settings))
        return set().union(*(part.keys() for part in parts))

    def to_mapping(self) -> dict[str, Any]:
        """Return every setting by its key, from which :meth:`from_mapping` makes the same run."""
        return {
            **self.run.to_mapping(),
            **settings_to_store(self.settings),
            **settings_to_store(self.task.settings),
        }


def expand_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping with the key=value pairs of its key ``settings`` as keys of their own."""
    rest = {key: value for key, value in given.items() if key != SETTINGS}
    text = given.get(SETTINGS, "")
    if not isinstance(text, str):
        raise SettingsError(
            f'`{SETTINGS}` must be text such as "epsilon=5 regions=4", but got {text!r}'
        )
    try:
        words = shlex.split(text)  # as a shell does, so that values in quotes may hold blanks
    except ValueError as error:
        raise SettingsError(
            f"`{SETTINGS}` must close every quote that it opens, but got {text[:120]!r}: {error}"
        ) from None
    pairs: dict[str, Any] = {}
    for pair in words:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise SettingsError(
                f"`{SETTINGS}` must hold key=value pairs separated by blanks, but got {pair!r}"
            )
        if key in pairs or (key in rest and rest[key] != ""):
            raise SettingsError(
                f"`{key}` is given twice: give a setting once, either in `{SETTINGS}` or as a key "
                "of its own"
            )
        pairs[key] = value
    return {**rest, **pairs}


def task_of(given: Mapping[str, Any]) -> Task:
    """Return the task that the keys of a run describe; clients need nothing else of a run."""
    given = expand_settings(given)
    name = given.get("task") or "digits"
    task = name if not isinstance(name, str) else find(name)
    stated = {key: value for key, value in given.items() if value != "" and key != "task"}
    return _make_task(task, stated, paper=given.get("preset") == "paper")


def names_and_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys with task and strategy objects replaced by their names and settings."""
    task, strategy = given.get("task", ""), given.get("strategy", "")
    stated = dict(given)
    if not isinstance(task, str):
        if not (isinstance(task, Task) or (isinstance(task, type) and issubclass(task, Task))):
            raise SettingsError(
                "`task` must be a name, a Task, a subclass of Task, or a function with @task, "
                f"but is {task!r}"
            )
        stated["task"] = name_of(task)
    if not isinstance(strategy, str):
        if not isinstance(strategy, ConfiguredStrategy):
            raise SettingsError(
                f"`strategy` must be a name or an object such as DPFTSDE(), but is {strategy!r}"
            )
        if not issubclass(strategy.method.strategy_class, type(strategy)):
            raise SettingsError(
                f"`strategy` must be of a registered class, but is a {type(strategy).__name__}: "
                "call its start(grid), or register its method"
            )
        twice = [key for key in strategy.stated if key in given]
        if twice:
            raise SettingsError(
                f"`{twice[0]}` is given twice: set it in {type(strategy).__name__}(...) or as an "
                "argument of its own"
            )
        stated |= {**strategy.stated, "strategy": strategy.method.name}
    return stated


def node_ids_of(text: str) -> tuple[int, ...]:
    """Return the numbers of nodes in a text such as ``"17,5,42"``."""
    words = text.replace(",", " ").split()
    if not all(word.isascii() and word.isdigit() for word in words):
        raise SettingsError(
            "`node-ids` must be numbers of nodes separated by commas, as `flwr supernode list` "
            f"prints them, but got {text!r}"
        )
    return tuple(map(int, words))


def settings_to_store(settings: Settings) -> dict[str, Any]:
    """Return the settings to store by key, without those whose value and default are None."""
    pairs = ((f, getattr(settings, f.name)) for f in dataclasses.fields(settings))
    return {kebab(f.name): v for f, v in pairs if v is not None or f.default is not None}


def _check_seeks(strategy: Any, method: Method, task: Task | type[Task]) -> None:
    """Raise SettingsError for a strategy object whose method is not for this kind of task."""
    if isinstance(strategy, ConfiguredStrategy) and strategy.method != method:
        optimum = "one optimum for all agents" if task.seeks == "global" else "each agent's optimum"
        raise SettingsError(
            f"`strategy` must be for tasks that seek {optimum}, but {type(strategy).__name__} "
            "is not"
        )


def _no_parallel(strategy: str) -> str:
    """Return why a strategy refuses the setting ``parallel``."""
    return (
        f"`parallel` must be left unset with {strategy}, which chooses each point after the answer "
        "before it, so that an agent has one evaluation to make at a time; it is a setting of "
        f"{', '.join(_strategies_with('parallel'))}"
    )


def _strategies_with(key: str) -> list[str]:
    """Return the names of the strategies that have a setting."""
    classes = {name: find_method(name, "global").settings_class for name in method_names()}
    return [name for name, settings in classes.items() if key in set(settings.keys())]


def _check_strategy_has(unknown: Iterable[str], strategy: str) -> None:
    """Raise SettingsError for an unknown key that is a setting of other strategies."""
    for key in sorted(unknown):
        if have := _strategies_with(key):
            raise SettingsError(
                f"unknown setting `{key}` of {strategy}; it is a setting of {', '.join(have)}"
            )


def _check_answers_early(run: RunSettings, method: Method) -> None:
    """Raise SettingsError for ``answer-within`` where replies are evaluations."""
    if not method.answers_early:
        raise SettingsError(
            f"`answer-within` must be left unset with {run.strategy}, but got "
            f"{run.answer_within:g}: the replies of its agents are evaluations, and a reply "
            "without its evaluation would be empty"
        )


def _make_task(task: Task | type[Task], given: Mapping[str, Any], paper: bool) -> Task:
    """Return the task of a class with these settings; return a task object as it is."""
    share = _share(given, task.settings_class)
    if isinstance(task, Task):
        # Its settings may be given again, as they are when a run with a task object continues.
        has, asked = task.settings, task.settings_class.from_mapping(share)
        for name in (key.replace("-", "_") for key in share):
            if getattr(asked, name) != getattr(has, name):
                raise SettingsError(
                    f"`{kebab(name)}` must be {getattr(has, name)!r}, as in the task object, "
                    f"but got {getattr(asked, name)!r}"
                )
        return task
    presets = task.paper_task_settings if paper else {}
    return task(task.settings_class.from_mapping(share, presets))


def _share(given: Mapping[str, Any], settings: type[Settings]) -> dict[str, Any]:
    """Return the keys that belong to a settings class."""
    keys = settings.keys()
    return {key: value for key, value in given.items() if key in keys}
