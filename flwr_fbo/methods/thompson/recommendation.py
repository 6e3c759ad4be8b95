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

The noise of the releases has maxima of its own, which the search finds too. So the recommendation
is compared with what the same search finds in functions of noise alone (:func:`noise_reach`). The
recommendation is ``clear`` if noise alone reaches its value in at most one run of twenty. With few
agents or a small epsilon, the recommendation is often not clear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space, Value
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import Path
from flwr_fbo.search.acquisition import all_points, argmax
from flwr_fbo.search.regions import Regions

#: The share of runs without any signal whose recommendation is not called clear.
LEVEL = 0.95
#: The number of functions of noise that a recommendation is compared with: where each of them is
#: searched, and where the points are listed.
SEARCHED, LISTED = 99, 399


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
        The value that noise alone exceeds in one run of twenty.
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
    candidates: Array | None = None,
    chosen: int | None = None,
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
    candidates : Array, optional
        The points (G, D) among which another rule chose the recommended one. By default the
        recommendation is the maximum over the whole space.
    chosen : int, optional
        The number of the recommended point among the candidates.
    """
    if weights.shape != (regions.count, features.count) or not np.all(np.isfinite(weights)):
        raise ValueError(
            f"`weights` must be finite and {(regions.count, features.count)}, "
            f"but got {weights.shape}"
        )
    rng = np.random.default_rng(seed)
    path = Path(features, weights)
    if candidates is None or chosen is None:
        candidates, unit = None, argmax(path, space, rng, regions)
    else:
        unit = candidates[chosen]
    row = unit[None, :]  # (1, D)
    value = float(path.value(space.embed(row), regions.locate(row))[0])
    reach = deviation and deviation * noise_reach(space, features, regions, rng, candidates)
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
    space: Space,
    features: RandomFeatures,
    regions: Regions,
    rng: np.random.Generator,
    candidates: Array | None = None,
) -> float:
    """Return the value of noise alone, of standard deviation 1, that one run of twenty exceeds.

    The value is the maximum over the candidates (G, D). Without candidates, it is the maximum over
    the whole space as :func:`~flwr_fbo.search.acquisition.argmax` finds it. The ascents of a search
    end higher than any candidate: in 11 dimensions by 1.4 standard deviations of the noise. So the
    functions of noise are searched in the same way.
    """
    if candidates is None:
        candidates = all_points(space)
    if candidates is None:
        largest = _searched_maxima(space, features, regions, rng)
    else:
        largest = _listed_maxima(space, features, regions, rng, candidates)
    # With n functions of noise, and one more, each is equally likely to be the k-th largest: the
    # one more is above the k-th largest of the n with a probability of exactly k / (n + 1).
    above = round((1.0 - LEVEL) * (len(largest) + 1))
    return float(np.sort(largest)[-above])


def _searched_maxima(
    space: Space, features: RandomFeatures, regions: Regions, rng: np.random.Generator
) -> Array:
    """Return the maxima that the search finds in functions of noise: (SEARCHED,)."""
    largest = np.empty(SEARCHED)
    for k in range(SEARCHED):
        noise = Path(features, rng.standard_normal((regions.count, features.count)))
        row = argmax(noise, space, rng, regions)[None, :]  # (1, D)
        largest[k] = noise.value(space.embed(row), regions.locate(row))[0]
    return largest


def _listed_maxima(
    space: Space,
    features: RandomFeatures,
    regions: Regions,
    rng: np.random.Generator,
    points: Array,
) -> Array:
    """Return the maxima of functions of noise over listed points (n, D): (LISTED,)."""
    phi, place = features(space.embed(points)), regions.locate(points)  # (n, M), (n,)
    largest = np.full(LISTED, -np.inf)
    # A sub-region has a function of its own; the maximum is over all sub-regions.
    for region in np.unique(place):
        here = phi[place == region] @ rng.standard_normal((features.count, LISTED))
        largest = np.maximum(largest, here.max(axis=0))
    return largest
