r"""From one round's vectors to the joint vector: sample, clip, weight, add up, add noise.

Notation (DP-FTS-DE Algorithm 1, lines 5-11)

==========================  ======================================  ==========
paper                       here                                    shape
==========================  ======================================  ==========
``N``, ``P``                ``agents``, ``regions``                 int
``q``, ``z``                ``sampling_rate, noise_multiplier``     scalars
``S_t``                     ``aggregation.selected(...)``
``omega_{n,t}``             ``vectors[n]``                          (M,)
``phi_n^(i)``               ``aggregation.weights(t)[i, n]``        (P, N)
``S / sqrt(P)``             ``aggregation.bound``                   scalar
``z phi_max S``             ``aggregation.mechanism(t).deviation``  scalar
``q omega_t^(i)``           ``sum.plain[i]``, or in                 (P, M)
without noise               lattice units ``sum.exact[i]``
``omega_t^joint``           ``aggregation.draw_release(...)``       (P, M)
==========================  ======================================  ==========

The weights and q do not depend on which vectors arrive: the vector of an agent that is missing,
or not in the sample, is zero. Vectors are added in blocks, so a million agents need no more
memory than one block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.methods.dp_fts_de.robust import robust_mean
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.schedules import WeightSchedule
from flwr_fbo.privacy.calibration import sample_size
from flwr_fbo.privacy.entropy import Entropy, fixed_size_sample, poisson_sample
from flwr_fbo.privacy.events import FixedSizeRelease, GaussianRelease
from flwr_fbo.privacy.mechanisms import GaussianSum, clip_rows
from flwr_fbo.privacy.sensitivity import joint_sensitivity

#: Number of agents whose weighted vectors are held at once: few enough for the processor's cache.
BLOCK = 512


class WeightedSum:
    r"""The sum over agents of :math:`\varphi_n^{(i)} \hat\omega_n`, for every sub-region i.

    With a mechanism, each agent's joint contribution (P weighted copies of its vector) is rounded
    towards zero onto the lattice of the mechanism before the contribution is added. The sum is
    then exact, and without any one agent it differs by no more than the sensitivity, also in
    floating point.

    Parameters
    ----------
    weights : Array
        The weights of the agents in each sub-region, (P, N).
    features : int
        The length of the vectors.
    bound : float, optional
        The norm to which each vector is clipped; by default vectors are not clipped.
    mechanism : GaussianSum, optional
        The mechanism whose lattice is used; by default the sum is a plain one.
    """

    def __init__(
        self,
        weights: Array,
        features: int,
        bound: float | None = None,
        mechanism: GaussianSum | None = None,
    ) -> None:
        self._weights, self._bound, self._mechanism = weights, bound, mechanism
        shape = (len(weights), features)
        self.exact = np.zeros(shape, dtype=np.int64)
        self.plain = np.zeros(shape)

    def add(self, agents: Indices, vectors: Array) -> None:
        """Add the vectors (K, M) of these agents (K,)."""
        for start in range(0, len(agents), BLOCK):
            block = slice(start, start + BLOCK)
            self._add(self._weights[:, agents[block]], vectors[block])

    def _add(self, weights: Array, vectors: Array) -> None:
        if self._bound is not None:
            vectors = clip_rows(vectors, self._bound)  # line 9
        if self._mechanism is None:
            self.plain += weights @ vectors  # line 10 without 1 / q: (P, M)
            return
        joint = weights.T[:, :, None] * vectors[:, None, :]  # (K, P, M)
        rows = joint.reshape(len(vectors), -1)
        self.exact += self._mechanism.quantise(rows).sum(axis=0).reshape(self.exact.shape)


@dataclass(frozen=True)
class Aggregation:
    """Lines 5 to 11 of Algorithm 1 for one run: what is made of the vectors of a round.

    Parameters
    ----------
    settings : DPFTSDESettings
        Weights, clip, sampling, sensitivity and robust aggregate.
    agents, regions : int
        N and P.
    sampling_rate : float
        q.
    noise_multiplier : float, optional
        z; None in a run without privacy.
    """

    settings: DPFTSDESettings
    agents: int
    regions: int
    sampling_rate: float
    noise_multiplier: float | None = None

    @property
    def bound(self) -> float | None:
        """Return S / sqrt(P), to which every agent's vector is clipped; None is no clipping."""
        if self.settings.clip is not None:
            return self.settings.clip / math.sqrt(self.regions)
        bounded = self.settings.private or self.settings.robust != "none"
        return self.settings.max_norm if bounded else None

    def weights(self, round: int) -> Array:
        """Return phi_n^(i) in a round: (P, N)."""
        s = self.settings
        schedule = WeightSchedule(s.weights, s.weights_hold, s.weights_decay or None)
        return schedule.at(round, self.agents, self.regions)

    @property
    def sample_size(self) -> int:
        """Return the size of a sample of fixed size: N q agents, rounded, and at least one."""
        return sample_size(self.agents, self.sampling_rate)

    @property
    def inclusion_probability(self) -> float:
        """Return the probability that a sample holds an agent: q, or N q rounded over N."""
        if self.settings.sampling == "fixed-size":
            return self.sample_size / self.agents
        return self.sampling_rate

    def event(self, round: int) -> GaussianRelease | FixedSizeRelease:
        """Return the event that a release of this round is charged as."""
        assert self.noise_multiplier is not None
        if self.settings.sampling == "fixed-size":
            return FixedSizeRelease(self.noise_multiplier, self.agents, self.sample_size, round)
        return GaussianRelease(self.noise_multiplier, self.sampling_rate, round)

    def mechanism(self, round: int) -> GaussianSum:
        """Return the noise for the weights of this round, before the division by q."""
        assert self.noise_multiplier is not None
        assert self.bound is not None
        if round not in self._mechanisms:  # an audit asks hundreds of times
            clip = self.bound * math.sqrt(self.regions)  # S
            sensitivity = joint_sensitivity(self.weights(round), clip, self.settings.sensitivity)
            self._mechanisms[round] = GaussianSum(sensitivity, self.noise_multiplier)
        return self._mechanisms[round]

    @cached_property
    def _mechanisms(self) -> dict[int, GaussianSum]:
        """Return the noise of rounds for which it was computed already."""
        return {}

    def deviation(self, round: int) -> float:
        """Return the standard deviation of the noise in each number of a release."""
        return self.mechanism(round).deviation / self.inclusion_probability

    def draw_release(self, vectors: Mapping[int, Array], round: int, entropy: Entropy) -> Array:
        """Return the noisy sum of a sample of the vectors (lines 5-11): (P, M).

        The caller has charged the event. Nothing is stored, so an audit can draw many releases.
        """
        mechanism = self.mechanism(round)
        total = self.weighted_sum(self.selected(vectors, entropy), round, mechanism).exact
        released = mechanism.release(total.ravel(), entropy)  # line 11, all P M numbers
        return np.asarray(released.reshape(total.shape) / self.inclusion_probability)

    def without_noise(self, vectors: Mapping[int, Array], round: int) -> Array:
        """Return the sum of selected vectors without noise, or a robust mean of them: (P, M)."""
        if self.settings.robust == "none" or not vectors:
            return self.weighted_sum(vectors, round).plain / self.inclusion_probability
        assert self.bound is not None
        agents = np.fromiter(vectors, dtype=np.int64)
        weights = self.weights(round)[:, agents]
        clipped = clip_rows(np.stack(list(vectors.values())), self.bound)
        return robust_mean(clipped, weights, self.settings.robust, self.settings.robust_trim)

    def selected(self, vectors: Mapping[int, Array], entropy: Entropy) -> dict[int, Array]:
        """Return the vectors of S_t, a sample drawn from this entropy (line 6)."""
        # The sample is drawn over all N agents, also those without a vector. The sample must stay
        # secret, because the cost of a release assumes it, and is therefore not stored.
        if self.settings.sampling == "fixed-size":
            chosen = fixed_size_sample(self.agents, self.sample_size, entropy)
        else:
            chosen = poisson_sample(self.agents, self.sampling_rate, entropy)
        return {n: vector for n, vector in vectors.items() if chosen[n]}

    def weighted_sum(
        self, vectors: Mapping[int, Array], round: int, mechanism: GaussianSum | None = None
    ) -> WeightedSum:
        """Return the sum of the clipped and weighted vectors, before the division by q."""
        length = self.settings.vector_length
        total = WeightedSum(self.weights(round), length, self.bound, mechanism)
        if vectors:
            total.add(np.fromiter(vectors, dtype=np.int64), np.stack(list(vectors.values())))
        return total
