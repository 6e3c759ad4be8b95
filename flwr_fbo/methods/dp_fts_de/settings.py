"""What may be set in DP-FTS-DE, and the rounds with a release that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.settings import SettingsError, above, at_least, setting, within
from flwr_fbo.methods.dp_fts_de.robust import Robust
from flwr_fbo.methods.thompson.schedules import ScheduleName, WeightScheme, own_probability
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.privacy.accountants import AccountantName
from flwr_fbo.privacy.calibration import default_delta
from flwr_fbo.privacy.mechanisms import LEAST_NOISE, MOST_NOISE
from flwr_fbo.privacy.release_plan import ReleasePlan, plan_releases

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

    def lengthened(self, planned: int, agents: int) -> dict[str, Any]:
        """Return the settings that keep a private run to the releases it was planned for.

        The noise was computed for the releases of ``planned`` rounds, so a run that goes on
        longer makes none after them.
        """
        if not self.private:
            return {}
        made = self.release_plan(agents, planned)
        if not made.rounds:  # without any release nothing was charged
            return {}
        return {
            "releases": ",".join(map(str, made.rounds)),
            "sampling-rate": made.sampling_rate,
        }
