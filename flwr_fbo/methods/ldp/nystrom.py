r"""The Nystrom step of ATA and MoMA on finite arms.

Notation

=====================  ===========================================================  ==========
paper                  here                                                         shape
=====================  ===========================================================  ==========
``q``                  ``oversampling``                                             scalar
``sigma_{t-1}(x)``     ``variances`` ** 0.5, before the step                        (n,)
``varepsilon``         ``settings.accuracy``                                        scalar
``m_t``                ``posterior.dimension``                                      int
=====================  ===========================================================  ==========

Every play so far enters the dictionary with probability min(q sigma^2(x), 1), drawn anew at
each step. On finite arms one draw for each arm is enough: after n plays the arm is in with
probability :math:`1 - (1 - p)^n`.

This step differs from the exact eigen-features in three ways. The mean lives in the span of the
sampled arms. The bound's first term grows from B to :math:`B (1 + (1-\varepsilon)^{-1/2})`. And
everything is factorised anew at each step, O(m^2 n), where the exact features need O(m n). On
finite arms the step is for comparison only: the exact features are both cheaper and better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from flwr_fbo.methods.ldp.domain import Domain, Keys
from flwr_fbo.methods.ldp.learner import UpperConfidence
from flwr_fbo.methods.ldp.posterior import nystrom_posterior
from flwr_fbo.methods.ldp.settings import LDPSettings


class Embedded(UpperConfidence):
    """A learner whose features may be a Nystrom sample, drawn anew at each update."""

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        super().__init__(domain, settings, seed)
        self.sampled = settings.embedding == "nystrom"
        if self.sampled and domain.covariance is None:
            raise ValueError(
                "`embedding` must be exact on a space that is not finite (random features "
                "stand in for the kernel there), but got 'nystrom'"
            )
        self.counts = np.zeros(len(domain.features))  # (n,)

    @property
    def oversampling(self) -> float:
        """Return q: 6 rho ln(4T/delta) / eps^2 in the theorems, ln(T) / eps^2 in practice."""
        accuracy, T = self.settings.accuracy, self.settings.budget
        if not self.theory:
            return math.log(max(T, 2)) / accuracy**2
        rho = (1.0 + accuracy) / (1.0 - accuracy)
        return 6.0 * rho * math.log(4.0 * T / self.settings.failure) / accuracy**2

    @property
    def bias_width(self) -> float:
        """Return B (1 + 1/sqrt(1 - eps)), or B where the features are exact."""
        if not self.sampled:
            return self.norm
        # The second part is the error of the embedding.
        return self.norm * (1.0 + 1.0 / math.sqrt(1.0 - self.settings.accuracy))

    def _condition(self, key: Keys) -> None:
        """Count one play (or epoch) of an arm in V, and sample new features if they are sampled."""
        if not self.sampled:
            self.posterior.add(self.domain.project(self.posterior.root, key)[:, 0])
            return
        assert self.domain.covariance is not None
        probability = np.minimum(self.oversampling * self.posterior.variances(), 1.0)  # (n,)
        self.counts[key] += 1.0
        # The first update draws too, so an empty dictionary is possible and is handled.
        rng = np.random.default_rng([self.seed, self.updates, 2])
        inside = rng.random(len(self.counts)) < 1.0 - (1.0 - probability) ** self.counts
        self.posterior = nystrom_posterior(
            self.domain.covariance, self.counts, np.flatnonzero(inside), self.regularisation
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return super().state_dict() | {"counts": self.counts.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        super().load_state_dict(state)
        self.counts = np.array(state["counts"], dtype=np.float64)
