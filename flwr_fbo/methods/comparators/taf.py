r"""TAF (Wistuba, Schilling and Schmidt-Thieme 2018): a transfer acquisition function.

Notation

=======================  =============================================  ======
paper                    here                                           shape
=======================  =============================================  ======
``d(n, target)``         ``distances``, share of pairs ranked apart     (N,)
``rho``                  ``settings.bandwidth``                         scalar
``delta(d / rho)``       ``weights``, Epanechnikov's 3/4 (1 - u^2)      (N,)
``EI(x)``                of the target's own model                      (n,)
``I_n(x)``               improvement that agent n's model predicts      (n,)
=======================  =============================================  ======

    a(x) = (w EI(x) + sum_n w_n I_n(x)) / (w + sum_n w_n),   w = delta(0) = 3/4

The method has two stages: a model of every agent, then weights by how alike the agents rank the
points that the target has evaluated (TAF-R). ``I_n(x)`` is the improvement over the best value
that model n predicts among those points. The other agents therefore only matter where their
models predict something better than all points tried.

Decisions:

- The distance is the share of discordant pairs, in [0, 1]. The bandwidth of .5 gives no weight to
  agents that rank no better than chance.
- FTS says that TAF must be sent the incumbent. The published method compares with its own
  predictions, and so does this module. ``benchmarks/reproduce`` also runs the form of FTS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import above, setting
from flwr_fbo.methods.comparators.transfer import (
    TransferAgent,
    TransferSettings,
    expected_improvement,
)
from flwr_fbo.models.gp import GaussianProcess

#: delta(0), the largest weight: that of the target itself.
OWN_WEIGHT = 0.75


@dataclass(frozen=True)
class TAFSettings(TransferSettings):
    """Settings of the weights of other agents."""

    bandwidth: float = setting(
        0.5, "share of discordant pairs from which an agent has no weight (rho)", above(0)
    )


class TAFAgent(TransferAgent[TAFSettings]):
    """The target's expected improvement, mixed with improvements that other models predict."""

    #: Weights of the other agents: (N,).
    weights: Array
    _reference: Array  # (N,), the best prediction among the target's points

    def _weigh(self, model: GaussianProcess, rng: np.random.Generator) -> None:
        predicted = self.surrogates.mean(model.x)  # (N, t)
        distances = discordance(predicted, model.y)
        self.weights = epanechnikov(distances / self.settings.bandwidth)
        self._reference = self._values_to_beat(predicted)

    def _values_to_beat(self, predicted: Array) -> Array:
        """Return what a prediction of each other agent's model must exceed to be a gain: (N,)."""
        return predicted.max(axis=1) if len(predicted) else np.zeros(0)

    def _acquisition(self, model: GaussianProcess, x: Array) -> Array:
        mean, variance = model.posterior(x)
        own = expected_improvement(mean, variance, float(model.y.max()))
        if not self.weights.any():
            return own
        gains = np.maximum(self.surrogates.mean(x) - self._reference[:, None], 0.0)  # I_n: (N, n)
        total = OWN_WEIGHT + self.weights.sum()
        return np.asarray((OWN_WEIGHT * own + self.weights @ gains) / total)


def epanechnikov(u: Array) -> Array:
    """Return 3/4 (1 - u^2) up to u = 1, and 0 beyond."""
    return np.asarray(np.where(u <= 1.0, OWN_WEIGHT * (1.0 - u * u), 0.0))


def discordance(predicted: Array, y: Array) -> Array:
    """Return the share of pairs of y (t,) that predictions (N, t) rank in another order: (N,).

    Where no two scores differ, no pair can be compared, and the share is one half.
    """
    above = np.triu(np.ones((len(y), len(y)), dtype=bool), 1) & (y[:, None] != y[None, :])
    if not above.any():
        return np.full(len(predicted), 0.5)
    first, second = np.nonzero(above)
    wrong = (predicted[:, first] > predicted[:, second]) != (y[first] > y[second])
    return np.asarray(wrong.mean(axis=1))
