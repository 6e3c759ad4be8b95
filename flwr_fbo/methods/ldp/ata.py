r"""(LDP-)ATA-GP-UCB, Algorithm 1: rewards are truncated in feature space, anew at each step.

Notation

=====================  =============================================================  ==========
paper                  here                                                           shape
=====================  =============================================================  ==========
``b_t``                ``level``                                                      scalar
``u_{i,tau}``          ``domain.project(root, keys)``                                 (m, c)
``r_i``                ``mean``, the weights of the mean                              (m,)
``m_t``                ``posterior.dimension``                                        int
=====================  =============================================================  ==========

**The mean is exact, and the cost of a step does not grow with t.** A reward of an arm with N plays
can be truncated only if :math:`|y| \, |u_i| > b` for some i, and
:math:`\|u\|^2 = \phi' V^{-1} \phi \le 1 / (N + \lambda / k(x,x))`. So only rewards above
:math:`b \sqrt{N + \lambda / k}` must be kept one by one. This level only rises, so all other
rewards are added to their arm's sum for good. By Markov's inequality an arm keeps at most
:math:`N v / (b^2 N) = v / b^2 = \ln(4 m T / \delta)` rewards in expectation (one, in practice),
for any N and any tail. On a space that is not finite every play has its own
:math:`\|u_\tau\|^2`, which only falls, and the same argument holds with its value.

Decisions where the paper is silent or inconsistent:

- Any square root of V is used (see :mod:`flwr_fbo.methods.ldp.posterior`).
- All terms of a sum at time t have one level b_t, though line 9 prints b_tau: Bernstein's
  inequality, for which b was chosen, is applied to whole sums.
- The lines omit the Nystrom step, which belongs after line 5.
- The width of Theorem 2, B (1 + 1/sqrt(1-eps)) + 4 sqrt(ln(4 m T/delta) v m / lambda), is complete;
  with exact features its first part is B.
- In practice b = sqrt(v). The theorem's level cuts off the *mean* of an arm's first
  :math:`\ln(4 m T / \delta)` rewards whenever the mean is not small against sqrt(v), and on real
  data the learner then keeps playing the arm that it tried first.
- ``orders`` has the level sqrt(v / ln((m+1) T)) and the width
  B + sqrt(m v ln((m+1) T) / lambda), as the public code of the method that the paper builds on.
- With an empty dictionary (m = 0) there is nothing to truncate, and b_t takes m = 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.ldp.domain import Domain, Keys
from flwr_fbo.methods.ldp.nystrom import Embedded
from flwr_fbo.methods.ldp.settings import LDPSettings


class ATA(Embedded):
    """Adaptively truncated approximate GP-UCB, for private rewards or heavy tails."""

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        super().__init__(domain, settings, seed)
        self.sums = np.zeros(len(domain.features))  # (n,), rewards that are never truncated
        self.keys = domain.no_keys()  # (c, ...), plays whose rewards may be truncated
        self.rewards = np.zeros(0)  # (c,), the rewards of these plays
        self._mean = np.zeros(self.posterior.dimension)

    @property
    def mean(self) -> Array:
        """Return the weights r of the mean, mu(x) = U_x' r (lines 10-11): (m,)."""
        return self._mean

    def _logarithm(self, dimension: int) -> float:
        """Return ln(4 m T / delta), or ln((m + 1) T) for its order."""
        if not self.theory:
            return math.log((dimension + 1.0) * self.settings.budget)
        return math.log(4.0 * max(dimension, 1) * self.settings.budget / self.settings.failure)

    def level(self, dimension: int) -> float:
        """Return b = sqrt(v / ln(4 m T / delta)) (Theorem 2), or sqrt(v) in practice."""
        logarithm = 1.0 if self.practical else self._logarithm(dimension)
        return math.sqrt(self.model.second_moment / logarithm)

    def theory_width(self) -> float:
        """Return beta = B (1 + ...) + 4 sqrt(ln(4 m T / delta) v m / lambda) (Theorem 2)."""
        return self.bias_width + 4.0 * self._deviation()

    def order_width(self) -> float:
        """Return beta = B + sqrt(ln((m + 1) T) v m / lambda)."""
        return self.norm + self._deviation()

    def _deviation(self) -> float:
        """Return sqrt(logarithm * v m / lambda)."""
        m = self.posterior.dimension
        variance = self._logarithm(m) * self.model.second_moment * m / self.regularisation
        return math.sqrt(variance)

    def _learn(self, key: Keys, rewards: Array) -> None:
        self._condition(key)
        self.keys = np.concatenate([self.keys, key])
        self.rewards = np.concatenate([self.rewards, rewards])
        columns = self.domain.project(self.posterior.root, self.keys)  # (m, c)
        kept = self._move_small_rewards(columns)
        terms = columns[:, kept] * self.rewards  # u_i y: (m, c)
        terms[np.abs(terms) > self.level(self.posterior.dimension)] = 0.0
        self._mean = self.posterior.root @ self.sums + terms.sum(axis=1)  # line 9

    def _move_small_rewards(self, columns: Array) -> NDArray[np.bool_]:
        """Add rewards that can never be truncated to the sums; return which are kept: (c,)."""
        if self.sampled:
            # A new sample may raise |u|, but never above 1 / (N + lambda / k); and m <= n.
            assert self.domain.covariance is not None
            prior = np.diag(self.domain.covariance)
            largest = 1.0 / (self.counts + self.regularisation / prior)[self.keys]
            lowest = self.level(len(prior))
        else:
            largest = np.einsum("mc,mc->c", columns, columns)
            lowest = self.level(len(columns))
        kept = np.abs(self.rewards) * np.sqrt(largest) > lowest
        self.sums += self.domain.scatter(self.keys[~kept], self.rewards[~kept])
        self.keys, self.rewards = self.keys[kept], self.rewards[kept]
        return np.asarray(kept)

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return super().state_dict() | {
            "sums": self.sums.copy(),
            "keys": self.keys.copy(),
            "rewards": self.rewards.copy(),
            "mean": self._mean.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        super().load_state_dict(state)
        self.sums = np.array(state["sums"], dtype=np.float64)
        self.keys = np.array(state["keys"])
        self.rewards = np.array(state["rewards"], dtype=np.float64)
        self._mean = np.array(state["mean"], dtype=np.float64)
