r"""The domain of a learner: finite arms, or a space represented by random features.

A learner never handles points. A learner handles *keys*: the number of an arm, or the point
itself on a space that is not finite. For a :class:`Posterior` root U over its tracked columns, a
domain computes

- ``project(root, keys)``: the columns of U that belong to keys, (m, c);
- ``scatter(keys, rewards)``: the vector s with ``U s = sum_i reward_i U_i``, (n,);
- ``best(...)``: the key where an upper confidence bound is largest.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.ldp.posterior import Posterior
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.kernels import Kernel
from flwr_fbo.models.surface import Surface
from flwr_fbo.search.acquisition import all_points, argmax

Keys = NDArray[Any]

#: Eigenvalues of the arms' covariance below this share of the largest are dropped.
RANK_TOLERANCE = 1e-10


class Domain(Protocol):
    """The points that a learner can play, and the features of these points."""

    space: Space
    #: Features of the tracked columns: (n, m).
    features: Array

    @property
    def covariance(self) -> Array | None:
        """Return the covariance over the arms (n, n); None where there are no arms."""

    def keys(self, points: Array) -> Keys:
        """Return the keys of points of the unit cube (c, D)."""

    def points(self, keys: Keys) -> Array:
        """Return the points of keys: (c, D)."""

    def project(self, root: Array, keys: Keys) -> Array:
        """Return the columns of a root that belong to keys: (m, c)."""

    def scatter(self, keys: Keys, rewards: Array) -> Array:
        """Return the rewards of keys, added up by tracked column: (n,)."""

    def best(self, posterior: Posterior, mean: Array, width: float, seed: list[int]) -> Keys:
        """Return the key with the largest mean + width * deviation, as an array of one."""

    def draw(self, rng: np.random.Generator) -> Keys:
        """Return a key drawn uniformly, as an array of one."""

    def no_keys(self) -> Keys:
        """Return an empty array of keys."""


class Arms:
    """Finitely many points, searched exactly.

    Parameters
    ----------
    space
        A finite space.
    covariance
        The covariance of its points (n, n), or a kernel.
    """

    def __init__(self, space: Space, covariance: Array | Kernel) -> None:
        points = all_points(space)
        if points is None:
            raise ValueError("arms need a finite space, but the space is not finite or too large")
        self.space, self._points = space, points
        if callable(covariance):
            embedded = space.embed(points)
            covariance = covariance(embedded, embedded)
        self.covariance = checked_covariance(covariance, len(points))  # (n, n)
        values, vectors = np.linalg.eigh(self.covariance)
        if values[0] < -1e-8 * values[-1]:
            raise ValueError(
                "a covariance of arms must be positive semi-definite, but its least eigenvalue is "
                f"{values[0]:.3g}"
            )
        kept = values > RANK_TOLERANCE * values[-1]
        # Eigen-features: k(x, x') = phi(x)'phi(x') exactly, in as few dimensions as it takes.
        self.features = vectors[:, kept] * np.sqrt(values[kept])  # (n, m)

    def keys(self, points: Array) -> Keys:
        """Return the numbers of the arms at these points: (c,)."""
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
        same = np.all(rows[:, None, :] == self._points[None, :, :], axis=2)  # (c, n)
        if not np.all(same.any(axis=1)):
            raise ValueError(f"points must be arms of the space, but got {rows.tolist()}")
        return np.asarray(same.argmax(axis=1))

    def points(self, keys: Keys) -> Array:
        """Return the points of these keys: (c, D)."""
        return self._points[keys]

    def project(self, root: Array, keys: Keys) -> Array:
        """Return the columns of a root that belong to keys: (m, c)."""
        return root[:, keys]

    def scatter(self, keys: Keys, rewards: Array) -> Array:
        """Return rewards added up by arm: (n,)."""
        added = np.bincount(keys, weights=rewards, minlength=len(self._points))
        return np.asarray(added, dtype=np.float64)

    def best(self, posterior: Posterior, mean: Array, width: float, seed: list[int]) -> Keys:
        """Return the arm with the largest bound, as an array of one; ties are broken at random."""
        upper = mean @ posterior.root + width * np.sqrt(posterior.variances())  # (n,)
        # All arms tie before the first play, and equal arms may differ in their last digits.
        highest = upper.max()
        ties = np.flatnonzero(upper >= highest - 1e-9 * abs(highest))
        if len(ties) > 1:
            ties = np.random.default_rng(seed).choice(ties, 1)
        return np.asarray(ties)

    def draw(self, rng: np.random.Generator) -> Keys:
        """Return a key drawn uniformly, as an array of one."""
        return np.asarray(rng.integers(len(self._points), size=1))

    def no_keys(self) -> Keys:
        """Return an empty array of keys."""
        return np.zeros(0, dtype=np.int64)


class Continuum:
    """A space that is not finite, represented by M random features of a kernel.

    The tracked columns are the M unit vectors of feature space. The root is therefore W itself,
    and the column of a point is W phi(x). The features stand in for the kernel: |phi(x)| = 1, and
    phi(x)'phi(x') is within O(M^(-1/2)) of the kernel. The features are drawn once, so no Nystrom
    step is needed. They are not an epsilon-accurate embedding in the sense of the theorems.
    """

    covariance: None = None

    def __init__(self, space: Space, kernel: Kernel, count: int, seed: int = 0) -> None:
        self.space = space
        rng = np.random.default_rng([seed, 2**20])
        self._map = RandomFeatures.draw(kernel, count, space.embedding_dimension, rng)
        self.features = np.eye(count)  # (M, M)

    def keys(self, points: Array) -> Keys:
        """Return the points themselves, which must be points of the space: (c, D)."""
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
        if not np.array_equal(self.space.snap(rows), rows):
            raise ValueError(f"points must be points of the space, but got {rows.tolist()}")
        return rows

    def points(self, keys: Keys) -> Array:
        """Return the points of these keys: (c, D)."""
        return np.asarray(keys)

    def no_keys(self) -> Keys:
        """Return an empty array of keys."""
        return np.zeros((0, self.space.dimension))

    def project(self, root: Array, keys: Keys) -> Array:
        """Return the columns of a root that belong to keys: (m, c)."""
        return np.asarray(root @ self._map(self.space.embed(keys)).T)

    def scatter(self, keys: Keys, rewards: Array) -> Array:
        """Return the features of keys, each times its reward, added up: (M,)."""
        return np.asarray(rewards @ self._map(self.space.embed(keys)))

    def best(self, posterior: Posterior, mean: Array, width: float, seed: list[int]) -> Keys:
        """Return the point with the largest bound, found by candidates and ascent: (1, D)."""
        bound = _UpperBound(self._map, posterior, mean, width)
        return self.space.snap(argmax(bound, self.space, np.random.default_rng(seed)))

    def draw(self, rng: np.random.Generator) -> Keys:
        """Return a point drawn uniformly: (1, D)."""
        return self.space.sample(1, rng)


class _UpperBound(Surface):
    r"""The surface phi(x)'theta + width * sqrt(lambda) |W phi(x)|, and its gradient.

    With :math:`g(x) = W^T W \phi(x) / |W \phi(x)|` the second part is
    :math:`\phi(x)^T g(x)`, and its gradient is what it would be if g did not depend on x.
    """

    def __init__(
        self, features: RandomFeatures, posterior: Posterior, mean: Array, width: float
    ) -> None:
        self._map, self._root = features, posterior.root
        self._weights = mean @ posterior.root  # theta (M,)
        self._width = width * math.sqrt(posterior.regularisation)

    def _rows(self, x: Array) -> Array:
        """Return theta + width * sqrt(lambda) g(x) at the rows of x: (n, M)."""
        if self._width == 0.0:
            return np.broadcast_to(self._weights, (len(x), len(self._weights)))
        columns = self._map(x) @ self._root.T  # (n, m)
        lengths = np.sqrt(np.einsum("nm,nm->n", columns, columns))[:, None]
        return np.asarray(self._weights + self._width * (columns / lengths) @ self._root)

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the bound at the rows of x (n, E): (n,)."""
        return np.asarray(np.einsum("nm,nm->n", self._map(x), self._rows(x)))

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the bound (n,) and its gradient (n, E) at the rows of x (n, E)."""
        return self._map.value_and_gradient(x, self._rows(x))


#: A finite space with more points than this is represented by random features, too.
MOST_ARMS = 2000


def domain_of(
    space: Space, kernel: Kernel, features: int, seed: int, covariance: Array | None = None
) -> Domain:
    """Return arms where the space has few enough points, otherwise random features."""
    points = all_points(space)
    if points is not None and len(points) <= MOST_ARMS:
        return Arms(space, kernel if covariance is None else covariance)
    if covariance is not None:
        size = "that is not finite" if points is None else f"of {len(points)} points"
        raise SettingsError(
            f"a covariance over arms needs a finite space of at most {MOST_ARMS} points, but got "
            f"a space {size}"
        )
    return Continuum(space, kernel, features, seed)


def checked_covariance(covariance: Array, arms: int) -> Array:
    """Return a symmetric, finite (n, n) matrix with k(x, x) in (0, 1], or raise ValueError."""
    matrix = np.asarray(covariance, dtype=np.float64)
    if matrix.shape != (arms, arms):
        raise ValueError(
            f"a covariance of {arms} arms must have shape ({arms}, {arms}), but got {matrix.shape}"
        )
    if not np.all(np.isfinite(matrix)):
        raise ValueError("a covariance of arms must be finite and symmetric, but is not finite")
    if not np.allclose(matrix, matrix.T, atol=1e-10):
        raise ValueError(
            "a covariance of arms must be finite and symmetric, but differs from its transpose by "
            f"up to {np.abs(matrix - matrix.T).max():.3g}"
        )
    diagonal = np.diag(matrix)
    if diagonal.min() <= 0 or diagonal.max() > 1 + 1e-9:
        raise ValueError(
            "a covariance of arms must have 0 < k(x, x) <= 1 (divide by its largest variance), but "
            f"its diagonal spans [{diagonal.min():.4g}, {diagonal.max():.4g}]"
        )
    return 0.5 * (matrix + matrix.T)  # symmetric to the last digit
