"""Light sensors and stocks: which arm pays most, with heavy-tailed rewards (LDP-BO).

An observation is one arm's entry in one row of the table, drawn at random: the mean of the arm
plus a real deviation from it. Rewards are in units of the best arm's mean, so that the optimum
is 1. Everything a learner may be told (B, R, v, c, covariance) is in ``problem``. The arms have
no order, so the parameter is categorical; the paper's kernel is ``problem.covariance``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.tasks.papers.data.bandits import (
    SENSORS,
    FiniteProblem,
    finite_problem,
    light_problem,
    light_sensors,
    stock_problem,
    stocks,
)
from flwr_fbo.tasks.papers.data.errors import DataError
from flwr_fbo.tasks.papers.data.generated import light_readings, stock_prices
from flwr_fbo.tasks.papers.data.sources import LIGHT, STOCKS, Source
from flwr_fbo.tasks.papers.data_task import DataTask
from flwr_fbo.tasks.task import Params, Partition


class BanditTask(DataTask):
    """A choice among arms with known means: every agent faces the same ones."""

    metric = "reward"
    arms: ClassVar[tuple[int | str, ...]]
    parameter: ClassVar[str]
    problem: FiniteProblem

    @property
    def space(self) -> Space:
        """One parameter: the arm."""
        return Space({self.parameter: Categorical(self.arms)})

    @abstractmethod
    def load_problem(self, data_dir: str | None) -> FiniteProblem:
        """The problem of the real data, in their own units."""

    @abstractmethod
    def generate_problem(self, rng: np.random.Generator) -> FiniteProblem:
        """A generated problem of the same shape."""

    def load_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        self._take(self.load_problem(self.data_directory(partition)))

    def generate_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        self._take(self.generate_problem(partition.shared_rng(1)))

    def _take(self, problem: FiniteProblem) -> None:
        self.problem = problem.normalised()
        rewards = self.problem.mean + self.problem.noise
        self.score_range = (float(rewards.min()), float(rewards.max()))

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """One noisy reward; never kept, as the noise is what the learner must cope with."""
        row = int(rng.integers(len(self.problem.noise)))
        arm = self._arm(params)
        return float(self.problem.mean[arm] + self.problem.noise[row, arm])

    def score(self, params: Params) -> float:
        """The mean reward."""
        return float(self.problem.mean[self._arm(params)])

    def expected(self, params: Params) -> float | None:
        """See :class:`Task`."""
        return self.score(params)

    def optimum(self) -> float | None:
        """See :class:`Task`."""
        return float(self.problem.mean.max())

    def _arm(self, params: Params) -> int:
        return self.arms.index(params[self.parameter])


class LightTask(BanditTask):
    """Which of 41 light sensors reads most."""

    arms = tuple(range(SENSORS))
    parameter = "sensor"
    source: ClassVar[Source | None] = LIGHT

    def load_problem(self, data_dir: str | None) -> FiniteProblem:
        """See :class:`BanditTask`."""
        return light_problem(light_sensors(data_dir))

    def generate_problem(self, rng: np.random.Generator) -> FiniteProblem:
        """See :class:`BanditTask`."""
        train, test = light_readings(rng)
        return finite_problem(rewards=test, history=train)


class StocksTask(BanditTask):
    """Which of 29 stocks is dearest."""

    # fmt: off
    arms = (
        "AAPL", "AXP", "BA", "CAT", "CSCO", "CVX", "DIS", "GE", "GS", "HD", "IBM", "INTC", "JNJ",
        "JPM", "KO", "MCD", "MMM", "MRK", "MSFT", "NKE", "PFE", "PG", "TRV", "UNH", "UTX", "V",
        "VZ", "WMT", "XOM",
    )
    # fmt: on
    parameter = "stock"
    source: ClassVar[Source | None] = STOCKS

    def load_problem(self, data_dir: str | None) -> FiniteProblem:
        """See :class:`BanditTask`."""
        table = stocks(data_dir)
        if table.tickers != self.arms:
            raise DataError(f"stocks must be {', '.join(self.arms)}, but are {table.tickers}")
        return stock_problem(table)

    def generate_problem(self, rng: np.random.Generator) -> FiniteProblem:
        """See :class:`BanditTask`."""
        price = stock_prices(rng)
        return finite_problem(rewards=price, history=price)
