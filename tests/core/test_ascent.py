"""Batched ascents: bounds, scipy on hard valleys, and rows that know nothing of each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from flwr_fbo.core.ascent import maximise


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
    x, value = maximise(rosenbrock, starts, low, high, iterations=200)
    np.testing.assert_allclose(x, 1.0, atol=1e-3)
    assert value.min() > -1e-6
    np.testing.assert_array_equal(value, rosenbrock(x, None)[0])


def test_it_agrees_with_scipy_where_the_maximum_is_on_the_boundary():
    rng = np.random.default_rng(1)
    low = np.tile([-1.5, -1.5], (10, 1))
    high = np.tile([0.5, 0.1], (10, 1))  # cuts the valley off: the maximum is on the faces
    starts = rng.uniform(low, high)
    _, value = maximise(rosenbrock, starts, low, high, iterations=200)
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
    x, _ = maximise(bowls(centres, scales), starts, low, high, iterations=200)
    assert np.all((x >= low) & (x <= high))
    # separable, so the constrained maximum is the centre moved into the box; the gradient
    # tolerance is 1e-7 of the box and the curvature at least 0.2
    np.testing.assert_allclose(x, np.clip(centres, low, high), atol=1e-4)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_rows_are_independent_of_each_other(seed):
    rng = np.random.default_rng(seed)
    starts = rng.uniform(-1.5, 1.5, (6, 2))
    low, high = np.full((6, 2), -2.0), np.full((6, 2), 2.0)
    together, values = maximise(rosenbrock, starts, low, high)
    for row in range(6):
        alone, value = maximise(rosenbrock, starts[row : row + 1], low[:1], high[:1])
        np.testing.assert_allclose(alone[0], together[row], rtol=0, atol=1e-12)
        np.testing.assert_allclose(value[0], values[row], rtol=0, atol=1e-12)


def test_values_never_fall():
    rng = np.random.default_rng(2)
    starts = rng.uniform(0, 1, (30, 3))

    def rugged(x, _rows):
        return np.sin(20 * x).sum(axis=1), 20 * np.cos(20 * x)

    _, value = maximise(rugged, starts, np.zeros((30, 3)), np.ones((30, 3)))
    assert np.all(value >= rugged(starts, None)[0])


def test_a_flat_function_stays_where_it_starts():
    starts = np.array([[0.2, 0.7]])
    x, value = maximise(
        lambda x, _: (np.zeros(len(x)), np.zeros_like(x)), starts, np.zeros((1, 2)), np.ones((1, 2))
    )
    assert np.array_equal(x, starts)
    assert value.tolist() == [0.0]
