"""What a learner may be told about a problem before the first play, as settings."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks.task import Partition, Task


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


def problem_of(task: Task, seed: int) -> Any:
    """Return the task's :class:`Problem`, or None; some tasks know it once they have data."""
    names = {name for cls in type(task).__mro__ for name in {*vars(cls), *_annotations(cls)}}
    if "problem" not in names:
        return None
    mine = copy.copy(task)
    mine.fetch()
    mine.prepare(Partition(0, 1, seed))
    return getattr(mine, "problem")  # noqa: B009 - only some tasks have a problem


def _annotations(cls: type) -> set[str]:
    return set(getattr(cls, "__annotations__", {}))


def presets_of_task(task: Task, seed: int) -> Mapping[str, Any]:
    """Return what is known of the task's rewards: its problem, else the range of its scores."""
    problem = problem_of(task, seed)
    if problem is not None:
        return problem_presets(problem)
    return {} if task.score_range is None else range_presets(*task.score_range)
