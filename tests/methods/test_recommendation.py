"""One point for all parties, from released functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import betabinom

from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.thompson.recommendation import noise_reach, recommend
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import Path
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.acquisition import argmax, quasi_random
from flwr_fbo.search.regions import split_space

SPACE = Space({"x": Float(0.0, 1.0), "y": Float(1e-2, 1e2, log=True)})
FEATURES = RandomFeatures.draw(kernel_named("se", 0.3), 40, 2, np.random.default_rng(5))


def everywhere(count: int = 201) -> np.ndarray:
    axis = np.linspace(0, 1, count)
    return np.stack([a.ravel() for a in np.meshgrid(axis, axis)], axis=1)


@pytest.mark.parametrize("regions", [1, 4])
def test_is_where_the_function_is_largest(regions: int) -> None:
    split = split_space(SPACE, regions)
    weights = np.random.default_rng(regions).normal(size=(regions, 40))
    found = recommend(SPACE, FEATURES, split, weights, 0.5, 3)
    points = everywhere()
    values = (FEATURES(points) * weights[split.locate(points)]).sum(axis=1)
    assert found.value >= values.max() - 1e-9
    at = np.array([found.unit])
    assert found.value == pytest.approx(float(FEATURES(at)[0] @ weights[split.locate(at)[0]]))
    assert found.params == SPACE.from_unit(np.array(found.unit))
    assert (found.noise, found.releases) == (0.5, 3)


def test_noise_is_that_of_the_value() -> None:
    """|phi| = 1, so that independent noise in the weights is as large in the function."""
    rng, split = np.random.default_rng(2), split_space(SPACE, 1)
    phi = FEATURES(np.array([[0.3, 0.8]]))[0]
    values = [float(phi @ rng.normal(0.0, 0.7, (split.count, 40))[0]) for _ in range(4000)]
    # The sample deviation of n normal values has a relative error of 1 / sqrt(2 n) = 1.1 %.
    assert np.std(values) == pytest.approx(0.7, rel=5 * 0.011)


def test_categories_are_searched_exactly() -> None:
    space = Space({"kind": Categorical(["a", "b", "c"])})
    features = RandomFeatures.draw(kernel_named("se", 0.3), 30, 3, np.random.default_rng(1))
    points = space.snap(np.array([[0.1], [0.5], [0.9]]))
    weights = features(space.embed(points))[2][None, :]  # largest where phi points the same way
    assert recommend(space, features, split_space(space, 1), weights, 0.0, 1).params["kind"] == "c"


@pytest.mark.parametrize("weights", [np.zeros((1, 40)), np.full((4, 40), np.nan)])
def test_bad_weights_are_refused(weights: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must be finite and \(4, 40\)"):
        recommend(SPACE, FEATURES, split_space(SPACE, 4), weights, 0.0, 1)


def cube(dimension: int) -> Space:
    return Space({f"x{i}": Float(0.0, 1.0) for i in range(dimension)})


#: Four reals, a category, and an integer that climbs and one that is exchanged.
MIXED = Space(
    {f"x{i}": Float(0.0, 1.0) for i in range(4)}
    | {"kind": Categorical(["a", "b", "c"]), "width": Int(1, 500), "depth": Int(1, 8)}
)


@pytest.mark.parametrize(
    ("space", "regions"),
    [(cube(2), 4), (cube(7), 1), (cube(11), 1), (MIXED, 1)],
    ids=["2-d in four", "7-d", "11-d", "mixed"],
)
def test_noise_alone_is_rarely_clear(space: Space, regions: int) -> None:
    """Search releases without any signal.

    The level of one reach is Beta(5, 95), as the reach is the fifth largest of 99 maxima. So the
    number of clear runs is beta-binomial; none at all has a probability of .004. A reach without
    ascents made three of four runs clear in eleven dimensions, and half of them in seven.
    """
    split, runs, deviation = split_space(space, regions), 200, 2.0
    kernel = kernel_named("se", math.sqrt(space.dimension) / 4)
    features = RandomFeatures.draw(kernel, 200, space.embedding_dimension, np.random.default_rng(5))
    reach = deviation * noise_reach(space, features, split, np.random.default_rng(6))
    clear = 0
    for seed in range(runs):
        rng = np.random.default_rng((7, seed))
        path = Path(features, rng.normal(0.0, deviation, (regions, features.count)))
        row = argmax(path, space, rng, split)[None, :]
        clear += path.value(space.embed(row), split.locate(row))[0] > reach
    assert 1 <= clear <= betabinom.isf(1e-4, runs, 5, 95)


def test_a_recommendation_is_clear_from_its_reach_on() -> None:
    rng, split = np.random.default_rng(6), split_space(SPACE, 4)
    found = [recommend(SPACE, FEATURES, split, rng.normal(size=(4, 40)), 1.0, 1) for _ in range(9)]
    assert len({f.noise_reach for f in found}) == 1  # which does not depend on the releases
    assert all(f.clear == (f.value > f.noise_reach) for f in found)


def test_without_noise_every_recommendation_is_clear() -> None:
    weights = np.random.default_rng(3).normal(size=(1, 40))
    found = recommend(SPACE, FEATURES, split_space(SPACE, 1), weights, 0.0, 1)
    assert found.clear
    assert found.noise_reach == 0.0


def test_a_point_chosen_from_a_list_is_compared_with_the_noise_at_the_list() -> None:
    """A rule that picks among few points can follow fewer maxima of the noise."""
    rng, space = np.random.default_rng(4), cube(11)
    features = RandomFeatures.draw(kernel_named("se", 0.8), 200, 11, rng)
    few, split = quasi_random(20, 11, rng), split_space(space, 1)
    reach = noise_reach(space, features, split, np.random.default_rng(1), few)
    assert reach < noise_reach(space, features, split, np.random.default_rng(1)) - 1.0
    noise = rng.standard_normal((features.count, 200))
    clear = int(((features(few) @ noise).max(axis=0) > reach).sum())
    assert 1 <= clear <= betabinom.isf(1e-4, 200, 20, 380)
    weights = rng.standard_normal((1, features.count))
    found = recommend(space, features, split, weights, 1.0, 1, candidates=few, chosen=3)
    assert found.unit == few[3].tolist()
    again = noise_reach(space, features, split, np.random.default_rng(0), few)
    assert found.noise_reach == pytest.approx(again)


def test_a_signal_above_the_noise_is_clear() -> None:
    rng, split = np.random.default_rng(7), split_space(SPACE, 1)
    top = FEATURES(np.array([[0.4, 0.5]]))
    found = recommend(SPACE, FEATURES, split, 6.0 * top + 0.5 * rng.normal(size=(1, 40)), 0.5, 1)
    assert found.clear
    assert np.abs(np.array(found.unit) - [0.4, 0.5]).max() < 0.15
    assert found.value > found.noise_reach > 0


def test_the_reach_at_one_point_is_the_normal_quantile() -> None:
    space = Space.finite({"x": Float(0.0, 1.0)}, [{"x": 0.5}])
    features = RandomFeatures.draw(kernel_named("se", 0.3), 30, 1, np.random.default_rng(1))
    reach = noise_reach(space, features, split_space(space, 1), np.random.default_rng(2))
    # The 95 % quantile of 400 normals has a standard error of sqrt(.95 .05 / 400) / .103 = .106.
    assert reach == pytest.approx(1.645, abs=4 * 0.106)
