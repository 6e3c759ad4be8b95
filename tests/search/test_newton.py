"""Batched ascents: bounds, scipy on hard valleys, and rows that are independent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import optimize

from flwr_fbo.search.newton import AscentOptions, climb


def rosenbrock(x, _rows):
    a, b = x[:, 0], x[:, 1]
    value = -((1 - a) ** 2) - 10 * (b - a * a) ** 2
    slope = np.stack([2 * (1 - a) + 40 * a * (b - a * a), -20 * (b - a * a)], axis=1)
    return value, slope


def bowls(centres, scales):
    def objective(x, rows):
        away = x - centres[rows]
        return -(scales[rows] * away**2).sum(axis=1), -2 * scales[rows] * away

    return objective


def test_a_bent_valley_is_climbed_to_the_end():
    starts = np.random.default_rng(0).uniform(-1.5, 1.5, (20, 2))
    low, high = np.full((20, 2), -2.0), np.full((20, 2), 2.0)
    x, value = climb(rosenbrock, starts, low, high, AscentOptions(iterations=200))
    np.testing.assert_allclose(x, 1.0, atol=1e-3)
    assert value.min() > -1e-6
    # the last step of a row is not looked at again: its value is what was promised
    np.testing.assert_allclose(value, rosenbrock(x, None)[0], rtol=0, atol=1e-8)


def test_it_agrees_with_scipy_where_the_maximum_is_on_the_boundary():
    rng = np.random.default_rng(1)
    low = np.tile([-1.5, -1.5], (10, 1))
    high = np.tile([0.5, 0.1], (10, 1))  # cuts the valley off: the maximum is on the faces
    starts = rng.uniform(low, high)
    _, value = climb(rosenbrock, starts, low, high, AscentOptions(iterations=200))
    best = max(
        -optimize.minimize(
            lambda p: -rosenbrock(p[None], None)[0][0],
            start,
            jac=lambda p: -rosenbrock(p[None], None)[1][0],
            bounds=[(-1.5, 0.5), (-1.5, 0.1)],
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-10},
        ).fun
        for start in starts
    )
    assert value.max() == pytest.approx(best, abs=1e-6)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
@example(2, 6, 1034307)  # a radius that doubled thirty times overflowed
@settings(max_examples=60, deadline=None)
def test_bounds_are_kept_and_a_bowls_maximum_is_its_clipped_centre(count, dimension, seed):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, dimension))
    scales = 10 ** rng.uniform(-1, 1, (count, dimension))
    low = rng.uniform(-2, 0, (count, dimension))
    high = low + rng.uniform(0, 2, (count, dimension))
    fixed = rng.random((count, dimension)) < 0.2
    high[fixed] = low[fixed]
    starts = rng.uniform(-3, 3, (count, dimension))  # also outside
    bowl = bowls(centres, scales)
    x, _ = climb(bowl, starts, low, high, AscentOptions(tolerance=1e-12, iterations=200))
    assert np.all((x >= low) & (x <= high))
    # separable, so the constrained maximum is the centre moved into the box; what a step promises
    # is half the curvature, at least 0.2, times its square: 1e-12 is a step of 3e-6
    np.testing.assert_allclose(x, np.clip(centres, low, high), atol=1e-4)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_rows_are_independent_of_each_other(seed):
    rng = np.random.default_rng(seed)
    starts = rng.uniform(-1.5, 1.5, (6, 2))
    low, high = np.full((6, 2), -2.0), np.full((6, 2), 2.0)
    together, values = climb(rosenbrock, starts, low, high)
    for row in range(6):
        alone, value = climb(rosenbrock, starts[row : row + 1], low[:1], high[:1])
        np.testing.assert_allclose(alone[0], together[row], rtol=0, atol=1e-12)
        np.testing.assert_allclose(value[0], values[row], rtol=0, atol=1e-12)


def test_values_never_fall():
    rng = np.random.default_rng(2)
    starts = rng.uniform(0, 1, (30, 3))

    def rugged(x, _rows):
        return np.sin(20 * x).sum(axis=1), 20 * np.cos(20 * x)

    _, value = climb(rugged, starts, np.zeros((30, 3)), np.ones((30, 3)))
    assert np.all(value >= rugged(starts, None)[0])


def test_a_flat_function_stays_where_it_starts():
    starts = np.array([[0.2, 0.7]])
    x, value = climb(
        lambda x, _: (np.zeros(len(x)), np.zeros_like(x)), starts, np.zeros((1, 2)), np.ones((1, 2))
    )
    assert np.array_equal(x, starts)
    assert value.tolist() == [0.0]


def waves(x, _rows):
    """A smooth function with many tops, in single precision as surfaces are climbed."""
    inside = (x * np.array([7.0, 5.0]) + np.array([0.3, 1.1])).astype(np.float32)
    value = np.sin(inside).prod(axis=1)
    slope = np.cos(inside) * np.sin(inside[:, ::-1]) * np.float32([7, 5])
    return value, slope


def counted(objective):
    """Return the objective, and a list of how many rows each call evaluated."""
    sizes = []

    def seen(x, rows):
        sizes.append(len(x))
        return objective(x, rows)

    return seen, sizes


def test_a_few_evaluations_are_enough_and_single_precision_too():
    starts = np.array([[0.16, 0.11], [0.2, 0.05], [0.22, 0.14]])
    seen, sizes = counted(waves)
    box, options = (np.zeros((3, 2)), np.ones((3, 2))), AscentOptions(tolerance=1e-5)
    x, value = climb(seen, starts, *box, options)
    top = [(np.pi / 2 - 0.3) / 7, (np.pi / 2 - 1.1) / 5]
    # Newton's steps from a tenth of a wave away: 1e-1, 1e-3 (its cube), 1e-9; single precision
    # and the differences leave a hundredth of the last step that was evaluated
    np.testing.assert_allclose(x, np.tile(top, (3, 1)), atol=1e-4)
    np.testing.assert_allclose(value, 1.0, atol=1e-5)
    assert len(sizes) <= 4
    assert sizes[0] == 9  # three rows, each with a step aside along both coordinates


def test_where_only_the_best_matters_it_is_found_with_less_work():
    rng = np.random.default_rng(5)

    def hills(x, _rows):  # of heights 1 to 3, a wave of each coordinate
        height = 1.0 + 2.0 * x[:, 0]
        value = height * np.cos(20 * x).prod(axis=1)
        swing = -20 * np.sin(20 * x) * np.cos(20 * x[:, ::-1]) * height[:, None]
        swing[:, 0] += 2.0 * np.cos(20 * x).prod(axis=1)
        return value, swing

    starts, box = rng.random((20, 2)), (np.zeros((20, 2)), np.ones((20, 2)))
    every, all_sizes = counted(hills)
    best, sizes = counted(hills)
    _, expected = climb(every, starts, *box)
    x, value = climb(best, starts, *box, AscentOptions(only_best=True))
    assert value.max() == pytest.approx(expected.max(), abs=1e-7)
    np.testing.assert_allclose(value.max(), hills(x, None)[0].max(), atol=1e-7)
    assert sum(sizes) < 0.8 * sum(all_sizes)
    # the less a climb may gain of what its step promises, the sooner it is given up
    few, few_sizes = counted(hills)
    _, value = climb(few, starts, *box, AscentOptions(only_best=True, unproven_gain=3.0))
    assert value.max() == pytest.approx(expected.max(), abs=1e-7)
    assert sum(few_sizes) < sum(sizes)


def test_how_far_the_first_step_goes_and_what_is_worth_another():
    def bowls(x, rows):  # tops at 0.5, each row's 0.01 lower than the one before
        away = x - 0.5
        return -np.einsum("sd,sd->s", away, away) - 0.01 * rows, -2.0 * away

    starts, box = np.array([[0.1, 0.5]]), (np.zeros((1, 2)), np.ones((1, 2)))
    for radius in (0.03, 0.3):
        x, _ = climb(bowls, starts, *box, AscentOptions(radius=radius, iterations=1))
        np.testing.assert_allclose(x, [[0.1 + radius, 0.5]], atol=1e-6)
    # The second row would end 0.01 below the first: it is gone on with for any chance to end
    # higher, and for none to end higher by less than the tolerance.
    starts, box = np.array([[0.5, 0.45], [0.4, 0.5]]), (np.zeros((2, 2)), np.ones((2, 2)))
    seen, sizes = counted(bowls)
    best = {"only_best": True, "unproven_gain": 10.0}
    _, value = climb(seen, starts, *box, AscentOptions(tolerance=1e-6, **best))
    assert len(sizes) > 1
    assert value.max() == pytest.approx(0.0, abs=1e-6)
    seen, sizes = counted(bowls)
    climb(seen, starts, *box, AscentOptions(tolerance=0.1, **best))
    assert sizes == [6]


def test_it_leaves_a_saddle_and_a_slope_without_end():
    def saddle(x, _rows):
        return x[:, 0] ** 2 - x[:, 1] ** 2, np.stack([2 * x[:, 0], -2 * x[:, 1]], axis=1)

    starts, low, high = np.array([[1e-3, 0.4]]), np.full((1, 2), -1.0), np.ones((1, 2))
    x, value = climb(saddle, starts, low, high)
    np.testing.assert_allclose(x, [[1.0, 0.0]], atol=1e-6)
    assert value[0] == pytest.approx(1.0, abs=1e-8)

    def plane(x, _rows):
        return x.sum(axis=1), np.ones_like(x)

    x, value = climb(plane, starts, low, high)
    assert x.tolist() == [[1.0, 1.0]]
    assert value.tolist() == [2.0]
