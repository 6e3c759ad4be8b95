"""Each algorithm against its pseudo-code, written out over the whole history of plays."""

import math

import numpy as np
import pytest

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.ldp.ata import ATA
from flwr_fbo.methods.ldp.domain import Continuum
from flwr_fbo.methods.ldp.learner import GPUCB
from flwr_fbo.methods.ldp.moma import MoMA, epoch_length, median_of_means
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.ldp.tgp import TGP
from flwr_fbo.models.kernels import kernel_named

from .support import arms
from .test_posterior import textbook


def history(learner, updates, seed=0, dof=2.2):
    """Heavy-tailed rewards for what the learner suggests: keys (t,), rewards (t, k)."""
    rng = np.random.default_rng(seed)
    keys, rewards = [], []
    for _ in range(updates):
        points = learner.suggest()
        keys.append(learner.domain.keys(points[:1]))
        rewards.append(2.0 * rng.standard_t(dof, len(points)))
        learner.update(points, rewards[-1])
    return np.concatenate(keys), np.array(rewards)


def literal_ata(roots, rewards, level):
    """Lines 8 and 9 for the last t: every u_(i,tau) y_tau is looked at."""
    terms = roots * rewards  # (m, t)
    return np.where(np.abs(terms) <= level, terms, 0.0).sum(axis=1)


def ata_level(learner, v, budget):
    """b_t of Theorem 2, its order, and without its logarithm in practice."""
    m = max(learner.posterior.dimension, 1)
    logarithms = {
        "theory": math.log(4 * m * budget / 0.1),
        "orders": math.log((m + 1) * budget),
        "practical": 1.0,
    }
    return math.sqrt(v / logarithms[learner.settings.constants])


@pytest.mark.parametrize("kernel", ["se", "matern52"])
@pytest.mark.parametrize("preset", ["theory", "orders", "practical"])
def test_ata_is_its_pseudo_code_though_it_forgets_most_rewards(kernel, preset):
    settings = LDPSettings(budget=600, second_moment=9.0, noise_variance=8.0, constants=preset)
    learner = ATA(arms(kernel), settings)
    keys, rewards = history(learner, 400, dof=1.1)
    roots = learner.posterior.root[:, keys]
    expected = literal_ata(roots, rewards[:, 0], ata_level(learner, 9.0, 600))
    assert np.allclose(learner.mean, expected, atol=1e-10)
    # Something was truncated, or this shows nothing; and few rewards are still kept.
    assert np.abs(roots @ rewards[:, 0] - expected).max() > 1e-3
    assert len(learner.rewards) < (60 if preset == "practical" else 200)


@pytest.mark.parametrize("preset", ["theory", "orders", "practical"])
def test_ata_with_new_features_at_each_step_is_its_pseudo_code(preset):
    settings = LDPSettings(
        budget=300,
        second_moment=9.0,
        noise_variance=8.0,
        constants=preset,
        embedding="nystrom",
        accuracy=0.9,
    )
    learner = ATA(arms("se"), settings)
    keys, rewards = history(learner, 150)
    assert 0 < learner.posterior.dimension <= 25
    roots = learner.posterior.root[:, keys]
    expected = literal_ata(roots, rewards[:, 0], ata_level(learner, 9.0, 300))
    assert np.allclose(learner.mean, expected, atol=1e-10)


@pytest.mark.parametrize("preset", ["theory", "practical"])
def test_ata_on_a_continuum_is_its_pseudo_code(preset):
    domain = Continuum(Space({"x": Float(0, 1)}), kernel_named("se", 0.2), 40)
    settings = LDPSettings(budget=200, second_moment=9.0, noise_variance=8.0, constants=preset)
    learner = ATA(domain, settings)
    keys, rewards = history(learner, 60)
    columns = domain.project(learner.posterior.root, keys)
    expected = literal_ata(columns, rewards[:, 0], ata_level(learner, 9.0, 200))
    assert np.allclose(learner.mean, expected, atol=1e-10)
    assert len(learner.rewards) < 60


def test_any_square_root_of_v_does():
    # Its proof asks for W V W' = I, hence rows with sum of squares <= 1 over all plays.
    learner = ATA(arms(), LDPSettings(budget=600))
    keys, _ = history(learner, 200)
    root, phi = learner.posterior.root, learner.domain.features
    design = phi[keys].T @ phi[keys] + learner.regularisation * np.eye(phi.shape[1])
    assert np.allclose(root.T @ root, phi @ np.linalg.solve(design, phi.T), atol=1e-9)
    assert np.all((root[:, keys] ** 2).sum(axis=1) <= 1.0)


@pytest.mark.parametrize(("preset", "each"), [("theory", 16.1), ("practical", 1.0)])
def test_rewards_that_are_kept_do_not_grow_with_the_number_of_plays(preset, each):
    # Markov: v / b^2 = ln(4 m T / delta) = 16.1 kept in expectation for each of 25 arms, or 1.
    # The rewards' second moment is 4 * 2.2 / 0.2 = 44, most of it in its extremes.
    settings = LDPSettings(budget=4000, second_moment=44.0, noise_variance=43.0, constants=preset)
    assert math.log(4 * 25 * 4000 / 0.1) == pytest.approx(each if each > 1 else 15.2, abs=1.0)
    for plays in (500, 4000):
        learner = ATA(arms(), settings)
        history(learner, plays)
        assert len(learner.rewards) < 25 * each


def test_tgp_is_its_pseudo_code():
    settings = LDPSettings(budget=200, epsilon_per_answer=1.0, bound=2.0, noise_bound=0.5)
    learner = TGP(arms(), settings)
    keys, rewards = history(learner, 120, dof=1.1)
    scale = 2 * 2.5 / 1.0
    levels = 2.5 + scale * np.log(np.arange(1, 121))  # b_t = B + R + L ln t
    kept = np.where(np.abs(rewards[:, 0]) <= levels, rewards[:, 0], 0.0)
    assert np.any(kept != rewards[:, 0])
    mean, variance, _ = textbook(learner.domain.covariance, keys, kept, learner.regularisation)
    found, width = learner.confidence()
    assert np.allclose(found, mean, atol=1e-7)
    assert np.allclose(width, learner.width() * np.sqrt(variance), atol=1e-6)


def test_tgp_without_privacy_truncates_at_the_fourth_root():
    settings = LDPSettings(budget=200, second_moment=4.0, noise_variance=3.0)
    learner = TGP(arms(), settings)
    keys, rewards = history(learner, 100)
    levels = 2.0 * np.arange(1, 101) ** 0.25
    kept = np.where(np.abs(rewards[:, 0]) <= levels, rewards[:, 0], 0.0)
    mean, _, _ = textbook(learner.domain.covariance, keys, kept, learner.regularisation)
    assert np.allclose(learner.confidence()[0], mean, atol=1e-7)


def test_gp_ucb_truncates_nothing():
    learner = GPUCB(arms(), LDPSettings(budget=200, noise_variance=4.0))
    keys, rewards = history(learner, 80, dof=1.1)
    mean, _, _ = textbook(learner.domain.covariance, keys, rewards[:, 0], learner.regularisation)
    assert np.allclose(learner.confidence()[0], mean, atol=1e-7)


def test_moma_is_its_pseudo_code():
    learner = MoMA(arms(), LDPSettings(budget=500, epoch=7, noise_variance=4.0, bound=2.0))
    keys, rewards = history(learner, 30)  # (n,), (n, k)
    phi = learner.domain.features[keys]  # (n, m)
    V = phi.T @ phi + learner.regularisation * np.eye(phi.shape[1])
    thetas = np.linalg.solve(V, phi.T @ rewards).T  # (k, m)
    spreads = []
    for j in range(7):
        others = [thetas[j] - thetas[s] for s in range(7) if s != j]
        spreads.append(np.median([math.sqrt(d @ V @ d) for d in others]))
    chosen = thetas[int(np.argmin(spreads))]
    assert np.allclose(learner.confidence()[0], learner.domain.features @ chosen, atol=1e-8)


def test_the_median_of_means_by_hand():
    # Distances on a line: 0, 1, 2 and an outlier; medians 2, 1, 2 and 99: the second is chosen.
    estimates = np.array([[0.0], [1.0], [2.0], [100.0]])
    assert median_of_means(estimates) == pytest.approx([1.0])


def test_the_median_of_means_ignores_a_minority_of_absurd_estimates():
    rng = np.random.default_rng(0)
    estimates = rng.normal(size=(15, 6))
    estimates[:6] = 1e9
    assert np.abs(median_of_means(estimates)).max() < 10.0


def test_theory_constants_are_the_theorems():
    # T = 1000, delta = 0.1: k = ceil(24 ln(4 e 10^4)) = 279, three epochs.
    settings = LDPSettings(
        budget=1000,
        epsilon_per_answer=0.5,
        constants="theory",
        bound=2.0,
        noise_bound=1.0,
        norm=3.0,
    )
    scale = 2 * 3.0 / 0.5
    v, c = 4 + 1 + 2 * scale**2, 1 + 2 * scale**2  # 8 (B+R)^2 / eps^2 is the last term
    assert v == 4 + 1 + 8 * 9 / 0.25
    assert epoch_length(settings) == 279
    moma, ata, tgp = (cls(arms(), settings) for cls in (MoMA, ATA, TGP))
    m = moma.posterior.dimension
    assert moma.regularisation == 1.0
    assert moma.width() == pytest.approx(3 + 3 * math.sqrt(9 * m * c))
    logarithm = math.log(4 * m * 1000 / 0.1)
    assert ata.level(m) == pytest.approx(math.sqrt(v / logarithm))
    assert ata.width() == pytest.approx(3 + 4 * math.sqrt(logarithm * v * m))
    assert tgp.width() == 3  # nothing observed: beta_1 = B
    history(tgp, 10)
    gained = tgp.posterior.information + math.log(10)
    expected = 3 + 2 * math.sqrt(2) * (3 + scale * math.log(10)) * math.sqrt(gained)
    expected += math.sqrt(v * (math.log(10) + 1))
    assert tgp.width() == pytest.approx(expected)


def test_orders_are_the_theorems_terms_with_factors_of_one():
    settings = LDPSettings(
        budget=1000, constants="orders", second_moment=9.0, noise_variance=8.0, norm=3.0
    )
    moma, ata, tgp, plain = (cls(arms(), settings) for cls in (MoMA, ATA, TGP, GPUCB))
    m = moma.posterior.dimension
    assert {learner.regularisation for learner in (moma, ata, tgp, plain)} == {1.0}
    assert moma.plays == 5
    assert moma.width() == pytest.approx(3 + math.sqrt(8 * m))
    logarithm = math.log((m + 1) * 1000)
    assert ata.level(m) == pytest.approx(math.sqrt(9 / logarithm))
    assert ata.width() == pytest.approx(3 + math.sqrt(9 * m * logarithm))
    assert tgp.width() == 3
    for learner in (tgp, plain):
        history(learner, 16)
    gained = tgp.posterior.information + math.log(10)
    assert tgp.width() == pytest.approx(3 + 3 * 2 * math.sqrt(gained))  # sqrt(v) 16^(1/4) = 6
    gained = plain.posterior.information + math.log(10)
    assert plain.width() == pytest.approx(3 + math.sqrt(8 * 2 * gained))


def test_orders_of_private_rewards_have_algorithm_2s_own_width():
    private = {"budget": 1000, "epsilon_per_answer": 1.0, "bound": 2.0}
    orders, theory = (
        TGP(arms(), LDPSettings(constants=constants, **private))
        for constants in ("orders", "theory")
    )
    for learner in (orders, theory):
        history(learner, 10)
    assert orders.width() == theory.width()


def test_the_nystrom_constants_are_the_theorems():
    settings = LDPSettings(budget=1000, constants="theory", embedding="nystrom", accuracy=0.5)
    learner = ATA(arms(), settings)
    assert learner.oversampling == pytest.approx(6 * 3 * math.log(4 * 1000 / 0.1) / 0.25)
    assert learner.bias_width == pytest.approx(1 + math.sqrt(2))
    practical = ATA(arms(), LDPSettings(budget=1000, embedding="nystrom", accuracy=0.1))
    assert practical.oversampling == pytest.approx(math.log(1000) / 0.01)


def test_practical_widths_have_one_formula():
    settings = LDPSettings(budget=100, epsilon_per_answer=1.0, bound=2.0, exploration=0.7)
    for cls in (GPUCB, TGP, ATA, MoMA):
        learner = cls(arms(), settings)
        history(learner, 5)
        c = learner.model.noise_variance
        assert learner.regularisation == pytest.approx(c / 4.0)
        gained = learner.posterior.information + math.log(10)
        assert learner.width() == pytest.approx(0.7 * 2.0 * math.sqrt(2 * gained))


def test_moma_says_what_budget_or_epoch_it_needs():
    with pytest.raises(SettingsError, match=r"`budget` must be >= 5.*budget=4, epoch=5"):
        MoMA(arms(), LDPSettings(budget=4))
    with pytest.raises(SettingsError, match=r"`budget` must be >= 224.*budget=100, epoch=224"):
        MoMA(arms(), LDPSettings(budget=100, constants="theory"))
    with pytest.raises(SettingsError, match="`epoch` must be >= 2 for MoMA, but got 1"):
        MoMA(arms(), LDPSettings(epoch=1))


def test_nystrom_needs_arms():
    domain = Continuum(Space({"x": Float(0, 1)}), kernel_named("se", 0.2), 10)
    with pytest.raises(ValueError, match="`embedding` must be exact"):
        ATA(domain, LDPSettings(embedding="nystrom"))
