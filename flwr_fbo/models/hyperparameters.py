r"""Kernel parameters by maximum a posteriori marginal likelihood.

Notation

===============================================  =======================  ==============
symbol                                           here                     shape
===============================================  =======================  ==============
``l_d``, one length scale per parameter          ``lengthscales``         (D,)
``sigma_0^2``, the signal variance               ``variance``             scalar
``lambda``, the noise variance                   ``noise``                scalar
``theta``, the logarithms of these               ``logarithms``           (D + 2,)
``theta`` in spreads from the prior's medians    ``z``                    (B, D + 2)
``(x_i - x_j)_d^2`` of all pairs i > j           ``pair_distances(...)``  (D, Q)
===============================================  =======================  ==============

B is the number of starts, n the number of observations, and Q = n (n - 1) / 2 the number of
their pairs: symmetric quantities are computed once. The embedded columns of a category share
one length scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import lapack

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Space
from flwr_fbo.models.kernels import Kernel, kernel_named

#: Log-normal priors, for scores of about unit spread on the unit cube: the median, and the spread
#: of the logarithm. Length scales grow with the square root of the dimension, as distances do.
LENGTHSCALE = (0.35, 1.2)
VARIANCE = (1.0, 0.7)
NOISE = (5e-3, 1.5)
LENGTHSCALE_BOUNDS = (5e-3, 20.0)
VARIANCE_BOUNDS = (0.05, 20.0)
NOISE_BOUNDS = (1e-6, 1.0)
#: A fit uses no more observations than this, so its cost has a ceiling.
MAX_OBSERVATIONS = 256
#: A new fit is due when the number of observations has grown by this factor.
REFIT_GROWTH = 1.2
#: From this many observations on, a fit starts at the result of the fit before and nowhere else.
#: About one fit in a hundred then misses a better optimum elsewhere.
WARM_START_FROM = 50
#: The optimiser stops where no parameter has a slope of more than 0.03 nats per spread of its
#: prior. The gain that is left is about the square, far too small to change a decision.
OPTIMISER_OPTIONS = {"gtol": 0.03, "maxiter": 50}
#: Added to the diagonal, relative to the variance, to keep matrices positive definite.
JITTER = 1e-10


@dataclass(frozen=True)
class Hyperparameters:
    """Length scales, signal variance and noise variance of an agent's model, ready to store."""

    lengthscales: tuple[float, ...]
    variance: float
    noise: float

    @property
    def logarithms(self) -> Array:
        """Return theta: (D + 2,)."""
        return np.log([*self.lengthscales, self.variance, self.noise])

    def kernel(self, name: str, space: Space) -> Kernel:
        """Return the kernel of a name over embedded coordinates, with these parameters."""
        scales = np.asarray(self.lengthscales)[parameter_of_column(space)]
        return kernel_named(name, scales, self.variance)


def parameter_of_column(space: Space) -> Indices:
    """Return the number of the parameter that each embedded column belongs to: (E,)."""
    return np.repeat(np.arange(space.dimension), space.embedding_widths)


def prior_medians(
    dimension: int, lengthscale: float | None = None, noise: float | None = None
) -> Hyperparameters:
    """Return the prior's medians, which an agent uses until the first fit."""
    scale = lengthscale or LENGTHSCALE[0] * math.sqrt(dimension)
    return Hyperparameters((scale,) * dimension, VARIANCE[0], noise or NOISE[0])


def count_at_last_fit(count: int, every: int) -> int:
    """Return how many of ``count`` observations the last due fit uses; 0 before the first fit.

    Fits are ``every`` observations apart at first, and later a fifth of the count: 5, 10, ..., 30,
    40, 50, 60, 75, 90. The result depends on the count alone, so a restored agent agrees.
    """
    due, upcoming = 0, every
    while 0 < upcoming <= count:
        due = upcoming
        upcoming = every * max(due // every + 1, math.ceil(REFIT_GROWTH * due / every))
    return due


def fit(
    kernel: str,
    space: Space,
    x: Array,
    y: Array,
    rng: np.random.Generator,
    lengthscale: float | None = None,
    noise: float | None = None,
    before: Hyperparameters | None = None,
    restarts: int = 4,
) -> Hyperparameters:
    """Return the most probable hyperparameters given embedded inputs x (n, E) and scores y (n,).

    A given ``lengthscale`` or ``noise`` is kept. There are two ascents: from the prior's median,
    and from the most probable of ``restarts - 1`` draws around the median. With many observations
    there is one ascent, from the fit ``before``.
    """
    from scipy.optimize import minimize  # takes a while to import, and much of the app does not fit

    if len(y) < WARM_START_FROM:
        before = None
    x, y = _subset(x, y, rng)
    squared = pair_distances(x, parameter_of_column(space))
    centre, spread, bounds = _prior(space.dimension, lengthscale, noise)
    posterior = _LogPosterior(kernel_named(kernel), squared, y, centre, spread)
    if before is None:
        starts = rng.standard_normal((restarts, len(centre)))
        starts[0] = 0.0
    else:
        starts = (before.logarithms[None] - centre) / spread
    starts = np.clip(starts, *bounds)
    if len(starts) > 2:  # a full ascent only from the median and from the best draw
        starts = starts[[0, 1 + int(np.argmin(posterior.losses(starts[1:])[0]))]]
    settings = {"jac": True, "method": "L-BFGS-B", "bounds": bounds.T, "options": OPTIMISER_OPTIONS}
    fits = [minimize(posterior.loss, z, **settings) for z in starts]
    best = min(fits, key=lambda result: result.fun).x
    *lengthscales, variance, fitted_noise = np.exp(centre + spread * best).tolist()
    return Hyperparameters(tuple(lengthscales), variance, fitted_noise)


@dataclass(frozen=True)
class _LogPosterior:
    """The function that a fit maximises: log likelihood plus log prior, in coordinates z."""

    kernel: Kernel
    squared: Array
    y: Array
    centre: Array
    spread: Array

    def losses(self, z: Array) -> tuple[Array, Array]:
        """Return minus the log posterior (B,) and its gradient (B, D + 2) at z (B, D + 2)."""
        theta = self.centre + self.spread * z
        value, gradient = log_marginal_likelihood(self.kernel, self.squared, self.y, theta)
        return 0.5 * (z * z).sum(axis=1) - value, z - self.spread * gradient

    def loss(self, z: Array) -> tuple[float, Array]:
        """Return :meth:`losses` at a single z (D + 2,), as scipy asks for it."""
        value, gradient = self.losses(z[None])
        return value[0], gradient[0]


def _prior(
    dimension: int, lengthscale: float | None, noise: float | None
) -> tuple[Array, Array, Array]:
    """Return centre and spread of theta (D + 2,), and bounds of z (2, D + 2)."""
    centre = prior_medians(dimension, lengthscale, noise).logarithms
    spread = np.array([LENGTHSCALE[1]] * dimension + [VARIANCE[1], NOISE[1]])
    ends = [LENGTHSCALE_BOUNDS] * dimension + [VARIANCE_BOUNDS, NOISE_BOUNDS]
    bounds = (np.log(np.array(ends)).T - centre) / spread
    # A parameter that is given is kept by bounds that leave it no room.
    if lengthscale is not None:
        bounds[:, :dimension] = 0.0
    if noise is not None:
        bounds[:, -1] = 0.0
    return centre, spread, bounds


@lru_cache(maxsize=4)
def pairs_of(count: int) -> tuple[Indices, Indices]:
    """Return the two members of each pair of observations: (Q,) and (Q,)."""
    first, second = np.tril_indices(count, -1)
    return first, second


def pair_distances(x: Array, parameters: Indices) -> Array:
    """Return the squared distances of all pairs of rows of x (n, E), by parameter: (D, Q).

    ``parameters`` (E,) are the numbers of the parameters that the columns belong to.
    """
    first, second = pairs_of(len(x))
    squared = np.zeros((int(parameters.max()) + 1, len(first)))
    for column, parameter in enumerate(parameters):
        squared[parameter] += (x[first, column] - x[second, column]) ** 2
    return squared


def log_marginal_likelihood(
    kernel: Kernel, squared: Array, y: Array, theta: Array
) -> tuple[Array, Array]:
    """Return log p(y | theta) (B,) and its gradient (B, D + 2), from squared distances (D, Q)."""
    dimension, n = len(squared), len(y)
    first, second = pairs_of(n)
    pairs = n * first + second
    inverse_scales = np.exp(-2.0 * theta[:, :dimension])  # (B, D)
    variance, noise = np.exp(theta[:, -2]), np.exp(theta[:, -1])
    correlation, slope = kernel.profile(inverse_scales @ squared)  # (B, Q)
    signal = variance[:, None] * correlation
    matrices = np.zeros((len(theta), n * n))  # lower triangles of K + noise I
    matrices[:, pairs] = signal
    matrices[:, :: n + 1] = ((1.0 + JITTER) * variance + noise)[:, None]
    value, alpha = _solve_in_place(matrices.reshape(-1, n, n), y)  # matrices become inverses
    # d value / d K = (alpha alpha' - K^-1) / 2; a pair stands for two entries of K.
    by_pair = alpha.take(first, 1) * alpha.take(second, 1) - matrices.take(pairs, 1)  # (B, Q)
    trace = alpha * alpha - matrices[:, :: n + 1]  # (B, n)
    by_diagonal = 0.5 * trace.sum(axis=1)
    by_variance = np.einsum("bq,bq->b", by_pair, signal) + by_diagonal * variance
    by_pair *= slope  # by r^2 of each pair, which length scales divide
    by_scales = -2.0 * variance[:, None] * (by_pair @ squared.T) * inverse_scales
    return value, np.column_stack([by_scales, by_variance, noise * by_diagonal])


def _solve_in_place(matrices: Array, y: Array) -> tuple[Array, Array]:
    """Return log N(y | 0, K) (B,) and K^-1 y (B, n); overwrite K (B, n, n) by K^-1.

    Only lower triangles are read and written. LAPACK stores matrices by columns, so our lower
    triangles are its upper triangles.
    """
    value, alpha = np.empty(len(matrices)), np.empty((len(matrices), len(y)))
    for row, matrix in enumerate(matrices):
        factor, failed = lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("a covariance matrix is not positive definite")
        alpha[row] = lapack.dpotrs(factor, y, lower=0)[0]
        value[row] = -0.5 * (alpha[row] @ y) - np.log(np.diagonal(factor)).sum()
        lapack.dpotri(factor, lower=0, overwrite_c=1)
    return value - 0.5 * len(y) * math.log(2.0 * math.pi), alpha


def _subset(x: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return a random subset of the observations where there are too many to fit."""
    if len(y) <= MAX_OBSERVATIONS:
        return x, y
    chosen = np.sort(rng.choice(len(y), MAX_OBSERVATIONS, replace=False))
    return x[chosen], y[chosen]
