"""What a run is: one flat set of kebab-case keys, read the same way wherever it comes from.

``flwr run --run-config``, ``flwr-fbo run --set`` and Python all end here. The keys are those of
:class:`RunSettings`, of the strategy's settings and of the task's settings; each is declared
once, in its own settings class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flwr_fbo.core.settings import Settings, above, at_least, setting, unknown_keys, within
from flwr_fbo.strategies import FBOStrategy, strategy_class
from flwr_fbo.tasks import Task, find


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
        given = {key: value for key, value in given.items() if value != ""}
        run = RunSettings.from_mapping(_share(given, RunSettings))
        task_type = find(run.task)
        strategy_type = strategy_class(run.strategy, task_type.seeks)
        strategy_keys = strategy_type.settings_class.keys()
        task_keys = task_type.settings_class.keys()
        unknown_keys(given, {*RunSettings.keys(), *strategy_keys, *task_keys})
        paper = run.preset == "paper"
        task = task_type if isinstance(task_type, Task) else _make_task(task_type, given, paper)
        presets = dict(strategy_type.presets_for(task, run.seed))
        if paper:
            presets |= {**strategy_type.paper_settings, **task_type.paper_settings}
        presets = {key: value for key, value in presets.items() if key in strategy_keys}
        settings = strategy_type.settings_class
        strategy = strategy_type(settings.from_mapping(_share(given, settings), presets))
        return cls(run, task, strategy)

    def to_mapping(self) -> dict[str, Any]:
        """Every setting that is not None: from_mapping makes the same run of it."""
        strategy, task = self.strategy.settings.to_mapping(), self.task.settings.to_mapping()
        return {**self.run.to_mapping(), **strategy, **task}


def _make_task(task_type: type[Task], given: Mapping[str, Any], paper: bool) -> Task:
    settings = task_type.settings_class
    presets = task_type.paper_task_settings if paper else {}
    return task_type(settings.from_mapping(_share(given, settings), presets))


def _share(given: Mapping[str, Any], settings: type[Settings]) -> dict[str, Any]:
    keys = settings.keys()
    return {key: value for key, value in given.items() if key in keys}
