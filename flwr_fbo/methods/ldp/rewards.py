r"""The model of rewards: bounds and moments of what a learner receives, private or not.

Notation

=================  ==============================================  ==========
paper              here                                            shape
=================  ==============================================  ==========
``B``, ``R``       ``bound``, ``noise_bound``                      scalar
``L = 2(B+R)/e``   ``scale`` of the Laplace noise                  scalar
``v``, ``K``       ``second_moment`` of a received reward          scalar
``c``              ``noise_variance`` of a received reward         scalar
``b_t``            ``model.level(t)``, TGP's truncation            scalar
=================  ==============================================  ==========

Theorem 2: :math:`v = B^2 + R^2 + 8(B+R)^2/\epsilon^2`. Corollary 1:
:math:`c = R^2 + 8(B+R)^2/\epsilon^2`. The last term is the variance of the noise that privacy
adds. (Theorem 2 prints the accuracy of the embedding in place of epsilon. This is a slip: Remark 2
substitutes the privacy parameter.) ``K`` of Algorithm 2 is the same number as ``v``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.ldp.curator import curator
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.privacy.local import LaplaceReward


@dataclass(frozen=True)
class RewardModel:
    """Bounds and moments of the rewards as they arrive at the server, private or not."""

    bound: float
    noise_bound: float
    second_moment: float
    noise_variance: float
    noise: Literal["none", "laplace", "gaussian"] = "none"
    scale: float = 0.0

    @classmethod
    def of(cls, settings: LDPSettings) -> RewardModel:
        """Return the model that the settings describe."""
        B, R = settings.bound, settings.noise_bound
        # A zero-mean noise within [-R, R] has a variance of at most R^2.
        second = B**2 + R**2 if settings.second_moment is None else settings.second_moment
        variance = R**2 if settings.noise_variance is None else settings.noise_variance
        if not settings.private:
            return cls(B, R, second, variance)
        if settings.epsilon_per_answer is None:
            raise SettingsError(
                "`epsilon-per-answer` must be stated for a learner by itself; a run of N agents "
                "computes it from `epsilon`"
            )
        mechanism = curator(settings.to_mapping())
        if isinstance(mechanism, LaplaceReward):
            scale, added = mechanism.scale, 2.0 * mechanism.scale**2  # 8 (B+R)^2 / epsilon^2
        else:
            scale = mechanism.mechanism.deviation
            added = scale**2
        return cls(B, R, second + added, variance + added, settings.mechanism, scale)

    def level(self, t: int) -> float:
        """Return the level b_t at which TGP truncates the reward of play ``t``, from 1.

        Private rewards (Algorithm 2): B + R plus a bound that the privacy noise exceeds with
        probability at most 1/t. The bound is L ln t for Laplace noise and, by the same argument,
        sigma sqrt(2 ln t) for Gaussian noise. Rewards that are not private, with a finite second
        moment (alpha = 1): sqrt(v) t^(1/4).
        """
        if self.noise == "laplace":
            return self.bound + self.noise_bound + self.scale * math.log(t)
        if self.noise == "gaussian":
            return self.bound + self.noise_bound + self.scale * math.sqrt(2.0 * math.log(t))
        return float(math.sqrt(self.second_moment) * t**0.25)

    def truncation_bias(self, t: int) -> float:
        """Return a bound on the norm of what truncation removes from the first ``t`` means.

        Private rewards: E[y 1{|y|>b_i}]^2 <= K / i (Cauchy-Schwarz), so sqrt(K (ln t + 1)). Heavy
        tails: E[|y| 1{|y|>b_i}] <= v / b_i, so the sum of squares is at most
        v sum_i i^(-1/2) <= 2 v sqrt(t).
        """
        if self.noise == "none":
            return math.sqrt(2.0 * self.second_moment * math.sqrt(t))
        return math.sqrt(self.second_moment * (math.log(t) + 1.0))
