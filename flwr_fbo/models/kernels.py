r"""Stationary kernels, their derivatives, and draws from their spectra.

Notation

==================  =====================================  ======================
paper               here                                   shape
==================  =====================================  ======================
``k(x, x')``        ``kernel(a, b)``                       (n, m)
``l``               ``lengthscales``                       (E,), or () for all
``sigma_0^2``       ``variance``                           scalar
``s_i ~ p(s)``      ``kernel.frequencies(count, E, rng)``  (M, E)
==================  =====================================  ======================

Every kernel here is a profile of the scaled squared distance
:math:`r^2 = \sum_d (a_d - b_d)^2 / l_d^2`, so one derivative with respect to ``r^2`` serves
the gradients in the inputs and in the length scales alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array

#: Covariances that are worked on together, where there are many.
CACHED = 2**14


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """A stationary covariance function, given by its profile in the scaled squared distance."""

    lengthscales: float | Array = 1.0
    variance: float = 1.0

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.lengthscales) > 0):
            raise ValueError(f"`lengthscales` must be > 0, but got {self.lengthscales!r}")
        if not self.variance > 0:
            raise ValueError(f"`variance` must be > 0, but got {self.variance!r}")

    @abstractmethod
    def profile(self, squared: Array) -> tuple[Array, Array]:
        """Correlation and its derivative, both as functions of the scaled squared distance."""

    @abstractmethod
    def correlation(self, squared: Array) -> Array:
        """The correlation alone, in the precision of what is given."""

    @abstractmethod
    def frequencies(self, count: int, dimension: int, rng: np.random.Generator) -> Array:
        """Draws from the spectral density p(s): (count, dimension)."""

    def __call__(self, a: Array, b: Array) -> Array:
        """Covariances between the rows of a (n, E) and of b (m, E): (n, m)."""
        return self.variance * self.correlation(squared_distance(a, b, self.lengthscales))


@dataclass(frozen=True, eq=False)
class SquaredExponential(Kernel):
    r"""FTS App. A: :math:`k = \sigma_0^2 \exp(-r^2 / 2)`, with a Gaussian spectrum."""

    def profile(self, squared: Array) -> tuple[Array, Array]:
        """Correlation exp(-r^2 / 2) and its derivative in r^2."""
        value = np.exp(-0.5 * squared)
        return value, -0.5 * value

    def correlation(self, squared: Array) -> Array:
        """exp(-r^2 / 2)."""
        return np.asarray(np.exp(-0.5 * squared))

    def frequencies(self, count: int, dimension: int, rng: np.random.Generator) -> Array:
        """p(s) = N(0, l^-2 I)."""
        return np.asarray(rng.standard_normal((count, dimension)) / self.lengthscales)


@dataclass(frozen=True, eq=False)
class Matern(Kernel):
    r"""Matern kernel of smoothness ``nu`` 1/2, 3/2 or 5/2, with a Student-t spectrum.

    With :math:`s = \sqrt{2 \nu r^2}`: nu=1/2 is :math:`e^{-s}`, 3/2 is :math:`(1 + s) e^{-s}`,
    5/2 is :math:`(1 + s + s^2/3) e^{-s}`.
    """

    nu: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"`nu` must be 0.5, 1.5 or 2.5, but got {self.nu!r}")

    def profile(self, squared: Array) -> tuple[Array, Array]:
        """Correlation and its derivative in r^2."""
        s = np.sqrt(2.0 * self.nu * np.maximum(squared, 0.0))
        decay = np.exp(-s)
        if self.nu == 0.5:  # not differentiable at zero: the slope there is set to 0
            slope = np.divide(-0.5 * decay, s, out=np.zeros_like(s), where=s > 0)
            return decay, slope
        rising = (1.0 + s) * decay
        if self.nu == 1.5:
            return rising, -1.5 * decay
        s *= s
        s *= decay
        s *= 1.0 / 3.0
        s += rising
        return s, (-5.0 / 6.0) * rising

    def correlation(self, squared: Array) -> Array:
        """The first of :meth:`profile`, in fewer passes over what may be a thousand rows."""
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
        """p(s) is a multivariate t with 2 nu degrees of freedom: a Gaussian over a chi."""
        gaussian = rng.standard_normal((count, dimension))
        mixing = np.sqrt(2.0 * self.nu / rng.chisquare(2.0 * self.nu, (count, 1)))
        return np.asarray(gaussian * mixing / self.lengthscales)


def squared_distance(a: Array, b: Array, lengthscales: float | Array) -> Array:
    """Scaled squared distances between the rows of a (n, E) and b (m, E): (n, m)."""
    q = b / lengthscales
    return plain_distance(a / lengthscales, q, np.einsum("me,me->m", q, q))


def plain_distance(p: Array, q: Array, lengths: Array) -> Array:
    """Squared distances between rows p (n, E) and q (m, E), given the |q|^2 (m,): (n, m)."""
    squared = p @ (-2.0 * q.T)
    squared += np.einsum("ne,ne->n", p, p)[:, None]
    squared += lengths
    return np.asarray(np.maximum(squared, 0.0, out=squared))


def rough_distance(p: Array, q: Array, lengths: Array) -> Array:
    """The same in single precision, by one product: to 2^-22 of the largest |p|^2 or |q|^2.

    A distance of nearly zero may come out below zero.
    """
    left = np.ones((len(p), p.shape[1] + 2), np.float32)
    left[:, :-2] = p
    left[:, -2] = np.einsum("ne,ne->n", p, p)
    right = np.ones((len(q), p.shape[1] + 2), np.float32)
    right[:, :-2] = -2.0 * q
    right[:, -1] = lengths
    return np.asarray(left @ right.T)


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows, so that covariances with so many columns fit the processor's cache."""
    height = max(1, CACHED // max(1, columns))
    for start in range(0, rows, height):
        yield slice(start, start + height)


def kernel_named(name: str, lengthscales: float | Array = 1.0, variance: float = 1.0) -> Kernel:
    """The kernel that a setting such as ``kernel = "matern52"`` means."""
    if name == "se":
        return SquaredExponential(lengthscales, variance)
    orders = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    if name not in orders:
        raise ValueError(f"`kernel` must be one of se, {', '.join(orders)}, but got {name!r}")
    return Matern(lengthscales, variance, orders[name])
