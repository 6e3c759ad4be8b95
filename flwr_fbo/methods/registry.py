"""The registry of methods by name: those of this package, and those of other packages.

A method of this package is one folder and one name in :data:`FOLDERS`. Another package adds
methods by the entry point group ``flwr_fbo.methods``; each entry point names a
:class:`~flwr_fbo.methods.method.Method` or a tuple of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.methods.method import Method, Seeks

#: The folders that register methods, in the order of the lists that people see.
FOLDERS = ("dp_fts_de", "fts", "baselines", "fed_pne", "voting", "ldp", "comparators")
ENTRY_POINTS = "flwr_fbo.methods"


@cache
def _registered() -> tuple[list[Method], dict[str, str]]:
    """Return all methods, and the error of each entry point that cannot be used."""
    methods: list[Method] = []
    for folder in FOLDERS:
        methods += importlib.import_module(f"flwr_fbo.methods.{folder}").METHODS
    broken: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            theirs = _methods_of(point)
            clash = {m.name for m in theirs} & {m.name for m in methods}
            if clash:
                raise SettingsError(
                    f"the entry point {point.name!r} of {_origin(point)} registers the method "
                    f"{min(clash)!r}, which is registered already"
                )
            methods += theirs
        except SettingsError as error:  # one broken package must not stop all other methods
            broken[point.name] = str(error)
    return methods, broken


def _origin(point: EntryPoint) -> str:
    """Return the name of the package that an entry point belongs to."""
    return point.dist.name if point.dist is not None else "an unknown package"


def _methods_of(point: EntryPoint) -> Sequence[Method]:
    """Return the methods of an entry point; raise SettingsError with the name of its package."""
    origin = _origin(point)
    try:
        loaded = point.load()
    except Exception as error:
        raise SettingsError(
            f"the entry point {point.name!r} of {origin} ({point.value}) cannot be imported: "
            f"{error}"
        ) from error
    methods = (loaded,) if isinstance(loaded, Method) else loaded
    if not isinstance(methods, (tuple, list)) or not all(isinstance(m, Method) for m in methods):
        raise SettingsError(
            f"the entry point {point.name!r} of {origin} must name a Method or a tuple of "
            f"Methods, but {point.value} is {loaded!r}"
        )
    return methods


def method_names() -> list[str]:
    """Return the names of all methods, each once."""
    return list(dict.fromkeys(method.name for method in _registered()[0]))


def find_method(name: str, seeks: Seeks = "own") -> Method:
    """Return the method with a name, for a task that seeks this kind of optimum."""
    methods, broken = _registered()
    if name in broken:
        raise SettingsError(broken[name])
    unknown_keys([name], method_names(), what="strategy")
    candidates = [m for m in methods if m.name == name]
    # A method for one common optimum comes before a method of the same name for any task.
    if seeks == "global":
        candidates.sort(key=lambda m: m.seeks != "global")
    else:
        candidates = [m for m in candidates if m.seeks == "any"]
    if not candidates:
        raise SettingsError(
            f"the strategy {name!r} needs a task that seeks one optimum for all agents, but this "
            "task seeks each agent's own optimum"
        )
    return candidates[0]


def method_of_agent(kind: str) -> Method:
    """Return a method whose agents are of this kind; the setup message names the kind."""
    for method in _registered()[0]:
        if method.agent_kind == kind:
            return method
    known = sorted({method.agent_kind for method in _registered()[0]})
    raise SettingsError(
        f"no registered method has agents of the kind {kind!r}; the known kinds are "
        f"{', '.join(known)}"
    )
