r"""The scale of the agents' scores: their mean and spread, which one evaluation cannot tell.

Shared functions are of scores that every agent standardises by itself. An agent with one score
cannot standardise: it cannot know whether the score is good. Where the range of scores is public,
as the range of an accuracy is, agents therefore share two more numbers within the same vector
(one bound, one privacy charge). Agents standardise by the average of these numbers until they
have enough scores of their own.

Notation

=======================================================  ============================  ======
symbol                                                   here                          shape
=======================================================  ============================  ======
``[low, high]``, the range of scores                     ``ScoreScale``
``m``, ``s``: mean and spread of an agent's scores
``g (2 (m - low) / (high - low) - 1)``                   ``scale.encode(y)[0]``        scalar
``g (2 log(s / (high - low)) / w + 1)``, cut to +-g      ``scale.encode(y)[1]``        scalar
``g``                                                    ``LARGEST_NUMBER``            scalar
``w``, logs from 1 down to exp(-w) of the range          ``LOG_RANGE``                 scalar
=======================================================  ============================  ======
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array

#: How many numbers encode the scale of an agent's scores.
SCALE_NUMBERS = 2
#: The largest size of either number. The numbers stand beside a vector of norm 2 or so, and all
#: coordinates receive the same noise.
LARGEST_NUMBER = 0.7
#: Spreads are encoded from the whole range down to exp(-6) = 1/400 of the range.
LOG_RANGE = 6.0
#: The shared mean and spread weigh as much as this many scores of an agent's own.
PRIOR_SCORES = 1.0
#: Scores are cut where they lie further below the median than this times the distance from the
#: median to the best score, or to the lower quartile if that is larger.
DEEPEST = 2.0
#: Scores, divided by the largest of them, that spread less than this count as equal.
LEAST_SPREAD = 1e-12


@dataclass(frozen=True)
class ScoreScale:
    """The public range of scores, and the numbers by which agents share mean and spread."""

    low: float
    high: float

    @property
    def max_norm(self) -> float:
        """Return the largest norm that :meth:`encode` can give."""
        return LARGEST_NUMBER * math.sqrt(SCALE_NUMBERS)

    def encode(self, scores: Array) -> Array:
        """Return the numbers (2,) for an agent's scores; 0, the middle, for what is unknown."""
        if not len(scores):
            return np.zeros(SCALE_NUMBERS)
        inside = np.clip(scores, self.low, self.high)
        centre = 2.0 * (np.mean(inside) - self.low) / (self.high - self.low) - 1.0
        spread = float(np.std(inside)) / (self.high - self.low)
        known = len(scores) > 1 and spread > 0
        logarithm = 2.0 * math.log(spread) / LOG_RANGE + 1.0 if known else 0.0
        return LARGEST_NUMBER * np.clip([centre, logarithm], -1.0, 1.0)

    def decode(self, numbers: Array) -> tuple[float, float]:
        """Return the mean and spread that averaged numbers (2,) stand for."""
        centre, logarithm = np.clip(numbers / LARGEST_NUMBER, -1.0, 1.0)
        width = self.high - self.low
        mean = self.low + width * (centre + 1.0) / 2.0
        return float(mean), float(width * math.exp(LOG_RANGE * (logarithm - 1.0) / 2.0))


def cut_low_scores(scores: Array) -> Array:
    """Return scores (..., t), the very low ones raised to a floor below the median.

    A network that diverged, or a chance level, can lie ten times further below the median than the
    best lies above it. Of scores standardised with it, all good ones are equal, and a stationary
    process takes what tells them apart for noise. How bad a bad score is does not matter.
    """
    if not scores.shape[-1]:
        return scores
    ordered = np.sort(scores, axis=-1)
    quartile, median = _quantile(ordered, 0.25), _quantile(ordered, 0.5)
    # The quartile is for those who begin near the top: what they tried elsewhere still counts.
    width = np.maximum(ordered[..., -1:] - median, median - quartile)
    return np.asarray(np.maximum(scores, median - DEEPEST * width))


def _quantile(ordered: Array, level: float) -> Array:
    """Return a quantile of sorted scores (..., t), as `numpy.quantile` does: (..., 1)."""
    place = level * (ordered.shape[-1] - 1)
    first = int(place)
    low, high = ordered[..., first : first + 1], ordered[..., first + 1 : first + 2]
    if place == first:
        return low
    share, apart = place - first, high - low
    return np.asarray(low + apart * share if share < 0.5 else high - apart * (1.0 - share))


def standardise_scores(scores: Array, shared: tuple[float, float] | None = None) -> Array:
    """Return scores (..., t) with mean 0 and spread 1, by their own and any shared mean and spread.

    Scores of several agents, a row for each, are standardised row by row.
    """
    largest = np.abs(scores).max(axis=-1, keepdims=True, initial=0.0)
    if shared is None:
        return _standardise_alone(scores, largest)
    # As in _standardise_alone; scores that are small stay as they are.
    size = np.maximum(1.0, largest)
    y, mean, spread = scores / size, shared[0] / size, shared[1] / size
    # Pool the moments of t scores with those of PRIOR_SCORES scores of the shared mean and spread.
    count = y.shape[-1] + PRIOR_SCORES
    centre = (y.sum(axis=-1, keepdims=True) + PRIOR_SCORES * mean) / count
    squares = ((y - centre) ** 2).sum(axis=-1, keepdims=True)
    squares = squares + PRIOR_SCORES * ((mean - centre) ** 2 + spread**2)
    return np.asarray((y - centre) / np.sqrt(squares / count))


def _standardise_alone(scores: Array, largest: Array) -> Array:
    """Return scores with mean 0 and spread 1, or all 0 where they are equal: (..., t)."""
    count = scores.shape[-1]
    if not count:
        return scores
    y = scores / np.where(largest == 0.0, 1.0, largest)  # squares of huge scores would overflow
    y -= y.sum(axis=-1, keepdims=True) / count
    spread = np.sqrt(np.einsum("...t,...t->...", y, y) / count)[..., None]
    spread_known = spread > LEAST_SPREAD
    return np.asarray(np.where(spread_known, y / np.where(spread_known, spread, 1.0), 0.0))
