r"""The synthetic problem of LDP-BO: a function of known RKHS norm on a grid of [0, 1].

The function is :math:`f = \sum_{i \le p} a_i k(\cdot, x_i)` with :math:`a_i` uniform in [-1, 1]
and p support points drawn from the grid. All agents have the same f. Agents differ in the noise of
each reward: uniform in [-R, R], or Student-t, which has heavy tails.

Notation

=========  ======================================================  ===============
paper      here                                                    shape
=========  ======================================================  ===============
``f``      ``mean``                                                (n,)
``k``      ``covariance``                                          (n, n)
``a_i``    ``weights``                                             (p,)
``x_i``    ``supports``, as indices of the grid                    (p,)
``B``      ``bound``, the largest absolute mean                    scalar
``R``      ``noise_bound``                                         scalar
``c``      ``noise_moment``                                        scalar
``v``      ``second_moment``                                       scalar
=========  ======================================================  ===============
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
from flwr_fbo.tasks.task import Params, Partition, Task, number

#: Student-t noise has no bound R; clipping then starts at this quantile (5.84 for 3 d.o.f.).
HEAVY_QUANTILE = 0.99


@dataclass(frozen=True)
class LDPSyntheticSettings(Settings):
    """Settings of the problem, by default the paper's; the learner has settings of its own."""

    domain_size: int = setting(100, "number of points of the domain", at_least(2))
    supports: int = setting(100, "number of support points of the function (p)", at_least(1))
    function_kernel: Literal["se", "matern12", "matern32", "matern52"] = setting(
        "matern52", "kernel that the function is made of; the learner has the same kernel"
    )
    function_lengthscale: float = setting(0.2, "length scale of the function's kernel", above(0))
    noise_law: Literal["uniform", "student-t"] = setting(
        "uniform", "distribution of a reward's noise"
    )
    noise_scale: float = setting(
        1.0, "bound R of uniform noise, or scale of Student-t noise", above(0)
    )
    degrees: float = setting(3.0, "degrees of freedom of Student-t noise", above(2))


@dataclass(frozen=True, eq=False)
class SyntheticProblem:
    """A function on a grid, and the constants of its rewards that a learner may know."""

    mean: Array  # (n,)
    covariance: Array  # (n, n)
    #: The RKHS norm of the mean.
    norm: float
    noise_bound: float
    noise_moment: float

    @property
    def bound(self) -> float:
        """Return B = max |f|, as in the paper's experiments; its theorems need the norm."""
        return float(np.abs(self.mean).max())

    @property
    def second_moment(self) -> float:
        """Return v = B^2 + c."""
        return self.bound**2 + self.noise_moment


class LDPSyntheticTask(Task):
    """The largest of 100 means, from noisy rewards."""

    metric = "reward"
    settings_class: ClassVar[type[Settings]] = LDPSyntheticSettings
    settings: LDPSyntheticSettings

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._problem: SyntheticProblem | None = None

    @cached_property
    def space(self) -> Space:
        """Return the grid of [0, 1]."""
        return Space({"x": Float(0.0, 1.0)}, _grid(self.settings.domain_size))

    @property
    def problem(self) -> SyntheticProblem:
        """Return the problem, which depends on the run's seed and on no agent."""
        if self._problem is None:
            raise RuntimeError("a task must be prepared for a partition before it is used")
        return self._problem

    def prepare(self, partition: Partition) -> None:
        """Draw the function, which is the same at all agents."""
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
            norm=float(np.sqrt(weights @ inner @ weights)),  # ||f||^2 = a' K a
            noise_bound=bound,
            noise_moment=moment,
        )
        if s.noise_law == "uniform":
            clip = self._problem.bound + bound
            self.score_range = (-clip, clip)

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Return one noisy reward."""
        return self.expected(params) + float(self.draw_noise(1, rng)[0])

    def draw_noise(self, count: int, rng: np.random.Generator) -> Array:
        """Return the noise of ``count`` rewards: (count,)."""
        s = self.settings
        if s.noise_law == "uniform":
            return rng.uniform(-s.noise_scale, s.noise_scale, count)
        return s.noise_scale * rng.standard_t(s.degrees, count)

    def expected(self, params: Params) -> float:
        """Return the mean reward."""
        arm = round(number(params, "x") * (self.settings.domain_size - 1))
        return float(self.problem.mean[arm])

    def optimum(self) -> float:
        """Return the largest mean reward."""
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


# All agents of a process share the grid and the covariance.
@lru_cache(maxsize=8)
def _grid(arms: int) -> Array:
    return np.linspace(0.0, 1.0, arms)[:, None]


@lru_cache(maxsize=8)
def _covariance(arms: int, name: str, lengthscale: float) -> Array:
    covariance = kernel_named(name, lengthscale)(_grid(arms), _grid(arms))
    covariance.setflags(write=False)
    return covariance
