r"""(LDP-)ATA-GP-UCB, Algorithm 1: rewards are truncated in feature space, anew at each step.

Notation

=====================  =============================================================  ==========
paper                  here                                                           shape
=====================  =============================================================  ==========
``b_t``                ``level``                                                      scalar
``u_{i,tau}``          ``domain.project(root, keys)``                                 (m, c)
``r_i``                ``mean``: weights of the mean are the r_i themselves           (m,)
``m_t``                ``posterior.dimension``                                        int
=====================  =============================================================  ==========

**Exact, at a cost per step that does not grow with t.** A reward of an arm with N plays can be
truncated only if :math:`|y| \, |u_i| > b` for some i, and
:math:`\|u\|^2 = \phi' V^{-1} \phi \le 1 / (N + \lambda / k(x,x))`. So only rewards above
:math:`b \sqrt{N + \lambda / k}` must be kept one by one; all others enter their arm's sum
*for ever*, as this level only rises. By Markov's inequality an arm keeps at most
:math:`N v / (b^2 N) = v / b^2 = \ln(4 m T / \delta)` rewards in expectation (one, in practice),
whatever N is and however heavy the tail. On a space that is not finite every play has its own
:math:`\|u_\tau\|^2`, which only falls, and the same argument holds with its value.

Decisions where the paper is silent or inconsistent:

- The square root of V: any (see :mod:`posterior`).
- One level b_t for all terms of a sum at time t, though line 9 prints b_tau: Bernstein's
  inequality, for which b was chosen, is applied to whole sums.
- The lines omit the Nystrom step, which belongs after line 5.
- Theorem 2's width lacks no term: B (1 + 1/sqrt(1-eps)) + 4 sqrt(ln(4 m T/delta) v m / lambda);
  with exact features its first part is B.
- In practice b = sqrt(v): the theorem's level cuts off the *mean* of the first
  :math:`\ln(4 m T / \delta)` rewards of an arm whenever it is not small against sqrt(v), and
  on real data the learner then settles on what it tried first.
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
    """Adaptively truncated approximate GP-UCB; private or not by its reward model."""

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        super().__init__(domain, settings, seed)
        self.sums = np.zeros(len(domain.features))  # (n,), rewards that are never truncated
        self.keys = domain.no_keys()  # (c, ...), plays whose rewards may be
        self.rewards = np.zeros(0)  # (c,)
        self._mean = np.zeros(self.posterior.dimension)

    @property
    def mean(self) -> Array:
        """See :class:`UpperConfidence`: lines 10 and 11, mu(x) = U_x' r."""
        return self._mean

    def _logarithm(self, dimension: int) -> float:
        return math.log(4.0 * max(dimension, 1) * self.settings.budget / self.settings.failure)

    def level(self, dimension: int) -> float:
        """Theorem 2: b = sqrt(v / ln(4 m T / delta)); without the logarithm in practice."""
        logarithm = self._logarithm(dimension) if self.theory else 1.0
        return math.sqrt(self.model.second_moment / logarithm)

    def theory_width(self) -> float:
        """Theorem 2: beta = B (1 + ...) + 4 sqrt(ln(4 m T / delta) v m / lambda)."""
        m = self.posterior.dimension
        variance = self._logarithm(m) * self.model.second_moment * m / self.regularisation
        return self.bias_width + 4.0 * math.sqrt(variance)

    def _learn(self, key: Keys, rewards: Array) -> None:
        self._condition(key)
        self.keys = np.concatenate([self.keys, key])
        self.rewards = np.concatenate([self.rewards, rewards])
        columns = self.domain.project(self.posterior.root, self.keys)  # (m, c)
        kept = self._settle(columns)
        terms = columns[:, kept] * self.rewards  # (m, c)
        terms[np.abs(terms) > self.level(self.posterior.dimension)] = 0.0
        self._mean = self.posterior.root @ self.sums + terms.sum(axis=1)  # line 9

    def _settle(self, columns: Array) -> NDArray[np.bool_]:
        """Move the rewards that can never be truncated again into the sums; which are left."""
        if self.sampled:  # a new sample may raise |u|, but never above this; and m <= n
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
        """See :class:`Learner`."""
        return super().state_dict() | {
            "sums": self.sums.copy(),
            "keys": self.keys.copy(),
            "rewards": self.rewards.copy(),
            "mean": self._mean.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`Learner`."""
        super().load_state_dict(state)
        self.sums = np.array(state["sums"], dtype=np.float64)
        self.keys = np.array(state["keys"])
        self.rewards = np.array(state["rewards"], dtype=np.float64)
        self._mean = np.array(state["mean"], dtype=np.float64)
