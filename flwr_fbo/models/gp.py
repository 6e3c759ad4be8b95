r"""Exact Gaussian process regression: the posterior, and functions drawn from it.

Notation

==========================  ==============================  ==========
paper                       here                            shape
==========================  ==============================  ==========
``D_t``                     ``gp.x``, ``gp.y``              (t, E), (t,)
``k``                       ``gp.kernel``
``sigma^2`` or ``lambda``   ``gp.noise``                    scalar
``K_t + sigma^2 I``         ``gp.covariance``               (t, t)
``mu_t(x)``                 ``gp.posterior(x)[0]``          (n,)
``sigma_t^2(x)``            ``gp.posterior(x)[1]``          (n,)
``f_t``                     ``gp.sample_path(rng, beta)``   a :class:`Path`
==========================  ==============================  ==========

Inputs are embedded coordinates (:meth:`flwr_fbo.core.space.Space.embed`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.models.features import RandomFeatures, WeightPosterior
from flwr_fbo.models.kernels import Kernel, blocks, scaled_distance, scaled_distance_float32
from flwr_fbo.models.linalg import add_to_diagonal, append_row, factorise, solve
from flwr_fbo.models.surface import Surface

#: Number of features that carry the prior part of a path. The data part is exact, so this number
#: only bounds how closely the prior is approximated far from the data.
PATH_FEATURES = 256
#: The Cholesky factor is computed anew at multiples of this many observations, and extended row
#: by row in between.
BLOCK = 8
#: The error from single precision that a scan may have.
SCAN_ROUNDING = 1e-3
#: From this many observations on, paths are drawn in weight space: no cubic cost in t.
WEIGHT_SPACE_FROM = 1000


@dataclass(frozen=True, eq=False)
class Path(Surface):
    """One function that can be evaluated anywhere: phi(x)'w + k(x, centres) c.

    ``weights`` w is (M,) for one function, or (P, M) for one function per sub-region. The second
    term is absent where ``kernel``, ``centres`` (t, E) and ``coefficients`` (t,) are None.
    """

    features: RandomFeatures
    weights: Array
    kernel: Kernel | None = None
    centres: Array | None = None
    coefficients: Array | None = None

    def functions(self, regions: Indices | None, kind: type = np.float64) -> Array:
        """Return the weights of all rows (M,), or those of each row's sub-region (n, M)."""
        weights: Array = self.weights.astype(kind, copy=False)
        if weights.ndim == 1:
            return weights
        if len(weights) == 1:
            return np.asarray(weights[0])
        if regions is None:
            raise ValueError(
                f"a path with {len(weights)} functions, one per sub-region, needs each row's "
                "sub-region, but got `regions=None`"
            )
        return np.asarray(weights[regions])

    @cached_property
    def _scaled(self) -> tuple[Array, Array]:
        """Return the centres over the length scales (t, E), and their squared lengths (t,)."""
        assert self.kernel is not None
        assert self.centres is not None
        scaled = self.centres / self.kernel.lengthscales
        return scaled, np.einsum("te,te->t", scaled, scaled)

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the function at the rows of x (n, E), to about 1e-3: (n,)."""
        value = self.features.scan(x, self.functions(regions, np.float32))
        if self.kernel is None or self.centres is None or self.coefficients is None:
            return value
        scaled, (centres, lengths) = x / self.kernel.lengthscales, self._scaled
        coefficients, variance = self.coefficients, self.kernel.variance
        # Large coefficients of both signs, or short length scales, amplify the rounding of single
        # precision. Then this part is computed in double precision.
        size = variance * float(np.sqrt(coefficients @ coefficients))
        if size * (1.0 + float(lengths.max())) * 2.0**-22 < SCAN_ROUNDING:
            correlation = self.kernel.correlation(scaled_distance_float32(scaled, centres, lengths))
            return np.asarray(value + variance * (correlation @ coefficients.astype(np.float32)))
        for rows in blocks(len(x), len(centres)):
            squared = scaled_distance(scaled[rows], centres, lengths)
            value[rows] += variance * (self.kernel.correlation(squared) @ coefficients)
        return value

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the function at the rows of x (n, E): (n,)."""
        value = self.features.value(x, self.functions(regions))
        if self.kernel is None or self.centres is None or self.coefficients is None:
            return value
        squared = scaled_distance(x / self.kernel.lengthscales, *self._scaled)
        weights = self.kernel.variance * self.coefficients
        return np.asarray(value + self.kernel.correlation(squared) @ weights)

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the function (n,) and its gradient (n, E) at the rows of x (n, E)."""
        return self._value_and_gradient(x, regions, single_precision=False)

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return :meth:`value_and_gradient` with the features in single precision."""
        return self._value_and_gradient(x, regions, single_precision=True)

    def _value_and_gradient(
        self, x: Array, regions: Indices | None, single_precision: bool
    ) -> tuple[Array, Array]:
        weights = self.functions(regions)
        value, gradient = self.features.value_and_gradient(x, weights, single_precision)
        if self.kernel is None or self.centres is None or self.coefficients is None:
            return value, gradient
        scaled, scales = x / self.kernel.lengthscales, self.kernel.lengthscales
        correlation, slope = self.kernel.profile(scaled_distance(scaled, *self._scaled))
        coefficients = self.kernel.variance * self.coefficients
        # d r^2 / dx = 2 (x - centre) / l^2, so the gradient is a difference of two sums over t.
        slope *= 2.0 * coefficients  # (n, t)
        pull = slope.sum(axis=1)[:, None] * scaled - slope @ self._scaled[0]
        return value + correlation @ coefficients, gradient + pull / scales


class GaussianProcess:
    """The posterior of equation (1), given observations that are added one at a time.

    A processes with equally many observations can be one object, whose arrays have one more axis
    in front: x (A, t, E), y (A, t), noise (A, 1), and the kernel likewise. Such an object has a
    covariance, and the factor and the functions drawn from one process belong to single processes.
    """

    def __init__(self, kernel: Kernel, noise: float | Array, x: Array, y: Array) -> None:
        if not np.all(np.asarray(noise) > 0):
            raise ValueError(f"`noise` must be > 0, but got {noise!r}")
        if x.ndim < 2 or y.shape != x.shape[:-1]:
            raise ValueError(f"`x` must be (t, E) and `y` (t,), but got {x.shape} and {y.shape}")
        self.kernel, self.noise = kernel, noise
        self.x, self.y = x, y

    @cached_property
    def covariance(self) -> Array:
        """Return the matrix K + noise I: (t, t)."""
        return self._covariance_from(np.zeros((0, 0)))

    def _covariance_from(self, known: Array) -> Array:
        """Return the covariances, given those of the first rows (of the same block) or of none.

        Whole blocks are computed at once and the rows of a block that has begun one by one, so
        that the result is a function of the rows alone, to the last bit.
        """
        x, count = self.x, self.x.shape[-2]
        square = np.zeros((*x.shape[:-2], count, count))
        done = known.shape[-1] or count // BLOCK * BLOCK
        if known.shape[-1]:
            square[..., :done, :done] = known
        elif done:
            first = x[..., :done, :]
            square[..., :done, :done] = add_to_diagonal(self.kernel(first, first), self.noise)
        for row in range(done, count):
            cross = self.kernel(x[..., row : row + 1, :], x[..., :row, :])[..., 0, :]  # (row,)
            square[..., row, :row] = square[..., :row, row] = cross
        last = np.einsum("...ii->...i", square)[..., done:]  # a view
        last += self.kernel.variance + self.noise
        return square

    @cached_property
    def _factor(self) -> Array:
        """Return the Cholesky factor of the covariance: (t, t)."""
        start = len(self.x) // BLOCK * BLOCK
        return self._factor_from(factorise(self.covariance[:start, :start]), start)

    def _factor_from(self, factor: Array, known: int) -> Array:
        """Return the factor of all rows from the factor of the first ``known`` rows."""
        square = self.covariance
        for row in range(known, len(self.x)):
            larger = append_row(factor, square[row, :row], square[row, row])
            factor = factorise(square[: row + 1, : row + 1]) if larger is None else larger
        return factor

    def solve(self, right: Array) -> Array:
        """Return (K + noise I)^-1 right, for right (t,) or (t, n)."""
        return solve(self._factor, right)

    def with_data(self, x: Array, y: Array) -> GaussianProcess:
        """Return the process given more rows of x, each added in O(t^2); all of y may be new.

        The factor is a function of the rows alone, to the last bit. A process built at once (by
        a restored agent) and a process that grew therefore draw identical samples.
        """
        larger = GaussianProcess(self.kernel, self.noise, x, y)
        known = len(self.y)
        if known // BLOCK == len(y) // BLOCK and np.array_equal(x[:known], self.x):
            # Fill the cached properties from what is already computed.
            if "covariance" in self.__dict__:
                larger.__dict__["covariance"] = larger._covariance_from(self.covariance)
            if "_factor" in self.__dict__:
                larger.__dict__["_factor"] = larger._factor_from(self._factor, known)
        return larger

    def with_scores(self, y: Array) -> GaussianProcess:
        """Return the process with other scores at the same rows, sharing the factor."""
        other = GaussianProcess(self.kernel, self.noise, self.x, y)
        other.__dict__["covariance"], other.__dict__["_factor"] = self.covariance, self._factor
        return other

    def posterior(self, x: Array) -> tuple[Array, Array]:
        """Return mean (n,) and variance (n,) of the function at the rows of x (n, E)."""
        if not len(self.y):
            return np.zeros(len(x)), np.full(len(x), self.kernel.variance)
        cross = self.kernel(x, self.x)  # (n, t)
        mean = cross @ self.solve(self.y)
        half = solve_triangular(self._factor, cross.T, lower=True)  # (t, n)
        variance = self.kernel.variance - (half * half).sum(axis=0)
        return mean, np.maximum(variance, 0.0)

    def information_gain(self) -> float:
        """Return half the log determinant of I + K / noise: the information in the data."""
        if not len(self.y):
            return 0.0
        return float(np.log(np.diag(self._factor)).sum() - 0.5 * len(self.y) * np.log(self.noise))

    def sample_path(
        self, rng: np.random.Generator, beta: float = 1.0, features: int = PATH_FEATURES
    ) -> Path:
        """Draw a function from GP(mu_t, beta^2 sigma_t^2), by pathwise conditioning.

        A draw phi'w from the prior is corrected at the data: mu_t + beta (phi'w - k (K + noise
        I)^-1 (Phi w + e)) has exactly the posterior's mean. Where the prior draw is exact, the
        covariance is exactly the posterior's too.
        """
        basis = RandomFeatures.draw(self.kernel, features, self.x.shape[1], rng)
        spread = np.sqrt(self.kernel.variance)
        if len(self.y) >= WEIGHT_SPACE_FROM:
            return self._weight_space_path(basis, rng, beta)
        weights = rng.standard_normal(features) * spread
        if not len(self.y):
            return Path(basis, beta * weights)
        noise = np.sqrt(self.noise) * rng.standard_normal(len(self.y))  # e
        prior = basis(self.x) @ weights + noise
        coefficients = self.solve(self.y - beta * prior)
        return Path(basis, beta * weights, self.kernel, self.x, coefficients)

    def _weight_space_path(
        self, basis: RandomFeatures, rng: np.random.Generator, beta: float
    ) -> Path:
        """Draw a path from the posterior of the features' weights, at a cost linear in t."""
        scale = np.sqrt(self.kernel.variance)
        posterior = WeightPosterior(scale * basis(self.x), self.y, float(self.noise))
        mean = posterior.mean()
        return Path(basis, scale * (mean + beta * (posterior.sample(rng) - mean)))
