"""The process with a shared function as prior mean, against one dense Gaussian process."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.models import prior_mean
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.kernels import Matern, kernel_named
from flwr_fbo.models.prior_mean import PriorMeanProcess
from flwr_fbo.search.regions import Regions

from .prior_mean_harness import shared_function

HALVES = Regions((2, 1))


def process(rng, count, name="matern52", noise=0.05):
    x, y = rng.random((count, 2)), rng.normal(size=count)
    return GaussianProcess(kernel_named(name, np.array([0.3, 0.5]), 1.3), noise, x, y)


def dense(model, new, regions):
    """Mean and covariance at new points by one large kernel, k + h B h', and the mean h' b."""
    known, gp = model.regions, model.process
    count = 1 if model.shared is None else 2
    mean = np.array(prior_mean.PRIOR_MEAN[:count])
    spread = np.array(prior_mean.PRIOR_SPREAD[:count])

    def basis(x, where):
        columns = [np.ones(len(x))]
        if model.shared is not None:
            weights = model.shared.weights
            rows = weights if weights.ndim == 1 else weights[where]
            columns.append((model.shared.features(x) * rows).sum(axis=1))
        return np.stack(columns, axis=1)

    h, h_new = basis(gp.x, known), basis(new, regions)
    square = gp.kernel(gp.x, gp.x) + (h * spread**2) @ h.T + gp.noise * np.eye(len(gp.x))
    cross = gp.kernel(new, gp.x) + (h_new * spread**2) @ h.T
    weight = np.linalg.solve(square, cross.T).T
    prior = gp.kernel(new, new) + (h_new * spread**2) @ h_new.T
    return h_new @ mean + weight @ (gp.y - h @ mean), prior - weight @ cross.T


@pytest.mark.parametrize("kind", ["alone", "shared", "sub-regions"])
@given(count=st.integers(0, 15), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_the_posterior_is_the_dense_ones(kind, count, seed):
    rng = np.random.default_rng(seed)
    gp = process(rng, count, rng.choice(["se", "matern52"]), 10 ** rng.uniform(-3, 0))
    new = rng.random((6, 2))
    shared, here, there = None, None, None
    if kind == "shared":
        shared = shared_function(rng)
    elif kind == "sub-regions":
        shared, here, there = shared_function(rng, 2), HALVES.locate(gp.x), HALVES.locate(new)
    model = PriorMeanProcess(gp, shared, here)
    mean, variance = model.posterior(new, there)
    expected, covariance = dense(model, new, there)
    # With a shared function s the matrix is conditioned at worst like 15 (1.3 + 1 + s^2) / 1e-3,
    # which is 4e5, and 4e5 * 2^-52 = 1e-10.
    np.testing.assert_allclose(mean, expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("count", [0, 1, 12])
def test_the_posterior_is_the_dense_ones_for_any_prior(count, monkeypatch):
    monkeypatch.setattr(prior_mean, "PRIOR_MEAN", (0.3, 0.7))  # all four count, unlike 0 and 1
    monkeypatch.setattr(prior_mean, "PRIOR_SPREAD", (0.4, 2.5))
    rng = np.random.default_rng(count)
    model, new = PriorMeanProcess(process(rng, count), shared_function(rng)), rng.random((6, 2))
    expected, covariance = dense(model, new, None)
    mean, variance = model.posterior(new)
    np.testing.assert_allclose(mean, expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=1e-7, atol=1e-8)


def test_without_data_it_is_the_prior():
    rng = np.random.default_rng(0)
    gp, new = process(rng, 0), rng.random((5, 2))
    shared = shared_function(rng)
    values = shared.value(new)
    mean, variance = PriorMeanProcess(gp, shared).posterior(new)
    np.testing.assert_allclose(mean, values, rtol=1e-12)  # coefficients 0 and 1
    np.testing.assert_allclose(variance, 1.3 + 0.25 + values**2, rtol=1e-12)
    mean, variance = PriorMeanProcess(gp).posterior(new)
    assert mean.tolist() == [0.0] * 5
    np.testing.assert_allclose(variance, 1.55, rtol=1e-12)


@pytest.mark.parametrize("wrong", [1.0, 0.0, -1.0])
def test_scores_correct_the_shared_function(wrong):
    """Many scores take the coefficient to `wrong` where the truth is so many times shared."""
    rng = np.random.default_rng(1)
    shared, x = shared_function(rng), rng.random((60, 2))
    y = wrong * shared.value(x) + 0.2
    # A residual of variance 0.01: sixty scores determine the coefficients to about a tenth.
    gp = GaussianProcess(Matern(0.2, 0.01), 1e-3, x, y)
    assert PriorMeanProcess(gp, shared).coefficients == pytest.approx([0.2, wrong], abs=0.15)


@pytest.mark.parametrize("count", [0, 1, 8])
@pytest.mark.parametrize("kind", ["alone", "shared", "sub-regions"])
def test_gradients_are_those_of_finite_differences(kind, count):
    rng = np.random.default_rng(count)
    gp, x = process(rng, count), rng.uniform(0.05, 0.45, (4, 2))  # well within one sub-region
    regions = 2 if kind == "sub-regions" else 1
    shared = None if kind == "alone" else shared_function(rng, regions)
    here, there = (HALVES.locate(gp.x), HALVES.locate(x)) if regions == 2 else (None, None)
    model = PriorMeanProcess(gp, shared, here)
    path = model.sample_path(np.random.default_rng(7))
    step = 1e-5
    mean, variance, chain_rule = model.posterior_and_chain_rule(x, there)
    one, none = np.ones(len(x)), np.zeros(len(x))
    rise, spread = chain_rule(one, none), chain_rule(none, one)
    np.testing.assert_allclose(
        chain_rule(2.0 * one, -3.0 * one), 2.0 * rise - 3.0 * spread, atol=1e-9
    )
    for found, expected in zip((mean, variance), model.posterior(x, there), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)  # sums in another order
    for d, shift in enumerate(step * np.eye(2)):
        above, below = model.posterior(x + shift, there), model.posterior(x - shift, there)
        # third derivatives of up to about 1e3 and values of up to 10: step^2 1e3 / 6 = 2e-8, and
        # rounding 10 * 2^-52 cond / step with a condition of 1e2 is 2e-8
        for slope, high, low in zip((rise, spread), above, below, strict=True):
            np.testing.assert_allclose(slope[:, d], (high - low) / (2 * step), atol=1e-6)
        difference = path.value(x + shift, there) - path.value(x - shift, there)
        slope = path.value_and_gradient(x, there)[1]
        np.testing.assert_allclose(slope[:, d], difference / (2 * step), atol=1e-6)
    # scanned in single precision, 2^-24 of values of up to 10 or so
    np.testing.assert_allclose(path.scan(x, there), path.value(x, there), atol=1e-3)


def test_a_path_of_no_width_is_the_mean():
    rng = np.random.default_rng(3)
    model, new = PriorMeanProcess(process(rng, 7), shared_function(rng)), rng.random((9, 2))
    path = model.sample_path(rng, beta=0.0)
    np.testing.assert_allclose(path.value(new), model.posterior(new)[0], atol=1e-9)


@pytest.mark.parametrize(("count", "beta"), [(0, 1.0), (5, 1.0), (5, 2.0)])
def test_paths_have_the_posteriors_law(count, beta):
    rng = np.random.default_rng(11)
    model = PriorMeanProcess(process(rng, count), shared_function(rng))
    new = rng.random((3, 2))
    draws = np.array([model.sample_path(rng, beta).value(new) for _ in range(1500)])
    mean, covariance = dense(model, new, None)
    covariance = beta**2 * covariance
    variances = np.diag(covariance)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variances / 1500))
    # Five standard errors of a covariance of normals, and what 256 features leave on average.
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / 1500)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * error + 0.01 * beta**2)


@pytest.mark.parametrize("count", [1, 9, 17])
def test_what_it_fits_is_the_mean_at_its_points(count):
    rng = np.random.default_rng(count)
    gp = process(rng, count, noise=1e-3)
    model = PriorMeanProcess(gp, shared_function(rng))
    np.testing.assert_allclose(model.fitted, model.posterior(gp.x)[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("noise", "like", "single"), [(1e-1, 1, 1), (1e-3, 1, 1), (1e-3, 0, 0), (1e-6, 1, 0)]
)
def test_scanned_moments_lose_less_than_the_noise(noise, like, single):
    rng = np.random.default_rng(4)
    gp, new = process(rng, 60, noise=noise), rng.random((900, 2))
    if like:  # scores such as the process may give
        gp = gp.with_scores(np.sin(4 * gp.x).sum(axis=1))
    model = PriorMeanProcess(gp, shared_function(rng))
    mean, variance = model.posterior(new)
    scanned_mean, scanned_variance = model.scan_posterior(new)
    assert model.single_precision_suffices == single  # else only the shared function is
    assert np.abs(scanned_variance - variance).max() < max(noise, 1e-5)
    assert np.abs(scanned_mean - mean).max() < max(noise, 1e-5)


def test_an_imagined_score_leaves_the_mean_and_takes_the_variance() -> None:
    rng = np.random.default_rng(0)
    x, pending, elsewhere = rng.random((6, 2)), rng.random((2, 2)), rng.random((5, 2))
    process = GaussianProcess(kernel_named("matern52", 0.3), 1e-6, x, rng.standard_normal(6))
    before = PriorMeanProcess(process)
    after = before.with_fantasies(pending)
    np.testing.assert_allclose(
        after.posterior(elsewhere)[0], before.posterior(elsewhere)[0], atol=1e-8
    )
    assert np.all(after.posterior(pending)[1] < 1e-5)
    assert np.all(before.posterior(pending)[1] > 1e-3)
    assert before.with_fantasies(np.zeros((0, 2))) is before
