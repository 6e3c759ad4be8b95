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

B is the number of starts, of one agent or of several, n the number of observations, and
Q = n (n - 1) / 2 the number of their pairs: symmetric quantities are computed once. The embedded
columns of a category share one length scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import lapack

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Space
from flwr_fbo.models.kernels import Kernel, kernel_named
from flwr_fbo.models.quasi_newton import DescentOptions, minimise

#: Log-normal priors, for scores of about unit spread on the unit cube: the median, and the spread
#: of the logarithm. Length scales grow with the square root of the dimension, as distances do.
LENGTHSCALE = (0.35, 1.2)
VARIANCE = (1.0, 0.7)
NOISE = (5e-3, 1.5)
#: The spread of the logarithm of length scales about one that the federation learned.
LEARNED_SPREAD = 0.2
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
#: An ascent stops where no parameter has a slope of more than 0.03 nats per spread of its prior.
#: The gain that is left is about the square, far too small to change a decision.
DESCENT = DescentOptions(slope=0.03, iterations=50)
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


@lru_cache(maxsize=4096)
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
    given = lengthscale, noise, [before], restarts
    return fit_together(kernel, space, x[None], y[None], [rng], *given)[0]


def fit_together(
    kernel: str,
    space: Space,
    x: Array,
    y: Array,
    rngs: Sequence[np.random.Generator],
    lengthscale: float | None = None,
    noise: float | None = None,
    before: Sequence[Hyperparameters | None] | None = None,
    restarts: int = 4,
    learned: float | None = None,
) -> list[Hyperparameters]:
    """Return :func:`fit` of several agents, given inputs x (A, n, E) and scores y (A, n).

    A length scale that the federation ``learned`` is the median of a narrower prior.
    An agent's result is the same, to the last bit, whatever the other agents are.
    """
    if before is None or y.shape[1] < WARM_START_FROM:
        before = [None] * len(y)
    data = [_subset(*given) for given in zip(x, y, rngs, strict=True)]
    parameters = parameter_of_column(space)
    squared = np.stack([pair_distances(rows, parameters) for rows, _ in data])
    centre, spread, bounds = _prior(space.dimension, lengthscale, noise, learned)
    posterior = _LogPosterior(
        kernel_named(kernel), squared, np.stack([scores for _, scores in data]), centre, spread
    )
    known = [None if fit is None else (fit.logarithms - centre) / spread for fit in before]
    starts, owners = _starts(posterior, known, rngs, restarts, bounds)
    found, losses = minimise(
        lambda z, rows: posterior.losses(z, owners[rows]), starts, bounds[0], bounds[1], DESCENT
    )
    theta = centre + spread * found
    return [
        _hyperparameters(theta[best])
        for agent in range(len(y))
        for best in [min(np.flatnonzero(owners == agent).tolist(), key=losses.__getitem__)]
    ]


def _hyperparameters(theta: Array) -> Hyperparameters:
    *lengthscales, variance, noise = np.exp(theta).tolist()
    return Hyperparameters(tuple(lengthscales), variance, noise)


def _starts(
    posterior: _LogPosterior,
    known: Sequence[Array | None],
    rngs: Sequence[np.random.Generator],
    restarts: int,
    bounds: Array,
) -> tuple[Array, Indices]:
    """Return where ascents start (S, D + 2), and the number of the agent of each (S,).

    An agent that knows a start has that one. The others have the median, and the best draw.
    """
    width = len(posterior.centre)
    starts: list[list[Array]] = [[] if start is None else [start] for start in known]
    new = [agent for agent, start in enumerate(known) if start is None]
    if new:
        # The first of the draws is replaced by the median, which is 0.
        drawn = np.stack([rngs[n].standard_normal((restarts, width))[1:] for n in new])
        draws = np.clip(drawn, *bounds)
        best = np.zeros(len(new), dtype=np.int64)
        if restarts > 2:
            every = np.repeat(new, restarts - 1)
            losses = posterior.losses(draws.reshape(-1, width), every)[0]
            best = losses.reshape(len(new), -1).argmin(axis=1)
        for agent, rows, row in zip(new, draws, best, strict=True):
            starts[agent] = [np.zeros(width), *rows[row : row + 1]]
    owners = np.repeat(np.arange(len(known)), [len(rows) for rows in starts])
    return np.clip([row for rows in starts for row in rows], *bounds), owners


@dataclass(frozen=True)
class _LogPosterior:
    """The functions that fits maximise: log likelihood plus log prior, in coordinates z."""

    kernel: Kernel
    squared: Array  # (A, D, Q)
    y: Array  # (A, n)
    centre: Array
    spread: Array

    def losses(self, z: Array, owners: Indices) -> tuple[Array, Array]:
        """Return minus the log posterior (B,) and its gradient (B, D + 2) at z (B, D + 2).

        ``owners`` (B,) are the numbers of the agents whose functions these are.
        """
        theta = self.centre + self.spread * z
        data = self.squared[owners], self.y[owners]
        value, gradient = log_marginal_likelihood(self.kernel, *data, theta)
        return 0.5 * np.einsum("bd,bd->b", z, z) - value, z - self.spread * gradient


def _prior(
    dimension: int,
    lengthscale: float | None,
    noise: float | None,
    learned: float | None = None,
) -> tuple[Array, Array, Array]:
    """Return centre and spread of theta (D + 2,), and bounds of z (2, D + 2)."""
    centre = prior_medians(dimension, lengthscale or learned, noise).logarithms
    width = LENGTHSCALE[1] if learned is None else LEARNED_SPREAD
    spread = np.array([width] * dimension + [VARIANCE[1], NOISE[1]])
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
    """Return log p(y | theta) (B,) and its gradient (B, D + 2), at parameters theta (B, D + 2).

    Scores y are (n,), and squared distances of their pairs (D, Q); or (B, n) and (B, D, Q), where
    each row of theta has data of its own.
    """
    dimension, n = theta.shape[1] - 2, y.shape[-1]
    first, second = pairs_of(n)
    pairs = n * first + second
    inverse_scales = np.exp(-2.0 * theta[:, :dimension])  # (B, D)
    variance, noise = np.exp(theta[:, -2]), np.exp(theta[:, -1])
    # Products of a row and a matrix: a product of matrices rounds by the number of its rows.
    distances = (inverse_scales[:, None, :] @ squared)[:, 0]
    correlation, slope = kernel.profile(distances)  # (B, Q)
    signal = variance[:, None] * correlation
    matrices = np.zeros((len(theta), n * n))  # lower triangles of K + noise I
    matrices[:, pairs] = signal
    matrices[:, :: n + 1] = ((1.0 + JITTER) * variance + noise)[:, None]
    y = np.broadcast_to(y, (len(theta), n))
    value, alpha = _solve_in_place(matrices.reshape(-1, n, n), y)  # matrices become inverses
    # d value / d K = (alpha alpha' - K^-1) / 2; a pair stands for two entries of K.
    by_pair = alpha.take(first, 1) * alpha.take(second, 1) - matrices.take(pairs, 1)  # (B, Q)
    trace = alpha * alpha - matrices[:, :: n + 1]  # (B, n)
    by_diagonal = 0.5 * trace.sum(axis=1)
    by_variance = np.einsum("bq,bq->b", by_pair, signal) + by_diagonal * variance
    by_pair *= slope  # by r^2 of each pair, which length scales divide
    by_squared = (by_pair[:, None, :] @ squared.swapaxes(-1, -2))[:, 0]
    by_scales = -2.0 * variance[:, None] * by_squared * inverse_scales
    return value, np.column_stack([by_scales, by_variance, noise * by_diagonal])


def _solve_in_place(matrices: Array, y: Array) -> tuple[Array, Array]:
    """Return log N(y | 0, K) (B,) and K^-1 y (B, n), for y (B, n); overwrite K (B, n, n) by K^-1.

    Only lower triangles are read and written. LAPACK stores matrices by columns, so our lower
    triangles are its upper triangles.
    """
    alpha, diagonals = np.empty(y.shape), np.empty(y.shape)
    for row, matrix in enumerate(matrices):
        factor, failed = lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("a covariance matrix is not positive definite")
        alpha[row] = lapack.dpotrs(factor, y[row], lower=0)[0]
        diagonals[row] = factor.diagonal()
        lapack.dpotri(factor, lower=0, overwrite_c=1)
    value = -0.5 * np.einsum("bn,bn->b", alpha, y) - np.log(diagonals).sum(axis=1)
    return value - 0.5 * y.shape[1] * math.log(2.0 * math.pi), alpha


def _subset(x: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return a random subset of the observations where there are too many to fit."""
    if len(y) <= MAX_OBSERVATIONS:
        return x, y
    chosen = np.sort(rng.choice(len(y), MAX_OBSERVATIONS, replace=False))
    return x[chosen], y[chosen]
