r"""The shared function: what an agent receives of the other agents' objectives.

Notation

==========================  ===================================  ==========
paper                       here                                 shape
==========================  ===================================  ==========
``omega_{t-1}^(i)``         ``shared.weights[i]``                (M,)
``i[x]``                    ``shared.regions.locate(x)``         (n,)
``phi(x)' omega^(i[x])``    ``shared.path(features)``            a function
==========================  ===================================  ==========

In DP-FTS-DE the weights are those of a release, or an average of releases. In FTS they are the
vector of one other agent. Where agents share the scale of their scores, a vector holds two more
numbers, which are decoded here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import Path
from flwr_fbo.search.regions import Regions


@dataclass(frozen=True, eq=False)
class SharedFunction:
    """A function over the shared random features, one for each sub-region.

    Parameters
    ----------
    weights : Array
        The weights of the random features in each sub-region, (P, M).
    regions : Regions
        The sub-regions.
    scale : tuple of float, optional
        The mean and the spread of the agents' scores, where agents share them.
    lengthscale : float, optional
        The length scale of the agents' objectives, where the server learned that it is short.
    """

    weights: Array
    regions: Regions
    scale: tuple[float, float] | None = None
    lengthscale: float | None = None

    def path(self, features: RandomFeatures | None) -> Path:
        """Return phi(x)' omega^(i[x]) as a function that can be evaluated and maximised."""
        if features is None:
            raise ValueError(
                "a shared function needs the random features it was made for, "
                "but the agent has no random features"
            )
        return Path(features, self.weights)


def shared_function_of(
    weights: Array,
    regions: Regions,
    settings: ThompsonSettings,
    lengthscale: float | None = None,
) -> SharedFunction:
    """Return the function that averaged vectors (P, M) or (P, M + 2) stand for.

    A single row is one function for the whole space, whatever the sub-regions.
    """
    if len(weights) == 1:
        regions = Regions((1,) * len(regions.splits))
    expected = (regions.count, settings.vector_length)
    if weights.shape != expected:
        raise ValueError(f"`advice` must have shape {expected}, but got {weights.shape}")
    if not np.all(np.isfinite(weights)):
        raise ValueError("`advice` must be finite, but holds NaN or infinity")
    functions, numbers = weights[:, : settings.features], weights[:, settings.features :]
    # The scale belongs to the agents, not to a sub-region, so the rows' numbers are averaged.
    scale = None if settings.scale is None else settings.scale.decode(numbers.mean(axis=0))
    return SharedFunction(functions, regions, scale, lengthscale)
