"""The same search space in Optuna's words and in ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from flwr_fbo.core.parameters import Categorical, Float, Int, Parameter, SpaceError
from flwr_fbo.core.space import Space


def distribution_of(parameter: Parameter) -> BaseDistribution:
    """Return the distribution with the values of a parameter.

    Examples
    --------
    >>> distribution_of(Int(16, 128, step=16))
    IntDistribution(high=128, log=False, low=16, step=16)
    """
    if isinstance(parameter, Float):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Int):
        # Optuna has no logarithmic integers with a step: these are on a linear scale there.
        log = parameter.log and parameter.step == 1
        return IntDistribution(parameter.low, parameter.high, log, parameter.step)
    return CategoricalDistribution(parameter.choices)


def parameter_of(distribution: BaseDistribution) -> Parameter | None:
    """Return the parameter with the values of a distribution; None where there is none.

    There is none for a single value, and for a float with a step.

    Examples
    --------
    >>> parameter_of(FloatDistribution(1e-4, 1e-2, log=True))
    Float(low=0.0001, high=0.01, log=True)
    >>> parameter_of(FloatDistribution(0.0, 1.0, step=0.25)) is None
    True
    """
    d = distribution
    try:
        if isinstance(d, FloatDistribution):
            return Float(d.low, d.high, d.log) if d.step is None else None
        if isinstance(d, IntDistribution):
            return Int(d.low, d.high, d.log, d.step)
        if isinstance(d, CategoricalDistribution):
            return Categorical(d.choices)
    except SpaceError:  # such as a single value, or choices that are equal
        return None
    return None


def space_of(space: Space | Mapping[str, Any]) -> Space:
    """Return a space from a Space, or from parameters and distributions by name.

    Examples
    --------
    >>> space_of({"rate": FloatDistribution(0.0, 1.0), "depth": Int(1, 4)}).names
    ('rate', 'depth')
    """
    if isinstance(space, Space):
        return space
    parameters: dict[str, Any] = {}
    for name, given in space.items():
        parameter = parameter_of(given) if isinstance(given, BaseDistribution) else given
        if parameter is None:
            raise SpaceError(
                f"parameter {name!r} must have a range or choices, without a step for floats, "
                f"but got {given!r}"
            )
        parameters[name] = parameter
    return Space(parameters)
