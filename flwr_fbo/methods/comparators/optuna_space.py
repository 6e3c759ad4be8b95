"""A search space in Optuna's terms, for the comparators and baselines that use Optuna."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.space import Categorical, Float, Space
from flwr_fbo.methods.comparators.base import import_extra

#: Name of the one parameter that stands for a finite space: the number of a point.
POINT = "point"


def import_optuna() -> Any:
    """Return Optuna with its messages switched off, or raise ImportError that names the extra."""
    optuna = import_extra("optuna", "optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def distributions_of(space: Space) -> dict[str, Any]:
    """Return the space in Optuna's terms; a finite space is the numbers of its points."""
    kinds = import_optuna().distributions
    if space.points is not None:
        return {POINT: kinds.IntDistribution(0, len(space.points) - 1)}
    return {name: _distribution(kinds, p) for name, p in space.parameters.items()}


def _distribution(kinds: Any, p: Parameter) -> Any:
    """Return one parameter in Optuna's terms."""
    if isinstance(p, Categorical):
        return kinds.CategoricalDistribution(p.choices)
    if isinstance(p, Float):
        return kinds.FloatDistribution(p.low, p.high, log=p.log)
    # Optuna has no logarithmic integers with a step: they are sampled on a linear scale.
    if p.log and p.step == 1:
        return kinds.IntDistribution(p.low, p.high, log=True)
    return kinds.IntDistribution(p.low, p.high, step=p.step)


def unit_of(space: Space, params: Mapping[str, Any]) -> Array:
    """Return a trial's values as a point of the unit cube: (D,)."""
    if space.points is not None:
        return np.asarray(space.points[params[POINT]])
    return space.to_unit(params)


def params_of(space: Space, unit: Array) -> dict[str, Any]:
    """Return a point of the unit cube (D,) as the values of a trial, the reverse of unit_of."""
    if space.points is None:
        return dict(space.from_unit(unit))
    return {POINT: int(np.argmin(np.abs(space.points - unit).sum(axis=1)))}
