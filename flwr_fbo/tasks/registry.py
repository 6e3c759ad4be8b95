"""The names of tasks: built-in ones, those of installed packages, and your own.

A task is named in one of three ways:

* a built-in name, listed in :data:`BUILT_IN`;
* the name of an entry point in the group ``flwr_fbo.tasks``, by which an installed package
  offers a task: ``"module:Class"`` of a :class:`Task`, or ``"module:function"`` of a function
  with :func:`task`;
* ``module:attribute`` of any importable task.

A module is imported only when its task is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import traceback
import types
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.tasks.task import FunctionTask, Task

_PACKAGE = Path(__file__).parents[1]

#: Group of the entry points by which installed packages offer tasks.
ENTRY_POINT_GROUP = "flwr_fbo.tasks"

#: Built-in tasks: name -> "module:class".
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


def names() -> list[str]:
    """Return the names of all tasks: the built-in ones, then those of installed packages."""
    return [*BUILT_IN, *sorted({point.name for point in _entry_points()} - set(BUILT_IN))]


def find(name: str) -> Task | type[Task]:
    """Return the task class, or the function with ``@task``, that a name stands for.

    Parameters
    ----------
    name : str
        A built-in name, a name that an installed package offers, or ``module:attribute``.

    Raises
    ------
    SettingsError
        If there is no task of this name, if the task cannot be imported, or if several packages
        offer the name.

    Examples
    --------
    >>> find("digits").metric
    'accuracy'
    >>> find("flwr_fbo.tasks.digits:DigitsTask") is find("digits")
    True
    """
    if ":" in name:
        return _imported(name, name)
    points = [point for point in _entry_points() if point.name == name]
    if name not in BUILT_IN and not points:
        unknown_keys([name], names(), "task")
    _check_offered_once(name, points)
    if name in BUILT_IN:
        return _imported(name, BUILT_IN[name])
    path = points[0].value.partition("[")[0].strip()  # "module:attribute [extra]"
    return _imported(name, path, f" (offered by {_distribution(points[0])})")


def load(name: str, settings: Mapping[str, Any] | None = None) -> Task:
    """Return a task that can be prepared for an agent.

    Parameters
    ----------
    name : str
        The name of the task, see :func:`find`.
    settings : mapping, optional
        Settings of the task by kebab-case keys; a function with ``@task`` has none.

    Examples
    --------
    >>> load("digits", {"class-mix": 10}).settings.class_mix
    10.0
    """
    found = find(name)
    if isinstance(found, Task):
        return found
    return found(found.settings_class.from_mapping(settings or {}))


def name_of(task: Task | type[Task]) -> str:
    """Return the name by which :func:`find` finds a task or its class again.

    Examples
    --------
    >>> name_of(find("digits"))
    'digits'
    """
    if isinstance(task, FunctionTask):
        return task.import_path
    cls = task if isinstance(task, type) else type(task)
    path = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, built_in in BUILT_IN.items() if built_in == path), path)


def check_importable(task: Task | type[Task]) -> None:
    """Raise SettingsError if another process cannot import the task."""
    name = name_of(task)
    if name.startswith("__main__:") or "<locals>" in name:
        raise SettingsError(
            f"`answer-within` needs a task that another process can import, but got {name!r}: "
            "put the task in a module of its own"
        )


def distributions_of(name: str) -> list[str]:
    """Return the installed distributions that offer a task of this name, with their versions."""
    return [_distribution(point) for point in _entry_points() if point.name == name]


def _entry_points() -> tuple[EntryPoint, ...]:
    # Read each time: a notebook may install a package while this process runs.
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _distribution(point: EntryPoint) -> str:
    """Return the name and version of the distribution that an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed distribution"


def _check_offered_once(name: str, points: list[EntryPoint]) -> None:
    """Raise SettingsError if a name stands for more than one task.

    None of the tasks takes precedence: otherwise an installed package could replace a task of
    the same name without a trace.
    """
    owners = ["flwr-fbo itself"] if name in BUILT_IN else []
    owners += [_distribution(point) for point in points]
    if len(owners) > 1:
        raise SettingsError(
            f"`task` {name!r} must be offered by one package, but is offered by "
            f"{' and '.join(owners)}: uninstall all but one, or give the task as module:attribute"
        )


def _imported(name: str, path: str, origin: str = "") -> Task | type[Task]:
    """Return the task at ``module:attribute``; errors give the name and origin of the task."""
    module, _, attribute = path.partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):  # a class may stand inside another one
            found = getattr(found, part)
    except Exception as error:  # an error of any kind in the user's module is the user's to see
        raise SettingsError(
            f"`task` {name!r} cannot be imported{origin}: {_in_one_line(error)}"
        ) from error
    if isinstance(found, Task) or (isinstance(found, type) and issubclass(found, Task)):
        return found
    raise SettingsError(
        f"`task` {name!r} must be a Task, a subclass of Task, or a function with @task, "
        f"but is {found!r}{origin}"
    )


def _in_one_line(error: Exception) -> str:
    """Return the text of an error, with the line of the user's code that raised the error."""
    if isinstance(error, AttributeError) and isinstance(error.obj, types.ModuleType):
        near = difflib.get_close_matches(str(error.name), vars(error.obj), n=1)
        return str(error) + (f"; did you mean `{near[0]}`?" if near else "")
    if isinstance(error, (ImportError, SyntaxError)):  # the text already names the place
        return str(error)
    # The last frame that is neither in this package nor in the import machinery ("<frozen ...").
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if not f.filename.startswith((str(_PACKAGE), "<"))]
    place = f" ({users[-1].filename}, line {users[-1].lineno})" if users else ""
    return f"{type(error).__name__}: {error}{place}"
