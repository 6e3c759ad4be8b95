"""Points that are spread one at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.search.spread import spread_point
from flwr_fbo.search.subspace import SubSpace

MIXED = Space({"x": Float(0, 1), "n": Int(1, 100), "k": Categorical(["a", "b", "c"])})


def spread(space, count, parts, seed=0, part=None):
    units = np.zeros((0, space.dimension))
    for t in range(count):
        unit = spread_point(space, units, parts, np.random.default_rng([seed, t]), part)
        units = np.vstack([units, unit])
    return units


@given(st.integers(1, 12), st.integers(0, 100))
def test_so_many_points_reach_every_part_and_every_category(count, seed):
    units = spread(MIXED, count, count, seed)
    assert sorted((units[:, 0] * count).astype(int)) == list(range(count))
    tried = np.bincount((units[:, 2] * 3).astype(int), minlength=3)
    assert tried.max() - tried.min() <= 1
    np.testing.assert_array_equal(units, MIXED.snap(units))


def test_the_part_that_was_not_tried_is_next_by_hand():
    seen = np.array([[0.1, 0.1, 1 / 6], [0.4, 0.9, 0.5], [0.9, 0.6, 5 / 6], [0.8, 0.3, 0.5]])
    for seed in range(20):
        x, n, k = spread_point(MIXED, seen, 4, np.random.default_rng(seed))
        assert 0.5 <= x < 0.75  # parts 0, 1 and 3 were tried
        assert 0.0 <= n <= 1.0  # every part was tried once: any is as good
        assert k != 0.5  # b was tried twice


def test_a_point_comes_from_the_part_of_the_space():
    part = SubSpace(MIXED, {"x": Float(0.5, 1.0)}, np.array([0.0, 0.2, 1 / 6]))
    units = spread(MIXED, 4, 4, part=part)
    assert sorted(((units[:, 0] - 0.5) * 8).astype(int)) == [0, 1, 2, 3]
    np.testing.assert_array_equal(units[:, 1:], np.tile(part.fixed[1:], (4, 1)))
