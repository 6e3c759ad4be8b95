r"""The sum of the parties' votes, with exact noise.

Notation

==========================  ==============================  ==========
symbol                      here                            shape
==========================  ==============================  ==========
``G``, ``k``                ``count``, ``settings.votes``   int
``v_n``, 0 or 1             ``votes[n]``                    (G,)
``Delta``                   ``settings.sensitivity``        scalar
``z``                       ``noise_multiplier``            scalar
``sum_n v_n + N(0, s^2)``   ``tally.draw_release(...)``     (1, G)
==========================  ==============================  ==========

The methods have the names and the arguments of the private sum of ``dp-fts-de``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.voting.settings import VotingSettings
from flwr_fbo.privacy.entropy import Entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.mechanisms import GaussianSum, clip_rows


@dataclass(frozen=True)
class Tally:
    """What is made of the votes of one run.

    Parameters
    ----------
    settings : VotingSettings
        The number of votes, and the neighbouring relation.
    count : int
        G, the number of settings on the list.
    noise_multiplier : float, optional
        z; None in a run without privacy.
    """

    settings: VotingSettings
    count: int
    noise_multiplier: float | None = None

    def event(self, round: int) -> GaussianRelease:
        """Return the event that the release is charged as."""
        assert self.noise_multiplier is not None
        return GaussianRelease(self.noise_multiplier, 1.0, round)

    def mechanism(self, round: int) -> GaussianSum:
        """Return the noise of the sum."""
        assert self.noise_multiplier is not None
        return GaussianSum(self.settings.sensitivity, self.noise_multiplier)

    def deviation(self, round: int) -> float:
        """Return the standard deviation of the noise in each number of votes."""
        return 0.0 if self.noise_multiplier is None else self.mechanism(round).deviation

    def draw_release(self, votes: Mapping[int, Array], round: int, entropy: Entropy) -> Array:
        """Return the noisy sum of the votes: (1, G). The caller has charged the event."""
        mechanism = self.mechanism(round)
        total = mechanism.quantise(self._bounded(votes)).sum(axis=0)
        return mechanism.release(total, entropy)[None, :]

    def without_noise(self, votes: Mapping[int, Array], round: int) -> Array:
        """Return the sum of the votes: (1, G)."""
        return np.asarray(self._bounded(votes).sum(axis=0))[None, :]

    def _bounded(self, votes: Mapping[int, Array]) -> Array:
        """Return what counts of each reply: (n, G).

        No vote counts for less than 0 or more than 1, and all votes of a party together have norm
        sqrt(k) at most. Honest votes are k times 1, and count as they are.
        """
        rows = np.zeros((0, self.count)) if not votes else np.stack(list(votes.values()))
        rows = np.clip(rows, 0.0, 1.0)
        k = self.settings.votes
        honest = ((rows == 0) | (rows == 1)).all(axis=1) & (rows.sum(axis=1) <= k)
        rows[~honest] = clip_rows(rows[~honest], float(np.sqrt(k)))
        return rows
