r"""The function that a run released, with its noise: what everybody may see of the scores.

Notation

=====================  =======================================  ==========
symbol                 here                                     shape
=====================  =======================================  ==========
``omega``              ``weights``, averaged over releases      (P, M)
``f(x)``               ``values(units)`` = phi(x)' omega        (n,)
noise sd               ``deviation``, of each weight            scalar
=====================  =======================================  ==========

Features have norm one, so the noise of f(x) has the standard deviation of the weights' noise,
at every x. Points near one another share their noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space
from flwr_fbo.methods.dp_fts_de.final_rounds import score_rounds
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import Path
from flwr_fbo.privacy.releases import Release, ReleaseMemory
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.search.candidates import quasi_random
from flwr_fbo.search.regions import Regions

#: Points of the space at which the size of a function is measured.
POINTS = 512


@dataclass(frozen=True)
class ReleasedFunction:
    """The average of a run's releases as a function over the space.

    Parameters
    ----------
    space
        The search space.
    features, regions
        The random features and the sub-regions that the weights refer to.
    weights
        The averaged released vectors, (P, M).
    deviation
        The standard deviation of the noise in the function's values.
    releases
        The releases, oldest first.
    """

    space: Space
    features: RandomFeatures
    regions: Regions
    weights: Array
    deviation: float
    releases: Sequence[Release]

    def values(self, units: Array) -> Array:
        """Return the function at points of the unit cube (n, D): (n,)."""
        return self._values(self.weights, units)

    def _values(self, weights: Array, units: Array) -> Array:
        path = Path(self.features, weights[:, : self.features.count])
        return np.asarray(path.value(self.space.embed(units), self.regions.locate(units)))

    def signal_and_noise(self, release: Release) -> tuple[float, float]:
        """Return how much a release varies over the space: without its noise, and by its noise.

        The variation that the noise makes by itself is known, so it is taken off in the variance.
        """
        units = spread_points(self.space)
        phi = self.features(self.space.embed(units))  # (n, M)
        own = phi - phi.mean(axis=0)
        noise = release.deviation * math.sqrt(float((own**2).sum(axis=1).mean()))
        total = float(self._values(release.vector, units).var())
        return math.sqrt(max(0.0, total - noise**2)), noise


def spread_points(space: Space, count: int = POINTS) -> Array:
    """Return points that are spread evenly over the space, the same in every call: (n, D)."""
    if space.points is not None:
        return np.asarray(space.points)
    return space.snap(quasi_random(count, space.dimension, np.random.default_rng(0)))


def read_released(
    directory: RunDirectory, space: Space | None
) -> tuple[ReleasedFunction | None, list[str]]:
    """Return the function of a run's releases, and what is damaged; None without a function.

    A damaged release is left out.
    """
    if space is None or not directory.releases.features_path.exists():
        return None, []
    releases, damages = directory.intact_releases()
    try:
        arrays = directory.releases.features()
        if "frequencies" not in arrays:  # the votes of `voting` are no function
            return None, damages
        features = RandomFeatures(arrays["frequencies"], arrays["phases"])
        regions = Regions(tuple(int(k) for k in arrays["splits"]))
    except (RunDirectoryError, KeyError, ValueError) as error:
        return None, [*damages, str(error)]
    memory = ReleaseMemory()
    scored = score_rounds(arrays)
    for release in releases:
        if release.round in scored:
            continue
        memory.add(release.vector, release.deviation, release.round)
    weights = memory.average()
    if weights is None:
        return None, damages
    found = ReleasedFunction(space, features, regions, weights, memory.deviation(), memory.releases)
    return found, damages
