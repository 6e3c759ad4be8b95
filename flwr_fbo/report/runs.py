"""What a run directory holds, read for a report. Every part may be missing but the settings."""

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
from flwr_fbo.runs.directory import RoundTable, RunDirectory, RunDirectoryError
from flwr_fbo.runs.result import Result, read_evaluations

#: Points of a curve; more would not be seen.
MOST_POINTS = 400


@dataclass(frozen=True)
class Run:
    """A run that is over, or as far as it got."""

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
        """Strategy and task, for people."""
        return f"{self.config.get('strategy', '?')} on {self.config.get('task', '?')}"

    @property
    def metric(self) -> str:
        """What is maximised."""
        return "score" if self.result is None else self.result.metric

    @property
    def evaluations(self) -> list[Evaluation]:
        """Those of all agents."""
        return [e for history in self.histories for e in history]


def read_run(folder: Path | str) -> Run:
    """Read a run directory; one that is none is an error that names the missing file."""
    directory = RunDirectory(folder)
    config = directory.read_json("config.json")
    compared = sorted((directory.root / "compare").glob("*/config.json"))
    return Run(
        name=directory.root.resolve().name,
        config=config,
        environment=_optional(directory, "environment.json") or {},
        space=_space(directory),
        rounds=RoundTable.read(directory.rounds),
        histories=read_evaluations(directory.agents, int(config.get("agents") or 0)),
        result=_result(directory),
        compared={path.parent.name: read_run(path.parent) for path in compared},
    )


def _optional(directory: RunDirectory, name: str) -> Any:
    return directory.read_json(name) if (directory.root / name).exists() else None


def _space(directory: RunDirectory) -> Space | None:
    found = _optional(directory, "space.json")
    return None if found is None else Space.from_dict(found)


def _result(directory: RunDirectory) -> Result | None:
    if not (directory.root / "result.json").exists():
        return None
    try:
        return Result.read(directory.root)
    except (ValueError, TypeError, json.JSONDecodeError) as error:
        raise RunDirectoryError(f"{directory.root / 'result.json'}: {error}") from None


@dataclass(frozen=True)
class Curve:
    """Quartiles over the agents of the best so far, by the number of evaluations an agent made."""

    count: Array
    low: Array
    median: Array
    high: Array


def best_so_far(
    histories: Sequence[Sequence[Evaluation]], what: str = "score", largest: bool = True
) -> Curve | None:
    """The curve of a score or a regret; None where nobody has one.

    At each number of evaluations it is over the agents that made so many and have a value.
    """
    length = max((len(h) for h in histories), default=0)
    table = np.full((len(histories), length), np.nan)
    for agent, history in enumerate(histories):
        values = [getattr(e, what) if e.score is not None else None for e in history]
        table[agent, : len(values)] = [np.nan if v is None else v for v in values]
        running = (np.fmax if largest else np.fmin).accumulate(table[agent, : len(values)])
        table[agent, : len(values)] = running
    known = np.isfinite(table).any(axis=0) if length else np.zeros(0, dtype=bool)
    if not known.any():
        return None
    columns = np.flatnonzero(known)
    if len(columns) > MOST_POINTS:
        columns = columns[np.unique(np.linspace(0, len(columns) - 1, MOST_POINTS).astype(int))]
    quartiles = np.nanquantile(table[:, columns], [0.25, 0.5, 0.75], axis=0)
    low, median, high = np.asarray(quartiles, dtype=np.float64)
    return Curve(np.asarray(columns + 1.0, dtype=np.float64), low, median, high)
