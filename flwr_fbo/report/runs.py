"""The content of run directories, read for a report, and the curves computed from it.

A report can be made at any time: only ``config.json`` must exist. An interrupted run has no
result yet, and the server of a deployment never holds the agents' journals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.space import Space
from flwr_fbo.report.released import ReleasedFunction, read_released
from flwr_fbo.runs.comparison import folder_of
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.result import Result, StaleResultError

#: Points of a curve. A reader would not see more of them.
MAX_POINTS = 400


@dataclass(frozen=True)
class Run:
    """The content of one run directory; ``result`` is None while the run is not finished.

    ``released`` is the function that the run released, None for a run without releases.
    """

    name: str
    config: Mapping[str, Any]
    environment: Mapping[str, str]
    space: Space | None
    rounds: Sequence[Mapping[str, str]]
    histories: Sequence[Sequence[Evaluation]]
    result: Result | None
    compared: Mapping[str, Run] = field(default_factory=dict)
    released: ReleasedFunction | None = None
    #: What a reader must know about the run's files, one sentence each.
    notices: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Strategy and task, as a heading."""
        task = self.config.get("task", "?") if self.result is None else self.result.task
        return f"{self.config.get('strategy', '?')} on {task}"

    @property
    def metric(self) -> str:
        """Name of the score."""
        return "score" if self.result is None else self.result.metric

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations of all agents, agent by agent."""
        return [e for history in self.histories for e in history]


def read_run(folder: Path | str) -> Run:
    """Return the content of a run directory and of the runs that it was compared with.

    Raises :class:`~flwr_fbo.runs.files.RunDirectoryError`, which names the file, where
    ``config.json`` is missing or a file cannot be read.
    """
    directory = RunDirectory(folder)
    config = directory.read_json("config.json")
    labels = directory.read_optional("compare.json") or {}
    compared = {label: directory.root / "compare" / folder_of(label) for label in labels}
    result, names, notices = _read_result(directory, config)
    # A copy without any journal is like the directory of a deployment's server.
    whole = result is not None and any(directory.agents.glob("agent*"))
    best = result.agents_best if result is not None and whole else []
    least = {found["agent"]: found["evaluations"] for found in best}
    agents, content = int(config.get("agents") or 0), directory.read_optional("space.json")
    space = None if content is None else Space.from_dict(content)
    released, damages = read_released(directory, space)
    return Run(
        name=directory.root.resolve().name,
        config=config,
        environment=directory.read_optional("environment.json") or {},
        space=space,
        rounds=RoundTable.read(directory.rounds, directory.identity, names.get("rounds")),
        histories=read_evaluations(directory.agents, agents, directory.identity, least),
        result=result,
        compared={
            label: read_run(path)
            for label, path in compared.items()
            if (path / "config.json").exists()
        },
        released=released,
        notices=tuple(dict.fromkeys([*notices, *damages])),
    )


def _read_result(
    directory: RunDirectory, config: Mapping[str, Any]
) -> tuple[Result | None, dict[str, Any], Sequence[str]]:
    """Return the result of a run, what its file names, and notices; None before the run's end."""
    if not (directory.root / "result.json").exists():
        return None, {}, ()
    try:
        result = Result.read(directory.root)
    except StaleResultError as error:
        return None, {}, (str(error),)
    names = directory.read_names("result.json")
    if (names.get("planned") or 0) > int(config.get("rounds") or 0):
        raise RunDirectoryError(
            f"{directory.root / 'config.json'} plans {config.get('rounds')} rounds, but the result "
            f"was made with {names['planned']}: config.json is an old copy. Restore it from a "
            "backup"
        )
    return result, names, result.damages


@dataclass(frozen=True)
class Curve:
    """Quartiles over agents of the best value so far, by the agent's number of evaluations."""

    count: Array  # (n,)
    low: Array  # (n,)
    median: Array  # (n,)
    high: Array  # (n,)


def best_so_far(
    histories: Sequence[Sequence[Evaluation]], what: str = "score", largest: bool = True
) -> Curve | None:
    """Return the curve of the best value so far, or None where no evaluation has a value.

    The quartiles at ``count`` evaluations are over the agents that made ``count`` evaluations and
    have a value by then.

    Parameters
    ----------
    histories
        Each agent's evaluations, in the order in which they were made.
    what
        The value: ``score`` or ``regret``.
    largest
        Whether the best value is the largest one.
    """
    table = best_table(histories, what, largest)
    columns = np.flatnonzero(np.isfinite(table).any(axis=0))
    if not len(columns):
        return None
    if len(columns) > MAX_POINTS:
        columns = columns[np.unique(np.linspace(0, len(columns) - 1, MAX_POINTS).astype(int))]
    quartiles = np.nanquantile(table[:, columns], [0.25, 0.5, 0.75], axis=0)
    low, median, high = np.asarray(quartiles, dtype=np.float64)
    return Curve(np.asarray(columns + 1.0, dtype=np.float64), low, median, high)


def best_table(
    histories: Sequence[Sequence[Evaluation]], what: str = "score", largest: bool = True
) -> Array:
    """Return each agent's best value after 1, 2, ... evaluations, NaN where there is none: (N, K).

    An agent with fewer evaluations than another has no value after its last one.
    """
    table = np.full((len(histories), max((len(h) for h in histories), default=0)), np.nan)
    for agent, history in enumerate(histories):
        values = [getattr(e, what) if e.score is not None else None for e in history]
        known = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        # A failure has no value and keeps the best so far: fmax and fmin skip NaN.
        table[agent, : len(values)] = (np.fmax if largest else np.fmin).accumulate(known)
    return table
