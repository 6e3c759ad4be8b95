"""The last rounds of a run, in which all agents evaluate the finalists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array

#: The array of a run's setup with the rounds whose releases hold scores, and no weights.
SCORE_ROUNDS = "final-round"


def score_rounds(arrays: Mapping[str, Array]) -> set[int]:
    """Return the rounds whose releases hold scores of settings in place of weights."""
    return {int(t) for t in np.atleast_1d(arrays.get(SCORE_ROUNDS, np.zeros(0)))}


@dataclass(frozen=True)
class FinalRounds:
    """The last rounds of a run, in which all agents evaluate the finalists.

    Parameters
    ----------
    count : int
        K, the number of finalists.
    parallel : int
        The finalists that an agent evaluates in one round.
    end : int
        The final round, in which agents send their scores.
    """

    count: int
    parallel: int
    end: int

    @property
    def start(self) -> int:
        """Return the first round in which finalists are evaluated."""
        return self.end + 1 - math.ceil(self.count / self.parallel)

    def __contains__(self, round: int) -> bool:
        """Return whether agents evaluate finalists in a round."""
        return self.start <= round <= self.end

    def of_round(self, round: int) -> tuple[int, int]:
        """Return the number of the first finalist of a round, and how many the round has."""
        first = (round - self.start) * self.parallel
        return first, min(self.parallel, self.count - first)
