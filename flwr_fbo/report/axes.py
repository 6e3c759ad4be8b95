"""Axes of parameters: the unit interval, with the parameter's own values as ticks."""

from __future__ import annotations

import math
from typing import Any

from flwr_fbo.core.space import Categorical, Float, Int, Parameter
from flwr_fbo.report.svg import Axis, round_step, short_number

#: Ticks on an axis of categories.
MAX_CATEGORY_TICKS = 8


def parameter_axis(name: str, parameter: Parameter) -> Axis:
    """Return the unit interval as an axis, with the parameter's own values as ticks."""
    # A margin on either side keeps dots at the ends of the interval inside the chart.
    return Axis(-0.02, 1.02, name, [(parameter.to_unit(v), t) for v, t in _ticks(parameter)])


def _ticks(parameter: Parameter) -> list[tuple[Any, str]]:
    """Return values of the parameter and their labels."""
    if isinstance(parameter, Categorical):
        stride = math.ceil(parameter.size / MAX_CATEGORY_TICKS)
        return [(choice, str(choice)) for choice in parameter.choices[::stride]]
    if parameter.log:
        return _log_ticks(parameter)
    step = round_step((parameter.high - parameter.low) / 5)
    if isinstance(parameter, Int):
        stride = max(parameter.step, round(step / parameter.step) * parameter.step)
        values: list[float] = list(range(parameter.low, parameter.high + 1, stride))
        return [(v, short_number(v)) for v in values]
    first, last = math.ceil(parameter.low / step), math.floor(parameter.high / step)
    return [(k * step, short_number(k * step)) for k in range(first, last + 1)]


def _log_ticks(parameter: Float | Int) -> list[tuple[Any, str]]:
    """Return ticks at powers of ten, with 2 and 5 times a power on a short axis."""
    low, high = math.log10(parameter.low), math.log10(parameter.high)
    stride = max(1, math.ceil((high - low) / 6))
    powers = range(math.floor(low), math.ceil(high) + 1, stride)
    digits = (1, 2, 5) if high - low < 2.5 else (1,)
    values = [d * 10.0**k for k in powers for d in digits]
    slack = 1e-9 * parameter.high  # 10**-3 need not be 0.001 to the last digit
    inside = [v for v in values if parameter.low - slack <= v <= parameter.high + slack]
    kept = [min(max(v, parameter.low), parameter.high) for v in inside]
    shown = kept or [parameter.low, parameter.high]
    if isinstance(parameter, Int):
        return [(k, short_number(k)) for k in dict.fromkeys(map(round, shown))]
    return [(v, short_number(v)) for v in shown]
