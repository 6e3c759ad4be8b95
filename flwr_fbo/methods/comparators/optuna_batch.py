"""Batches of Bayesian optimisation through Optuna: in a round each agent gets its own point.

The rewards of all agents are treated as rewards of one objective, as the paper's BBO treats them
(App. E.1.7).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import setting
from flwr_fbo.methods.comparators.base import Ask, ComparatorSettings, PullServer
from flwr_fbo.methods.comparators.optuna_space import distributions_of, import_optuna, unit_of


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
        optuna = import_optuna()
        self._optuna = optuna
        seed = int(rng.integers(2**32))
        if self.settings.sampler == "gp":
            sampler: Any = optuna.samplers.GPSampler(seed=seed, deterministic_objective=False)
        else:
            # A constant liar keeps the points of one batch apart.
            with warnings.catch_warnings():  # Optuna 4 marks it as experimental
                warnings.simplefilter("ignore")
                sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study: Any = optuna.create_study(direction="maximize", sampler=sampler)
        self._trials: list[Any] = []

    def ask(self) -> Ask:
        """Return one new point for each agent."""
        distributions = distributions_of(self.space)
        self._trials = [self._study.ask(distributions) for _ in range(self.agents)]
        points = np.stack([unit_of(self.space, trial.params) for trial in self._trials])
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
        return unit_of(self.space, self._study.best_params)
