"""What is tuned: built-in tasks by name, and the tools to write your own."""

from __future__ import annotations

import difflib
import importlib
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.tasks.task import FunctionTask, Partition, Task, task

_PACKAGE = Path(__file__).parents[1]

#: Built-in tasks: name -> "module:class". Imported only when asked for.
BUILT_IN: dict[str, str] = {
    "digits": "flwr_fbo.tasks.digits:DigitsTask",
    "doublesine": "flwr_fbo.tasks.papers.garland:DoubleSineTask",
    "garland": "flwr_fbo.tasks.papers.garland:GarlandTask",
    "landmine": "flwr_fbo.tasks.papers.landmine:LandmineTask",
    "landmine-global": "flwr_fbo.tasks.papers.landmine:LandmineGlobalTask",
    "activity": "flwr_fbo.tasks.papers.activity:ActivityTask",
    "glasses": "flwr_fbo.tasks.papers.glasses:GlassesTask",
    "emnist": "flwr_fbo.tasks.papers.emnist:EmnistTask",
    "mnist": "flwr_fbo.tasks.papers.mnist:MnistTask",
    "vaccine": "flwr_fbo.tasks.papers.vaccine:VaccineTask",
    "light": "flwr_fbo.tasks.papers.bandits:LightTask",
    "stocks": "flwr_fbo.tasks.papers.bandits:StocksTask",
    "synthetic": "flwr_fbo.tasks.papers.synthetic:SyntheticTask",
    "ldp-synthetic": "flwr_fbo.tasks.papers.ldp_synthetic:LDPSyntheticTask",
}


def find(name: str) -> Task | type[Task]:
    """A built-in task class by name, or your own task or class by ``module:attribute``."""
    if ":" not in name:
        try:
            unknown_keys([name], BUILT_IN)
        except SettingsError as error:
            raise SettingsError(str(error).replace("unknown setting", "unknown task")) from None
    module, _, attribute = (name if ":" in name else BUILT_IN[name]).partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever goes wrong in the user's module is the user's to see
        raise SettingsError(f"`task` {name!r} cannot be imported: {_told(error)}") from error
    if isinstance(found, Task) or (isinstance(found, type) and issubclass(found, Task)):
        return found
    raise SettingsError(
        f"`task` {name!r} must be a Task, a subclass of Task, or a function with @task, "
        f"but is {found!r}"
    )


def _told(error: Exception) -> str:
    """An error in a line, with the place in the user's code where it was raised."""
    if isinstance(error, AttributeError) and isinstance(error.obj, types.ModuleType):
        near = difflib.get_close_matches(str(error.name), vars(error.obj), n=1)
        return str(error) + (f"; did you mean `{near[0]}`?" if near else "")
    if isinstance(error, (ImportError, SyntaxError)):  # these say where
        return str(error)
    place = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in place if not f.filename.startswith((str(_PACKAGE), "<"))]
    where = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}: {error}{where}"


def name_of(task: Task | type[Task]) -> str:
    """The name by which :func:`find` finds a task or its class again."""
    if isinstance(task, FunctionTask):
        return task.where
    cls = task if isinstance(task, type) else type(task)
    where = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, built_in in BUILT_IN.items() if built_in == where), where)


def check_importable(task: Task | type[Task]) -> None:
    """Raise unless a process of its own can find the task."""
    name = name_of(task)
    if name.startswith("__main__:") or "<locals>" in name:
        raise SettingsError(
            f"`answer-within` needs a task that another process can import, but got {name!r}: "
            "put it in a module of its own"
        )


def load(name: str, settings: Mapping[str, Any] | None = None) -> Task:
    """A task that is ready to be prepared, with settings given by kebab-case keys."""
    found = find(name)
    if isinstance(found, Task):
        return found
    return found(found.settings_class.from_mapping(settings or {}))


def catalogue(data_dir: str | None = None) -> list[dict[str, Any]]:
    """Every built-in task with its space, metric, agents and data, ready for JSON."""
    from flwr_fbo.tasks.listing import entries

    return entries(data_dir)


__all__ = [
    "BUILT_IN",
    "FunctionTask",
    "Partition",
    "Task",
    "catalogue",
    "check_importable",
    "find",
    "load",
    "name_of",
    "task",
]
