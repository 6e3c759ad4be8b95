r"""Rules that stop an evaluation which looks hopeless beside the party's earlier ones.

An evaluation reports a score at some of its *steps*, such as epochs. Both rules compare it with the
earlier evaluations of the same party at the same step, so nothing of the rule leaves the party.

Notation

==============================  =======================================  ==========
symbol                          here                                     shape
==============================  =======================================  ==========
``s_1 < s_2 < ...``, their      ``reports``, pairs of step and score     (k, 2)
scores ``y_1, y_2, ...``
``max {y_j : s_j <= s}``        ``best_until(reports, s)``               scalar
``eta``                         ``ETA``                                  scalar
==============================  =======================================  ==========
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

#: Pairs of a step and a score, in the order of the steps.
Reports: TypeAlias = Sequence[Sequence[float]]
RuleName: TypeAlias = Literal["none", "median", "halving"]
#: Successive halving goes on with one in this many evaluations at each rung, and a rung is this
#: many times as far as the one before.
ETA = 3


def best_until(reports: Reports, step: float) -> float | None:
    """Return the best score up to a step; None where there was no report up to it.

    Examples
    --------
    >>> best_until([(1, 0.5), (2, 0.7), (3, 0.6)], 3)
    0.7
    """
    scores = [score for at, score in reports if at <= step]
    return max(scores) if scores else None


def is_hopeless(
    rule: RuleName, own: Reports, finished: Sequence[Reports], others: Sequence[Reports],
    startup: int,
) -> bool:  # fmt: skip
    """Return whether an evaluation should stop at its last reported step.

    Parameters
    ----------
    rule
        The median rule stops an evaluation whose best score so far is below the median of those
        of the finished evaluations at the same step (Golovin et al. 2017). Successive halving
        stops, at the steps 1, 3, 9, ..., an evaluation that is not among the best third of all
        evaluations that came as far (Li et al. 2020).
    own
        What the evaluation has reported.
    finished, others
        What the party's earlier evaluations reported: those that went to their end, and those
        that were stopped.
    startup
        The number of finished evaluations before any is stopped.
    """
    known = [reports for reports in finished if reports]
    if rule == "none" or not own or len(known) < startup:
        return False
    step, mine = own[-1][0], best_until(own, own[-1][0])
    assert mine is not None
    if rule == "median":
        there = [best for reports in known if (best := best_until(reports, step)) is not None]
        return bool(there) and mine < float(np.median(there))
    if not _is_rung(own):
        return False
    reached = [*known, *(reports for reports in others if reports and reports[-1][0] >= step)]
    scores = [best for reports in reached if (best := best_until(reports, step)) is not None]
    better = sum(score > mine for score in scores)
    return better >= max(1, (len(scores) + 1) // ETA)


def _is_rung(own: Reports) -> bool:
    """Return whether the last report is the first at or after one of the steps 1, 3, 9, ..."""
    step, before = own[-1][0], own[-2][0] if len(own) > 1 else 0
    rung = 1
    while rung <= step:
        if before < rung:
            return True
        rung *= ETA
    return False


def gain_after(step: float, finished: Sequence[tuple[Reports, float]]) -> float:
    """Return what finished evaluations gained on average from a step to their score.

    An evaluation that was stopped at an early step would have gained about as much: compared as it
    is with the scores of finished ones, it would look worse than it is.

    Examples
    --------
    >>> gain_after(1, [([(1, 0.5), (2, 0.7)], 0.8), ([(1, 0.4)], 0.5), ([], 0.9)])
    0.2
    """
    gains = [
        score - best
        for reports, score in finished
        if (best := best_until(reports, step)) is not None
    ]
    return round(float(np.mean(gains)), 12) if gains else 0.0
