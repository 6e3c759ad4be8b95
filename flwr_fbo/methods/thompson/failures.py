"""What an agent learns from failed evaluations: where to expect failures, and where not to go.

An evaluation has failed if it has no score: an error, a score that is not finite, a process that
ended, the owner's time limit, or an evaluation that was given up. The agent keeps the points. Its
acquisition is multiplied by the probability of success (:mod:`flwr_fbo.search.success`), and no
point within :data:`REACH` of a failed one is proposed while there are others.

Failures leave the agent only within the shared vector. In the posterior of omega a failed
evaluation counts as the worst score, and as :data:`WORST` at most. The shared function is
therefore low where parties failed, and the others avoid the place before they have paid for it.
The vector has the same length, the same bound and the same charge as without failures. How many
evaluations failed, and where, is nowhere else. The two numbers of the scale of the scores are of
scores only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space
from flwr_fbo.models.success import SuccessModel
from flwr_fbo.models.surface import Surface
from flwr_fbo.search.expected_improvement import Improvement
from flwr_fbo.search.regions import Regions
from flwr_fbo.search.success import CAUTION, Weighed, WeighedLogarithm

#: Points nearer than this to a failed point, in the coordinates that kernels see, count as failed.
REACH = 0.01
#: In a shared vector a failure is at least this many spreads below the mean of the scores.
WORST = -1.0


class Failures:
    """The points at which the evaluations of one agent failed.

    Parameters
    ----------
    space : Space
        The search space.
    kernel : str
        The name of the kernel of the agent's own model.
    learn : bool
        Whether failures are learned. If not, the agent only keeps away from the failed points.
    """

    def __init__(self, space: Space, kernel: str, learn: bool = True) -> None:
        self._space, self._kernel, self._learn = space, kernel, learn
        self._points: list[Array] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(self, unit: Array) -> None:
        """Add a point (D,)."""
        self._points.append(unit)

    @property
    def units(self) -> Array:
        """Return the points: (f, D)."""
        return np.array(self._points).reshape(-1, self._space.dimension)

    def reaches(self, units: Array) -> NDArray[np.bool_]:
        """Return which of the rows (n, D) lie within reach of a failed point: (n,)."""
        if not self._points:
            return np.zeros(len(units), dtype=bool)
        here, failed = self._space.embed(units), self._space.embed(self.units)
        apart = ((here[:, None, :] - failed[None, :, :]) ** 2).sum(-1)  # (n, f)
        return np.asarray((apart < REACH**2).any(axis=1))

    def success(self, succeeded: Array) -> SuccessModel | None:
        """Return where evaluations succeed, given the points that have scores (s, D).

        None without failures, and where failures are not learned.
        """
        if not self._learn or not self._points:
            return None
        failed = self._space.embed(self.units)
        here = self._space.embed(succeeded).reshape(-1, failed.shape[1])
        return SuccessModel.of(self._kernel, self._space.dimension, here, failed)

    def weigh(self, surface: Surface, succeeded: Array, regions: Regions | None) -> Surface:
        """Return a surface times the probability of success, or the surface without failures."""
        success = self.success(succeeded)
        if success is None:
            return surface
        if isinstance(surface, Improvement):
            return WeighedLogarithm(surface, success)
        units = np.vstack([succeeded, self.units])
        places = None if regions is None else regions.locate(units)
        floor = surface.value(self._space.embed(units), places).min()
        return Weighed(surface, success, float(floor))

    def choose(self, points: Array, succeeded: Array, rng: np.random.Generator) -> Array:
        """Return one of the points (n, D), out of reach of failed points while any is: (D,)."""
        away = points[~self.reaches(points)]
        points, success = away if len(away) else points, self.success(succeeded)
        if success is None:
            return np.asarray(rng.choice(points))
        chance = np.exp(CAUTION * success.logarithm(self._space.embed(points)))
        return np.asarray(rng.choice(points, p=chance / chance.sum()))

    def add_scores(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return points (t, E) and targets (t,) with failures as scores, for a shared vector."""
        if not self._learn or not self._points:
            return x, y
        worst = min(WORST, float(y.min(initial=WORST)))
        failed = self._space.embed(self.units)
        return np.vstack([x, failed]), np.concatenate([y, np.full(len(failed), worst)])

    def state(self) -> list[list[float]]:
        """Return the points as JSON values."""
        return [unit.tolist() for unit in self._points]

    def restore(self, state: list[list[float]]) -> None:
        """Continue from the points that :meth:`state` returned."""
        self._points = [np.array(unit) for unit in state]
