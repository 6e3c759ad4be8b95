r"""(LDP-)MoMA-GP-UCB, Algorithm 3: median of means over k least-squares estimates.

Notation

==========================  ==================================================  ==========
paper                       here                                                shape
==========================  ==================================================  ==========
``k``                       ``plays``                                           int
``n``                       ``updates``, epochs so far                          int
``y_{i,j}``                 ``sums``: by estimate and tracked column            (k, n)
``V^{1/2} theta_j``         ``estimates``                                       (k, m)
``r_j``, ``k*``             ``spread``, ``chosen``                              (k,), int
==========================  ==================================================  ==========

An epoch is k plays of one arm, and counts once in V. Estimate j uses the j-th reward of every
epoch, so its weights are :math:`U s_j`, and :math:`\|\theta_j - \theta_s\|_V` is a Euclidean
distance.

Decisions where the paper is silent or inconsistent:

- The width's exponent: Theorem 4 has :math:`n^{(1-\alpha)/(2(1+\alpha))}`, its proof and
  Corollary 1 :math:`n^{1/(2(1+\alpha))}`. For alpha = 1 (a finite variance, all that is needed
  here) the first is 1 and is right: :math:`E\|V^{-1/2}\Phi^T\eta\|^2 \le m c` by
  :math:`\sum_\tau u_{i\tau}^2 \le 1`, so Markov's inequality needs no power of n.
- The factor :math:`\lambda^{-1/2}`, which the proof has and the theorem lacks, is kept.
- Corollary 1 has beta with alpha, but noise of finite variance: alpha is 1.
- k = ceil(24 ln(4eT/delta)) in the theorem, and 2eT within its proof: the theorem is followed.
- Plays left over when k does not divide T: the last epoch is cut short. Its point is played
  for what is left, and its rewards are not used.
- k must be at least 2, because one estimate has no median distance. For ties the first j is
  chosen.
- ``orders`` has the width B + sqrt(m c / lambda) and the epochs of ``practical``.
- In practice k is :data:`PRACTICAL_EPOCH`. The theorem's 279 plays in an epoch at T = 1,000 leave
  three epochs to learn in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.ldp.domain import Domain, Keys
from flwr_fbo.methods.ldp.nystrom import Embedded
from flwr_fbo.methods.ldp.settings import LDPSettings

#: Plays in one epoch but with the theorem's constants.
PRACTICAL_EPOCH = 5


class MoMA(Embedded):
    """Median-of-means GP-UCB, for private rewards or heavy tails, as the reward model says."""

    practical_exploration = 0.3

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        super().__init__(domain, settings, seed)
        self.plays = epoch_length(settings)
        self.sums = np.zeros((self.plays, len(domain.features)))  # (k, n)
        self._mean = np.zeros(self.posterior.dimension)  # (m,)

    @property
    def mean(self) -> Array:
        """Return the weights of the chosen estimate (line 13): (m,)."""
        return self._mean

    def theory_width(self) -> float:
        """Return beta_{n+1} = B (1 + ...) + 3 sqrt(9 m c / lambda), for alpha = 1."""
        m = self.posterior.dimension
        return self.bias_width + 3.0 * math.sqrt(
            9.0 * m * self.model.noise_variance / self.regularisation
        )

    def order_width(self) -> float:
        """Return beta_{n+1} = B + sqrt(m c / lambda)."""
        m = self.posterior.dimension
        return self.norm + math.sqrt(m * self.model.noise_variance / self.regularisation)

    def _learn(self, key: Keys, rewards: Array) -> None:
        self.sums += np.multiply.outer(rewards, self.domain.scatter(key, np.ones(1)))
        self._condition(key)  # lines 7-9
        self._mean = median_of_means(self.sums @ self.posterior.root.T)  # lines 10-13

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return super().state_dict() | {"sums": self.sums.copy(), "mean": self._mean.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        super().load_state_dict(state)
        self.sums = np.array(state["sums"], dtype=np.float64)
        self._mean = np.array(state["mean"], dtype=np.float64)


def median_of_means(estimates: Array) -> Array:
    """Return the estimate (of k, m) with the least median distance to the others (lines 11-12)."""
    distances = squareform(pdist(estimates))  # (k, k)
    np.fill_diagonal(distances, np.nan)
    spread = np.nanmedian(distances, axis=1)  # r_j
    return np.asarray(estimates[int(spread.argmin())])  # k*


def epoch_length(settings: LDPSettings) -> int:
    """Return k, or raise SettingsError where the budget does not hold one epoch."""
    T = settings.budget
    theory = math.ceil(24.0 * math.log(4.0 * math.e * T / settings.failure))
    k = settings.epoch or (theory if settings.constants == "theory" else PRACTICAL_EPOCH)
    if k < 2:
        raise SettingsError(f"`epoch` must be >= 2 for MoMA, but got {k}")
    if k > T:
        raise SettingsError(
            f"`budget` must be >= {k}, the plays in one epoch of MoMA (k), or `epoch` must be "
            f"smaller, but got (budget={T}, epoch={k})"
        )
    return k
