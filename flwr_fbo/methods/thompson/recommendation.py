r"""One point for everybody, from what was made public anyway.

Notation

=====================  =====================================  ==========
paper                  here                                   shape
=====================  =====================================  ==========
``omega^joint``        ``weights``, averaged over releases    (P, M)
``phi(x)``             ``features(x)``                        (n, M)
noise sd               ``deviation``, of each weight          scalar
=====================  =====================================  ==========

The papers' agents each keep their own best point. A party that has none (it joins late, or has
no data to validate on) and anyone who wants one setting for all can have
:math:`\arg\max_x \phi(x)^\top \omega^{(i[x])}` of the averaged releases instead. It is computed
from released vectors alone: post-processing, which costs no privacy.

Whether it says more than the noise would is told by ``clear``: the maximum is compared with the
``LEVEL`` quantile of the maxima that functions of noise alone reach (:func:`noise_reach`). With
few agents or a small epsilon it often is not clear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space, Value
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import Path
from flwr_fbo.search.acquisition import CANDIDATES, all_points, argmax, quasi_random
from flwr_fbo.search.regions import Regions

#: Functions of noise that a recommendation is compared with, and which of their maxima.
DRAWS, LEVEL = 400, 0.95


@dataclass(frozen=True)
class Recommendation:
    """A point for all agents; ``value`` and ``noise`` are in the units of what was released."""

    params: dict[str, Value]
    unit: list[float]
    value: float
    noise: float
    #: The value that functions of noise alone reach in one run of twenty, and whether this one
    #: is above it.
    noise_reach: float
    clear: bool
    #: How many released vectors it is the average of.
    releases: int

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return dict(vars(self))


def recommend(
    space: Space,
    features: RandomFeatures,
    regions: Regions,
    weights: Array,
    deviation: float,
    releases: int,
    seed: int = 0,
) -> Recommendation:
    """Where the averaged released function (P, M) is largest; the seed steers the search only."""
    if weights.shape != (regions.count, features.count) or not np.all(np.isfinite(weights)):
        raise ValueError(
            f"`weights` must be finite and {(regions.count, features.count)}, "
            f"but got {weights.shape}"
        )
    rng = np.random.default_rng(seed)
    path = Path(features, weights)
    unit = argmax(path, space, rng, regions)
    row = unit[None, :]
    value = float(path.value(space.embed(row), regions.locate(row))[0])
    reach = deviation * noise_reach(space, features, regions, rng)
    return Recommendation(
        params=space.from_unit(unit),
        unit=unit.tolist(),
        value=value,
        noise=float(deviation),
        noise_reach=reach,
        clear=value > reach,
        releases=releases,
    )


def noise_reach(
    space: Space, features: RandomFeatures, regions: Regions, rng: np.random.Generator
) -> float:
    """The LEVEL quantile of max_x phi(x)' omega for omega of independent standard normals."""
    points = all_points(space)
    if points is None or len(points) > CANDIDATES:
        points = space.snap(quasi_random(CANDIDATES, space.dimension, rng))
    phi, place = features(space.embed(points)), regions.locate(points)  # (n, M), (n,)
    largest = np.full(DRAWS, -np.inf)
    for region in np.unique(place):
        here = phi[place == region] @ rng.standard_normal((features.count, DRAWS))  # (n', DRAWS)
        largest = np.maximum(largest, here.max(axis=0))
    return float(np.quantile(largest, LEVEL))
