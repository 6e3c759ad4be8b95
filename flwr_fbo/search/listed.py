"""A public list of settings, of which agents evaluate all or a part."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.parameters import Categorical, Parameter
from flwr_fbo.core.space import Space
from flwr_fbo.search.acquisition import all_points
from flwr_fbo.search.candidates import quasi_random

#: Quasi-random points that are drawn for each one that is wanted, as equal ones count once.
_ATTEMPTS = 20


def listed_settings(
    space: Space, budget: int, design: Literal["spread", "grid"], rng: np.random.Generator
) -> Array:
    """Return at most ``budget`` different points of the space: (G, D).

    A space with no more than ``budget`` points is listed completely. A longer list of the design
    ``spread`` begins with a shorter list of the same generator.

    Examples
    --------
    >>> from flwr_fbo import Float, Int
    >>> space = Space({"rate": Float(0.0, 1.0), "depth": Int(1, 3)})
    >>> grid = listed_settings(space, 10, "grid", np.random.default_rng(0))
    >>> [space.from_unit(point)["depth"] for point in grid]
    [1, 2, 3, 1, 2, 3, 1, 2, 3]
    """
    listed = all_points(space)
    if listed is not None and len(listed) <= budget:
        return np.unique(listed, axis=0)
    if space.points is not None:
        chosen = rng.permutation(len(space.points))[:budget]
        return np.asarray(space.points[np.sort(chosen)])
    return _grid(space, budget) if design == "grid" else _spread(space, budget, rng)


def _spread(space: Space, budget: int, rng: np.random.Generator) -> Array:
    """Return quasi-random points, each once: (G, D)."""
    points = space.snap(quasi_random(_ATTEMPTS * budget, space.dimension, rng))
    _, first = np.unique(points, axis=0, return_index=True)
    return np.asarray(points[np.sort(first)[:budget]])


def _grid(space: Space, budget: int) -> Array:
    """Return the middles of equal parts of every range, in all combinations: (G, D)."""
    parameters = list(space.parameters.values())
    levels = _levels(parameters, budget)
    axes = [_values(p, n) for p, n in zip(parameters, levels, strict=True)]
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


def _levels(parameters: list[Parameter], budget: int) -> list[int]:
    """Return how many values of each parameter the grid has; their product is <= ``budget``."""
    most = [p.size or budget for p in parameters]
    levels = [1] * len(parameters)
    # Categories first: half of the choices of a categorical parameter are no picture of it.
    for i, parameter in enumerate(parameters):
        whole = [*levels[:i], most[i], *levels[i + 1 :]]
        if isinstance(parameter, Categorical) and math.prod(whole) <= budget:
            levels = whole
    while True:
        for i in sorted(range(len(levels)), key=lambda i: (levels[i], i)):
            finer = [*levels[:i], levels[i] + 1, *levels[i + 1 :]]
            if levels[i] < most[i] and math.prod(finer) <= budget:
                levels = finer
                break
        else:
            return levels


def _values(parameter: Parameter, count: int) -> Array:
    """Return this many different coordinates of a parameter, evenly spread: (count,)."""
    units = (np.arange(count) + 0.5) / count
    if parameter.size is None:
        return units
    if parameter.size == count:
        return np.asarray(parameter.unit(np.arange(count)))
    # On a logarithmic scale several middles may lie in the wide cell of one small integer.
    index = np.unique(parameter.index(units))
    rest = np.setdiff1d(np.arange(min(parameter.size, 4 * count)), index)[: count - len(index)]
    return np.asarray(parameter.unit(np.sort(np.concatenate([index, rest]))))
