r"""Means that a minority of dishonest agents cannot move far, for runs without privacy.

The sum of :mod:`flwr_fbo.methods.dp_fts_de.aggregation` is a weighted mean, because the weights of
a sub-region add up to one over all agents. Here this mean is replaced by another location of the
same vectors.

Notation

==============================  ======================  ==========
meaning                         here                    shape
==============================  ======================  ==========
vectors of K agents, clipped    ``vectors``             (K, M)
their weights by sub-region     ``weights``             (P, K)
share of the weight left out    ``trim``, at each end   scalar
==============================  ======================  ==========

- *Trimmed mean*: in each coordinate, the smallest values with a share ``trim`` of the weight are
  left out, and so are the largest; an agent on the border counts in part. The rest is averaged.
  Dishonest agents with less weight than ``trim`` cannot move a coordinate out of the range of the
  honest agents' values.
- *Geometric median*: the point with the least weighted sum of distances to the vectors, by
  Weiszfeld's iteration with Vardi and Zhang's step at a data point. The median stays bounded
  while dishonest agents have less than half of the weight, and does not depend on the axes.

Neither is used with privacy. How far one agent can move a trimmed mean or a median depends on the
other vectors, so the noise would have to be as large as for a single vector. In a private run the
clip bounds every agent, honest or not.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array

Robust: TypeAlias = Literal["none", "trimmed-mean", "geometric-median"]

#: Weiszfeld's iteration ends when a step is shorter than this share of the largest coordinate,
#: or after this number of steps.
TOLERANCE, MOST_STEPS = 1e-9, 200


def robust_mean(vectors: Array, weights: Array, how: Robust, trim: float) -> Array:
    """Return the robust mean of the vectors (K, M) for each row of weights (P, K): (P, M)."""
    if how == "trimmed-mean":
        return trimmed_mean(vectors, weights, trim)
    if how == "geometric-median":
        return np.stack([geometric_median(vectors, row) for row in weights])
    raise ValueError(f"`robust` must be trimmed-mean or geometric-median, but got {how!r}")


def trimmed_mean(vectors: Array, weights: Array, trim: float) -> Array:
    """Return the weighted mean of each coordinate without the tails: (P, M)."""
    if not 0 <= trim < 0.5:
        raise ValueError(f"`trim` must be in [0, 0.5), but got {trim!r}")
    order = np.argsort(vectors, axis=0, kind="stable")  # (K, M)
    ranked = np.take_along_axis(vectors, order, axis=0)  # (K, M)
    means = []
    for row in weights:  # (K,)
        share = (row / row.sum())[order]  # (K, M)
        # Laid end to end in order, the shares fill [0, 1]; kept is what lies in [trim, 1 - trim].
        end = np.cumsum(share, axis=0)
        kept = np.minimum(end, 1.0 - trim) - np.maximum(end - share, trim)
        kept = np.maximum(kept, 0.0)
        means.append((kept * ranked).sum(axis=0) / kept.sum(axis=0))
    return np.stack(means)


def geometric_median(vectors: Array, weights: Array) -> Array:
    """Return the point with the least weighted sum of distances to the vectors (K, M): (M,)."""
    weights = weights / weights.sum()
    point = weights @ vectors  # the iteration starts at the mean
    scale = np.abs(vectors).max(initial=0.0)
    for _ in range(MOST_STEPS):
        step = _weiszfeld(vectors, weights, point) - point
        point = point + step
        if np.linalg.norm(step) <= TOLERANCE * scale:
            break
    return np.asarray(point)


def _weiszfeld(vectors: Array, weights: Array, point: Array) -> Array:
    """Return the point after one step of Vardi and Zhang's iteration: (M,)."""
    distances = np.linalg.norm(vectors - point, axis=1)  # (K,)
    away = distances > 0
    if not away.any():
        return point
    pulls = weights[away] / distances[away]  # (K',)
    target = pulls @ vectors[away] / pulls.sum()  # Weiszfeld's step
    here = weights[~away].sum()
    if here == 0.0:
        return np.asarray(target)
    # At a data point Weiszfeld's step is undefined. The point stays by the share of its own
    # weight in the force of the other vectors.
    force = np.linalg.norm(pulls @ (vectors[away] - point))
    stay = 1.0 if force == 0.0 else min(1.0, here / force)
    return np.asarray((1.0 - stay) * target + stay * point)
