"""Kernels against closed forms and scikit-learn, their slopes, and their spectra."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.gaussian_process import kernels as sk

from flwr_fbo.models.kernels import (
    Matern,
    SquaredExponential,
    blocks,
    kernel_named,
    scaled_distance,
    scaled_distance_float32,
    squared_distance,
)

NAMES = ("se", "matern12", "matern32", "matern52")


def oracle(name, lengthscales, variance):
    nu = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    shape = sk.RBF(lengthscales) if name == "se" else sk.Matern(lengthscales, nu=nu[name])
    return sk.ConstantKernel(variance) * shape


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_kernels_equal_scikit_learns(name, dimension, seed):
    rng = np.random.default_rng(seed)
    lengthscales, variance = rng.uniform(0.05, 3.0, dimension), rng.uniform(0.1, 5.0)
    a, b = rng.random((5, dimension)), rng.random((7, dimension))
    found = kernel_named(name, lengthscales, variance)(a, b)
    # r^2 by expansion is off by about 2^-52 |x / l|^2 < 2^-52 1600; matern12 takes its root.
    np.testing.assert_allclose(found, oracle(name, lengthscales, variance)(a, b), atol=3e-6)
    if name != "matern12":
        np.testing.assert_allclose(
            found, oracle(name, lengthscales, variance)(a, b), rtol=1e-9, atol=1e-11
        )


def test_values_by_hand():
    a, b = np.array([[0.0, 0.0]]), np.array([[0.3, 0.4]])  # distance 1/2
    r = 0.5
    assert SquaredExponential()(a, b)[0, 0] == pytest.approx(math.exp(-0.125), abs=1e-15)
    assert Matern(nu=0.5)(a, b)[0, 0] == pytest.approx(math.exp(-r), abs=1e-15)
    s = math.sqrt(3) * r
    assert Matern(nu=1.5)(a, b)[0, 0] == pytest.approx((1 + s) * math.exp(-s), abs=1e-15)
    s = math.sqrt(5) * r
    expected = 2 * (1 + s + s * s / 3) * math.exp(-s)
    assert Matern(1.0, 2.0)(a, b)[0, 0] == pytest.approx(expected, abs=1e-15)
    # one length scale a coordinate
    assert SquaredExponential(np.array([0.3, 0.4]))(a, b)[0, 0] == pytest.approx(math.exp(-1))


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_those_of_the_profile(name):
    kernel = kernel_named(name)
    squared = np.array([1e-3, 0.01, 0.3, 1.0, 4.0, 20.0])
    step = 1e-6 * squared
    upper, lower = kernel.profile(squared + step)[0], kernel.profile(squared - step)[0]
    # central differences: error (h^2 / 6) f''' with h = 1e-6 x, and 2^-53 / h of rounding
    np.testing.assert_allclose(
        kernel.profile(squared)[1], (upper - lower) / (2 * step), rtol=1e-6, atol=1e-9
    )
    assert np.isfinite(kernel.profile(np.zeros(1))[1]).all()


@pytest.mark.parametrize("name", NAMES)
def test_at_zero_distance_is_the_variance_and_matrices_are_positive(name):
    rng = np.random.default_rng(5)
    x = rng.random((40, 3))
    square = kernel_named(name, 0.4, 2.5)(x, x)
    np.testing.assert_allclose(np.diag(square), 2.5, atol=1e-6)
    np.testing.assert_allclose(square, square.T, atol=1e-12)
    assert np.linalg.eigvalsh(square).min() > -1e-10


def test_distances_are_never_negative():
    x = np.full((3, 2), 1 / 3) + np.array([[0.0], [1e-9], [2e-9]])
    assert squared_distance(x, x, 0.005).min() >= 0.0


@pytest.mark.parametrize("name", ["se", "matern12", "matern32", "matern52"])
def test_spectra_have_the_right_law(name):
    # p(s) of the scaled frequency l s: normal for SE, Student t with 2 nu degrees for Matern.
    law = stats.norm() if name == "se" else stats.t(2 * kernel_named(name).nu)
    frequencies = kernel_named(name, np.array([0.5, 0.1])).frequencies(
        4000, 2, np.random.default_rng(1)
    )
    for column, lengthscale in enumerate((0.5, 0.1)):
        # 1% level of Kolmogorov and Smirnov's statistic: seeds are fixed, so it stays passed.
        assert stats.kstest(frequencies[:, column] * lengthscale, law.cdf).pvalue > 0.01


def test_a_matern_spectrum_is_joint_not_by_coordinate():
    # Coordinates share the chi: with independent t's |s|^2 would have other quantiles.
    frequencies = Matern(1.0).frequencies(4000, 3, np.random.default_rng(2))
    radius = (frequencies**2).sum(axis=1) / 3  # an F with 3 and 2 nu degrees of freedom
    assert stats.kstest(radius, stats.f(3, 5).cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SquaredExponential(0.0), "`lengthscales` must be > 0, but got 0.0"),
        (lambda: SquaredExponential(np.array([1.0, -1.0])), "`lengthscales` must be > 0"),
        (lambda: SquaredExponential(math.nan), "`lengthscales` must be > 0, but got nan"),
        (lambda: SquaredExponential(1.0, 0.0), "`variance` must be > 0, but got 0.0"),
        (lambda: Matern(nu=2.0), "`nu` must be 0.5, 1.5 or 2.5, but got 2.0"),
        (lambda: kernel_named("rbf"), "`kernel` must be one of se, matern12.*but got 'rbf'"),
    ],
)
def test_bad_parameters_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("name", ["se", "matern12", "matern32", "matern52"])
def test_a_correlation_alone_is_that_of_the_profile(name):
    kernel = kernel_named(name)
    squared = np.concatenate([[-1e-7 * (name != "se"), 0.0], np.geomspace(1e-6, 50, 30)])
    np.testing.assert_allclose(kernel.correlation(squared), kernel.profile(squared)[0], rtol=1e-14)
    single = kernel.correlation(squared.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, kernel.profile(squared)[0], atol=1e-6)


def test_distances_in_single_precision_are_good_to_the_last_bit_of_the_lengths():
    rng = np.random.default_rng(3)
    p, q = 5 * rng.random((30, 3)), 5 * rng.random((20, 3))
    lengths = (q * q).sum(axis=1)
    exact = ((p[:, None] - q[None]) ** 2).sum(-1)
    np.testing.assert_allclose(scaled_distance(p, q, lengths), exact, atol=1e-12)
    # five products and sums of numbers of up to 75
    np.testing.assert_allclose(
        scaled_distance_float32(p, q, lengths), exact, atol=5 * 75 * 2.0**-23
    )


def test_blocks_are_all_rows_in_order():
    for rows, columns in ((1000, 60), (3, 10**6), (5, 0), (0, 7)):
        parts = [np.arange(rows)[part] for part in blocks(rows, columns)]
        assert [i for part in parts for i in part] == list(range(rows))
        assert all(len(part) * columns <= 2**14 or len(part) == 1 for part in parts)
