r"""Kernel parameters by maximum a posteriori marginal likelihood.

Notation: :math:`\theta = (\log l_1, \ldots, \log l_D, \log \sigma_0^2, \log \lambda)`, one length
scale a parameter of the space (a category's embedded columns share one), the signal variance
and the noise variance. Shapes: B restarts, n observations, Q = n (n - 1) / 2 pairs of them: what
is symmetric is computed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import lapack

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.models.kernels import Kernel, kernel_named

#: Log-normal priors, for scores of about unit spread on the unit cube: medians and spreads of
#: log l, log variance, log noise. Length scales grow with the square root of the dimension, as
#: distances do.
LENGTHSCALE = (0.35, 1.2)
VARIANCE = (1.0, 0.7)
NOISE = (5e-3, 1.5)
LENGTHSCALE_BOUNDS = (5e-3, 20.0)
VARIANCE_BOUNDS = (0.05, 20.0)
NOISE_BOUNDS = (1e-6, 1.0)
#: A fit looks at no more observations than this, so its cost has a ceiling.
MOST_OBSERVATIONS = 256
#: A fit is due again when there are so many times as many observations.
GROWTH = 1.2
#: From so many observations on, a fit goes on from the one before and starts nowhere else: that
#: misses a better one elsewhere about once in a hundred fits.
SETTLED = 50
#: A climb ends where no parameter has a slope of more than this many nats a spread of its prior:
#: what is left to gain is about the square. A twentieth of a nat decides nothing.
CLIMB = {"gtol": 0.03, "maxiter": 50}


@dataclass(frozen=True)
class Hyperparameters:
    """What a fit finds, ready to store."""

    lengthscales: tuple[float, ...]
    variance: float
    noise: float

    @property
    def logarithms(self) -> Array:
        """theta: (D + 2,)."""
        return np.log([*self.lengthscales, self.variance, self.noise])

    def kernel(self, name: str, space: Space) -> Kernel:
        """The kernel over embedded coordinates that these parameters mean."""
        scales = np.asarray(self.lengthscales)[embedded_parameter(space)]
        return kernel_named(name, scales, self.variance)


def embedded_parameter(space: Space) -> np.ndarray:
    """Which parameter each embedded column belongs to: (E,)."""
    widths = [p.size if isinstance(p, Categorical) else 1 for p in space.parameters.values()]
    return np.repeat(np.arange(len(widths)), widths)


def prior(
    dimension: int, lengthscale: float | None = None, noise: float | None = None
) -> Hyperparameters:
    """The prior's medians: what an agent uses before it has learned anything."""
    scale = lengthscale or LENGTHSCALE[0] * math.sqrt(dimension)
    return Hyperparameters((scale,) * dimension, VARIANCE[0], noise or NOISE[0])


def last_fit(count: int, every: int) -> int:
    """How many of ``count`` observations the last fit looks at; 0 before the first.

    Fits are ``every`` observations apart at first, and from then on a fifth more: 5, 10, ..., 30,
    40, 50, 60, 75, 90. A function of the count alone, so that a restored agent agrees.
    """
    due, upcoming = 0, every
    while 0 < upcoming <= count:
        due = upcoming
        upcoming = every * max(due // every + 1, math.ceil(GROWTH * due / every))
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
    """The most probable hyperparameters given embedded inputs x (n, E) and scores y (n,).

    A ``lengthscale`` or ``noise`` that is given is kept. There are two climbs: from the prior's
    median, and from the most probable of ``restarts - 1`` draws around it; or, where there are
    many observations, one from the fit ``before``.
    """
    from scipy.optimize import minimize  # takes a while to import, and much of the app does not fit

    if len(y) < SETTLED:
        before = None
    x, y = _subset(x, y, rng)
    squared = pair_distances(x, embedded_parameter(space))
    centre, spread, bounds = _prior(space.dimension, lengthscale, noise)
    if before is None:
        draws = rng.standard_normal((restarts, len(centre)))
        draws[0] = 0.0
    else:
        draws = (before.logarithms[None] - centre) / spread
    draws = np.clip(draws, *bounds)
    shape = kernel_named(kernel)

    def loss(draws: Array) -> tuple[Array, Array]:
        theta = centre + spread * draws
        value, gradient = log_marginal_likelihood(shape, squared, y, theta)
        return 0.5 * (draws * draws).sum(axis=1) - value, draws - spread * gradient

    def one(draw: Array) -> tuple[float, Array]:
        value, gradient = loss(draw[None])
        return value[0], gradient[0]

    if len(draws) > 2:
        draws = draws[[0, 1 + int(np.argmin(loss(draws[1:])[0]))]]
    found = [
        minimize(one, start, jac=True, method="L-BFGS-B", bounds=bounds.T, options=CLIMB)
        for start in draws
    ]
    best = np.exp(centre + spread * min(found, key=lambda climbed: climbed.fun).x)
    return Hyperparameters(
        tuple(map(float, best[: space.dimension])), float(best[-2]), float(best[-1])
    )


def _prior(
    dimension: int, lengthscale: float | None, noise: float | None
) -> tuple[Array, Array, Array]:
    """Centre and spread of theta (D + 2,), and bounds (2, D + 2) in spreads from the centre."""
    start = prior(dimension, lengthscale, noise)
    centre = start.logarithms
    spread = np.array([LENGTHSCALE[1]] * dimension + [VARIANCE[1], NOISE[1]])
    ends = [LENGTHSCALE_BOUNDS] * dimension + [VARIANCE_BOUNDS, NOISE_BOUNDS]
    bounds = (np.log(np.array(ends)).T - centre) / spread
    if lengthscale is not None:
        bounds[:, :dimension] = 0.0
    if noise is not None:
        bounds[:, -1] = 0.0
    return centre, spread, bounds


@lru_cache(maxsize=4)
def pairs_of(count: int) -> tuple[Indices, Indices]:
    """The two members of each pair of observations: (Q,) and (Q,)."""
    first, second = np.tril_indices(count, -1)
    return first, second


def pair_distances(x: Array, owner: np.ndarray) -> Array:
    """Squared distances of all pairs of rows (n, E), by the parameter of each column: (D, Q)."""
    first, second = pairs_of(len(x))
    squared = np.zeros((int(owner.max()) + 1, len(first)))
    for column, parameter in enumerate(owner):
        squared[parameter] += (x[first, column] - x[second, column]) ** 2
    return squared


def log_marginal_likelihood(
    kernel: Kernel, squared: Array, y: Array, theta: Array
) -> tuple[Array, Array]:
    """log p(y | theta) and its gradient: (B,) and (B, D + 2), from squared distances (D, Q)."""
    dimension, n = len(squared), len(y)
    first, second = pairs_of(n)
    pairs = n * first + second
    inverse_scales = np.exp(-2.0 * theta[:, :dimension])  # (B, D)
    variance, noise = np.exp(theta[:, -2]), np.exp(theta[:, -1])
    correlation, slope = kernel.profile(inverse_scales @ squared)  # (B, Q)
    signal = variance[:, None] * correlation
    matrices = np.zeros((len(theta), n * n))
    matrices[:, pairs] = signal
    matrices[:, :: n + 1] = ((1.0 + 1e-10) * variance + noise)[:, None]
    value, alpha = _solved(matrices.reshape(-1, n, n), y)  # matrices now hold the inverses
    outer = alpha.take(first, 1) * alpha.take(second, 1) - matrices.take(
        pairs, 1
    )  # d value / d K, twice
    trace = alpha * alpha - matrices[:, :: n + 1]  # (B, n)
    diagonal = 0.5 * trace.sum(axis=1)
    amplitude = np.einsum("bq,bq->b", outer, signal) + diagonal * variance
    outer *= slope
    scales = -2.0 * variance[:, None] * (outer @ squared.T) * inverse_scales
    return value, np.column_stack([scales, amplitude, noise * diagonal])


def _solved(matrices: Array, y: Array) -> tuple[Array, Array]:
    """log N(y | 0, K) (B,) and K^-1 y (B, n); lower triangles of K (B, n, n) become of K^-1.

    LAPACK takes matrices by columns, so that our lower triangles are its upper ones.
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
    if len(y) <= MOST_OBSERVATIONS:
        return x, y
    chosen = np.sort(rng.choice(len(y), MOST_OBSERVATIONS, replace=False))
    return x[chosen], y[chosen]
