"""The regret of a run against always playing the best point, where the best point is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space


class TaskWithMean(Protocol):
    """A task whose mean reward may be known, as :class:`flwr_fbo.tasks.task.Task` may be."""

    @property
    def space(self) -> Space:
        """Return the search space."""

    def expected(self, params: Mapping[str, Any]) -> float | None:
        """Return the mean reward; None where the mean is not known."""

    def optimum(self) -> float | None:
        """Return the largest mean reward; None where the largest is not known."""


def regret_of_plays(played: Array, task: TaskWithMean) -> Array | None:
    """Return R_t of equation (1) after each play of ``played`` (T, D); None where f is unknown."""
    best = task.optimum()
    if best is None or not len(played):
        return None if best is None else np.zeros(0)
    points, which = np.unique(played, axis=0, return_inverse=True)  # each arm is looked up once
    means = [task.expected(task.space.from_unit(point)) for point in points]
    if any(mean is None for mean in means):
        return None
    gaps = best - np.array(means, dtype=np.float64)[which.reshape(-1)]
    return np.asarray(np.cumsum(gaps))
