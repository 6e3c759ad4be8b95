"""Batches of Bayesian optimisation through Optuna: in a round each agent gets its own point.

The rewards of all agents are treated as rewards of one objective, as the paper's BBO treats them
(App. E.1.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.settings import setting
from flwr_fbo.core.space import Categorical, Float
from flwr_fbo.methods.comparators.base import Ask, ComparatorSettings, PullServer, import_extra


@dataclass(frozen=True)
class OptunaSettings(ComparatorSettings):
    """The settings of the batches."""

    sampler: Literal["tpe", "gp"] = setting(
        "tpe", "sampler of Optuna; gp is a Gaussian process, which needs torch"
    )


class OptunaBatchServer(PullServer[OptunaSettings]):
    """The server of Optuna's batches: one point for each agent in every round."""

    def start(self, rng: np.random.Generator) -> None:
        """Make a study with a seeded sampler."""
        optuna = import_extra("benchmarks", "optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        seed = int(rng.integers(2**32))
        if self.settings.sampler == "gp":
            sampler: Any = optuna.samplers.GPSampler(seed=seed, deterministic_objective=False)
        else:
            # A constant liar keeps the points of one batch apart.
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study: Any = optuna.create_study(direction="maximize", sampler=sampler)
        self._trials: list[Any] = []

    def ask(self) -> Ask:
        """Return one new point for each agent."""
        self._trials = [self._study.ask(self._distributions()) for _ in range(self.agents)]
        points = np.stack([self._unit(trial.params) for trial in self._trials])
        return Ask(points, np.ones(self.agents, dtype=np.int64), per_agent=True)

    def tell(self, ask: Ask, rewards: Array, replies: int) -> None:
        """Pass each agent's reward to its trial; the trial of an absent agent has failed."""
        for trial, reward in zip(self._trials, rewards.tolist(), strict=True):
            if np.isnan(reward):  # the agent was absent
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, reward)

    def best_point(self) -> Array:
        """Return the point with the best single reward, as Optuna does: (D,)."""
        return self._unit(self._study.best_params)

    def _distributions(self) -> dict[str, Any]:
        """Return the space in Optuna's terms; a finite space is the numbers of its points."""
        if self.space.points is not None:
            last = len(self.space.points) - 1
            return {"point": self._optuna.distributions.IntDistribution(0, last)}
        return {name: self._distribution(p) for name, p in self.space.parameters.items()}

    def _distribution(self, p: Parameter) -> Any:
        """Return one parameter in Optuna's terms."""
        kinds = self._optuna.distributions
        if isinstance(p, Categorical):
            return kinds.CategoricalDistribution(p.choices)
        if isinstance(p, Float):
            return kinds.FloatDistribution(p.low, p.high, log=p.log)
        # Optuna has no logarithmic integers with a step: they are sampled on a linear scale.
        if p.log and p.step == 1:
            return kinds.IntDistribution(p.low, p.high, log=True)
        return kinds.IntDistribution(p.low, p.high, step=p.step)

    def _unit(self, params: dict[str, Any]) -> Array:
        """Return a trial's values as a point of the unit cube: (D,)."""
        if self.space.points is not None:
            return np.asarray(self.space.points[params["point"]])
        return self.space.to_unit(params)
