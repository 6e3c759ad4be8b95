"""The tasks and their data sets, as ``flwr-fbo tasks`` and ``flwr-fbo data`` list them."""

from __future__ import annotations

from typing import Any

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks.data_task import DataTask
from flwr_fbo.tasks.registry import BUILT_IN, distributions_of, load, names
from flwr_fbo.tasks.task import Task

#: Keys of an entry that describe a task; all None for a task that cannot be imported.
KEYS = (
    "space", "metric", "score_range", "parties", "agents", "settings",
    "data", "licence", "homepage", "present", "generated",
)  # fmt: skip


def catalogue(data_dir: str | None = None) -> list[dict[str, Any]]:
    """Return an entry for every task, built in or of an installed package, ready for JSON.

    An entry holds the space, the metric, the number of agents and where the data come from.
    ``packages`` names the installed packages that offer the task. ``problem`` is None, or says
    why the task cannot be imported.

    Parameters
    ----------
    data_dir : str, optional
        A directory to look for data sets in, before all others.

    Examples
    --------
    >>> [entry["metric"] for entry in catalogue() if entry["name"] == "landmine"]
    ['auc']
    """
    return [_entry(name, data_dir) for name in names()]


def users_of_data() -> dict[str, list[str]]:
    """Return the built-in tasks that need each data set, by the name of the data set."""
    users: dict[str, list[str]] = {}
    for name in BUILT_IN:
        task = load(name)
        if not isinstance(task, DataTask):
            continue
        if task.source is not None:
            users.setdefault(task.source.name, []).append(name)
        for setting, source in task.other_sources.items():
            users.setdefault(source.name, []).append(f"{name} with {setting}")
    return users


def _entry(name: str, data_dir: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "packages": distributions_of(name), "problem": None}
    try:
        return entry | _description(name, data_dir)
    except Exception as error:  # the code of an installed package may raise anything
        if not entry["packages"]:
            raise
        text = str(error) if isinstance(error, SettingsError) else repr(error)
        return entry | dict.fromkeys(KEYS) | {"problem": text}


def _description(name: str, data_dir: str | None) -> dict[str, Any]:
    task = load(name)
    if data_dir and isinstance(task, DataTask):
        task = load(name, {"data-dir": data_dir})
    return {
        "space": task.space.to_dict(),
        "metric": task.metric,
        "score_range": None if task.score_range is None else list(task.score_range),
        "parties": task.parties,
        "agents": task.default_agents or task.parties,
        "settings": task.settings.to_mapping(),
        **_data(task),
    }


def _data(task: Task) -> dict[str, Any]:
    """Return where the data come from, their terms, and whether they are on this machine."""
    if not isinstance(task, DataTask):
        return {"data": None, "licence": None, "homepage": None, "present": True, "generated": True}
    source = task.source
    return {
        "data": source.title if source else None,
        "licence": source.licence if source else None,
        "homepage": source.homepage if source else None,
        "present": task.data_present(),
        "generated": task.can_generate,
    }
