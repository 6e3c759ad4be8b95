"""Search spaces: named parameters, and their coordinates in the unit cube.

Notation

===========  ==========================================================  ==========
paper        here                                                        shape
===========  ==========================================================  ==========
``X``        :class:`Space`
``D``        ``space.dimension``, one coordinate a parameter             int
``x``        ``unit``, a point of the unit cube                          (D,)
``|X|``      ``len(space.points)`` for an explicit finite domain         int
             ``space.embed(unit)``, what kernels and features see        (n, E)
===========  ==========================================================  ==========

Optimisers work on the unit cube; a *box* of it (a sub-region, a node of a partition) is a
set of parameter values. Discrete parameters own equal cells of their coordinate (equal on the
parameter's own scale), and :meth:`Space.snap` moves a point to the representative of its cell,
so that two points mean the same parameters exactly when their snapped coordinates are equal.

Kernels must not see categories as if they were ordered, so they are given
:meth:`Space.embed`: a category becomes a corner of a simplex whose corners lie one unit apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Value: TypeAlias = float | int | str | bool | None


class SpaceError(ValueError):
    """A search space, or a point of it, breaks a rule; the message names parameter and value."""


@dataclass(frozen=True)
class Float:
    """A real parameter in ``[low, high]``, on a linear or a logarithmic scale."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        _require_numbers(self, low=self.low, high=self.high)
        if not self.low < self.high:
            raise SpaceError(f"`low < high` must hold, but got (low={self.low}, high={self.high})")
        if self.log and self.low <= 0:
            raise SpaceError(f"`low > 0` must hold on a log scale, but got low={self.low}")

    @property
    def size(self) -> None:
        """Continuous parameters have no number of values."""
        return None

    def to_unit(self, value: Value) -> float:
        """The coordinate of a value."""
        low, high, x = (
            math.log(_number(v)) if self.log else _number(v) for v in (self.low, self.high, value)
        )
        return min(1.0, max(0.0, (x - low) / (high - low)))

    def from_unit(self, unit: float) -> float:
        """The value at a coordinate; the ends are met exactly."""
        if self.log:
            value = math.exp(math.log(self.low) * (1 - unit) + math.log(self.high) * unit)
        else:
            value = self.low * (1 - unit) + self.high * unit
        return float(min(self.high, max(self.low, value)))

    def snap(self, unit: Array) -> Array:
        """Continuous coordinates are only clipped to the unit interval."""
        return np.clip(unit, 0.0, 1.0)

    def check(self, value: Any) -> None:
        """Raise unless the value is a number within the bounds."""
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise SpaceError(f"a number is needed, but got {value!r}")
        if not self.low <= float(value) <= self.high:
            raise SpaceError(
                f"`low <= value <= high` must hold, but got {value!r} for "
                f"(low={self.low}, high={self.high})"
            )


@dataclass(frozen=True)
class Int:
    """An integer parameter ``low, low + step, ..., high``, on a linear or a logarithmic scale."""

    low: int
    high: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        for name in ("low", "high", "step"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise SpaceError(f"`{name}` must be an integer, but got {value!r}")
        if not self.low < self.high:
            raise SpaceError(f"`low < high` must hold, but got (low={self.low}, high={self.high})")
        if self.step < 1 or (self.high - self.low) % self.step:
            raise SpaceError(
                "`step >= 1` must divide `high - low`, but got "
                f"(low={self.low}, high={self.high}, step={self.step})"
            )
        if self.log and self.low < 1:
            raise SpaceError(f"`low >= 1` must hold on a log scale, but got low={self.low}")

    @property
    def size(self) -> int:
        """How many values there are."""
        return (self.high - self.low) // self.step + 1

    def _edges(self) -> tuple[float, float]:
        # Outer ends of the first and last cell. On a log scale a cell ends at the geometric
        # mean of its value and the next, so the outer ends mirror the inner ones.
        if self.log:
            return (
                math.log(self.low) - 0.5 * math.log((self.low + self.step) / self.low),
                math.log(self.high) + 0.5 * math.log(self.high / (self.high - self.step)),
            )
        return self.low - self.step / 2, self.high + self.step / 2

    def to_unit(self, value: Value) -> float:
        """The coordinate that represents a value."""
        index = round((_number(value) - self.low) / self.step)
        return float(self.unit(np.array([index]))[0])

    def from_unit(self, unit: float) -> int:
        """The value whose cell holds the coordinate."""
        return self.low + self.step * int(self.index(np.array([unit]))[0])

    def index(self, unit: Array) -> Indices:
        """The number of the value whose cell holds each coordinate."""
        first, last = self._edges()
        x = first + np.clip(unit, 0.0, 1.0) * (last - first)
        if self.log:
            below = np.clip(np.floor((np.exp(x) - self.low) / self.step), 0, self.size - 2)
            value = self.low + below * self.step
            index = below + (x >= 0.5 * (np.log(value) + np.log(value + self.step)))
        else:
            index = np.floor((x - first) / self.step)
        return np.asarray(np.clip(index, 0, self.size - 1), dtype=np.int64)

    def unit(self, index: Indices) -> Array:
        """The coordinate that represents each numbered value."""
        first, last = self._edges()
        value = self.low + self.step * index.astype(np.float64)
        return np.asarray(((np.log(value) if self.log else value) - first) / (last - first))

    def snap(self, unit: Array) -> Array:
        """The representative of each coordinate's cell."""
        return self.unit(self.index(unit))

    def check(self, value: Any) -> None:
        """Raise unless the value is one of the integers of the parameter."""
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise SpaceError(f"an integer is needed, but got {value!r}")
        if not self.low <= value <= self.high or (value - self.low) % self.step:
            raise SpaceError(
                f"the value must be one of low, low + step, ..., high, but got {value!r} for "
                f"(low={self.low}, high={self.high}, step={self.step})"
            )


@dataclass(frozen=True)
class Categorical:
    """A parameter with unordered choices (JSON scalars)."""

    choices: tuple[Value, ...]

    def __init__(self, choices: Sequence[Value]) -> None:
        if isinstance(choices, str) or not isinstance(choices, Sequence):
            raise SpaceError(f"`choices` must be a sequence of values, but got {choices!r}")
        object.__setattr__(self, "choices", tuple(choices))
        if not self.choices:
            raise SpaceError("`choices` must hold at least one value, but got none")
        for choice in self.choices:
            if choice is not None and not isinstance(choice, (str, bool, int, float)):
                raise SpaceError(f"a choice must be str, bool, int, float or None, got {choice!r}")
            if isinstance(choice, float) and not math.isfinite(choice):
                raise SpaceError(f"a choice must be finite, but got {choice!r}")
        if len({_identity(c) for c in self.choices}) < len(self.choices):
            raise SpaceError(f"`choices` must differ from one another, but got {self.choices!r}")

    @property
    def size(self) -> int:
        """How many choices there are."""
        return len(self.choices)

    def to_unit(self, value: Value) -> float:
        """The middle of the choice's cell."""
        return ([_identity(c) for c in self.choices].index(_identity(value)) + 0.5) / self.size

    def from_unit(self, unit: float) -> Value:
        """The choice whose cell holds the coordinate."""
        return self.choices[int(self.index(np.array([unit]))[0])]

    def index(self, unit: Array) -> Indices:
        """The number of the choice at each coordinate."""
        return np.asarray(np.clip(np.floor(unit * self.size), 0, self.size - 1), dtype=np.int64)

    def unit(self, index: Indices) -> Array:
        """The middle of each numbered choice's cell."""
        return np.asarray((index + 0.5) / self.size)

    def snap(self, unit: Array) -> Array:
        """The middle of each coordinate's cell."""
        return self.unit(self.index(unit))

    def check(self, value: Any) -> None:
        """Raise unless the value is one of the choices."""
        if _identity(value) not in {_identity(c) for c in self.choices}:
            raise SpaceError(f"the value must be one of {self.choices!r}, but got {value!r}")


Parameter: TypeAlias = Float | Int | Categorical
_KINDS: dict[str, type[Parameter]] = {"float": Float, "int": Int, "categorical": Categorical}


@dataclass(frozen=True, eq=False)
class Space:
    """An ordered set of named parameters, optionally restricted to explicit points.

    ``points`` makes the domain finite: the listed points (in unit coordinates, one a row) are
    all there is, and every optimiser in this package then searches it exactly. Build such a
    space from parameter values with :meth:`finite`.
    """

    parameters: Mapping[str, Parameter]
    points: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.parameters:
            raise SpaceError("a space must have at least one parameter, but got none")
        for name, parameter in self.parameters.items():
            if not isinstance(name, str) or not name:
                raise SpaceError(f"a parameter's name must be a non-empty string, got {name!r}")
            if not isinstance(parameter, (Float, Int, Categorical)):
                raise SpaceError(
                    f"parameter {name!r} must be a Float, Int or Categorical, got {parameter!r}"
                )
        object.__setattr__(self, "parameters", dict(self.parameters))
        if self.points is not None:
            points = np.atleast_2d(np.asarray(self.points, dtype=np.float64))
            if points.size == 0 or points.shape[1] != self.dimension:
                raise SpaceError(
                    f"`points` must have shape (n, {self.dimension}) with n >= 1, "
                    f"but got {points.shape}"
                )
            if not np.all((points >= 0) & (points <= 1)):
                raise SpaceError("`points` must lie in the unit cube; use Space.finite for values")
            points = self._snap_coordinates(points)
            points.setflags(write=False)
            object.__setattr__(self, "points", points)

    @classmethod
    def finite(
        cls, parameters: Mapping[str, Parameter], points: Sequence[Mapping[str, Value]]
    ) -> Space:
        """A space of just these points, given as parameter values."""
        whole = cls(parameters)
        return cls(parameters, np.array([whole.to_unit(point) for point in points]))

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in the order of the coordinates."""
        return tuple(self.parameters)

    @property
    def dimension(self) -> int:
        """How many coordinates a point has."""
        return len(self.parameters)

    @property
    def embedding_dimension(self) -> int:
        """How many columns :meth:`embed` returns."""
        return sum(p.size if isinstance(p, Categorical) else 1 for p in self.parameters.values())

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """How many values each parameter has; None where it is continuous."""
        return tuple(p.size for p in self.parameters.values())

    def to_unit(self, params: Mapping[str, Value]) -> Array:
        """The point of the unit cube that stands for these parameter values."""
        self.check(params)
        return np.array([p.to_unit(params[name]) for name, p in self.parameters.items()])

    def from_unit(self, unit: Array) -> dict[str, Value]:
        """The parameter values at a point of the unit cube."""
        point = np.asarray(unit, dtype=np.float64)
        if point.shape != (self.dimension,):
            raise SpaceError(f"a point must have shape ({self.dimension},), but got {point.shape}")
        if not np.all((point >= 0) & (point <= 1)):
            raise SpaceError(f"a point must lie in the unit cube, but got {point.tolist()}")
        pairs = zip(self.parameters.items(), point.tolist(), strict=True)
        return {name: p.from_unit(u) for (name, p), u in pairs}

    def check(self, params: Mapping[str, Any]) -> None:
        """Raise unless these are values for exactly this space's parameters."""
        if set(params) != set(self.parameters):
            raise SpaceError(
                f"values are needed for exactly {sorted(self.parameters)}, got {sorted(params)}"
            )
        for name, parameter in self.parameters.items():
            try:
                parameter.check(params[name])
            except SpaceError as error:
                raise SpaceError(f"parameter {name!r}: {error}") from None

    def snap(self, units: Array) -> Array:
        """Each row moved to the point of the space that it stands for."""
        rows = np.atleast_2d(np.asarray(units, dtype=np.float64))  # (n, D)
        if self.points is None:
            return self._snap_coordinates(rows)
        distance = ((rows[:, None, :] - self.points[None, :, :]) ** 2).sum(-1)  # (n, |X|)
        return np.asarray(self.points[distance.argmin(axis=1)])

    def _snap_coordinates(self, rows: Array) -> Array:
        columns = [p.snap(rows[:, i]) for i, p in enumerate(self.parameters.values())]
        return np.stack(columns, axis=1)

    def embed(self, units: Array) -> Array:
        """What kernels and random features see of these rows: categories as simplex corners."""
        rows = np.atleast_2d(np.asarray(units, dtype=np.float64))  # (n, D)
        if not any(isinstance(p, Categorical) for p in self.parameters.values()):
            return rows
        columns: list[Array] = []
        for i, parameter in enumerate(self.parameters.values()):
            if isinstance(parameter, Categorical):
                columns.append(np.eye(parameter.size)[parameter.index(rows[:, i])] / math.sqrt(2))
            else:
                columns.append(rows[:, i : i + 1])
        return np.concatenate(columns, axis=1)  # (n, E)

    def sample(
        self,
        n: int,
        rng: np.random.Generator,
        low: float | Array = 0.0,
        high: float | Array = 1.0,
    ) -> Array:
        """``n`` points drawn uniformly from the part of the space in the box ``[low, high]``."""
        if self.points is not None:
            inside = self.points[self.inside(self.points, low, high)]
            if not len(inside):
                raise SpaceError(f"no point of the finite space lies in the box [{low}, {high}]")
            return np.asarray(inside[rng.integers(len(inside), size=n)])
        lows, highs = (np.broadcast_to(v, self.dimension) for v in (low, high))
        uniform = rng.uniform(lows, highs, (n, self.dimension))
        for i, (name, p) in enumerate(self.parameters.items()):
            if isinstance(p, Float):
                continue
            first, last = values_in(p, lows[i], highs[i])
            if first > last:
                raise SpaceError(f"parameter {name!r} has no value in [{lows[i]}, {highs[i]}]")
            uniform[:, i] = p.unit(np.clip(p.index(uniform[:, i]), first, last))
        return uniform

    @staticmethod
    def inside(rows: Array, low: float | Array, high: float | Array) -> NDArray[np.bool_]:
        """Which rows lie in a box: closed below, open above except where it ends at 1."""
        within = (rows >= low) & ((rows < high) | (np.asarray(high) >= 1.0))
        return np.asarray(np.all(within, axis=1))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready description, from which :meth:`from_dict` makes an equal space."""
        kind = {cls: name for name, cls in _KINDS.items()}
        parameters = {
            name: {"type": kind[type(p)], **{k: _plain(v) for k, v in vars(p).items()}}
            for name, p in self.parameters.items()
        }
        points = None if self.points is None else self.points.tolist()
        return {"parameters": parameters, "points": points}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Space:
        """The space of a description made by :meth:`to_dict`."""
        parameters: dict[str, Parameter] = {}
        try:
            for name, entry in description["parameters"].items():
                fields = {k: v for k, v in entry.items() if k != "type"}
                parameters[name] = _KINDS[entry["type"]](**fields)
            points = description["points"]
        except (KeyError, TypeError, AttributeError) as error:
            raise SpaceError(f"not the description of a space: {error!r}") from None
        return cls(parameters, None if points is None else np.asarray(points, dtype=np.float64))

    def to_json(self) -> str:
        """:meth:`to_dict` as text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Space:
        """The space written by :meth:`to_json`."""
        return cls.from_dict(json.loads(text))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Space):
            return NotImplemented
        same = list(self.parameters.items()) == list(other.parameters.items())
        if self.points is None or other.points is None:
            return same and self.points is other.points
        return same and np.array_equal(self.points, other.points)

    def __hash__(self) -> int:
        return hash(tuple(self.parameters.items()))


def values_in(parameter: Int | Categorical, low: float, high: float) -> tuple[int, int]:
    """First and last number of the values represented in ``[low, high)`` (closed at 1)."""
    first, last = (int(k) for k in parameter.index(np.array([low, high])))
    ends = parameter.unit(np.array([first, last]))
    if ends[0] < low:
        first += 1
    if ends[1] >= high and high < 1.0:
        last -= 1
    return first, last


def _number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise SpaceError(f"a number is needed, but got {value!r}")
    return float(value)


def _identity(value: Any) -> tuple[str, Any]:
    # 1, 1.0 and True are equal to Python but are different choices to a person.
    return type(value).__name__, value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _require_numbers(owner: object, **values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise SpaceError(f"`{name}` must be a number, but got {value!r}")
        if not math.isfinite(value):
            raise SpaceError(f"`{name}` must be finite, but got {value!r}")
