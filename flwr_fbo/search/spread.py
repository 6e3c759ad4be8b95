"""Points that are spread over a space, one at a time, given the points before."""

from __future__ import annotations

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.search.subspace import SubSpace


def spread_point(
    space: Space, seen: Array, count: int, rng: np.random.Generator, part: SubSpace | None = None
) -> Array:
    """Return a point (D,) whose values are among the least tried of each parameter.

    A range has ``count`` equal parts, a category its choices. From a part that fewest of the seen
    points (n, D) lie in, a value is drawn. So ``count`` points reach every part of every range, as
    in a Latin hypercube, and every category in turn, whatever the first of them were.

    Parameters
    ----------
    space : Space
        The search space.
    seen : array
        The points before: (n, D).
    count : int
        The number of parts of a range.
    rng : Generator
        Draws among the parts that are tried least, and within a part.
    part : SubSpace, optional
        The part of the space from which the point comes.
    """
    if part is not None:
        return np.asarray(part.lift(_spread(part.own, part.restrict(seen), count, rng)[None, :])[0])
    return _spread(space, seen, count, rng)


def _spread(space: Space, seen: Array, count: int, rng: np.random.Generator) -> Array:
    unit = np.empty(space.dimension)
    for column, parameter in enumerate(space.parameters.values()):
        parts = parameter.size if isinstance(parameter, Categorical) else count
        places = np.minimum((seen[:, column] * parts).astype(np.int64), parts - 1)
        tried = np.bincount(places, minlength=parts)
        unit[column] = (rng.choice(np.flatnonzero(tried == tried.min())) + rng.random()) / parts
    return np.asarray(space.snap(unit[None, :])[0])
