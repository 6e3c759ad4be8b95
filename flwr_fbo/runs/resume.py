"""Continue a run that has a directory: which settings may change, and what follows from them.

A run that continues is the same run: its space, its agents, its method and its privacy stay.
What may change is how long the run goes on and how it waits. In particular, the noise of a
private run was planned for a number of releases: further rounds use what was released, which
costs nothing, and never add a release to the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flwr_fbo.core.settings import Settings, SettingsError, kebab, unknown_keys
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.result import Result
from flwr_fbo.runs.spec import STOPPING, RunSpec, expanded, named
from flwr_fbo.runs.stopping import NEEDS_HISTORY
from flwr_fbo.tasks import Task

#: Settings that may be other than they were when a run continues.
MAY_CHANGE = ("rounds", *map(kebab, STOPPING), "timeout", "data-dir")


def continued(
    directory: RunDirectory,
    changes: Mapping[str, Any],
    task: Task | type[Task] | None = None,
) -> RunSpec:
    """Return the run of a directory with some settings changed; None restores a default.

    The directory's ``config.json`` holds the changes from then on. A setting that must stay may
    be given again with the value that it has. ``task`` stands for the one that ``config.json``
    names, where that cannot be imported.
    """
    config = directory.read_json("config.json")
    changes = expanded(changes)
    before = RunSpec.from_mapping(_with_task(config, task))
    known = before.to_mapping()
    stated = {k: v for k, v in named(changes).items() if v is not None}
    unset = [key for key, value in changes.items() if value is None]
    unknown_keys(unset, before.keys())
    for key in ("task", "strategy"):  # first, as they decide which other settings there are
        check_changes([key] if stated.get(key, known[key]) != known[key] else [], known, stated)
    kept = {key: value for key, value in config.items() if key not in unset}
    after = RunSpec.from_mapping(_with_task({**kept, **stated}, task))
    wanted = after.to_mapping()
    changed = [key for key in {**known, **wanted} if known.get(key) != wanted.get(key)]
    check_changes(changed, known, wanted)
    if "rounds" in changed:
        fixed = lengthened(before.settings, before.run.rounds, before.run.agents)
        after = RunSpec.from_mapping(_with_task({**kept, **stated, **fixed}, task))
    if changed:
        directory.write_json("config.json", after.to_mapping())
    return after


def lengthened(settings: Settings, planned: int, agents: int) -> dict[str, Any]:
    """Return the settings to fix when a run gets more rounds than were planned."""
    rule = getattr(settings, "lengthened", None)
    if rule is None:
        raise SettingsError(
            "`rounds` does not set the length of this method: it spends its `budget`, which its "
            "confidence widths and its noise are computed for"
        )
    fixed: dict[str, Any] = rule(planned, agents)
    return fixed


def check_changes(
    changed: Iterable[str], known: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    """Raise for the first changed setting that must stay as it is."""
    for key in changed:
        if key == "agents":
            raise SettingsError(
                f"`agents` must stay {known[key]} when a run continues: weights, noise and "
                "sub-regions are made for this number. Fewer may be there, and others in the "
                "place of those who left; start a run for as many as may come"
            )
        if key not in MAY_CHANGE:
            raise SettingsError(
                f"`{key}` must stay {known.get(key)!r} when a run continues: with "
                f"{wanted.get(key)!r} it would be another run; "
                f"what may change is {', '.join(MAY_CHANGE)}"
            )
        if key == "rounds" and wanted[key] < known[key]:
            raise SettingsError(
                f"`rounds` must be >= {known[key]}, what was planned, but got {wanted[key]}; "
                "`max-evaluations` and `max-seconds` end a run before its rounds are over"
            )


def why_over(directory: RunDirectory, changes: Iterable[str]) -> str:
    """Return why the run cannot continue: it is finished, and no change makes it longer."""
    if not (directory.root / "result.json").exists():
        return ""
    result = Result.read(directory.root)
    if not result.complete:
        return ""
    rule = result.stopped_early.partition(":")[0]
    if rule in NEEDS_HISTORY and rule not in changes:
        return (
            f"the run was ended by {result.stopped_early}; "
            f"to continue it, raise that rule (--set {rule}=...) or drop it (--set {rule}=none)"
        )
    if not rule and not set(changes) & {"rounds"}:
        return "the run is finished: it did all that was planned"
    return ""


def baselines_of(directory: RunDirectory, task: Task | type[Task] | None) -> dict[str, RunSpec]:
    """Return the baselines that a run is to be compared with when it is finished."""
    if not (directory.root / "compare.json").exists():
        return {}
    stored = directory.read_json("compare.json")
    return {name: RunSpec.from_mapping(_with_task(config, task)) for name, config in stored.items()}


def _with_task(config: Mapping[str, Any], task: Task | type[Task] | None) -> dict[str, Any]:
    return dict(config) if task is None else {**config, "task": task}
