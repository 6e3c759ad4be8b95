"""The marginal likelihood against scipy, its gradient, and the results of fits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from flwr_fbo.core.space import Categorical, Float, Space
from flwr_fbo.models import hyperparameters as hp
from flwr_fbo.models.hyperparameters import (
    Hyperparameters,
    count_at_last_fit,
    fit,
    log_marginal_likelihood,
    pair_distances,
    parameter_of_column,
    prior_medians,
)
from flwr_fbo.models.kernels import kernel_named


def cube(dimension):
    return Space({f"x{d}": Float(0, 1) for d in range(dimension)})


def squared_by_parameter(x):
    return pair_distances(x, np.arange(x.shape[1]))


def test_pairs_are_those_below_the_diagonal():
    x = np.random.default_rng(0).random((5, 3))
    whole = (x[:, None, :] - x[None, :, :]) ** 2
    lower = np.tril_indices(5, -1)
    parameters = np.array([0, 1, 1])  # the last two columns are one parameter's
    expected = np.stack([whole[..., 0][lower], whole[..., 1:].sum(-1)[lower]])
    np.testing.assert_allclose(pair_distances(x, parameters), expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["se", "matern32", "matern52"])
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_the_likelihood_is_scipys_and_the_gradient_its_slope(name, count, dimension, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.random((count, dimension)), rng.normal(size=count)
    squared, kernel = squared_by_parameter(x), kernel_named(name)
    low = np.log([0.1] * dimension + [0.2, 1e-3])
    theta = low + rng.random((4, dimension + 2)) * 3
    value, gradient = log_marginal_likelihood(kernel, squared, y, theta)
    for row, (found, slope) in enumerate(zip(value, gradient, strict=True)):
        scales = np.exp(theta[row])
        exact = kernel_named(name, scales[:dimension], scales[-2])
        covariance = exact(x, x) + scales[-1] * np.eye(count)
        expected = stats.multivariate_normal(np.zeros(count), covariance).logpdf(y)
        # 1e-10 of the variance is added to the diagonal; it changes the value by less than
        # n y'K^-2 y 1e-10 < 1e-3 relative at the least noise
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-4)
        numeric = optimize.approx_fprime(
            theta[row],
            lambda t: log_marginal_likelihood(kernel, squared, y, t[None])[0][0],
            1e-6,
        )
        np.testing.assert_allclose(slope, numeric, rtol=1e-3, atol=1e-3 * (1 + abs(found)))


def posterior_density(name, space, x, y, found, lengthscale=None, noise=None):
    """Return the log posterior that a fit maximises, computed independently."""
    kernel = found.kernel(name, space)
    covariance = kernel(x, x) + found.noise * np.eye(len(y))
    start = prior_medians(space.dimension, lengthscale, noise)
    away = [math.log(a / b) / 1.2 for a, b in zip(found.lengthscales, start.lengthscales,
                                                  strict=True)]  # fmt: skip
    away += [math.log(found.variance / start.variance) / 0.7]
    away += [math.log(found.noise / start.noise) / 1.5]
    likelihood = stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
    return likelihood - 0.5 * sum(a * a for a in away)


def sampled(name="se", lengthscales=(0.15, 0.6), variance=1.0, noise=0.01, count=80, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((count, len(lengthscales)))
    kernel = kernel_named(name, np.array(lengthscales), variance)
    covariance = kernel(x, x) + noise * np.eye(count)
    return x, np.linalg.cholesky(covariance) @ rng.standard_normal(count)


def test_a_fit_recovers_known_parameters_as_well_as_theory_allows():
    # The tolerance is the information's: 4 standard deviations of theta from the curvature of
    # the log posterior at the truth, here by differences of its gradient.
    x, y = sampled()
    space, truth = cube(2), np.log([0.15, 0.6, 1.0, 0.01])
    squared, kernel = squared_by_parameter(x), kernel_named("se")

    def slope(theta):
        start, spread = prior_medians(2), np.array([1.2, 1.2, 0.7, 1.5])
        centre = np.log([*start.lengthscales, start.variance, start.noise])
        gradient = log_marginal_likelihood(kernel, squared, y, theta[None])[1][0]
        return gradient - (theta - centre) / spread**2

    found = fit("se", space, x, y, np.random.default_rng(1))
    theta = np.log([*found.lengthscales, found.variance, found.noise])
    curvature = np.array(
        [(slope(theta + 1e-4 * e) - slope(theta - 1e-4 * e)) / 2e-4 for e in np.eye(4)]
    )
    deviation = np.sqrt(np.diag(np.linalg.inv(-curvature)))
    assert np.all(deviation < 0.5)  # the data do say something of every parameter
    assert np.all(np.abs(theta - truth) < 4 * deviation)


@pytest.mark.parametrize("name", ["se", "matern32", "matern52"])
@pytest.mark.parametrize("count", [1, 6, 40])
def test_a_fit_is_a_maximum_no_worse_than_its_start_or_scipys(name, count):
    x, y = sampled(name, count=count, seed=count)
    space = cube(2)
    found = fit(name, space, x, y, np.random.default_rng(2))
    reached = posterior_density(name, space, x, y, found)
    assert reached >= posterior_density(name, space, x, y, prior_medians(2)) - 1e-9

    def loss(theta):
        scales = np.exp(theta)
        other = Hyperparameters((scales[0], scales[1]), scales[2], scales[3])
        return -posterior_density(name, space, x, y, other)

    bounds = [hp.LENGTHSCALE_BOUNDS] * 2 + [hp.VARIANCE_BOUNDS, hp.NOISE_BOUNDS]
    start = np.log([*prior_medians(2).lengthscales, 1.0, hp.NOISE[0]])
    best = optimize.minimize(loss, start, method="L-BFGS-B", bounds=np.log(bounds))
    assert reached > -best.fun - 0.05  # a twentieth of a nat decides nothing


def test_restarts_find_what_the_median_start_misses():
    # More restarts never find less: the first start is the same and the best is kept.
    space = cube(1)
    x, y = sampled(lengthscales=(0.02,), count=40, seed=5)
    reached = [
        posterior_density(
            "se", space, x, y, fit("se", space, x, y, np.random.default_rng(3), restarts=count)
        )
        for count in (1, 4)
    ]
    assert reached[1] >= reached[0] - 1e-9


def test_with_many_observations_a_fit_starts_from_the_one_before():
    # A fit with one start finds as much as a fit with several, but for one in a hundred: more than
    # 3 of 40 would differ with a probability of 1e-3.
    lost = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        lengthscales = tuple(np.exp(rng.normal(np.log(0.5), 0.8, 2)))
        x, y = sampled("matern52", lengthscales, noise=10 ** rng.uniform(-4, -1), seed=seed)
        x, y = x[:60], y[:60]
        given = "matern52", cube(2), x, y
        before = fit("matern52", cube(2), x[:50], y[:50], np.random.default_rng(seed))
        alone = fit(*given, np.random.default_rng(seed))
        found = fit(*given, np.random.default_rng(seed), before=before)
        density = [posterior_density("matern52", cube(2), x, y, f) for f in (alone, found)]
        lost.append(density[0] - density[1])
        assert fit(*given, np.random.default_rng(seed + 1), before=before) == found  # no draws
    assert sum(loss > 0.05 for loss in lost) <= 3
    # with few observations the fit before is not used
    few = "matern52", cube(2), x[:49], y[:49]
    afresh = fit(*few, np.random.default_rng(0))
    assert fit(*few, np.random.default_rng(0), before=before) == afresh
    assert afresh != before


def test_a_fit_with_a_warm_start_keeps_what_is_given():
    x, y = sampled("se", count=60)
    before = fit("se", cube(2), x, y, np.random.default_rng(0))
    found = fit("se", cube(2), x, y, np.random.default_rng(0), 0.3, 0.02, before)
    assert found.lengthscales == pytest.approx((0.3, 0.3), rel=1e-12)
    assert found.noise == pytest.approx(0.02, rel=1e-12)


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (5, [5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 90]),
        (1, [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 48, 58, 70, 84]),
        (40, [40, 80]),
        (0, []),
    ],
)
def test_fits_are_a_fifth_more_observations_apart(every, expected):
    due = [count_at_last_fit(count, every) for count in range(100)]
    assert sorted(set(due)) == [0, *expected]
    assert all(found <= count for count, found in enumerate(due))
    assert due == sorted(due)


def test_results_stay_within_the_bounds():
    space = cube(1)
    x = np.random.default_rng(0).random((15, 1))
    for y in (np.zeros(15), 1e3 * np.random.default_rng(1).normal(size=15), x[:, 0]):
        found = fit("matern52", space, x, y, np.random.default_rng(0))
        slack = 1 + 1e-12
        for value, (low, high) in (
            (found.lengthscales[0], hp.LENGTHSCALE_BOUNDS),
            (found.variance, hp.VARIANCE_BOUNDS),
            (found.noise, hp.NOISE_BOUNDS),
        ):
            assert low / slack <= value <= high * slack


def test_given_parameters_are_kept():
    x, y = sampled(count=20)
    found = fit("se", cube(2), x, y, np.random.default_rng(0), lengthscale=0.03, noise=1e-8)
    np.testing.assert_allclose(found.lengthscales, 0.03, rtol=1e-12)
    assert found.noise == pytest.approx(1e-8, rel=1e-12)
    assert found.variance != 1.0


def test_a_category_has_one_length_scale():
    space = Space({"x": Float(0, 1), "k": Categorical(["a", "b", "c"])})
    assert parameter_of_column(space).tolist() == [0, 1, 1, 1]
    rng = np.random.default_rng(4)
    units = space.sample(30, rng)
    # only x changes the score
    y = np.sin(6 * units[:, 0])
    found = fit("se", space, space.embed(units), y, rng)
    assert len(found.lengthscales) == 2
    assert found.lengthscales[1] > 2 * found.lengthscales[0]
    kernel = found.kernel("se", space)
    assert kernel.lengthscales.shape == (4,)


def test_a_fit_uses_a_bounded_number_of_observations(monkeypatch):
    x, y = sampled(count=60)
    seen = []

    def spy(kernel, squared, y, theta):
        seen.append(y.shape[-1])
        return log_marginal_likelihood(kernel, squared, y, theta)

    monkeypatch.setattr(hp, "MAX_OBSERVATIONS", 25)
    monkeypatch.setattr(hp, "log_marginal_likelihood", spy)
    fit("se", cube(2), x, y, np.random.default_rng(0))
    assert set(seen) == {25}
    assert len(seen) <= 1 + 1 + 50  # the draws, the starts, and one for each iteration


def test_a_fit_is_repeatable():
    x, y = sampled(count=15)
    first, second = (fit("se", cube(2), x, y, np.random.default_rng(6)) for _ in range(2))
    assert first == second


def many(agents, count, dimension, seed):
    """Inputs (A, n, D) and scores (A, n) of several agents."""
    rng = np.random.default_rng(seed)
    x = rng.random((agents, count, dimension))
    y = np.sin(5 * x).sum(axis=2) * rng.random((agents, 1)) + 0.2 * rng.normal(size=x.shape[:2])
    return x, y


@pytest.mark.parametrize("name", ["se", "matern32", "matern52"])
@given(st.integers(2, 5), st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_fits_made_together_are_those_made_alone_to_the_last_bit(
    name, agents, count, dimension, seed
):
    x, y = many(agents, count, dimension, seed)
    rngs = [np.random.default_rng([seed, agent]) for agent in range(agents)]
    together = hp.fit_together(name, cube(dimension), x, y, rngs)
    for agent in range(agents):
        rng = np.random.default_rng([seed, agent])
        assert fit(name, cube(dimension), x[agent], y[agent], rng) == together[agent]


def test_the_scores_of_one_agent_change_no_fit_of_others():
    x, y = many(6, 9, 2, 0)

    def fits(scores):
        rngs = [np.random.default_rng(agent) for agent in range(6)]
        return hp.fit_together("matern52", cube(2), x, scores, rngs)

    first, other = fits(y), y.copy()
    other[2] = 40.0 * other[2, ::-1]
    second = fits(other)
    assert first[2] != second[2]
    assert first[:2] + first[3:] == second[:2] + second[3:]


def test_agents_with_and_without_an_earlier_fit_are_fitted_together():
    x, y = many(4, 50, 2, 1)
    rngs = [np.random.default_rng(agent) for agent in range(4)]
    earlier = [None, Hyperparameters((0.3, 0.4), 1.1, 0.02), None, prior_medians(2)]
    together = hp.fit_together("se", cube(2), x, y, rngs, before=earlier)
    for agent, before in enumerate(earlier):
        rng = np.random.default_rng(agent)
        found = fit("se", cube(2), x[agent], y[agent], rng, before=before)
        assert found == together[agent]


def test_a_learned_length_scale_is_the_median_of_a_narrow_prior():
    rng = np.random.default_rng(3)
    x, y = rng.random((1, 6, 1)), rng.standard_normal((1, 6))
    free, learned = (
        hp.fit_together("matern52", cube(1), x, y, [np.random.default_rng(0)], learned=scale)[0]
        for scale in (None, 0.03)
    )
    # Six scores cannot move it by three spreads.
    assert abs(math.log(learned.lengthscales[0] / 0.03)) < 3.0 * hp.LEARNED_SPREAD
    assert abs(math.log(free.lengthscales[0] / 0.03)) > 3.0 * hp.LEARNED_SPREAD
    assert learned.noise != free.noise
