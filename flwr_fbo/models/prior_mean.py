r"""An agent's own Gaussian process with the federation's shared function as its prior mean.

The papers' agents follow either their own model or the shared function, by the toss of a coin
(Algorithm 2, lines 5-8). Here one model holds both. The shared function, times a coefficient
that the agent's own scores correct, is the prior mean of the agent's own process.

Notation

=========================================  =============================  ==========
symbol                                     here                           shape
=========================================  =============================  ==========
``phi(x)' omega`` of a release             ``shared(x)``                  (n,)
``h(x) = (1, phi(x)' omega)``              ``basis``                      (n, J)
``beta ~ N(b, B)``                         ``PRIOR_MEAN, PRIOR_SPREAD``   (J,)
``f(x) = h(x)' beta + g(x)``               the objective, standardised
``g ~ GP(0, k)``                           ``process``
``beta_hat, C`` (posterior of ``beta``)    ``mean``, ``covariance``       (J,), (J, J)
``H``, ``h`` at the agent's points         ``_basis_at_data``             (t, J)
``B H'``                                   ``_prior_cross``               (J, t)
``k(x, X) + h(x)' B H'``                   ``cross``                      (n, t)
``R``, the inverse root of                 ``_root``                      (t, t)
``K + H B H' + noise I``, ``R'R``
``w = R'R (y - H b)``                      ``_weights``                   (t,)
=========================================  =============================  ==========

This is the Gaussian process with explicit basis functions of Rasmussen and Williams (Section
2.7), solved as one process with the kernel k + h' B h. The coefficient of the shared function
has the prior 1 +- 1: where other agents' objectives differ, a few scores of the agent's own take
the coefficient towards 0. A mean of many unrelated functions is nearly flat and misleads little.
The constant in h is there because a few scores do not determine the mean of all scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.models.gp import GaussianProcess, Path
from flwr_fbo.models.kernels import (
    blocks,
    of_matrices,
    scaled_distance,
    scaled_distance_float32,
    squared_lengths,
)
from flwr_fbo.models.linalg import inverse_root
from flwr_fbo.models.surface import Surface

#: The chain rule: from derivatives by mean (n,) and by variance (n,) to a gradient in x (n, E).
ChainRule: TypeAlias = Callable[[Array, Array], Array]

#: Prior mean and spread of the coefficients of the constant and of the shared function.
PRIOR_MEAN = (0.0, 1.0)
PRIOR_SPREAD = (0.5, 1.0)
#: Variances are at least this, so that rounding makes none of them zero or negative.
LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, eq=False)
class PriorMeanProcess:
    """The posterior of f = h' beta + g, where ``process`` holds g, the points and the scores.

    ``regions`` (t,) are the numbers of the sub-regions of the process's points. They are needed
    where ``shared`` has one function per sub-region.

    Where ``process`` stands for A processes (:class:`GaussianProcess`), all arrays here have one
    more axis in front, those of inputs x (A, n, E) and ``regions`` (A, t) included.
    """

    process: GaussianProcess
    shared: Path | None = None
    regions: Indices | None = None

    @cached_property
    def _prior(self) -> tuple[Array, Array]:
        """Return b (J,), and the diagonal of B (J,)."""
        count = 1 if self.shared is None else 2
        return np.array(PRIOR_MEAN[:count]), np.array(PRIOR_SPREAD[:count]) ** 2

    @cached_property
    def _basis_at_data(self) -> Array:
        """Return H, the basis h at the agent's own points: (t, J)."""
        if self.shared is None:
            return np.ones((*self.process.y.shape, 1))
        # Not shared.value(): the features of the agent's own points are cached.
        waves = self.shared.features(self.process.x)
        weights = self.shared.functions(self.regions)
        if weights.ndim == 1:
            return _with_constant(waves @ weights)
        return _with_constant(np.einsum("...tm,...tm->...t", waves, weights))

    @cached_property
    def _prior_cross(self) -> Array:
        """Return B H': (J, t)."""
        transposed = self._basis_at_data.swapaxes(-1, -2)
        return np.ascontiguousarray(self._prior[1][:, None] * transposed)

    @cached_property
    def _root(self) -> Array:
        """Return R, the inverse root of K + H B H' + noise I: (t, t)."""
        return inverse_root(self.process.covariance + self._basis_at_data @ self._prior_cross)

    @cached_property
    def _half_weights(self) -> Array:
        """Return R (y - H b): (t,)."""
        rest = self.process.y - self._basis_at_data @ self._prior[0]
        return np.asarray((self._root @ rest[..., None])[..., 0])

    @cached_property
    def _weights(self) -> Array:
        """Return w = R'R (y - H b): (t,)."""
        return np.asarray((self._half_weights[..., None, :] @ self._root)[..., 0, :])

    @cached_property
    def _beta(self) -> tuple[Array, Array]:
        """Return beta_hat (J,) = b + B H' w, and C (J, J) = B - B H' R'R H B."""
        mean, spread = self._prior
        shrunk = self._root @ self._prior_cross.T  # (t, J)
        return mean + self._prior_cross @ self._weights, np.diag(spread) - shrunk.T @ shrunk

    def with_fantasies(self, x: Array, regions: Indices | None = None) -> PriorMeanProcess:
        """Return the posterior if the points x (n, E) had scored what is expected of them.

        The points are being evaluated: their scores are not known yet. An imagined score that
        equals the mean leaves the mean where it is and takes the variance away, so that a search
        for an improvement looks elsewhere (the "kriging believer", Ginsbourger et al. 2010).
        """
        if not len(x):
            return self
        y = np.concatenate([self.process.y, self.posterior(x, regions)[0]])
        places = self.regions
        if places is not None and regions is not None:
            places = np.concatenate([places, regions])
        process = self.process.with_data(np.vstack([self.process.x, x]), y)
        return PriorMeanProcess(process, self.shared, places)

    @property
    def coefficients(self) -> Array:
        """Return beta_hat: the coefficients of the constant and of any shared function: (J,)."""
        return self._beta[0]

    @property
    def fitted(self) -> Array:
        """Return the posterior mean at the agent's own points, y - noise w: (t,)."""
        return np.asarray(self.process.y - self.process.noise * self._weights)

    @cached_property
    def _scaled(self) -> tuple[Array, Array]:
        """Return the points over the length scales (t, E), and their squared lengths (t,)."""
        scaled = self.process.x / self.process.kernel.lengthscales
        return scaled, squared_lengths(scaled)

    def of(self, agents: Indices | slice) -> PriorMeanProcess:
        """Return the processes of some agents, of many, with what is computed of them already."""
        p, kernel = self.process, self.process.kernel
        scales, variance = np.asarray(kernel.lengthscales), np.asarray(kernel.variance)
        chosen = replace(kernel, lengthscales=scales[agents], variance=variance[agents])
        process = GaussianProcess(chosen, np.asarray(p.noise)[agents], p.x[agents], p.y[agents])
        places = None if self.regions is None else self.regions[agents]
        some = PriorMeanProcess(process, self.shared, places)
        for name in ("_prior_cross", "_root", "_half_weights", "_weights"):
            some.__dict__[name] = getattr(self, name)[agents]
        for name in ("_scaled", "_columns"):
            some.__dict__[name] = tuple(part[agents] for part in getattr(self, name))
        return some

    def posterior(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return mean (n,) and variance (n,) of f at the rows of x (n, E)."""
        shared = None if self.shared is None else self.shared.value(x, regions)
        return self._posterior_by_blocks(x, _basis(x, shared))

    def scan_posterior(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return :meth:`posterior` for many rows of x, to about 1e-3."""
        suffices = self.single_precision_suffices
        if suffices.any() and not suffices.all():  # of several processes
            return self._scan_in_two_parts(x, regions, suffices)
        shared = None if self.shared is None else self.shared.scan(x, regions)
        basis = _basis(x, shared)
        if not suffices.all():
            return self._posterior_by_blocks(x, basis)
        kernel = self.process.kernel
        squared = scaled_distance_float32(x / kernel.lengthscales, *self._scaled)
        return self._moments(basis.astype(np.float32), kernel.correlation(squared))[:2]

    def _scan_in_two_parts(
        self, x: Array, regions: Indices | None, suffices: NDArray[np.bool_]
    ) -> tuple[Array, Array]:
        """Return :meth:`scan_posterior` where single precision is enough for some processes."""
        mean, variance = np.empty(x.shape[:-1]), np.empty(x.shape[:-1])
        for agents in (np.flatnonzero(suffices), np.flatnonzero(~suffices)):
            places = None if regions is None else regions[agents]
            mean[agents], variance[agents] = self.of(agents).scan_posterior(x[agents], places)
        return mean, variance

    def _posterior_by_blocks(self, x: Array, basis: Array) -> tuple[Array, Array]:
        kernel = self.process.kernel
        scaled = x / kernel.lengthscales
        parts = [
            self._moments(
                basis[..., rows, :],
                kernel.correlation(scaled_distance(scaled[..., rows, :], *self._scaled)),
            )[:2]
            for rows in blocks(x.shape[-2], self.process.y.shape[-1])
        ]
        mean, variance = zip(*parts, strict=True)
        return np.concatenate(mean, axis=-1), np.concatenate(variance, axis=-1)

    @cached_property
    def single_precision_suffices(self) -> NDArray[np.bool_]:
        """Return whether single precision usually changes the moments by less than the noise.

        The answer is one, of a single process, or one of each of A processes: (A,).

        A product in single precision loses 2^-24 of the largest numbers that it adds, and R, of
        size noise^-1/2, multiplies the loss. R (y - H b) has entries of about 1, or larger ones
        where the scores are unlikely under the process.
        """
        variance, noise = np.ravel(self.process.kernel.variance), np.ravel(self.process.noise)
        lengths, half = self._scaled[1], self._half_weights
        lost = variance * 2.0**-22 * (1.0 + lengths.max(axis=-1, initial=0.0))
        size = np.einsum("...t,...t->...", half, half) / max(1, half.shape[-1])
        lost = lost * np.sqrt(np.maximum(variance, size))
        return np.asarray((lost < noise**1.5).reshape(half.shape[:-1]))

    def _moments(self, basis: Array, correlation: Array) -> tuple[Array, Array, Array]:
        """Return mean (n,), variance (n,) and cross R' (n, t), in the correlation's precision."""
        kind, (mean, spread) = correlation.dtype, self._prior
        cross = correlation * np.asarray(of_matrices(self.process.kernel.variance), kind)
        cross += basis @ self._prior_cross.astype(kind, copy=False)
        # With no observations (t = 0) the sums over t below vanish, and the prior is left.
        half = cross @ self._root.astype(kind, copy=False).swapaxes(-1, -2)  # (n, t)
        weights = self._half_weights.astype(kind, copy=False)
        posterior_mean = basis @ mean + (half @ weights[..., None])[..., 0]
        variance = self.process.kernel.variance + (basis * basis) @ spread
        variance -= np.einsum("...nt,...nt->...n", half, half)
        return posterior_mean, np.maximum(variance, LEAST_VARIANCE), half

    def posterior_and_chain_rule(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array, ChainRule]:
        """Return mean (n,), variance (n,) and the chain rule for functions of the two."""
        if self.shared is None:
            return self._differentiable(x, None)
        return self._differentiable(x, self.shared.value_and_gradient(x, regions))

    def posterior_and_chain_rule_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array, ChainRule]:
        """Return :meth:`posterior_and_chain_rule`, to a relative error of about 1e-6."""
        if self.shared is None:
            return self._differentiable(x, None)
        return self._differentiable(x, self.shared.value_and_gradient_for_climbing(x, regions))

    def _differentiable(
        self, x: Array, shared: tuple[Array, Array] | None
    ) -> tuple[Array, Array, ChainRule]:
        """Return moments and chain rule, given the shared function (n,) and gradient (n, E)."""
        kernel, points = self.process.kernel, self._columns[2]
        basis = _basis(x, None if shared is None else shared[0])
        scaled = x / kernel.lengthscales
        correlation, slope = kernel.profile(self._scaled_distance(scaled))
        mean, variance, half = self._moments(basis, correlation)

        def chain_rule(by_mean: Array, by_variance: Array) -> Array:
            # Derivatives by the covariances: d mean = w, d variance = -2 R'R cross.
            twice = 2.0 * by_variance
            by_cross = (half * -twice[..., None]) @ self._root
            by_cross += by_mean[..., None] * self._weights[..., None, :]  # (n, t)
            # From covariances to x: d r^2 / dx = 2 (x - point) / l^2.
            pulled = (slope * by_cross) @ points  # (n, E + 1)
            total = pulled[..., -1:] * scaled
            total -= pulled[..., :-1]
            total *= 2.0 * of_matrices(kernel.variance) / kernel.lengthscales
            if shared is None:
                return np.asarray(total)
            # The shared function enters through the basis h, in the prior and in the covariances.
            prior, spread = self._prior
            by_shared = by_mean * prior[1] + twice * spread[1] * basis[..., 1]
            by_shared += (by_cross @ self._prior_cross[..., 1, :, None])[..., 0]
            total += by_shared[..., None] * shared[1]
            return np.asarray(total)

        return mean, variance, chain_rule

    def _scaled_distance(self, scaled: Array) -> Array:
        """Return r^2 between scaled rows (n, E) and the points (n, t), from cached columns."""
        minus_twice, lengths, _ = self._columns
        squared = scaled @ minus_twice  # r^2 = |p|^2 - 2 p'q + |q|^2
        squared += lengths[..., None, :]
        squared += squared_lengths(scaled)[..., None]
        return np.maximum(squared, 0.0, out=squared)

    @cached_property
    def _columns(self) -> tuple[Array, Array, Array]:
        """Return -2 points' (E, t), |points|^2 (t,) and (points, 1) (t, E + 1), all scaled."""
        scaled, lengths = self._scaled
        with_ones = np.ones((*scaled.shape[:-1], scaled.shape[-1] + 1))
        with_ones[..., :-1] = scaled
        minus_twice = np.ascontiguousarray(-2.0 * scaled.swapaxes(-1, -2))
        return minus_twice, lengths, with_ones

    def sample_path(self, rng: np.random.Generator, beta: float = 1.0) -> PriorMeanPath:
        """Draw a function from the posterior, with the spread multiplied by ``beta``."""
        mean, covariance = self._beta
        root = np.linalg.cholesky(covariance)
        # First the coefficients, then g given the scores that the coefficients leave unexplained.
        drawn = mean + beta * (root @ rng.standard_normal(len(mean)))
        rest = self.process.with_scores(self.process.y - self._basis_at_data @ drawn)
        return PriorMeanPath(rest.sample_path(rng, beta), drawn, self.shared)


def _basis(x: Array, shared: Array | None) -> Array:
    """Return h at the rows of x, given their values of the shared function, if any: (n, J)."""
    return np.ones((*x.shape[:-1], 1)) if shared is None else _with_constant(shared)


def _with_constant(shared: Array) -> Array:
    """Return h = (1, shared function): (n, 2)."""
    basis = np.ones((*shared.shape, 2))
    basis[..., 1] = shared
    return basis


@dataclass(frozen=True, eq=False)
class PriorMeanPath(Surface):
    """A function drawn from a :class:`PriorMeanProcess`: h' beta + g."""

    rest: Path
    coefficients: Array
    shared: Path | None

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the function at the rows of x (n, E), to about 1e-3: (n,)."""
        value: Array = self.rest.scan(x) + self.coefficients[0]
        if self.shared is None:
            return value
        return np.asarray(value + self.coefficients[1] * self.shared.scan(x, regions))

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the function at the rows of x (n, E): (n,)."""
        return self.value_and_gradient(x, regions)[0]

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the function (n,) and its gradient (n, E) at the rows of x (n, E)."""
        rest = self.rest.value_and_gradient(x)
        if self.shared is None:
            return self._sum(rest, None)
        return self._sum(rest, self.shared.value_and_gradient(x, regions))

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return :meth:`value_and_gradient` with both parts to about 1e-6."""
        rest = self.rest.value_and_gradient_for_climbing(x)
        if self.shared is None:
            return self._sum(rest, None)
        return self._sum(rest, self.shared.value_and_gradient_for_climbing(x, regions))

    def _sum(
        self, rest: tuple[Array, Array], shared: tuple[Array, Array] | None
    ) -> tuple[Array, Array]:
        value, gradient = rest[0] + self.coefficients[0], rest[1]
        if shared is None:
            return value, gradient
        weight = self.coefficients[1]
        return value + weight * shared[0], gradient + weight * shared[1]
