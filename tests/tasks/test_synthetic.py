"""The papers' synthetic functions: their ranges, differences, mixtures, noise and optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks import find
from flwr_fbo.tasks.papers.synthetic import SyntheticSettings, SyntheticTask
from flwr_fbo.tasks.task import Partition


def prepared(index=0, count=6, seed=0, **given):
    task = SyntheticTask(SyntheticSettings(**given))
    task.prepare(Partition(index, count, seed))
    return task


def values_of(task):
    return np.array([task.expected(task.space.from_unit(u)) for u in task.space.points])


def base_of(seed=0):
    return values_of(prepared(seed=seed, difference=0.0))


def test_it_is_found_by_name():
    assert find("synthetic") is SyntheticTask


def test_the_domain_is_a_thousand_points_of_the_unit_interval():
    space = prepared().space
    np.testing.assert_allclose(space.points[:, 0], np.linspace(0, 1, 1000), atol=1e-15)
    assert prepared(points=11).space.points.shape == (11, 1)


@pytest.mark.parametrize("seed", range(4))
def test_the_base_lies_in_zero_to_one_and_meets_both(seed):
    base = base_of(seed)
    assert base.min() == 0.0
    assert base.max() == 1.0


def test_agents_differ_from_the_base_by_exactly_two_hundredths_either_way():
    base = base_of()
    signs = []
    for index in range(6):
        difference = values_of(prepared(index)) - base
        np.testing.assert_allclose(np.abs(difference), 0.02, atol=1e-15)
        signs.append(np.sign(difference))
        # equally often up and down: 4 standard deviations of 1,000 fair signs
        assert abs(signs[-1].sum()) < 4 * math.sqrt(1000)
    # independently between agents
    correlation = np.corrcoef(signs) - np.eye(6)
    assert np.abs(correlation).max() < 4 / math.sqrt(1000)


def test_the_target_of_fts_has_the_base_itself():
    # App. D.1: d_n = 1.2 for the others, whose functions are then mostly noise
    base = base_of()
    np.testing.assert_array_equal(values_of(prepared(0, difference=1.2, unshifted=1)), base)
    other = values_of(prepared(1, difference=1.2, unshifted=1))
    np.testing.assert_allclose(np.abs(other - base), 1.2, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 1.0])
def test_mixed_agents_are_alpha_parts_their_own(alpha):
    base, own = base_of(), values_of(prepared(2, family="mixed", alpha=1.0))
    assert (own.min(), own.max()) == (0.0, 1.0)
    mixed = values_of(prepared(2, family="mixed", alpha=alpha))
    np.testing.assert_allclose(mixed, alpha * own + (1 - alpha) * base, atol=1e-15)


def test_own_functions_are_independent_and_the_base_is_shared():
    own = [values_of(prepared(i, family="mixed", alpha=1.0)) for i in range(4)]
    base = base_of()
    for i in range(4):
        assert not np.allclose(own[i], base)
        for k in range(i):
            # 1 / .03 length scales are about 17 independent values: correlations of a quarter
            assert abs(np.corrcoef(own[i], own[k])[0, 1]) < 0.9
    assert not np.allclose(base_of(1), base)


def test_functions_have_the_length_scale_of_their_kernel():
    # For the SE kernel E[(f(x + h) - f(x))^2] / (2 Var f) = 1 - exp(-h^2 / 2 l^2). Averaged over
    # 40 functions, each with about 17 independent pieces: 5% of standard error; 4 of them.
    functions = np.array([values_of(prepared(i, 40, family="mixed", alpha=1.0)) for i in range(40)])
    for lag in (10, 20, 30):
        h = lag / 999
        apart = np.mean((functions[:, lag:] - functions[:, :-lag]) ** 2)
        whole = 2 * np.mean(functions.var(axis=1))
        # dividing by the range and taking the variance within a function changes both alike,
        # up to 1 / 17 of the variance that its own mean takes away
        assert apart / whole == pytest.approx(1 - math.exp(-(h**2) / (2 * 0.03**2)), rel=0.25)


def test_everything_follows_from_seed_and_index():
    assert np.array_equal(values_of(prepared(3)), values_of(prepared(3)))
    assert np.array_equal(values_of(prepared(3, count=6)), values_of(prepared(3, count=99)))
    assert not np.array_equal(values_of(prepared(3)), values_of(prepared(3, seed=1)))


def test_the_optimum_is_the_largest_value_of_the_agents_own_function():
    for index in range(3):
        task = prepared(index, family="mixed")
        assert task.optimum() == values_of(task).max()


def test_a_score_is_the_value_with_noise_of_variance_one_hundredth():
    task = prepared()
    params = task.space.from_unit(task.space.points[123])
    rng = np.random.default_rng(0)
    scores = np.array([task.evaluate(params, rng=rng) for _ in range(4000)])
    assert scores.mean() == pytest.approx(task.expected(params), abs=4 * 0.1 / math.sqrt(4000))
    assert scores.var() == pytest.approx(0.01, rel=5 * math.sqrt(2 / 4000))
    silent = prepared(observation_noise=0.0)
    assert silent.evaluate(params, rng=rng) == silent.expected(params)


def test_it_must_be_prepared():
    task = SyntheticTask()
    with pytest.raises(RuntimeError, match="must be prepared for a partition"):
        task.optimum()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"alpha": 1.1}, r"`alpha` must be in \[0, 1\], but got 1.1"),
        ({"difference": -0.1}, "`difference` must be >= 0"),
        ({"points": 1}, "`points` must be >= 2, but got 1"),
        ({"function_lengthscale": 0.0}, "`function-lengthscale` must be > 0"),
        ({"family": "other"}, r"`family` must be shifted \| mixed, but got 'other'"),
    ],
)
def test_bad_settings_are_refused(given, says):
    with pytest.raises(SettingsError, match=says):
        SyntheticSettings(**given)
