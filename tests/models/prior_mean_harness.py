"""Shared functions for the tests of models that take one as the prior mean."""

from __future__ import annotations

from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import Path
from flwr_fbo.models.kernels import SquaredExponential


def shared_function(rng, regions=1, count=30):
    """Return a function over the square, or one function per sub-region."""
    features = RandomFeatures.draw(SquaredExponential(0.4), count, 2, rng)
    shape = (count,) if regions == 1 else (regions, count)
    return Path(features, rng.normal(size=shape))
