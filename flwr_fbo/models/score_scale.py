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

    def fits(self, scores: Array) -> bool:
        """Return whether scores can be of this range: none is further outside than it is wide.

        An accuracy in percent is not of the range from 0 to 1; one of 1.003, from noise, is.
        """
        width = self.high - self.low
        return bool(np.all((scores >= self.low - width) & (scores <= self.high + width)))

    def decode(self, numbers: Array) -> tuple[float, float]:
        """Return the mean and spread that averaged numbers (2,) stand for."""
        centre, logarithm = np.clip(numbers / LARGEST_NUMBER, -1.0, 1.0)
        width = self.high - self.low
        mean = self.low + width * (centre + 1.0) / 2.0
        return float(mean), float(width * math.exp(LOG_RANGE * (logarithm - 1.0) / 2.0))


def cut_low_scores(scores: Array) -> Array:
    """Return scores (t,), the very low ones raised to a floor below the median.

    A network that diverged, or a chance level, can lie ten times further below the median than the
    best lies above it. Of scores standardised with it, all good ones are equal, and a stationary
    process takes what tells them apart for noise. How bad a bad score is does not matter.
    """
    if not len(scores):
        return scores
    quartile, median = np.quantile(scores, [0.25, 0.5]).tolist()
    # The quartile is for those who begin near the top: what they tried elsewhere still counts.
    width = max(float(scores.max()) - median, median - quartile)
    return np.asarray(np.maximum(scores, median - DEEPEST * width))


def standardise_scores(scores: Array, shared: tuple[float, float] | None = None) -> Array:
    """Return scores (t,) with mean 0 and spread 1, by their own and any shared mean and spread."""
    largest = float(np.abs(scores).max(initial=0.0))
    if shared is None:
        return _standardise_alone(scores, largest)
    # As in _standardise_alone; scores that are small stay as they are.
    size = max(1.0, largest)
    y, mean, spread = scores / size, shared[0] / size, shared[1] / size
    # Pool the moments of t scores with those of PRIOR_SCORES scores of the shared mean and spread.
    count = len(y) + PRIOR_SCORES
    centre = (y.sum() + PRIOR_SCORES * mean) / count
    squares = ((y - centre) ** 2).sum() + PRIOR_SCORES * ((mean - centre) ** 2 + spread**2)
    return np.asarray((y - centre) / math.sqrt(squares / count))


def _standardise_alone(scores: Array, largest: float) -> Array:
    """Return scores with mean 0 and spread 1, or all 0 where they are equal: (t,)."""
    if largest == 0.0:
        return scores
    y = scores / largest  # the squares of huge scores would overflow
    y -= y.sum() / len(y)
    spread = math.sqrt(float(y @ y) / len(y))
    return y / spread if spread > LEAST_SPREAD else np.zeros_like(y)
