"""Where a sampled function is largest: over the whole space or a function per sub-region.

The search is the papers' (DP-FTS-DE App. B.2.6): many points, then gradient ascent from the
best twenty. Here the points are quasi-random, the ascents are Newton's and climb together
(:mod:`flwr_fbo.search.newton`), and one stands still while it is not expected to end highest: what
that misses is measured (`benchmarks.maxima`). A surface that is known to peak beside what was
best so far may have a :class:`NearIncumbents` search instead. Finite spaces are searched exactly.
Categories and integers with few values are never relaxed, but moved by exchanges. Integers with
many values climb like reals, settle on a value, and are then exchanged too; what is compared in
the end is the function at points of the space, never between them.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Categorical, Float, Int, Parameter, Space
from flwr_fbo.search.candidates import CANDIDATES, STARTS, NearIncumbents, quasi_random
from flwr_fbo.search.newton import Care, Objective, maximise
from flwr_fbo.search.regions import Regions

__all__ = ["CANDIDATES", "STARTS", "Surface", "all_points", "argmax", "quasi_random"]


class Surface(Protocol):
    """A function that can be searched: a sampled path, or an acquisition function.

    ``regions`` are the sub-regions of the rows, for functions that differ between them. One that
    has a ``to_climb(x, regions)`` is climbed by it: :meth:`value_and_gradient` to about 1e-6. One
    that has a ``search`` (:class:`NearIncumbents`) is searched by it where it can be.
    """

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Roughly, at many rows x (n, E): (n,)."""

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Exactly: (n,)."""

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """With its gradient (n, E)."""


#: A climb takes its last step when that promises less than this share of what the best three starts
#: differ by; what is then left is of the order of the square.
TOLERANCE = 3e-3
#: A purely discrete space with at most this many points is enumerated.
ENUMERABLE = 20_000
#: An exchange tries all values of a parameter that has at most so many.
EXCHANGES = 32
#: Most rounds of exchanges; usually two or three find nothing better any more.
EXCHANGE_ROUNDS = 5
#: Relative error of a scan; what lies within it of the best is looked at exactly.
SCAN_ERROR = 1e-3


def argmax(
    path: Surface,
    space: Space,
    rng: np.random.Generator,
    regions: Regions | None = None,
    incumbents: Array | None = None,
) -> Array:
    """The point of the space at which the path is largest: (D,).

    With ``regions`` the path holds one function a sub-region, and the search is over all of
    them: arg max of phi(x)' omega^(i[x]) (Algorithm 2, line 8). ``incumbents`` (k, D) are
    further points to start from.
    """
    if regions is not None and regions.count == 1:
        regions = None
    everything = all_points(space)
    if everything is not None:
        return _exact(path, space, everything, regions)
    known = incumbents if incumbents is not None and len(incumbents) else None
    search: NearIncumbents | None = getattr(path, "search", None)
    if search is None or not space.continuous or space.dimension > search.coordinates:
        search = None
    if search is not None and known is not None:
        return _searched(path, space, regions, search, search.points(space, rng, known))
    points = quasi_random(CANDIDATES, space.dimension, rng)
    points = points if known is None else np.vstack([points, known])
    points = points if space.continuous else space.snap(points)
    return _searched(path, space, regions, None, points)


def _searched(
    path: Surface,
    space: Space,
    regions: Regions | None,
    search: NearIncumbents | None,
    points: Array,
) -> Array:
    """The best that is reached from candidates (n, D): (D,)."""
    scores = path.scan(space.embed(points), _located(regions, points))
    order = np.argsort(-scores)
    tolerance = TOLERANCE * float(scores[order[0]] - scores[order[2]])
    if search is None:
        chosen, care = order[:STARTS], Care(tolerance, only_best=True)
    else:
        boxes = 1 if regions is None else regions.count
        chosen = search.chosen(points, order)
        care = search.care(space.dimension, boxes, tolerance)
    best, value = _refine(path, space, points[chosen], regions, care)
    if not space.continuous:
        value = path.value(space.embed(best), _located(regions, best))
        best, value = _exchange(path, space, best, value, regions, care)
    return np.asarray(best[int(np.argmax(value))])


def all_points(space: Space) -> Array | None:
    """Every point of a finite or small discrete space (n, D); None where there are too many."""
    if space.points is not None:
        return space.points
    sizes = [p.size for p in space.parameters.values() if not isinstance(p, Float)]
    if len(sizes) < space.dimension or math.prod(sizes) > ENUMERABLE:
        return None
    axes = [
        p.unit(np.arange(p.size)) for p in space.parameters.values() if not isinstance(p, Float)
    ]
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


def _located(regions: Regions | None, units: Array) -> np.ndarray | None:
    return None if regions is None else regions.locate(units)


def _exact(path: Surface, space: Space, points: Array, regions: Regions | None) -> Array:
    scores = path.scan(space.embed(points), _located(regions, points))
    near = points[scores >= scores.max() - SCAN_ERROR * (1.0 + np.abs(scores).max())]
    exact = path.value(space.embed(near), _located(regions, near))
    return np.asarray(near[int(np.argmax(exact))])


def _refine(
    path: Surface,
    space: Space,
    starts: Array,
    regions: Regions | None,
    care: Care,
) -> tuple[Array, Array]:
    """Climb from the starts (S, D), each within its sub-region, to points of the space.

    Values are those climbed by, good to about 1e-6, where nothing had to be moved afterwards.
    """
    climbs = np.array([_climbs(p) for p in space.parameters.values()])
    if not climbs.any():
        return starts, path.value(space.embed(starts), _located(regions, starts))
    place = _located(regions, starts)
    low = np.zeros_like(starts) if regions is None else regions.low[place]
    high = np.ones_like(starts) if regions is None else regions.high[place]
    objective = _objective(path, space, starts, climbs, place)
    box = low[:, climbs], high[:, climbs]
    x, value = maximise(objective, starts[:, climbs], *box, care)
    if climbs.all():
        units = x
    else:
        units = starts.copy()
        units[:, climbs] = x
    units = _inside(units, regions, place)
    if any(isinstance(p, Int) and _climbs(p) for p in space.parameters.values()):
        return _settled(path, space, starts, units, regions)
    return units, value


def _objective(
    path: Surface, space: Space, starts: Array, climbs: np.ndarray, place: np.ndarray | None
) -> Objective:
    """The path as a function of the coordinates that climb, to climb by."""
    gradient_at = getattr(path, "to_climb", path.value_and_gradient)
    everything = climbs.all() and space.embedding_dimension == space.dimension
    embedded = None if everything else _embedded_columns(space)[climbs]

    def objective(x: Array, rows: np.ndarray) -> tuple[Array, Array]:
        where = None if place is None else place[rows]
        if everything:
            return gradient_at(x, where)
        units = starts[rows].copy()
        units[:, climbs] = x
        value, gradient = gradient_at(space.embed(units), where)
        return value, gradient[:, embedded]

    return objective


def _climbs(parameter: Parameter) -> bool:
    return isinstance(parameter, Float) or (
        isinstance(parameter, Int) and parameter.size > EXCHANGES
    )


def _settled(
    path: Surface, space: Space, starts: Array, units: Array, regions: Regions | None
) -> tuple[Array, Array]:
    """Each point that was reached moved to its integers, or its start if that is better."""
    settled = space.snap(units)
    before = path.value(space.embed(starts), _located(regions, starts))
    value = path.value(space.embed(settled), _located(regions, settled))
    worse = value < before
    return np.where(worse[:, None], starts, settled), np.maximum(value, before)


def _inside(units: Array, regions: Regions | None, place: np.ndarray | None) -> Array:
    # Sub-regions are open above: a point that climbed to the upper face belongs to the
    # neighbour, whose function is another. Step back by one rounding error.
    if regions is None or place is None:
        return units
    high = regions.high[place]
    return np.where((units >= high) & (high < 1.0), np.nextafter(high, 0.0), units)


def _exchange(
    path: Surface,
    space: Space,
    units: Array,
    value: Array,
    regions: Regions | None,
    care: Care,
) -> tuple[Array, Array]:
    """Try other values of each discrete parameter of the best points until none improves."""
    order = np.argsort(-value)[: STARTS // 4]
    units, value = units[order], value[order]
    for _ in range(EXCHANGE_ROUNDS):
        before = value.copy()
        for column, parameter in enumerate(space.parameters.values()):
            if isinstance(parameter, Float):
                continue
            options = _alternatives(parameter, units[:, column])  # (S, K)
            trial = np.repeat(units[:, None, :], options.shape[1], axis=1)
            trial[:, :, column] = options
            rows = trial.reshape(-1, space.dimension)
            scores = path.value(space.embed(rows), _located(regions, rows))
            scores = scores.reshape(options.shape)
            pick = scores.argmax(axis=1)
            better = scores[np.arange(len(units)), pick] > value
            units[better] = trial[np.arange(len(units)), pick][better]
            value = np.maximum(value, scores.max(axis=1))
        units, value = _refine(path, space, units, regions, care)
        if not np.any(value > before + 1e-12):
            break
    return units, value


def _alternatives(parameter: Int | Categorical, current: Array) -> Array:
    """Values to try in place of the current ones (S,): all, or those 1, 2, 4, ... away: (S, K)."""
    size = parameter.size
    if size <= EXCHANGES:
        options = np.broadcast_to(np.arange(size), (len(current), size))
    else:
        away = 2 ** np.arange(size.bit_length())
        options = parameter.index(current)[:, None] + np.concatenate([-away, [0], away])
    return parameter.unit(np.clip(options, 0, size - 1))


def _embedded_columns(space: Space) -> np.ndarray:
    """The first embedded column of each parameter: (D,)."""
    widths = [p.size if isinstance(p, Categorical) else 1 for p in space.parameters.values()]
    return np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(np.int64)
