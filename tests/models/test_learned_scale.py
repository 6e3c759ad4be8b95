"""The length scale that the first release shows, and the features that it makes count."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from flwr_fbo.models.features import RandomFeatures, WeightPosterior, feature_lengthscales
from flwr_fbo.models.kernels import SquaredExponential
from flwr_fbo.models.learned_scale import learn_lengthscale, weight_deviations

NOISE = 0.3


def mixed(count=200, dimension=1, seed=0):
    """The features of a run: many length scales."""
    kernel = SquaredExponential(feature_lengthscales(count, dimension))
    return RandomFeatures.draw(kernel, count, dimension, np.random.default_rng(seed))


@lru_cache
def root_of(lengthscale):
    """A grid of points, and a square root of the covariance of their values."""
    grid = np.linspace(0.0, 1.0, 200)[:, None]
    values, vectors = np.linalg.eigh(SquaredExponential(lengthscale)(grid, grid))
    return grid, vectors * np.sqrt(np.maximum(values, 0.0))


def released(features, lengthscale, *, agents=60, points=10, own_share=0.0, seed=1):
    """The mean of the vectors of agents whose scores are of one function, and partly their own."""
    rng = np.random.default_rng(seed)
    grid, root = root_of(lengthscale)
    common = root @ rng.standard_normal(len(grid))
    every = []
    for _ in range(agents):
        chosen = rng.integers(len(grid), size=points)
        own = root @ rng.standard_normal(len(grid))
        y = (1.0 - own_share) * common[chosen] + own_share * own[chosen]
        y = y + 0.3 * rng.standard_normal(points)
        y = (y - y.mean()) / y.std()
        every.append(WeightPosterior.at(features, grid[chosen], y, NOISE).mean())
    return np.mean(every, axis=0)


def learned(features, weights, *, deviation=0.0, agents=60, points=10):
    designs = np.random.default_rng(0).random((64, points, 1))
    return learn_lengthscale(features, designs, weights, deviation, NOISE, agents, 1)


@pytest.mark.parametrize("lengthscale", [0.03, 0.05])
@pytest.mark.parametrize("deviation", [0.0, 0.02])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_length_scale_of_narrow_functions_is_learned(lengthscale, deviation, seed):
    features = mixed()
    weights = released(features, lengthscale, seed=seed)
    weights = weights + deviation * np.random.default_rng(seed).standard_normal(features.count)
    found = learned(features, weights, deviation=deviation)
    # The length scales that are compared are a factor of 12 ** (1 / 7) = 1.43 apart. One draw of
    # 20 to 30 cells looks up to two of these steps narrower or wider than its kernel.
    assert found is not None
    assert abs(np.log(found / lengthscale)) <= 2.0 * np.log(1.43)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_learned_of_wide_functions_of_noise_or_of_what_noise_drowns(seed):
    features = mixed()
    wide, narrow = (released(features, scale, seed=seed) for scale in (0.3, 0.03))
    assert learned(features, wide) is None
    noise = 0.2 * np.random.default_rng(seed).standard_normal(features.count)
    assert learned(features, noise, deviation=0.2) is None
    assert learned(features, narrow + noise, deviation=0.2) is None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_narrow_functions_that_have_nothing_in_common_are_no_narrow_mean(seed):
    features = mixed()
    weights = released(features, 0.03, own_share=1.0, seed=seed)
    assert np.linalg.norm(weights) > 0.1  # what a mean of 60 vectors leaves of their own parts
    assert learned(features, weights) is None


def test_features_of_one_length_scale_cannot_tell():
    features = mixed(count=10)  # too few for short length scales: .36 to .4
    assert learned(features, released(features, 0.03)) is None


@pytest.mark.parametrize(("dimension", "lengthscale"), [(1, 0.03), (1, 0.1), (1, 0.36), (2, 0.2)])
def test_weighted_features_approximate_the_kernel_of_the_length_scale(dimension, lengthscale):
    count = 4000
    features = mixed(count, dimension)
    deviations = weight_deviations(features, lengthscale, dimension)
    assert np.mean(deviations**2) == pytest.approx(1.0)
    x = np.random.default_rng(1).random((40, dimension))
    rows = features(x) * deviations
    error = rows @ rows.T - SquaredExponential(lengthscale)(x, x)
    # 2 cos cos has a variance of at most 1; weights d^2 make that of a mean mean(d^4) / M.
    # Norms and the mean of the weights, by which they are divided, add as much again at most.
    assert np.sqrt(np.mean(error**2)) < 2.0 * np.sqrt(np.mean(deviations**4) / count)


def test_a_posterior_with_deviations_is_that_of_the_kernel_of_the_length_scale():
    features = mixed(4000)
    deviations = weight_deviations(features, 0.05, 1)
    rng = np.random.default_rng(2)
    x, y, new = rng.random((12, 1)), rng.standard_normal(12), rng.random((50, 1))
    posterior = WeightPosterior.at(features, x, y, NOISE, deviations)
    found = features(new) @ (deviations * posterior.mean())
    kernel = SquaredExponential(0.05)
    exact = kernel(new, x) @ np.linalg.solve(kernel(x, x) + NOISE * np.eye(12), y)
    # The errors of 12 covariances of .04 each, times weights of about 1.
    np.testing.assert_allclose(found, exact, atol=0.2)
    assert np.sqrt(np.mean((found - exact) ** 2)) < 0.06


def test_categories_have_more_coordinates_than_parameters():
    # One number and one category of three values: D = 2, and E = 4 coordinates.
    kernel = SquaredExponential(feature_lengthscales(3000, 2))
    features = RandomFeatures.draw(kernel, 3000, 4, np.random.default_rng(0))
    deviations = weight_deviations(features, 0.3, 2)
    x = 0.3 * np.random.default_rng(1).random((30, 4))
    rows = features(x) * deviations
    error = rows @ rows.T - SquaredExponential(0.3)(x, x)
    assert np.sqrt(np.mean(error**2)) < 2.0 * np.sqrt(np.mean(deviations**4) / 3000)


@pytest.mark.parametrize(("dimension", "narrow"), [(1, True), (2, True), (3, True), (4, False)])
def test_in_four_dimensions_nothing_narrow_is_learned(dimension, narrow, monkeypatch):
    features, compared = mixed(200, dimension), []

    def likelihood(mean, rows, own, seen, scale):
        compared.append(scale)
        return -1e3 * scale  # as narrow as can be

    monkeypatch.setattr("flwr_fbo.models.learned_scale._log_likelihood", likelihood)
    points = np.random.default_rng(0).random((4, 5, dimension))
    found = learn_lengthscale(features, points, np.ones(200), 0.0, NOISE, 10, dimension)
    assert (found is not None) == narrow
    assert bool(compared) == narrow
