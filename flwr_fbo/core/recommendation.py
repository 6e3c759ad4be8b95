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
from released vectors alone: post-processing, which costs no privacy. How far it can be trusted
shows in ``value / noise``: the function at a fixed point has noise of standard deviation
``deviation``, since :math:`\|\phi(x)\| = 1`, and a maximum of pure noise would have a value of
two to three times that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_fbo.core.acquisition import argmax
from flwr_fbo.core.features import RandomFeatures
from flwr_fbo.core.gp import Path
from flwr_fbo.core.regions import Regions
from flwr_fbo.core.space import Array, Space, Value


@dataclass(frozen=True)
class Recommendation:
    """A point for all agents; ``value`` and ``noise`` are in the units of what was released."""

    params: dict[str, Value]
    unit: list[float]
    value: float
    noise: float
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
    path = Path(features, weights)
    unit = argmax(path, space, np.random.default_rng(seed), regions)
    row = unit[None, :]
    value = path.value(space.embed(row), regions.locate(row))
    return Recommendation(
        space.from_unit(unit), unit.tolist(), float(value[0]), float(deviation), releases
    )
