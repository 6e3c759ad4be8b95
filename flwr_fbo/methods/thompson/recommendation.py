r"""One point for all parties, computed from the released vectors alone.

Notation

=====================  =====================================  ==========
paper                  here                                   shape
=====================  =====================================  ==========
``omega^joint``        ``weights``, averaged over releases    (P, M)
``phi(x)``             ``features(x)``                        (n, M)
noise sd               ``deviation``, of each weight          scalar
=====================  =====================================  ==========

In the papers each agent keeps its own best point. The recommendation is for parties that want one
point for all, or that have no best point: they joined late, or have no data to validate on. The
recommendation is :math:`\arg\max_x \phi(x)^\top \omega^{(i[x])}` of the averaged releases. It
costs no privacy, because it is computed from released vectors alone (post-processing).

The noise of the releases has maxima of its own. The recommendation is ``clear`` if its value is
above the ``LEVEL`` quantile of the maxima that functions of noise alone reach
(:func:`noise_reach`). With few agents or a small epsilon, the recommendation is often not clear.
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

#: Number of functions of noise that a recommendation is compared with, and the quantile of their
#: maxima that a clear recommendation must exceed.
DRAWS, LEVEL = 400, 0.95


@dataclass(frozen=True)
class Recommendation:
    """A point for all agents. All values are in the scale of the released vectors.

    Parameters
    ----------
    params : dict
        The parameter values of the point.
    unit : list of float
        The point in the unit cube, (D,).
    value : float
        The averaged released function at the point.
    noise : float
        The standard deviation of the noise in ``value``.
    noise_reach : float
        The value that functions of noise alone exceed in one run of twenty.
    clear : bool
        Whether ``value`` is above ``noise_reach``.
    releases : int
        The number of released vectors in the average.
    finalists : list of dict, optional
        Where all parties evaluated some settings in the last rounds: these settings, the best
        first, with the mean of the parties' scores. ``value`` is then that of the best one, in
        the scale of these scores.
    """

    params: dict[str, Value]
    unit: list[float]
    value: float
    noise: float
    noise_reach: float
    clear: bool
    releases: int
    finalists: list[dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        found = dict(vars(self))
        if self.finalists is None:
            del found["finalists"]
        return found


def recommend(
    space: Space,
    features: RandomFeatures,
    regions: Regions,
    weights: Array,
    deviation: float,
    releases: int,
    seed: int = 0,
    unit: Array | None = None,
) -> Recommendation:
    """Return the point at which the averaged released function (P, M) is largest, or a given one.

    Parameters
    ----------
    space : Space
        The search space.
    features : RandomFeatures
        The random features that the weights refer to.
    regions : Regions
        The sub-regions.
    weights : Array
        The averaged released vectors, (P, M).
    deviation : float
        The standard deviation of the noise in each weight of the average.
    releases : int
        The number of released vectors in the average.
    seed : int
        The seed of the search for the maximum.
    unit : Array, optional
        The point (D,) to recommend, where another rule chose it; by default the maximum.
    """
    if weights.shape != (regions.count, features.count) or not np.all(np.isfinite(weights)):
        raise ValueError(
            f"`weights` must be finite and {(regions.count, features.count)}, "
            f"but got {weights.shape}"
        )
    rng = np.random.default_rng(seed)
    path = Path(features, weights)
    if unit is None:
        unit = argmax(path, space, rng, regions)
    row = unit[None, :]  # (1, D)
    value = float(path.value(space.embed(row), regions.locate(row))[0])
    reach = deviation * noise_reach(space, features, regions, rng)
    return Recommendation(
        params=space.from_unit(unit),
        unit=unit.tolist(),
        value=value,
        noise=float(deviation),  # features have norm one, so phi(x)' omega has the same noise
        noise_reach=reach,
        clear=value > reach,
        releases=releases,
    )


def noise_reach(
    space: Space, features: RandomFeatures, regions: Regions, rng: np.random.Generator
) -> float:
    """Return the LEVEL quantile of max_x phi(x)' omega, for standard normal omega."""
    points = all_points(space)
    if points is None or len(points) > CANDIDATES:
        points = space.snap(quasi_random(CANDIDATES, space.dimension, rng))
    phi, place = features(space.embed(points)), regions.locate(points)  # (n, M), (n,)
    largest = np.full(DRAWS, -np.inf)
    # A sub-region has a function of its own; the maximum is over all sub-regions.
    for region in np.unique(place):
        here = phi[place == region] @ rng.standard_normal((features.count, DRAWS))  # (n', DRAWS)
        largest = np.maximum(largest, here.max(axis=0))
    return float(np.quantile(largest, LEVEL))
