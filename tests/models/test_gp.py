"""The exact posterior against scikit-learn, growth against building anew, and sampled paths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from flwr_fbo.models import gp as gp_module
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import BLOCK, GaussianProcess, Path
from flwr_fbo.models.kernels import Matern, SquaredExponential, kernel_named
from flwr_fbo.models.linalg import JITTER, FactorisationError, append_row, factorise

# ------------------------------------------------------------------ factors


def test_a_factor_is_the_lower_root():
    a = np.random.default_rng(0).normal(size=(6, 6))
    square = a @ a.T + np.eye(6)
    factor = factorise(square)
    np.testing.assert_allclose(factor @ factor.T, square, rtol=1e-12)
    assert np.array_equal(factor, np.tril(factor))
    assert factorise(np.zeros((0, 0))).shape == (0, 0)


def test_an_appended_row_gives_the_factor_of_one_more_row():
    a = np.random.default_rng(1).normal(size=(6, 6))
    square = a @ a.T + np.eye(6)
    factor = np.zeros((0, 0))
    for n in range(6):
        factor = append_row(factor, square[:n, n], square[n, n])
    np.testing.assert_allclose(factor, factorise(square), rtol=1e-10)


def test_repeated_points_are_repaired_by_the_least_jitter_that_works():
    x = np.repeat(np.random.default_rng(2).random((5, 2)), 6, axis=0)
    square = SquaredExponential(0.5)(x, x)  # of rank 5
    factor = factorise(square)
    # nothing but at most the largest jitter was added, and to the diagonal alone
    added = factor @ factor.T - square
    assert 0 <= np.diag(added).max() <= JITTER[-1] * 1.001
    np.testing.assert_allclose(added - np.diag(np.diag(added)), 0.0, atol=1e-14)


def test_a_row_that_adds_nothing_is_not_appended():
    factor = factorise(np.array([[1.0 + 1e-15]]))
    assert append_row(factor, np.array([1.0]), 1.0) is None


def test_what_cannot_be_repaired_is_refused_not_replaced():
    with pytest.raises(FactorisationError, match="must be finite, but has NaN or infinity"):
        factorise(np.array([[1.0, np.nan], [np.nan, 1.0]]))
    with pytest.raises(FactorisationError, match="must be finite"):
        factorise(np.array([[np.inf]]))
    with pytest.raises(FactorisationError, match=r"of 2 points is not positive definite.*1e-06"):
        factorise(np.array([[1.0, 2.0], [2.0, 1.0]]))


# ------------------------------------------------------------------ the posterior


def sklearn_gp(name, lengthscales, variance, noise, x, y):
    nu = {"matern32": 1.5, "matern52": 2.5}
    shape = sk.RBF(lengthscales) if name == "se" else sk.Matern(lengthscales, nu=nu[name])
    kernel = sk.ConstantKernel(variance) * shape
    return GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(x, y)


@pytest.mark.parametrize("name", ["se", "matern32", "matern52"])
@given(st.integers(1, 30), st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_the_posterior_equals_scikit_learns(name, count, dimension, seed):
    rng = np.random.default_rng(seed)
    x, y, new = rng.random((count, dimension)), rng.normal(size=count), rng.random((5, dimension))
    lengthscales, variance = rng.uniform(0.1, 1.0, dimension), rng.uniform(0.5, 2.0)
    noise = 10 ** rng.uniform(-4, 0)
    oracle = sklearn_gp(name, lengthscales, variance, noise, x, y)
    mean, deviation = oracle.predict(new, return_std=True)
    found = GaussianProcess(kernel_named(name, lengthscales, variance), noise, x, y)
    # conditioned at worst like 30 variance / noise = 6e5, so 1e-9 leaves room for rounding
    np.testing.assert_allclose(found.posterior(new)[0], mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(found.posterior(new)[1], deviation**2, rtol=1e-6, atol=1e-8)


def test_one_observation_by_hand():
    # k = exp(-1/2) at a distance of one length scale, y = 2, noise 1/4: weights k / 1.25
    gp = GaussianProcess(SquaredExponential(0.5), 0.25, np.array([[0.0]]), np.array([2.0]))
    mean, variance = gp.posterior(np.array([[0.5]]))
    assert mean[0] == pytest.approx(math.exp(-0.5) * 2 / 1.25)
    assert variance[0] == pytest.approx(1 - math.exp(-1) / 1.25)
    assert gp.information_gain() == pytest.approx(0.5 * math.log(1 + 1 / 0.25))


def test_without_observations_it_is_the_prior():
    gp = GaussianProcess(Matern(0.3, 2.0), 0.1, np.zeros((0, 2)), np.zeros(0))
    mean, variance = gp.posterior(np.random.default_rng(0).random((4, 2)))
    assert mean.tolist() == [0] * 4
    assert variance.tolist() == [2.0] * 4
    assert gp.information_gain() == 0.0


def test_the_information_gain_is_half_a_log_determinant():
    rng = np.random.default_rng(3)
    x, kernel = rng.random((15, 2)), Matern(0.4, 1.5)
    gp = GaussianProcess(kernel, 0.2, x, rng.normal(size=15))
    expected = 0.5 * np.linalg.slogdet(np.eye(15) + kernel(x, x) / 0.2)[1]
    assert gp.information_gain() == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_growing_equals_building_anew_to_the_last_bit(batches, seed):
    # Not only up to rounding: an agent that was restored must propose the same point.
    rng = np.random.default_rng(seed)
    x = rng.random((sum(batches), 2))
    x[rng.random(len(x)) < 0.2] = x[0]  # some repeated points, with noise too small for them
    kernel, noise = Matern(np.array([0.3, 0.6]), 1.3), 10 ** rng.uniform(-13, -2)
    grown = GaussianProcess(kernel, noise, np.zeros((0, 2)), np.zeros(0))
    for count in np.cumsum(batches):
        y = rng.normal(size=count)  # standardised anew each time, so all may change
        if rng.random() < 0.7:
            grown.sample_path(np.random.default_rng(0))  # forces the factor, or does not
        grown = grown.with_data(x[:count], y)
        fresh = GaussianProcess(kernel, noise, x[:count], y)
        assert np.array_equal(grown.covariance, fresh.covariance)
        assert np.array_equal(grown._factor, fresh._factor)
        new = rng.random((3, 2))
        for a, b in zip(grown.posterior(new), fresh.posterior(new), strict=True):
            assert np.array_equal(a, b)
    covariance = kernel(x, x) + noise * np.eye(len(x))
    np.testing.assert_allclose(grown.covariance, covariance, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(grown._factor @ grown._factor.T, covariance, atol=2e-6)


def test_growing_adds_rows_and_does_not_factorise_again(monkeypatch):
    rng = np.random.default_rng(4)
    x = rng.random((3 * BLOCK, 2))
    gp = GaussianProcess(Matern(0.3), 0.01, x[: 2 * BLOCK], rng.normal(size=2 * BLOCK))
    gp.posterior(x)

    def never(_):
        raise AssertionError("factorised again")

    monkeypatch.setattr(gp_module, "factorise", never)
    for count in range(2 * BLOCK + 1, 3 * BLOCK):
        gp = gp.with_data(x[:count], rng.normal(size=count))
        gp.posterior(x)


def test_other_first_rows_are_noticed():
    rng = np.random.default_rng(5)
    x, y = rng.random((6, 1)), rng.normal(size=6)
    gp = GaussianProcess(SquaredExponential(0.3), 0.1, x[:3], y[:3])
    gp.posterior(x)
    other = gp.with_data(x[::-1], y)
    fresh = GaussianProcess(SquaredExponential(0.3), 0.1, x[::-1], y)
    assert np.array_equal(other.posterior(x)[0], fresh.posterior(x)[0])


def test_repeated_points_with_tiny_noise_do_not_stop_it():
    x = np.repeat(np.random.default_rng(6).random((4, 2)), 10, axis=0)
    y = np.repeat([1.0, -1.0, 0.5, 2.0], 10)
    gp = GaussianProcess(SquaredExponential(0.2), 1e-15, x, y)
    mean, variance = gp.posterior(x)
    np.testing.assert_allclose(mean, y, atol=1e-4)
    assert np.all(variance < 1e-4)
    path = gp.sample_path(np.random.default_rng(0))
    np.testing.assert_allclose(path.value(x), y, atol=1e-2)


@pytest.mark.parametrize(
    ("noise", "x", "y", "says"),
    [
        (0.0, np.zeros((1, 2)), np.zeros(1), "`noise` must be > 0, but got 0.0"),
        (math.nan, np.zeros((1, 2)), np.zeros(1), "`noise` must be > 0, but got nan"),
        (0.1, np.zeros(3), np.zeros(3), r"\(t, E\) and `y` \(t,\), but got \(3,\) and \(3,\)"),
        (0.1, np.zeros((3, 1)), np.zeros(2), r"but got \(3, 1\) and \(2,\)"),
    ],
)
def test_bad_data_are_refused(noise, x, y, says):
    with pytest.raises(ValueError, match=says):
        GaussianProcess(SquaredExponential(), noise, x, y)


def test_nan_inputs_are_refused():
    x = np.array([[0.1], [np.nan]])
    gp = GaussianProcess(SquaredExponential(), 0.1, x, np.zeros(2))
    with pytest.raises(FactorisationError, match="NaN"):
        gp.sample_path(np.random.default_rng(0))


# ------------------------------------------------------------------ sampled paths


def observed(count=10, seed=7, name="se", noise=0.05, variance=1.7):
    rng = np.random.default_rng(seed)
    x = rng.random((count, 2))
    kernel = kernel_named(name, np.array([0.3, 0.5]), variance)
    return GaussianProcess(kernel, noise, x, rng.normal(size=count)), rng.random((6, 2))


def exact_moments(gp, new):
    k, cross, own = gp.kernel(gp.x, gp.x), gp.kernel(new, gp.x), gp.kernel(new, new)
    solve = np.linalg.solve(k + gp.noise * np.eye(len(gp.y)), np.column_stack([gp.y, cross.T]))
    return cross @ solve[:, 0], own - cross @ solve[:, 1:]


@pytest.mark.parametrize("beta", [1.0, 2.5])
@pytest.mark.parametrize("name", ["se", "matern52"])
@pytest.mark.parametrize("count", [0, 10])
def test_paths_have_the_posteriors_mean_and_beta_squared_its_covariance(name, beta, count):
    gp, new = observed(count, name=name)
    draws, features = 2500, 512
    rng = np.random.default_rng(8)
    values = np.array([gp.sample_path(rng, beta, features).value(new) for _ in range(draws)])
    mean, covariance = exact_moments(gp, new) if count else (np.zeros(6), gp.kernel(new, new))
    # Mean: standard error beta s / sqrt(n); 4 of them at each of 6 points. A path's features
    # are drawn anew, so over paths the covariance of the prior part is the expectation of
    # phi'phi', which the normalisation of the features biases by O(1/M), below 0.02 for M = 512.
    deviation = beta * np.sqrt(gp.kernel.variance)
    assert np.abs(values.mean(axis=0) - mean).max() < 4 * deviation / math.sqrt(draws)
    # Covariance: 5 standard errors sqrt(2 / n) of a variance, plus that bias.
    tolerance = (5 * math.sqrt(2 / draws) + 0.02) * deviation**2
    np.testing.assert_allclose(np.cov(values.T), beta**2 * covariance, atol=tolerance)


def test_a_path_given_its_features_has_exactly_the_mean_of_the_posterior():
    # With zero prior weights and noise what is left is the mean: the data part has no error.
    class Zeros:
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def standard_normal(self, size):
            return self.rng.standard_normal(size) if isinstance(size, tuple) else np.zeros(size)

        def uniform(self, *args):
            return self.rng.uniform(*args)

    gp, new = observed()
    path = gp.sample_path(Zeros())
    np.testing.assert_allclose(path.value(new), gp.posterior(new)[0], rtol=1e-12)


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_with_many_points_paths_are_drawn_in_weight_space(monkeypatch, beta):
    monkeypatch.setattr(gp_module, "WEIGHT_SPACE_FROM", 10)
    gp, new = observed(10, noise=0.2)
    draws, features = 600, 512
    rng = np.random.default_rng(9)
    paths = [gp.sample_path(rng, beta, features) for _ in range(draws)]
    assert all(path.kernel is None for path in paths)
    values = np.array([path.value(new) for path in paths])
    mean, covariance = exact_moments(gp, new)
    # Here the mean has the features' error too: M^-1/2 = 0.044 in each kernel value, amplified
    # by the data; it differs from path to path and averages out to O(1/M), say 0.03. The same
    # holds for the covariance, to which the spread of the means over features adds 0.05.
    deviation = beta * np.sqrt(gp.kernel.variance)
    assert np.abs(values.mean(axis=0) - mean).max() < 4 * deviation / math.sqrt(draws) + 0.03
    tolerance = 5 * math.sqrt(2 / draws) * deviation**2 + 0.05
    np.testing.assert_allclose(np.cov(values.T), beta**2 * covariance, atol=tolerance)


@pytest.mark.parametrize("name", ["se", "matern32", "matern52"])
@pytest.mark.parametrize("count", [0, 12])
def test_gradients_and_scans_are_those_of_the_value(name, count):
    gp, new = observed(count, name=name)
    path = gp.sample_path(np.random.default_rng(10))
    value, gradient = path.value_and_gradient(new)
    # the same sums in another order: some hundred numbers of some tens
    np.testing.assert_allclose(path.value(new), value, rtol=0, atol=1e-11)
    np.testing.assert_allclose(path.scan(new), value, atol=1e-3)
    # cosines to 2^-24 or so, some tens of them: to climb by, position follows from the gradient
    approximate, slope = path.value_and_gradient_for_climbing(new)
    np.testing.assert_allclose(approximate, value, atol=2e-5)
    np.testing.assert_allclose(slope, gradient, atol=2e-4)
    step = 1e-6
    for d in range(2):
        shift = step * np.eye(2)[d]
        slope = (path.value(new + shift) - path.value(new - shift)) / (2 * step)
        # rounding 2^-52 |c| / h with |c| of some tens, truncation h^2 f''' / 6
        np.testing.assert_allclose(gradient[:, d], slope, rtol=1e-5, atol=1e-5)


def test_at_the_data_gradients_are_finite():
    gp, _ = observed(12, name="matern32")
    path = gp.sample_path(np.random.default_rng(11))
    value, gradient = path.value_and_gradient(gp.x)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()


def test_one_function_a_sub_region_is_evaluated_by_region():
    rng = np.random.default_rng(12)
    features = RandomFeatures.draw(SquaredExponential(0.3), 40, 2, rng)
    weights, x = rng.standard_normal((3, 40)), rng.random((8, 2))
    regions = np.array([0, 1, 2, 0, 1, 2, 2, 0])
    joint = Path(features, weights)
    for i in range(3):
        mine, single = regions == i, Path(features, weights[i])
        np.testing.assert_array_equal(joint.value(x[mine], regions[mine]), single.value(x[mine]))
        value, gradient = joint.value_and_gradient(x, regions)
        np.testing.assert_allclose(value[mine], single.value(x[mine]), rtol=1e-12)
        np.testing.assert_allclose(gradient[mine], single.value_and_gradient(x[mine])[1])
        np.testing.assert_allclose(joint.scan(x, regions)[mine], value[mine], atol=1e-3)
    with pytest.raises(ValueError, match="needs each row's sub-region"):
        joint.value(x)
