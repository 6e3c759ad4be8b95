"""Going on with a run that has a directory: what may be changed, and what then becomes of it.

A run that goes on is the same run: its space, its agents, its strategy and its privacy stay.
What may change is how long it goes on and how it waits. In particular, the noise of a private
run was planned for a number of releases: further rounds use what was released, which costs
nothing, and never add a release to the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flwr_fbo.core.settings import SettingsError, kebab, unknown_keys
from flwr_fbo.runs.directory import RunDirectory
from flwr_fbo.runs.result import Result
from flwr_fbo.runs.spec import RunSpec, named
from flwr_fbo.runs.stopping import LOCAL, STOPPING
from flwr_fbo.tasks import Task

#: Settings that may be other than they were when a run goes on.
MAY_CHANGE = ("rounds", *map(kebab, STOPPING), "timeout", "data-dir")


def continued(
    directory: RunDirectory,
    changes: Mapping[str, Any],
    task: Task | type[Task] | None = None,
) -> RunSpec:
    """The run of a directory with some settings changed; None sets one back to its default.

    The directory's ``config.json`` says so too from then on. What is not to be changed may be
    repeated as it is. ``task`` stands for the one that is named where that cannot be imported.
    """
    config = directory.read_json("config.json")
    before = RunSpec.from_mapping(_with_task(config, task))
    known = before.to_mapping()
    stated = {k: v for k, v in named(changes).items() if v is not None}
    unset = [key for key, value in changes.items() if value is None]
    unknown_keys(unset, before.keys())
    for key in ("task", "strategy"):  # first, as they decide what else there is
        _check([key] if stated.get(key, known[key]) != known[key] else [], known, stated)
    kept = {key: value for key, value in config.items() if key not in unset}
    after = RunSpec.from_mapping(_with_task({**kept, **stated}, task))
    wanted = after.to_mapping()
    changed = [key for key in {**known, **wanted} if known.get(key) != wanted.get(key)]
    _check(changed, known, wanted)
    if "rounds" in changed:
        fixed = before.strategy.lengthened(before.run.rounds, before.run.agents)
        after = RunSpec.from_mapping(_with_task({**kept, **stated, **fixed}, task))
    if changed:
        directory.write_json("config.json", after.to_mapping())
    return after


def _with_task(config: Mapping[str, Any], task: Task | type[Task] | None) -> dict[str, Any]:
    return dict(config) if task is None else {**config, "task": task}


def _check(changed: Iterable[str], known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for key in changed:
        if key == "agents":
            raise SettingsError(
                f"`agents` must stay {known[key]} when a run goes on: weights, noise and "
                "sub-regions are made for so many. Fewer may be there, and others in the place "
                "of those who left; plan a run for as many as may come"
            )
        if key not in MAY_CHANGE:
            raise SettingsError(
                f"`{key}` must stay {known.get(key)!r} when a run goes on: with "
                f"{wanted.get(key)!r} it would be another run; "
                f"what may change is {', '.join(MAY_CHANGE)}"
            )
        if key == "rounds" and wanted[key] < known[key]:
            raise SettingsError(
                f"`rounds` must be >= {known[key]}, what was planned, but got {wanted[key]}; "
                "`max-evaluations` and `max-seconds` end a run before its rounds are over"
            )


def why_over(directory: RunDirectory, changes: Iterable[str]) -> str:
    """What must be said instead of going on: the run is over, and nothing changes that."""
    if not (directory.root / "result.json").exists():
        return ""
    result = Result.read(directory.root)
    if not result.complete:
        return ""
    rule = result.stopped_early.partition(":")[0]
    if rule in LOCAL and rule not in changes:
        return (
            f"the run was ended by {result.stopped_early}; "
            f"to go on, raise it (--set {rule}=...) or drop it (--set {rule}=none)"
        )
    if not rule and not set(changes) & {"rounds"}:
        return "the run is over: all was done that was planned"
    return ""


def rivals_of(directory: RunDirectory, task: Task | type[Task] | None) -> dict[str, RunSpec]:
    """What a run is to be compared with when it is over."""
    if not (directory.root / "compare.json").exists():
        return {}
    stored = directory.read_json("compare.json")
    return {name: RunSpec.from_mapping(_with_task(config, task)) for name, config in stored.items()}
