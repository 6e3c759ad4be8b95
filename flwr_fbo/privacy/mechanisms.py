r"""The Gaussian mechanism for a sum of the agents' vectors: clip, quantise, sum, add noise.

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

#: The scale of the noise is between 2^28 and 2^29 lattice steps.
RESOLUTION = 28
#: Limits of the noise multiplier. Less noise protects nobody (one release of everybody has an
#: epsilon above 5,000 at any usual delta), and contributions would overflow the lattice.
LEAST_NOISE, MOST_NOISE = 0.01, 1e6


def clip_rows(vectors: Array, bound: float) -> Array:
    """Return the rows, each shortened to a norm of at most ``bound``: (n, M).

    Algorithm 1, line 9. The bound holds exactly, not up to rounding. A sum of M squares in double
    precision is off by a factor of at most 1 + M 2^-52. A row is therefore kept only if its norm
    is below the bound by that much, and is otherwise shortened to twice that much below the
    bound. Clipping clipped rows changes nothing. Rows with NaN or infinity are refused: the
    server must replace an unusable message by zeros, the neighbouring input, which costs nothing.
    """
    rows = np.atleast_2d(np.asarray(vectors, dtype=np.float64))  # (n, M)
    if rows.ndim != 2:
        raise checks.PrivacyError(f"`vectors` must have shape (n, m), but got {rows.shape}")
    limit = checks.positive("bound", bound)
    guard = (rows.shape[1] + 16) * 2.0**-52
    # Rows that are surely short are kept unchanged. Plain squares decide that: beside a bound of
    # this size their overflow or underflow cannot matter, and four times the guard covers the
    # rounding here and in `_shortened`. A row with NaN is not short.
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
    """Return the rows, shortened to ``limit`` less two guards where they are too long."""
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
    """The multiples of ``step``, a power of two that is 2^-29 to 2^-28 of the noise's scale."""

    scale: float

    @property
    def step(self) -> float:
        """Return the distance between two neighbouring lattice points."""
        exponent = math.frexp(self.scale)[1] - 1 - RESOLUTION
        return math.ldexp(1.0, exponent)

    @property
    def units(self) -> float:
        """Return the scale in lattice units, rounded up, so that the noise is never too small."""
        return math.nextafter(self.scale / self.step, math.inf)

    def quantise(self, values: Array) -> Integers:
        """Return the values in lattice units, rounded towards zero, so that no norm grows."""
        return (values / self.step).astype(np.int64)  # exact: the step is a power of 2

    def values(self, units: Integers) -> Array:
        """Return lattice units as real numbers."""
        return units.astype(np.float64) * self.step


@dataclass(frozen=True)
class GaussianSum:
    r"""The Gaussian mechanism for a sum of contributions, one from each agent that takes part.

    ``quantise`` puts contributions on an integer lattice. The integers are summed without
    rounding, in any order. ``release`` adds exact noise of standard deviation :math:`z \cdot`
    ``sensitivity``; :mod:`flwr_fbo.privacy.noise` explains why the result is exactly a rounding
    of the continuous mechanism. The caller draws the sample of agents that take part.

    ``quantise`` clips to the sensitivity, so no rounding error and no missing clip in the caller
    breaks the guarantee. It changes a coordinate by at most 2^-28 standard deviations of the
    noise.

    Parameters
    ----------
    sensitivity : float
        The largest norm of one agent's contribution.
    noise_multiplier : float
        z, the standard deviation of the noise over the sensitivity.
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
        """Return the standard deviation of the noise in each coordinate."""
        return math.nextafter(self.noise_multiplier * self.sensitivity, math.inf)

    def quantise(self, contributions: Array) -> Integers:
        """Return the rows in lattice units, each with norm at most ``sensitivity``: (n, d).

        A coordinate has at most 2^36 units, so sums over 10^7 agents stay below 2^60.
        """
        return self._lattice.quantise(clip_rows(contributions, self.sensitivity))

    def release(self, total: Integers, entropy: Entropy) -> Array:
        """Return the sum of quantised contributions with noise, which may be sent: (d,)."""
        units = np.asarray(total)
        if units.ndim != 1 or units.dtype != np.int64:
            raise checks.PrivacyError(
                f"`total` must be int64 of shape (d,), but got {units.dtype} of {units.shape}"
            )
        if units.size and max(-int(units.min()), int(units.max())) >= 2**61:
            raise checks.PrivacyError("`total` must be below 2^61 lattice units, but is not")
        drawn = noise.draw_rounded(noise.GAUSSIAN, self._lattice.units, units.size, entropy)
        return self._lattice.values(units + drawn)

    @property
    def _lattice(self) -> Lattice:
        return Lattice(self.deviation)
