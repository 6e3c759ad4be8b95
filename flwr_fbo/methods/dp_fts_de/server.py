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
``omega_t^joint``      ``server.released.latest``             (P, M)
``1 - p_t``            ``p_schedule``                         scalar
=====================  =====================================  ==========

P = 1 is DP-FTS; no noise and q = 1 is FTS-DE. The release of round t is used in the rounds
after it, so the last round has none: T releases in the paper's schedule, as its figures count.
A round without a release costs nothing: agents go on with the last one (post-processing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.methods.dp_fts_de.robust import robust_mean
from flwr_fbo.methods.dp_fts_de.settings import HALF_LIFE, DPFTSDESettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.thompson.schedules import (
    OwnProbability,
    WeightSchedule,
    own_probability,
)
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.calibration import default_delta, fixed_size, noise_multiplier_for
from flwr_fbo.privacy.entropy import (
    Entropy,
    fixed_size_sample,
    poisson_sample,
    seeded_entropy,
    system_entropy,
)
from flwr_fbo.privacy.events import FixedSizeRelease, GaussianRelease
from flwr_fbo.privacy.ledger import Ledger, MemoryLedger
from flwr_fbo.privacy.mechanisms import GaussianSum, clip_rows
from flwr_fbo.privacy.releases import Release, ReleaseMemory
from flwr_fbo.privacy.sensitivity import joint_sensitivity
from flwr_fbo.search.regions import home_regions


def empty_memory(settings: DPFTSDESettings) -> ReleaseMemory:
    """Return a memory without releases, which forgets as the settings say."""
    return ReleaseMemory(HALF_LIFE if settings.advice == "recent" else math.inf)


def shared_weights(settings: DPFTSDESettings, released: ReleaseMemory) -> Array | None:
    """Return the weights (P, M) that agents are sent; None before the first release."""
    return released.latest if settings.advice == "last" else released.average()


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
        #: When something is released, and q.
        self.release_plan = settings.release_plan(agents, rounds)
        self._ledger: Ledger | None = None
        self.delta: float | None = None
        self.budget: PrivacyBudget | None = None
        self.noise_multiplier: float | None = None
        seeded = None if settings.noise_seed is None else seeded_entropy(settings.noise_seed)
        self._entropy = entropy or seeded or system_entropy()
        if settings.private:
            self._plan_privacy(budget)
        elif budget is not None:
            raise SettingsError(
                "a `budget` needs `epsilon` or `noise-multiplier`: nothing is noisy"
            )
        self.released = empty_memory(self.settings)
        self.exhausted = False

    @classmethod
    def for_run(cls, run: RunParameters, settings: DPFTSDESettings, **options: Any) -> Self:
        """Make the server of one run; its ledger is the run's file, continued if it exists."""
        if settings.private and run.quorum < 1:
            # An agent's data decide how long it computes. In a round that ends by its deadline
            # that decides only whether *it* counts, which is the neighbouring input. With a
            # quorum it also decides how many others still make it, and one agent would change
            # the sum by more than its own contribution.
            raise SettingsError(
                f"`round-quorum` must be 1 in a private run, but got {run.quorum:g}: one "
                "agent's speed would decide which others count; use `timeout`"
            )
        server = cls(run.space, run.agents, settings, run.rounds, run.seed)
        if settings.private and run.ledger is not None:
            server._keep_books(run.ledger)
        return server

    def _keep_books(self, path: Path) -> None:
        """Charge to the ledger of this file from now on."""
        s = self.settings
        assert self.delta is not None
        header = {
            "strategy": "dp-fts-de",
            "agents": self.agents,
            "releases": list(self.release_plan.rounds),
            "delta": self.delta,
            "epsilon": s.epsilon,
            "accountant": s.account,
        }
        if path.exists() and b"\n" not in path.read_bytes():
            path.unlink()  # torn while it was made: nothing was ever charged to it
        make = Ledger.resume if path.exists() else Ledger.create
        self._ledger = make(path, header)
        self.budget = PrivacyBudget(s.epsilon or math.inf, self.delta, self._ledger, s.account)

    def release_files(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()

    @property
    def private(self) -> bool:
        """Whether the run is differentially private: real noise, and nothing sent besides."""
        return self.settings.private and self._entropy.private and not self.settings.diagnostics

    @property
    def bound(self) -> float | None:
        """S / sqrt(P), to which every agent's vector is clipped; None is no clipping."""
        if self.settings.clip is not None:
            return self.settings.clip / math.sqrt(self.regions.count)
        bounded = self.settings.private or self.settings.robust != "none"
        return self.settings.longest if bounded else None

    def _plan_privacy(self, budget: PrivacyBudget | None) -> None:
        s = self.settings
        self.delta = s.delta or default_delta(self.agents)
        rates = [self.release_plan.sampling_rate] * len(self.release_plan.rounds)
        self.noise_multiplier = s.noise_multiplier
        if s.noise_multiplier is None and s.epsilon is not None and rates:
            self.noise_multiplier = noise_multiplier_for(
                s.epsilon, self.delta, rates, s.account, self.agents
            )
        self.budget = budget or PrivacyBudget(
            s.epsilon or math.inf, self.delta, MemoryLedger(), s.account
        )

    def _home(self, agent: int) -> int:
        if not self.settings.explore_home:
            return -1
        return int(home_regions(self.agents, self.regions.count)[agent])

    def _advice(self, agent: int) -> tuple[float, Array | None]:
        advice = shared_weights(self.settings, self.released)
        return own_probability(self._p_schedule, self.round), advice

    def _expects(self) -> dict[str, tuple[int, ...]]:
        due = self.round in self.release_plan.rounds and not self.exhausted
        return {"omega": (self.settings.vector_length,)} if due else {}

    def _absorb(self, vectors: Mapping[int, Array]) -> None:
        if self.budget is None:  # not private: the sample may be foretold, and can be repeated
            entropy = seeded_entropy(int(self._rng(2, self.round).integers(2**62)))
            self._remember(self._plain(self._selected(vectors, entropy)), 0.0)
            return
        event = self._event()
        if self.budget.would_exceed(event):
            self.exhausted = True  # agents go on with what was released, which costs nothing
            return
        self.budget.charge(event)  # on disk before anything is drawn
        deviation = self._mechanism().deviation / self._rate
        self._remember(self.draw_release(vectors, self._entropy), deviation)

    def _plain(self, vectors: Mapping[int, Array]) -> Array:
        """The sum without noise, or a location of the same vectors that resists liars: (P, M)."""
        if self.settings.robust == "none" or not vectors:
            return self._sum(vectors, None).plain / self._rate
        assert self.bound is not None
        agents = np.fromiter(vectors, dtype=np.int64)
        weights = self.weights.at(self.round, self.agents, self.regions.count)[:, agents]
        clipped = clip_rows(np.stack(list(vectors.values())), self.bound)
        return robust_mean(clipped, weights, self.settings.robust, self.settings.robust_trim)

    def _remember(self, vector: Array, deviation: float) -> None:
        if self.settings.advice == "last":
            self.released = empty_memory(self.settings)  # the ones before will not be used again
        self.released.add(vector, deviation, self.round)

    def _event(self) -> GaussianRelease | FixedSizeRelease:
        """What a release of this round costs."""
        assert self.noise_multiplier is not None
        if self.settings.sampling == "fixed-size":
            return FixedSizeRelease(
                self.noise_multiplier, self.agents, self._sample_size, self.round
            )
        return GaussianRelease(self.noise_multiplier, self.release_plan.sampling_rate, self.round)

    @property
    def _sample_size(self) -> int:
        """N q agents, rounded; at least one."""
        return fixed_size(self.agents, self.release_plan.sampling_rate)

    @property
    def _rate(self) -> float:
        """How likely each agent is to count: q, or what rounding N q leaves of it."""
        if self.settings.sampling == "fixed-size":
            return self._sample_size / self.agents
        return self.release_plan.sampling_rate

    def _mechanism(self) -> GaussianSum:
        """The noise for this round's weights, before division by q."""
        assert self.noise_multiplier is not None
        assert self.bound is not None
        weights = self.weights.at(self.round, self.agents, self.regions.count)
        clip = self.bound * math.sqrt(self.regions.count)
        sensitivity = joint_sensitivity(weights, clip, self.settings.sensitivity)
        return GaussianSum(sensitivity, self.noise_multiplier)

    def draw_release(self, vectors: Mapping[int, Array], entropy: Entropy) -> Array:
        """Lines 5-11: the subsampled, clipped, weighted and noisy sum: (P, M).

        The caller has charged for it. Nothing is remembered, so that an audit can attack it.
        """
        mechanism = self._mechanism()
        total = self._sum(self._selected(vectors, entropy), mechanism).exact
        released = mechanism.release(total.ravel(), entropy)
        return np.asarray(released.reshape(total.shape) / self._rate)

    def _selected(self, vectors: Mapping[int, Array], entropy: Entropy) -> dict[int, Array]:
        """S_t, drawn from this entropy. Not kept."""
        if self.settings.sampling == "fixed-size":
            selected = fixed_size_sample(self.agents, self._sample_size, entropy)
        else:
            selected = poisson_sample(self.agents, self.release_plan.sampling_rate, entropy)
        return {n: vector for n, vector in vectors.items() if selected[n]}

    def _sum(self, vectors: Mapping[int, Array], mechanism: GaussianSum | None) -> WeightedSum:
        # The weights and q are fixed, whatever arrives: an agent that is missing or was not
        # selected counts as zero.
        weights = self.weights.at(self.round, self.agents, self.regions.count)
        total = WeightedSum(weights, self.settings.vector_length, self.bound, mechanism)
        if vectors:
            total.add(np.fromiter(vectors, dtype=np.int64), np.stack(list(vectors.values())))
        return total

    def state_dict(self) -> dict[str, Any]:
        """Everything but the ledger, which is a file of its own, and the noise's source."""
        released = self.released.to_dict()
        return {**super().state_dict(), "released": released, "exhausted": self.exhausted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        super().load_state_dict(state)
        self.released = ReleaseMemory.from_dict(state["released"])
        self.exhausted = bool(state["exhausted"])

    # -- what a run reports ------------------------------------------------------------------

    def notice(self) -> str:
        """Return why the run is not private, where it is not."""
        s = self.settings
        if not s.private:
            return "" if s.local_epsilon else "NOT PRIVATE: no epsilon was given"
        if s.diagnostics:
            return "NOT PRIVATE: agents send their scores"
        return "NOT PRIVATE: its noise is seeded" if s.noise_seed is not None else ""

    def release(self) -> Release | None:
        """Return the last release; None before the first."""
        return self.released.releases[-1] if len(self.released) else None

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """Return where the average of all releases, by inverse variance, is largest."""
        every = ReleaseMemory()
        for r in released:
            every.add(r.vector, r.deviation, r.round)
        weights = every.average()
        if weights is None:
            return None
        return self._recommended(weights, every.deviation(), len(every))

    def privacy(self) -> dict[str, Any] | None:
        """Return what all releases so far have spent, or the local budgets' bound."""
        if self.budget is None:
            return super().privacy()
        return {
            "epsilon": self.budget.spent,
            "delta": self.delta,
            "budget": self.settings.epsilon,
            "private": self.private,
            "exhausted": self.exhausted,
            "local": False,
        }
