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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError, above, at_least, setting, within
from flwr_fbo.core.space import Space
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.methods.dp_fts_de.robust import Robust, robust_mean
from flwr_fbo.methods.thompson.sampler import ThompsonSettings
from flwr_fbo.methods.thompson.schedules import (
    OwnProbability,
    ScheduleName,
    WeightSchedule,
    WeightScheme,
    own_probability,
)
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.privacy.accountants import AccountantName
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
from flwr_fbo.privacy.ledger import MemoryLedger
from flwr_fbo.privacy.mechanisms import LEAST_NOISE, MOST_NOISE, GaussianSum, clip_rows
from flwr_fbo.privacy.release_plan import ReleasePlan, plan_releases
from flwr_fbo.privacy.releases import ReleaseMemory
from flwr_fbo.privacy.sensitivity import joint_sensitivity
from flwr_fbo.search.regions import home_regions

#: Rounds with a release where noise is given rather than epsilon. Few, early and large releases
#: that agents reuse are worth more than many noisy ones: 1 - p_t falls with t.
EARLY_RELEASES = (0, 1, 2, 4, 8, 16)
#: Rounds after which a release counts half as much as a new one, in ``advice = recent``.
HALF_LIFE = 3.0


@dataclass(frozen=True)
class DPFTSDESettings(ThompsonSettings):
    """DP-FTS-DE. Private as soon as ``epsilon`` or ``noise_multiplier`` is given."""

    initial_points: int = setting(2, "points before the first round", at_least(1))
    first_point: Literal["random", "middle"] = setting(
        "middle", "the first of them: of the whole space, or of its middle half"
    )
    acquisition: Literal["thompson", "improvement"] = setting(
        "improvement", "how its own model chooses: by a sampled function, or expected improvement"
    )
    refit_every: int = setting(
        3, "least observations between fits of the model's parameters; 0 is never", at_least(0)
    )
    advice_use: Literal["query", "prior"] = setting(
        "prior", "follow the others with probability 1 - p_t, or take them as a prior mean"
    )
    message: Literal["sample", "mean"] = setting(
        "mean", "share a draw from the posterior of omega, or its mean"
    )
    features: int = setting(200, "M, length of the vectors that are shared", at_least(1))
    feature_lengthscale: float | None = setting(
        None, "its length scale in the unit cube; of many scales where unset", above(0)
    )
    feature_noise: float = setting(0.3, "lambda, noise variance in the shared posterior", above(0))
    vector_bound: float | None = setting(
        2.0, "an agent shortens what it shares of its model to this length", above(0)
    )
    p_schedule: ScheduleName = setting("1-1/t", "p_t, how soon agents trust only themselves")
    regions: int = setting(1, "P, sub-regions for distributed exploration", at_least(1))
    explore_home: bool = setting(True, "draw an agent's initial points from its sub-region only")
    weights: WeightScheme = setting("softmax-15", "whose vectors count in a sub-region")
    weights_hold: int = setting(10, "rounds with the first weights", at_least(0))
    weights_decay: int | None = setting(
        30, "further rounds until all agents count the same; 0 is never", at_least(0)
    )
    sampling_rate: float | None = setting(
        None,
        "q, probability that a release counts an agent; planned from epsilon where unset, or 1",
        within(0, 1, open_low=True),
    )
    noise_multiplier: float | None = setting(
        None,
        "z, noise against sensitivity; planned from epsilon where unset",
        within(LEAST_NOISE, MOST_NOISE),
    )
    clip: float | None = setting(
        None, "S, bound on the joint vector; its longest in a private run where unset", above(0)
    )
    sensitivity: Literal["exact", "paper"] = setting(
        "exact", "bound on one agent's effect: proven exact, or the paper's larger one"
    )
    releases: str = setting(
        "auto", "rounds that release: all, early, a list such as 0,1,2,4, or auto: planned"
    )
    epsilon: float | None = setting(None, "privacy budget of the whole run", above(0))
    delta: float | None = setting(
        None, "its delta; N^-1.1 where unset", within(0, 1, open_low=True, open_high=True)
    )
    accountant: Literal["pld", "rdp", "moments"] = setting("pld", "how epsilon is counted")
    sampling: Literal["poisson", "fixed-size"] = setting(
        "poisson", "`fixed-size`: exactly N q agents (App. B.2.4), counted for its own neighbours"
    )
    advice: Literal["last", "average", "recent"] = setting(
        "recent", "what agents are told: the last release, all by their noise, or the recent ones"
    )
    robust: Robust = setting(
        "none", "without privacy: an aggregate that liars cannot move far instead of the sum"
    )
    robust_trim: float = setting(
        0.2, "weight that a trimmed mean leaves out at each end", within(0, 0.5, open_high=True)
    )
    noise_seed: int | None = setting(
        None, "seed the privacy noise, for research only: the run is then NOT PRIVATE", at_least(0)
    )

    @property
    def private(self) -> bool:
        """Whether releases carry noise."""
        return self.epsilon is not None or self.noise_multiplier is not None

    @property
    def account(self) -> AccountantName:
        """The accountant; sampling without replacement has only one."""
        return "fixed-size" if self.sampling == "fixed-size" else self.accountant

    def check(self) -> None:
        """A list of releases must be readable, and a private aggregate a sum."""
        super().check()
        self._listed(1)
        if self.private and self.robust != "none":
            raise SettingsError(
                f"`robust` must be none in a private run, but got {self.robust!r}: only a sum "
                "has the sensitivity that the noise is made for; the clip bounds every agent"
            )

    def release_plan(self, agents: int, rounds: int) -> ReleasePlan:
        """In which of the rounds 0 .. T-1 something is released, and from how many agents."""
        if self.releases != "auto" or self.epsilon is None or self.noise_multiplier is not None:
            return ReleasePlan(self._listed(rounds), self.sampling_rate or 1.0)
        rate = 1.0 if self.sampling == "fixed-size" else None
        use = None
        if self.advice_use == "query":
            later = range(1, rounds + 1)
            use = 1.0 - np.array([own_probability(self.p_schedule, t) for t in later])
        return plan_releases(
            agents,
            rounds,
            self.epsilon,
            self.delta or default_delta(agents),
            self.longest,
            self.initial_points,
            self.sampling_rate or rate,
            use,
        )

    def _listed(self, rounds: int) -> tuple[int, ...]:
        """The rounds that ``releases`` names."""
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


def memory(settings: DPFTSDESettings) -> ReleaseMemory:
    """An empty memory of releases, for what :func:`told` makes of them."""
    return ReleaseMemory(HALF_LIFE if settings.advice == "recent" else math.inf)


def told(settings: DPFTSDESettings, released: ReleaseMemory) -> Array | None:
    """What agents are told of the releases so far: (P, M), or None before the first."""
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
        self.released = memory(self.settings)
        self.exhausted = False

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
        advice = told(self.settings, self.released)
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
            self.released = memory(self.settings)  # the ones before will not be used again
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
