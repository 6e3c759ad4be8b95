"""Surfaces weighed by the probability that an evaluation succeeds.

Notation

=====================================  =====================================  ==========
symbol                                 here                                   shape
=====================================  =====================================  ==========
``a(x)``, what is maximised without
failures                               ``surface``                            a function
``p(x) = Pr[success at x]``            ``success``                            a function
``w``                                  ``CAUTION``                            scalar
``log a(x) + w log p(x)``              :class:`WeighedLogarithm`              a function
``(a(x) - floor) p(x)^w``              :class:`Weighed`                       a function
=====================================  =====================================  ==========

With w = 1 this is the constrained expected improvement of Gelbart, Snoek and Adams (2014). An agent
then walks along the border of the region that fails, where improvements are often largest, and
many of its evaluations fail. With w = 3 fewer fail, and as much is found (docs/evidence/agent.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.models.success import SuccessModel
from flwr_fbo.models.surface import Surface

#: The power of the probability of success that an acquisition is multiplied by.
CAUTION = 3.0


@dataclass(frozen=True, eq=False)
class WeighedLogarithm(Surface):
    """The logarithm of an acquisition plus ``CAUTION`` log Pr[success]."""

    surface: Surface
    success: SuccessModel

    @property
    def peaks_near_incumbents(self) -> bool:  # type: ignore[override]
        """Return whether the acquisition may peak beside the best evaluated points."""
        return self.surface.peaks_near_incumbents

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the sum at the rows of x (n, E), to about 1e-3: (n,)."""
        return np.asarray(self.surface.scan(x, regions) + CAUTION * self.success.scan(x))

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the sum at the rows of x (n, E): (n,)."""
        return np.asarray(self.surface.value(x, regions) + CAUTION * self.success.logarithm(x))

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the sum (n,) and its gradient (n, E) at the rows of x (n, E)."""
        return self._sum(x, *self.surface.value_and_gradient(x, regions))

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return :meth:`value_and_gradient`, with the acquisition to about 1e-6."""
        return self._sum(x, *self.surface.value_and_gradient_for_climbing(x, regions))

    def _sum(self, x: Array, value: Array, gradient: Array) -> tuple[Array, Array]:
        logarithm, slope = self.success.logarithm_and_gradient(x)
        return value + CAUTION * logarithm, gradient + CAUTION * slope


@dataclass(frozen=True, eq=False)
class Weighed(Surface):
    """What a function is above a floor, times Pr[success] to the power ``CAUTION``.

    The functions are samples and shared functions, which have any scale and any sign. The floor is
    the value that a failure is worth: the function's least value at the evaluated points.
    """

    surface: Surface
    success: SuccessModel
    floor: float

    @property
    def peaks_near_incumbents(self) -> bool:  # type: ignore[override]
        """Return whether the function may peak beside the best evaluated points."""
        return self.surface.peaks_near_incumbents

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the product at the rows of x (n, E), to about 1e-3: (n,)."""
        return self._product(self.surface.scan(x, regions), self.success.scan(x))

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the product at the rows of x (n, E): (n,)."""
        return self._product(self.surface.value(x, regions), self.success.logarithm(x))

    def _product(self, value: Array, logarithm: Array) -> Array:
        return np.asarray((value - self.floor) * np.exp(CAUTION * logarithm))

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the product (n,) and its gradient (n, E) at the rows of x (n, E)."""
        return self._differentiated(x, *self.surface.value_and_gradient(x, regions))

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return :meth:`value_and_gradient`, with the function to about 1e-6."""
        return self._differentiated(x, *self.surface.value_and_gradient_for_climbing(x, regions))

    def _differentiated(self, x: Array, value: Array, gradient: Array) -> tuple[Array, Array]:
        logarithm, slope = self.success.logarithm_and_gradient(x)
        weight, above = np.exp(CAUTION * logarithm), value - self.floor
        total = gradient + CAUTION * above[:, None] * slope
        return above * weight, weight[:, None] * total
