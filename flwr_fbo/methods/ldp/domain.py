r"""Where a learner plays: finite arms, or a space seen through random features.

A learner never handles points. It handles *keys*: the number of an arm, or the point itself on
a space that is not finite. A domain knows, for a :class:`Posterior` root U over its tracked
columns,

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
    """See the module."""

    space: Space
    #: Features of the tracked columns: (n, m).
    features: Array

    @property
    def covariance(self) -> Array | None:
        """Covariance over the arms (n, n); None where there are no arms."""

    def keys(self, points: Array) -> Keys:
        """The keys of points of the unit cube, one a row."""

    def points(self, keys: Keys) -> Array:
        """The points of keys: (c, D)."""

    def project(self, root: Array, keys: Keys) -> Array:
        """The columns of a root that belong to keys: (m, c)."""

    def scatter(self, keys: Keys, rewards: Array) -> Array:
        """Rewards added up by tracked column: (n,)."""

    def best(self, posterior: Posterior, mean: Array, width: float, seed: list[int]) -> Keys:
        """The key (as an array of one) of the largest mean + width * standard deviation."""

    def draw(self, rng: np.random.Generator) -> Keys:
        """A key drawn uniformly (as an array of one)."""

    def no_keys(self) -> Keys:
        """An array of no keys."""


class Arms:
    """Finitely many points, searched exactly."""

    def __init__(self, space: Space, covariance: Array | Kernel) -> None:
        points = all_points(space)
        if points is None:
            raise ValueError("arms need a finite space, but the space has too many points")
        self.space, self._points = space, points
        if callable(covariance):
            embedded = space.embed(points)
            covariance = covariance(embedded, embedded)
        self.covariance = checked_covariance(covariance, len(points))  # (n, n)
        values, vectors = np.linalg.eigh(self.covariance)
        if values[0] < -1e-8 * values[-1]:
            raise ValueError(
                f"a covariance must be positive semi-definite, but its least eigenvalue is "
                f"{values[0]:.3g}"
            )
        kept = values > RANK_TOLERANCE * values[-1]
        # Eigen-features: k(x, x') = phi(x)'phi(x') exactly, in as few dimensions as it takes.
        self.features = vectors[:, kept] * np.sqrt(values[kept])  # (n, m)

    def keys(self, points: Array) -> Keys:
        """See :class:`Domain`."""
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
        same = np.all(rows[:, None, :] == self._points[None, :, :], axis=2)  # (c, n)
        if not np.all(same.any(axis=1)):
            raise ValueError(f"points must be arms of the space, but got {rows.tolist()}")
        return np.asarray(same.argmax(axis=1))

    def points(self, keys: Keys) -> Array:
        """See :class:`Domain`."""
        return self._points[keys]

    def project(self, root: Array, keys: Keys) -> Array:
        """See :class:`Domain`."""
        return root[:, keys]

    def scatter(self, keys: Keys, rewards: Array) -> Array:
        """See :class:`Domain`."""
        added = np.bincount(keys, weights=rewards, minlength=len(self._points))
        return np.asarray(added, dtype=np.float64)

    def best(self, posterior: Posterior, mean: Array, width: float, seed: list[int]) -> Keys:
        """See :class:`Domain`; ties are broken at random, as at the first play of all."""
        upper = mean @ posterior.root + width * np.sqrt(posterior.variances())  # (n,)
        highest = upper.max()  # arms that are alike may differ in the last digits
        ties = np.flatnonzero(upper >= highest - 1e-9 * abs(highest))
        if len(ties) > 1:
            ties = np.random.default_rng(seed).choice(ties, 1)
        return np.asarray(ties)

    def draw(self, rng: np.random.Generator) -> Keys:
        """See :class:`Domain`."""
        return np.asarray(rng.integers(len(self._points), size=1))

    def no_keys(self) -> Keys:
        """See :class:`Domain`."""
        return np.zeros(0, dtype=np.int64)


class Continuum:
    """A space that is not finite, through M random features of a kernel.

    The tracked columns are the M unit vectors of feature space, so the root is W itself, and
    the column of a point is W phi(x). The features stand in for the kernel: |phi(x)| = 1 and
    phi(x)'phi(x') is within O(M^(-1/2)) of it. They are drawn once, so no Nystrom step is
    needed; they are not an epsilon-accurate embedding in the sense of the theorems.
    """

    covariance: None = None

    def __init__(self, space: Space, kernel: Kernel, count: int, seed: int = 0) -> None:
        self.space = space
        rng = np.random.default_rng([seed, 2**20])
        self._map = RandomFeatures.draw(kernel, count, space.embedding_dimension, rng)
        self.features = np.eye(count)  # (M, M)

    def keys(self, points: Array) -> Keys:
        """See :class:`Domain`: points are their own keys."""
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
        if not np.array_equal(self.space.snap(rows), rows):
            raise ValueError(f"points must be points of the space, but got {rows.tolist()}")
        return rows

    def points(self, keys: Keys) -> Array:
        """See :class:`Domain`."""
        return np.asarray(keys)

    def no_keys(self) -> Keys:
        """See :class:`Domain`."""
        return np.zeros((0, self.space.dimension))

    def project(self, root: Array, keys: Keys) -> Array:
        """See :class:`Domain`."""
        return np.asarray(root @ self._map(self.space.embed(keys)).T)

    def scatter(self, keys: Keys, rewards: Array) -> Array:
        """See :class:`Domain`."""
        return np.asarray(rewards @ self._map(self.space.embed(keys)))

    def best(self, posterior: Posterior, mean: Array, width: float, seed: list[int]) -> Keys:
        """See :class:`Domain`: by the core's candidates and gradient ascent."""
        bound = _UpperBound(self._map, posterior, mean, width)
        return self.space.snap(argmax(bound, self.space, np.random.default_rng(seed)))

    def draw(self, rng: np.random.Generator) -> Keys:
        """See :class:`Domain`."""
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


#: With more points than this a finite space is seen through random features, too.
MOST_ARMS = 2000


def domain_of(
    space: Space, kernel: Kernel, features: int, seed: int, covariance: Array | None = None
) -> Domain:
    """Arms where the space has few enough points, otherwise random features."""
    points = all_points(space)
    if points is not None and len(points) <= MOST_ARMS:
        return Arms(space, kernel if covariance is None else covariance)
    if covariance is not None:
        raise SettingsError(
            f"a covariance over arms needs a finite space of at most {MOST_ARMS} points"
        )
    return Continuum(space, kernel, features, seed)


def checked_covariance(covariance: Array, arms: int) -> Array:
    """A symmetric, finite (n, n) matrix with k(x, x) in (0, 1], or an error."""
    matrix = np.asarray(covariance, dtype=np.float64)
    if matrix.shape != (arms, arms):
        raise ValueError(f"a covariance of {arms} arms must be square, but got {matrix.shape}")
    if not np.all(np.isfinite(matrix)) or not np.allclose(matrix, matrix.T, atol=1e-10):
        raise ValueError("a covariance must be finite and symmetric, but it is not")
    diagonal = np.diag(matrix)
    if diagonal.min() <= 0 or diagonal.max() > 1 + 1e-9:
        raise ValueError(
            "a covariance must have 0 < k(x, x) <= 1 (divide it by its largest variance), but "
            f"its diagonal spans [{diagonal.min():.4g}, {diagonal.max():.4g}]"
        )
    return 0.5 * (matrix + matrix.T)
