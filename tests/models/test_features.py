"""Random features against the exact kernel, and the posterior of their weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.models.features import RandomFeatures, WeightPosterior, feature_lengthscales
from flwr_fbo.models.kernels import SquaredExponential, kernel_named


def drawn(count=60, dimension=2, name="se", lengthscale=0.3, seed=0):
    kernel = kernel_named(name, lengthscale)
    return RandomFeatures.draw(kernel, count, dimension, np.random.default_rng(seed))


# ------------------------------------------------------------------ the map


@pytest.mark.parametrize("name", ["se", "matern32", "matern52"])
@pytest.mark.parametrize("count", [100, 400, 1600])
def test_features_approximate_the_kernel_as_theory_says(name, count):
    # 2 cos(sx + b) cos(sx' + b) has mean k and a variance of at most 1 (Rahimi and Recht), so a
    # mean of M of them is off by M^-1/2 (one standard deviation); the division by the norms adds
    # as much again at most. Over the 780 pairs the largest of such errors is about
    # sqrt(2 log 780) = 3.7 deviations, so all lie within 5 M^-1/2, and the root mean square
    # within 1.5 M^-1/2.
    x = np.random.default_rng(1).random((40, 2))
    features = drawn(count, name=name, seed=2)
    error = features(x) @ features(x).T - kernel_named(name, 0.3)(x, x)
    assert np.abs(error).max() < 5 * count**-0.5
    assert np.sqrt(np.mean(error**2)) < 1.5 * count**-0.5


@given(st.integers(2, 80), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_every_point_has_norm_one(count, dimension, seed):
    rng = np.random.default_rng(seed)
    features = RandomFeatures.draw(SquaredExponential(0.1), count, dimension, rng)
    rows = features(rng.random((5, dimension)))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-12)
    assert features.count == count


def test_the_map_is_the_papers():
    # FTS App. A: sqrt(2 / M) cos(s'x + b), then normalised
    features, x = drawn(7), np.array([[0.2, 0.9]])
    wave = [
        math.sqrt(2 / 7) * math.cos(float(s @ x[0]) + b)
        for s, b in zip(features.frequencies, features.phases, strict=True)
    ]
    np.testing.assert_allclose(features(x)[0], np.array(wave) / np.linalg.norm(wave), rtol=1e-13)
    assert np.all((features.phases >= 0) & (features.phases < 2 * np.pi))


@given(st.integers(3, 60), st.integers(1, 3), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_gradients_are_those_of_the_values(count, dimension, one_a_row, seed):
    rng = np.random.default_rng(seed)
    features = RandomFeatures.draw(SquaredExponential(0.4), count, dimension, rng)
    x = rng.random((4, dimension))
    weights = rng.standard_normal((4, count) if one_a_row else count)
    value, gradient = features.value_and_gradient(x, weights)
    np.testing.assert_allclose(value, (features(x) * weights).sum(axis=1), atol=1e-10)
    # central differences, O(h^2): compare where the norm of the waves is not tiny
    step = 1e-6
    for d in range(dimension):
        shift = step * np.eye(dimension)[d]
        upper = features.value_and_gradient(x + shift, weights)[0]
        lower = features.value_and_gradient(x - shift, weights)[0]
        slope = (upper - lower) / (2 * step)
        scale = np.abs(weights).max() * np.abs(features.frequencies).max() ** 3 + 1
        np.testing.assert_allclose(gradient[:, d], slope, rtol=1e-4, atol=1e-7 * scale)


@pytest.mark.parametrize("lengthscale", [0.03, 0.3])
def test_a_scan_in_single_precision_is_close(lengthscale):
    # s'x reaches some 4 / l + 2 pi: a relative 2^-24 of that is the error of an angle. Errors
    # of M features average out to that times |w| / norm ~ |w| / sqrt(M / 2).
    rng = np.random.default_rng(3)
    features, x = drawn(256, lengthscale=lengthscale), rng.random((300, 2))
    for weights in (rng.standard_normal(256), rng.standard_normal((300, 256))):
        exact = features.value_and_gradient(x, weights)[0]
        error = np.abs(features.scan(x, weights) - exact).max()
        assert error < 4 * 2**-24 * (2 * 4 / lengthscale + 2 * np.pi)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"\(M, E\) and `phases` \(M,\), but got \(3, 2\)"):
        RandomFeatures(np.zeros((3, 2)), np.zeros(2))


# ------------------------------------------------------------------ many length scales


def test_lengthscales_reach_from_long_to_what_the_features_can_tell_apart():
    # D = 2, M = 200: .36 sqrt(2), and 50 cells in the square, which are 50^-1/2 wide
    scales = feature_lengthscales(200, 2)
    assert scales.shape == (200, 1)
    np.testing.assert_allclose([scales.min(), scales.max()], [50**-0.5, 0.36 * 2**0.5])
    ratios = scales[1:] / scales[:-1]
    np.testing.assert_allclose(ratios, np.full((199, 1), ratios[0, 0]))
    # D = 1 has cells enough for anything: .03 is the shortest
    scales = feature_lengthscales(200, 1)
    np.testing.assert_allclose([scales.min(), scales.max()], [0.03, 0.36])


@given(st.integers(1, 500), st.integers(1, 20))
def test_lengthscales_are_never_beyond_the_longest(count, dimension):
    scales = feature_lengthscales(count, dimension)
    assert np.all(scales > 0)
    assert scales.max() <= 0.36 * dimension**0.5 * (1 + 1e-12)


@pytest.mark.parametrize("width", [0.03, 0.3])
def test_features_of_many_scales_represent_narrow_and_wide_functions(width):
    # From 60 exact scores of a bump the mean finds the bump whether narrow or wide. Features of
    # one wide scale see nothing of the narrow bump.
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 60)[:, None]
    y = np.exp(-0.5 * ((x[:, 0] - 0.37) / width) ** 2)
    kernel = kernel_named("se", feature_lengthscales(200, 1))
    many = RandomFeatures.draw(kernel, 200, 1, rng)
    fine = np.linspace(0, 1, 501)[:, None]
    shape = many(fine) @ WeightPosterior(many(x), y - y.mean(), 0.3).mean()
    assert abs(fine[shape.argmax(), 0] - 0.37) < width / 2
    wide = RandomFeatures.draw(kernel_named("se", 0.36), 200, 1, rng)
    blurred = wide(fine) @ WeightPosterior(wide(x), y - y.mean(), 0.3).mean()
    assert shape.max() > (2.0 if width < 0.1 else 0.9) * blurred.max()


# ------------------------------------------------------------------ the posterior of omega


def problem(count=12, features=20, noise=0.05, seed=4):
    rng = np.random.default_rng(seed)
    phi = drawn(features, seed=seed)
    x = rng.random((count, 2))
    return phi(x), rng.standard_normal(count), noise


@pytest.mark.parametrize("count", [1, 5, 20, 60])
def test_the_mean_is_equation_3_in_both_forms(count):
    design, scores, noise = problem(count)
    sigma = design.T @ design + noise * np.eye(20)
    expected = np.linalg.solve(sigma, design.T @ scores)
    for form in ("gram", "design", None):
        mean = WeightPosterior(design, scores, noise, form).mean()
        np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-11)


def test_the_two_covariances_are_one_matrix():
    # lambda Sigma^-1 (design) is what Matheron's rule gives (gram): I - Phi'(Phi Phi' + l)^-1 Phi
    design, _, noise = problem()
    sigma = design.T @ design + noise * np.eye(20)
    gram = design @ design.T + noise * np.eye(12)
    np.testing.assert_allclose(
        noise * np.linalg.inv(sigma),
        np.eye(20) - design.T @ np.linalg.solve(gram, design),
        atol=1e-12,
    )


class FixedNormals:
    """A generator whose normals are given, to see a sample as the linear map that it is."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def standard_normal(self, size):
        draw = self.draws.pop(0)
        assert len(draw) == size
        return draw


def test_samples_are_linear_maps_with_exactly_the_covariance():
    design, scores, noise = problem()
    t, m = design.shape
    sigma_inverse = np.linalg.inv(design.T @ design + noise * np.eye(m))

    posterior = WeightPosterior(design, scores, noise, "design")
    columns = [posterior.sample(FixedNormals(e)) - posterior.mean() for e in np.eye(m)]
    root = np.array(columns).T
    np.testing.assert_allclose(root @ root.T, noise * sigma_inverse, atol=1e-12)

    posterior = WeightPosterior(design, scores, noise, "gram")
    units = np.eye(m + t)
    columns = [posterior.sample(FixedNormals(e[:m], e[m:])) - posterior.mean() for e in units]
    root = np.array(columns).T  # (m, m + t)
    np.testing.assert_allclose(root @ root.T, noise * sigma_inverse, atol=1e-12)


@pytest.mark.parametrize("form", ["gram", "design"])
def test_samples_have_the_posteriors_mean_and_covariance(form):
    design, scores, noise = problem()
    posterior = WeightPosterior(design, scores, noise, form)
    rng, count = np.random.default_rng(6), 4000
    draws = np.array([posterior.sample(rng) for _ in range(count)])
    covariance = noise * np.linalg.inv(design.T @ design + noise * np.eye(20))
    deviation = np.sqrt(np.diag(covariance))
    # 20 means: within 4 standard errors each (chance 1e-3 together). 210 covariances: the
    # standard error of entry ij is at most sqrt(2 / n) s_i s_j; 5 of them (chance 1e-4).
    assert np.all(np.abs(draws.mean(axis=0) - posterior.mean()) < 4 * deviation / count**0.5)
    error = np.cov(draws.T) - covariance
    assert np.all(np.abs(error) < 5 * math.sqrt(2 / count) * np.outer(deviation, deviation))


def test_without_observations_it_is_the_prior():
    posterior = WeightPosterior(np.zeros((0, 3)), np.zeros(0), 0.1)
    assert posterior.mean().tolist() == [0, 0, 0]
    draws = np.array([posterior.sample(np.random.default_rng(s)) for s in range(2000)])
    np.testing.assert_allclose(np.cov(draws.T), np.eye(3), atol=5 * math.sqrt(2 / 2000))


def test_the_smaller_matrix_is_chosen():
    assert WeightPosterior(*problem(19)).form == "gram"
    assert WeightPosterior(*problem(20)).form == "design"


def test_many_repeated_points_with_tiny_noise_are_no_obstacle():
    design = np.repeat(drawn(20)(np.random.default_rng(0).random((1, 2))), 15, axis=0)
    scores = np.ones(15)
    for form in ("gram", "design"):
        posterior = WeightPosterior(design, scores, 1e-14, form)
        assert posterior.mean() @ design[0] == pytest.approx(1.0, abs=1e-4)
        assert np.isfinite(posterior.sample(np.random.default_rng(0))).all()


def test_noise_must_be_positive():
    with pytest.raises(ValueError, match=r"`noise` must be > 0, but got 0\.0"):
        WeightPosterior(np.zeros((1, 2)), np.zeros(1), 0.0)


@pytest.mark.parametrize("dimension", [1, 3, 12])  # the last has too many coordinates
def test_cached_features_are_the_same_to_the_last_bit(dimension):
    rng = np.random.default_rng(0)
    x = rng.random((20, dimension))
    features = RandomFeatures.draw(SquaredExponential(0.2), 60, dimension, rng)
    fresh = RandomFeatures(features.frequencies, features.phases)
    for count in (5, 6, 12, 12, 9, 0, 20):
        found = features(x[:count])
        expected = RandomFeatures(features.frequencies, features.phases)(x[:count])
        assert np.array_equal(found, expected)
        with pytest.raises(ValueError, match="read-only"):
            found[:] = np.nan  # not the caller's own
    x[3] += 0.1  # other rows than the cached ones
    assert np.array_equal(features(x), fresh(x))
    assert features(x[:0]).shape == (0, 60)


@pytest.mark.parametrize("dimension", [2, 12])
def test_a_cached_gram_matrix_is_the_same_to_the_last_bit(dimension):
    rng = np.random.default_rng(0)
    x = rng.random((20, dimension))
    features = RandomFeatures.draw(SquaredExponential(0.2), 60, dimension, rng)
    for count in (0, 5, 6, 12, 12, 9, 20):
        features(x[:count])  # features asked for alone change nothing
        found = features.gram(x[:count])
        expected = RandomFeatures(features.frequencies, features.phases).gram(x[:count])
        assert np.array_equal(found, expected)
        rows = features(x[:count])
        np.testing.assert_allclose(found, rows @ rows.T, rtol=1e-12, atol=1e-14)
    x[3] += 0.1  # other rows than the cached ones
    rows = features(x)
    np.testing.assert_allclose(features.gram(x), rows @ rows.T, rtol=1e-12, atol=1e-14)
    many = rng.random((600, dimension))  # more than are cached
    rows = features(many)
    np.testing.assert_allclose(features.gram(many), rows @ rows.T, rtol=1e-12, atol=1e-14)
    assert len(features.gram(x)) == 20


def test_a_posterior_at_points_is_that_of_their_features():
    rng = np.random.default_rng(3)
    features = RandomFeatures.draw(SquaredExponential(0.2), 30, 2, rng)
    for count in (0, 7, 29, 30, 50):  # by the Gram matrix, and from 30 on by the design
        x, y = rng.random((count, 2)), rng.standard_normal(count)
        posterior = WeightPosterior.at(features, x, y, 0.1)
        expected = WeightPosterior(features(x), y, 0.1)
        assert posterior.form == expected.form
        np.testing.assert_allclose(posterior.mean(), expected.mean(), rtol=1e-9, atol=1e-10)
        drawn, known = (p.sample(np.random.default_rng(1)) for p in (posterior, expected))
        np.testing.assert_allclose(drawn, known, rtol=1e-9, atol=1e-10)


def test_values_by_rows_and_in_single_precision():
    rng = np.random.default_rng(1)
    features = RandomFeatures.draw(SquaredExponential(0.2), 80, 2, rng)
    x, weights = rng.random((9, 2)), rng.standard_normal((9, 80))
    expected = (features(x) * weights).sum(axis=1)
    np.testing.assert_allclose(features.value(x, weights), expected, rtol=1e-12)
    value, gradient = features.value_and_gradient(x, weights)
    single, slope = features.value_and_gradient(x, weights, single_precision=True)
    # angles are rounded to 2^-23 of some ten, and a weight's length is about nine
    np.testing.assert_allclose(single, value, atol=1e-5)
    np.testing.assert_allclose(slope, gradient, atol=1e-4)
