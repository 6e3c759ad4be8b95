"""A batch Bayesian optimiser through Optuna: in every round each agent gets its own point.

As the paper's BBO (App. E.1.7), it treats the agents' rewards as if they were one objective's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import setting
from flwr_fbo.core.space import Categorical, Float
from flwr_fbo.methods.comparators.base import Ask, ComparatorSettings, PullServer, need


@dataclass(frozen=True)
class OptunaSettings(ComparatorSettings):
    """Which of Optuna's samplers."""

    sampler: Literal["tpe", "gp"] = setting("tpe", "`tpe`, or `gp` (which needs torch)")


class OptunaBatchServer(PullServer[OptunaSettings]):
    """``agents`` points a round."""

    def start(self, rng: np.random.Generator) -> None:
        """See :class:`PullServer`."""
        optuna = need("benchmarks", "optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        seed = int(rng.integers(2**32))
        if self.settings.sampler == "gp":
            sampler: Any = optuna.samplers.GPSampler(seed=seed, deterministic_objective=False)
        else:
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study: Any = optuna.create_study(direction="maximize", sampler=sampler)
        self._trials: list[Any] = []

    def ask(self) -> Ask:
        """See :class:`PullServer`."""
        self._trials = [self._study.ask(self._distributions()) for _ in range(self.agents)]
        points = np.stack([self._unit(trial.params) for trial in self._trials])
        return Ask(points, np.ones(self.agents, dtype=np.int64), each=True)

    def tell(self, ask: Ask, rewards: Array, replies: int) -> None:
        """See :class:`PullServer`."""
        for trial, reward in zip(self._trials, rewards.tolist(), strict=True):
            if np.isnan(reward):
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, reward)

    def recommend(self) -> Array:
        """The point of the best single reward: Optuna's own answer."""
        return self._unit(self._study.best_params)

    def _distributions(self) -> dict[str, Any]:
        kinds = self._optuna.distributions
        if self.space.points is not None:
            return {"point": kinds.IntDistribution(0, len(self.space.points) - 1)}
        known: dict[str, Any] = {}
        for name, p in self.space.parameters.items():
            if isinstance(p, Categorical):
                known[name] = kinds.CategoricalDistribution(p.choices)
            elif isinstance(p, Float):
                known[name] = kinds.FloatDistribution(p.low, p.high, log=p.log)
            else:  # Optuna has no logarithmic integers with a step: they are numbered instead
                plain = p.log and p.step == 1
                known[name] = (
                    kinds.IntDistribution(p.low, p.high, log=True)
                    if plain
                    else kinds.IntDistribution(p.low, p.high, step=p.step)
                )
        return known

    def _unit(self, params: dict[str, Any]) -> Array:
        if self.space.points is not None:
            return np.asarray(self.space.points[params["point"]])
        return self.space.to_unit(params)
