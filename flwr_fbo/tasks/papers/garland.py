r"""Garland and DoubleSine: the two functions with many local optima of Fed-PNE (App. E.2).

Notation

=========================  ======================================  ========
paper                      here                                    shape
=========================  ======================================  ========
``f``, global objective    :func:`garland`, :func:`double_sine`    (n,)
``f_m``, local objective   ``task.evaluate``, without noise        scalar
=========================  ======================================  ========

The paper perturbs ``f`` for each client by "a (consistent) unit-normal random perturbation": one
constant per client, drawn from N(0, 1), with reward noise U(-.1, .1). Constants cancel when nodes
that all agents pull are compared, so constants are no real heterogeneity; and they leave [0, 1].
The setting ``perturbation`` adds a perturbation that varies over the domain: a wave of this
amplitude, whose phase differs between agents so that the waves add up to zero. The mean of the
local objectives, up to a constant, is then exactly ``f`` for any number of agents from 2 on.

:meth:`RoughTask.expected` and :meth:`RoughTask.optimum` return values of the *global* objective,
without noise or constants, because Fed-PNE looks for one optimum for all agents.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.task import Params, Partition, Seeks, Task, number

#: Numbers (n,), or one number.
N = TypeVar("N", Array, float)
#: Periods of the perturbation's wave over the domain.
_WAVES = 3


@dataclass(frozen=True)
class RoughSettings(Settings):
    """Settings for how the agents' objectives differ, and how noisy they are."""

    client_offset: float = setting(
        1.0, "standard deviation of the constant that is added to an agent's rewards", at_least(0)
    )
    perturbation: float = setting(
        0.0, "amplitude of a perturbation that varies over the domain", at_least(0)
    )
    reward_noise: float = setting(
        0.1,
        "largest noise of a reward; the noise is uniform between minus and plus this value",
        at_least(0),
    )


class RoughTask(Task):
    """A function on [0, 1] with many local optima, perturbed differently for every agent."""

    metric = "reward"
    seeks: ClassVar[Seeks] = "global"
    settings_class: ClassVar[type[Settings]] = RoughSettings
    settings: RoughSettings
    #: Smallest and largest value of the function.
    extremes: ClassVar[tuple[float, float]]

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._offset = self._phase = 0.0
        self._amplitude = 0.0
        if self.settings.client_offset == 0:  # normal offsets have no bounds
            low, high = self.extremes
            margin = self.settings.reward_noise + self.settings.perturbation
            self.score_range = (low - margin, high + margin)

    @abstractmethod
    def function(self, x: N) -> N:
        """Return the global objective at every x: (n,) -> (n,), or at one x."""

    @property
    def space(self) -> Space:
        """Return the space of one parameter, ``x`` in [0, 1]."""
        return Space({"x": Float(0.0, 1.0)})

    def prepare(self, partition: Partition) -> None:
        """Draw the offset of one agent, and set the phase of its wave."""
        self._offset = self.settings.client_offset * float(partition.rng(0).standard_normal())
        # Phases that divide the circle equally make the waves of all agents add up to zero.
        start = partition.shared_rng(0).uniform()
        self._phase = start + partition.index / partition.count
        # The wave of a single agent has no other wave to cancel it.
        self._amplitude = self.settings.perturbation if partition.count > 1 else 0.0

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Return one noisy reward of this agent's objective."""
        noise = self.settings.reward_noise
        # One number, and no array of one: that takes a seventh of the time.
        return float(self._mean(number(params, "x")) + rng.uniform(-noise, noise))

    def scores(self, x: Array, rng: np.random.Generator) -> Array:
        """Return a noisy reward at every x: (n,) -> (n,)."""
        noise = self.settings.reward_noise
        return np.asarray(self._mean(x) + rng.uniform(-noise, noise, len(x)))

    def _mean(self, x: N) -> N:
        """Return this agent's objective without noise at every x: (n,) -> (n,), or at one x."""
        mean = self.function(x) + self._offset
        if self._amplitude:
            mean = mean + self._amplitude * np.sin(2 * math.pi * (_WAVES * x + self._phase))
        return mean

    def expected(self, params: Params) -> float:
        """Return the value of the global objective."""
        return float(self.function(number(params, "x")))

    def optimum(self) -> float:
        """Return the maximum of the global objective."""
        return self.extremes[1]


def garland(x: N) -> N:
    """Return x (1 - x) (4 - sqrt|sin 60 x|), whose maximum is at pi/6, a cusp of the root.

    Examples
    --------
    >>> round(float(garland(math.pi / 6)), 6)
    0.997772
    """
    value: N = x * (1 - x) * (4 - np.sqrt(np.abs(np.sin(60 * x))))
    return value


def double_sine(x: N) -> N:
    """Return two sines between the envelopes u^e1 and u^e2 of u = |2 x - 1|.

    The maximum is 0, at x = 1/2.

    Examples
    --------
    >>> float(double_sine(0.5))
    0.0
    """
    u = np.maximum(np.abs(2 * x - 1), np.finfo(float).tiny)  # log2 of 0 is not finite
    # u^e1, u^e2; `**` of one number and of an array may differ in the last bit
    steep, flat = np.power(u, -np.log2(0.3)), np.power(u, -np.log2(0.8))
    wave = (np.sin(np.pi * np.log2(u)) + 1) / 2
    found: Any = np.where(x == 0.5, 0.0, wave * (flat - steep) - flat)
    value: N = found
    return value


class GarlandTask(RoughTask):
    """The Garland function."""

    extremes = (0.0, 4 * (math.pi / 6) * (1 - math.pi / 6))
    paper_settings: ClassVar[dict[str, Any]] = {"budget": 1000}

    def function(self, x: N) -> N:
        """Return :func:`garland` at every x."""
        return garland(x)


class DoubleSineTask(RoughTask):
    """The DoubleSine function."""

    extremes = (-1.0, 0.0)
    paper_settings: ClassVar[dict[str, Any]] = {"budget": 1000}

    def function(self, x: N) -> N:
        """Return :func:`double_sine` at every x."""
        return double_sine(x)
