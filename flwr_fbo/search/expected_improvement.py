r"""Expected improvement, as a surface that can be searched like a sampled function.

Notation

==============================================  ==============================  ==========
symbol                                          here                            shape
==============================================  ==============================  ==========
``mu(x), sigma^2(x)``                           ``model.posterior(x)``          (n,), (n,)
``f*``, the best mean at an evaluated point     ``best``                        scalar
``z = (mu - f*) / sigma``                       ``z``                           (n,)
``log sigma (z Phi(z) + phi(z))``               ``surface.value(x)``            (n,)
==============================================  ==============================  ==========

The search climbs the logarithm: after a few evaluations, the improvement itself is zero to the
last bit over most of the space. For a very negative z,
:math:`z \Phi(z) + \phi(z) = \phi(z) (1 + z R)` with Mills' ratio :math:`R = \Phi / \phi`, and
:math:`1 + z R \to 1 / z^2`.

Thompson sampling explores by chance and has the papers' guarantees. Over the first ten or
twenty evaluations, which are all that most parties can afford, expected improvement finds
better points (docs/evidence/defaults.md). Expected improvement is therefore the default where no
guarantee is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import erfcx

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.models.prior_mean import ChainRule, PriorMeanProcess
from flwr_fbo.models.surface import Surface

#: Below this z, 1 + z R is taken from its asymptotic series: the sum would cancel.
FAR = -100.0
#: Above this z, h = z up to an error of e^-18 / 36.
LARGE = 6.0
HALF_PI_ROOT, HALF_LOG_TWO_PI = math.sqrt(0.5 * math.pi), 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Improvement(Surface):
    """The logarithm of the improvement that an evaluation is expected to bring.

    The improvements of A agents, whose models are one object, have best means (A, 1).
    """

    model: PriorMeanProcess
    best: float | Array
    #: Measured by `benchmarks.maxima`.
    peaks_near_incumbents: ClassVar[bool] = True

    @classmethod
    def over(cls, model: PriorMeanProcess) -> Improvement:
        """Return the improvement over the best mean at the model's points, or over 0."""
        if not model.process.y.shape[-1]:
            return cls(model, 0.0)
        best = model.fitted.max(axis=-1, keepdims=True)
        return cls(model, best if best.ndim > 1 else float(best[0]))

    def of(self, agents: Indices | slice) -> Improvement:
        """Return the improvements of some agents, of many."""
        return Improvement(self.model.of(agents), np.asarray(self.best)[agents])

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the log improvement at the rows of x (n, E), to about 1e-3: (n,)."""
        return self._logarithm(*self.model.scan_posterior(x, regions))

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the log improvement at the rows of x (n, E): (n,)."""
        return self._logarithm(*self.model.posterior(x, regions))

    def _logarithm(self, mean: Array, variance: Array) -> Array:
        deviation = np.sqrt(variance)
        return np.asarray(np.log(deviation) + log_gain((mean - self.best) / deviation)[0])

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the log improvement (n,) and its gradient (n, E) at the rows of x (n, E)."""
        return self._differentiated(*self.model.posterior_and_chain_rule(x, regions))

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return :meth:`value_and_gradient` with the shared function to about 1e-6."""
        return self._differentiated(*self.model.posterior_and_chain_rule_for_climbing(x, regions))

    def _differentiated(
        self, mean: Array, variance: Array, chain_rule: ChainRule
    ) -> tuple[Array, Array]:
        deviation = np.sqrt(variance)
        logarithm, by_density, by_tail = log_gain((mean - self.best) / deviation)
        # d log EI = (phi d sigma + Phi d mu) / (sigma h), and d sigma = d sigma^2 / (2 sigma).
        gradient = chain_rule(by_tail / deviation, by_density / (2.0 * variance))
        return np.log(deviation) + logarithm, gradient


def log_gain(z: Array) -> tuple[Array, Array, Array]:
    """Return log h for h = z Phi(z) + phi(z), and phi / h and Phi / h: (n,) each."""
    mills = HALF_PI_ROOT * erfcx(np.minimum(z, LARGE) * -(0.5**0.5))  # Phi / phi
    if not z.size or z.min() < FAR or z.max() > LARGE:
        return _log_gain_of_any(z, mills)
    share = 1.0 + z * mills  # h / phi
    return np.log(share) - 0.5 * z * z - HALF_LOG_TWO_PI, 1.0 / share, mills / share


def _log_gain_of_any(z: Array, mills: Array) -> tuple[Array, Array, Array]:
    """Return :func:`log_gain` for z of any size, given Phi / phi (n,)."""
    far = np.minimum(z, -1.0)
    series = (1.0 - 3.0 / far**2) / far**2  # 1 + z R for z -> -infinity
    # np.where evaluates both branches, and the branch not taken may overflow or be invalid.
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.where(z < FAR, series, 1.0 + z * mills)
        logarithm = np.log(share) - 0.5 * z * z - HALF_LOG_TWO_PI
        by_density, by_tail = 1.0 / share, mills / share
    large = z > LARGE
    return (
        np.where(large, np.log(np.maximum(z, 1.0)), logarithm),
        np.where(large, 0.0, by_density),
        np.where(large, 1.0 / np.maximum(z, 1.0), by_tail),
    )
