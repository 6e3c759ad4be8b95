r"""CTL(epsilon), Curator 1: one reward becomes private before it leaves.

Notation

=====================  ======================================================  ==========
paper                  here                                                    shape
=====================  ======================================================  ==========
``B + R``              ``clip``                                                scalar
``y_t``                ``reward``                                              scalar
``L = 2(B+R)/eps``     ``scale``                                               scalar
=====================  ======================================================  ==========

Two changes to the paper, both so that the guarantee holds in fact:

- The reward is clipped to [-(B+R), B+R] first. Lemma 1 needs ``|y| <= B + R``; with the clip
  epsilon-LDP holds for any reward and any noise, bounded or not. (For unbounded noise the
  paper's appendix only has (epsilon, delta)-LDP, with delta the chance that the bound fails.)
- The noise is not a double added to a double, whose low bits give the reward away: the clipped
  reward is put on a lattice and exact rounded noise is added (:mod:`flwr_fbo.privacy.noise`),
  which is a rounding of the continuous mechanism, hence post-processing.

``gaussian`` is the (epsilon, delta) alternative: noise of standard deviation 2 (B + R) z, with
the least z for one release (Balle and Wang 2018).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from flwr_fbo.core.settings import Scalar
from flwr_fbo.privacy import checks, noise
from flwr_fbo.privacy.entropy import Entropy, system_entropy
from flwr_fbo.privacy.mechanisms import Lattice

#: Beyond this epsilon the lattice would be too fine for 64-bit integers; it protects nobody.
MOST_EPSILON = 1e6


@dataclass(frozen=True)
class Curator:
    """Makes rewards private, with entropy from the operating system unless given another."""

    clip: float
    epsilon: float
    mechanism: str = "laplace"
    delta: float = 0.0
    entropy: Entropy = field(default_factory=system_entropy)

    def __post_init__(self) -> None:
        checks.positive("clip", self.clip)
        if checks.positive("epsilon", self.epsilon) > MOST_EPSILON:
            raise checks.PrivacyError(
                f"`epsilon` must be <= {MOST_EPSILON:g}, but got {self.epsilon!r}"
            )
        if self.mechanism not in ("laplace", "gaussian"):
            raise checks.PrivacyError(
                f"`mechanism` must be laplace or gaussian, but got {self.mechanism!r}"
            )
        if self.mechanism == "gaussian":
            checks.open_unit("delta", self.delta)

    @classmethod
    def of(cls, values: Mapping[str, Scalar], clip: float, entropy: Entropy | None) -> Curator:
        """The curator that a setup's values ask for."""
        return cls(
            clip,
            checks.positive("epsilon", values["epsilon"]),
            str(values.get("mechanism", "laplace")),
            float(values.get("delta", 0.0)),
            system_entropy() if entropy is None else entropy,
        )

    @property
    def private(self) -> bool:
        """False if the noise can be foretold (a seeded entropy)."""
        return self.entropy.private

    @property
    def scale(self) -> float:
        """Scale of the Laplace noise, or standard deviation of the Gaussian."""
        return noise_scale(self.clip, self.epsilon, self.mechanism, self.delta)

    def __call__(self, reward: float) -> float:
        """The private reward. It may be any real number; a NaN is refused."""
        if math.isnan(reward):
            raise checks.PrivacyError("a reward must be a number, but is NaN")
        lattice = Lattice(self.scale)
        clipped = np.array([min(self.clip, max(-self.clip, reward))])
        law = noise.LAPLACE if self.mechanism == "laplace" else noise.GAUSSIAN
        # Quantising rounds towards zero, so the range stays within 2 (B + R).
        drawn = noise.rounded(law, lattice.units, 1, self.entropy)
        return float(lattice.values(lattice.quantise(clipped) + drawn)[0])


def noise_scale(clip: float, epsilon: float, mechanism: str, delta: float) -> float:
    """Scale of the Laplace noise 2 (B + R) / epsilon, or standard deviation of the Gaussian."""
    if mechanism == "laplace":
        return math.nextafter(2.0 * clip / epsilon, math.inf)
    return 2.0 * clip * gaussian_multiplier(epsilon, delta)


@lru_cache(maxsize=64)
def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least standard deviation, per unit of sensitivity, of (epsilon, delta)-privacy.

    Balle and Wang (2018), Theorem 8: the delta of one Gaussian release is
    Phi(1/(2z) - eps z) - e^eps Phi(-1/(2z) - eps z), which falls with z.
    """

    def spent(z: float) -> float:
        above = log_ndtr(0.5 / z - epsilon * z)
        below = epsilon + log_ndtr(-0.5 / z - epsilon * z)
        return float(math.exp(above) * -math.expm1(below - above))

    low, high = 0.0, 1.0
    while spent(high) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if spent(middle) > delta else (low, middle)
    return high * (1.0 + 1e-9)  # what the double precision of `spent` may be off by
