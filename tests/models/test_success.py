"""The probability of success: by hand, against a regression done the long way, with gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from flwr_fbo.models.hyperparameters import prior_medians
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.models.success import FAILURE_LABEL, LABEL_NOISE, SuccessModel

#: Variance of the constant of the model's mean (models/prior_mean.py).
CONSTANT = 0.25


def model(successes=5, failures=4, dimension=2, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((successes, dimension)), rng.random((failures, dimension))
    return SuccessModel.of("matern52", dimension, *points), *points


def test_far_from_all_evaluations_a_success_is_as_likely_as_the_prior_says():
    # one failure, hundreds of length scales away: m = 2 * .25 / (1 + .25 + .1) of the constant
    far = SuccessModel.of("matern52", 1, np.zeros((0, 1)), np.array([[0.0]]))
    kept = CONSTANT / (1.0 + CONSTANT + LABEL_NOISE)
    mean, variance = FAILURE_LABEL * kept, 1.0 + CONSTANT - CONSTANT * kept
    expected = norm.cdf((1.0 + mean) / math.sqrt(variance + LABEL_NOISE))
    assert np.exp(far.logarithm(np.array([[1e3]]))) == pytest.approx([expected])


@pytest.mark.parametrize("counts", [(5, 4), (0, 3), (30, 30)])
def test_it_is_a_regression_on_labels(counts):
    success, good, bad = model(*counts)
    x, at = np.vstack([good, bad]), np.random.default_rng(1).random((7, 2))
    kernel = kernel_named("matern52", prior_medians(2).lengthscales[0])
    labels = np.repeat([0.0, -2.0], counts)
    inverse = np.linalg.inv(kernel(x, x) + CONSTANT + LABEL_NOISE * np.eye(len(x)))
    cross = kernel(at, x) + CONSTANT
    mean = cross @ inverse @ labels
    variance = 1.0 + CONSTANT - np.einsum("nt,ts,ns->n", cross, inverse, cross)
    expected = norm.logcdf((1.0 + mean) / np.sqrt(variance + LABEL_NOISE))
    np.testing.assert_allclose(success.logarithm(at), expected, rtol=1e-6)
    np.testing.assert_allclose(success.scan(at), expected, rtol=1e-3, atol=1e-3)


def test_failures_lower_it_where_they_are_and_successes_raise_it():
    rng = np.random.default_rng(3)
    good, bad = rng.uniform(0.0, 0.4, (6, 2)), rng.uniform(0.7, 1.0, (6, 2))
    success = SuccessModel.of("matern52", 2, good, bad)
    assert np.exp(success.logarithm(bad)).max() < 0.2
    assert np.exp(success.logarithm(good)).min() > 0.8
    certain = SuccessModel.of("matern52", 2, np.zeros((0, 2)), np.full((20, 2), 0.5))
    assert np.exp(certain.logarithm(np.full((1, 2), 0.5)))[0] < 0.01


def test_gradients_are_those_of_finite_differences():
    success, _, _ = model(8, 8)
    x, step = np.random.default_rng(5).random((6, 2)), 1e-5
    value, gradient = success.logarithm_and_gradient(x)
    np.testing.assert_allclose(value, success.logarithm(x), rtol=1e-12)
    for d, shift in enumerate(step * np.eye(2)):
        difference = success.logarithm(x + shift) - success.logarithm(x - shift)
        np.testing.assert_allclose(gradient[:, d], difference / (2 * step), rtol=1e-5, atol=1e-6)
