r"""The server of DP-FTS-DE: releases that anyone may see, and what each of them costs.

Notation (DP-FTS-DE Algorithm 1)

=====================  =====================================  ==========
paper                  here                                   shape
=====================  =====================================  ==========
``N``, ``P``, ``M``    ``agents``, ``regions``, ``features``  int
``q``                  ``sampling_rate``                      scalar
``z``                  ``noise_multiplier``                   scalar
``S``                  ``clip``                               scalar
``phi_n^(i)``          ``weights.at(t, N, P)``                (P, N)
``S_t``                drawn, used and forgotten in `_release`  (N,)
``omega_t^joint``      ``server.released``                    (P, M)
``1 - p_t``            ``p_schedule``                         scalar
=====================  =====================================  ==========

P = 1 is DP-FTS; no noise and q = 1 is FTS-DE. The release of round t is used in the rounds
after it, so the last round has none: T releases in the paper's schedule, as its figures count.
A round without a release costs nothing: agents go on with the last one (post-processing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.aggregation import WeightedSum
from flwr_fbo.core.regions import home_regions
from flwr_fbo.core.schedules import (
    OwnProbability,
    ScheduleName,
    WeightSchedule,
    WeightScheme,
    own_probability,
)
from flwr_fbo.core.settings import SettingsError, above, at_least, setting, within
from flwr_fbo.core.space import Array, Space
from flwr_fbo.core.thompson import ThompsonSettings
from flwr_fbo.core.thompson_server import ThompsonServer
from flwr_fbo.privacy.accountants import AccountantName
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.calibration import default_delta, noise_multiplier_for
from flwr_fbo.privacy.entropy import Entropy, poisson_sample, system_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.ledger import MemoryLedger
from flwr_fbo.privacy.mechanisms import GaussianSum
from flwr_fbo.privacy.sensitivity import joint_sensitivity

#: Rounds with a release in a private run unless said otherwise. Few, early and large releases
#: that agents reuse are worth more than many noisy ones: 1 - p_t falls with t.
EARLY_RELEASES = (0, 1, 2, 4, 8, 16)


@dataclass(frozen=True)
class DPFTSDESettings(ThompsonSettings):
    """DP-FTS-DE. Private as soon as ``epsilon`` or ``noise_multiplier`` is given."""

    p_schedule: ScheduleName = setting("1-1/t", "p_t, how soon agents trust only themselves")
    regions: int = setting(4, "P, sub-regions for distributed exploration", at_least(1))
    explore_home: bool = setting(True, "draw an agent's initial points from its sub-region only")
    weights: WeightScheme = setting("softmax-15", "whose vectors count in a sub-region")
    weights_hold: int = setting(10, "rounds with the first weights", at_least(0))
    weights_decay: int | None = setting(
        30, "further rounds until all agents count the same; 0 is never", at_least(0)
    )
    sampling_rate: float = setting(
        1.0, "q, probability that a release counts an agent", within(0, 1, open_low=True)
    )
    noise_multiplier: float | None = setting(
        None, "z, noise against sensitivity; planned from epsilon where unset", above(0)
    )
    clip: float | None = setting(
        None, "S, bound on the joint vector; sqrt(P M) in a private run where unset", above(0)
    )
    sensitivity: Literal["exact", "paper"] = setting(
        "exact", "bound on one agent's effect: proven exact, or the paper's larger one"
    )
    releases: str = setting(
        "auto", "rounds that release: all, early, a list such as 0,1,2,4, or auto"
    )
    epsilon: float | None = setting(None, "privacy budget of the whole run", above(0))
    delta: float | None = setting(
        None, "its delta; N^-1.1 where unset", within(0, 1, open_low=True, open_high=True)
    )
    accountant: AccountantName = setting("pld", "how epsilon is counted")

    @property
    def private(self) -> bool:
        """Whether releases carry noise."""
        return self.epsilon is not None or self.noise_multiplier is not None

    def check(self) -> None:
        """A budget and a noise are alternatives or agree; a list of releases is readable."""
        self.release_rounds(1)

    def release_rounds(self, rounds: int) -> tuple[int, ...]:
        """In which of the rounds 0 .. T-1 something is released."""
        named = "early" if self.private else "all"
        named = self.releases if self.releases != "auto" else named
        if named == "all":
            return tuple(range(rounds))
        if named == "early":
            return tuple(t for t in EARLY_RELEASES if t < rounds)
        try:
            listed = sorted({int(t) for t in named.split(",")})
        except ValueError:
            listed = [-1]
        if listed[0] < 0:
            raise SettingsError(
                "`releases` must be all, early, auto or a list of rounds such as 0,1,2,4, "
                f"but got {self.releases!r}"
            )
        return tuple(t for t in listed if t < rounds)


class DPFTSDEServer(ThompsonServer):
    """Algorithm 1, with the noise of the privacy module and a budget that is never overdrawn.

    ``budget`` needs to be given for a private run that must survive its process (its ledger
    is then a file); by default the charges are kept in memory. ``entropy`` other than the
    operating system's makes the run NOT PRIVATE, which :attr:`private` then says.
    """

    settings: DPFTSDESettings

    def __init__(
        self,
        space: Space,
        agents: int,
        settings: DPFTSDESettings,
        rounds: int,
        seed: int = 0,
        budget: PrivacyBudget | None = None,
        entropy: Entropy | None = None,
        p_schedule: OwnProbability | None = None,
    ) -> None:
        super().__init__(space, agents, settings, rounds, seed, settings.regions)
        self._p_schedule = p_schedule or settings.p_schedule
        self.weights = WeightSchedule(
            settings.weights, settings.weights_hold, settings.weights_decay or None
        )
        self.release_rounds = settings.release_rounds(rounds)
        self.delta = settings.delta or default_delta(agents)
        self.noise_multiplier = self._planned_noise()
        self._entropy = entropy or system_entropy()
        self.budget = budget
        if settings.private and budget is None:
            self.budget = PrivacyBudget(
                settings.epsilon or math.inf, self.delta, MemoryLedger(), settings.accountant
            )
        self.released: Array | None = None
        self.exhausted = False

    @property
    def private(self) -> bool:
        """Whether what is released is differentially private: noise, from real entropy."""
        return self.settings.private and self._entropy.private

    @property
    def bound(self) -> float | None:
        """S / sqrt(P), to which every agent's vector is clipped; None is no clipping."""
        if self.settings.clip is not None:
            return self.settings.clip / math.sqrt(self.regions.count)
        return math.sqrt(self.settings.features) if self.settings.private else None

    def _planned_noise(self) -> float | None:
        s = self.settings
        if s.noise_multiplier is not None or s.epsilon is None:
            return s.noise_multiplier
        rates = [s.sampling_rate] * len(self.release_rounds)
        return noise_multiplier_for(s.epsilon, self.delta, rates, s.accountant) if rates else None

    def _home(self, agent: int) -> int:
        if not self.settings.explore_home:
            return -1
        return int(home_regions(self.agents, self.regions.count)[agent])

    def _advice(self, agent: int) -> tuple[float, Array | None]:
        return own_probability(self._p_schedule, self.round), self.released

    def _expects(self) -> dict[str, tuple[int, ...]]:
        due = self.round in self.release_rounds and not self.exhausted
        return {"omega": (self.settings.features,)} if due else {}

    def _absorb(self, vectors: Mapping[int, Array]) -> None:
        if self.budget is None:
            total = self._sum(self._selected(vectors), None).plain
            self.released = total / self.settings.sampling_rate
            return
        assert self.noise_multiplier is not None
        event = GaussianRelease(self.noise_multiplier, self.settings.sampling_rate, self.round)
        if self.budget.would_exceed(event):
            self.exhausted = True  # agents go on with what was released, which costs nothing
            return
        self.budget.charge(event)  # on disk before anything is drawn
        self.released = self._release(vectors)

    def _release(self, vectors: Mapping[int, Array]) -> Array:
        """Lines 5-11: the subsampled, clipped, weighted and noisy sum: (P, M)."""
        assert self.noise_multiplier is not None
        assert self.bound is not None
        weights = self.weights.at(self.round, self.agents, self.regions.count)
        clip = self.bound * math.sqrt(self.regions.count)
        sensitivity = joint_sensitivity(weights, clip, self.settings.sensitivity)
        mechanism = GaussianSum(sensitivity, self.noise_multiplier)
        total = self._sum(self._selected(vectors), mechanism).exact
        released = mechanism.release(total.ravel(), self._entropy)
        return np.asarray(released.reshape(total.shape) / self.settings.sampling_rate)

    def _selected(self, vectors: Mapping[int, Array]) -> dict[int, Array]:
        """S_t: each agent with probability q, from the operating system's entropy. Not kept."""
        selected = poisson_sample(self.agents, self.settings.sampling_rate, self._entropy)
        return {n: vector for n, vector in vectors.items() if selected[n]}

    def _sum(self, vectors: Mapping[int, Array], mechanism: GaussianSum | None) -> WeightedSum:
        # The weights and q are fixed, whatever arrives: an agent that is missing or was not
        # selected counts as zero.
        weights = self.weights.at(self.round, self.agents, self.regions.count)
        total = WeightedSum(weights, self.settings.features, self.bound, mechanism)
        if vectors:
            total.add(np.fromiter(vectors, dtype=np.int64), np.stack(list(vectors.values())))
        return total

    def state_dict(self) -> dict[str, Any]:
        """Everything but the ledger, which is a file of its own, and the noise's source."""
        return {**super().state_dict(), "released": self.released, "exhausted": self.exhausted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        super().load_state_dict(state)
        self.released = None if state["released"] is None else np.asarray(state["released"])
        self.exhausted = bool(state["exhausted"])
