r"""The synthetic problem of LDP-BO: a function of known RKHS norm on a grid of [0, 1].

:math:`f = \sum_{i \le p} a_i k(\cdot, x_i)` with :math:`a_i` uniform in [-1, 1] and p support
points drawn from the grid. All agents face the same f; what differs is the noise of each
reward: uniform in [-R, R], or Student-t, which has heavy tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import Settings, above, at_least, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.tasks.task import Params, Partition, Task

#: A Student-t noise has no bound R; clipping then starts at its 99% quantile (3 d.o.f.: 5.84).
HEAVY_QUANTILE = 0.99


@dataclass(frozen=True)
class LDPSyntheticSettings(Settings):
    """The paper's problem by default; these are the task's, not the learner's."""

    domain_size: int = setting(100, "points of the domain", at_least(2))
    supports: int = setting(100, "support points of the function (p)", at_least(1))
    function_kernel: Literal["se", "matern12", "matern32", "matern52"] = setting(
        "matern52", "kernel the function is made of; the learner is given the same"
    )
    function_lengthscale: float = setting(0.2, "its length scale", above(0))
    noise_law: Literal["uniform", "student-t"] = setting("uniform", "law of a reward's noise")
    noise_scale: float = setting(1.0, "R of the uniform noise, or scale of the Student-t", above(0))
    degrees: float = setting(3.0, "degrees of freedom of the Student-t noise", above(2))


@dataclass(frozen=True, eq=False)
class SyntheticProblem:
    """A function on a grid, and what may be known of its rewards."""

    mean: Array  # (n,)
    covariance: Array  # (n, n)
    #: The RKHS norm of the mean.
    norm: float
    noise_bound: float
    noise_moment: float

    @property
    def bound(self) -> float:
        """B = max |f|, as in the experiments (the theorems need the norm)."""
        return float(np.abs(self.mean).max())

    @property
    def second_moment(self) -> float:
        """v = B^2 + c."""
        return self.bound**2 + self.noise_moment


class LDPSyntheticTask(Task):
    """Find the largest of 100 means from noisy rewards."""

    metric = "reward"
    settings_class: ClassVar[type[Settings]] = LDPSyntheticSettings
    settings: LDPSyntheticSettings

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._problem: SyntheticProblem | None = None

    @cached_property
    def space(self) -> Space:
        """See :class:`Task`: a grid of [0, 1]."""
        return Space({"x": Float(0.0, 1.0)}, _grid(self.settings.domain_size))

    @property
    def problem(self) -> SyntheticProblem:
        """What may be known of the problem; it depends on the run's seed alone."""
        if self._problem is None:
            raise RuntimeError("a task must be prepared for a partition before it is used")
        return self._problem

    def prepare(self, partition: Partition) -> None:
        """See :class:`Task`: the function is the same for all agents."""
        s = self.settings
        covariance = _covariance(s.domain_size, s.function_kernel, s.function_lengthscale)
        rng = partition.shared_rng(0)
        weights = rng.uniform(-1.0, 1.0, s.supports)  # a_i
        supports = rng.integers(s.domain_size, size=s.supports)  # x_i
        inner = covariance[np.ix_(supports, supports)]
        bound, moment = _noise_bound(s), _noise_moment(s)
        self._problem = SyntheticProblem(
            mean=covariance[:, supports] @ weights,
            covariance=covariance,
            norm=float(np.sqrt(weights @ inner @ weights)),
            noise_bound=bound,
            noise_moment=moment,
        )
        if s.noise_law == "uniform":
            clip = self._problem.bound + bound
            self.score_range = (-clip, clip)

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """See :class:`Task`."""
        return self.expected(params) + float(self.draw_noise(1, rng)[0])

    def draw_noise(self, count: int, rng: np.random.Generator) -> Array:
        """Noise of ``count`` rewards: (count,)."""
        s = self.settings
        if s.noise_law == "uniform":
            return rng.uniform(-s.noise_scale, s.noise_scale, count)
        return s.noise_scale * rng.standard_t(s.degrees, count)

    def expected(self, params: Params) -> float:
        """See :class:`Task`."""
        arm = round(float(params["x"]) * (self.settings.domain_size - 1))  # type: ignore[arg-type]
        return float(self.problem.mean[arm])

    def optimum(self) -> float:
        """See :class:`Task`."""
        return float(self.problem.mean.max())


def _noise_bound(settings: LDPSyntheticSettings) -> float:
    if settings.noise_law == "uniform":
        return settings.noise_scale
    from scipy.stats import t as student  # slow to import, and only needed here

    quantile = student.ppf(0.5 + 0.5 * HEAVY_QUANTILE, settings.degrees)
    return float(settings.noise_scale * quantile)


def _noise_moment(settings: LDPSyntheticSettings) -> float:
    # The paper bounds the uniform noise's second moment by R^2 (it is R^2 / 3), and has c = 3
    # for Student-t with 3 degrees of freedom: d / (d - 2).
    if settings.noise_law == "uniform":
        return settings.noise_scale**2
    return settings.noise_scale**2 * settings.degrees / (settings.degrees - 2.0)


@lru_cache(maxsize=8)
def _grid(arms: int) -> Array:
    return np.linspace(0.0, 1.0, arms)[:, None]


@lru_cache(maxsize=8)
def _covariance(arms: int, name: str, lengthscale: float) -> Array:
    covariance = kernel_named(name, lengthscale)(_grid(arms), _grid(arms))
    covariance.setflags(write=False)
    return covariance
