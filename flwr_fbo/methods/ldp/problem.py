"""What a learner may be told about a problem before the first play, as settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError


class Problem(Protocol):
    """Bounds and moments of a problem's rewards; tasks that know them have one as ``problem``."""

    @property
    def bound(self) -> float:
        """B, the bound on the mean rewards."""

    @property
    def noise_bound(self) -> float:
        """R, the bound on the noise."""

    @property
    def second_moment(self) -> float:
        """v, of a reward."""

    @property
    def noise_moment(self) -> float:
        """c, of the noise."""

    @property
    def covariance(self) -> Array:
        """The kernel over the arms, in the order of the space's points: (n, n)."""


def problem_presets(problem: Problem) -> Mapping[str, Any]:
    """Settings that state what is known of a problem, for ``LDPSettings.from_mapping``."""
    return {
        "bound": problem.bound,
        "noise-bound": problem.noise_bound,
        "second-moment": problem.second_moment,
        "noise-variance": problem.noise_moment,
    }


def range_presets(low: float, high: float) -> Mapping[str, Any]:
    """Settings for scores known to lie in [low, high], such as accuracies.

    Rewards are centred, so that only half the range is clipped at, and with it the noise is
    half of what B = max|score| would ask for. A score is a mean plus noise within the range;
    how the half-range is shared between B and R changes nothing but the constants.
    """
    if not low < high:
        raise SettingsError(f"`low < high` must hold for a range of scores, got ({low}, {high})")
    half = 0.5 * (high - low)
    return {"bound": 0.5 * half, "noise-bound": 0.5 * half, "reward-offset": 0.5 * (low + high)}
