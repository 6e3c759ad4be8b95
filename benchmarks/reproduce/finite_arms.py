r"""KernelTS and BO of Fed-PNE's comparisons on finitely many arms of the global objective.

- **KernelTS as in the public code** that the paper ran (``ZeroWeight/NeuralTS``,
  ``learner_kernel.py``): raw rewards, a squared exponential kernel ``exp(-|x - x'|^2)``, lambda =
  nu = 1, and at each step an independent normal draw for each arm. The paper does not print the
  number of arms: here 100.
- **BO with expected improvement**, the default of GPyOpt: Matern 5/2, standardised rewards, 5
  random points first, jitter .01. Hyperparameters are learned at 10, 20, 40, ... evaluations
  instead of after each one, on 1,001 arms instead of the interval.

A Gaussian process on A arms is a mean (A,) and a covariance (A, A), which an evaluation changes by
a product of two vectors: a step costs O(A^2), however many evaluations came before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import erfcx

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space
from flwr_fbo.methods.comparators.surrogates import zero_mean_unit_spread
from flwr_fbo.models.hyperparameters import fit
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.tasks.papers.garland import RoughTask
from flwr_fbo.tasks.task import Task

from .drivers import driver
from .pulls import clients_of, marks_of

#: Arms in all; of a space with more dimensions, as many along each that no more come together.
ARMS = {"kernel-ts-public": 100, "gp-ei": 1001}
RANDOM, JITTER = 5, 0.01


class ArmPosterior:
    """The posterior of a Gaussian process on arms, given rewards one at a time."""

    def __init__(self, covariance: Array, noise: float) -> None:
        self.mean, self.covariance = np.zeros(len(covariance)), covariance.copy()
        self.noise = noise

    def add(self, arm: int, reward: float) -> None:
        """Take in the reward of an arm."""
        column = self.covariance[arm].copy()
        gain = column / (column[arm] + self.noise)
        self.mean += gain * (reward - self.mean[arm])
        self.covariance -= np.outer(gain, column)

    @property
    def variance(self) -> Array:
        """Return the variance of each arm: (A,)."""
        return np.maximum(np.diag(self.covariance), 0.0)


class KernelTS:
    """The public code's Thompson sampling."""

    def __init__(self, units: Array, space: Space, rng: np.random.Generator) -> None:
        # gamma = 1: exp(-r^2), a length scale of sqrt(1/2) in exp(-r^2 / (2 l^2)).
        kernel = kernel_named("se", math.sqrt(0.5))
        self.posterior, self.rng = ArmPosterior(kernel(units, units), 1.0), rng

    def ask(self) -> int:
        """Return the arm with the largest draw; the code's covariance is diagonal."""
        spread = np.sqrt(self.posterior.variance)
        draw = self.posterior.mean + spread * self.rng.standard_normal(len(spread))
        return int(draw.argmax())

    def tell(self, arm: int, reward: float) -> None:
        """Take in a raw reward."""
        self.posterior.add(arm, reward)


def log_improvement(u: Array) -> Array:
    """Return the logarithm of E max(z + u, 0) for a standard normal z: phi(u) + u Phi(u)."""
    # Phi(u) / phi(u), without cancellation for u < 0.
    ratio = np.sqrt(np.pi / 2.0) * erfcx(-np.minimum(u, 5.0) / np.sqrt(2.0))
    # 1 + u ratio tends to 1 / u^2, which is lost in rounding from u = -1e4 on.
    tail = np.where(u < -1e4, 1.0 / (u * u + 1.0), np.maximum(1.0 + u * ratio, 1e-300))
    small = -0.5 * u * u - 0.5 * np.log(2.0 * np.pi) + np.log(tail)
    return np.asarray(np.where(u > 5.0, np.log(np.maximum(u, 1.0)), small))


class ExpectedImprovement:
    """Bayesian optimisation with the defaults of GPyOpt, on arms."""

    def __init__(self, units: Array, space: Space, rng: np.random.Generator) -> None:
        self.units, self.space, self.rng = units, space, rng
        self.arms: list[int] = []
        self.rewards: list[float] = []
        self.posterior: ArmPosterior | None = None
        self._scale = (0.0, 1.0)

    def ask(self) -> int:
        """Return a random arm at first, then the one with the largest expected improvement."""
        if len(self.arms) < RANDOM:
            return int(self.rng.integers(len(self.units)))
        if self.posterior is None:
            self._fit()
        assert self.posterior is not None
        mean, deviation = self.posterior.mean, np.sqrt(self.posterior.variance + 1e-12)
        u = (mean - mean[self.arms].max() - JITTER) / deviation
        # The logarithm: far from the incumbent the improvement itself rounds to 0 everywhere.
        return int((np.log(deviation) + log_improvement(u)).argmax())

    def tell(self, arm: int, reward: float) -> None:
        """Take in a reward, and learn the hyperparameters again when their number has doubled."""
        self.arms.append(arm)
        self.rewards.append(reward)
        count = len(self.arms)
        if count % 10 == 0 and (count // 10).bit_count() == 1:
            self._fit()
        elif self.posterior is not None:
            middle, spread = self._scale
            self.posterior.add(arm, (reward - middle) / spread)

    def _fit(self) -> None:
        x, y = self.units[self.arms], np.array(self.rewards)
        self._scale = float(y.mean()), float(y.std()) or 1.0
        targets = zero_mean_unit_spread(y)
        found = fit("matern52", self.space, self.space.embed(x), targets, self.rng)
        kernel = found.kernel("matern52", self.space)
        embedded = self.space.embed(self.units)
        self.posterior = ArmPosterior(kernel(embedded, embedded), found.noise)
        for arm, target in zip(self.arms, targets, strict=True):
            self.posterior.add(arm, float(target))


LEARNERS: dict[str, Any] = {"kernel-ts-public": KernelTS, "gp-ei": ExpectedImprovement}


def arms_of(space: Space, count: int) -> Array:
    """Return arms at equal distances, ends included, at most ``count`` in all: (A, D)."""
    each = int(count ** (1.0 / space.dimension) + 1e-9)
    axes = [np.linspace(0.0, 1.0, each)] * space.dimension
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


class Rewards:
    """One reward of an arm: the mean of every client's, and what it costs against the optimum."""

    def __init__(self, tasks: Sequence[Task], units: Array, seed: int) -> None:
        self.tasks, self.units = tasks, units
        self.rng = np.random.default_rng([seed, 2])
        self.known: dict[int, float] = {}

    def of(self, arm: int) -> tuple[float, float]:
        """Return a reward and the regret of an arm."""
        first = self.tasks[0]
        if isinstance(first, RoughTask):
            x = self.units[arm, :1]
            rewards = [t.scores(x, self.rng)[0] for t in self.tasks if isinstance(t, RoughTask)]
            return float(np.mean(rewards)), first.optimum() - float(first.function(x)[0])
        if arm not in self.known:  # deterministic: one training serves all pulls
            params = first.space.from_unit(self.units[arm])
            scores = [task.evaluate(params, rng=self.rng) for task in self.tasks]
            self.known[arm] = float(np.mean(scores))
        return self.known[arm], 1.0 - self.known[arm]


@driver
def finite_arms(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """Mean cumulative regret of a client, of one learner on the arms of the global objective."""
    tasks, space = clients_of(settings, seed)
    method, budget = settings["method"], int(settings["budget"])
    units = arms_of(space, ARMS[method])
    learner = LEARNERS[method](units, space, np.random.default_rng([seed, 1]))
    rewards, regret = Rewards(tasks, units, seed), []
    for _ in range(budget):
        arm = learner.ask()
        reward, cost = rewards.of(arm)
        learner.tell(arm, reward)
        regret.append(cost)
    total = np.cumsum(regret)
    return {"curve": total[marks_of(budget)].tolist(), "rounds": budget, "sent": float(budget),
            "evaluations": budget}  # fmt: skip
