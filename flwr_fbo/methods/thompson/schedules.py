r"""Schedules over the rounds: the own probability p_t, and the weights of the agents.

Notation

====================  ===============================================  ==========
paper                 here                                             shape
====================  ===============================================  ==========
``p_t``               ``own_probability(t)``                           scalar
``1_n^(i)``           ``home_regions(N, P)[n] == i``                   bool
``a``                 15 in ``softmax-15``, 9 in ``softmax-9``         scalar
``a_t``               ``WeightSchedule.contrast(t)``                   scalar
``T_t``               ``a / (a_t - 1)``                                scalar
``phi_n^(i)``         ``weights.at(t)[i, n]``                          (P, N)
====================  ===============================================  ==========
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.search.regions import home_regions

OwnProbability: TypeAlias = Callable[[int], float]
ScheduleName: TypeAlias = Literal["1-1/sqrt(t)", "1-1/t", "1-1/t^2", "always-own"]
WeightScheme: TypeAlias = Literal["softmax-15", "softmax-9", "linear-1000", "square-40", "uniform"]

SCHEDULES: dict[str, OwnProbability] = {
    "1-1/sqrt(t)": lambda t: 1.0 - 1.0 / math.sqrt(t),
    "1-1/t": lambda t: 1.0 - 1.0 / t,
    "1-1/t^2": lambda t: 1.0 - 1.0 / t**2,
    "always-own": lambda t: 1.0,
}


def own_probability(
    schedule: ScheduleName | OwnProbability, t: int, first_as_second: bool = False
) -> float:
    """Return p_t, the probability that an agent follows its own model in round t >= 1.

    DP-FTS-DE has 1 - p_t = 1 / t from t = 1 on, so the first query always follows the shared
    function. FTS (Section 5.1) sets p_1 = p_2, which is ``first_as_second``.
    """
    function = SCHEDULES[schedule] if isinstance(schedule, str) else schedule
    p = function(2 if first_as_second and t == 1 else t)
    if isinstance(p, bool) or not isinstance(p, Real) or not 0.0 <= p <= 1.0:
        raise ValueError(f"`p-schedule` must give probabilities, but got {p!r} for t={t}")
    return float(p)


@dataclass(frozen=True)
class WeightSchedule:
    r"""The weights phi_n^(i) of DP-FTS-DE: first almost only home agents count, later all equally.

    In its home sub-region an agent has ``advantage(t)`` times the weight of the other agents. The
    softmax weights of App. B are proportional to exp((a 1_n^(i) + 1) / T_t) with T_t = a / (a_t -
    1), so their advantage is exp(a / T_t) = exp(a_t - 1). App. B.2.3 has three more schemes:

    ===============  ================================  ===================================
    scheme           advantage at a_t                  a_t from .. to
    ===============  ================================  ===================================
    ``softmax-15``   exp(a_t - 1)                      16 .. 1  (a = 15, "our weights")
    ``softmax-9``    exp(a_t - 1)                      10 .. 1  (a = 9, "weights 1")
    ``linear-1000``  a_t                               1000 .. 1  ("weights 2")
    ``square-40``    a_t^2                             40 .. 1  ("weights 3")
    ``uniform``      1                                 -
    ===============  ================================  ===================================

    a_t keeps its first value for ``hold`` rounds, and then falls linearly to 1 in ``decay``
    rounds. With ``decay = None``, a_t never falls (App. B.2.5, non-adaptive weights).

    Examples
    --------
    >>> schedule = WeightSchedule("linear-1000", hold=0, decay=2)
    >>> schedule.at(1, agents=2, regions=2).round(3)  # each agent counts at home only
    array([[0.999, 0.001],
           [0.001, 0.999]])
    >>> schedule.at(2, agents=2, regions=2)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """

    scheme: WeightScheme = "softmax-15"
    hold: int = 10
    decay: int | None = 30

    def advantage(self, t: int) -> float:
        """Return the weight of a home agent over that of another agent in round t."""
        if self.scheme == "uniform":
            return 1.0
        a = self.contrast(t)
        if self.scheme.startswith("softmax"):
            return math.exp(a - 1.0)  # exp(a / T_t)
        return a * a if self.scheme == "square-40" else a

    def contrast(self, t: int) -> float:
        """Return a_t, which falls from its first value to 1; not for the scheme ``uniform``."""
        start = {"softmax-15": 16.0, "softmax-9": 10.0, "linear-1000": 1000.0, "square-40": 40.0}
        first = start[self.scheme]
        if self.decay is None or t <= self.hold:
            return first
        if t >= self.hold + self.decay:
            return 1.0
        # The paper's five values 16, 12.25, 8.5, 4.75, 1 at t = 6, .., 10 for hold = decay = 5:
        # the first decaying round still has the full contrast.
        return first + (1.0 - first) * (t - self.hold - 1) / (self.decay - 1)

    def at(self, t: int, agents: int, regions: int) -> Array:
        """Return phi_n^(i) in round t; each row adds up to one: (P, N)."""
        # 1_n^(i): whether agent n starts in sub-region i, (P, N)
        home = home_regions(agents, regions)[None, :] == np.arange(regions)[:, None]
        weights = np.where(home, self.advantage(t), 1.0)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
