"""Functions that others might have told, for the tests of what agents make of them."""

from __future__ import annotations

from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import Path
from flwr_fbo.models.kernels import SquaredExponential


def advised(rng, regions=1, count=30):
    """Advice over the square: one function, or one a sub-region."""
    features = RandomFeatures.draw(SquaredExponential(0.4), count, 2, rng)
    shape = (count,) if regions == 1 else (regions, count)
    return Path(features, rng.normal(size=shape))
