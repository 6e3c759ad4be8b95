"""Where a surface is largest: over the whole space, or with one function per sub-region.

The search is the papers' (DP-FTS-DE App. B.2.6): evaluate many candidates, then climb from the
best twenty. Here the candidates are quasi-random and the ascents are Newton's, made together
(:mod:`flwr_fbo.search.newton`). An ascent waits while it is not expected to end highest; what
that misses is measured (`benchmarks.maxima`). A surface with peaks near the incumbents is
searched by :class:`NearIncumbents` where the space is small and continuous.

Searches near the incumbents of several agents are made together (:func:`argmax_together`): an agent
alone is a group of one. An agent's point is the same, to the last bit, whatever the others are.

Finite spaces are searched exactly. Categories and integers with few values are never relaxed,
but changed by exchanges of one value. Integers with many values climb like reals, are rounded to
a value, and are then exchanged too. The final comparison is always between values of the surface
at points of the space, never between points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Categorical, Float, Int, Parameter, Space
from flwr_fbo.models.surface import Surface
from flwr_fbo.search.candidates import CANDIDATES, STARTS, NearIncumbents, quasi_random
from flwr_fbo.search.newton import AscentOptions, Objective, climb
from flwr_fbo.search.regions import Regions

__all__ = [
    "CANDIDATES",
    "STARTS",
    "Surfaces",
    "all_points",
    "argmax",
    "argmax_together",
    "is_small",
    "quasi_random",
]

#: The search of surfaces that peak near the incumbents.
NEAR_INCUMBENTS = NearIncumbents()
#: An ascent takes its last step when the step predicts a gain of less than this share of the
#: difference between the best three starts. The gain left is of the order of the square.
TOLERANCE = 3e-3
#: A purely discrete space with at most this many points is enumerated.
ENUMERABLE = 20_000
#: An exchange tries all values of a parameter that has at most this many.
EXCHANGES = 32
#: Most rounds of exchanges, of one value each; usually the third or fourth finds nothing better.
EXCHANGE_ROUNDS = 12
#: The number of agents whose candidates are scanned at once: their features fit into the cache.
SCANNED_TOGETHER = 32
#: Relative error of a scan; points within it of the best are evaluated exactly.
SCAN_ERROR = 1e-3


@dataclass(frozen=True)
class Effort:
    """How much work a search of the whole space makes of its candidates."""

    #: Number of candidates that start an ascent, and of points whose values are exchanged.
    starts: int = STARTS
    exchanged: int = STARTS // 4
    #: Least tolerance of an ascent, and see :attr:`AscentOptions.unproven_gain`.
    tolerance: float = 0.0
    unproven_gain: float = 10.0


#: The effort for every surface but one.
WIDE = Effort()
#: The effort for the logarithm of an improvement over a space with integers or categories. Two
#: percent of an improvement change no decision; `benchmarks.maxima --mixed` shows what is lost.
MIXED_IMPROVEMENT = Effort(starts=6, exchanged=2, tolerance=2e-2, unproven_gain=2.0)


@dataclass(frozen=True, eq=False)
class _Target:
    """The surface that is maximised over a space, with one function per sub-region if any."""

    surface: Surface
    space: Space
    regions: Regions | None

    def locate(self, units: Array) -> Indices | None:
        """Return the number of each row's sub-region (n,), or None without sub-regions."""
        return None if self.regions is None else self.regions.locate(units)

    def scan(self, units: Array) -> Array:
        """Return the surface at points (n, D), to about 1e-3: (n,)."""
        return self.surface.scan(self.space.embed(units), self.locate(units))

    def value(self, units: Array) -> Array:
        """Return the surface at points (n, D), exactly: (n,)."""
        return self.surface.value(self.space.embed(units), self.locate(units))


def argmax(
    surface: Surface,
    space: Space,
    rng: np.random.Generator,
    regions: Regions | None = None,
    incumbents: Array | None = None,
) -> Array:
    """Return the point of the space at which the surface is largest: (D,).

    With ``regions`` the surface holds one function per sub-region, and the search is over all of
    them: arg max of phi(x)' omega^(i[x]) (Algorithm 2, line 8). ``incumbents`` (k, D) are
    further points to start from.
    """
    if regions is not None and regions.count == 1:
        regions = None
    target = _Target(surface, space, regions)
    everything = all_points(space)
    if everything is not None:
        return _best_of(target, everything)
    if incumbents is not None and len(incumbents):
        if _is_searched_near_incumbents(target):
            found = argmax_together(_Alone(surface), [rng], incumbents[None], regions)
            return np.asarray(found[0])
    else:
        incumbents = np.zeros((0, space.dimension))
    points = np.vstack([quasi_random(CANDIDATES, space.dimension, rng), incumbents])
    return _search_widely(target, points if space.continuous else space.snap(points))


class Surfaces(Protocol):
    """The surfaces of A agents, which are searched together.

    Points are (A, n, E), numbers of sub-regions (A, n), values (A, n), and gradients (A, n, E).
    Values must be the same, to the last bit, whatever the other agents are.
    """

    def of(self, agents: Indices | slice) -> Surfaces:
        """Return the surfaces of some of the agents."""

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Return each surface at an agent's points, to a relative error of about 1e-3."""

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return each surface and its gradient at an agent's points, to about 1e-6."""


@dataclass(frozen=True, eq=False)
class _Alone:
    """The surface of one agent, as :class:`Surfaces`."""

    surface: Surface

    def of(self, agents: Indices | slice) -> _Alone:
        return self

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        value: Array = self.surface.scan(x[0], None if regions is None else regions[0])
        return value[None]

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        places = None if regions is None else regions[0]
        value, gradient = self.surface.value_and_gradient_for_climbing(x[0], places)
        return value[None], gradient[None]


def _is_searched_near_incumbents(target: _Target) -> bool:
    return is_small(target.space) and target.surface.peaks_near_incumbents


def is_small(space: Space) -> bool:
    """Return whether surfaces with peaks near the incumbents are searched near these only."""
    most = NEAR_INCUMBENTS.max_dimension
    return space.points is None and space.continuous and space.dimension <= most


def argmax_together(
    surfaces: Surfaces,
    rngs: Sequence[np.random.Generator],
    incumbents: Array,
    regions: Regions | None = None,
) -> Array:
    """Return where the surfaces of A agents are largest, which peak near incumbents: (A, D).

    The space must be small (:func:`is_small`), and every agent have equally many incumbents
    (A, k, D). With ``regions`` each surface holds one function per sub-region.
    """
    if regions is not None and regions.count == 1:
        regions = None
    search, boxes = NEAR_INCUMBENTS, 1 if regions is None else regions.count
    points = search.points(rngs, incumbents)
    scores = _scan_by_blocks(surfaces, points, _places(regions, points))
    order = np.argsort(-scores, axis=1)
    agents = np.arange(len(points))
    tolerance = TOLERANCE * (scores[agents, order[:, 0]] - scores[agents, order[:, 2]])
    index, present = search.starts_among(points, order)
    starts = points[agents[:, None], index]
    options = search.ascent_options(points.shape[-1], boxes, tolerance)
    reached, value = _climb_together(surfaces, starts, present, regions, options)
    return np.asarray(reached[agents, value.argmax(axis=1)])


def _places(regions: Regions | None, points: Array) -> Indices | None:
    """Return the number of the sub-region of each of the points (A, n, D): (A, n)."""
    if regions is None:
        return None
    return regions.locate(points.reshape(-1, points.shape[-1])).reshape(points.shape[:-1])


def _scan_by_blocks(surfaces: Surfaces, points: Array, places: Indices | None) -> Array:
    """Return the surfaces at points (A, n, D), a few agents at a time: (A, n)."""
    if len(points) == 1:
        return surfaces.scan(points, places)
    blocks = [slice(k, k + SCANNED_TOGETHER) for k in range(0, len(points), SCANNED_TOGETHER)]
    return np.concatenate([
        surfaces.of(agents).scan(points[agents], None if places is None else places[agents])
        for agents in blocks
    ])  # fmt: skip


def _climb_together(
    surfaces: Surfaces,
    starts: Array,
    present: NDArray[np.bool_],
    regions: Regions | None,
    options: AscentOptions,
) -> tuple[Array, Array]:
    """Climb from starts (A, S, D) that are present (A, S); return points, and values (A, S)."""
    (agents, count, dimension), flat = starts.shape, starts.reshape(-1, starts.shape[-1])
    place = None if regions is None else regions.locate(flat)

    def objective(x: Array, rows: np.ndarray) -> tuple[Array, Array]:
        return _of_their_agents(surfaces, x, rows // count, agents, place, rows)

    reached, value = climb(objective, flat, *_box(flat, regions, place), options, present)
    reached = _kept_inside(reached, regions, place)
    return reached.reshape(agents, count, dimension), value.reshape(agents, count)


def _of_their_agents(
    surfaces: Surfaces,
    x: Array,
    owner: Indices,
    agents: int,
    place: Indices | None,
    rows: np.ndarray,
) -> tuple[Array, Array]:
    """Return values (n,) and gradients (n, D) at rows x (n, D), of whose agents ``owner`` says.

    Agents with equally many rows are asked together. So the products of matrices are those of an
    agent alone.
    """
    here = None if place is None else place[rows]
    if agents == 1:
        places = None if here is None else here[None]
        value, gradient = surfaces.value_and_gradient_for_climbing(x[None], places)
        return value[0], gradient[0]
    counts = np.bincount(owner, minlength=agents)
    value, gradient = np.empty(len(x)), np.empty(x.shape)
    for count in np.unique(counts[counts > 0]).tolist():
        chosen = np.flatnonzero(counts == count)
        asked = surfaces if len(chosen) == agents else surfaces.of(chosen)
        mine = np.flatnonzero(counts[owner] == count)
        shape = len(chosen), count
        found, slope = asked.value_and_gradient_for_climbing(
            x[mine].reshape(*shape, -1), None if here is None else here[mine].reshape(shape)
        )
        value[mine], gradient[mine] = found.ravel(), slope.reshape(-1, x.shape[1])
    return value, gradient


def _search_widely(target: _Target, points: Array) -> Array:
    """Return the best point reached from the best of the candidates (n, D): (D,)."""
    effort = _effort(target)
    order, tolerance = _ordered(target, points)
    options = AscentOptions(max(tolerance, effort.tolerance), True, effort.unproven_gain)
    best, value = _climb(target, points[order[: effort.starts]], options)
    if not target.space.continuous:
        best, value = _exchange(target, best, target.value(best), options)
    return np.asarray(best[int(np.argmax(value))])


def _effort(target: _Target) -> Effort:
    """Return how much work a search of the whole space makes."""
    mixed = not target.space.continuous and target.surface.peaks_near_incumbents
    return MIXED_IMPROVEMENT if mixed else WIDE


def _ordered(target: _Target, points: Array) -> tuple[Indices, float]:
    """Return the order of the candidates, best first (n,), and the tolerance of ascents."""
    scores = target.scan(points)
    order = np.argsort(-scores)
    return order, TOLERANCE * float(scores[order[0]] - scores[order[2]])


def all_points(space: Space) -> Array | None:
    """Return every point of a finite or small discrete space (n, D); None for other spaces."""
    if space.points is not None:
        return space.points
    discrete = [p for p in space.parameters.values() if not isinstance(p, Float)]
    if len(discrete) < space.dimension or math.prod(p.size for p in discrete) > ENUMERABLE:
        return None
    axes = [p.unit(np.arange(p.size)) for p in discrete]
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


def _best_of(target: _Target, points: Array) -> Array:
    """Return the best of listed points (n, D), exactly: (D,)."""
    scores = target.scan(points)
    near = points[scores >= scores.max() - SCAN_ERROR * (1.0 + np.abs(scores).max())]
    return np.asarray(near[int(np.argmax(target.value(near)))])


def _climb(target: _Target, starts: Array, options: AscentOptions) -> tuple[Array, Array]:
    """Climb from starts (S, D), each within its sub-region; return points and values there.

    Where no point had to be moved afterwards, values are those of the ascent, to about 1e-6.
    """
    space, regions = target.space, target.regions
    climbing = np.array([_can_climb(p) for p in space.parameters.values()])
    if not climbing.any():
        return starts, target.value(starts)
    place = target.locate(starts)
    low, high = _box(starts, regions, place)
    objective = _objective(target, starts, climbing, place)
    box = low[:, climbing], high[:, climbing]
    x, value = climb(objective, starts[:, climbing], *box, options)
    if climbing.all():
        units = x
    else:
        units = starts.copy()
        units[:, climbing] = x
    units = _kept_inside(units, regions, place)
    if any(isinstance(p, Int) and _can_climb(p) for p in space.parameters.values()):
        return _rounded(target, starts, units)
    return units, value


def _box(starts: Array, regions: Regions | None, place: Indices | None) -> tuple[Array, Array]:
    """Return the corners (S, D) and (S, D) of the box in which each row climbs."""
    if regions is None or place is None:
        return np.zeros_like(starts), np.ones_like(starts)
    return regions.low[place], regions.high[place]


def _objective(
    target: _Target, starts: Array, climbing: np.ndarray, place: Indices | None
) -> Objective:
    """Return the surface as a function of the coordinates that climb, from starts (S, D)."""
    space, gradient_at = target.space, target.surface.value_and_gradient_for_climbing
    if climbing.all() and space.embedding_dimension == space.dimension:  # embedding changes nothing
        return lambda x, rows: gradient_at(x, None if place is None else place[rows])
    # Coordinates that climb are one embedded column each; all other columns keep their values.
    columns, fixed = _first_columns(space)[climbing], space.embed(starts)

    def objective(x: Array, rows: np.ndarray) -> tuple[Array, Array]:
        embedded = fixed[rows]  # a copy
        embedded[:, columns] = x
        value, gradient = gradient_at(embedded, None if place is None else place[rows])
        return value, gradient[:, columns]

    return objective


def _can_climb(parameter: Parameter) -> bool:
    """Return whether a parameter is treated as a real number by ascents."""
    return isinstance(parameter, Float) or (
        isinstance(parameter, Int) and parameter.size > EXCHANGES
    )


def _rounded(target: _Target, starts: Array, units: Array) -> tuple[Array, Array]:
    """Return each point moved to its integers, or its start where that is better, and values."""
    rounded = target.space.snap(units)
    before, value = target.value(starts), target.value(rounded)
    worse = value < before
    return np.where(worse[:, None], starts, rounded), np.maximum(value, before)


def _kept_inside(units: Array, regions: Regions | None, place: Indices | None) -> Array:
    """Return points (S, D) moved back into their sub-regions by one rounding error."""
    # Sub-regions are open above: a point that climbed to the upper face belongs to the
    # neighbour, whose function is another.
    if regions is None or place is None:
        return units
    high = regions.high[place]
    return np.where((units >= high) & (high < 1.0), np.nextafter(high, 0.0), units)


def _exchange(
    target: _Target, units: Array, value: Array, options: AscentOptions
) -> tuple[Array, Array]:
    """Exchange one discrete value of the best points (S, D) at a time until none is better."""
    order = np.argsort(-value)[: _effort(target).exchanged]
    units, value = units[order], value[order]
    for _ in range(EXCHANGE_ROUNDS):
        found, reached = _best_exchange(target, units)
        better = np.flatnonzero(reached > value + 1e-12)
        if not len(better):
            break
        units[better], value[better] = found[better], reached[better]
        # The best real numbers may be others beside the new discrete values.
        units[better], value[better] = _climb(target, units[better], options)
    return units, value


def _best_exchange(target: _Target, units: Array) -> tuple[Array, Array]:
    """Return each point (S, D) with the best other value of one discrete parameter, and values."""
    trials = []
    for column, parameter in enumerate(target.space.parameters.values()):
        if not isinstance(parameter, Float):
            choices = _alternatives(parameter, units[:, column])  # (S, K)
            trial = np.repeat(units[:, None, :], choices.shape[1], axis=1)  # (S, K, D)
            trial[:, :, column] = choices
            trials.append(trial)
    every = np.concatenate(trials, axis=1)  # (S, all K, D)
    scores = target.scan(every.reshape(-1, units.shape[1])).reshape(every.shape[:2])
    best = scores.max(axis=1, keepdims=True)
    near = scores >= best - SCAN_ERROR * (1.0 + np.abs(best))
    exact = np.full(scores.shape, -np.inf)
    exact[near] = target.value(every[near])
    rows, choice = np.arange(len(units)), exact.argmax(axis=1)
    return every[rows, choice], exact[rows, choice]


def _alternatives(parameter: Int | Categorical, current: Array) -> Array:
    """Return values to try in place of the current ones (S,): all, or 1, 2, 4, ... away: (S, K)."""
    size = parameter.size
    if size <= EXCHANGES:
        choices = np.broadcast_to(np.arange(size), (len(current), size))
    else:
        away = 2 ** np.arange(size.bit_length())
        choices = parameter.index(current)[:, None] + np.concatenate([-away, [0], away])
    return parameter.unit(np.clip(choices, 0, size - 1))


def _first_columns(space: Space) -> Indices:
    """Return the first embedded column of each parameter: (D,)."""
    return np.concatenate([[0], np.cumsum(space.embedding_widths)[:-1]]).astype(np.int64)
