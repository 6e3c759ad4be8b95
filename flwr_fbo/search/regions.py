"""Distributed exploration: equal sub-regions of the space, and which agent starts in which.

Notation

===============  ==========================================  ==========
paper            here                                        shape
===============  ==========================================  ==========
``P``            ``regions.count``                           int
``X_i``          the box ``regions.low[i], regions.high[i]``  (D,), (D,)
``i[x]``         ``regions.locate(units)``                   (n,)
``i_n``          ``home_regions(agents, P)[n]``              int
===============  ==========================================  ==========
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space, values_in


@dataclass(frozen=True, eq=False)
class Regions:
    """A grid of equal boxes over the unit cube, ``splits[d]`` of them along coordinate d.

    Boxes are closed below and open above, except at the end of the cube. Boxes are numbered with
    the last coordinate running fastest (the order of DP-FTS-DE App. B.2.1).
    """

    splits: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return P, the number of sub-regions."""
        return math.prod(self.splits)

    @cached_property
    def _corners(self) -> Array:
        """Return the lower corners, counted in boxes along each coordinate: (P, D)."""
        cells = itertools.product(*(range(k) for k in self.splits))
        return np.array(list(cells), dtype=np.float64)

    @cached_property
    def low(self) -> Array:
        """Return the lower corners: (P, D)."""
        return self._corners / self.splits

    @cached_property
    def high(self) -> Array:
        """Return the upper corners: (P, D)."""
        return (self._corners + 1.0) / self.splits

    def locate(self, units: Array) -> Indices:
        """Return the number of the sub-region that each row (n, D) lies in: (n,)."""
        if self.count == 1:
            return np.zeros(len(units), dtype=np.int64)
        # Rows are compared with exactly the numbers that are the boxes' ends. A product with k
        # would not do, because j / k * k may differ from j.
        cells = tuple(
            np.searchsorted(np.arange(1, k) / k, units[:, d], side="right")
            for d, k in enumerate(self.splits)
        )
        return np.asarray(np.ravel_multi_index(cells, self.splits), dtype=np.int64)


def split_space(space: Space, count: int) -> Regions:
    """Return ``count`` equal sub-regions, as near to cubes as the number allows.

    P = 6 in two dimensions is 2 x 3, and P = 4 in three is 2 x 2 x 1. The most even split is
    taken that leaves every sub-region a point of the space: with few categories or a sparse grid,
    a more even split may leave some sub-region empty.
    """
    if count < 1:
        raise SettingsError(f"`regions` must be >= 1, but got {count!r}")
    # There are few factorisations, so that all of them can be sorted.
    for splits in sorted(_factorisations(count, space.dimension), key=_unevenness):
        regions = Regions(splits)
        if _all_have_points(space, regions):
            return regions
    raise SettingsError(
        f"`regions` must leave every sub-region at least one point of the space, but "
        f"{count} equal boxes of {list(space.names)} cannot"
    )


def home_regions(agents: int, count: int) -> Indices:
    """Return the sub-region in which each agent starts, n mod P: (N,)."""
    return np.arange(agents) % count


def _factorisations(count: int, dimension: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a number as an ordered product of ``dimension`` factors."""
    if dimension == 1:
        yield (count,)
        return
    for first in range(1, count + 1):
        if count % first == 0:
            for rest in _factorisations(count // first, dimension - 1):
                yield (first, *rest)


def _unevenness(splits: tuple[int, ...]) -> tuple[float, ...]:
    """Return a key that sorts even splits first, and ties by which coordinates are split."""
    # Of equally even splits: those of the first coordinates, and small factors before large.
    order = [k if k > 1 else math.inf for k in splits]
    return (sum(k * k for k in splits), *order)


def _all_have_points(space: Space, regions: Regions) -> bool:
    """Return whether every sub-region holds at least one point of the space."""
    if space.points is not None:
        return len(np.unique(regions.locate(space.points))) == regions.count
    # In a product of parameters, a box is empty only if a side of the box is empty.
    for parameter, k in zip(space.parameters.values(), regions.splits, strict=True):
        if k == 1 or isinstance(parameter, Float):
            continue
        if parameter.size < k:
            return False
        spans = (values_in(parameter, j / k, (j + 1) / k) for j in range(k))
        if any(first > last for first, last in spans):
            return False
    return True
