"""Where a sampled function is largest: against brute force, scipy, and by sub-region."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from benchmarks.maxima import KINDS, loss, mixed_losses
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import GaussianProcess, Path
from flwr_fbo.models.kernels import SquaredExponential, kernel_named
from flwr_fbo.models.prior_mean import PriorMeanProcess
from flwr_fbo.models.surface import Surface
from flwr_fbo.search import acquisition
from flwr_fbo.search.acquisition import all_points, argmax
from flwr_fbo.search.candidates import NearIncumbents, quasi_random
from flwr_fbo.search.expected_improvement import Improvement
from flwr_fbo.search.regions import Regions, split_space


def cube(dimension):
    return Space({f"x{d}": Float(0, 1) for d in range(dimension)})


def path_over(space, seed, lengthscale=0.3, observations=8, name="matern52"):
    """A path from a posterior over the space's embedded coordinates."""
    rng = np.random.default_rng(seed)
    x = space.embed(space.sample(observations, rng))
    gp = GaussianProcess(kernel_named(name, lengthscale), 0.01, x, rng.normal(size=observations))
    return gp.sample_path(rng)


# ------------------------------------------------------------------ finite spaces


@pytest.mark.parametrize("seed", range(20))
def test_a_grid_is_searched_exactly(seed):
    space = Space({"x": Float(0, 1)}, np.linspace(0, 1, 1000)[:, None])
    path = path_over(space, seed, lengthscale=0.03)
    found = argmax(path, space, np.random.default_rng(seed))
    values = path.value(space.embed(space.points))
    assert np.array_equal(found, space.points[np.argmax(values)])


def test_points_that_single_precision_cannot_tell_apart_are_still_told_apart():
    # Around its top a function is flat: neighbours differ by 1e-9 and a scan by 1e-6.
    space = cube(1)
    path = path_over(space, 3, name="se")
    top = argmax(path, space, np.random.default_rng(0))
    near = np.clip(top + np.linspace(-3e-4, 2e-4, 4001), 0, 1)[:, None]
    fine = Space({"x": Float(0, 1)}, near)
    values = path.value(near)
    assert np.argmax(path.scan(near)) != np.argmax(values)
    found = argmax(path, fine, np.random.default_rng(0))
    assert np.array_equal(found, near[np.argmax(values)])


@pytest.mark.parametrize("seed", range(10))
def test_a_grid_is_searched_exactly_by_sub_region(seed):
    space = Space({"x": Float(0, 1)}, np.linspace(0, 1, 1000)[:, None])
    regions = split_space(space, 3)
    rng = np.random.default_rng(seed)
    features = RandomFeatures.draw(SquaredExponential(0.03), 50, 1, rng)
    weights = rng.standard_normal((3, 50)) * 10.0 ** rng.uniform(-3, 3)
    found = argmax(Path(features, weights), space, rng, regions)
    values = np.concatenate(
        [
            Path(features, weights[i]).value(space.points[regions.locate(space.points) == i])
            for i in range(3)
        ]
    )
    assert np.array_equal(found, space.points[np.argmax(values)])


def test_a_small_discrete_space_is_enumerated_exactly():
    space = Space({"n": Int(1, 40), "m": Int(1, 64, log=True), "k": Categorical(["a", "b", "c"])})
    points = all_points(space)
    expected = [
        space.to_unit({"n": n, "m": m, "k": k})
        for n, m, k in itertools.product(range(1, 41), range(1, 65), "abc")
    ]
    assert np.array_equal(points, expected)
    for seed in range(5):
        path = path_over(space, seed)
        found = argmax(path, space, np.random.default_rng(seed))
        assert np.array_equal(found, points[np.argmax(path.value(space.embed(points)))])


def test_what_is_continuous_or_too_large_is_not_enumerated():
    assert all_points(Space({"x": Float(0, 1), "n": Int(1, 2)})) is None
    assert all_points(Space({"n": Int(1, acquisition.ENUMERABLE + 1)})) is None
    assert len(all_points(Space({"n": Int(1, acquisition.ENUMERABLE)}))) == acquisition.ENUMERABLE


def test_a_flat_function_gives_some_point_of_the_space():
    features = RandomFeatures.draw(SquaredExponential(0.3), 10, 1, np.random.default_rng(0))
    finite = Space({"x": Float(0, 1)}, np.array([[0.2], [0.4]]))
    for space in (finite, cube(1)):
        found = argmax(Path(features, np.zeros(10)), space, np.random.default_rng(0))
        assert found.shape == (1,)
        assert 0 <= found[0] <= 1


# ------------------------------------------------------------------ continuous spaces


def scipy_maximum(path, space, starts=20):
    """The best of many bounded climbs with every number real, between its end values."""
    bounds = [
        (0.0, 1.0) if isinstance(p, Float) else tuple(p.unit(np.array([0, p.size - 1])))
        for p in space.parameters.values()
    ]

    def loss(point):
        value, gradient = path.value_and_gradient(point[None])
        return -value[0], -gradient[0]

    return max(
        -optimize.minimize(
            loss, start, jac=True, bounds=bounds, method="L-BFGS-B",
            options={"ftol": 1e-14, "gtol": 1e-9},
        ).fun
        for start in np.random.default_rng(99).random((starts, space.dimension))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dimension", "lengthscale", "seed"),
    [(d, s, k) for d, s in ((1, 0.1), (2, 0.2), (2, 0.5), (3, 0.5)) for k in range(3)],
)
def test_the_maximum_is_that_of_many_starts_of_scipy(dimension, lengthscale, seed):
    space = cube(dimension)
    path = path_over(space, seed, lengthscale, name="se")
    found = argmax(path, space, np.random.default_rng(seed))
    best = scipy_maximum(path, space)
    assert np.all((found >= 0) & (found <= 1))
    # the functions have a spread of about 1; 1e-6 of it is far below what noise decides
    assert path.value(found[None])[0] > best - 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_each_sub_region_is_searched_with_its_own_function(seed):
    space, regions = cube(2), Regions((2, 3))
    rng = np.random.default_rng(seed)
    features = RandomFeatures.draw(SquaredExponential(0.3), 80, 2, rng)
    path = Path(features, rng.standard_normal((6, 80)))
    found = argmax(path, space, rng, regions)
    home = regions.locate(found[None])
    value = path.value(found[None], home)[0]
    best = -math.inf
    for i in range(6):
        low, high = regions.low[i], regions.high[i]
        single = Path(features, path.weights[i])
        for start in low + np.random.default_rng(i).random((8, 2)) * (high - low):
            result = optimize.minimize(
                lambda p, single=single: tuple(
                    -v[0] for v in single.value_and_gradient(np.asarray(p)[None])
                ),
                start, jac=True, bounds=list(zip(low, high, strict=True)), method="L-BFGS-B",
                options={"ftol": 1e-14, "gtol": 1e-9},
            )  # fmt: skip
            best = max(best, -result.fun)
    assert value > best - 1e-6


@pytest.mark.parametrize("count", [2, 3, 7, 49])
@pytest.mark.parametrize("winner", ["first", "middle", "last"])
def test_the_winner_lies_in_the_sub_region_whose_function_it_maximises(count, winner):
    # One region's function is far above the others and rises beyond the region's upper face,
    # so the climb ends on the face, which belongs to the neighbour.
    space, regions = cube(1), Regions((count,))
    index = {"first": 0, "middle": count // 2, "last": count - 1}[winner]
    # cos(x + b) / |cos(x + b)| is a sign: two features make a smooth increasing function
    features = RandomFeatures(np.array([[0.5], [0.5]]), np.array([-np.pi / 2, 0.0]))  # sin, cos
    weights = np.tile([-10.0, -10.0], (count, 1))
    weights[index] = [1.0, 0.0]  # sin(x / 2), increasing
    found = argmax(Path(features, weights), space, np.random.default_rng(0), regions)
    assert regions.locate(found[None]) == [index]
    assert found[0] == pytest.approx(regions.high[index, 0], abs=1e-9)


def test_incumbents_are_started_from(monkeypatch):
    # A peak too narrow for the candidates is found only because it is known.
    space = cube(2)
    peak = np.array([[0.31234, 0.71234]])
    kernel = SquaredExponential(0.002)
    gp = GaussianProcess(kernel, 1e-6, peak, np.array([50.0]))
    path = gp.sample_path(np.random.default_rng(1))
    rng = np.random.default_rng
    without = argmax(path, space, rng(0))
    with_it = argmax(path, space, rng(0), incumbents=peak)
    assert path.value(with_it[None])[0] > 40 > path.value(without[None])[0]
    np.testing.assert_allclose(with_it, peak[0], atol=0.005)


class Narrow(Surface):
    """A hill over the whole square, and a needle of width 0.004 beside the best point so far."""

    peaks_near_incumbents = True
    top = np.array([0.31, 0.72])

    def value_and_gradient(self, x, _regions=None):
        hill, needle = x - 0.8, (x - self.top) / 4e-3
        low, high = (np.exp(-0.5 * (away * away).sum(axis=1)) for away in (2.0 * hill, needle))
        slope = low[:, None] * -4.0 * hill - 2.0 * high[:, None] * needle / 4e-3
        return low + 2.0 * high, slope

    def value(self, x, regions=None):
        return self.value_and_gradient(x)[0]


def test_what_is_narrow_beside_an_incumbent_is_found():
    # Without the points around it the needle, 5e-5 of the square, is passed over by candidates
    # that are 0.06 apart: 40 shifts of them find it about once.
    beside = Narrow.top + np.array([[6e-3, -4e-3]])
    away = np.array([[0.1, 0.1]])
    found = [argmax(Narrow(), cube(2), np.random.default_rng(s), None, beside) for s in range(40)]
    missed = [argmax(Narrow(), cube(2), np.random.default_rng(s), None, away) for s in range(40)]
    assert sum(np.allclose(x, Narrow.top, atol=1e-3) for x in found) >= 38
    # A climb is content with two percent: on the hill, which is 0.5 wide, that is a hundredth.
    assert sum(np.allclose(x, 0.8, atol=1e-2) for x in missed) >= 38


@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_candidates_by_incumbents_and_climbs_from_the_best_of_neighbours(dimension, count, seed):
    rng, search = np.random.default_rng(seed), NearIncumbents()
    incumbents = rng.random((count, dimension))
    points = search.points([rng], incumbents[None])[0]
    assert np.all((points >= 0) & (points <= 1))
    spread = len(points) - count * (1 + search.per_incumbent)
    assert spread == 128
    np.testing.assert_array_equal(points[spread : spread + count], incumbents)
    near = points[spread + count :].reshape(count, search.per_incumbent, dimension)
    away = np.linalg.norm(near - incumbents[:, None], axis=2)  # less where the cube ends
    assert np.all(away <= search.farthest * dimension**0.5 * (1 + 1e-12))
    order = rng.permutation(len(points))
    found, present = search.starts_among(points[None], order[None])
    starts = found[0][present[0]]
    assert 1 <= len(starts) <= 8
    assert starts[0] == order[0]
    # none of those that are left out before the last start is far from all better ones
    rank = {index: place for place, index in enumerate(order)}
    for index in order[: rank[starts[-1]]]:
        apart = np.linalg.norm(points[order[: rank[index]]] - points[index], axis=1)
        alone = not np.any(apart < spread ** (-1 / dimension))
        assert alone == (index in starts)


def test_spaces_of_other_kinds_are_searched_as_widely_as_ever(monkeypatch):
    monkeypatch.setattr(NearIncumbents, "points", None)  # calling it would fail
    space = Space({"n": Int(1, 10**6), "x": Float(0, 1)})
    incumbent = space.to_unit({"n": 5, "x": 0.5})[None]
    found = argmax(Narrow(), space, np.random.default_rng(0), None, incumbent)
    assert np.array_equal(space.snap(found[None])[0], found)
    assert argmax(Narrow(), cube(2), np.random.default_rng(0)).shape == (2,)  # no incumbents
    hill = Improvement.over(PriorMeanProcess(GaussianProcess(
        SquaredExponential(0.5), 0.01, np.full((1, 3), 0.5), np.ones(1)
    )))  # fmt: skip
    assert argmax(hill, cube(3), np.random.default_rng(0), None, np.full((1, 3), 0.5)).shape == (3,)


@pytest.mark.parametrize("dimension", [1, 2, 4, 6])
def test_the_search_loses_nothing_to_scipy_from_many_starts(dimension):
    # Sampled functions and improvements, with and without a shared function and sub-regions. For
    # more seeds: `python -m benchmarks.maxima`. Units are the scores' spread, or shares of an
    # improvement.
    losses = np.array([loss(kind, dimension, seed)[0] for kind in KINDS for seed in range(8)])
    assert np.median(losses) < 1e-6
    assert np.quantile(losses, 0.9) < 1e-4
    assert losses.mean() < 1e-2


# ------------------------------------------------------------------ mixed spaces


@pytest.mark.parametrize("seed", range(3))
def test_categories_and_reals_together(seed):
    space = Space({"k": Categorical(["a", "b", "c", "d"]), "x": Float(0, 1), "n": Int(1, 9)})
    path = path_over(space, seed, lengthscale=0.4, name="se")
    found = argmax(path, space, np.random.default_rng(seed))
    assert np.array_equal(space.snap(found[None])[0], found)
    fine = np.linspace(0, 1, 501)
    grid = np.stack(
        [
            c.ravel()
            for c in np.meshgrid(
                space.parameters["k"].unit(np.arange(4)),
                fine,
                space.parameters["n"].unit(np.arange(9)),
                indexing="ij",
            )
        ],
        axis=1,
    )
    # brute force, less than the curvature times the squared grid step can have missed
    best = path.scan(space.embed(grid)).max()
    assert path.value(space.embed(found[None]))[0] > best - 1e-4


def test_no_exchange_of_one_value_improves_what_is_found():
    # 820,000 combinations around a real number: the candidates see one in a thousand
    space = Space(
        {f"n{i}": Int(1, 9) for i in range(4)}
        | {f"k{i}": Categorical(list("abcde")) for i in range(3)}
        | {"x": Float(0, 1)}
    )
    path = path_over(space, 0, lengthscale=0.6, observations=30, name="se")
    found = argmax(path, space, np.random.default_rng(0))
    value = path.value(space.embed(found[None]))[0]
    for column, parameter in enumerate(space.parameters.values()):
        if not isinstance(parameter, Float):
            trial = np.tile(found, (parameter.size, 1))
            trial[:, column] = parameter.unit(np.arange(parameter.size))
            assert path.value(space.embed(trial)).max() <= value + 1e-12
    candidates = space.snap(quasi_random(5000, space.dimension, np.random.default_rng(1)))
    assert value > path.value(space.embed(candidates)).max()


@pytest.mark.parametrize("dimension", [5, 7])
def test_an_improvement_over_a_mixed_space_is_found_with_less_effort(dimension):
    # of eight models; forty lose .0006 and .0004 on average (docs/evidence/agent.md)
    losses = mixed_losses(dimension, 8)
    assert losses["as it is"][:, 0].mean() < 0.02
    assert losses["wide"][:, 0].mean() < 0.02


LARGE = {
    "one": Space({"n": Int(1, 10**6), "x": Float(0, 1)}),
    "steps": Space({"x": Float(0, 1), "n": Int(0, 3 * 10**5, step=3)}),
    "two": Space({"a": Int(0, 5000), "b": Int(0, 5000)}),
    "three": Space({"a": Int(0, 5000), "x": Float(0, 1), "b": Int(1, 999)}),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", LARGE)
def test_large_integers_reach_what_reals_would(name, seed):
    space = LARGE[name]
    path = path_over(space, seed, lengthscale=0.3, name="se")
    found = argmax(path, space, np.random.default_rng(seed))
    assert np.array_equal(space.snap(found[None])[0], found)
    # The nearest integer to a real maximum is at most half a cell away, 5e-4 for 999 values:
    # it costs at most half the curvature, some 3 / 0.3^2, times its square: 4e-6.
    assert path.value(found[None])[0] > scipy_maximum(path, space) - 5e-6


def test_a_climb_that_is_rounded_to_less_than_its_start_is_undone():
    space = Space({"n": Int(1, 999), "x": Float(0, 1)})
    path = path_over(space, 1, name="se")
    starts = space.sample(30, np.random.default_rng(2))
    reached = space.sample(30, np.random.default_rng(3)) + 1e-5  # anywhere, between the values
    before, after = path.value(starts), path.value(space.snap(reached))
    units, value = acquisition._rounded(acquisition._Target(path, space, None), starts, reached)
    np.testing.assert_allclose(value, np.maximum(before, after), rtol=1e-12)
    np.testing.assert_array_equal(units, space.snap(units))
    np.testing.assert_allclose(path.value(units), value, rtol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_large_integers_on_a_log_scale_are_maximal_among_all(seed):
    parameter = Int(1, 20_000, log=True)  # wide cells at the lower end
    space = Space({"n": parameter, "x": Float(0, 1)})
    path = path_over(space, seed, lengthscale=0.25, name="se")
    found = argmax(path, space, np.random.default_rng(seed))
    every = np.column_stack([parameter.unit(np.arange(20_000)), np.full(20_000, found[1])])
    value = path.value(found[None])[0]
    assert value >= path.value(every).max() - 1e-12
    coarse = np.unique(np.geomspace(1, 20_000, 400).astype(int)) - 1
    grid = np.stack(np.meshgrid(parameter.unit(coarse), np.linspace(0, 1, 200)), -1)
    assert value > path.value(grid.reshape(-1, 2)).max() - 1e-12


def test_large_integers_by_sub_region():
    space, rng = Space({"n": Int(1, 999), "x": Float(0, 1)}), np.random.default_rng(0)
    regions = split_space(space, 4)
    features = RandomFeatures.draw(SquaredExponential(0.3), 60, 2, rng)
    path = Path(features, rng.standard_normal((4, 60)))
    found = argmax(path, space, rng, regions)
    units = space.parameters["n"].unit(np.arange(999))
    grid = np.stack(np.meshgrid(units, np.linspace(0, 1, 201)), -1).reshape(-1, 2)
    best = path.value(grid, regions.locate(grid)).max()
    assert path.value(found[None], regions.locate(found[None]))[0] > best - 1e-9


# ------------------------------------------------------------------ the candidates


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_candidates_are_evenly_spread(dimension):
    # Split the cube into about 64 equal cells. 1,000 uniform points would leave counts with a
    # standard deviation of 4 around 15.6; a low-discrepancy sequence stays much closer.
    points = quasi_random(1000, dimension, np.random.default_rng(0))
    assert points.shape == (1000, dimension)
    assert points.min() >= 0
    assert points.max() < 1
    side = {1: 64, 2: 8, 3: 4}[dimension]
    cells = np.ravel_multi_index(tuple(np.floor(points * side).astype(int).T), (side,) * dimension)
    counts = np.bincount(cells, minlength=side**dimension)
    assert counts.std() < {1: 1.0, 2: 2.0, 3: 3.0}[dimension]
    # and the one-dimensional star discrepancy of each coordinate is near 1 / n, not 1 / sqrt n
    for column in np.sort(points, axis=0).T:
        ends = np.arange(1, 1001) / 1000
        assert np.maximum(ends - column, column - ends + 1e-3).max() < 0.01


def test_candidates_are_shifted_at_random():
    first, second = (quasi_random(10, 2, np.random.default_rng(s)) for s in (0, 1))
    assert not np.allclose(first, second)
    # the golden ratio in one dimension
    steps = np.diff(quasi_random(5, 1, np.random.default_rng(0))[:, 0]) % 1.0
    np.testing.assert_allclose(steps, 2 / (1 + math.sqrt(5)), atol=1e-12)
