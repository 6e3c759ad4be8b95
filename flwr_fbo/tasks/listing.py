"""What there is to tune, for ``flwr-fbo tasks``."""

from __future__ import annotations

from typing import Any

from flwr_fbo.tasks import BUILT_IN, load
from flwr_fbo.tasks.papers.data_task import DataTask
from flwr_fbo.tasks.task import Task


def entries(data_dir: str | None = None) -> list[dict[str, Any]]:
    """Every built-in task, ready for JSON: space, metric, agents, and where its data are."""
    return [_entry(name, data_dir) for name in BUILT_IN]


def _entry(name: str, data_dir: str | None) -> dict[str, Any]:
    task = load(name)
    if data_dir and isinstance(task, DataTask):
        task = load(name, {"data-dir": data_dir})
    return {
        "name": name,
        "space": task.space.to_dict(),
        "metric": task.metric,
        "score_range": None if task.score_range is None else list(task.score_range),
        "parties": task.parties,
        "agents": task.default_agents or task.parties,
        "settings": task.settings.to_mapping(),
        **_data(task),
    }


def _data(task: Task) -> dict[str, Any]:
    """Where the data come from, under which terms, and whether they are on this machine."""
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


def users_of_data() -> dict[str, list[str]]:
    """The built-in tasks that need each data set, by the data set's name."""
    users: dict[str, list[str]] = {"writers": ["emnist with data=writers"]}
    for name in BUILT_IN:
        task = load(name)
        if isinstance(task, DataTask) and task.source is not None:
            users.setdefault(task.source.name, []).append(name)
    return users
