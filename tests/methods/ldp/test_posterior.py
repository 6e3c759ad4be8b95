"""The root of the posterior covariance against textbook formulae with t x t matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Int, Space
from flwr_fbo.methods.ldp.domain import Arms, Continuum, domain_of
from flwr_fbo.methods.ldp.posterior import Posterior, nystrom_posterior
from flwr_fbo.models.kernels import kernel_named

from .support import GRID, arms, grid_space


def textbook(covariance, played, rewards, noise):
    """Equations (2) and (3) over all arms, and the information gained."""
    across = covariance[played]  # (t, n)
    gram = across[:, played]
    solved = np.linalg.solve(gram + noise * np.eye(len(played)), across)  # (t, n)
    mean = solved.T @ rewards
    variance = np.diag(covariance) - np.einsum("tn,tn->n", across, solved)
    gain = 0.5 * np.linalg.slogdet(np.eye(len(played)) + gram / noise)[1]
    return mean, variance, gain


@settings(max_examples=25, deadline=None)
@given(
    played=st.lists(st.integers(0, 24), min_size=1, max_size=40),
    noise=st.sampled_from([0.1, 1.0, 30.0]),
    kernel=st.sampled_from(["se", "matern12", "matern52"]),
)
def test_rank_one_updates_are_the_exact_posterior(played, noise, kernel):
    domain = arms(kernel)
    posterior = Posterior.prior(domain.features, noise)
    for arm in played:
        posterior.add(posterior.root[:, arm])
    rewards = np.cos(np.arange(len(played)))
    sums = domain.scatter(np.array(played), rewards)
    mean, variance, gain = textbook(domain.covariance, played, rewards, noise)
    # RANK_TOLERANCE drops eigenvalues of 1e-10 of the largest (<= 25): errors up to 1e-8.
    assert np.allclose(posterior.root.T @ (posterior.root @ sums), mean, atol=1e-7)
    assert np.allclose(posterior.variances(), variance, atol=1e-7)
    assert posterior.information == pytest.approx(gain, abs=1e-6)


def test_the_prior_has_the_kernel_as_variance():
    # sigma_0(x) = sqrt(k(x, x)), though the algorithms print k(x, x)
    covariance = np.diag([0.25, 1.0])
    space = Space({"n": Int(0, 1)}, np.array([[0.25], [0.75]]))
    posterior = Posterior.prior(Arms(space, covariance).features, 3.0)
    assert np.allclose(np.sqrt(posterior.variances()), [0.5, 1.0])


def test_one_arm_by_hand():
    # k = 1, lambda = 1: after N plays V = N + 1, so the variance is 1 / (N + 1).
    space = Space({"x": Float(0, 1)}, np.array([[0.5]]))
    posterior = Posterior.prior(Arms(space, np.ones((1, 1))).features, 1.0)
    for plays in range(1, 6):
        posterior.add(posterior.root[:, 0])
        assert posterior.variances()[0] == pytest.approx(1.0 / (plays + 1.0), rel=1e-12)
    assert posterior.information == pytest.approx(0.5 * np.log(6.0))


def test_twenty_thousand_updates_lose_no_accuracy():
    domain, rng = arms(), np.random.default_rng(0)
    played = rng.choice(25, 20_000, p=np.r_[0.9, np.full(24, 0.1 / 24)])
    posterior = Posterior.prior(domain.features, 1.0)
    for arm in played:
        posterior.add(posterior.root[:, arm])
    counts = np.bincount(played, minlength=25)
    phi = domain.features
    design = (phi.T * counts) @ phi + np.eye(phi.shape[1])
    exact = np.einsum("nm,mn->n", phi, np.linalg.solve(design, phi.T))
    assert np.allclose(posterior.variances(), exact, rtol=1e-8)


def test_a_full_dictionary_is_the_exact_posterior():
    domain, rng = arms(), np.random.default_rng(1)
    counts = rng.integers(0, 5, 25).astype(float)
    exact = Posterior.prior(domain.features, 0.7)
    for arm in np.repeat(np.arange(25), counts.astype(int)):
        exact.add(exact.root[:, arm])
    sampled = nystrom_posterior(domain.covariance, counts, np.arange(25), 0.7)
    assert np.allclose(sampled.variances(), exact.variances(), atol=1e-7)
    assert sampled.information == pytest.approx(exact.information, abs=1e-6)
    sums = rng.normal(size=25)
    means = [p.root.T @ (p.root @ sums) for p in (exact, sampled)]
    assert np.allclose(*means, atol=1e-6)


def test_an_empty_dictionary_is_the_prior():
    covariance = arms().covariance
    posterior = nystrom_posterior(covariance, np.ones(25), np.array([], dtype=int), 1.0)
    assert posterior.dimension == 0
    assert np.allclose(posterior.variances(), np.diag(covariance))


def test_an_accurate_sample_has_variances_within_rho_of_the_exact_ones():
    # q of the theorems for eps = 1/2, rho = 3: each arm in with probability min(q sigma^2, 1)
    domain, rng = arms("se", np.linspace(0, 1, 200)[:, None]), np.random.default_rng(2)
    counts = rng.integers(0, 200, 200).astype(float)
    exact = nystrom_posterior(domain.covariance, counts, np.arange(200), 1.0).variances()
    q = 6 * 3 * np.log(4 * counts.sum() / 0.1) / 0.25
    chosen = np.flatnonzero(rng.random(200) < np.minimum(q * exact, 1.0))
    assert 0 < len(chosen) < 150
    sampled = nystrom_posterior(domain.covariance, counts, chosen, 1.0).variances()
    assert np.all((sampled <= 3 * exact) & (exact <= 3 * sampled))


def test_random_features_give_the_posterior_of_their_kernel():
    space = Space({"x": Float(0, 1)})
    domain = Continuum(space, kernel_named("se", 0.3), 2000, seed=1)
    played, rewards = np.array([[0.1], [0.4], [0.45]]), np.array([1.0, -0.5, 0.2])
    posterior = Posterior.prior(domain.features, 0.5)
    for key in domain.keys(played):
        posterior.add(domain.project(posterior.root, key[None, :])[:, 0])
    kernel = kernel_named("se", 0.3)(np.vstack([played, GRID]), np.vstack([played, GRID]))
    mean, variance, _ = textbook(kernel, [0, 1, 2], rewards, 0.5)
    columns = domain.project(posterior.root, GRID)
    sums = domain.scatter(played, rewards)
    # an entry of the feature kernel is off by about M^(-1/2) = 0.022; three of those
    assert np.allclose(columns.T @ (posterior.root @ sums), mean[3:], atol=0.07)
    assert np.allclose(0.5 * (columns**2).sum(0), variance[3:], atol=0.07)


def test_the_argmax_on_a_continuum_is_as_good_as_a_fine_grid():
    space = Space({"x": Float(0, 1), "y": Float(0, 1)})
    domain = Continuum(space, kernel_named("matern52", 0.3), 60, seed=2)
    posterior, rng = Posterior.prior(domain.features, 1.0), np.random.default_rng(3)
    played = rng.random((12, 2))
    for key in domain.keys(played):
        posterior.add(domain.project(posterior.root, key[None, :])[:, 0])
    mean = posterior.root @ domain.scatter(played, rng.normal(size=12))
    side = np.linspace(0, 1, 101)
    grid = np.stack([a.ravel() for a in np.meshgrid(side, side)], axis=1)

    def upper(points, width):
        columns = domain.project(posterior.root, points)
        return mean @ columns + width * np.sqrt((columns**2).sum(0))

    for width in (0.0, 0.5, 3.0):
        found = domain.best(posterior, mean, width, [0])
        assert upper(found, width)[0] >= upper(grid, width).max() - 1e-6


def test_finite_spaces_are_arms_and_others_are_not():
    kernel = kernel_named("se", 0.2)
    assert isinstance(domain_of(Space({"n": Int(1, 30)}), kernel, 10, 0), Arms)
    assert isinstance(domain_of(Space({"x": Float(0, 1)}), kernel, 10, 0), Continuum)
    with pytest.raises(SettingsError, match="needs a finite space"):
        domain_of(Space({"x": Float(0, 1)}), kernel, 10, 0, np.eye(3))


@pytest.mark.parametrize(
    ("covariance", "rule"),
    [
        (np.eye(3), r"must have shape \(25, 25\), but got \(3, 3\)"),
        (np.full((25, 25), np.nan), "must be finite and symmetric"),
        (np.eye(25) + np.eye(25, k=1), "must be finite and symmetric"),
        (4.0 * np.eye(25), r"0 < k\(x, x\) <= 1"),
        (np.zeros((25, 25)), r"0 < k\(x, x\) <= 1"),
        (np.eye(25) - 0.9 * (np.ones((25, 25)) - np.eye(25)), "positive semi-definite"),
    ],
)
def test_a_matrix_that_is_no_covariance_is_refused(covariance, rule):
    with pytest.raises(ValueError, match=rule):
        Arms(grid_space(), covariance)
