r"""(LDP-)TGP-UCB, Algorithm 2: each reward is truncated once, when it arrives.

The truncation depends only on the number of the play. The mean therefore needs only the truncated
rewards added up by arm.

Decisions where the paper is silent or inconsistent:

- ``ln(t - 1)`` at t = 1: nothing has been observed, so :math:`\beta_1 = B` (because
  :math:`|f(x)| \le B \sigma_0(x)`), and b_0 is never used.
- ``gamma_{t-1}`` is the information gained by the plays that were made. The self-normalised
  inequality gives this number; the maximum over all plays, as printed, is a bound on it.
- ``sigma_0(x)`` is sqrt(k(x, x)), though the algorithms print k(x, x).
- ``2 b_t`` as the sub-Gaussian constant of a variable within [-b_t, b_t] is kept as printed.
  Hoeffding's lemma gives b_t; the factor pays for using the inequality at every t at once.
- Line 6 prints mu with a tilde and line 9 prints mu with a hat: both are the same.
- ``orders``, of private rewards: Algorithm 2 states its width, which is used as it is. Without
  privacy: B + b sqrt((gamma + ln(1/delta)) / lambda). The bias of truncation has the same order
  in t and is left out.
- Without privacy (finite second moment) the bias of truncation adds
  :math:`\sqrt{2 v \sqrt{t} / \lambda}`, derived in :mod:`flwr_fbo.methods.ldp.rewards`.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.ldp.learner import GPUCB


class TGP(GPUCB):
    """Truncated GP-UCB, for private rewards or heavy tails, as the reward model says."""

    def _truncated(self, rewards: Array) -> Array:
        level = self.model.level(self.updates + 1)  # b_t
        return np.where(np.abs(rewards) <= level, rewards, 0.0)  # line 8

    def theory_width(self) -> float:
        """Return beta_t (line 5)."""
        t = self.updates  # the paper's t - 1
        if t == 0:
            return self.norm
        gained = self.posterior.information + math.log(1.0 / self.settings.failure)
        noise = 2.0 * math.sqrt(2.0) * self.model.level(t) * math.sqrt(gained)
        bias = self.model.truncation_bias(t)
        return self.norm + (noise + bias) / math.sqrt(self.regularisation)

    def order_width(self) -> float:
        """Return beta_t: Algorithm 2's for private rewards, and its order otherwise."""
        t = self.updates
        if t == 0 or self.model.noise != "none":
            return self.theory_width()
        gained = self.posterior.information + math.log(1.0 / self.settings.failure)
        return self.norm + self.model.level(t) * math.sqrt(gained / self.regularisation)
