r"""Aggregates that a minority of liars cannot move far: for runs without privacy.

Notation: the weighted sum of :mod:`flwr_fbo.methods.dp_fts_de.aggregation`, whose weights of a sub-region sum
to one over all agents, is a weighted mean. Here the mean is replaced by another location of the
same vectors.

==============================  ======================  ==========
meaning                         here                    shape
==============================  ======================  ==========
vectors of K agents, clipped    ``vectors``             (K, M)
their weights by sub-region     ``weights``             (P, K)
share of the weight cut off     ``trim``, at each end   scalar
==============================  ======================  ==========

- *Trimmed mean*: coordinate by coordinate, the ``trim`` of the weight with the smallest values
  and that with the largest are left out (agents on the border count in part), and the rest is
  averaged. Liars with less weight than ``trim`` cannot move a coordinate beyond the honest ones.
- *Geometric median*: the point with the least weighted sum of distances, by Weiszfeld's
  iteration with Vardi and Zhang's step at a data point. It stays bounded while liars have less
  than half of the weight, and does not depend on the axes.

Neither is used with privacy: how far one agent can move a trimmed mean or a median depends on
where the others are, so the noise would have to be as large as if there were no sum at all.
Private runs bound every agent, liar or not, by the clip.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array

Robust: TypeAlias = Literal["none", "trimmed-mean", "geometric-median"]

#: Weiszfeld's iteration ends when a step is shorter than this share of the vectors' scale.
TOLERANCE, MOST_STEPS = 1e-9, 200


def robust_mean(vectors: Array, weights: Array, how: Robust, trim: float) -> Array:
    """The location of the vectors (K, M) under each row of weights (P, K): (P, M)."""
    if how == "trimmed-mean":
        return trimmed_mean(vectors, weights, trim)
    if how == "geometric-median":
        return np.stack([geometric_median(vectors, row) for row in weights])
    raise ValueError(f"`robust` must be trimmed-mean or geometric-median, but got {how!r}")


def trimmed_mean(vectors: Array, weights: Array, trim: float) -> Array:
    """Coordinate-wise weighted means without the tails: (P, M)."""
    if not 0 <= trim < 0.5:
        raise ValueError(f"`trim` must be in [0, 0.5), but got {trim!r}")
    order = np.argsort(vectors, axis=0, kind="stable")  # (K, M)
    ranked = np.take_along_axis(vectors, order, axis=0)  # (K, M)
    means = []
    for row in weights:  # (K,)
        share = (row / row.sum())[order]  # (K, M)
        above = np.cumsum(share, axis=0)  # the weight up to and including each
        kept = np.minimum(above, 1.0 - trim) - np.maximum(above - share, trim)
        kept = np.maximum(kept, 0.0)
        means.append((kept * ranked).sum(axis=0) / kept.sum(axis=0))
    return np.stack(means)


def geometric_median(vectors: Array, weights: Array) -> Array:
    """The point (M,) with the least sum of weighted distances to the vectors (K, M)."""
    weights = weights / weights.sum()
    point = weights @ vectors  # the mean, to begin with
    scale = np.abs(vectors).max(initial=0.0)
    for _ in range(MOST_STEPS):
        step = _weiszfeld(vectors, weights, point) - point
        point = point + step
        if np.linalg.norm(step) <= TOLERANCE * scale:
            break
    return np.asarray(point)


def _weiszfeld(vectors: Array, weights: Array, point: Array) -> Array:
    """One step; at a data point, which attracts with its own weight, as Vardi and Zhang do."""
    distances = np.linalg.norm(vectors - point, axis=1)  # (K,)
    away = distances > 0
    if not away.any():
        return point
    pulls = weights[away] / distances[away]  # (K',)
    target = pulls @ vectors[away] / pulls.sum()
    here = weights[~away].sum()
    if here == 0.0:
        return np.asarray(target)
    force = np.linalg.norm(pulls @ (vectors[away] - point))
    stay = 1.0 if force == 0.0 else min(1.0, here / force)
    return np.asarray((1.0 - stay) * target + stay * point)
