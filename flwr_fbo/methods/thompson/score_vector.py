"""A party's scores of the finalists as a vector, which is as long as a vector of weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.models.score_scale import LEAST_SPREAD, cut_low_scores

#: Points this near one another are the same.
SAME = 1e-9


def scores_at(points: Array, history: Sequence[Evaluation]) -> Array:
    """Return the last score at each point (K, D): NaN without any, -inf for a failure: (K,)."""
    scores = np.full(len(points), np.nan)
    for evaluation in history:
        here = np.abs(points - np.array(evaluation.unit)).max(axis=1) < SAME
        scores[here] = -np.inf if evaluation.score is None else evaluation.score
    return scores


def score_vector(scores: Array, length: int, norm: float) -> Array:
    """Return scores (K,) as the vector that a party sends: centred, of this norm, zeros behind.

    A failure counts as far below the worst score as this is below the best. A finalist without a
    score counts as the mean. Where all are equal, the vector is zero: (length,).
    """
    vector, known = np.zeros(length), ~np.isnan(scores)
    found = np.isfinite(scores)
    if not found.any():
        return vector
    size = max(float(np.abs(scores[found]).max()), np.finfo(np.float64).tiny)
    y = np.zeros(len(scores))
    y[found] = cut_low_scores(scores[found] / size)
    low, high = float(y[found].min()), float(y[found].max())
    y[known & ~found] = low - (high - low if high - low >= LEAST_SPREAD else 1.0)
    y[known] -= y[known].mean()
    y[~known] = 0.0
    longest = float(np.linalg.norm(y))
    if longest >= LEAST_SPREAD:
        vector[: len(y)] = y * (norm / longest)
    return vector
