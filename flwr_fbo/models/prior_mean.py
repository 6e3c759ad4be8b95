r"""An agent's own model with what others know as its prior mean.

The papers' agents follow either their own model or the others' function, by the toss of a coin
(Algorithm 2, lines 5-8). Here one model holds both: the released function is the prior mean of
the agent's own process, times a coefficient that its own scores correct.

Notation

=========================================  =============================  ==========
symbol                                     here                           shape
=========================================  =============================  ==========
``phi(x)' omega`` of a release             ``advice(x)``                  (n,)
``h(x) = (1, phi(x)' omega)``              ``columns``                    (n, J)
``beta ~ N(b, B)``                         ``PRIOR_MEAN, PRIOR_SPREAD``   (J,)
``f(x) = h(x)' beta + g(x)``               the objective, standardised
``g ~ GP(0, k)``                           ``trend.residual``
``beta_hat, C`` (posterior of ``beta``)    ``mean``, ``covariance``       (J,), (J, J)
``k(x, X) + h(x)' B H'``                   ``cross``                      (n, t)
``R``, the inverse root of                 ``_root``                      (t, t)
``K + H B H' + noise I``, ``R'R``
``w = R'R (y - H b)``                      ``_weights``                   (t,)
=========================================  =============================  ==========

This is the Gaussian process with explicit basis functions of Rasmussen and Williams (Section
2.7), solved as the one large process that it is, with the kernel k + h' B h. The coefficient of
the advice starts at 1, give or take 1: where the others are no guide, a few scores of the agent's
own take it towards 0 (a mean of many unrelated functions is nearly flat to begin with, so that it
cannot mislead by much). The constant is there because a few scores do not tell the mean of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.models.gp import GaussianProcess, Path
from flwr_fbo.models.kernels import blocks, scaled_distance, scaled_distance_single
from flwr_fbo.models.linalg import inverse_root

#: From derivatives by mean and by variance, (n,) each, to a gradient (n, E).
Pull: TypeAlias = Callable[[Array, Array], Array]

#: Prior mean and spread of the coefficients of 1 and of the advice.
PRIOR_MEAN = (0.0, 1.0)
PRIOR_SPREAD = (0.5, 1.0)


@dataclass(frozen=True, eq=False)
class TrendedProcess:
    """The posterior of f = h' beta + g, given the process of g at the agent's points.

    ``process`` holds the points and scores; ``places`` (t,) are the sub-regions of its points,
    which advice with one function a sub-region needs.
    """

    process: GaussianProcess
    advice: Path | None = None
    places: Indices | None = None

    @cached_property
    def _at_data(self) -> Array:
        if self.advice is None:
            return np.ones((len(self.process.x), 1))
        waves = self.advice.features(self.process.x)  # remembered, unlike those of other points
        functions = self.advice.functions(self.places)
        if functions.ndim == 1:
            return _with_constant(waves @ functions)
        return _with_constant(np.einsum("tm,tm->t", waves, functions))  # H, (t, J)

    def _basis(self, x: Array, places: Indices | None, roughly: bool = False) -> Array:
        """h at the rows of x: (n, J)."""
        if self.advice is None:
            return np.ones((len(x), 1))
        told = self.advice.scan if roughly else self.advice.value
        return _with_constant(told(x, places))

    @cached_property
    def _prior(self) -> tuple[Array, Array]:
        """b (J,), and the diagonal of B (J,)."""
        count = 1 if self.advice is None else 2
        return np.array(PRIOR_MEAN[:count]), np.array(PRIOR_SPREAD[:count]) ** 2

    @cached_property
    def _lifted(self) -> Array:
        return self._prior[1][:, None] * self._at_data.T  # B H', (J, t)

    @cached_property
    def _root(self) -> Array:
        return inverse_root(self.process.covariance + self._at_data @ self._lifted)

    @cached_property
    def _half_weights(self) -> Array:
        return np.asarray(self._root @ (self.process.y - self._at_data @ self._prior[0]))  # (t,)

    @cached_property
    def _weights(self) -> Array:
        return np.asarray(self._half_weights @ self._root)  # w, (t,)

    @cached_property
    def _beta(self) -> tuple[Array, Array]:
        """beta_hat = b + B H' w, (J,), and C = B - B H' R'R H B, (J, J)."""
        mean, spread = self._prior
        shrunk = self._root @ self._lifted.T  # (t, J)
        return mean + self._lifted @ self._weights, np.diag(spread) - shrunk.T @ shrunk

    @property
    def coefficients(self) -> Array:
        """beta_hat: of the constant and, where there is advice, of the advice: (J,)."""
        return self._beta[0]

    @property
    def fitted(self) -> Array:
        """The mean at the agent's own points, y - noise w: (t,)."""
        return np.asarray(self.process.y - self.process.noise * self._weights)

    @cached_property
    def _scaled(self) -> tuple[Array, Array]:
        """The points in length scales (t, E), and their squared lengths (t,)."""
        scaled = self.process.x / self.process.kernel.lengthscales
        return scaled, np.einsum("te,te->t", scaled, scaled)

    def posterior(
        self, x: Array, places: Indices | None = None, roughly: bool = False
    ) -> tuple[Array, Array]:
        """Mean and variance of f at the rows of x (n,) and (n,); roughly is to about 1e-3."""
        kernel = self.process.kernel
        basis, scaled = self._basis(x, places, roughly), x / kernel.lengthscales
        if roughly and self._single_will_do:
            squared = scaled_distance_single(scaled, *self._scaled)
            return self._moments(basis.astype(np.float32), kernel.correlation(squared))[:2]
        parts = [
            self._moments(
                basis[rows], kernel.correlation(scaled_distance(scaled[rows], *self._scaled))
            )[:2]
            for rows in blocks(len(x), len(self.process.y))
        ]
        mean, variance = zip(*parts, strict=True)
        return np.concatenate(mean), np.concatenate(variance)

    @cached_property
    def _single_will_do(self) -> bool:
        """Whether single precision takes less from moments than the noise, usually.

        A product of single precision loses 2^-24 of the largest numbers that it adds, and R, of
        size noise^-1/2, multiplies that. R (y - H b) has entries of about 1, or larger ones where
        the scores are not as the process has them.
        """
        kernel, lengths, half = self.process.kernel, self._scaled[1], self._half_weights
        lost = kernel.variance * 2.0**-22 * (1.0 + float(lengths.max(initial=0.0)))
        lost *= math.sqrt(max(kernel.variance, float(half @ half) / max(1, len(half))))
        return bool(lost < self.process.noise**1.5)

    def _moments(self, basis: Array, correlation: Array) -> tuple[Array, Array, Array]:
        """Mean and variance (n,), and cross R' (n, t), in the precision of what is given."""
        kind, (mean, spread) = correlation.dtype, self._prior
        cross = correlation * kind.type(self.process.kernel.variance)
        cross += basis @ self._lifted.astype(kind, copy=False)
        half = cross @ self._root.astype(kind, copy=False).T  # (n, t); with t = 0 sums vanish
        found = basis @ mean + half @ self._half_weights.astype(kind, copy=False)
        variance = self.process.kernel.variance + (basis * basis) @ spread
        variance -= np.einsum("nt,nt->n", half, half)
        return found, np.maximum(variance, 1e-12), half

    def posterior_and_pull(
        self, x: Array, places: Indices | None = None, roughly: bool = False
    ) -> tuple[Array, Array, Pull]:
        """Mean and variance (n,), and what gives the gradient of any function of the two.

        The pull takes the function's derivatives by mean and by variance, (n,) and (n,), to its
        gradient in x (n, E). Roughly is with the advice in single precision, to climb by.
        """
        steep = None
        if self.advice is None:
            basis = np.ones((len(x), 1))
        else:
            told, steep = self.advice.value_and_gradient(x, places, roughly)
            basis = _with_constant(told)
        kernel = self.process.kernel
        scaled = x / kernel.lengthscales
        minus_twice, lengths, points = self._columns
        squared = scaled @ minus_twice
        squared += lengths
        squared += np.einsum("ne,ne->n", scaled, scaled)[:, None]
        correlation, slope = kernel.profile(np.maximum(squared, 0.0, out=squared))
        mean, variance, half = self._moments(basis, correlation)

        def pull(by_mean: Array, by_variance: Array) -> Array:
            twice = 2.0 * by_variance
            by_cross = (half * -twice[:, None]) @ self._root
            by_cross += by_mean[:, None] * self._weights  # (n, t)
            pulled = (slope * by_cross) @ points  # (n, E + 1)
            total = pulled[:, -1:] * scaled
            total -= pulled[:, :-1]
            total *= 2.0 * kernel.variance / kernel.lengthscales
            if steep is None:
                return np.asarray(total)
            prior, spread = self._prior
            by_told = by_mean * prior[1] + twice * spread[1] * basis[:, 1]
            by_told += by_cross @ self._lifted[1]
            total += by_told[:, None] * steep
            return np.asarray(total)

        return mean, variance, pull

    @cached_property
    def _columns(self) -> tuple[Array, Array, Array]:
        """-2 times the scaled points (E, t), their squared lengths, and (points, 1): (t, E + 1)."""
        scaled, lengths = self._scaled
        with_ones = np.ones((len(scaled), scaled.shape[1] + 1))
        with_ones[:, :-1] = scaled
        return -2.0 * scaled.T, lengths, with_ones

    def sample_path(self, rng: np.random.Generator, beta: float = 1.0) -> TrendedPath:
        """A function from the posterior, its spread times ``beta``: coefficients, then g."""
        mean, covariance = self._beta
        root = np.linalg.cholesky(covariance)
        drawn = mean + beta * (root @ rng.standard_normal(len(mean)))
        rest = self.process.with_scores(self.process.y - self._at_data @ drawn)
        return TrendedPath(rest.sample_path(rng, beta), drawn, self.advice)


def _with_constant(told: Array) -> Array:
    basis = np.ones((len(told), 2))
    basis[:, 1] = told
    return basis


@dataclass(frozen=True, eq=False)
class TrendedPath:
    """A function drawn from a :class:`TrendedProcess`, which can be searched as a Path can."""

    rest: Path
    coefficients: Array
    advice: Path | None

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """See :meth:`Path.scan`."""
        value: Array = self.rest.scan(x) + self.coefficients[0]
        if self.advice is None:
            return value
        return np.asarray(value + self.coefficients[1] * self.advice.scan(x, regions))

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """See :meth:`Path.value`."""
        return self.value_and_gradient(x, regions)[0]

    def value_and_gradient(
        self, x: Array, regions: Indices | None = None, roughly: bool = False
    ) -> tuple[Array, Array]:
        """See :meth:`Path.value_and_gradient`."""
        value, gradient = self.rest.value_and_gradient(x, roughly=roughly)
        value = value + self.coefficients[0]
        if self.advice is None:
            return value, gradient
        told, slope = self.advice.value_and_gradient(x, regions, roughly)
        weight = self.coefficients[1]
        return value + weight * told, gradient + weight * slope

    def to_climb(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """:meth:`value_and_gradient`, roughly."""
        return self.value_and_gradient(x, regions, roughly=True)
