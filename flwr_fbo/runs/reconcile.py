"""The comparison of a run's files with one another, when a run continues.

The checkpoint names what the other files must hold. What can be mended is mended, and every mend is
returned as a sentence for the log and the result. Anything else raises an error that names the
file. ``docs/evidence/reliability.md`` lists the outcome of each kind of damage to each file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from flwr_fbo.methods.method import MethodServer
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.history import RunHistory

logger = logging.getLogger("flwr.fbo")


def reconcile(
    directory: RunDirectory,
    server: MethodServer,
    state: Mapping[str, Any] | None,
    planned: int | None,
    history: RunHistory | None,
) -> tuple[RoundTable, list[str]]:
    """Compare the files of a run; return the table of rounds, and what was damaged.

    Parameters
    ----------
    directory
        The directory of the run, whose lock this process holds.
    server
        The method's server, continued from the checkpoint.
    state
        The state in the checkpoint; None without a checkpoint.
    planned
        The number of rounds in ``config.json``; None where a budget plans the run.
    history
        The agents' journals in a simulation.
    """
    named = {} if state is None else state
    try:
        if planned is not None and planned < int(named.get("planned", 0)):
            raise RunDirectoryError(
                f"{directory.root / 'config.json'} plans {planned} rounds, but the checkpoint was "
                f"made for {named['planned']}: config.json is an old copy. Restore it from a backup"
            )
        damages = list(directory.store.damages.values())
        table = RoundTable(directory.rounds, directory.identity)
        aside = directory.set_unnamed_releases_aside()
        if aside:
            names = ", ".join(aside)
            logger.info("releases that the checkpoint does not name are set aside: %s", names)
        damages += _mend_table(table, named.get("rounds"))
        damages += _repeated_rounds(directory, server, table)
        if history is not None:
            damages += history.refresh().damages(named.get("journals"))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RunDirectoryError(
            f"{directory.store.path} does not name the files of this run: {error!r}. Restore it "
            "from a backup"
        ) from error
    return table, damages


def _mend_table(table: RoundTable, named: Mapping[str, Any] | None) -> list[str]:
    """Cut a table of rounds to its good rows; return what was wrong with the table."""
    missing = 0 if named is None else max(0, int(named["rows"]) - len(table.rows))
    foreign = named is not None and not missing and not table.holds(named)
    if not (table.damage or missing or foreign):
        return []
    why = table.damage or "rows are missing at its end"
    if foreign:
        missing = int(named["rows"]) if named is not None else 0
        why = "its rows are not those that the checkpoint names"
    table.mend(keep=not foreign)
    count = f"{missing} rows" if missing else "no row that the checkpoint names"
    return [
        f"{table.path}: {why}; {count} had to be left out, so that the result does not count "
        f"their missing replies and seconds ({table.path.name}.damaged is the damaged file)"
    ]


def _repeated_rounds(directory: RunDirectory, server: MethodServer, table: RoundTable) -> list[str]:
    """Return what there is to say where more rounds were made than the checkpoint knows."""
    last = max((int(row["round"]) for row in table.rows), default=-1)
    if last < server.round:
        return []
    if server.checkpoint_seconds:  # rounds between two checkpoints: agents repeat their answers
        logger.info("rounds %s to %s are made again", server.round, last)
        return []
    name = directory.store.path.name
    if last == server.round:
        return [
            f"round {last} is made again: the run ended before {name} was written, or {name} is "
            "an old copy; a private run charges again for its release"
        ]
    return [
        f"rounds {server.round} to {last} are made again: {name} is missing or an old copy; a "
        "private run charges again for their releases"
    ]
