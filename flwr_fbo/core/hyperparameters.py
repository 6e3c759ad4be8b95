r"""Kernel parameters by maximum a posteriori marginal likelihood, all restarts at once.

Notation: :math:`\theta = (\log l_1, \ldots, \log l_D, \log \sigma_0^2, \log \lambda)`, one length
scale a parameter of the space (a category's embedded columns share one), the signal variance
and the noise variance. Shapes: B restarts, n observations, Q = n (n - 1) / 2 pairs of them: what
is symmetric is computed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from flwr_fbo.core.ascent import maximise
from flwr_fbo.core.kernels import Kernel, kernel_named
from flwr_fbo.core.space import Array, Categorical, Space

#: Log-normal priors, for scores of about unit spread on the unit cube: medians and spreads of
#: log l, log variance, log noise. Length scales grow with the square root of the dimension, as
#: distances do.
LENGTHSCALE = (0.35, 0.8)
VARIANCE = (1.0, 0.7)
NOISE = (5e-3, 1.5)
LENGTHSCALE_BOUNDS = (5e-3, 20.0)
VARIANCE_BOUNDS = (0.05, 20.0)
NOISE_BOUNDS = (1e-6, 1.0)
#: A fit looks at no more observations than this, so its cost has a ceiling.
MOST_OBSERVATIONS = 256


@dataclass(frozen=True)
class Hyperparameters:
    """What a fit finds, ready to store."""

    lengthscales: tuple[float, ...]
    variance: float
    noise: float

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


def fit(
    kernel: str,
    space: Space,
    x: Array,
    y: Array,
    rng: np.random.Generator,
    lengthscale: float | None = None,
    noise: float | None = None,
    restarts: int = 4,
) -> Hyperparameters:
    """The most probable hyperparameters given embedded inputs x (n, E) and scores y (n,).

    A ``lengthscale`` or ``noise`` that is given is kept. Restarts are the prior's median and
    draws around it; all climb together.
    """
    x, y = _subset(x, y, rng)
    owner = embedded_parameter(space)
    dimension = space.dimension
    squared = pair_distances(x, owner)
    start = prior(dimension, lengthscale, noise)
    centre = np.log([*start.lengthscales, start.variance, start.noise])
    spread = np.array([LENGTHSCALE[1]] * dimension + [VARIANCE[1], NOISE[1]])
    bounds = [LENGTHSCALE_BOUNDS] * dimension + [VARIANCE_BOUNDS, NOISE_BOUNDS]
    low, high = np.log(np.array(bounds)).T
    if lengthscale is not None:
        low[:dimension] = high[:dimension] = centre[:dimension]
    if noise is not None:
        low[-1] = high[-1] = centre[-1]
    starts = centre + spread * rng.standard_normal((restarts, len(centre)))
    starts[0] = centre
    shape = kernel_named(kernel)

    def objective(theta: Array, _: np.ndarray) -> tuple[Array, Array]:
        value, gradient = log_marginal_likelihood(shape, squared, y, theta)
        away = (theta - centre) / spread
        return value - 0.5 * (away**2).sum(axis=1), gradient - away / spread

    theta, value = maximise(objective, starts, low, high, iterations=50, tolerance=1e-4)
    best = np.exp(theta[int(np.argmax(value))])
    return Hyperparameters(tuple(map(float, best[:dimension])), float(best[-2]), float(best[-1]))


def pair_distances(x: Array, owner: np.ndarray) -> Array:
    """Squared distances of all pairs of rows (n, E), by the parameter of each column: (D, Q)."""
    first, second = np.tril_indices(len(x), -1)
    squared = np.zeros((int(owner.max()) + 1, len(first)))
    for column, parameter in enumerate(owner):
        squared[parameter] += (x[first, column] - x[second, column]) ** 2
    return squared


def log_marginal_likelihood(
    kernel: Kernel, squared: Array, y: Array, theta: Array
) -> tuple[Array, Array]:
    """log p(y | theta) and its gradient: (B,) and (B, D + 2), from squared distances (D, Q)."""
    dimension, n = len(squared), len(y)
    pairs = np.ravel_multi_index(np.tril_indices(n, -1), (n, n))
    inverse_scales = np.exp(-2.0 * theta[:, :dimension])  # (B, D)
    variance, noise = np.exp(theta[:, -2]), np.exp(theta[:, -1])
    correlation, slope = kernel.profile(inverse_scales @ squared)  # (B, Q)
    signal = variance[:, None] * correlation
    matrices = np.zeros((len(theta), n * n))
    matrices[:, pairs] = signal
    matrices[:, :: n + 1] = ((1.0 + 1e-10) * variance + noise)[:, None]
    value, alpha = _solved(matrices.reshape(-1, n, n), y)  # matrices now hold the inverses
    first, second = pairs // n, pairs % n
    outer = alpha[:, first] * alpha[:, second] - matrices[:, pairs]  # d value / d K, twice
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
