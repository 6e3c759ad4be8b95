"""What a run is: one flat set of kebab-case keys, read the same way wherever it comes from.

``flwr run --run-config``, ``flwr-fbo run --set`` and Python all end here. The keys are those of
:class:`RunSettings`, of the strategy's settings and of the task's settings; each is declared
once, in its own settings class. Python may give the task and the strategy as objects: they
stand for their names and for the settings they were made with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
from flwr_fbo.strategies import FBOStrategy, strategy_class, strategy_name
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
        "share of the agents asked whose replies end a round before its time-out",
        within(0, 1, open_low=True),
    )
    answer_within: float | None = setting(
        None,
        "seconds after which an agent answers with what it knows while its evaluation goes on; "
        "it waits for it where unset",
        at_least(0),
    )
    max_seconds: float | None = setting(
        None, "end with the round in which so many seconds have passed", above(0)
    )
    max_evaluations: int | None = setting(
        None, "end with the round in which all agents together made so many; simulations", above(0)
    )
    patience: int | None = setting(
        None, "end after so many rounds in which the mean best did not rise; simulations", above(0)
    )
    target_score: float | None = setting(
        None, "end as soon as the mean best is so high; simulations"
    )
    run_name: str = setting("", "directory of the run under the home of flwr-fbo's runs")


@dataclass(frozen=True)
class RunSpec:
    """A run that can be started: settings that were checked, a task and a strategy."""

    run: RunSettings
    task: Task
    strategy: FBOStrategy

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> RunSpec:
        """Read all keys; an unknown one is an error that names the nearest."""
        stated = named({key: value for key, value in given.items() if value != ""})
        run = RunSettings.from_mapping(_share(stated, RunSettings))
        task = given["task"] if not isinstance(given.get("task", ""), str) else find(run.task)
        strategy_type = strategy_class(run.strategy, task.seeks)
        _check_seeks(given.get("strategy"), strategy_type, task)
        strategy_keys = strategy_type.settings_class.keys()
        task_keys = task.settings_class.keys()
        unknown_keys(stated, {*RunSettings.keys(), *strategy_keys, *task_keys})
        paper = run.preset == "paper"
        made = _make_task(task, stated, paper)
        presets = dict(strategy_type.presets_for(made, run.seed))
        if paper:
            presets |= {**strategy_type.paper_settings, **task.paper_settings}
        presets = {key: value for key, value in presets.items() if key in strategy_keys}
        settings = strategy_type.settings_class
        strategy = strategy_type(settings.from_mapping(_share(stated, settings), presets))
        if run.answer_within is not None:
            _check_asynchronous(run, strategy)
            check_importable(made)
        return cls(run, made, strategy)

    def keys(self) -> set[str]:
        """What may be set in this run."""
        parts = (RunSettings, type(self.strategy.settings), type(self.task.settings))
        return set().union(*(part.keys() for part in parts))

    def to_mapping(self) -> dict[str, Any]:
        """Every setting: from_mapping makes the same run of it, where the task can be imported."""
        return {
            **self.run.to_mapping(),
            **_stated(self.strategy.settings),
            **_stated(self.task.settings),
        }


def named(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same in names and values only: objects replaced by what they were made of."""
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
        if not isinstance(strategy, FBOStrategy):
            raise SettingsError(
                f"`strategy` must be a name or an object such as DPFTSDE(), but is {strategy!r}"
            )
        twice = [key for key in strategy.given if key in given]
        if twice:
            raise SettingsError(f"`{twice[0]}` is given twice: in the strategy and beside it")
        stated |= {**strategy.given, "strategy": strategy_name(type(strategy))}
    return stated


def _check_seeks(strategy: Any, found: type[FBOStrategy], task: Task | type[Task]) -> None:
    if isinstance(strategy, FBOStrategy) and type(strategy) is not found:
        raise SettingsError(
            f"the strategy {type(strategy).__name__} does not fit a task that seeks "
            f"{'one optimum for all' if task.seeks == 'global' else 'an optimum for each agent'}"
        )


def _check_asynchronous(run: RunSettings, strategy: FBOStrategy) -> None:
    if not strategy.asynchronous:
        raise SettingsError(
            f"`answer-within` must be left unset with {run.strategy}, but got "
            f"{run.answer_within:g}: its agents reply with evaluations, not with what they know"
        )


def _make_task(task: Task | type[Task], given: Mapping[str, Any], paper: bool) -> Task:
    """The task of a class with its settings; one that is made already stays as it is."""
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


def _stated(settings: Settings) -> dict[str, Any]:
    """All that must be written down: None only where something else is the default."""
    pairs = ((f, getattr(settings, f.name)) for f in dataclasses.fields(settings))
    return {kebab(f.name): v for f, v in pairs if v is not None or f.default is not None}
