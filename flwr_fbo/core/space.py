"""Search spaces: named parameters, and their coordinates in the unit cube.

Notation

===========  ==========================================================  ==========
paper        here                                                        shape
===========  ==========================================================  ==========
``X``        :class:`Space`
``D``        ``space.dimension``, one coordinate per parameter           int
``x``        ``unit``, a point of the unit cube                          (D,)
``|X|``      ``len(space.points)`` for an explicit finite domain         int
             ``space.embed(unit)``, what kernels and features see        (n, E)
===========  ==========================================================  ==========

Optimisers work on the unit cube. A *box* (a sub-region, or a node of a tree) is the part of the
cube between two corners, and stands for a set of parameter values. Each value of a discrete
parameter owns one cell of its coordinate (:mod:`flwr_fbo.core.parameters`), and
:meth:`Space.snap` moves a point to the representative of its cell. Two points stand for the same
parameter values exactly if their snapped coordinates are equal.

Kernels must not see categories as if they were ordered, so kernels work on :meth:`Space.embed`:
a category becomes a corner of a simplex whose corners lie one unit apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.parameters import (
    Categorical,
    Float,
    Int,
    Parameter,
    SpaceError,
    Value,
    cell_start,
    values_in,
)

__all__ = [
    "Categorical",
    "Float",
    "Int",
    "Parameter",
    "Space",
    "SpaceError",
    "Value",
    "values_in",
]

#: Names of the kinds in :meth:`Space.to_dict`, which files and messages hold.
_KINDS: dict[str, type[Parameter]] = {"float": Float, "int": Int, "categorical": Categorical}


@dataclass(frozen=True, eq=False)
class Space:
    """An ordered set of named parameters, optionally restricted to explicit points.

    Parameters
    ----------
    parameters : mapping of str to Float, Int or Categorical
        The parameters by name, in the order of the coordinates.
    points : array of shape (n, D), optional
        The only points of a finite space, in unit coordinates. Every optimiser in this package
        searches a finite space exactly. :meth:`finite` builds a finite space from values.

    Examples
    --------
    >>> space = Space({"rate": Float(1e-4, 1e-2, log=True), "units": Int(16, 128, step=16)})
    >>> space.dimension
    2
    >>> unit = space.to_unit({"rate": 1e-3, "units": 16})
    >>> unit.round(4).tolist()
    [0.5, 0.0625]
    >>> space.from_unit(unit)["units"]
    16

    Points can be drawn, also from a part of the space:

    >>> import numpy as np
    >>> space.sample(3, np.random.default_rng(0), low=0.5).shape
    (3, 2)
    >>> Space.from_json(space.to_json()) == space
    True
    """

    parameters: Mapping[str, Parameter]
    points: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.parameters:
            raise SpaceError("a space must have at least one parameter, but got none")
        for name, parameter in self.parameters.items():
            if not isinstance(name, str) or not name:
                raise SpaceError(f"a parameter's name must be a non-empty string, but got {name!r}")
            if not isinstance(parameter, (Float, Int, Categorical)):
                raise SpaceError(
                    f"parameter {name!r} must be a Float, Int or Categorical, but got {parameter!r}"
                )
        # A copy: the caller's mapping may change later.
        object.__setattr__(self, "parameters", dict(self.parameters))
        if self.points is not None:
            object.__setattr__(self, "points", self._checked_points(self.points))

    def _checked_points(self, points: Array) -> Array:
        """Return the points snapped and read-only: (n, D)."""
        points = np.atleast_2d(np.asarray(points, dtype=np.float64))
        if points.size == 0 or points.shape[1] != self.dimension:
            raise SpaceError(
                f"`points` must have shape (n, {self.dimension}) with n >= 1, "
                f"but got {points.shape}"
            )
        outside = ~np.all((points >= 0) & (points <= 1), axis=1)
        if outside.any():
            raise SpaceError(
                f"`points` must lie in the unit cube, but got {points[outside][0].tolist()}; "
                "use Space.finite for parameter values"
            )
        points = self._snap_coordinates(points)
        points.setflags(write=False)
        return points

    @classmethod
    def finite(
        cls, parameters: Mapping[str, Parameter], points: Sequence[Mapping[str, Value]]
    ) -> Space:
        """Return a space of only the given points, which are parameter values."""
        whole = cls(parameters)
        return cls(parameters, np.array([whole.to_unit(point) for point in points]))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the parameters' names, in the order of the coordinates."""
        return tuple(self.parameters)

    @property
    def dimension(self) -> int:
        """Return the number of coordinates of a point."""
        return len(self.parameters)

    @cached_property
    def continuous(self) -> bool:
        """Return whether every parameter is a Float."""
        return all(isinstance(p, Float) for p in self.parameters.values())

    @property
    def embedding_widths(self) -> list[int]:
        """Return the number of columns of each parameter in :meth:`embed`."""
        return [p.size if isinstance(p, Categorical) else 1 for p in self.parameters.values()]

    @property
    def embedding_dimension(self) -> int:
        """Return E, the number of columns of :meth:`embed`."""
        return sum(self.embedding_widths)

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """Return each parameter's number of values; None for a continuous parameter."""
        return tuple(p.size for p in self.parameters.values())

    def to_unit(self, params: Mapping[str, Value]) -> Array:
        """Return the point of the unit cube that stands for parameter values: (D,)."""
        self.check(params)
        return np.array([p.to_unit(params[name]) for name, p in self.parameters.items()])

    def from_unit(self, unit: Array) -> dict[str, Value]:
        """Return the parameter values at a point (D,) of the unit cube."""
        point = np.asarray(unit, dtype=np.float64)
        if point.shape != (self.dimension,):
            raise SpaceError(f"a point must have shape ({self.dimension},), but got {point.shape}")
        if not np.all((point >= 0) & (point <= 1)):
            raise SpaceError(f"a point must lie in the unit cube, but got {point.tolist()}")
        pairs = zip(self.parameters.items(), point.tolist(), strict=True)
        return {name: p.from_unit(u) for (name, p), u in pairs}

    def check(self, params: Mapping[str, Any]) -> None:
        """Raise SpaceError unless there is one allowed value for each of the space's parameters."""
        if set(params) != set(self.parameters):
            raise SpaceError(
                f"values are needed for exactly {sorted(self.parameters)}, but got {sorted(params)}"
            )
        for name, parameter in self.parameters.items():
            try:
                parameter.check(params[name])
            except SpaceError as error:
                raise SpaceError(f"parameter {name!r}: {error}") from None

    def snap(self, units: Array) -> Array:
        """Return rows (n, D), each moved to the point of the space that the row stands for."""
        rows = np.atleast_2d(np.asarray(units, dtype=np.float64))  # (n, D)
        if self.points is None:
            return self._snap_coordinates(rows)
        # The nearest of the listed points, by the distance that kernels see.
        here, there = self.embed(rows), self.embed(self.points)
        distance = ((here[:, None, :] - there[None, :, :]) ** 2).sum(-1)  # (n, |X|)
        return np.asarray(self.points[distance.argmin(axis=1)])

    def _snap_coordinates(self, rows: Array) -> Array:
        columns = [p.snap(rows[:, i]) for i, p in enumerate(self.parameters.values())]
        return np.stack(columns, axis=1)

    def embed(self, units: Array) -> Array:
        """Return rows (n, D) as kernels and random features see them: (n, E).

        A category becomes a corner of a simplex, in as many columns as there are choices.
        """
        rows = np.atleast_2d(np.asarray(units, dtype=np.float64))  # (n, D)
        if not any(isinstance(p, Categorical) for p in self.parameters.values()):
            return rows  # without a copy: a search embeds thousands of rows
        embedded = np.zeros((len(rows), self.embedding_dimension))  # (n, E)
        first, every = 0, np.arange(len(rows))
        for i, parameter in enumerate(self.parameters.values()):
            if isinstance(parameter, Categorical):
                # Unit vectors are sqrt(2) apart.
                embedded[every, first + parameter.index(rows[:, i])] = 1.0 / math.sqrt(2)
                first += parameter.size
            else:
                embedded[:, first] = rows[:, i]
                first += 1
        return embedded

    def sample(
        self,
        n: int,
        rng: np.random.Generator,
        low: float | Array = 0.0,
        high: float | Array = 1.0,
    ) -> Array:
        """Draw ``n`` points uniformly from the part of the space in a box: (n, D).

        The box is closed below and open above, except at the end of the cube (:meth:`inside`).
        The discrete values in the box are drawn in proportion to their whole cells.
        """
        if self.points is not None:
            inside = self.points[self.inside(self.points, low, high)]
            if not len(inside):
                raise SpaceError(f"no point of the finite space lies in the box [{low}, {high}]")
            return np.asarray(inside[rng.integers(len(inside), size=n)])
        units = rng.uniform(low, high, (n, self.dimension))
        if self.continuous:
            return units
        lows, highs = (np.broadcast_to(v, self.dimension) for v in (low, high))
        for i, (name, parameter) in enumerate(self.parameters.items()):
            if not isinstance(parameter, Float):
                units[:, i] = _sample_values(name, parameter, n, rng, lows[i], highs[i])
        return units

    @staticmethod
    def inside(rows: Array, low: float | Array, high: float | Array) -> NDArray[np.bool_]:
        """Return which rows lie in a box, closed below and open above unless the box ends at 1."""
        within = (rows >= low) & ((rows < high) | (np.asarray(high) >= 1.0))
        return np.asarray(np.all(within, axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description, from which :meth:`from_dict` makes an equal space."""
        kind = {cls: name for name, cls in _KINDS.items()}
        parameters = {
            name: {"type": kind[type(p)], **{k: _plain(v) for k, v in vars(p).items()}}
            for name, p in self.parameters.items()
        }
        points = None if self.points is None else self.points.tolist()
        return {"parameters": parameters, "points": points}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Space:
        """Return the space of a description made by :meth:`to_dict`."""
        parameters: dict[str, Parameter] = {}
        try:
            for name, entry in description["parameters"].items():
                fields = {k: v for k, v in entry.items() if k != "type"}
                parameters[name] = _KINDS[entry["type"]](**fields)
            points = description["points"]
            listed = None if points is None else np.asarray(points, dtype=np.float64)
        except SpaceError:
            raise  # a parameter's own message says more than the one below
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise SpaceError(f"not the description of a space: {error!r}") from None
        return cls(parameters, listed)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Space:
        """Return the space of a text made by :meth:`to_json`."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpaceError(f"a space must be written as JSON, but is not: {error}") from None
        return cls.from_dict(content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Space):
            return NotImplemented
        same = list(self.parameters.items()) == list(other.parameters.items())
        if self.points is None or other.points is None:
            return same and self.points is other.points
        return same and np.array_equal(self.points, other.points)

    def __hash__(self) -> int:
        return hash(tuple(self.parameters.items()))


def _sample_values(
    name: str,
    parameter: Int | Categorical,
    n: int,
    rng: np.random.Generator,
    low: float,
    high: float,
) -> Array:
    """Draw coordinates of a discrete parameter in [low, high): (n,)."""
    first, last = values_in(parameter, low, high)
    if first > last:
        raise SpaceError(f"parameter {name!r} has no value in [{low}, {high}]")
    # The interval may cut a cell. Values whose representative lies inside count as a whole.
    cells = rng.uniform(cell_start(parameter, first), cell_start(parameter, last + 1), n)
    return parameter.unit(np.clip(parameter.index(cells), first, last))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
