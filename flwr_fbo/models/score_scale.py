r"""How high the agents' scores are and how far apart: what one evaluation cannot tell.

Vectors speak of scores that every agent has standardised by itself. An agent with one score
cannot do that: it cannot know whether the score is good. So where the range of scores is
public, as that of an accuracy is, agents share two more numbers within the same vector (one
bound, one charge), and standardise by the average of them until they have enough scores of
their own.

Notation

=======================================================  ============================  ======
symbol                                                   here                          shape
=======================================================  ============================  ======
``[low, high]``, the range of scores                     ``ScoreScale``
``m``, ``s``: mean and spread of an agent's scores
``g (2 (m - low) / (high - low) - 1)``                   ``scale.numbers(y)[0]``       scalar
``g (2 log(s / (high - low)) / w + 1)``, cut to +-g      ``scale.numbers(y)[1]``       scalar
``g``                                                    ``SHARE``                     scalar
``w``, logs from 1 down to exp(-w) of the range          ``LOG_RANGE``                 scalar
=======================================================  ============================  ======
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array

#: How many numbers say the scale of an agent's scores.
SCALE_NUMBERS = 2
#: The most that either of them is, beside a vector of norm 2 or so: noise is shared by all.
SHARE = 0.7
#: Spreads are told apart from the whole range down to exp(-6) = 1/400 of it.
LOG_RANGE = 6.0
#: The others' mean and spread weigh as much as so many scores of an agent's own.
PRIOR_SCORES = 1.0


@dataclass(frozen=True)
class ScoreScale:
    """The range of scores, which is public."""

    low: float
    high: float

    @property
    def longest(self) -> float:
        """The largest norm of :meth:`numbers`."""
        return SHARE * math.sqrt(SCALE_NUMBERS)

    def numbers(self, scores: Array) -> Array:
        """What an agent says of its scores: (2,); zero, the middle, where it cannot tell."""
        if not len(scores):
            return np.zeros(SCALE_NUMBERS)
        inside = np.clip(scores, self.low, self.high)  # what is told is of the range alone
        height = 2.0 * (np.mean(inside) - self.low) / (self.high - self.low) - 1.0
        spread = float(np.std(inside)) / (self.high - self.low)
        known = len(scores) > 1 and spread > 0
        logarithm = 2.0 * math.log(spread) / LOG_RANGE + 1.0 if known else 0.0
        return SHARE * np.clip([height, logarithm], -1.0, 1.0)

    def told(self, numbers: Array) -> tuple[float, float]:
        """Mean and spread that averaged numbers (2,) stand for."""
        height, logarithm = np.clip(numbers / SHARE, -1.0, 1.0)
        width = self.high - self.low
        mean = self.low + width * (height + 1.0) / 2.0
        return float(mean), float(width * math.exp(LOG_RANGE * (logarithm - 1.0) / 2.0))


def standardised(scores: Array, told: tuple[float, float] | None = None) -> Array:
    """Scores (t,) with mean 0 and spread 1, by their own moments or with what others told."""
    if told is None:
        size = float(np.abs(scores).max(initial=0.0))
        if size == 0.0:
            return scores
        y = scores / size  # squares of huge scores would overflow
        y -= y.sum() / len(y)
        spread = math.sqrt(float(y @ y) / len(y))
        return y / spread if spread > 1e-12 else np.zeros_like(y)
    size = max(1.0, float(np.abs(scores).max(initial=0.0)))  # as above
    y, mean, spread = scores / size, told[0] / size, told[1] / size
    count = len(y) + PRIOR_SCORES
    centre = (y.sum() + PRIOR_SCORES * mean) / count
    squares = ((y - centre) ** 2).sum() + PRIOR_SCORES * ((mean - centre) ** 2 + spread**2)
    return np.asarray((y - centre) / math.sqrt(squares / count))
