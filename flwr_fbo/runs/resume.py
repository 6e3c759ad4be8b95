"""The continuation of a run from its directory: which settings may change, and what follows.

A continued run keeps its space, its agents, its method and its privacy. Its length and its waiting
times may change. The noise of a private run was planned for a number of releases, so more rounds
never add a release. They use the existing releases, which costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flwr_fbo.core.settings import Settings, SettingsError, kebab, unknown_keys
from flwr_fbo.methods.registry import find_method
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.result import Result, StaleResultError
from flwr_fbo.runs.spec import STOPPING, RunSpec, expand_settings, names_and_values
from flwr_fbo.runs.stopping import NEEDS_HISTORY
from flwr_fbo.tasks import Task

#: The settings that may change when a run continues.
MAY_CHANGE = ("rounds", *map(kebab, STOPPING), "timeout", "data-dir", "track", "node-ids")


def continued_spec(
    directory: RunDirectory,
    changes: Mapping[str, Any],
    task: Task | type[Task] | None = None,
) -> RunSpec:
    """Return the run of a directory with some settings changed, and store the changes.

    Parameters
    ----------
    directory
        The directory of the run, whose ``config.json`` is updated.
    changes
        The changes by kebab-case key; None restores a default. A setting that must stay may be
        given again with its present value.
    task
        The run's task, where the name in ``config.json`` cannot be imported.
    """
    config = directory.read_json("config.json")
    changes = expand_settings(changes)
    before = RunSpec.from_mapping(_with_task(config, task))
    known = before.to_mapping()
    stated = {k: v for k, v in names_and_values(changes).items() if v is not None}
    unset = [key for key, value in changes.items() if value is None]
    unknown_keys(unset, before.keys())
    # Task and strategy come first, as they decide which other settings exist.
    for key in ("task", "strategy"):
        check_changes([key] if stated.get(key, known[key]) != known[key] else [], known, stated)
    # A changed setting replaces the stored one; an unset one falls back to its default.
    kept = {key: value for key, value in config.items() if key not in unset}
    after = RunSpec.from_mapping(_with_task({**kept, **stated}, task))
    wanted = after.to_mapping()
    changed = [key for key in {**known, **wanted} if known.get(key) != wanted.get(key)]
    check_changes(changed, known, wanted)
    if "rounds" in changed:
        fixed = settings_for_more_rounds(before.settings, before.run.rounds, before.run.agents)
        after = RunSpec.from_mapping(_with_task({**kept, **stated, **fixed}, task))
    if changed:
        directory.write_json("config.json", after.to_mapping())
    return after


def settings_for_more_rounds(settings: Settings, planned: int, agents: int) -> dict[str, Any]:
    """Return the settings to fix when a run gets more rounds than were planned."""
    rule = getattr(settings, "settings_for_more_rounds", None)
    if rule is None:
        raise SettingsError(
            "`rounds` cannot change in a run of this method: its length is its `budget`, for "
            "which its confidence widths and its noise were computed"
        )
    fixed: dict[str, Any] = rule(planned, agents)
    return fixed


def check_changes(
    changed: Iterable[str], known: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    """Raise SettingsError for the first changed setting that must not change."""
    for key in changed:
        if key == "agents":
            raise SettingsError(
                f"`agents` must stay {known[key]} when a run continues, but got "
                f"{wanted.get(key)!r}: weights, noise and sub-regions are made for this number. "
                "Fewer agents may be connected, and new ones may take the places of others; "
                "start a run with the largest number that may come"
            )
        if key not in MAY_CHANGE:
            raise SettingsError(
                f"`{key}` must stay {known.get(key)!r} when a run continues: with "
                f"{wanted.get(key)!r} it would be another run; "
                f"what may change is {', '.join(MAY_CHANGE)}"
            )
        if key == "rounds" and wanted[key] < known[key]:
            raise SettingsError(
                f"`rounds` must be >= {known[key]}, the planned number, but got {wanted[key]}; "
                "`max-evaluations` and `max-seconds` end a run before its rounds are over"
            )


def why_finished(directory: RunDirectory, changes: Iterable[str]) -> str:
    """Return why there is nothing to continue; empty where a round is left to make."""
    if not (directory.root / "result.json").exists():
        return ""
    try:
        result = Result.read(directory.root)
    except StaleResultError:
        return ""  # rounds were made since the result was written
    if not result.complete:
        return ""
    rule = result.stopped_early.partition(":")[0]  # such as "patience: no gain in 3 rounds"
    if rule in NEEDS_HISTORY and rule not in changes:
        return (
            f"the run was ended by {result.stopped_early}. "
            f"To continue it, change that rule (--set {rule}=...) or drop it (--set {rule}=none)"
        )
    if not rule and "rounds" not in changes:
        longer = hasattr(find_method(result.strategy).settings_class, "settings_for_more_rounds")
        more = ". To continue it, give a larger number of rounds (--rounds)" if longer else ""
        return f"the run is finished: all that was planned is done{more}"
    return ""


def baselines_of(directory: RunDirectory, task: Task | type[Task] | None) -> dict[str, RunSpec]:
    """Return the baselines that a finished run is compared with, by name."""
    if not (directory.root / "compare.json").exists():
        return {}
    stored = directory.read_json("compare.json")
    return {name: RunSpec.from_mapping(_with_task(config, task)) for name, config in stored.items()}


def _with_task(config: Mapping[str, Any], task: Task | type[Task] | None) -> dict[str, Any]:
    """Return the settings of a run, with the task object where one is given."""
    return dict(config) if task is None else {**config, "task": task}
