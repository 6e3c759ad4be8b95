r"""What the server does to the agents' vectors before anything is released.

Notation

=====================================  ====================================  =========
paper                                  here                                  shape
=====================================  ====================================  =========
``omega^_n = omega_n / max(1, ..)``    ``clip_rows(omega, S / sqrt(P))``     (n, M)
``(phi_n^(i) omega^_n)_i``             ``contributions``, one row an agent   (n, P M)
``sum over S_t``                       ``total``, in lattice units           (P M,)
``z phi_max S``                        ``noise_multiplier * sensitivity``    scalar
=====================================  ====================================  =========

Dividing by q (Algorithm 1, lines 10 and 11) comes after :meth:`GaussianSum.release`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks, noise
from flwr_fbo.privacy.entropy import Entropy

Integers = NDArray[np.int64]

#: The noise of every mechanism has between 2^28 and 2^29 lattice steps to its scale.
RESOLUTION = 28
#: Less noise than this protects nobody (epsilon > 5,000) and would overflow the lattice.
LEAST_NOISE, MOST_NOISE = 0.01, 1e6


def clip_rows(vectors: Array, bound: float) -> Array:
    """Algorithm 1, line 9: every row at most ``bound`` long: (n, M).

    Exactly so, not up to rounding: a sum of M squares in double precision is off by a factor of
    at most 1 + M 2^-52, so rows are kept only if they are shorter than the bound by that much,
    and otherwise shortened to twice that much below it. Clipping what is clipped changes
    nothing. Rows with NaN or infinity are refused: the server must put zeros in the place of an
    unusable message, which is the neighbouring input and hence always allowed.
    """
    rows = np.atleast_2d(np.asarray(vectors, dtype=np.float64))  # (n, M)
    if rows.ndim != 2:
        raise checks.PrivacyError(f"`vectors` must have shape (n, m), but got {rows.shape}")
    limit = checks.positive("bound", bound)
    guard = (rows.shape[1] + 16) * 2.0**-52
    # Rows that are safely short are kept as they are. For them plain squares do: they neither
    # overflow nor lose anything that counts beside a bound of this size, and four times the
    # guard leaves room for what rounding does here and below. NaN is not short.
    if 1e-100 < limit < 1e100:
        with np.errstate(over="ignore", invalid="ignore"):
            squared = np.einsum("nm,nm->n", rows, rows)
            long = ~(squared <= (limit * (1.0 - 4.0 * guard)) ** 2)
    else:
        long = np.ones(len(rows), dtype=bool)
    if not long.any():
        return rows
    clipped = rows.copy()
    clipped[long] = _shortened(rows[long], limit, guard)
    return clipped


def _shortened(rows: Array, limit: float, guard: float) -> Array:
    if not np.all(np.isfinite(rows)):
        raise checks.PrivacyError("`vectors` must be finite, but hold NaN or infinity")
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # (n, 1)
    unit = np.where(largest > 0, largest, 1.0)
    relative = np.linalg.norm(rows / unit, axis=1, keepdims=True)  # no overflow, no underflow
    target = limit * (1.0 - 2.0 * guard)
    with np.errstate(over="ignore"):
        too_long = relative * unit > limit * (1.0 - guard)
    shortened = rows / unit * (target / np.maximum(relative, 1.0))
    return np.asarray(np.where(too_long, shortened, rows))


@dataclass(frozen=True)
class Lattice:
    """The integers times a power of two that is 2^-28 to 2^-29 of the scale of the noise."""

    scale: float

    @property
    def step(self) -> float:
        """What one lattice unit is worth."""
        exponent = math.frexp(self.scale)[1] - 1 - RESOLUTION
        return math.ldexp(1.0, exponent)

    @property
    def units(self) -> float:
        """The scale in lattice units, rounded up by an ulp so that noise is never short."""
        return math.nextafter(self.scale / self.step, math.inf)

    def quantise(self, values: Array) -> Integers:
        """Values in lattice units, rounded towards zero, so that no norm grows."""
        return (values / self.step).astype(np.int64)  # exact: the step is a power of 2

    def values(self, units: Integers) -> Array:
        """Lattice units as real numbers."""
        return units.astype(np.float64) * self.step


@dataclass(frozen=True)
class GaussianSum:
    r"""The Gaussian mechanism for a sum of contributions, one from each agent taking part.

    ``quantise`` puts contributions on an integer lattice, integers are summed (in any order, by
    anyone, without rounding), and ``release`` adds exact noise of standard deviation
    :math:`z \cdot` ``sensitivity``; :mod:`flwr_fbo.privacy.noise` says why what comes out is
    exactly a rounding of the continuous mechanism. Sampling (who contributes) is the caller's.

    ``quantise`` enforces the sensitivity itself, so that no rounding error or missing clip in
    the caller can void the guarantee. It may change a coordinate by 2^-28 noise deviations.
    """

    sensitivity: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity)
        z = checks.positive("noise_multiplier", self.noise_multiplier)
        if not LEAST_NOISE <= z <= MOST_NOISE:
            raise checks.PrivacyError(
                f"`noise_multiplier` must be in [{LEAST_NOISE:g}, {MOST_NOISE:g}], but got {z!r}"
            )
        if not 1e-250 < self.deviation < 1e250:
            raise checks.PrivacyError(
                "`noise_multiplier * sensitivity` must be in (1e-250, 1e250), "
                f"but got {self.deviation!r}"
            )

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in each coordinate."""
        return math.nextafter(self.noise_multiplier * self.sensitivity, math.inf)

    def quantise(self, contributions: Array) -> Integers:
        """The rows in lattice units, each at most ``sensitivity`` long: (n, d).

        A row has at most 2^36 units, so sums over 10^7 agents stay below 2^60.
        """
        return self._lattice.quantise(clip_rows(contributions, self.sensitivity))

    def release(self, total: Integers, entropy: Entropy) -> Array:
        """The sum of quantised contributions with noise: what may leave: (d,)."""
        units = np.asarray(total)
        if units.ndim != 1 or units.dtype != np.int64:
            raise checks.PrivacyError(
                f"`total` must be int64 of shape (d,), but got {units.dtype} of {units.shape}"
            )
        if units.size and max(-int(units.min()), int(units.max())) >= 2**61:
            raise checks.PrivacyError("`total` must be below 2^61 lattice units, but is not")
        drawn = noise.rounded(noise.GAUSSIAN, self._lattice.units, units.size, entropy)
        return self._lattice.values(units + drawn)

    @property
    def _lattice(self) -> Lattice:
        return Lattice(self.deviation)
