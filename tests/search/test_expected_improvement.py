"""Expected improvement against high precision, finite differences and random draws."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.kernels import Matern
from flwr_fbo.models.prior_mean import PriorMeanProcess
from flwr_fbo.search.expected_improvement import FAR, Improvement, log_gain
from tests.models.prior_mean_harness import shared_function


def exact(z):
    """log h, phi / h and Phi / h; 1 + z R is a difference that loses 2 log10 |z| digits."""
    with mpmath.workdps(60):
        z = mpmath.mpf(z)
        density = mpmath.exp(-z * z / 2) / mpmath.sqrt(2 * mpmath.pi)
        tail = mpmath.erfc(-z / mpmath.sqrt(2)) / 2
        gain = z * tail + density
        return float(mpmath.log(gain)), float(density / gain), float(tail / gain)


@given(st.one_of(st.floats(-1e6, 40.0), st.floats(-120.0, 10.0)))
@example(-1e6)
@example(np.nextafter(FAR, -np.inf))
@example(FAR)
@example(np.nextafter(FAR, 0.0))
@example(-1.0)
@example(0.0)
@example(6.0)
@example(np.nextafter(6.0, 7.0))
@example(40.0)
@settings(max_examples=300)
def test_the_log_of_the_gain_to_the_last_tail(z):
    found = [float(part[0]) for part in log_gain(np.array([z]))]
    logarithm, by_density, by_tail = exact(z)
    # What is left out: 15 / z^4 of the series below FAR; 1 + z R loses z^2 2^-52, a few times,
    # above it; e^-18 / 36 of h = z for z > 6, and there phi / h and 1 - Phi are below 1.1e-9.
    if z < FAR:
        error = 16.0 / z**4 + 1e-15
    elif z <= 6.0:
        error = 8 * (1.0 + z * z) * 2.0**-52
    else:
        error = 1.1e-9
    assert error < 2e-7  # of its logarithm, which is nothing where one climbs it
    assert found[0] == pytest.approx(logarithm, rel=4e-16, abs=2 * error)
    assert found[1] == pytest.approx(by_density, rel=2 * error, abs=1.1e-9 * (z > 6.0))
    assert found[2] == pytest.approx(by_tail, rel=2 * error)


def test_a_gain_that_is_certain_overflows_nowhere():
    # Phi / phi passes the largest double near z = 37.65: a warning is an error here
    z = np.linspace(37.6, 37.7, 3001)
    logarithm, by_density, by_tail = log_gain(z)
    np.testing.assert_allclose(logarithm, np.log(z), rtol=1e-14)
    assert not by_density.any()
    np.testing.assert_allclose(by_tail, 1 / z, rtol=1e-14)


def test_the_log_of_the_gain_rises_everywhere():
    z = np.concatenate([-np.geomspace(1e6, 1e-3, 4000), np.linspace(0.0, 40.0, 4000)])
    assert np.all(np.diff(log_gain(z)[0]) > 0)


def improvement(count, seed, shared=True):
    rng = np.random.default_rng(seed)
    x, y = rng.random((count, 2)), rng.normal(size=count)
    gp = GaussianProcess(Matern(0.3, 1.2), 0.05, x, y)
    return Improvement.over(PriorMeanProcess(gp, shared_function(rng) if shared else None))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_gradients_are_those_of_finite_differences(count, shared):
    surface, step = improvement(count, 2, shared), 1e-5
    x = np.random.default_rng(3).random((5, 2))
    value, gradient = surface.value_and_gradient(x)
    np.testing.assert_allclose(value, surface.value(x), rtol=1e-12)
    # A scan is in single precision: of a mean and a deviation of .2 or more it loses 1e-6, and
    # the log of the gain is about -z^2 / 2, so that it loses some 1e-5 of itself.
    np.testing.assert_allclose(value, surface.scan(x), rtol=2e-5, atol=1e-4)
    # To climb by, the shared function alone is in single precision, to a share of 1e-6.
    approximate, slope = surface.value_and_gradient_for_climbing(x)
    np.testing.assert_allclose(approximate, value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slope, gradient, rtol=1e-4, atol=1e-3)
    for d, shift in enumerate(step * np.eye(2)):
        difference = surface.value(x + shift) - surface.value(x - shift)
        # as for the posterior's own gradients
        np.testing.assert_allclose(gradient[:, d], difference / (2 * step), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [0, 6])
def test_the_value_is_what_draws_gain_on_average(count):
    # over a value that draws do exceed, or none of them would gain
    surface, rng = Improvement(improvement(count, 4).model, 0.3), np.random.default_rng(5)
    x = rng.random((4, 2))
    mean, variance = surface.model.posterior(x)
    draws = rng.normal(mean, np.sqrt(variance), (200_000, 4))
    gains = np.maximum(draws - surface.best, 0.0)
    error = gains.std(axis=0) / np.sqrt(len(gains))
    assert np.all(np.abs(np.exp(surface.value(x)) - gains.mean(axis=0)) < 5 * error)


def test_it_is_over_the_best_mean_of_its_own_points():
    surface = improvement(6, 6)
    mean, _ = surface.model.posterior(surface.model.process.x)
    assert surface.best == pytest.approx(mean.max(), rel=1e-9)
    assert improvement(0, 6).best == 0.0
