r"""Random Fourier features and the posterior of their weights.

Notation

==========================  ===============================  ==========
paper                       here                             shape
==========================  ===============================  ==========
``M``                       ``features.count``               int
``s_i``                     ``features.frequencies``         (M, E)
``b_i``                     ``features.phases``              (M,)
``phi(x)``                  ``features(x)``                  (n, M)
``Phi(X_t)``                ``design``                       (t, M)
``Phi(X_t) Phi(X_t)'``      ``features.gram(x)``             (t, t)
``lambda`` or ``sigma^2``   ``noise``                        scalar
``nu_t``                    ``posterior.mean()``             (M,)
``omega``                   ``posterior.sample(rng)``        (M,)
==========================  ===============================  ==========

The features approximate a kernel, :math:`k(x, x') \approx \phi(x)^\top \phi(x')`. A function
drawn from the posterior of a Gaussian process is then one weight vector, which agents can send.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from flwr_fbo.core.arrays import Array
from flwr_fbo.models.kernels import Kernel
from flwr_fbo.models.linalg import add_to_diagonal, factorise, solve

#: The longest and the shortest of :func:`feature_lengthscales`; the longest is multiplied by the
#: square root of the dimension.
LONGEST, SHORTEST = 0.36, 0.03
#: How many features it takes to represent one cell that is a length scale wide.
FEATURES_PER_CELL = 4.0
#: With up to this many coordinates, features are computed coordinate by coordinate.
FEW_COORDINATES = 8
#: The features of at most this many points are cached.
MAX_CACHED_POINTS = 512


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    r"""The map :math:`\phi` of FTS App. A, normalised to :math:`\|\phi(x)\|_2 = 1`.

    The server draws frequencies and phases once and sends them as arrays, so agents need
    neither a common seed nor a common version of numpy.
    """

    frequencies: Array
    phases: Array

    def __post_init__(self) -> None:
        if self.frequencies.ndim != 2 or self.phases.shape != self.frequencies.shape[:1]:
            raise ValueError(
                "`frequencies` must be (M, E) and `phases` (M,), but got "
                f"{self.frequencies.shape} and {self.phases.shape}"
            )

    @classmethod
    def draw(
        cls, kernel: Kernel, count: int, dimension: int, rng: np.random.Generator
    ) -> RandomFeatures:
        """Draw ``count`` features of a kernel over ``dimension`` embedded coordinates."""
        frequencies = kernel.frequencies(count, dimension, rng)  # s_i ~ p(s)
        return cls(frequencies, rng.uniform(0.0, 2.0 * np.pi, count))  # b_i ~ U[0, 2 pi]

    @property
    def count(self) -> int:
        """Return M, the number of features."""
        return len(self.phases)

    def __call__(self, x: Array) -> Array:
        """Return the features of the rows of x (n, E): (n, M), read-only, each row of norm one.

        The features of the last points are cached, because an agent asks for the features of its
        own points again and again, with one more point each time. Points of several agents,
        (A, n, E), have features (A, n, M).
        """
        return _read_only(self._waves(x)) if self._too_large(x) else self._cached(x).features

    def gram(self, x: Array) -> Array:
        """Return phi(x)'phi(x') for all pairs of rows of x (n, E): (n, n), cached likewise."""
        if not self._too_large(x):
            return self._cached(x).gram
        if x.ndim > 2:
            return gram_of(self(x))
        waves = self._waves(x)
        return np.asarray(waves @ waves.T)

    def _too_large(self, x: Array) -> bool:
        """Return whether the features of points are not cached."""
        return x.ndim > 2 or x.shape[1] > FEW_COORDINATES or len(x) > MAX_CACHED_POINTS

    def _cached(self, x: Array) -> _FeatureCache:
        """Return the cache, filled so that its first points are the rows of x."""
        cache: _FeatureCache | None = self.__dict__.get("_cache")
        if cache is None or not cache.is_prefix_of(x):
            self.__dict__["_cache"] = cache = _FeatureCache(x.shape[1], self.count)
        if cache.count < len(x):
            new = x[cache.count :]
            cache.add(new, self._waves(new))
        return cache

    def _waves(self, x: Array) -> Array:
        """Return cos(Sx + b) over its norm for each row of x (..., n, E): (..., n, M)."""
        if x.shape[-1] > FEW_COORDINATES:
            waves = x @ self.frequencies.T + self.phases
        else:
            # A product of matrices would make the last bit of a row depend on the number of rows,
            # and a restored agent would then propose other points than the original.
            waves = np.empty((*x.shape[:-1], self.count))
            waves[:] = self.phases
            for number, frequencies in enumerate(self.frequencies.T):
                waves += x[..., number, None] * frequencies
        np.cos(waves, out=waves)
        waves /= np.sqrt(np.einsum("...nm,...nm->...n", waves, waves))[..., None]
        return waves

    @cached_property
    def _single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return single-precision S (M, E), and S' above the phases (E + 1, M)."""
        frequencies = self.frequencies.astype(np.float32)
        return frequencies, np.vstack([frequencies.T, self.phases.astype(np.float32)])

    def scan(self, x: Array, weights: Array) -> Array:
        """Return phi(x)' omega in single precision, for weights (M,) or one a row (n, M): (n,).

        Single precision is enough to find where a function is large, and cosines in double
        precision take most of the time of :meth:`__call__` (`benchmarks.ratios`).
        """
        rows = np.ones((*x.shape[:-1], x.shape[-1] + 1), np.float32)
        rows[..., :-1] = x
        waves = rows @ self._single[1]
        np.cos(waves, out=waves)  # (n, M)
        dot = _weighed(waves, weights.astype(np.float32))
        dot /= np.sqrt(np.einsum("...nm,...nm->...n", waves, waves))
        return np.asarray(dot, dtype=np.float64)

    def value(self, x: Array, weights: Array) -> Array:
        """Return phi(x)' omega in double precision: (n,)."""
        waves = self._waves(x)
        return np.asarray(
            np.einsum("...nm,...nm->...n", waves, np.broadcast_to(weights, waves.shape))
        )

    def value_and_gradient(
        self, x: Array, weights: Array, single_precision: bool = False
    ) -> tuple[Array, Array]:
        """Return phi(x)' omega (n,) and its gradient in x (n, E).

        With c = cos(Sx + b) and f = c'omega / |c|, the gradient is
        -(sin(Sx + b) * (omega - f c / |c|)) S / |c|.
        """
        # Angles are large numbers: they are computed in double precision and then rounded.
        angles = x @ self.frequencies.T  # (n, M)
        angles += self.phases
        if single_precision:
            angles, weights = angles.astype(np.float32), weights.astype(np.float32)
        waves = np.cos(angles)
        norm = np.sqrt(np.einsum("...nm,...nm->...n", waves, waves))  # (n,)
        value = _weighed(waves, weights) / norm
        waves *= (-value / norm)[..., None]
        waves += weights
        waves *= np.sin(angles, out=angles)
        gradient = waves @ (self._single[0] if single_precision else self.frequencies)
        gradient /= -norm[..., None]
        return value, gradient


def _weighed(waves: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sums of waves (..., n, M) times weights (M,), or weights of each row: (..., n)."""
    if weights.ndim == 1:
        return np.asarray(waves @ weights)
    return np.asarray(np.einsum("...nm,...nm->...n", waves, weights))


def gram_of(features: Array) -> Array:
    """Return phi(x)'phi(x') for all pairs of points with features (..., n, M): (..., n, n).

    Row by row, so that the last bit of a row does not depend on how many rows follow.
    """
    count = features.shape[-2]
    gram = np.empty((*features.shape[:-1], count))
    for row in range(count):
        line = _row_of_gram(features, row)
        gram[..., row, : row + 1] = line
        gram[..., : row + 1, row] = line
    return gram


def _row_of_gram(features: Array, row: int) -> Array:
    """Return phi(x)'phi(x') of one point with those up to itself: (..., row + 1)."""
    return np.asarray((features[..., : row + 1, :] @ features[..., row, :, None])[..., 0])


class _FeatureCache:
    """Points, their features and the Gram matrix of the features, extended in place."""

    def __init__(self, dimension: int, features: int) -> None:
        self.count = self._gram_count = 0
        self._points, self._features = np.empty((0, dimension)), np.empty((0, features))
        self._gram = np.empty((0, 0))

    def is_prefix_of(self, x: Array) -> bool:
        """Return whether the cached points are the first rows of x."""
        return len(x) >= self.count and np.array_equal(self._points[: self.count], x[: self.count])

    def add(self, points: Array, features: Array) -> None:
        """Append points (n, E) and their features (n, M)."""
        first, self.count = self.count, self.count + len(points)
        self._points = _with_capacity(self._points, self.count)
        self._features = _with_capacity(self._features, self.count)
        self._points[first : self.count] = points
        self._features[first : self.count] = features

    @property
    def features(self) -> Array:
        """Return the features of all points: (n, M), read-only."""
        return _read_only(self._features[: self.count])

    @property
    def gram(self) -> Array:
        """Return the Gram matrix of all points: (n, n), read-only."""
        known, features = self._gram_count, self._features
        if len(self._gram) < self.count:
            larger = np.empty((len(features), len(features)))
            larger[:known, :known] = self._gram[:known, :known]
            self._gram = larger
        # Row by row, so that the last bit does not depend on how many rows were added at once.
        for row in range(known, self.count):
            line = _row_of_gram(features, row)
            self._gram[row, : row + 1] = self._gram[: row + 1, row] = line
        self._gram_count = self.count
        return _read_only(self._gram[: self.count, : self.count])


def _with_capacity(rows: Array, count: int) -> Array:
    """Return the rows, copied to an array twice as large where ``count`` rows do not fit."""
    if count <= len(rows):
        return rows
    larger = np.empty((max(count, 2 * len(rows)), rows.shape[1]))
    larger[: len(rows)] = rows
    return larger


def _read_only(view: Array) -> Array:
    view.flags.writeable = False
    return view


def feature_lengthscales(count: int, dimension: int) -> Array:
    """Return a length scale for each of M features, from long to short: (M, 1).

    Features are fixed before anyone has evaluated anything, when nobody knows how narrow the
    peaks of the scores are. Length scales are therefore spread evenly in the logarithm, from
    long ones to the shortest that M features can still tell apart, at four features per cell.
    """
    longest = LONGEST * math.sqrt(dimension)
    shortest = max(SHORTEST, (count / FEATURES_PER_CELL) ** (-1.0 / dimension))
    return np.geomspace(min(shortest, longest), longest, count)[:, None]


class WeightPosterior:
    r"""The posterior :math:`\omega \sim N(\nu_t, \lambda \Sigma_t^{-1})` of equation (2).

    :math:`\Sigma_t = \Phi^\top \Phi + \lambda I` and :math:`\nu_t = \Sigma_t^{-1} \Phi^\top y`.
    With fewer observations than features, the same distribution is computed from the t x t
    Gram matrix: the mean by equation (5), and a sample by correcting a draw from the prior
    (Matheron's rule). ``form`` overrides this choice, and ``gram`` is the Gram matrix where the
    caller has it. The mean of A posteriors with equally many observations is (A, M), of designs
    (A, t, M) and scores (A, t).
    """

    def __init__(
        self,
        design: Array,
        scores: Array,
        noise: float,
        form: Literal["gram", "design"] | None = None,
        gram: Array | None = None,
    ) -> None:
        if not noise > 0:
            raise ValueError(f"`noise` must be > 0, but got {noise!r}")
        self.design, self.scores, self.noise = design, scores, noise
        count, features = design.shape[-2:]
        self.form = form or ("gram" if count < features else "design")
        self._gram = gram

    @classmethod
    def at(
        cls,
        features: RandomFeatures,
        x: Array,
        scores: Array,
        noise: float,
        deviations: Array | None = None,
    ) -> WeightPosterior:
        """Return the posterior of the features' weights, given scores (t,) at x (t, E).

        With prior ``deviations`` (M,) of the weights, it is that of the weights over these.
        """
        design = features(x)
        if deviations is not None:
            design = design * deviations
            return cls(design, scores, noise, gram=gram_of(design))
        if x.shape[-2] >= features.count:
            return cls(design, scores, noise)
        return cls(design, scores, noise, gram=gram_of(design) if x.ndim > 2 else features.gram(x))

    @cached_property
    def _factor(self) -> Array:
        """Return the Cholesky factor of Sigma_t (M, M), or of Phi Phi' + lambda I (t, t)."""
        if self.form == "design":
            square = self.design.T @ self.design
        else:
            square = self.design @ self.design.T if self._gram is None else self._gram.copy()
        return factorise(add_to_diagonal(square, self.noise))

    def mean(self) -> Array:
        """Return nu_t: (M,)."""
        if not self.scores.shape[-1]:
            return np.zeros((*self.design.shape[:-2], self.design.shape[-1]))
        if self.form == "gram":  # equation (5): Sigma^-1 Phi' = Phi' (Phi Phi' + lambda I)^-1
            solved = solve(self._factor, self.scores)
            return np.asarray((self.design.swapaxes(-1, -2) @ solved[..., None])[..., 0])
        return np.asarray(solve(self._factor, self.design.T @ self.scores))

    def sample(self, rng: np.random.Generator) -> Array:
        """Draw omega: (M,)."""
        normal = rng.standard_normal(self.design.shape[1])
        if not len(self.scores):
            return np.asarray(normal)
        if self.form == "gram":  # Matheron: omega_0 + Phi' (Phi Phi' + lambda I)^-1 (y - ...)
            noise = np.sqrt(self.noise) * rng.standard_normal(len(self.scores))
            residual = self.scores - self.design @ normal - noise
            return np.asarray(normal + self.design.T @ solve(self._factor, residual))
        deviation = solve_triangular(self._factor, normal, lower=True, trans="T")  # cov Sigma^-1
        return np.asarray(self.mean() + np.sqrt(self.noise) * deviation)
