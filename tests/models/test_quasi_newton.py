"""Bounded minimisations at once: their minima, at bounds and within, and row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.models.quasi_newton import DescentOptions, minimise

EXACT = DescentOptions(slope=1e-6, iterations=200)


def bowls(seed: int, rows: int, dimension: int) -> Any:
    """A convex quadratic for each row, whose minimum may lie outside the bounds."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((rows, dimension, dimension))
    hessian = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(dimension)
    centre = rng.uniform(-1.5, 1.5, (rows, dimension))

    def loss(x: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        away = x - centre[chosen]
        slope = np.einsum("sde,se->sd", hessian[chosen], away)
        return 0.5 * np.einsum("sd,sd->s", slope, away), slope

    return loss


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_convex_function_is_at_its_least_within_the_bounds(
    rows: int, dimension: int, seed: int
) -> None:
    loss = bowls(seed, rows, dimension)
    low, high = -np.ones(dimension), np.ones(dimension)
    starts = np.random.default_rng(seed).uniform(-2.0, 2.0, (rows, dimension))  # some outside
    found, value = minimise(loss, starts, low, high, EXACT)
    exact, slope = loss(found, np.arange(rows))
    np.testing.assert_array_equal(value, exact)
    assert np.all((found >= low) & (found <= high))
    # The conditions of Karush, Kuhn and Tucker, which only the least value of a convex function
    # meets. A row may end where it gains 2e-9: at a curvature of 20, the slope is sqrt(2 20 2e-9).
    assert np.all(slope[found > low] < 3e-4)
    assert np.all(slope[found < high] > -3e-4)


def valley(x: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rosenbrock's function: a narrow bent valley with its minimum, 0, at (1, 1)."""
    a, b = x.T
    value = 10 * (b - a * a) ** 2 + (1 - a) ** 2
    slope = np.stack([-40 * a * (b - a * a) - 2 * (1 - a), 20 * (b - a * a)], axis=1)
    return value, slope


def test_a_bent_valley_is_followed_to_its_end() -> None:
    starts = np.random.default_rng(0).uniform(-2, 2, (20, 2))
    found, value = minimise(valley, starts, np.full(2, -3.0), np.full(2, 3.0), EXACT)
    np.testing.assert_allclose(found, 1.0, atol=1e-4)
    assert np.all(value < 1e-8)


def test_a_function_that_is_not_convex_is_descended_to_a_bound() -> None:
    def saddle(x: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x[:, 0] ** 2 - x[:, 1] ** 2, np.stack([2 * x[:, 0], -2 * x[:, 1]], axis=1)

    starts = np.array([[0.5, 0.1], [-0.7, -0.2]])
    found, value = minimise(saddle, starts, np.full(2, -1.0), np.full(2, 1.0), EXACT)
    np.testing.assert_allclose(found, [[0.0, 1.0], [0.0, -1.0]], atol=1e-5)
    np.testing.assert_allclose(value, -1.0, atol=1e-9)


def test_a_coordinate_without_room_stays_where_it_is() -> None:
    low, high = np.array([-3.0, 0.25]), np.array([3.0, 0.25])
    found, _ = minimise(valley, np.zeros((1, 2)), low, high, EXACT)
    assert found[0, 1] == 0.25
    assert found[0, 0] == pytest.approx(0.5, abs=0.06)  # beside the valley's floor, a^2 = b


@given(st.integers(2, 9), st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_row_ends_at_the_same_bits_whatever_the_other_rows_are(
    rows: int, dimension: int, seed: int
) -> None:
    loss, rng = bowls(seed, rows, dimension), np.random.default_rng(seed)
    starts = rng.standard_normal((rows, dimension))
    low, high = np.full(dimension, -0.8), np.full(dimension, 0.8)
    found, value = minimise(loss, starts, low, high)
    some = rng.permutation(rows)[: rng.integers(1, rows + 1)]
    again = minimise(lambda x, n: loss(x, some[n]), starts[some], low, high)
    assert np.array_equal(found[some], again[0])
    assert np.array_equal(value[some], again[1])


def test_a_row_stops_at_the_tolerance_and_others_go_on() -> None:
    calls: list[list[int]] = []

    def loss(x: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(chosen.tolist())
        return valley(x, chosen)

    minimise(loss, np.array([[1.0, 1.0], [-1.0, 1.0]]), np.full(2, -3.0), np.full(2, 3.0))
    assert calls[0] == [0, 1]
    assert len(calls) > 5
    assert all(chosen == [1] for chosen in calls[1:])
