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

Its logarithm is what is climbed: improvement itself is zero to the last bit over most of the
space after a few evaluations. For a very negative z,
:math:`z \Phi(z) + \phi(z) = \phi(z) (1 + z R)` with Mills' ratio :math:`R = \Phi / \phi`, and
:math:`1 + z R \to 1 / z^2`.

Thompson sampling explores by chance and has the papers' guarantees. Over the first ten or
twenty evaluations, which are all that most parties can afford, expected improvement finds
better points (docs/defaults.md), so that it is the default where nothing needs the guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import erfcx

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.models.prior_mean import TrendedProcess
from flwr_fbo.search.candidates import NearIncumbents

#: Below this z, 1 + z R is taken from its asymptotic series: the sum would cancel.
FAR = -100.0
#: Above this one, h = z but for e^-18 / 36.
LARGE = 6.0
HALF_PI_ROOT, HALF_LOG_TWO_PI = math.sqrt(0.5 * math.pi), 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Improvement:
    """The log of the improvement that an evaluation is expected to bring."""

    model: TrendedProcess
    best: float
    #: Which search finds its top (`benchmarks.maxima`).
    search: ClassVar[NearIncumbents] = NearIncumbents()

    @classmethod
    def over(cls, model: TrendedProcess) -> Improvement:
        """Over the best of the model's own points; over its prior mean's zero without any."""
        if not len(model.process.y):
            return cls(model, 0.0)
        return cls(model, float(model.fitted.max()))

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """See :meth:`flwr_fbo.models.gp.Path.scan`."""
        return self._at(x, regions, roughly=True)

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """At the rows of x (n, E): (n,)."""
        return self._at(x, regions, roughly=False)

    def _at(self, x: Array, regions: Indices | None, roughly: bool) -> Array:
        mean, variance = self.model.posterior(x, regions, roughly)
        deviation = np.sqrt(variance)
        return np.asarray(np.log(deviation) + log_gain((mean - self.best) / deviation)[0])

    def value_and_gradient(
        self, x: Array, regions: Indices | None = None, roughly: bool = False
    ) -> tuple[Array, Array]:
        """With the gradient (n, E): d log EI = (d sigma + (Phi / phi) d mu) phi / EI.

        Roughly is with the advice in single precision, to climb by.
        """
        mean, variance, pull = self.model.posterior_and_pull(x, regions, roughly)
        deviation = np.sqrt(variance)
        logarithm, by_density, by_tail = log_gain((mean - self.best) / deviation)
        gradient = pull(by_tail / deviation, by_density / (2.0 * variance))
        return np.log(deviation) + logarithm, gradient

    def to_climb(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """:meth:`value_and_gradient`, roughly."""
        return self.value_and_gradient(x, regions, roughly=True)


def log_gain(z: Array) -> tuple[Array, Array, Array]:
    """log h for h = z Phi(z) + phi(z), and phi / h and Phi / h: three of (n,)."""
    mills = HALF_PI_ROOT * erfcx(np.minimum(z, LARGE) * -(0.5**0.5))  # Phi / phi
    if not len(z) or z.min() < FAR or z.max() > LARGE:
        return _log_gain_of_any(z, mills)
    share = 1.0 + z * mills  # h / phi
    return np.log(share) - 0.5 * z * z - HALF_LOG_TWO_PI, 1.0 / share, mills / share


def _log_gain_of_any(z: Array, mills: Array) -> tuple[Array, Array, Array]:
    far = np.minimum(z, -1.0)
    series = (1.0 - 3.0 / far**2) / far**2
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
