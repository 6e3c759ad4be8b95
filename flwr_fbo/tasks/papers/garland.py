r"""Garland and DoubleSine: the two rough functions of the Fed-PNE paper (App. E.2).

========================  ===============================  ========
paper                     here                             shape
========================  ===============================  ========
``f``, global objective   :func:`garland`, ...             (n,)
``f_m``, local objective  ``task.evaluate``, without noise scalar
========================  ===============================  ========

The paper perturbs ``f`` for each client by "a (consistent) unit-normal random perturbation": one
constant each, drawn from N(0, 1), with reward noise U(-.1, .1). Constants cancel in comparisons of
nodes that all agents pull, so they are no real heterogeneity, and they leave [0, 1]. Set
``perturbation`` for one that varies over the domain: a wave of that amplitude, whose phase differs
between agents so that the waves add up to zero. The global objective, the mean of the local ones
up to a constant, is then exactly ``f`` for any number of agents from 2 on.

:meth:`~flwr_fbo.tasks.task.Task.expected` and :meth:`~flwr_fbo.tasks.task.Task.optimum` speak of
the *global* objective, without noise or constants, as Fed-PNE seeks one optimum for all.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.task import Params, Partition, Seeks, Task

_WAVES = 3  # of the perturbation over the domain


@dataclass(frozen=True)
class RoughSettings(Settings):
    """How the agents' objectives differ, and how noisy they are."""

    client_offset: float = setting(1.0, "deviation of each agent's constant offset", at_least(0))
    perturbation: float = setting(
        0.0, "amplitude of a perturbation that varies over the domain", at_least(0)
    )
    reward_noise: float = setting(0.1, "rewards carry noise uniform in +- this", at_least(0))


class RoughTask(Task):
    """A function on [0, 1] with many local optima, perturbed differently for every agent."""

    metric = "reward"
    seeks: ClassVar[Seeks] = "global"
    settings_class: ClassVar[type[Settings]] = RoughSettings
    settings: RoughSettings
    #: Least and largest value of the function.
    extremes: ClassVar[tuple[float, float]]

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._offset = self._phase = 0.0
        self._amplitude = 0.0
        if self.settings.client_offset == 0:  # otherwise no range holds every score
            low, high = self.extremes
            margin = self.settings.reward_noise + self.settings.perturbation
            self.score_range = (low - margin, high + margin)

    @abstractmethod
    def function(self, x: Array) -> Array:
        """The global objective at every x: (n,)."""

    @property
    def space(self) -> Space:
        """One parameter, ``x`` in [0, 1]."""
        return Space({"x": Float(0.0, 1.0)})

    def prepare(self, partition: Partition) -> None:
        """Draw this agent's offset, and take its place among the waves."""
        self._offset = self.settings.client_offset * float(partition.rng(0).standard_normal())
        start = partition.shared_rng(0).uniform()
        self._phase = start + partition.index / partition.count
        self._amplitude = self.settings.perturbation if partition.count > 1 else 0.0

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """One noisy reward of this agent's objective."""
        return float(self.scores(np.array([_x(params)]), rng)[0])

    def scores(self, x: Array, rng: np.random.Generator) -> Array:
        """Noisy rewards at every x: (n,)."""
        wave = self._amplitude * np.sin(2 * math.pi * (_WAVES * x + self._phase))
        noise = rng.uniform(-self.settings.reward_noise, self.settings.reward_noise, len(x))
        return np.asarray(self.function(x) + self._offset + wave + noise)

    def expected(self, params: Params) -> float:
        """The global objective."""
        return float(self.function(np.array([_x(params)]))[0])

    def optimum(self) -> float:
        """Its maximum."""
        return self.extremes[1]


def garland(x: Array) -> Array:
    """x (1 - x) (4 - sqrt|sin 60 x|), largest at pi/6 where the root has a cusp."""
    return np.asarray(x * (1 - x) * (4 - np.sqrt(np.abs(np.sin(60 * x)))))


def double_sine(x: Array) -> Array:
    """Two sines between envelopes u^e1 and u^e2 of u = |2 x - 1|; largest, 0, at 1/2."""
    u = np.maximum(np.abs(2 * x - 1), np.finfo(float).tiny)
    steep, flat = u ** -np.log2(0.3), u ** -np.log2(0.8)
    wave = (np.sin(np.pi * np.log2(u)) + 1) / 2
    return np.asarray(np.where(x == 0.5, 0.0, wave * (flat - steep) - flat))


class GarlandTask(RoughTask):
    """Garland."""

    extremes = (0.0, 4 * (math.pi / 6) * (1 - math.pi / 6))
    paper_settings: ClassVar[dict[str, Any]] = {"budget": 1000}

    def function(self, x: Array) -> Array:
        """See :func:`garland`."""
        return garland(x)


class DoubleSineTask(RoughTask):
    """DoubleSine."""

    extremes = (-1.0, 0.0)
    paper_settings: ClassVar[dict[str, Any]] = {"budget": 1000}

    def function(self, x: Array) -> Array:
        """See :func:`double_sine`."""
        return double_sine(x)


def _x(params: Params) -> float:
    value = params["x"]
    assert isinstance(value, float)
    return value
