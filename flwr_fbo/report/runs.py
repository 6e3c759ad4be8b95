"""The content of run directories, read for a report, and the curves computed from it.

A report can be made at any time: only ``config.json`` must exist. An interrupted run has no
result yet, and the server of a deployment never holds the agents' journals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.space import Space
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.result import Result

#: Points of a curve. A reader would not see more of them.
MAX_POINTS = 400


@dataclass(frozen=True)
class Run:
    """The content of one run directory; ``result`` is None while the run is not finished."""

    name: str
    config: Mapping[str, Any]
    environment: Mapping[str, str]
    space: Space | None
    rounds: Sequence[Mapping[str, str]]
    histories: Sequence[Sequence[Evaluation]]
    result: Result | None
    compared: Mapping[str, Run] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Strategy and task, as a heading."""
        return f"{self.config.get('strategy', '?')} on {self.config.get('task', '?')}"

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
    compared = sorted((directory.root / "compare").glob("*/config.json"))
    return Run(
        name=directory.root.resolve().name,
        config=config,
        environment=_read_optional(directory, "environment.json") or {},
        space=_read_space(directory),
        rounds=RoundTable.read(directory.rounds),
        histories=read_evaluations(directory.agents, int(config.get("agents") or 0)),
        result=_read_result(directory),
        compared={path.parent.name: read_run(path.parent) for path in compared},
    )


def _read_optional(directory: RunDirectory, name: str) -> Any:
    return directory.read_json(name) if (directory.root / name).exists() else None


def _read_space(directory: RunDirectory) -> Space | None:
    content = _read_optional(directory, "space.json")
    return None if content is None else Space.from_dict(content)


def _read_result(directory: RunDirectory) -> Result | None:
    if not (directory.root / "result.json").exists():
        return None
    try:
        return Result.read(directory.root)
    except (ValueError, TypeError, KeyError, json.JSONDecodeError) as error:
        raise RunDirectoryError(f"{directory.root / 'result.json'}: {error}") from None


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
    table = np.full((len(histories), max((len(h) for h in histories), default=0)), np.nan)
    for agent, history in enumerate(histories):
        values = [getattr(e, what) if e.score is not None else None for e in history]
        known = np.array([np.nan if v is None else v for v in values])
        # A failure has no value and keeps the best so far: fmax and fmin skip NaN.
        table[agent, : len(values)] = (np.fmax if largest else np.fmin).accumulate(known)
    columns = np.flatnonzero(np.isfinite(table).any(axis=0))
    if not len(columns):
        return None
    if len(columns) > MAX_POINTS:
        columns = columns[np.unique(np.linspace(0, len(columns) - 1, MAX_POINTS).astype(int))]
    quartiles = np.nanquantile(table[:, columns], [0.25, 0.5, 0.75], axis=0)
    low, median, high = np.asarray(quartiles, dtype=np.float64)
    return Curve(np.asarray(columns + 1.0, dtype=np.float64), low, median, high)
