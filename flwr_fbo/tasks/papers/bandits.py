"""Light sensors and stocks: which arm pays most, with heavy-tailed rewards (LDP-BO).

An observation is the entry of one arm in one row of the table, drawn at random: the mean of the
arm plus a real deviation from the mean. Rewards are in units of the best arm's mean, so the
optimum is 1. ``problem`` holds everything that a learner may know: B, R, v, c and the covariance.
The arms have no order, so the parameter is categorical; the paper's kernel is
``problem.covariance``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.tasks.data_task import DataTask
from flwr_fbo.tasks.papers.data.bandits import (
    SENSORS,
    FiniteProblem,
    finite_problem,
    light_problem,
    load_light_sensors,
    load_stocks,
    stock_problem,
)
from flwr_fbo.tasks.papers.data.generated import light_readings, stock_prices
from flwr_fbo.tasks.papers.data.sources import LIGHT, STOCKS, DataError, Source
from flwr_fbo.tasks.task import Params, Partition


class BanditTask(DataTask):
    """A choice among arms with known means; every agent has the same arms."""

    metric = "reward"
    arms: ClassVar[tuple[int | str, ...]]
    parameter: ClassVar[str]
    problem: FiniteProblem

    @property
    def space(self) -> Space:
        """Return the space of one categorical parameter: the arm."""
        return Space({self.parameter: Categorical(self.arms)})

    @abstractmethod
    def load_problem(self, data_dir: str | None) -> FiniteProblem:
        """Return the problem of the real data, in the units of the data."""

    @abstractmethod
    def generate_problem(self, rng: np.random.Generator) -> FiniteProblem:
        """Return a generated problem of the same shape."""

    def load_share(self, party: int, partition: Partition) -> None:
        """Load the table, which is the same for all agents."""
        self._set_problem(self.load_problem(self.data_directory(partition)))

    def generate_share(self, party: int, partition: Partition) -> None:
        """Generate a table, which is the same for all agents."""
        self._set_problem(self.generate_problem(partition.shared_rng(1)))

    def _set_problem(self, problem: FiniteProblem) -> None:
        self.problem = problem.normalised()
        # The noise is a finite sample, so the range of the rewards is known exactly.
        rewards = self.problem.mean + self.problem.noise
        self.score_range = (float(rewards.min()), float(rewards.max()))

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Return one noisy reward, drawn anew each time: learners must cope with this noise."""
        # The noise of an arm is one of its real deviations, from a random row of the table.
        row = int(rng.integers(len(self.problem.noise)))
        arm = self._arm(params)
        return float(self.problem.mean[arm] + self.problem.noise[row, arm])

    def score(self, params: Params) -> float:
        """Return the mean reward of an arm."""
        return float(self.problem.mean[self._arm(params)])

    def expected(self, params: Params) -> float | None:
        """Return the mean reward of an arm."""
        return self.score(params)

    def optimum(self) -> float | None:
        """Return the largest mean reward."""
        return float(self.problem.mean.max())

    def _arm(self, params: Params) -> int:
        return self.arms.index(params[self.parameter])


class LightTask(BanditTask):
    """The one of 41 light sensors with the largest mean reading."""

    arms = tuple(range(SENSORS))
    parameter = "sensor"
    source: ClassVar[Source | None] = LIGHT

    def load_problem(self, data_dir: str | None) -> FiniteProblem:
        """Return the problem of the sensors' readings."""
        return light_problem(load_light_sensors(data_dir))

    def generate_problem(self, rng: np.random.Generator) -> FiniteProblem:
        """Return a problem with generated readings."""
        train, test = light_readings(rng)
        return finite_problem(rewards=test, history=train)


class StocksTask(BanditTask):
    """The one of 29 stocks with the largest mean price."""

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
        """Return the problem of the stocks' prices."""
        table = load_stocks(data_dir)
        # The space is public and must not depend on the file, so the file must have these stocks.
        if table.tickers != self.arms:
            raise DataError(f"stocks must be {', '.join(self.arms)}, but are {table.tickers}")
        return stock_problem(table)

    def generate_problem(self, rng: np.random.Generator) -> FiniteProblem:
        """Return a problem with generated prices."""
        price = stock_prices(rng)
        return finite_problem(rewards=price, history=price)
