"""What may be set in an agent of FTS, DP-FTS-DE and the baselines: its model and its messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from flwr_fbo.core.settings import Settings, SettingsError, above, at_least, setting, within
from flwr_fbo.models.score_scale import SCALE_NUMBERS, ScoreScale


@dataclass(frozen=True)
class ThompsonSettings(Settings):
    """How an agent models its scores and what it shares. The same for all agents of a run."""

    initial_points: int = setting(5, "points before the first round", at_least(1))
    first_point: Literal["random", "middle"] = setting(
        "random", "the first of them: of the whole space, or of its middle half"
    )
    acquisition: Literal["thompson", "improvement"] = setting(
        "thompson", "how its own model chooses: by a sampled function, or expected improvement"
    )
    advice_use: Literal["query", "prior"] = setting(
        "query", "follow the others with probability 1 - p_t, or take them as a prior mean"
    )
    kernel: Literal["matern52", "matern32", "se"] = setting(
        "matern52", "kernel of the agent's own model"
    )
    lengthscale: float | None = setting(
        None, "its length scale in the unit cube; learned where unset", above(0)
    )
    noise: float | None = setting(None, "its noise variance; learned where unset", above(0))
    refit_every: int = setting(
        5, "least observations between fits of the model's parameters; 0 is never", at_least(0)
    )
    standardise: bool = setting(True, "give an agent's scores mean 0 and spread 1 first")
    beta: float = setting(1.0, "width of the posterior that is sampled", above(0))
    beta_rule: Literal["constant", "theory"] = setting(
        "constant", "`theory`: beta is the norm bound B of Theorem 1, and grows with what was seen"
    )
    features: int = setting(100, "M, length of the vectors that are shared", at_least(1))
    feature_kernel: Literal["se", "matern52", "matern32"] = setting(
        "se", "kernel that the shared random features stand for"
    )
    feature_lengthscale: float | None = setting(
        0.2, "its length scale in the unit cube; of many scales where unset", above(0)
    )
    feature_noise: float = setting(0.01, "lambda, noise variance in the shared posterior", above(0))
    message: Literal["sample", "mean"] = setting(
        "sample", "share a draw from the posterior of omega, or its mean"
    )
    vector_bound: float | None = setting(
        None, "an agent shortens what it shares of its model to this length", above(0)
    )
    reward_low: float | None = setting(None, "least score there can be, where that is known")
    reward_high: float | None = setting(None, "largest score there can be")
    share_scale: bool = setting(
        True, "where both are known, vectors also say the mean and spread of an agent's scores"
    )
    diagnostics: bool = setting(
        False, "send scores to the server, for research only: the run is then NOT PRIVATE"
    )
    local_epsilon: float | None = setting(
        None, "budget of each agent against the server itself, over all it sends", above(0)
    )
    local_delta: float = setting(1e-5, "its delta", within(0, 1, open_low=True, open_high=True))
    local_clip: float | None = setting(
        None, "bound on the vector before local noise; its longest where unset", above(0)
    )
    local_answers: int = setting(10, "vectors that the local budget is to last for", at_least(1))

    def check(self) -> None:
        """A range has two ends, in order."""
        low, high = self.reward_low, self.reward_high
        ends = [end for end in (low, high) if end is not None]
        if len(ends) == 1 or ends != sorted(set(ends)):
            raise SettingsError(
                f"`reward-low` must be below `reward-high`, or both unset, but got {low} and {high}"
            )

    @property
    def scale(self) -> ScoreScale | None:
        """How agents speak of the scale of their scores; None where they cannot."""
        if not self.share_scale or self.reward_low is None or self.reward_high is None:
            return None
        return ScoreScale(self.reward_low, self.reward_high)

    @property
    def vector_length(self) -> int:
        """How many numbers an agent shares: M, and two of its scores' scale."""
        return self.features + (0 if self.scale is None else SCALE_NUMBERS)

    @property
    def longest(self) -> float:
        """The norm that no honest vector exceeds, or sqrt(M), which a sample has."""
        bound = self.vector_bound or math.sqrt(self.features)
        return bound if self.scale is None else math.hypot(bound, self.scale.max_norm)

    def lengthened(self, planned: int, agents: int) -> dict[str, Any]:
        """Return settings to fix when a run gets more rounds than planned: none, by default."""
        return {}
