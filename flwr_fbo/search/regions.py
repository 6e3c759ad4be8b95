"""Distributed exploration: equal sub-regions of the space, and who starts in which.

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
    """A grid of equal boxes over the unit cube; ``splits[d]`` of them along coordinate d.

    Boxes are closed below and open above, except at the end of the cube, and numbered with the
    last coordinate running fastest (the order of DP-FTS-DE App. B.2.1).
    """

    splits: tuple[int, ...]

    @property
    def count(self) -> int:
        """P, how many sub-regions there are."""
        return math.prod(self.splits)

    @cached_property
    def _corners(self) -> Array:
        cells = itertools.product(*(range(k) for k in self.splits))
        return np.array(list(cells), dtype=np.float64)  # (P, D)

    @cached_property
    def low(self) -> Array:
        """Lower corners: (P, D)."""
        return self._corners / self.splits

    @cached_property
    def high(self) -> Array:
        """Upper corners: (P, D)."""
        return (self._corners + 1.0) / self.splits

    def locate(self, units: Array) -> Indices:
        """The number of the sub-region that each row (n, D) lies in: (n,)."""
        if self.count == 1:
            return np.zeros(len(units), dtype=np.int64)
        # By comparison with the very numbers that are the boxes' ends: j / k * k may not be j.
        cells = tuple(
            np.searchsorted(np.arange(1, k) / k, units[:, d], side="right")
            for d, k in enumerate(self.splits)
        )
        return np.asarray(np.ravel_multi_index(cells, self.splits), dtype=np.int64)


def split_space(space: Space, count: int) -> Regions:
    """``count`` equal sub-regions, as near to cubes as the number allows.

    P = 6 in two dimensions is 2 x 3 and P = 4 in three is 2 x 2 x 1. A split that would leave a
    sub-region without any point of the space (few categories, a sparse grid) is passed over for
    the next most even one.
    """
    if count < 1:
        raise SettingsError(f"`regions` must be >= 1, but got {count!r}")
    for splits in sorted(_factorisations(count, space.dimension), key=_unevenness):
        regions = Regions(splits)
        if _all_inhabited(space, regions):
            return regions
    raise SettingsError(
        f"`regions` must leave every sub-region at least one point of the space, but "
        f"{count} equal boxes of {list(space.names)} cannot"
    )


def home_regions(agents: int, count: int) -> Indices:
    """The sub-region in which each agent starts, spread evenly: n mod P."""
    return np.arange(agents) % count


def _factorisations(count: int, dimension: int) -> Iterator[tuple[int, ...]]:
    if dimension == 1:
        yield (count,)
        return
    for first in range(1, count + 1):
        if count % first == 0:
            for rest in _factorisations(count // first, dimension - 1):
                yield (first, *rest)


def _unevenness(splits: tuple[int, ...]) -> tuple[float, ...]:
    # Even first; then coordinates that are split before those that are not, small before large.
    order = [k if k > 1 else math.inf for k in splits]
    return (sum(k * k for k in splits), *order)


def _all_inhabited(space: Space, regions: Regions) -> bool:
    if space.points is not None:
        return len(np.unique(regions.locate(space.points))) == regions.count
    for parameter, k in zip(space.parameters.values(), regions.splits, strict=True):
        if k == 1 or isinstance(parameter, Float):
            continue
        if parameter.size < k:
            return False
        spans = (values_in(parameter, j / k, (j + 1) / k) for j in range(k))
        if any(first > last for first, last in spans):
            return False
    return True
