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
``Phi(X_t) Phi(X_t)'``      ``features.products(x)``         (t, t)
``lambda`` or ``sigma^2``   ``noise``                        scalar
``nu_t``                    ``posterior.mean()``             (M,)
``omega``                   ``posterior.sample(rng)``        (M,)
==========================  ===============================  ==========

The features approximate a kernel, :math:`k(x, x') \approx \phi(x)^\top \phi(x')`, so a function
drawn from the Gaussian process posterior is one weight vector: that is what agents send.
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
from flwr_fbo.models.linalg import factorise, lift, solve

#: The range of :func:`feature_scales` in the unit cube, the first a square root of D.
WIDEST, NARROWEST = 0.36, 0.03
FEATURES_A_PLACE = 4.0
#: With up to so many coordinates, features are computed coordinate by coordinate.
FEW_COORDINATES = 8
#: No more rows than this are remembered.
REMEMBERED = 512


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    r"""The map :math:`\phi` of FTS App. A, normalised to :math:`\|\phi(x)\|_2 = 1`.

    The server draws frequencies and phases once and sends them as arrays, so agents need
    neither a common seed nor a common numpy.
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
        """``count`` features of a kernel over ``dimension`` embedded coordinates."""
        frequencies = kernel.frequencies(count, dimension, rng)  # s_i ~ p(s)
        return cls(frequencies, rng.uniform(0.0, 2.0 * np.pi, count))  # b_i ~ U[0, 2 pi]

    @property
    def count(self) -> int:
        """M, how many features there are."""
        return len(self.phases)

    def __call__(self, x: Array) -> Array:
        """The features of the rows of x (n, E): (n, M), each row of norm one.

        The last rows are remembered: those of an agent's own points are asked for again and
        again, one more at a time. They cannot be written to.
        """
        return _shown(self._waves(x)) if self._is_much(x) else self._remembered(x).features

    def products(self, x: Array) -> Array:
        """phi(x)'phi(x') for all pairs of rows of x (n, E): (n, n), remembered like the rows."""
        if not self._is_much(x):
            return self._remembered(x).products
        waves = self._waves(x)
        return np.asarray(waves @ waves.T)

    def _is_much(self, x: Array) -> bool:
        return x.shape[1] > FEW_COORDINATES or len(x) > REMEMBERED

    def _remembered(self, x: Array) -> _Rows:
        known: _Rows | None = self.__dict__.get("_rows")
        if known is None or not known.begin(x):
            self.__dict__["_rows"] = known = _Rows(x.shape[1], self.count)
        if known.count < len(x):
            new = x[known.count :]
            known.add(new, self._waves(new))
        return known

    def _waves(self, x: Array) -> Array:
        if x.shape[1] > FEW_COORDINATES:
            waves = x @ self.frequencies.T + self.phases
        else:
            # Not by a product of matrices: in its last bit a row must not depend on how many
            # others there are, or an agent that was restored would propose other points.
            waves = np.empty((len(x), self.count))
            waves[:] = self.phases
            for coordinate, frequencies in zip(x.T, self.frequencies.T, strict=True):
                waves += coordinate[:, None] * frequencies
        np.cos(waves, out=waves)
        waves /= np.sqrt(np.einsum("nm,nm->n", waves, waves))[:, None]
        return waves

    @cached_property
    def _single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Frequencies (M, E), and transposed above the phases (E + 1, M), in single precision."""
        frequencies = self.frequencies.astype(np.float32)
        return frequencies, np.vstack([frequencies.T, self.phases.astype(np.float32)])

    def scan(self, x: Array, weights: Array) -> Array:
        """phi(x)' omega for one weight vector (M,) or one a row (n, M), in single precision: (n,).

        To find where a function is large it is enough; cosines in double precision take most of
        the time of :meth:`__call__` (`benchmarks.ratios`, "scan of the features").
        """
        rows = np.ones((len(x), x.shape[1] + 1), np.float32)
        rows[:, :-1] = x
        waves = rows @ self._single[1]
        np.cos(waves, out=waves)  # (n, M)
        single = weights.astype(np.float32)
        dot = waves @ single if single.ndim == 1 else np.einsum("nm,nm->n", waves, single)
        dot /= np.sqrt(np.einsum("nm,nm->n", waves, waves))
        return np.asarray(dot, dtype=np.float64)

    def value(self, x: Array, weights: Array) -> Array:
        """phi(x)' omega in double precision: (n,)."""
        waves = self._waves(x)
        return np.asarray(np.einsum("nm,nm->n", waves, np.broadcast_to(weights, waves.shape)))

    def value_and_gradient(
        self, x: Array, weights: Array, roughly: bool = False
    ) -> tuple[Array, Array]:
        """phi(x)' omega and its gradient in x: (n,) and (n, E); roughly is in single precision.

        With c = cos(Sx + b) and f = c'omega / |c|, the gradient is
        -(sin(Sx + b) * (omega - f c / |c|)) S / |c|.
        """
        angles = x @ self.frequencies.T  # (n, M), in double precision: they are large
        angles += self.phases
        if roughly:
            angles, weights = angles.astype(np.float32), weights.astype(np.float32)
        waves = np.cos(angles)
        norm = np.sqrt(np.einsum("nm,nm->n", waves, waves))  # (n,)
        dot = waves @ weights if weights.ndim == 1 else np.einsum("nm,nm->n", waves, weights)
        value = dot / norm
        waves *= (-value / norm)[:, None]
        waves += weights
        waves *= np.sin(angles, out=angles)
        slope = waves @ (self._single[0] if roughly else self.frequencies)
        slope /= -norm[:, None]
        return value, slope


class _Rows:
    """Points, their features and the products of these: what there is of them grows in place."""

    def __init__(self, dimension: int, features: int) -> None:
        self.count = self._multiplied = 0
        self._points, self._features = np.empty((0, dimension)), np.empty((0, features))
        self._products = np.empty((0, 0))

    def begin(self, x: Array) -> bool:
        """Whether these points are the first of x."""
        return len(x) >= self.count and np.array_equal(self._points[: self.count], x[: self.count])

    def add(self, points: Array, features: Array) -> None:
        """More of them, with their features."""
        first, self.count = self.count, self.count + len(points)
        self._points = _with_room(self._points, self.count)
        self._features = _with_room(self._features, self.count)
        self._points[first : self.count] = points
        self._features[first : self.count] = features

    @property
    def features(self) -> Array:
        """(n, M), read-only."""
        return _shown(self._features[: self.count])

    @property
    def products(self) -> Array:
        """(n, n), read-only; made row by row, for the reason that is given in `_waves`."""
        known, features = self._multiplied, self._features
        if len(self._products) < self.count:
            larger = np.empty((len(features), len(features)))
            larger[:known, :known] = self._products[:known, :known]
            self._products = larger
        for row in range(known, self.count):
            line = features[: row + 1] @ features[row]
            self._products[row, : row + 1] = self._products[: row + 1, row] = line
        self._multiplied = self.count
        return _shown(self._products[: self.count, : self.count])


def _with_room(rows: Array, count: int) -> Array:
    """The same rows, or where there is no room for so many, a copy with twice the room."""
    if count <= len(rows):
        return rows
    larger = np.empty((max(count, 2 * len(rows)), rows.shape[1]))
    larger[: len(rows)] = rows
    return larger


def _shown(view: Array) -> Array:
    view.flags.writeable = False
    return view


def feature_scales(count: int, dimension: int) -> Array:
    """A length scale for each of M features where none is given: (M, 1).

    How narrow scores' peaks are is not known before anyone has evaluated anything, and features
    are fixed then. So they are of many scales, evenly spread in the logarithm: from wide ones to
    the narrowest that M features can still tell apart, at four features a place.
    """
    widest = WIDEST * math.sqrt(dimension)
    narrowest = max(NARROWEST, (count / FEATURES_A_PLACE) ** (-1.0 / dimension))
    return np.geomspace(min(narrowest, widest), widest, count)[:, None]


class WeightPosterior:
    r"""The posterior :math:`\omega \sim N(\nu_t, \lambda \Sigma_t^{-1})` of equation (2).

    :math:`\Sigma_t = \Phi^\top \Phi + \lambda I` and :math:`\nu_t = \Sigma_t^{-1} \Phi^\top y`.
    With fewer observations than features the same distribution is computed from the t x t
    Gram matrix, by equation (5) for the mean and, for a sample, by correcting a prior draw
    (Matheron's rule); ``form`` overrides that choice. Whoever has the Gram matrix gives it.
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
        count, features = design.shape
        self.form = form or ("gram" if count < features else "design")
        self._gram = gram

    @classmethod
    def at(cls, features: RandomFeatures, x: Array, scores: Array, noise: float) -> WeightPosterior:
        """Of the weights of some features, given scores at x (n, E)."""
        gram = features.products(x) if len(x) < features.count else None
        return cls(features(x), scores, noise, gram=gram)

    @cached_property
    def _factor(self) -> Array:
        if self.form == "design":
            square = self.design.T @ self.design
        else:
            square = self.design @ self.design.T if self._gram is None else self._gram.copy()
        return factorise(lift(square, self.noise))

    def mean(self) -> Array:
        """nu_t: (M,)."""
        if not len(self.scores):
            return np.zeros(self.design.shape[1])
        if self.form == "gram":  # equation (5): Sigma^-1 Phi' = Phi' (Phi Phi' + lambda I)^-1
            return np.asarray(self.design.T @ solve(self._factor, self.scores))
        return np.asarray(solve(self._factor, self.design.T @ self.scores))

    def sample(self, rng: np.random.Generator) -> Array:
        """One draw of omega: (M,)."""
        normal = rng.standard_normal(self.design.shape[1])
        if not len(self.scores):
            return np.asarray(normal)
        if self.form == "gram":
            noise = np.sqrt(self.noise) * rng.standard_normal(len(self.scores))
            residual = self.scores - self.design @ normal - noise
            return np.asarray(normal + self.design.T @ solve(self._factor, residual))
        spread = solve_triangular(self._factor, normal, lower=True, trans="T")  # cov Sigma^-1
        return np.asarray(self.mean() + np.sqrt(self.noise) * spread)
