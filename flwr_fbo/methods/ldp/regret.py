"""What a run cost against always playing the best point, where that is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space


class Known(Protocol):
    """A task whose mean reward may be known (see :class:`flwr_fbo.tasks.task.Task`)."""

    @property
    def space(self) -> Space:
        """The search space."""

    def expected(self, params: Mapping[str, Any]) -> float | None:
        """The mean reward, if it is known."""

    def optimum(self) -> float | None:
        """The largest mean reward, if it is known."""


def cumulative_regret(played: Array, task: Known) -> Array | None:
    """R_t of equation (1) after each play of ``played`` (T, D); None where f is not known."""
    best = task.optimum()
    if best is None or not len(played):
        return None if best is None else np.zeros(0)
    points, which = np.unique(played, axis=0, return_inverse=True)
    means = [task.expected(task.space.from_unit(point)) for point in points]
    if any(mean is None for mean in means):
        return None
    gaps = best - np.array(means, dtype=np.float64)[which.reshape(-1)]
    return np.asarray(np.cumsum(gaps))
