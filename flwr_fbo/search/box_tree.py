r"""Trees of boxes over a search space: the children of every node cover the node exactly.

Notation (Fed-PNE, Section 2.2)

=====================  =========================================  ==================
paper                  here                                       shape
=====================  =========================================  ==================
``P``                  :class:`BoxTree`
``k``                  ``partition.arity``, most children a node
                       can have
``P_{h,i}``            row ``j`` of :class:`Nodes`: depth ``h``,
                       ``nodes.index[j] = i``, counted from 1
the node's region      ``nodes.low``, ``nodes.high``              (K, D)
the point pulled       ``partition.centres``, ``partition.draw``  (K, D)
=====================  =========================================  ==================

A node is a box of the unit cube, closed below and open above (closed where the box ends at 1).
A node is split into equal parts along one dimension. The children of ``(h, i)`` are
``(h + 1, k i - j)`` for ``j`` in ``0 .. k - 1``, as in the paper.

The paper leaves the following open:

- *Which dimension is split.* By default a random one for every node, as in the paper's
  experiments (App. E.1.1). The choice is a function of the partition's seed and of the path to
  the node, so agents that share the seed share the whole tree. ``order="round-robin"`` takes the
  dimensions in turn by depth.
- *Integers* are cut at the border between two values that is nearest to the equal cut, so a
  node is a set of whole values. A node with fewer than ``k`` values of the dimension has one
  child for each value.
- *Categories* have no order, so the mean over several categories says little about any of them.
  Nodes are split along their categories first, and along numbers only when every category has
  one value.
- *Finite spaces* are cut between their points. No child is ever empty.
- *A node that cannot be split* has one child: the same box, one level deeper. The algorithm then
  evaluates the same point more and more often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Categorical, Float, Int, Space

Keys: TypeAlias = NDArray[np.uint64]
Mask: TypeAlias = NDArray[np.bool_]
Order: TypeAlias = Literal["random", "round-robin"]

#: A real coordinate is not split below this width, where floating point ends.
NARROWEST = 2.0**-45


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes of one depth; ``key`` is a hash of the path to each node, for random choices."""

    depth: int
    index: tuple[int, ...]  # (K,) Python integers: k^depth soon leaves 64 bits
    key: Keys  # (K,)
    low: Array  # (K, D)
    high: Array  # (K, D)

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: Indices | Mask) -> Nodes:
        """Return the nodes of the chosen rows."""
        chosen = np.arange(len(self))[rows]
        return Nodes(
            self.depth,
            tuple(self.index[j] for j in chosen),
            self.key[chosen],
            self.low[chosen],
            self.high[chosen],
        )


class BoxTree:
    """The tree of boxes of one search space, which is a pure function of the arguments."""

    def __init__(
        self, space: Space, arity: int = 2, order: Order = "random", seed: int = 0
    ) -> None:
        if arity < 2:
            raise ValueError(f"`arity` must be >= 2, but got {arity}")
        self.space, self.arity, self.order = space, arity, order
        self.seed = seed
        self._parameters = list(space.parameters.values())
        self._categorical = np.array([isinstance(p, Categorical) for p in self._parameters])

    def root(self) -> Nodes:
        """Return the node of the whole space, ``P_{0,1}``."""
        D = self.space.dimension
        key = _mix(np.array([self.seed % 2**64], dtype=np.uint64))
        return Nodes(0, (1,), key, np.zeros((1, D)), np.ones((1, D)))

    def node(self, depth: int, index: int) -> Nodes:
        """Return the node ``P_{depth,index}``, found by descending from the root."""
        if depth < 0 or not 1 <= index <= self.arity**depth:
            raise ValueError(
                f"`depth >= 0` and `1 <= index <= {self.arity}^depth` must hold, but got "
                f"(depth={depth}, index={index})"
            )
        nodes = self.root()
        for level in range(depth - 1, -1, -1):
            ancestor = (index - 1) // self.arity**level + 1
            children, _ = self.children(nodes)
            if ancestor not in children.index:
                raise ValueError(f"the partition has no node (depth={depth}, index={index})")
            nodes = children.take(np.array([children.index.index(ancestor)]))
        return nodes

    def children(self, nodes: Nodes) -> tuple[Nodes, Indices]:
        """Return all children (K' of them), in order, and the row of each child's parent (K',)."""
        dimension = self._dimension(nodes, self._splittable(nodes))  # (K,)
        edges, count = self._edges(nodes, dimension)  # (K, k + 1), (K,)
        parent = np.repeat(np.arange(len(nodes)), count)  # (K',)
        # Each child's number among the children of its parent.
        part = np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count)
        low, high = nodes.low[parent], nodes.high[parent]
        rows, along = np.arange(len(parent)), dimension[parent]
        low[rows, along] = edges[parent, part]
        high[rows, along] = edges[parent, part + 1]
        # Python integers, not numpy's: indices soon leave 64 bits.
        index = tuple(
            self.arity * (nodes.index[p] - 1) + 1 + j
            for p, j in zip(parent.tolist(), part.tolist(), strict=True)
        )
        key = _mix(nodes.key[parent] + part.astype(np.uint64) + np.uint64(1))
        return Nodes(nodes.depth + 1, index, key, low, high), parent

    def centres(self, nodes: Nodes) -> Array:
        """Return one point of the space in the middle of each box: (K, D)."""
        middle = 0.5 * (nodes.low + nodes.high)
        if self.space.points is not None:
            rows = [self._points_in(nodes, j) for j in range(len(nodes))]
            return np.stack(
                [p[((p - m) ** 2).sum(1).argmin()] for p, m in zip(rows, middle, strict=True)]
            )
        for d, parameter in enumerate(self._parameters):
            if not isinstance(parameter, Float):
                first, last = _range(parameter, nodes.low[:, d], nodes.high[:, d])
                inside = np.clip(parameter.index(middle[:, d]), first, last)
                middle[:, d] = parameter.unit(inside)
        return middle

    def draw(self, nodes: Nodes, rng: np.random.Generator) -> Array:
        """Draw one point uniformly from each node: (K, D)."""
        boxes = zip(nodes.low, nodes.high, strict=True)
        return np.concatenate([self.space.sample(1, rng, low, high) for low, high in boxes])

    def _points_in(self, nodes: Nodes, row: int) -> Array:
        """Return the points of a finite space in one node: (n, D)."""
        assert self.space.points is not None
        inside = self.space.inside(self.space.points, nodes.low[row], nodes.high[row])
        return self.space.points[inside]

    def _splittable(self, nodes: Nodes) -> Mask:
        """Return along which dimensions each node may be split: (K, D)."""
        if self.space.points is not None:
            rows = [self._points_in(nodes, j) for j in range(len(nodes))]
            able = np.stack([np.ptp(points, axis=0) > 0 for points in rows])
        else:
            able = nodes.high - nodes.low > NARROWEST
            for d, parameter in enumerate(self._parameters):
                if not isinstance(parameter, Float):
                    first, last = _range(parameter, nodes.low[:, d], nodes.high[:, d])
                    able[:, d] = last > first
        categories = able & self._categorical
        return np.where(categories.any(axis=1)[:, None], categories, able)

    def _dimension(self, nodes: Nodes, able: Mask) -> Indices:
        """Return the dimension that each node is split along; 0 where there is none: (K,)."""
        D = able.shape[1]
        if self.order == "round-robin":
            turn = (nodes.depth + np.arange(D)) % D
            return np.asarray(turn[able[:, turn].argmax(axis=1)])
        ways = np.maximum(able.sum(axis=1), 1).astype(np.uint64)
        # A random rank among the possible dimensions. The inverted key makes the choice
        # independent of the children's keys.
        rank = (_mix(~nodes.key) % ways).astype(np.int64)
        return np.asarray((able.cumsum(axis=1) > rank[:, None]).argmax(axis=1))

    def _edges(self, nodes: Nodes, dimension: Indices) -> tuple[Array, Indices]:
        """Return where each node is cut, ends included (K, k + 1), and the numbers of parts."""
        edges = np.empty((len(nodes), self.arity + 1))
        count = np.empty(len(nodes), dtype=np.int64)
        for d in np.unique(dimension):
            rows = np.flatnonzero(dimension == d)
            edges[rows], count[rows] = self._edges_along(d, nodes, rows)
        return edges, count

    def _edges_along(self, d: int, nodes: Nodes, rows: Indices) -> tuple[Array, Indices]:
        """Return :meth:`_edges` for the given rows, which are all split along dimension d."""
        low, high, parameter = nodes.low[rows, d], nodes.high[rows, d], self._parameters[d]
        if self.space.points is not None:
            tables = [np.unique(self._points_in(nodes, row)[:, d]) for row in rows]
            cuts = [
                _cut_table(table, low[j : j + 1], high[j : j + 1], self.arity)
                for j, table in enumerate(tables)
            ]
            edges, count = zip(*cuts, strict=True)
            return np.concatenate(edges), np.concatenate(count)
        if isinstance(parameter, Float):
            return _cut_evenly(low, high, self.arity)
        first, last = _range(parameter, low, high)
        return _cut_values(first, last, low, high, self.arity, parameter.index, parameter.unit)


def _cut_evenly(low: Array, high: Array, arity: int) -> tuple[Array, Indices]:
    """Return equal cuts of real intervals (K, k + 1), and the numbers of parts (K,)."""
    wide = high - low > NARROWEST
    edges = np.repeat(high[:, None], arity + 1, axis=1)
    edges[:, 0] = low
    step = (high - low)[wide, None] / arity
    edges[wide, 1:arity] = low[wide, None] + step * np.arange(1, arity)
    return edges, np.where(wide, arity, 1)


def _range(parameter: Int | Categorical, low: Array, high: Array) -> tuple[Indices, Indices]:
    """Return the first and last index represented in each ``[low, high)``, closed at 1."""
    first, last = parameter.index(low), parameter.index(high)
    first = first + (parameter.unit(first) < low)
    last = last - ((parameter.unit(last) >= high) & (high < 1.0))
    return first, last


def _cut_values(
    first: Indices,
    last: Indices,
    low: Array,
    high: Array,
    arity: int,
    index: Callable[[Array], Indices],
    unit: Callable[[Indices], Array],
) -> tuple[Array, Indices]:
    """Return cuts between values (K, k + 1), and the numbers of parts (K,).

    ``first`` and ``last`` (K,) are the indices of the values in each node. Each cut is as near to
    the equal cut as possible without leaving a part empty.
    """
    count = np.minimum(last - first + 1, arity)
    edges = np.repeat(high[:, None], arity + 1, axis=1)
    edges[:, 0] = low
    previous = first  # index of the first value right of the latest cut
    for j in range(1, arity):
        target = low + (high - low) * np.minimum(j / count, 1.0)  # the equal cut
        cell = index(target)
        right = np.minimum(cell + 1, last)
        # The nearer border of the cell that the equal cut falls into.
        after = target - _border(cell, unit) > _border(right, unit) - target
        cut = np.clip(np.where(after, right, cell), previous + 1, last + 1 - (count - j))
        used = j < count
        edges[used, j] = _border(cut[used], unit)
        previous = np.where(used, cut, previous)
    return edges, count


def _border(index: Indices, unit: Callable[[Indices], Array]) -> Array:
    """Return the coordinate between the value of an index and the value before."""
    return 0.5 * (unit(np.maximum(index - 1, 0)) + unit(index))


def _cut_table(values: Array, low: Array, high: Array, arity: int) -> tuple[Array, Indices]:
    """Return :func:`_cut_values` for the sorted coordinates of a finite space's points."""
    borders = 0.5 * (values[:-1] + values[1:])
    ends = np.array([0]), np.array([len(values) - 1])

    def index(unit: Array) -> Indices:
        return np.asarray(np.searchsorted(borders, unit, side="right"))

    return _cut_values(*ends, low, high, arity, index, lambda i: np.asarray(values[i]))


def _mix(x: Keys) -> Keys:
    """Return the keys hashed by SplitMix64, which is invertible and wraps on overflow."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
