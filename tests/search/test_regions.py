"""Sub-regions: the paper's own, a partition for every number, and what cannot be split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.search.regions import Regions, home_regions, split_space


def cube(dimension):
    return Space({f"x{d}": Float(0, 1) for d in range(dimension)})


def boxes(regions):
    return [list(zip(*pair, strict=True)) for pair in zip(regions.low, regions.high, strict=True)]


def test_the_papers_sub_regions_in_their_order():
    # App. B.2.1, D = 2 and D = 3
    half, rest, whole = (0.0, 0.5), (0.5, 1.0), (0.0, 1.0)
    assert boxes(split_space(cube(2), 4)) == [
        [half, half], [half, rest], [rest, half], [rest, rest]
    ]  # fmt: skip
    assert boxes(split_space(cube(3), 4)) == [
        [half, half, whole], [half, rest, whole], [rest, half, whole], [rest, rest, whole]
    ]  # fmt: skip
    # App. B.1.1: [0, 1/3), [1/3, 2/3), [2/3, 1]
    third = split_space(cube(1), 3)
    assert boxes(third) == [[(0.0, 1 / 3)], [(1 / 3, 2 / 3)], [(2 / 3, 1.0)]]
    assert third.locate(np.array([[0.0], [1 / 3], [2 / 3], [1.0]])).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("count", "dimension", "splits"),
    [
        (6, 2, (2, 3)), (4, 3, (2, 2, 1)), (1, 3, (1, 1, 1)), (2, 3, (2, 1, 1)), (7, 2, (7, 1)),
        (12, 2, (3, 4)), (8, 3, (2, 2, 2)), (12, 3, (2, 2, 3)), (5, 1, (5,)), (36, 2, (6, 6)),
    ],
)  # fmt: skip
def test_splits_are_as_even_as_the_number_allows(count, dimension, splits):
    assert split_space(cube(dimension), count).splits == splits


@given(st.integers(1, 60), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_every_point_lies_in_exactly_one_box_of_equal_volume(count, dimension, seed):
    regions = split_space(cube(dimension), count)
    assert regions.count == count == len(regions.low)
    np.testing.assert_allclose(np.prod(regions.high - regions.low, axis=1), 1 / count)
    rng = np.random.default_rng(seed)
    units = rng.random((50, dimension))
    edges = [np.arange(k + 1) / k for k in regions.splits]  # also the faces themselves
    units[:25] = np.stack([rng.choice(e, 25) for e in edges], axis=1)
    inside = np.stack(
        [
            Space.inside(units, low, high)
            for low, high in zip(regions.low, regions.high, strict=True)
        ]
    )
    assert np.array_equal(inside.sum(axis=0), np.ones(50))
    assert np.array_equal(inside.argmax(axis=0), regions.locate(units))


@given(st.lists(st.integers(1, 120), min_size=1, max_size=2))
@settings(max_examples=100, deadline=None)
def test_corners_are_located_where_they_belong_despite_rounding(splits):
    regions = Regions(tuple(splits))
    numbers = np.arange(regions.count)
    assert np.array_equal(regions.locate(regions.low), numbers)
    below = np.where(regions.high < 1, np.nextafter(regions.high, 0), regions.high)
    assert np.array_equal(regions.locate(below), numbers)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.booleans(),
    st.integers(1, 24),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_every_sub_region_of_a_discrete_space_holds_a_point(sizes, real, count, seed):
    parameters = {
        f"p{i}": Categorical(list(range(k))) if i % 2 else Int(1, k + 1)
        for i, k in enumerate(sizes)
    }
    if real:
        parameters["x"] = Float(0, 1)
    space = Space(parameters)
    try:
        regions = split_space(space, count)
    except SettingsError:
        # Not without reason: no factorisation of P fits the numbers of values.
        assume(not real)
        available = [p.size for p in space.parameters.values()]
        for splits in np.ndindex(*available):
            if np.prod([k + 1 for k in splits]) == count:
                lone = Regions(tuple(k + 1 for k in splits))
                grid = np.stack(
                    np.meshgrid(*[p.unit(np.arange(p.size)) for p in space.parameters.values()],
                                indexing="ij"), axis=-1,
                ).reshape(-1, space.dimension)  # fmt: skip
                assert len(np.unique(lone.locate(grid))) < count
        return
    rng = np.random.default_rng(seed)
    for i in range(count):
        points = space.sample(3, rng, regions.low[i], regions.high[i])
        assert np.array_equal(regions.locate(points), [i] * 3)


def test_a_split_that_would_leave_a_box_empty_gives_way_to_the_next():
    space = Space({"k": Categorical(["a", "b"]), "x": Float(0, 1)})
    assert split_space(space, 6).splits == (2, 3)
    assert split_space(space, 9).splits == (1, 9)
    # the middle third of two values' units holds none
    assert split_space(Space({"n": Int(1, 2), "x": Float(0, 1)}), 3).splits == (1, 3)


def test_finite_spaces_count_their_points():
    space = Space({"x": Float(0, 1)}, np.array([[0.1], [0.2], [0.9]]))
    assert split_space(space, 2).splits == (2,)
    with pytest.raises(SettingsError, match=r"`regions` must leave.*3 equal boxes of \['x'\]"):
        split_space(space, 3)


def test_the_impossible_is_refused():
    with pytest.raises(SettingsError, match="`regions` must be >= 1, but got 0"):
        split_space(cube(2), 0)
    with pytest.raises(SettingsError, match="`regions` must leave every sub-region at least one"):
        split_space(Space({"k": Categorical(["a", "b"])}), 3)


@given(st.integers(1, 300), st.integers(1, 20))
def test_agents_are_spread_evenly(agents, count):
    homes = np.bincount(home_regions(agents, count), minlength=count)
    assert homes.sum() == agents
    assert homes.max() - homes.min() <= 1
