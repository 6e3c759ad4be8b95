"""Settings of DP-FTS-DE, and the rounds that release according to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.settings import SettingsError, above, at_least, setting, within
from flwr_fbo.core.space import Space
from flwr_fbo.methods.dp_fts_de.final_rounds import FinalRounds
from flwr_fbo.methods.dp_fts_de.robust import Robust
from flwr_fbo.methods.secure_settings import colluding_setting, threshold_setting
from flwr_fbo.methods.thompson.schedules import ScheduleName, WeightScheme, own_probability
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.privacy.accountants import AccountantName
from flwr_fbo.privacy.calibration import default_delta, paper_delta
from flwr_fbo.privacy.mechanisms import LEAST_NOISE, MOST_NOISE
from flwr_fbo.privacy.release_plan import NEWCOMERS, ReleasePlan, plan_releases

#: Rounds that release where the noise is set and epsilon is not. Few early releases with little
#: noise, which agents use again, are worth more than many noisy ones: 1 - p_t falls with t.
EARLY_RELEASES = (0, 1, 2, 4, 8, 16)
#: Share of the last release of weights in the worth of a plan with finalists, which follow from it.
BEFORE_FINALISTS = 0.7
#: Number of rounds after which a release counts half as much as a new one, in ``advice = recent``.
HALF_LIFE = 3.0


#: In so many parameters 200 features are too few for narrow functions, and 400 are enough. With
#: two parameters 200 are enough; with five neither number is (docs/evidence/agent.md).
MORE_FEATURES_IN = (3, 4)


def presets_in_space(space: Space) -> dict[str, Any]:
    """Return the settings that follow from the number of parameters."""
    if space.dimension not in MORE_FEATURES_IN:
        return {}
    return {"features": 400, "feature-noise": 0.1}


@dataclass(frozen=True)
class DPFTSDESettings(ThompsonSettings):
    """Settings of DP-FTS-DE; a run is private if ``epsilon`` or ``noise_multiplier`` is set."""

    initial_points: int = setting(
        2, "number of points that each agent evaluates before round 1", at_least(1)
    )
    first_point: Literal["random", "middle"] = setting(
        "middle",
        "an agent's first point: random is anywhere, middle is in the middle half of each range",
    )
    spread_points: int = setting(
        5,
        "number of first evaluations that an agent without a shared function spreads over the "
        "space",
        at_least(0),
    )
    acquisition: Literal["thompson", "improvement"] = setting(
        "improvement",
        "how an agent chooses by its own model: a sampled function, or expected improvement",
    )
    cut_low_scores: bool = setting(
        True, "count scores far below an agent's median as a floor, before they are scaled"
    )
    refit_every: int = setting(
        3,
        "least number of new scores between fits of an agent's hyperparameters; 0 never fits",
        at_least(0),
    )
    advice_use: Literal["query", "prior"] = setting(
        "prior",
        "use of the shared function: follow with probability 1 - p_t (query), or as a prior mean",
    )
    message: Literal["sample", "mean"] = setting(
        "mean",
        "what an agent shares: a draw from the posterior of omega, or the posterior's mean",
    )
    features: int = setting(
        200,
        "M, number of random features, and length of the vectors that agents share; where unset, "
        "400 in a space with 3 or 4 parameters",
        at_least(1),
    )
    feature_lengthscale: float | None = setting(
        None,
        "length scale of the random features, in the unit cube; where unset, a mix of many, or 1 "
        "in runs with 5 parameters and more and large noise",
        above(0),
    )
    feature_noise: float = setting(
        0.3,
        "lambda, noise variance in the posterior of omega, from which shared vectors come; where "
        "unset, 0.1 in a space with 3 or 4 parameters",
        above(0),
    )
    vector_bound: float | None = setting(
        2.0,
        "largest norm of the M weights that an agent shares; a longer vector is shortened",
        above(0),
    )
    p_schedule: ScheduleName = setting(
        "1-1/t",
        "p_t, probability that an agent follows its own model in round t, with `advice-use=query`",
    )
    regions: int = setting(1, "P, number of sub-regions for distributed exploration", at_least(1))
    explore_home: bool = setting(
        True, "draw an agent's initial points from its home sub-region, not from the whole space"
    )
    weights: WeightScheme = setting(
        "softmax-15", "scheme of the weights that agents' vectors have in each sub-region"
    )
    weights_hold: int = setting(
        10, "number of rounds in which the weights keep their first values", at_least(0)
    )
    weights_decay: int | None = setting(
        30,
        "rounds after `weights-hold` until all agents have equal weights; 0 is never",
        at_least(0),
    )
    sampling_rate: float | None = setting(
        None,
        "q, probability that a release counts an agent; planned from epsilon where unset, or 1",
        within(0, 1, open_low=True),
    )
    noise_multiplier: float | None = setting(
        None,
        "z, noise over sensitivity; computed from epsilon where unset",
        within(LEAST_NOISE, MOST_NOISE),
    )
    clip: float | None = setting(
        None,
        "S, norm to which joint vectors are clipped; largest possible in private runs where unset",
        above(0),
    )
    sensitivity: Literal["exact", "paper"] = setting(
        "exact",
        "bound on one agent's effect on the sum: the exact bound, or the paper's larger one",
    )
    releases: str = setting(
        "auto",
        "rounds that release: all, early, a list such as 0,1,2,4, or auto (planned from epsilon)",
    )
    epsilon: float | None = setting(
        None, "privacy budget: the epsilon that all releases together may cost", above(0)
    )
    delta: float | None = setting(
        None,
        "delta of the run's epsilon; where unset, as `delta-rule` says",
        within(0, 1, open_low=True, open_high=True),
    )
    delta_rule: Literal["strict", "paper"] = setting(
        "strict", "delta where unset, for N agents: min(1e-5, 1/(10 N)), or the paper's N^-1.1"
    )
    accountant: Literal["pld", "rdp", "moments"] = setting(
        "pld", "accountant that computes the epsilon of the releases"
    )
    sampling: Literal["poisson", "fixed-size"] = setting(
        "poisson",
        "fixed-size counts exactly N q agents in a release, under its own neighbouring relation",
    )
    aggregation: Literal["central", "secure"] = setting(
        "central",
        "who adds the noise: a trusted server, or the agents in secure sums, whose total is all "
        "that the server sees",
    )
    secure_threshold: float = threshold_setting()
    secure_colluding: int = colluding_setting()
    advice: Literal["last", "average", "recent"] = setting(
        "recent",
        "releases in the shared function: the last, all by inverse noise variance, or recent ones",
    )
    robust: Robust = setting(
        "none", "for runs without privacy: a mean that a dishonest minority cannot move far"
    )
    robust_trim: float = setting(
        0.2,
        "share of the weight that a trimmed mean leaves out at each end",
        within(0, 0.5, open_high=True),
    )
    finalists: int = setting(
        0,
        "number of settings that all agents evaluate in the last rounds, to recommend one to all; "
        "0 recommends from the shared function alone",
        at_least(0),
    )
    finalists_from: Literal["function", "list"] = setting(
        "function",
        "where finalists come from: the shared function, or, for many parameters, a public list of "
        "settings of which each agent evaluates a part before",
    )
    final_round: int | None = setting(
        None,
        "round in which agents share their scores of the finalists; the last where unset",
        at_least(1),
    )
    noise_seed: int | None = setting(
        None,
        "seed of the privacy noise, for research only: the run is then NOT PRIVATE",
        at_least(0),
    )

    @property
    def private(self) -> bool:
        """Return whether noise is added to releases."""
        return self.epsilon is not None or self.noise_multiplier is not None

    @property
    def secure(self) -> bool:
        """Return whether the agents' vectors are added up by secure sums."""
        return self.aggregation == "secure"

    @property
    def account(self) -> AccountantName:
        """Return the name of the accountant; samples of fixed size (App. B.2.4) have only one."""
        return "fixed-size" if self.sampling == "fixed-size" else self.accountant

    def check(self) -> None:
        """Raise SettingsError for unreadable releases, and for a robust mean in a private run."""
        super().check()
        self._listed(1)  # raises if `releases` cannot be read
        if self.private and self.robust != "none":
            raise SettingsError(
                f"`robust` must be none in a private run, but got {self.robust!r}: only a sum "
                "has the sensitivity that the noise is made for; the clip bounds every agent"
            )
        if self.finalists_from == "list":
            self._check_list()
        if self.secure:
            self._check_secure()

    def _check_list(self) -> None:
        """Raise SettingsError for settings that a run with a public list cannot have."""
        if not self.finalists:
            raise SettingsError(
                "`finalists-from=list` needs finalists, but `finalists` is 0; try finalists=8"
            )
        if self.releases != "auto":
            raise SettingsError(
                "`releases` must be auto with `finalists-from=list`, which releases the scores of "
                f"the list and of the finalists, but got {self.releases!r}"
            )
        if self.robust != "none":
            raise SettingsError(
                f"`robust` must be none with `finalists-from=list`, but got {self.robust!r}: few "
                "agents evaluate the same setting of the list, and such a mean leaves them out"
            )

    def _check_secure(self) -> None:
        """Raise SettingsError for settings that a secure sum cannot have."""
        if not self.private:
            raise SettingsError(
                "`aggregation=secure` needs `epsilon` or `noise-multiplier`, but both are unset: a "
                "sum without noise can show what a single party sent"
            )
        if self.sampling != "poisson" or (self.sampling_rate or 1.0) < 1.0:
            raise SettingsError(
                "`sampling-rate` must be 1 and `sampling` poisson with `aggregation=secure`, but "
                f"got {self.sampling_rate or 1.0:g} and {self.sampling}: sampling lowers epsilon "
                "only against those who do not know the sample, and the server sees who sends"
            )
        for name, value in (("noise-seed", self.noise_seed), ("local-epsilon", self.local_epsilon)):
            if value is not None:
                raise SettingsError(
                    f"`{name}` must be unset with `aggregation=secure`, but got {value:g}: the "
                    "parties draw the noise of the sum themselves"
                )

    def delta_for(self, agents: int) -> float:
        """Return the run's delta for this number of agents."""
        if self.delta is not None:
            return self.delta
        return paper_delta(agents) if self.delta_rule == "paper" else default_delta(agents)

    def finals(self, rounds: int) -> FinalRounds | None:
        """Return the rounds of the finalists in a run of T rounds; None without finalists."""
        # A vector holds as many scores as it has numbers; an audit of a run has very few.
        count = min(self.finalists, self.features)
        if not count or rounds < 1:
            return None
        found = FinalRounds(count, self.parallel, min(self.final_round or rounds, rounds))
        if found.start < 1:
            raise SettingsError(
                f"`finalists` must be at most {self.parallel * found.end}, as many as the agents "
                f"evaluate up to round {found.end}, but got {count}"
            )
        return found

    def release_plan(self, agents: int, rounds: int) -> ReleasePlan:
        """Return which of the rounds 0 .. T release, and with which sampling rate.

        With finalists, the final round is the last of them. Their scores are one more release. With
        a public list, its scores are the only other one.
        """
        finals = self.finals(rounds)
        if finals is None:
            return self._function_plan(agents, rounds, 0)
        if self.finalists_from == "list":  # all evaluations before are of the list
            return ReleasePlan((finals.start - 1, finals.end), self.sampling_rate or 1.0)
        plan = self._function_plan(agents, finals.start, 1)
        return replace(plan, rounds=(*plan.rounds, finals.end))

    def _function_plan(self, agents: int, rounds: int, others: int) -> ReleasePlan:
        """Return which of the rounds 0 .. T-1 release weights, beside ``others`` releases."""
        # A schedule is planned only where epsilon, and not the noise, is given.
        if self.releases != "auto" or self.epsilon is None or self.noise_multiplier is not None:
            return ReleasePlan(self._listed(rounds), self.sampling_rate or 1.0)
        rate = 1.0 if self.sampling == "fixed-size" or self.secure else None
        # How much agents use a release: 1 - p_t in the papers, else the plan's own estimate.
        use = None
        if self.advice_use == "query":
            later = range(1, rounds + 1)
            use = 1.0 - np.array([own_probability(self.p_schedule, t) for t in later])
        return plan_releases(
            agents,
            rounds,
            self.epsilon,
            self.delta_for(agents),
            self.max_norm,
            self.initial_points,
            self.sampling_rate or rate,
            use,
            self.parallel,
            others,
            BEFORE_FINALISTS if others else NEWCOMERS,
        )

    def _listed(self, rounds: int) -> tuple[int, ...]:
        """Return the rounds that ``releases`` names, of the rounds 0 .. T-1."""
        default = "early" if self.private else "all"
        named = default if self.releases == "auto" else self.releases
        if named == "all":
            return tuple(range(rounds))
        if named == "early":
            return tuple(t for t in EARLY_RELEASES if t < rounds)
        return tuple(t for t in self._named() if t < rounds)

    def left_out(self, rounds: int) -> tuple[int, ...]:
        """Return the rounds that ``releases`` names, and that are too late in a run of T rounds."""
        if self.releases in ("auto", "all", "early"):
            return ()
        return tuple(t for t in self._named() if t >= rounds)

    def _named(self) -> list[int]:
        """Return the rounds of a list in ``releases``, in order."""
        try:
            listed = sorted({int(t) for t in self.releases.split(",")})
        except ValueError:
            listed = [-1]  # refused below, as a negative round is
        if listed[0] < 0:
            raise SettingsError(
                "`releases` must be all, early, auto or a list of rounds such as 0,1,2,4, "
                f"but got {self.releases!r}"
            )
        return listed

    def settings_for_more_rounds(self, planned: int, agents: int) -> dict[str, Any]:
        """Return the settings that keep a private run to the releases it was planned for.

        The noise was computed for the releases of ``planned`` rounds, so the run makes no release
        in the rounds that are added.
        """
        finals = self.finals(planned)
        fixed = {} if finals is None else {"final-round": finals.end}
        if not self.private or self.finalists_from == "list":
            return fixed
        made = self.release_plan(agents, planned)
        functions = [t for t in made.rounds if finals is None or t != finals.end]
        if not functions:  # without any release nothing was charged
            return fixed
        return {
            "releases": ",".join(map(str, functions)),
            "sampling-rate": made.sampling_rate,
            **fixed,
        }
