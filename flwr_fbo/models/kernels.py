r"""Stationary kernels, their derivatives, and draws from their spectra.

Notation

==================  =====================================  ======================
paper               here                                   shape
==================  =====================================  ======================
``k(x, x')``        ``kernel(a, b)``                       (n, m)
``l``               ``lengthscales``                       (E,), or () for all
``sigma_0^2``       ``variance``                           scalar
``r^2``             ``squared``                            (n, m)
``s_i ~ p(s)``      ``kernel.frequencies(count, E, rng)``  (M, E)
==================  =====================================  ======================

Every kernel here is a function of the scaled squared distance
:math:`r^2 = \sum_d (a_d - b_d)^2 / l_d^2`. One derivative with respect to ``r^2`` therefore
serves both the gradients in the inputs and the gradients in the length scales.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array

#: Number of covariances that :func:`blocks` lets one block hold, so that the block stays in the
#: processor's cache.
BLOCK_ENTRIES = 2**14


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """A stationary covariance function of the scaled squared distance ``r^2``.

    The kernels of A processes are one kernel, with length scales (A, 1, E) and variances (A, 1).
    """

    lengthscales: float | Array = 1.0
    variance: float | Array = 1.0

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.lengthscales) > 0):
            raise ValueError(f"`lengthscales` must be > 0, but got {self.lengthscales!r}")
        if not np.all(np.asarray(self.variance) > 0):
            raise ValueError(f"`variance` must be > 0, but got {self.variance!r}")

    @abstractmethod
    def profile(self, squared: Array) -> tuple[Array, Array]:
        """Return the correlation at each ``r^2``, and its derivative in ``r^2``."""

    @abstractmethod
    def correlation(self, squared: Array) -> Array:
        """Return the correlation at each ``r^2``, in the precision of ``squared``."""

    @abstractmethod
    def frequencies(self, count: int, dimension: int, rng: np.random.Generator) -> Array:
        """Draw frequencies from the spectral density p(s): (count, dimension)."""

    def __call__(self, a: Array, b: Array) -> Array:
        """Return the covariances between the rows of a (n, E) and of b (m, E): (n, m)."""
        correlation = self.correlation(squared_distance(a, b, self.lengthscales))
        return np.asarray(of_matrices(self.variance) * correlation)


@dataclass(frozen=True, eq=False)
class SquaredExponential(Kernel):
    r"""The kernel of FTS App. A: :math:`k = \sigma_0^2 \exp(-r^2 / 2)`."""

    def profile(self, squared: Array) -> tuple[Array, Array]:
        """Return exp(-r^2 / 2) and its derivative in ``r^2``."""
        value = np.exp(-0.5 * squared)
        return value, -0.5 * value

    def correlation(self, squared: Array) -> Array:
        """Return exp(-r^2 / 2)."""
        return np.asarray(np.exp(-0.5 * squared))

    def frequencies(self, count: int, dimension: int, rng: np.random.Generator) -> Array:
        """Draw frequencies from the Gaussian p(s) = N(0, l^-2 I)."""
        return np.asarray(rng.standard_normal((count, dimension)) / self.lengthscales)


@dataclass(frozen=True, eq=False)
class Matern(Kernel):
    r"""The Matern kernel of smoothness ``nu`` 1/2, 3/2 or 5/2, with a Student-t spectrum.

    With :math:`s = \sqrt{2 \nu r^2}`, the correlation is :math:`e^{-s}` for nu = 1/2,
    :math:`(1 + s) e^{-s}` for 3/2, and :math:`(1 + s + s^2/3) e^{-s}` for 5/2.
    """

    nu: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"`nu` must be 0.5, 1.5 or 2.5, but got {self.nu!r}")

    def profile(self, squared: Array) -> tuple[Array, Array]:
        """Return the correlation and its derivative in ``r^2``."""
        s = np.sqrt(2.0 * self.nu * np.maximum(squared, 0.0))
        decay = np.exp(-s)
        if self.nu == 0.5:  # has no derivative at zero distance: the slope there is set to 0
            slope = np.divide(-0.5 * decay, s, out=np.zeros_like(s), where=s > 0)
            return decay, slope
        matern32 = (1.0 + s) * decay
        if self.nu == 1.5:
            return matern32, -1.5 * decay
        # nu = 5/2, in place: a search evaluates this for a thousand rows at a time.
        s *= s
        s *= decay
        s *= 1.0 / 3.0
        s += matern32
        return s, (-5.0 / 6.0) * matern32

    def correlation(self, squared: Array) -> Array:
        """Return the correlation, in fewer passes over memory than :meth:`profile` needs."""
        s = np.maximum(squared, 0.0)
        s *= 2.0 * self.nu
        np.sqrt(s, out=s)
        decay = np.negative(s)
        np.exp(decay, out=decay)
        if self.nu == 0.5:
            return decay
        if self.nu == 2.5:  # 1 + s (1 + s / 3)
            third = s * (1.0 / 3.0)
            third += 1.0
            s *= third
        s += 1.0
        s *= decay
        return s

    def frequencies(self, count: int, dimension: int, rng: np.random.Generator) -> Array:
        """Draw from p(s), a multivariate t distribution with 2 nu degrees of freedom."""
        # A multivariate t variable is a Gaussian over a chi variable that all coordinates share.
        gaussian = rng.standard_normal((count, dimension))
        mixing = np.sqrt(2.0 * self.nu / rng.chisquare(2.0 * self.nu, (count, 1)))
        return np.asarray(gaussian * mixing / self.lengthscales)


def squared_distance(a: Array, b: Array, lengthscales: float | Array) -> Array:
    """Return ``r^2`` between the rows of a (n, E) and of b (m, E): (n, m)."""
    q = b / lengthscales
    return scaled_distance(a / lengthscales, q, squared_lengths(q))


def squared_lengths(rows: Array) -> Array:
    """Return the |q|^2 of rows q (..., m, E): (..., m)."""
    return np.asarray(np.einsum("...me,...me->...m", rows, rows))


def of_matrices(number: float | Array) -> float | Array:
    """Return a number of a process, or one of each of A processes (A, 1), as a factor of matrices.

    With vectors (A, n) such numbers are multiplied as they are.
    """
    return number[..., None] if isinstance(number, np.ndarray) else number


def scaled_distance(p: Array, q: Array, lengths: Array) -> Array:
    """Return ``r^2`` between rows p (n, E) and q (m, E) that are divided by the length scales.

    ``lengths`` (m,) are the |q|^2, which callers keep. The result is (n, m). All of them may have
    further axes in front, as the rows of several processes do.
    """
    squared = p @ (-2.0 * q).swapaxes(-1, -2)  # r^2 = |p|^2 - 2 p'q + |q|^2
    squared += squared_lengths(p)[..., None]
    squared += lengths[..., None, :]
    return np.asarray(np.maximum(squared, 0.0, out=squared))


def scaled_distance_float32(p: Array, q: Array, lengths: Array) -> Array:
    """Return :func:`scaled_distance` in single precision: (n, m).

    The error is 2^-22 of the largest |p|^2 or |q|^2, so a distance of nearly zero may come out
    below zero.
    """
    # One product of matrices gives all three terms: (p, |p|^2, 1) (-2q, 1, |q|^2)'.
    width = p.shape[-1] + 2
    left = np.ones((*p.shape[:-1], width), np.float32)
    left[..., :-2] = p
    left[..., -2] = squared_lengths(p)
    right = np.ones((*q.shape[:-1], width), np.float32)
    right[..., :-2] = -2.0 * q
    right[..., -1] = lengths
    return np.asarray(left @ right.swapaxes(-1, -2))


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of the rows of a (rows, columns) matrix, each small enough for the cache."""
    height = max(1, BLOCK_ENTRIES // max(1, columns))
    for start in range(0, rows, height):
        yield slice(start, start + height)


def kernel_named(
    name: str, lengthscales: float | Array = 1.0, variance: float | Array = 1.0
) -> Kernel:
    """Return the kernel that a setting such as ``kernel = "matern52"`` names."""
    if name == "se":
        return SquaredExponential(lengthscales, variance)
    orders = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    if name not in orders:
        raise ValueError(f"`kernel` must be one of se, {', '.join(orders)}, but got {name!r}")
    return Matern(lengthscales, variance, orders[name])
