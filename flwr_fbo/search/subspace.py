r"""A part of a space: some parameters fixed, others in narrower ranges or with fewer choices.

A search of the part looks at the *part's own* space, and the surface that it searches belongs to
the whole space. The embedded coordinates of both are joined by a linear map.

Notation

===========================  =======================  ==========
symbol                       here                     shape
===========================  =======================  ==========
``z``, embedded in the part  ``x`` of the surface     (n, E')
``x = z A + c``, in whole    ``_Lifted.lift(x)``      (n, E)
``A``, ``c``                 ``matrix``, ``offset``   (E', E), (E,)
===========================  =======================  ==========
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.parameters import Categorical, Float, Int, Parameter, Value, values_in
from flwr_fbo.core.space import Space, SpaceError
from flwr_fbo.models.surface import Surface
from flwr_fbo.search.acquisition import argmax
from flwr_fbo.search.regions import Regions

#: A distance from the face of a box that is larger than the rounding of values.
FACE = 1e-9


def is_part(parameter: Parameter, whole: Parameter) -> bool:
    """Return whether every value of a parameter is a value of another, on the same scale."""
    if isinstance(parameter, Float) and isinstance(whole, Float):
        inside = whole.low <= parameter.low and parameter.high <= whole.high
        return inside and parameter.log == whole.log
    if isinstance(parameter, Int) and isinstance(whole, Int):
        inside = whole.low <= parameter.low and parameter.high <= whole.high
        grid = parameter.step % whole.step == 0 and (parameter.low - whole.low) % whole.step == 0
        return inside and grid and parameter.log == whole.log
    if isinstance(parameter, Categorical) and isinstance(whole, Categorical):
        return all(has_value(whole, choice) for choice in parameter.choices)
    return False


def has_value(parameter: Parameter, value: Value) -> bool:
    """Return whether a value is one of the parameter's."""
    try:
        parameter.check(value)
    except SpaceError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class SubSpace:
    """The points of a space with some parameters free and the others fixed.

    Parameters
    ----------
    whole : Space
        The space, which has no explicit points.
    free : mapping
        The free parameters by name, each a part of the parameter of the same name in ``whole``.
    fixed : Array
        A point (D,) of the whole space, which holds the values of all other parameters.

    Examples
    --------
    >>> whole = Space({"x": Float(0.0, 10.0), "y": Float(0.0, 1.0)})
    >>> part = SubSpace(whole, {"x": Float(5.0, 10.0)}, np.array([0.0, 0.3]))
    >>> part.lift(np.array([[0.0], [1.0]])).tolist()
    [[0.5, 0.3], [1.0, 0.3]]
    """

    whole: Space
    free: Mapping[str, Parameter]
    fixed: Array

    def __post_init__(self) -> None:
        if self.whole.points is not None:
            raise SpaceError("a part needs a space without explicit points")
        for name, parameter in self.free.items():
            if not is_part(parameter, self.whole.parameters[name]):
                raise SpaceError(
                    f"the values of parameter {name!r} must lie in "
                    f"{self.whole.parameters[name]!r}, but got {parameter!r}"
                )

    @cached_property
    def own(self) -> Space:
        """Return the space of the free parameters alone."""
        return Space(self.free)

    def lift(self, units: Array) -> Array:
        """Return points (n, D') of the part as points (n, D) of the whole space."""
        rows = np.tile(self.fixed, (len(units), 1))
        for i, (name, part) in enumerate(self.free.items()):
            column, whole = self.whole.names.index(name), self.whole.parameters[name]
            values = [whole.to_unit(part.from_unit(u)) for u in units[:, i].tolist()]
            rows[:, column] = values
        return rows

    def restrict(self, units: Array) -> Array:
        """Return points (n, D) of the whole space as the nearest points (n, D') of the part.

        Points whose categories are not in the part are left out.
        """
        rows = []
        for unit in units:
            params = self.whole.from_unit(unit)
            row = [_nearest(part, params[name]) for name, part in self.free.items()]
            if None not in row:
                rows.append(row)
        return np.array(rows, dtype=np.float64).reshape(-1, len(self.free))

    def argmax(
        self,
        surface: Surface,
        rng: np.random.Generator,
        regions: Regions | None = None,
        incumbents: Array | None = None,
    ) -> Array:
        """Return the point (D,) of the whole space where a surface is largest in the part."""
        if regions is not None and regions.count > 1:
            return self._argmax_of_regions(surface, rng, regions, incumbents)
        return self._argmax(surface, rng, None, incumbents)[0]

    def _argmax_of_regions(
        self, surface: Surface, rng: np.random.Generator, regions: Regions, incumbents: Array | None
    ) -> Array:
        """Return :meth:`argmax` of a surface with one function for each sub-region."""
        # Each sub-region is searched by itself: a search must not climb over a face.
        parts = [(r, self._within(regions.low[r], regions.high[r])) for r in range(regions.count)]
        tops = [p._argmax(surface, rng, r, incumbents) for r, p in parts if p is not None]
        return max(tops, key=lambda top: top[1])[0]

    def _argmax(
        self, surface: Surface, rng: np.random.Generator, region: int | None, near: Array | None
    ) -> tuple[Array, float]:
        """Return the point (D,) where a function is largest in the part, and its value there."""
        if self.free:
            lifted = _Lifted(surface, region, *self._linear_map)
            near = None if near is None else self.restrict(near)
            point = self.lift(argmax(lifted, self.own, rng, None, near)[None, :])
        else:
            point = self.fixed[None, :]
        place = None if region is None else np.array([region])
        return np.asarray(point[0]), float(surface.value(self.whole.embed(point), place)[0])

    def _within(self, low: Array, high: Array) -> SubSpace | None:
        """Return the part that lies in a box of the whole space; None for no point."""
        free, fixed = {}, self.fixed.copy()
        for i, (name, whole) in enumerate(self.whole.parameters.items()):
            if name not in self.free:
                if not Space.inside(fixed[None, i : i + 1], low[i], high[i]).all():
                    return None
                continue
            values = _values_within(self.free[name], whole, float(low[i]), float(high[i]))
            if values is None:
                return None
            if isinstance(values, (Float, Int, Categorical)):
                free[name] = values
            else:
                fixed[i] = values[0]
        return SubSpace(self.whole, free, fixed)

    @cached_property
    def _linear_map(self) -> tuple[Array, Array]:
        """Return A (E', E) and c (E,)."""
        matrix = np.zeros((self.own.embedding_dimension, self.whole.embedding_dimension))
        offset = self.whole.embed(self.fixed[None, :])[0]
        first = dict(zip(self.whole.names, _first_columns(self.whole), strict=True))
        mine = dict(zip(self.own.names, _first_columns(self.own), strict=True))
        for name, part in self.free.items():
            whole, column, row = self.whole.parameters[name], first[name], mine[name]
            if isinstance(part, Categorical):
                assert isinstance(whole, Categorical)
                offset[column : column + whole.size] = 0.0
                for k, choice in enumerate(part.choices):
                    index = int(whole.index(np.array([whole.to_unit(choice)]))[0])
                    matrix[row + k, column + index] = 1.0
            else:
                # The map is linear, and so is given by the two ends of the range.
                low, high = part.to_unit(part.low), part.to_unit(part.high)
                start, end = whole.to_unit(part.low), whole.to_unit(part.high)
                slope = (end - start) / (high - low)
                matrix[row, column], offset[column] = slope, start - slope * low
        return matrix, offset


@dataclass(frozen=True, eq=False)
class _Lifted(Surface):
    """A surface over the whole space as a function of the part's embedded points."""

    surface: Surface
    region: int | None
    matrix: Array
    offset: Array

    @property
    def peaks_near_incumbents(self) -> bool:  # type: ignore[override]
        """Return whether the surface may peak beside the best evaluated points."""
        return self.surface.peaks_near_incumbents

    def lift(self, x: Array) -> tuple[Array, Indices | None]:
        """Return rows (n, E') as the whole space embeds them (n, E), and their sub-region (n,)."""
        lifted = x @ self.matrix + self.offset
        return lifted, None if self.region is None else np.full(len(x), self.region)

    def scan(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the function at many rows of x (n, E'), to about 1e-3: (n,)."""
        return self.surface.scan(*self.lift(x))

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the exact function at the rows of x (n, E'): (n,)."""
        return self.surface.value(*self.lift(x))

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the exact function (n,) and its gradient (n, E')."""
        value, gradient = self.surface.value_and_gradient(*self.lift(x))
        return value, gradient @ self.matrix.T

    def value_and_gradient_for_climbing(
        self, x: Array, regions: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return the function (n,) and its gradient (n, E'), to about 1e-6."""
        value, gradient = self.surface.value_and_gradient_for_climbing(*self.lift(x))
        return value, gradient @ self.matrix.T


def _nearest(part: Parameter, value: Value) -> float | None:
    """Return the unit of the value of a part that is nearest; None for a missing category."""
    if isinstance(part, Categorical):
        return part.to_unit(value) if has_value(part, value) else None
    assert isinstance(value, (int, float))
    inside = min(max(value, part.low), part.high)
    if isinstance(part, Int):
        inside = part.low + part.step * round((inside - part.low) / part.step)
    return part.to_unit(inside)


def _first_columns(space: Space) -> list[int]:
    """Return the first embedded column of each parameter."""
    return [sum(space.embedding_widths[:i]) for i in range(space.dimension)]


def _values_within(
    part: Parameter, whole: Parameter, low: float, high: float
) -> Parameter | tuple[float] | None:
    """Return the values of a part with units of the whole in a box; a tuple is one value's unit."""
    if isinstance(part, Float) and isinstance(whole, Float):
        inner = low + FACE * (low > 0.0), high - FACE * (high < 1.0)
        ends = max(part.low, whole.from_unit(inner[0])), min(part.high, whole.from_unit(inner[1]))
        return Float(*ends, part.log) if ends[0] < ends[1] else None
    if isinstance(part, Int) and isinstance(whole, Int):
        first, last = (whole.low + whole.step * k for k in values_in(whole, low, high))
        start = max(0, -((part.low - first) // part.step))  # the first of the part at or after
        stop = min(part.size - 1, (last - part.low) // part.step)
        if start >= stop:
            return None if start > stop else (whole.to_unit(part.low + part.step * start),)
        return Int(part.low + part.step * start, part.low + part.step * stop, part.log, part.step)
    assert isinstance(part, Categorical)
    units = np.array([whole.to_unit(choice) for choice in part.choices])
    inside = Space.inside(units[:, None], low, high)
    return (
        Categorical([c for c, within in zip(part.choices, inside, strict=True) if within])
        if inside.any()
        else None
    )
