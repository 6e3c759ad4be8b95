"""Many evaluations as one record, where each of them takes next to no time.

A request may ask for thousands of evaluations (Fed-PNE's pulls). Two records and two writes for
each would take longer than the evaluations. So as many are recorded together as take
:data:`GROUP_SECONDS` in all: the first is made alone, and the groups grow while they are quick.
Evaluations that take longer than that have records of their own.

A group is recorded as begun before its first evaluation. If its process ends in the middle, its
evaluations are made again one at a time, each with its own records: then it shows which of them
ends the process. A group ends early once its evaluations have taken :data:`GROUP_SECONDS`, so the
work that is lost is at most that, and the evaluation under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_fbo.core.arrays import Array, Indices

if TYPE_CHECKING:
    from flwr_fbo.core.evaluation import Evaluation, Evaluator, Records

#: Seconds of work that are recorded together, and the most evaluations in one record.
GROUP_SECONDS, MOST_TOGETHER = 0.05, 4096
#: How many times as large the next group may be.
GROWTH = 4


class GroupSize:
    """How many evaluations are made together next.

    Examples
    --------
    >>> size = GroupSize()
    >>> for _ in range(3):
    ...     size.note(size.next, seconds=0.0001)
    >>> size.next
    64
    >>> size.note(64, seconds=16.0)
    >>> size.next
    1
    """

    def __init__(self, most: int = MOST_TOGETHER) -> None:
        self.next, self.most = 1, most

    def note(self, made: int, seconds: float) -> None:
        """Take in how long some evaluations took together."""
        fitting = self.most if seconds <= 0 else int(GROUP_SECONDS * made / seconds)
        self.next = max(1, min(GROWTH * self.next, fitting, self.most))


def evaluate_many(
    evaluator: Evaluator,
    units: Array,
    counts: Indices,
    *,
    round: int,
    source: str,
    most: int | None = None,
    parallel: int = 1,
) -> list[Evaluation] | None:
    """Evaluate each of the points (K, D) as often as ``counts`` (K,) says, in their order.

    Recorded evaluations are looked up, and ``parallel`` others are made at once. Returns None if
    more than ``most`` others are needed; then ``most`` of them have been made.
    """
    point = np.repeat(np.arange(len(counts)), counts)  # of each play
    found: list[Evaluation] = []
    left = len(point) if most is None else most
    while len(found) < len(point):
        play = len(found)
        known = evaluator.recorded(round, play)
        if known is not None:
            found.append(known)
            continue
        if not left:
            return None
        rest = min(left, len(point) - play)
        size = _plays_together(evaluator, round, play, rest)
        if parallel > 1:
            plays = range(play, play + min(parallel, rest))
            new = [n for n in plays if evaluator.recorded(round, n) is None]
            batch = [(n, units[point[n]], source) for n in new]
            evaluator.at_once(batch, round=round)
            left -= len(new)
            continue  # where they are looked up
        if size == 1:
            made = [evaluator(units[point[play]], round=round, play=play, source=source)]
            evaluator.group_size.note(1, made[0].seconds)
        else:
            made = evaluator.together(
                units, point[play : play + size], round=round, first=play, source=source
            )
        found += made
        left -= len(made)
    return found


def _plays_together(evaluator: Evaluator, round: int, first: int, most: int) -> int:
    """Return how many evaluations are made together, from this play on."""
    if evaluator.must_be_alone(round, first):
        return 1
    size = min(evaluator.group_size.next, most)
    return evaluator.first_known(round, range(first + 1, first + size)) - first


def group_record(
    evaluations: Sequence[Evaluation], points: Sequence[int], seconds: float
) -> dict[str, Any]:
    """Return the record of some evaluations of consecutive plays.

    ``points`` numbers the point of each evaluation; equal neighbours are stored once.
    """
    first = evaluations[0]
    starts = [i for i in range(len(points)) if i == 0 or points[i] != points[i - 1]]
    places = [evaluations[i] for i in starts]
    return {
        "round": first.round,
        "play": first.play,
        "counts": np.diff([*starts, len(points)]).tolist(),
        "units": [e.unit for e in places],
        "params": [e.params for e in places],
        "regrets": [e.regret for e in places],
        "scores": [e.score for e in evaluations],
        "failures": {str(i): e.failure for i, e in enumerate(evaluations) if e.failure},
        "source": first.source,
        "seconds": seconds,
    }


def members(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the evaluations of a group's record, each as a record of its own."""
    failures, scores, counts = record["failures"], record["scores"], record["counts"]
    if sum(counts) != len(scores) or min(counts, default=0) < 1:
        raise ValueError("the counts of a group must be positive and add up to its scores")
    seconds = record["seconds"] / len(scores)
    shared = {"round": record["round"], "source": record["source"], "seconds": seconds}
    places = [
        {**shared, "params": params, "unit": unit, "regret": regret}
        for params, unit, regret in zip(
            record["params"], record["units"], record["regrets"], strict=True
        )
    ]
    rows = np.repeat(np.arange(len(places)), counts).tolist()
    return [
        {**places[row], "play": record["play"] + i, "score": score,
         "failure": failures.get(str(i), "")}
        for i, (row, score) in enumerate(zip(rows, scores, strict=True))
    ]  # fmt: skip


def is_group(record: Mapping[str, Any]) -> bool:
    """Return whether a record is that of a group."""
    return "scores" in record


def begun_together(records: Records, begun: str, interrupted: str) -> set[tuple[int, int]]:
    """Return the rounds and plays of groups that were begun and not interrupted."""
    found: dict[tuple[int, int], list[int]] = {}
    for record in records.read(begun):
        if "plays" in record:
            found.setdefault((int(record["round"]), int(record["play"])), []).append(
                int(record["plays"])
            )
    for record in records.read(interrupted):
        if "plays" in record:
            found.get((int(record["round"]), int(record["play"])), [0]).pop()
    return {
        (round, first + i)
        for (round, first), sizes in found.items()
        for i in range(max(sizes, default=0))
    }
