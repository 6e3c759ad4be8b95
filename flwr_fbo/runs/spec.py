"""What a run is: one flat set of kebab-case keys, read the same way wherever it comes from.

``flwr run --run-config``, ``flwr-fbo run --set`` and Python all end here. The keys are those of
:class:`RunSettings`, of the method's settings and of the task's settings; each is declared
once, in its own settings class. In a run-config, ``settings = "epsilon=5 regions=4"`` holds the
keys of method and task. Python may give the task and the strategy as objects: they stand for
their names and for the settings they were made with.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
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
from flwr_fbo.methods.registry import find_method
from flwr_fbo.tasks import Task, check_importable, find, name_of


@dataclass(frozen=True)
class RunSettings(Settings):
    """What concerns a run as a whole."""

    task: str = setting("digits", "built-in task, or module:attribute of your own")
    strategy: str = setting("dp-fts-de", "how agents work together")
    agents: int = setting(0, "how many take part; 0 is as many as there are", at_least(0))
    rounds: int = setting(20, "evaluations an agent makes after its initial points", at_least(0))
    seed: int = setting(0, "seed of everything but privacy noise", at_least(0))
    preset: Literal["default", "paper"] = setting(
        "default", "`paper`: the settings of the papers' experiments"
    )
    timeout: float = setting(3600.0, "seconds a round may take", above(0))
    round_quorum: float = setting(
        1.0,
        "share of the asked agents whose replies end a round before its timeout",
        within(0, 1, open_low=True),
    )
    answer_within: float | None = setting(
        None,
        "seconds after which an agent answers with what it knows while its evaluation goes on; "
        "where unset, it waits for the evaluation",
        at_least(0),
    )
    max_seconds: float | None = setting(
        None, "end with the round in which this many seconds have passed", above(0)
    )
    max_evaluations: int | None = setting(
        None, "end with the round in which all agents together made this many; simulations",
        above(0),
    )  # fmt: skip
    patience: int | None = setting(
        None, "end after this many rounds in which the mean best did not rise; simulations",
        above(0),
    )  # fmt: skip
    target_score: float | None = setting(
        None, "end as soon as the mean best reaches this score; simulations"
    )
    run_name: str = setting("", "directory of the run under the home of flwr-fbo's runs")


#: The key of a run-config that holds the settings of method and task.
SETTINGS = "settings"
#: The rules that end a run early.
STOPPING = ("max_seconds", "max_evaluations", "patience", "target_score")


@runtime_checkable
class ConfiguredStrategy(Protocol):
    """A strategy object: its method, and the settings that were given when it was made."""

    method: Method
    stated: Mapping[str, Any]


@dataclass(frozen=True)
class RunSpec:
    """A run that can be started: settings that were checked, a task and a method."""

    run: RunSettings
    task: Task
    method: Method
    settings: Settings

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> RunSpec:
        """Read all keys; raise for an unknown key, naming the nearest known one."""
        given = expanded(given)
        stated = named({key: value for key, value in given.items() if value != ""})
        run = RunSettings.from_mapping(_share(stated, RunSettings))
        task = given["task"] if not isinstance(given.get("task", ""), str) else find(run.task)
        method = find_method(run.strategy, task.seeks)
        _check_seeks(given.get("strategy"), method, task)
        settings_class = method.settings_class
        keys = settings_class.keys()
        unknown_keys(stated, {*RunSettings.keys(), *keys, *task.settings_class.keys()})
        paper = run.preset == "paper"
        made = _make_task(task, stated, paper)
        presets = method.presets_for(made, run.seed)
        if paper:
            presets |= {**method.paper_settings, **task.paper_settings}
        presets = {key: value for key, value in presets.items() if key in keys}
        settings = settings_class.from_mapping(_share(stated, settings_class), presets)
        if run.answer_within is not None:
            _check_answers_early(run, method)
            check_importable(made)
        return cls(run, made, method, settings)

    def keys(self) -> set[str]:
        """Return the keys that may be set in this run."""
        parts = (RunSettings, type(self.settings), type(self.task.settings))
        return set().union(*(part.keys() for part in parts))

    def to_mapping(self) -> dict[str, Any]:
        """Return every setting; from_mapping makes the same run where the task can be imported."""
        return {
            **self.run.to_mapping(),
            **settings_to_store(self.settings),
            **settings_to_store(self.task.settings),
        }


def expanded(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping with the pairs of its key ``settings`` in place of that key."""
    rest = {key: value for key, value in given.items() if key != SETTINGS}
    text = given.get(SETTINGS, "")
    if not isinstance(text, str):
        raise SettingsError(
            f'`{SETTINGS}` must be text such as "epsilon=5 regions=4", but got {text!r}'
        )
    pairs: dict[str, Any] = {}
    for pair in shlex.split(text):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise SettingsError(
                f"`{SETTINGS}` must hold key=value pairs with blanks between, but got {pair!r}"
            )
        if key in pairs or (key in rest and rest[key] != ""):
            raise SettingsError(f"`{key}` is given twice")
        pairs[key] = value
    return {**rest, **pairs}


def task_of(given: Mapping[str, Any]) -> Task:
    """Return the task that a run's keys describe, whatever its method. Clients need no more."""
    given = expanded(given)
    name = given.get("task") or "digits"
    task = name if not isinstance(name, str) else find(name)
    stated = {key: value for key, value in given.items() if value != "" and key != "task"}
    return _make_task(task, stated, paper=given.get("preset") == "paper")


def named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same in names and values only: objects replaced by what they were made of."""
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
            raise SettingsError(f"`{twice[0]}` is given twice: in the strategy and beside it")
        stated |= {**strategy.stated, "strategy": strategy.method.name}
    return stated


def settings_to_store(settings: Settings) -> dict[str, Any]:
    """Return all that must be written down: None only where something else is the default."""
    pairs = ((f, getattr(settings, f.name)) for f in dataclasses.fields(settings))
    return {kebab(f.name): v for f, v in pairs if v is not None or f.default is not None}


def _check_seeks(strategy: Any, method: Method, task: Task | type[Task]) -> None:
    if isinstance(strategy, ConfiguredStrategy) and strategy.method != method:
        raise SettingsError(
            f"the strategy {type(strategy).__name__} does not fit a task that seeks "
            f"{'one optimum for all' if task.seeks == 'global' else 'an optimum for each agent'}"
        )


def _check_answers_early(run: RunSettings, method: Method) -> None:
    if not method.answers_early:
        raise SettingsError(
            f"`answer-within` must be left unset with {run.strategy}, but got "
            f"{run.answer_within:g}: its agents reply with evaluations, not with what they know"
        )


def _make_task(task: Task | type[Task], given: Mapping[str, Any], paper: bool) -> Task:
    """Make the task of a class with its settings; a task that is made already stays as it is."""
    share = _share(given, task.settings_class)
    if isinstance(task, Task):
        has, asked = task.settings, task.settings_class.from_mapping(share)
        for name in (key.replace("-", "_") for key in share):
            if getattr(asked, name) != getattr(has, name):
                raise SettingsError(
                    f"`{kebab(name)}` must be {getattr(has, name)!r}, as the task was made, "
                    f"but got {getattr(asked, name)!r}"
                )
        return task
    presets = task.paper_task_settings if paper else {}
    return task(task.settings_class.from_mapping(share, presets))


def _share(given: Mapping[str, Any], settings: type[Settings]) -> dict[str, Any]:
    keys = settings.keys()
    return {key: value for key, value in given.items() if key in keys}
