"""What is known of a task's rewards before the first play, as settings of a learner."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks.task import Partition, Task


class Problem(Protocol):
    """Bounds and moments of a task's rewards; a task that knows them has a ``problem``."""

    @property
    def bound(self) -> float:
        """Return B, the bound on the mean rewards."""

    @property
    def noise_bound(self) -> float:
        """Return R, the bound on the noise."""

    @property
    def second_moment(self) -> float:
        """Return v, the second moment of a reward."""

    @property
    def noise_moment(self) -> float:
        """Return c, the variance of the noise."""

    @property
    def covariance(self) -> Array:
        """Return the kernel over the arms, in the order of the space's points: (n, n)."""


def problem_presets(problem: Problem) -> Mapping[str, Any]:
    """Return what is known of a problem as values of :class:`LDPSettings`."""
    return {
        "bound": problem.bound,
        "noise-bound": problem.noise_bound,
        "second-moment": problem.second_moment,
        "noise-variance": problem.noise_moment,
    }


def range_presets(low: float, high: float) -> Mapping[str, Any]:
    """Return settings for scores in [low, high], such as accuracies.

    Rewards are centred and clipped at half the range. The privacy noise is then half of what the
    bound B = max|score| would need. A score is a mean plus noise within the range; how the
    half-range is divided between B and R changes only the constants.
    """
    if not low < high:
        raise SettingsError(
            f"`low < high` must hold for a range of scores, but got (low={low}, high={high})"
        )
    half = 0.5 * (high - low)
    return {"bound": 0.5 * half, "noise-bound": 0.5 * half, "reward-offset": 0.5 * (low + high)}


def problem_of(task: Task, seed: int) -> Any:
    """Return the task's :class:`Problem`, or None; some tasks know it only with their data."""
    # `problem` may be declared and set only when the data are there, so hasattr is not enough.
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
    """Return settings from the task's problem, or else from the range of its scores."""
    problem = problem_of(task, seed)
    if problem is not None:
        return problem_presets(problem)
    return {} if task.score_range is None else range_presets(*task.score_range)
