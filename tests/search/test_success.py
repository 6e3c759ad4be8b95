"""Surfaces times the probability of success: values by hand, and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from flwr_fbo.core.space import Float, Space
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.kernels import Matern
from flwr_fbo.models.prior_mean import PriorMeanProcess
from flwr_fbo.models.success import SuccessModel
from flwr_fbo.search.acquisition import argmax
from flwr_fbo.search.expected_improvement import Improvement
from flwr_fbo.search.success import CAUTION, Weighed, WeighedLogarithm

SQUARE = Space({"x": Float(0, 1), "y": Float(0, 1)})


def parts(seed=0):
    rng = np.random.default_rng(seed)
    gp = GaussianProcess(Matern(0.3, 1.2), 0.05, rng.random((6, 2)), rng.normal(size=6))
    return gp, SuccessModel.of("matern52", 2, gp.x, rng.random((5, 2)))


def surfaces(seed=0):
    gp, success = parts(seed)
    improvement = Improvement.over(PriorMeanProcess(gp))
    path = gp.sample_path(np.random.default_rng(seed))
    return WeighedLogarithm(improvement, success), Weighed(path, success, -2.0)


def test_values_are_the_sum_and_the_product():
    x = np.random.default_rng(1).random((7, 2))
    logarithm, product = surfaces()
    chance = np.exp(logarithm.success.logarithm(x))
    expected = logarithm.surface.value(x) + CAUTION * np.log(chance)
    np.testing.assert_allclose(logarithm.value(x), expected, rtol=1e-9)
    expected = (product.surface.value(x) + 2.0) * chance**CAUTION
    np.testing.assert_allclose(product.value(x), expected, rtol=1e-9)
    for surface in (logarithm, product):
        np.testing.assert_allclose(surface.scan(x), surface.value(x), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("number", [0, 1])
def test_gradients_are_those_of_finite_differences(number):
    surface, step = surfaces(2)[number], 1e-5
    x = np.random.default_rng(3).random((5, 2))
    value, gradient = surface.value_and_gradient(x)
    np.testing.assert_allclose(value, surface.value(x), rtol=1e-9)
    approximate, slope = surface.value_and_gradient_for_climbing(x)
    np.testing.assert_allclose(approximate, value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(slope, gradient, rtol=1e-3, atol=1e-3)
    for d, shift in enumerate(step * np.eye(2)):
        difference = surface.value(x + shift) - surface.value(x - shift)
        np.testing.assert_allclose(gradient[:, d], difference / (2 * step), rtol=1e-4, atol=1e-5)


def test_an_improvement_is_searched_near_the_incumbents_as_without_failures():
    logarithm, product = surfaces()
    assert logarithm.peaks_near_incumbents
    assert not product.peaks_near_incumbents


@pytest.mark.parametrize("number", [0, 1])
def test_the_maximum_moves_away_from_failures(number):
    surface, rng = surfaces(4)[number], np.random.default_rng(0)
    before = argmax(surface.surface, SQUARE, rng)
    again = SuccessModel.of("matern52", 2, np.zeros((0, 2)), np.repeat(before[None], 9, axis=0))
    with_failures = type(surface)(surface.surface, again, *([-2.0] if number else []))
    after = argmax(with_failures, SQUARE, rng)
    assert np.linalg.norm(after - before) > 0.1
