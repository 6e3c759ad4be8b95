"""Garland and DoubleSine: the functions, and how agents differ."""

from __future__ import annotations

import numpy as np
import pytest

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks import find
from flwr_fbo.tasks.papers.garland import (
    DoubleSineTask,
    GarlandTask,
    RoughSettings,
    double_sine,
    garland,
)
from flwr_fbo.tasks.task import Partition

TASKS = [GarlandTask, DoubleSineTask]


def made(task: type, index: int = 0, count: int = 5, seed: int = 0, **settings: float) -> object:
    mine = task(RoughSettings(**settings))
    mine.prepare(Partition(index, count, seed))
    return mine


def test_values_by_hand() -> None:
    # x = pi/4: sin(15 pi) = 0, so f = 4 x (1 - x), up to the square root of a rounding error
    x = np.pi / 4
    assert garland(np.array([x]))[0] == pytest.approx(4 * x * (1 - x), abs=1e-6)
    # x = pi/120: sin(pi/2) = 1, so f = 3 x (1 - x)
    x = np.pi / 120
    assert garland(np.array([x]))[0] == pytest.approx(3 * x * (1 - x))
    # u = |2x - 1| = 1/2: sin(-pi) = 0, f = (u^e2 - u^e1)/2 - u^e2 with u^e1 = .3, u^e2 = .8
    np.testing.assert_allclose(double_sine(np.array([0.25, 0.75])), 0.25 - 0.8, atol=1e-12)
    # u = 1: (1 - 1)/2 - 1
    np.testing.assert_allclose(double_sine(np.array([0.0, 0.5, 1.0])), [-1, 0, -1], atol=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_the_optimum_bounds_the_function_and_is_met(task: type) -> None:
    mine = task()
    x = np.linspace(0, 1, 2_000_001)
    values = mine.function(x)
    low, high = mine.extremes
    assert low - 1e-12 <= values.min()
    assert values.max() <= high == mine.optimum()
    assert values.max() == pytest.approx(high, abs=2e-3)
    assert values.min() == pytest.approx(low, abs=1e-6)


def test_where_the_optima_are() -> None:
    assert garland(np.array([np.pi / 6]))[0] == pytest.approx(0.9977723, abs=1e-6)
    assert DoubleSineTask().expected({"x": 0.5}) == 0.0


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("wave", [0.0, 0.3])
def test_one_number_has_the_bits_that_it_has_among_others(task: type, wave: float) -> None:
    mine, x = made(task, perturbation=wave), np.random.default_rng(0).random(1000)
    alone = [mine.evaluate({"x": v}, rng=np.random.default_rng(i)) for i, v in enumerate(x)]
    arrays = [mine.scores(x[i : i + 1], np.random.default_rng(i))[0] for i in range(len(x))]
    assert alone == arrays
    assert [mine.expected({"x": v}) for v in x[:9]] == [
        mine.function(x[i : i + 1])[0] for i in range(9)
    ]


@pytest.mark.parametrize("task", TASKS)
def test_an_agents_reward_is_the_function_an_offset_and_noise(task: type) -> None:
    mine, rng = made(task, index=2), np.random.default_rng(0)
    rest = np.array(
        [mine.evaluate({"x": x}, rng=rng) - mine.expected({"x": x}) for x in rng.random(2000)]
    )
    assert np.ptp(rest) <= 0.2
    # Uniform noise of deviation .0577: the mean of 2000 is off by .0013, five of them .0065.
    assert rest.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.05)
    quiet = made(task, index=2, reward_noise=0.0)
    offset = quiet.evaluate({"x": 0.1}, rng=rng) - quiet.expected({"x": 0.1})
    assert rest.mean() == pytest.approx(offset, abs=0.0065)


def test_offsets_are_standard_normal_and_differ_by_agent_and_seed() -> None:
    def offset(index: int, seed: int) -> float:
        mine = made(GarlandTask, index, 2000, seed, reward_noise=0.0)
        return mine.evaluate({"x": 0.0}, rng=np.random.default_rng(0))

    offsets = np.array([offset(n, 0) for n in range(2000)])
    assert len(np.unique(offsets)) == 2000
    assert abs(offsets.mean()) < 5 / np.sqrt(2000)
    assert offsets.std() == pytest.approx(1.0, abs=5 / np.sqrt(4000))
    assert offset(0, 1) != offset(0, 0)
    assert offset(3, 0) == offsets[3]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_perturbations_vary_over_the_domain_and_cancel_over_agents(count: int) -> None:
    rng = np.random.default_rng(0)
    agents = [
        made(DoubleSineTask, n, count, client_offset=0.0, reward_noise=0.0, perturbation=0.3)
        for n in range(count)
    ]
    points = rng.random(50)
    waves = np.array(
        [[a.evaluate({"x": x}, rng=rng) - a.expected({"x": x}) for x in points] for a in agents]
    )
    np.testing.assert_allclose(waves.mean(axis=0), 0.0, atol=1e-12)
    assert np.all(waves.std(axis=1) > 0.1)
    assert np.abs(waves).max() <= 0.3


def test_the_range_is_stated_where_there_is_one() -> None:
    assert GarlandTask().score_range is None
    bounded = GarlandTask(RoughSettings(client_offset=0.0, perturbation=0.05))
    assert bounded.score_range == pytest.approx((-0.15, 1.1477723))


def test_names_and_bad_settings() -> None:
    assert find("garland") is GarlandTask
    assert find("doublesine") is DoubleSineTask
    with pytest.raises(SettingsError, match="`reward-noise` must be >= 0, but got -1"):
        RoughSettings(reward_noise=-1.0)
