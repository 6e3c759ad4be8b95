"""The interface between models and searches: a surface is a function that can be maximised.

A search asks a surface for values at three levels of precision: a scan of many points, values
and gradients to climb by, and exact values to compare the last few points by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from flwr_fbo.core.arrays import Array, Indices


class Surface(ABC):
    """A function of embedded points: a sampled function, or an acquisition function.

    Rows of ``x`` are embedded points (n, E). ``regions`` (n,) holds the number of the sub-region
    that each row lies in; only a surface with one function per sub-region needs ``regions``.

    A subclass defines the exact function. Where a less precise answer costs less, the subclass
    also overrides :meth:`scan` and :meth:`value_and_gradient_for_climbing`.
    """

    #: Whether a narrow peak may lie beside the best evaluated points, where points spread over
    #: the whole space would miss the peak.
    peaks_near_incumbents: ClassVar[bool] = False

    @abstractmethod
    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the exact function at the rows of x (n, E): (n,)."""

    @abstractmethod
    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the exact function (n,) and its gradient (n, E) at the rows of x (n, E)."""

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the function at many rows of x (n, E), to a relative error of about 1e-3: (n,)."""
        return self.value(x, regions)

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return the function (n,) and its gradient (n, E), to a relative error of about 1e-6."""
        return self.value_and_gradient(x, regions)
