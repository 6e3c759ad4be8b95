r"""The share of the noise that each party adds to its own vector.

Notation

=====================================  ==============================  ======
symbol                                 here                            shape
=====================================  ==============================  ======
``S``, ``z``                           ``sensitivity``, ``noise_multiplier``  scalars
``h = t - c``, honest survivors        ``honest``                      int
``sigma = z S / step``, lattice units  ``lattice.units``               scalar
``s = sigma / sqrt(h)``                ``share_units``                 scalar
=====================================  ==============================  ======

Each party rounds its clipped vector towards zero onto the lattice of :class:`GaussianSum`, and adds
``round(s X)`` to each number, with X standard normal and exact probabilities
(:mod:`flwr_fbo.privacy.noise`). The noise of any h parties together has at least the deviation
``z S``. A sum of rounded normal numbers is not exactly the rounding of one normal number; how far
it is from a mechanism that is exact is :func:`distance_bound`
(docs/reference/proofs.md, section 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import noise
from flwr_fbo.privacy.entropy import Entropy
from flwr_fbo.privacy.mechanisms import GaussianSum, Integers, Lattice
from flwr_fbo.privacy.secure.terms import SecureSumError, Terms

#: The least deviation of a share in lattice steps. Real shares have some 2^18 and more.
LEAST_UNITS = 64.0


@dataclass(frozen=True)
class NoiseShare:
    """The Gaussian mechanism for a sum whose noise is made by the parties.

    Parameters
    ----------
    sensitivity : float
        S, the norm to which a party's contribution is clipped.
    noise_multiplier : float
        z of the noise of ``honest`` parties together.
    honest : int
        h, the least number of honest parties whose vectors are in the sum.
    """

    sensitivity: float
    noise_multiplier: float
    honest: int

    def __post_init__(self) -> None:
        if self.honest < 1:
            raise SecureSumError(f"`honest` must be >= 1, but got {self.honest!r}")
        if self.share_units < LEAST_UNITS:
            raise SecureSumError(
                f"a share of the noise must have {LEAST_UNITS:g} lattice steps or more, "
                f"but {self.honest} parties leave {self.share_units:g}"
            )

    @classmethod
    def of(cls, terms: Terms) -> NoiseShare:
        """Return the noise share of a sum with these terms."""
        honest = terms.threshold - terms.colluding
        return cls(terms.sensitivity, terms.noise_multiplier, honest)

    @cached_property
    def _mechanism(self) -> GaussianSum:
        return GaussianSum(self.sensitivity, self.noise_multiplier)

    @cached_property
    def lattice(self) -> Lattice:
        """Return the public lattice, which is that of the central mechanism."""
        return Lattice(self._mechanism.deviation)

    @cached_property
    def share_units(self) -> float:
        """Return s, the deviation of one party's noise in lattice units, rounded up."""
        root = math.nextafter(math.sqrt(self.honest), 0.0)
        return math.nextafter(self.lattice.units / root, math.inf)

    def contribution(self, vector: Array, entropy: Entropy) -> Integers:
        """Return a vector, clipped to S and on the lattice, with this party's noise: (d,)."""
        clipped = self._mechanism.quantise(np.asarray(vector)[None, :])[0]
        drawn = noise.draw_rounded(noise.GAUSSIAN, self.share_units, clipped.size, entropy)
        return np.asarray(clipped + drawn)

    def deviation(self, survivors: int) -> float:
        """Return the deviation of the noise in a sum of this many parties, all honest."""
        return self.share_units * math.sqrt(survivors) * self.lattice.step

    def excess(self, survivors: int) -> float:
        """Return that deviation over the one that is charged."""
        return math.sqrt(survivors / self.honest)

    def plausible(self, total: Integers, survivors: int) -> bool:
        """Return whether honest parties could have made a sum, but for one in 10^20.

        A party that does not clip its vector can move the sum anywhere. The server cannot see
        who did it, but it sees a sum that is longer than all clipped vectors and the noise.
        """
        s, count = self.share_units, max(1, total.size)
        # |noise| <= s sqrt(n) (sqrt(d) + 10) but for a probability of e^-50; d roundings besides.
        noisy = s * math.sqrt(survivors) * (math.sqrt(count) + 10.0) + survivors * math.sqrt(count)
        limit = survivors * self.sensitivity / self.lattice.step + noisy
        return float(np.linalg.norm(total.astype(np.float64))) <= limit


def distance_bound(share_units: float, parties: int, numbers: int) -> float:
    r"""Return a bound on the total variation between the real and the exact mechanism.

    The bound is :math:`130 n^2 s^2 e^{-\pi^2 s^2}` for each of the released numbers, for
    :math:`s \ge 2` (docs/reference/proofs.md). It is 0.0 in double precision for any s above 9.

    Parameters
    ----------
    share_units : float
        s, the deviation of one party's noise in lattice steps.
    parties : int
        n, the number of parties in the sum.
    numbers : int
        The numbers that are released, over all releases.
    """
    if not share_units >= 2.0:
        raise SecureSumError(f"`share_units` must be >= 2, but got {share_units!r}")
    if parties == 1:
        return 0.0
    logarithm = math.log(130.0 * numbers) + 2.0 * math.log(parties * share_units)
    return math.exp(min(0.0, logarithm - (math.pi * share_units) ** 2))


def charged_delta(delta: float) -> float:
    """Return the delta to account with: the stated delta, less what the distance costs.

    For s >= 64 (``LEAST_UNITS``), 10^6 parties and 10^12 numbers, the distance is below
    10^-17,000, and (1 + e^epsilon) times that is far below the last place of any delta for any
    epsilon below 30,000. One unit in the last place is taken off all the same.
    """
    return math.nextafter(delta, 0.0)
