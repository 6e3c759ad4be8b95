"""Settings of the agents of FTS, DP-FTS-DE and the baselines: their model and their messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from flwr_fbo.core.children import MOST_PARALLEL
from flwr_fbo.core.settings import Settings, SettingsError, above, at_least, setting, within
from flwr_fbo.models.score_scale import SCALE_NUMBERS, ScoreScale
from flwr_fbo.search.pruning import RuleName


@dataclass(frozen=True)
class ThompsonSettings(Settings):
    """Settings of an agent's model and of its messages, the same for all agents of a run."""

    initial_points: int = setting(
        5, "number of points that each agent evaluates before round 1", at_least(1)
    )
    first_point: Literal["random", "middle"] = setting(
        "random",
        "an agent's first point: random is anywhere, middle is in the middle half of each range",
    )
    spread_points: int = setting(
        0,
        "number of first evaluations that an agent without a shared function spreads over the "
        "space",
        at_least(0),
    )
    acquisition: Literal["thompson", "improvement"] = setting(
        "thompson",
        "how an agent chooses by its own model: a sampled function, or expected improvement",
    )
    advice_use: Literal["query", "prior"] = setting(
        "query",
        "use of the shared function: follow with probability 1 - p_t (query), or as a prior mean",
    )
    kernel: Literal["matern52", "matern32", "se"] = setting(
        "matern52", "kernel of the agent's own model"
    )
    lengthscale: float | None = setting(
        None,
        "length scale of the agent's own kernel, in the unit cube; learned where unset",
        above(0),
    )
    noise: float | None = setting(
        None, "noise variance of the agent's own model; learned where unset", above(0)
    )
    refit_every: int = setting(
        5,
        "least number of new scores between fits of an agent's hyperparameters; 0 never fits",
        at_least(0),
    )
    standardise: bool = setting(True, "scale an agent's scores to mean 0 and spread 1")
    cut_low_scores: bool = setting(
        False, "count scores far below an agent's median as a floor, before they are scaled"
    )
    pick: Literal["score", "mean"] = setting(
        "score",
        "setting that an agent returns as its best: by its scores, or by the mean of its model",
    )
    beta: float = setting(
        1.0, "factor on the spread of the functions that Thompson sampling draws", above(0)
    )
    beta_rule: Literal["constant", "theory"] = setting(
        "constant",
        "factor on the spread of sampled functions: `beta`, or that of Theorem 1 with B = `beta`",
    )
    features: int = setting(
        100,
        "M, number of random features, and length of the vectors that agents share",
        at_least(1),
    )
    feature_kernel: Literal["se", "matern52", "matern32"] = setting(
        "se", "kernel that the shared random features approximate"
    )
    feature_lengthscale: float | None = setting(
        0.2,
        "length scale of the random features, in the unit cube; a mix of many where unset",
        above(0),
    )
    feature_noise: float = setting(
        0.01,
        "lambda, noise variance in the posterior of omega, from which shared vectors come",
        above(0),
    )
    message: Literal["sample", "mean"] = setting(
        "sample",
        "what an agent shares: a draw from the posterior of omega, or the posterior's mean",
    )
    vector_bound: float | None = setting(
        None,
        "largest norm of the M weights that an agent shares; a longer vector is shortened",
        above(0),
    )
    reward_low: float | None = setting(None, "lowest possible score, where known")
    reward_high: float | None = setting(None, "highest possible score, where known")
    share_scale: bool = setting(
        True, "share mean and spread of scores too, if `reward-low` and `reward-high` are set"
    )
    learn_failures: bool = setting(
        True,
        "learn where evaluations fail, and avoid these places; the shared vector holds them too",
    )
    pruning: RuleName = setting(
        "median",
        "rule that stops a poor evaluation early, where the task reports scores of its steps: the "
        "median rule, successive halving, or none",
    )
    pruning_startup: int = setting(
        4, "number of finished evaluations before `pruning` stops any", at_least(1)
    )
    parallel: int = setting(
        1,
        "number of evaluations that each agent makes at once, in each round and for its initial "
        "points; each evaluation has a process of its own",
        within(1, MOST_PARALLEL),
    )
    diagnostics: bool = setting(
        False, "send scores to the server, for research only: the run is then NOT PRIVATE"
    )
    local_epsilon: float | None = setting(
        None,
        "privacy budget for all that an agent sends, also against the server; the agent adds noise",
        above(0),
    )
    local_delta: float = setting(
        1e-5, "delta of `local-epsilon`", within(0, 1, open_low=True, open_high=True)
    )
    local_clip: float | None = setting(
        None,
        "norm to which vectors are clipped before local noise; the largest possible where unset",
        above(0),
    )
    local_answers: int = setting(10, "number of vectors that `local-epsilon` pays for", at_least(1))

    def check(self) -> None:
        """Raise SettingsError unless the range of scores has two ends in order, or none."""
        low, high = self.reward_low, self.reward_high
        ends = [end for end in (low, high) if end is not None]
        if len(ends) == 1 or ends != sorted(set(ends)):
            raise SettingsError(
                f"`reward-low` must be below `reward-high`, or both unset, but got {low} and {high}"
            )

    @property
    def scale(self) -> ScoreScale | None:
        """Return how agents encode the scale of their scores; None where they do not share it."""
        if not self.share_scale or self.reward_low is None or self.reward_high is None:
            return None
        return ScoreScale(self.reward_low, self.reward_high)

    @property
    def vector_length(self) -> int:
        """Return the length of a shared vector: M, and 2 more with the scale of the scores."""
        return self.features + (0 if self.scale is None else SCALE_NUMBERS)

    @property
    def max_norm(self) -> float:
        """Return the largest norm of an honest agent's vector; for samples, their usual norm."""
        # A sample of omega from the prior has a norm of about sqrt(M), and no largest norm.
        bound = self.vector_bound or math.sqrt(self.features)
        return bound if self.scale is None else math.hypot(bound, self.scale.max_norm)

    def evaluations_after(self, rounds: int) -> int:
        """Return the number of evaluations of an agent before the start and in T ``rounds``."""
        return self.initial_points + self.parallel * rounds

    def settings_for_more_rounds(self, planned: int, agents: int) -> dict[str, Any]:
        """Return settings to fix when a run gets more rounds than planned; none by default."""
        return {}
