"""What an evaluation shows: its score, and the scores that its task reports on the way.

A task reports scores at some of its steps, such as epochs (:func:`report`). The agent's rule may
stop an evaluation that looks hopeless by its reports (:mod:`flwr_fbo.search.pruning`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from flwr_fbo.core.text import value_text

#: The largest size of a score. Sums, squares and fourth powers of such scores are finite.
LARGEST_SCORE = 1e60


def checked_score(score: Any) -> tuple[float | None, str]:
    """Return what a task returned as a score and no failure, or no score and the broken rule."""
    if type(score) is float and abs(score) <= LARGEST_SCORE:  # nearly always
        return score, ""
    # numpy's numbers are accepted, but not its arrays, nor Python's bool.
    plain: Any = score.item() if isinstance(score, np.generic) else score
    if isinstance(plain, bool) or not isinstance(plain, (int, float)):
        return None, f"the score must be a number, but got {value_text(score)}"
    if not abs(plain) <= sys.float_info.max:
        return None, f"the score must be finite, but got {value_text(score)}"
    if not abs(plain) <= LARGEST_SCORE:
        rule = f"the score must be in [{-LARGEST_SCORE:g}, {LARGEST_SCORE:g}]"
        return None, f"{rule}, but got {value_text(score)}"
    return float(plain), ""


class PrunedError(Exception):
    """Ends an evaluation that looks hopeless; raised by :func:`report` in the task's own code."""


class Progress:
    """What one evaluation has reported, and the rule that may stop it."""

    def __init__(self, is_hopeless: Callable[[list[list[float]]], bool]) -> None:
        self.reports: list[list[float]] = []
        self.stopped = False
        self._is_hopeless = is_hopeless

    def report(self, step: int, score: float, *, may_stop: bool) -> None:
        """Take in a report; raise PrunedError if the evaluation looks hopeless."""
        last = self.reports[-1][0] if self.reports else -1
        if isinstance(step, bool) or int(step) != step or not step > last:
            raise ValueError(
                f"the steps of an evaluation must be growing integers from 0, but got {step!r} "
                f"after {last:g}"
            )
        plain, failure = checked_score(score)
        if plain is None:
            raise ValueError(f"step {step}: {failure}")
        self.reports.append([int(step), plain])
        if may_stop and self._is_hopeless(self.reports):
            self.stop()

    def stop(self) -> None:
        """Raise PrunedError."""
        self.stopped = True
        raise PrunedError(f"stopped at step {self.reports[-1][0]:g}, as it looked hopeless")


#: The evaluation that this thread is making; None where no agent asked for it.
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


class reporting_to:  # noqa: N801 - it is used as a function
    """Let reports in the block be those of an evaluation."""

    __slots__ = ("_progress", "_token")

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __enter__(self) -> None:
        self._token = _progress.set(self._progress)

    def __exit__(self, *error: object) -> None:
        _progress.reset(self._token)


def report(step: int, score: float, *, may_stop: bool = True) -> None:
    """Report the score of an evaluation at a step, such as an epoch.

    The agent's rule may stop the evaluation: PrunedError is then raised. Outside an agent nothing
    happens.

    Parameters
    ----------
    step
        The number of the step, which must grow. Count from 1: the last step is the cost.
    score
        The score at this step, in the unit of the final score.
    may_stop
        Whether the rule may stop the evaluation.
    """
    progress = _progress.get()
    if progress is not None:
        progress.report(step, score, may_stop=may_stop)


def stop_here() -> None:
    """Stop the evaluation that is being made: its score is the last that it reported."""
    progress = _progress.get()
    if progress is not None and progress.reports:
        progress.stop()
