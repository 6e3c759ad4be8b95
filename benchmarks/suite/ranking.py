"""From saved runs to means, intervals and ranks.

Two things differ between the numbers of a method: parties, and seeds. All parties of a private run
share one draw of the noise. The interval of a mean is therefore the larger of two 95 % Student
intervals: over parties, of their means over seeds, and over seeds, of their means over parties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.suite.results import Record
from flwr_fbo.core.arrays import Array

#: Losses before this evaluation do not count in the ranking: the first points are random.
FROM = 5


@dataclass(frozen=True)
class Standing:
    """A method on one federation.

    Parameters
    ----------
    method, label, kind : str
        The name and the label of the method, and what it shares.
    epsilon : float, optional
        The epsilon that the method was asked to keep.
    shown : tuple of int
        Evaluations.
    losses : array
        (seeds, parties, len(shown)).
    curve : array
        The mean loss over parties and seeds after every evaluation: (T,).
    seeds : tuple of int
        The seeds of the runs.
    recommended : array, optional
        (seeds, parties).
    ask_milliseconds : float
        CPU milliseconds of the method for one evaluation of one party.
    guarantee : float, optional
        The largest epsilon that a run states.
    """

    method: str
    label: str
    kind: str
    epsilon: float | None
    shown: tuple[int, ...]
    losses: Array
    curve: Array
    seeds: tuple[int, ...]
    recommended: Array | None
    ask_milliseconds: float
    guarantee: float | None
    #: Losses count in the ranking from this evaluation on.
    start: int = FROM

    @property
    def at(self) -> list[tuple[float, float]]:
        """Return mean and half interval of the loss after each of the shown evaluations."""
        return [interval(self.losses[:, :, k]) for k in range(len(self.shown))]

    @property
    def counted(self) -> Array:
        """Return the mean loss from `start` on, which ranks follow: (seeds, parties)."""
        last = self.shown[-1]
        kept = [k for k, t in enumerate(self.shown) if t >= min(self.start, last)]
        return np.asarray(self.losses[:, :, kept].mean(axis=2))


def interval(values: Array) -> tuple[float, float]:
    """Return the mean of values (seeds, parties), and half the larger of its two intervals."""
    halves = [_half(values.mean(axis=axis)) for axis in (0, 1)]
    return float(values.mean()), max(halves)


def _half(values: Array) -> float:
    """Return half the 95 % Student interval of a mean; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    t = float(stats.t.ppf(0.975, len(values) - 1))
    return t * float(values.std(ddof=1)) / float(np.sqrt(len(values)))


def standings(records: Sequence[Record], initial: int | None = None) -> dict[str, Standing]:
    """Return the standing of every method in the records of one federation, by its name.

    Where the federation prescribes a number of initial points, a method that evaluates these
    together has no pick before, and losses count from there.
    """
    by_method: dict[str, list[Record]] = {}
    for row in sorted(records, key=lambda r: int(r["seed"])):
        by_method.setdefault(row["method"], []).append(row)
    start = max(FROM, initial or 0)
    return {name: _standing(rows, start) for name, rows in by_method.items()}


def _standing(rows: Sequence[Record], start: int) -> Standing:
    first = rows[0]
    losses = np.array([r["loss"] for r in rows], dtype=np.float64)
    asks = losses.shape[1] * first["evaluations"]
    recommended = [r["recommended"] for r in rows]
    stated = [r["epsilon"] for r in rows if r["epsilon"] is not None]
    return Standing(
        method=first["method"],
        label=first["label"],
        kind=first["kind"],
        epsilon=first["asked_epsilon"],
        shown=tuple(first["shown"]),
        losses=losses,
        curve=np.mean([r["curve"] for r in rows], axis=0),
        seeds=tuple(r["seed"] for r in rows),
        recommended=None if None in recommended else np.array(recommended, dtype=np.float64),
        ask_milliseconds=1000 * float(np.mean([r["cpu_seconds"] for r in rows])) / asks,
        guarantee=max(stated, default=None),
        start=start,
    )


def gains(method: Standing, base: Standing) -> list[tuple[float, float]]:
    """Return what a method gains over another, in pairs of the same party and seed."""
    both = [s for s in method.seeds if s in base.seeds]
    if not both:
        return []
    ours = method.losses[[method.seeds.index(s) for s in both]]
    theirs = base.losses[[base.seeds.index(s) for s in both]]
    return [interval(theirs[:, :, k] - ours[:, :, k]) for k in range(len(method.shown))]


def reaches(method: Standing, target: float) -> int | None:
    """Return after how many evaluations the mean loss is at most the target; None if never."""
    below = np.flatnonzero(method.curve <= target)
    return int(below[0]) + 1 if len(below) else None


def among(table: Mapping[str, Standing], epsilon: float | None) -> list[Standing]:
    """Return the methods that are ranked together: those at this epsilon, and those alone.

    Without an epsilon, all methods without a guarantee are ranked together.
    """
    kinds = ("alone",) if epsilon is not None else ("alone", "raw scores", "shared")
    return [
        s for s in table.values()
        if s.kind in kinds or (epsilon is not None and s.epsilon == epsilon)
    ]  # fmt: skip


def ranks(table: Sequence[Standing]) -> dict[str, float]:
    """Return the rank of each method by its counted loss, 1 the best; equal losses share ranks."""
    means = [float(s.counted.mean()) for s in table]
    return dict(zip((s.method for s in table), stats.rankdata(means).tolist(), strict=True))


def overall(
    federations: Mapping[str, Mapping[str, Standing]], epsilon: float | None
) -> list[dict[str, Any]]:
    """Return a row for each method at an epsilon: its mean rank, and its loss by federation."""
    ranked = {name: ranks(among(table, epsilon)) for name, table in federations.items()}
    methods = dict.fromkeys(m for table in ranked.values() for m in table)
    rows = []
    for method in methods:
        where = {name: table[method] for name, table in ranked.items() if method in table}
        losses = {name: interval(federations[name][method].counted) for name in where}
        some = federations[next(iter(where))][method]
        rows.append({
            "method": method, "label": some.label, "ranks": where, "losses": losses,
            "rank": interval_of(list(where.values())),
        })  # fmt: skip
    return sorted(rows, key=lambda row: (row["rank"][0], row["method"]))


def interval_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of some numbers and half its 95 % Student interval."""
    return float(np.mean(values)), _half(np.asarray(values, dtype=np.float64))
