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
=========================================  =============================  ==========

This is the Gaussian process with explicit basis functions of Rasmussen and Williams (Section
2.7). The coefficient of the advice starts at 1, give or take 1: where the others are no guide,
a few scores of the agent's own take it towards 0 (a mean of many unrelated functions is nearly
flat to begin with, so that it cannot mislead by much). The constant is there because a few
scores do not tell the mean of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from flwr_fbo.core.gp import GaussianProcess, Path
from flwr_fbo.core.kernels import squared_distance
from flwr_fbo.core.space import Array, Indices

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
        columns = [np.ones(len(self.process.x))]
        if self.advice is not None:
            columns.append(self.advice.value(self.process.x, self.places))
        return np.stack(columns, axis=1)  # H, (t, J)

    @cached_property
    def _solved(self) -> Array:
        return self.process.solve(self._at_data)  # (K + noise I)^-1 H, (t, J)

    @cached_property
    def _beta(self) -> tuple[Array, Array]:
        """beta_hat (J,) and C (J, J)."""
        count = self._at_data.shape[1]
        prior, spread = np.array(PRIOR_MEAN[:count]), np.array(PRIOR_SPREAD[:count])
        if not len(self.process.y):
            return prior, np.diag(spread**2)
        precision = np.diag(spread**-2) + self._at_data.T @ self._solved
        factor = cho_factor(precision)
        right = prior / spread**2 + self._solved.T @ self.process.y
        return cho_solve(factor, right), cho_solve(factor, np.eye(count))

    @property
    def coefficients(self) -> Array:
        """beta_hat: of the constant and, where there is advice, of the advice: (J,)."""
        return self._beta[0]

    @cached_property
    def _weights(self) -> Array:
        """(K + noise I)^-1 (y - H beta_hat): (t,)."""
        return self.process.solve(self.process.y - self._at_data @ self._beta[0])

    @cached_property
    def _inverse(self) -> Array:
        """(K + noise I)^-1: it is applied to a thousand rows at a time, over and over."""
        return self.process.solve(np.eye(len(self.process.y)))  # (t, t)

    def posterior(
        self, x: Array, places: Indices | None = None, roughly: bool = False
    ) -> tuple[Array, Array]:
        """Mean and variance of f at the rows of x (n,) and (n,); roughly is to about 1e-4."""
        columns = [np.ones(len(x))]
        if self.advice is not None:
            told = self.advice.scan if roughly else self.advice.value
            columns.append(told(x, places))
        basis = np.stack(columns, axis=1)
        return self._moments(basis, self.process.kernel(x, self.process.x))[:2]

    def _moments(self, basis: Array, cross: Array) -> tuple[Array, Array, Array, Array]:
        """Mean and variance (n,), and r (n, J) and k (K + noise I)^-1 (n, t) for gradients."""
        kernel, (beta, covariance) = self.process.kernel, self._beta
        solved = cross @ self._inverse  # (n, t); with t = 0 all sums over it vanish
        left = basis - cross @ self._solved  # r, (n, J)
        mean = basis @ beta + cross @ self._weights
        variance = kernel.variance - (solved * cross).sum(axis=1)
        variance += ((left @ covariance) * left).sum(axis=1)
        return mean, np.maximum(variance, 1e-12), left, solved

    def posterior_and_gradient(
        self, x: Array, places: Indices | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Mean and variance (n,), and the gradients of both (n, E)."""
        beta, covariance = self._beta
        columns, slopes = [np.ones(len(x))], [np.zeros_like(x)]
        if self.advice is not None:
            told, slope = self.advice.value_and_gradient(x, places)
            columns, slopes = [*columns, told], [*slopes, slope]
        steep = np.stack(slopes, axis=1)  # d h / d x, (n, J, E)
        cross, turn = self._cross(x)  # (n, t), (n, t, E)
        mean, variance, left, solved = self._moments(np.stack(columns, axis=1), cross)
        rise = np.einsum("nje,j->ne", steep, beta) + np.einsum("nte,t->ne", turn, self._weights)
        bend = steep - np.einsum("nte,tj->nje", turn, self._solved)  # d r / d x
        spread = -2.0 * np.einsum("nte,nt->ne", turn, solved)
        spread += 2.0 * np.einsum("nje,nj->ne", bend, left @ covariance)
        return mean, variance, rise, spread

    def _cross(self, x: Array) -> tuple[Array, Array]:
        """Covariances with the data (n, t) and their gradients in x (n, t, E)."""
        kernel, data = self.process.kernel, self.process.x
        scales = np.broadcast_to(np.asarray(kernel.lengthscales) ** 2, x.shape[1])
        correlation, slope = kernel.profile(squared_distance(x, data, kernel.lengthscales))
        away = (x[:, None, :] - data[None, :, :]) / scales  # (n, t, E)
        turn = 2.0 * kernel.variance * slope[:, :, None] * away
        return kernel.variance * correlation, turn

    def sample_path(self, rng: np.random.Generator, beta: float = 1.0) -> TrendedPath:
        """A function from the posterior, its spread times ``beta``: coefficients, then g."""
        mean, covariance = self._beta
        root = np.linalg.cholesky(covariance)
        drawn = mean + beta * (root @ rng.standard_normal(len(mean)))
        rest = self.process.y - self._at_data @ drawn if len(self.process.y) else self.process.y
        known = GaussianProcess(self.process.kernel, self.process.noise, self.process.x, rest)
        return TrendedPath(known.sample_path(rng, beta), drawn, self.advice)


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

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """See :meth:`Path.value_and_gradient`."""
        value, gradient = self.rest.value_and_gradient(x)
        value = value + self.coefficients[0]
        if self.advice is None:
            return value, gradient
        told, slope = self.advice.value_and_gradient(x, regions)
        weight = self.coefficients[1]
        return value + weight * told, gradient + weight * slope
