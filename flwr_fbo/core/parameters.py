"""The parameters of a search space: which values there are, and where they lie in [0, 1].

Every value has a *unit*, its coordinate in [0, 1]. Each value of a discrete parameter owns one
cell of the coordinate: equal cells, or on a logarithmic scale cells that end halfway between the
logarithms. The *representative* of a value is the middle of its cell, or on a logarithmic scale
the place of its logarithm. An *index* numbers the values of a discrete parameter from 0.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array, Indices

Value: TypeAlias = float | int | str | bool | None

#: The largest number of values of a discrete parameter. Coordinates are doubles, which could not
#: tell neighbouring integers apart beyond this number.
MOST_VALUES = 2**40


class SpaceError(ValueError):
    """A search space, or a point of it, breaks a rule; the message names parameter and value."""


@dataclass(frozen=True)
class Float:
    """A real parameter in ``[low, high]``, on a linear or a logarithmic scale.

    Parameters
    ----------
    low, high : float
        The bounds, which are both allowed values. ``low < high`` must hold.
    log : bool
        Whether the scale is logarithmic, for values such as learning rates whose ratios matter
        rather than their differences. ``low > 0`` must then hold.

    Examples
    --------
    >>> rate = Float(1e-4, 1e-2, log=True)
    >>> round(rate.to_unit(1e-3), 6)
    0.5
    >>> rate.from_unit(1.0)
    0.01
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        # The dataclass is frozen, so plain assignment is not possible.
        for name in ("low", "high"):
            object.__setattr__(self, name, _finite(name, getattr(self, name)))
        _check_log(self.log)
        if not self.low < self.high:
            raise SpaceError(f"`low < high` must hold, but got (low={self.low}, high={self.high})")
        if not math.isfinite(self.high - self.low):  # both ends may be finite and this not
            raise SpaceError(
                f"`high - low` must be finite, but got (low={self.low}, high={self.high})"
            )
        if self.log and self.low <= 0:
            raise SpaceError(f"`low > 0` must hold on a log scale, but got low={self.low}")

    @property
    def size(self) -> None:
        """Return None: a continuous parameter has no number of values."""
        return None

    def to_unit(self, value: Value) -> float:
        """Return the coordinate of a value."""
        self.check(value)
        scale: Callable[[Any], float] = math.log if self.log else float
        low, high, x = scale(self.low), scale(self.high), scale(value)
        # Rounding may lead out of [0, 1] by one digit.
        return min(1.0, max(0.0, (x - low) / (high - low)))

    def from_unit(self, unit: float) -> float:
        """Return the value at a coordinate; 0 and 1 give exactly the bounds."""
        if unit <= 0 or unit >= 1:  # exp(log(low)) need not be low
            return self.low if unit <= 0 else self.high
        if self.log:
            value = math.exp(math.log(self.low) * (1 - unit) + math.log(self.high) * unit)
        else:
            value = self.low * (1 - unit) + self.high * unit
        return float(min(self.high, max(self.low, value)))

    def snap(self, unit: Array) -> Array:
        """Return the coordinates, clipped to [0, 1]."""
        return np.clip(unit, 0.0, 1.0)

    def check(self, value: Any) -> None:
        """Raise SpaceError unless the value is a number within the bounds."""
        number = _builtin(value)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise SpaceError(f"a number is needed, but got {value!r}")
        if not self.low <= number <= self.high:
            raise SpaceError(
                f"`low <= value <= high` must hold, but got {value!r} for "
                f"(low={self.low}, high={self.high})"
            )


@dataclass(frozen=True)
class Int:
    """An integer parameter ``low, low + step, ..., high``, on a linear or a logarithmic scale.

    Parameters
    ----------
    low, high : int
        The bounds, which are both allowed values. ``low < high`` must hold.
    log : bool
        Whether the scale is logarithmic. ``low >= 1`` must then hold.
    step : int
        The difference between neighbouring values, which must divide ``high - low``.

    Examples
    --------
    >>> units = Int(16, 128, step=16)
    >>> units.size
    8
    >>> units.from_unit(0.5)
    80
    >>> units.to_unit(16)  # the middle of the first of eight cells
    0.0625
    """

    low: int
    high: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        for name in ("low", "high", "step"):
            value = _builtin(getattr(self, name))
            if isinstance(value, bool) or not isinstance(value, int):
                raise SpaceError(f"`{name}` must be an integer, but got {value!r}")
            object.__setattr__(self, name, value)
        _check_log(self.log)
        if not self.low < self.high:
            raise SpaceError(f"`low < high` must hold, but got (low={self.low}, high={self.high})")
        if self.step < 1 or (self.high - self.low) % self.step:
            raise SpaceError(
                "`step >= 1` must divide `high - low`, but got "
                f"(low={self.low}, high={self.high}, step={self.step})"
            )
        if self.log and self.low < 1:
            raise SpaceError(f"`low >= 1` must hold on a log scale, but got low={self.low}")
        # Neighbouring logarithms are nearest to each other at the upper end.
        if (self.high if self.log else self.size) > MOST_VALUES:
            raise SpaceError(
                "an integer parameter must have at most 2^40 values (and on a log scale "
                f"`high <= 2^40`), but got (low={self.low}, high={self.high}, step={self.step})"
            )

    @property
    def size(self) -> int:
        """Return the number of values."""
        return (self.high - self.low) // self.step + 1

    def _log_ends(self) -> tuple[float, float]:
        """Return the logarithms at coordinates 0 and 1: the outer ends of the outer cells."""
        # A cell ends at the geometric mean of its value and the next. The outer ends mirror the
        # inner ends of the same cells.
        return (
            math.log(self.low) - 0.5 * math.log((self.low + self.step) / self.low),
            math.log(self.high) + 0.5 * math.log(self.high / (self.high - self.step)),
        )

    def to_unit(self, value: Value) -> float:
        """Return the coordinate that represents a value."""
        self.check(value)
        return float(self.unit(np.array([(int(value) - self.low) // self.step]))[0])  # type: ignore[arg-type]

    def from_unit(self, unit: float) -> int:
        """Return the value whose cell holds the coordinate."""
        return self.low + self.step * int(self.index(np.array([unit]))[0])

    def index(self, unit: Array) -> Indices:
        """Return the index of the value whose cell holds each coordinate."""
        if not self.log:
            return _equal_cell(unit, self.size)
        first, last = self._log_ends()
        x = first + np.clip(unit, 0.0, 1.0) * (last - first)
        # The largest value below x, and then whether x lies beyond the end of that value's cell.
        below = np.clip(np.floor((np.exp(x) - self.low) / self.step), 0, self.size - 2)
        value = self.low + below * self.step
        index = below + (x >= 0.5 * (np.log(value) + np.log(value + self.step)))
        return np.asarray(index, dtype=np.int64)

    def unit(self, index: Indices) -> Array:
        """Return the coordinate that represents the value of each index."""
        if not self.log:
            return np.asarray((index + 0.5) / self.size)
        first, last = self._log_ends()
        value = self.low + self.step * index.astype(np.float64)
        return np.asarray((np.log(value) - first) / (last - first))

    def snap(self, unit: Array) -> Array:
        """Return the representative of the cell that holds each coordinate."""
        return self.unit(self.index(unit))

    def check(self, value: Any) -> None:
        """Raise SpaceError unless the value is one of the integers of the parameter."""
        number = _builtin(value)
        if isinstance(number, bool) or not isinstance(number, int):
            raise SpaceError(f"an integer is needed, but got {value!r}")
        if not self.low <= number <= self.high or (number - self.low) % self.step:
            raise SpaceError(
                f"the value must be one of low, low + step, ..., high, but got {value!r} for "
                f"(low={self.low}, high={self.high}, step={self.step})"
            )


@dataclass(frozen=True)
class Categorical:
    """A parameter with unordered choices.

    Parameters
    ----------
    choices : sequence of str, bool, int, float or None
        The values, which must differ. ``1``, ``1.0`` and ``True`` are three different choices.

    Examples
    --------
    >>> optimiser = Categorical(["sgd", "adam"])
    >>> optimiser.to_unit("adam")
    0.75
    >>> optimiser.from_unit(0.1)
    'sgd'
    """

    choices: tuple[Value, ...]

    def __init__(self, choices: Sequence[Value]) -> None:
        if isinstance(choices, str) or not isinstance(choices, Sequence):
            raise SpaceError(f"`choices` must be a sequence of values, but got {choices!r}")
        object.__setattr__(self, "choices", tuple(_builtin(c) for c in choices))
        if not self.choices:
            raise SpaceError("`choices` must hold at least one value, but got none")
        for choice in self.choices:
            if choice is not None and not isinstance(choice, (str, bool, int, float)):
                raise SpaceError(
                    f"a choice must be str, bool, int, float or None, but got {choice!r}"
                )
            if isinstance(choice, float) and not math.isfinite(choice):
                raise SpaceError(f"a choice must be finite, but got {choice!r}")
        if len(set(self._identities)) < len(self.choices):
            raise SpaceError(f"`choices` must differ from one another, but got {self.choices!r}")

    @property
    def size(self) -> int:
        """Return the number of choices."""
        return len(self.choices)

    @property
    def _identities(self) -> list[tuple[str, Any]]:
        return [_identity(choice) for choice in self.choices]

    # The generated method would take Categorical([1]) and Categorical([True]) as equal.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Categorical):
            return NotImplemented
        return self._identities == other._identities

    def to_unit(self, value: Value) -> float:
        """Return the middle of the choice's cell."""
        self.check(value)
        return (self._identities.index(_identity(value)) + 0.5) / self.size

    def from_unit(self, unit: float) -> Value:
        """Return the choice whose cell holds the coordinate."""
        return self.choices[int(self.index(np.array([unit]))[0])]

    def index(self, unit: Array) -> Indices:
        """Return the index of the choice whose cell holds each coordinate."""
        return _equal_cell(unit, self.size)

    def unit(self, index: Indices) -> Array:
        """Return the middle of the cell of the choice of each index."""
        return np.asarray((index + 0.5) / self.size)

    def snap(self, unit: Array) -> Array:
        """Return the middle of the cell that holds each coordinate."""
        return self.unit(self.index(unit))

    def check(self, value: Any) -> None:
        """Raise SpaceError unless the value is one of the choices."""
        if _identity(value) not in self._identities:
            raise SpaceError(f"the value must be one of {self.choices!r}, but got {value!r}")


Parameter: TypeAlias = Float | Int | Categorical


def values_in(parameter: Int | Categorical, low: float, high: float) -> tuple[int, int]:
    """Return the first and the last index represented in ``[low, high)`` (closed at 1)."""
    first, last = (int(k) for k in parameter.index(np.array([low, high])))
    # A cell that overlaps the interval does not count where its representative lies outside.
    ends = parameter.unit(np.array([first, last]))
    if ends[0] < low:
        first += 1
    if ends[1] >= high and high < 1.0:
        last -= 1
    return first, last


def cell_start(parameter: Int | Categorical, index: int) -> float:
    """Return the lower end of a value's cell: halfway from the representative before."""
    if index in (0, parameter.size):
        return float(index > 0)
    return float(parameter.unit(np.array([index - 1, index])).mean())


def _equal_cell(unit: Array, size: int) -> Indices:
    """Return which of ``size`` equal cells holds each coordinate."""
    cells = np.floor(unit * size)  # np.clip would take longer than all the rest
    return np.asarray(np.maximum(np.minimum(cells, size - 1), 0), dtype=np.int64)


def _builtin(value: Any) -> Any:
    # numpy's scalars are not JSON, and are other types than the values they equal.
    return value.item() if isinstance(value, np.generic) else value


def _identity(value: Any) -> tuple[str, Any]:
    # 1, 1.0 and True are equal in Python but are different choices.
    value = _builtin(value)
    return type(value).__name__, value


def _check_log(log: Any) -> None:
    if not isinstance(log, bool):
        raise SpaceError(f"`log` must be True or False, but got {log!r}")


def _finite(name: str, value: Any) -> float:
    number = _builtin(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise SpaceError(f"`{name}` must be a number, but got {value!r}")
    if not abs(number) <= sys.float_info.max:
        raise SpaceError(f"`{name}` must be finite, but got {value!r}")
    return float(number)
