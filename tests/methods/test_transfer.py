"""RGPE and TAF: against oracles that do the same the long way, and on what they are for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.comparators.rgpe import (
    RGPEAgent,
    RGPESettings,
    ensemble_weights,
    leave_one_out_draws,
    left_out_losses,
    ranking_losses,
)
from flwr_fbo.methods.comparators.surrogates import (
    GPSurrogates,
    History,
    Surrogates,
    WeightSurrogates,
    numbers_sent,
    zero_mean_unit_spread,
)
from flwr_fbo.methods.comparators.taf import TAFAgent, TAFSettings, discordance, epanechnikov
from flwr_fbo.methods.comparators.transfer import expected_improvement
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures, WeightPosterior
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.hyperparameters import prior_medians
from flwr_fbo.models.kernels import SquaredExponential

SQUARE = Space({"x": Float(0, 1), "y": Float(0, 1)})
MIXED = Space({"x": Float(1e-3, 1, log=True), "n": Int(1, 5), "c": Categorical(["a", "b"])})
GRID = Space({"x": Float(0, 1)}, np.linspace(0, 1, 101)[:, None])
BOTH = [(RGPEAgent, RGPESettings()), (TAFAgent, TAFSettings())]
OWN = ThompsonSettings(lengthscale=0.3, noise=0.01, refit_every=0)


def bump(units: Array, at: float = 0.3) -> Array:
    return np.exp(-8.0 * ((units - at) ** 2).sum(axis=1))


def histories(count: int, at: float, sizes: tuple[int, ...] = (12, 20, 7)) -> list[History]:
    made = []
    for n in range(count):
        rng = np.random.default_rng([5, n])
        units = SQUARE.sample(sizes[n % len(sizes)], rng)
        made.append(History(units, (n + 1) * bump(units, at) + 3.0))
    return made


def surrogates_of(kind: str, others: list[History], space: Space = SQUARE) -> Surrogates:
    if kind == "history":
        return GPSurrogates.of(space, others, OWN)
    kernel, rng = SquaredExponential(0.3), np.random.default_rng(1)
    features = RandomFeatures.draw(kernel, 80, space.embedding_dimension, rng)
    return WeightSurrogates.of(space, others, features, 0.01)


def test_gp_surrogates_are_the_processes_one_by_one() -> None:
    others = histories(4, 0.3)
    together = GPSurrogates.of(SQUARE, others, OWN)
    x = SQUARE.sample(9, np.random.default_rng(0))
    means, variances = together.posterior(x)
    for n, history in enumerate(others):
        kernel = GPSurrogates.of(SQUARE, [history], OWN)
        alone = kernel.posterior(x)
        np.testing.assert_allclose(means[n], alone[0][0], atol=1e-9)

        exact = prior_medians(2, OWN.lengthscale, OWN.noise)
        process = GaussianProcess(
            exact.kernel(OWN.kernel, SQUARE),
            exact.noise,
            history.units,
            zero_mean_unit_spread(history.scores),
        )
        mean, variance = process.posterior(x)
        np.testing.assert_allclose(means[n], mean, atol=1e-9)
        np.testing.assert_allclose(variances[n], variance, atol=1e-9)
    np.testing.assert_allclose(together.mean(x), means)
    some = together.posterior(x, np.array([2, 0]))
    np.testing.assert_allclose(some[0], means[[2, 0]])
    np.testing.assert_allclose(some[1], variances[[2, 0]])


def test_gp_surrogates_learn_their_parameters() -> None:
    learned = GPSurrogates.of(SQUARE, histories(3, 0.3, (15, 20)), ThompsonSettings())
    x = SQUARE.sample(200, np.random.default_rng(0))
    for row in learned.mean(x):
        assert np.corrcoef(row, bump(x))[0, 1] > 0.9


def test_weight_surrogates_are_the_posterior_of_equation_3() -> None:
    others = histories(3, 0.3)
    together = surrogates_of("posterior", others)
    assert isinstance(together, WeightSurrogates)
    x = SQUARE.sample(6, np.random.default_rng(0))
    for n, history in enumerate(others):
        design = together.features(history.units)
        scores = zero_mean_unit_spread(history.scores)
        posterior = WeightPosterior(design, scores, 0.01)
        np.testing.assert_allclose(together.means[n], posterior.mean(), atol=1e-8)
        # FTS equation (7): the variance in the form of the kernel
        cross = together.features(x) @ design.T
        gram = design @ design.T + 0.01 * np.eye(len(scores))
        variance = 1.0 - np.einsum("it,ts,is->i", cross, np.linalg.inv(gram), cross)
        np.testing.assert_allclose(together.posterior(x)[1][n], variance, atol=1e-8)


@pytest.mark.parametrize("kind", ["history", "posterior"])
def test_draws_have_the_posteriors_mean_and_variance(kind: str) -> None:
    others = surrogates_of(kind, histories(3, 0.3))
    x = SQUARE.sample(5, np.random.default_rng(0))
    mean, variance = others.posterior(x)
    draws = others.sample(x, 4000, np.random.default_rng(1))
    assert draws.shape == (3, 4000, 5)
    # 15 means and variances, each within 5 standard errors: accidental failure ~1e-5
    error = np.sqrt(variance / 4000)
    assert np.all(np.abs(draws.mean(axis=1) - mean) < 5 * error + 1e-6)
    assert np.all(np.abs(draws.var(axis=1) - variance) < 5 * variance * np.sqrt(2 / 4000) + 1e-6)


def test_leave_one_out_draws_are_of_models_that_were_fitted_without() -> None:
    rng = np.random.default_rng(0)
    x, kernel, noise = rng.random((6, 2)), SquaredExponential(0.4), 0.05
    y = zero_mean_unit_spread(bump(x) + 0.1 * rng.standard_normal(6))
    draws = leave_one_out_draws(GaussianProcess(kernel, noise, x, y), 20_000, rng)
    assert draws.shape == (20_000, 6, 6)
    for j in range(6):
        rest = np.arange(6) != j
        cross = kernel(x, x[rest])
        solve = np.linalg.inv(kernel(x[rest], x[rest]) + noise * np.eye(5))
        mean, square = cross @ solve @ y[rest], kernel(x, x) - cross @ solve @ cross.T
        # 36 means and 216 covariances, standard errors at most sqrt(2 / 20000) = .01
        np.testing.assert_allclose(draws[:, j].mean(axis=0), mean, atol=0.05)
        np.testing.assert_allclose(np.cov(draws[:, j].T), square, atol=0.05)


def test_losses_count_misranked_pairs() -> None:
    y = np.array([1.0, 2.0, 3.0])
    drawn = np.array([[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], [[1.0, 3.0, 2.0], [0.0, 0.0, 0.0]]])
    # ordered pairs: a swap is wrong twice; a draw that ties all misses each pair once
    np.testing.assert_array_equal(ranking_losses(drawn, y), [[0, 6], [2, 3]])
    left_out = np.array([np.tile([1.0, 2.0, 3.0], (3, 1))])
    assert left_out_losses(left_out, y)[0] == 0
    left_out[0, 0, 0] = 2.5  # what has not been seen of the first is above the second
    assert left_out_losses(left_out, y)[0] == 1


@given(st.integers(1, 6), st.integers(2, 8), st.integers(0, 10_000))
def test_losses_agree_with_the_definition(agents: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn, y = rng.standard_normal((agents, 3, count)), rng.integers(0, 4, count).astype(float)
    plain = [
        [
            sum((f[j] < f[k]) != (y[j] < y[k]) for j in range(count) for k in range(count))
            for f in model
        ]
        for model in drawn
    ]
    np.testing.assert_array_equal(ranking_losses(drawn, y), plain)


def test_weights_are_shares_of_wins_and_the_target_wins_ties() -> None:
    losses = np.array([[0.0, 5.0, 1.0, 2.0], [4.0, 1.0, 1.0, 3.0], [3.0, 3.0, 3.0, 2.0]])
    # wins: the first, the second, the first of two equals, the target
    np.testing.assert_allclose(ensemble_weights(losses), [0.5, 0.25, 0.25])
    # a median above the 95th percentile of the target's losses is left out, whatever it wins
    losses[1] = [4.0, 1.0, 4.0, 4.0]
    np.testing.assert_allclose(ensemble_weights(losses), [0.5, 0.0, 0.5])
    np.testing.assert_allclose(ensemble_weights(np.array([[1.0], [1.0]])), [0.0, 1.0])


@given(st.integers(1, 8), st.integers(1, 20), st.integers(0, 1000))
def test_weights_sum_to_one(models: int, draws: int, seed: int) -> None:
    losses = np.random.default_rng(seed).integers(0, 9, (models, draws)).astype(float)
    weights = ensemble_weights(losses)
    assert weights.shape == (models,)
    assert np.all(weights >= 0)
    assert weights.sum() == pytest.approx(1)


def test_discordance_and_its_weight() -> None:
    y = np.array([1.0, 2.0, 3.0, 3.0])
    predicted = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], [1.0, 3.0, 2.0, 4.0]])
    # five pairs differ in y
    np.testing.assert_allclose(discordance(predicted, y), [0.0, 1.0, 0.2])
    np.testing.assert_allclose(discordance(predicted, np.ones(4)), 0.5)
    np.testing.assert_allclose(epanechnikov(np.array([0.0, 0.5, 1.0, 2.0])), [0.75, 0.5625, 0, 0])


@given(st.floats(-3, 3), st.floats(0.01, 3), st.floats(-3, 3))
def test_expected_improvement_is_the_integral(mean: float, deviation: float, best: float) -> None:
    found = expected_improvement(np.array([mean]), np.array([deviation**2]), best)[0]
    law = stats.norm(mean, deviation)
    expected, _ = integrate.quad(
        lambda f: (f - best) * law.pdf(f), best, max(best, mean) + 10 * deviation, limit=200
    )
    assert found == pytest.approx(expected, abs=1e-6)


def run(agent: RGPEAgent | TAFAgent, at: float, rounds: int, space: Space = SQUARE) -> float:
    for unit in agent.explore():
        agent.tell(unit, float(bump(unit[None], at)[0]))
    for t in range(1, rounds + 1):
        unit = agent.ask(t)
        np.testing.assert_array_equal(space.snap(unit)[0], unit)
        agent.tell(unit, float(bump(unit[None], at)[0]))
    best = agent.best()
    assert best is not None
    return best[1]


@pytest.mark.parametrize("kind", ["history", "posterior"])
@pytest.mark.parametrize(("agent", "settings"), BOTH)
def test_helpful_agents_help_from_the_first_rounds(
    agent: type, settings: object, kind: str
) -> None:
    scores = {}
    for name, others in (("alone", []), ("helped", histories(6, 0.3))):
        surrogates = surrogates_of(kind, others)
        made = [agent(SQUARE, surrogates, settings, OWN, (seed,)) for seed in range(8)]
        scores[name] = np.array([run(each, 0.3, 2) for each in made])
    assert scores["helped"].min() > 0.93
    assert scores["helped"].mean() > scores["alone"].mean() + 0.1


@pytest.mark.parametrize(("agent", "settings"), BOTH)
def test_without_others_it_is_expected_improvement(agent: type, settings: object) -> None:
    alone = agent(SQUARE, surrogates_of("history", []), settings, OWN, (3,))
    assert run(alone, 0.3, 12) > 0.97


@pytest.mark.parametrize(("agent", "settings"), BOTH)
def test_misleading_agents_lose_their_weights(agent: type, settings: object) -> None:
    misled = agent(SQUARE, surrogates_of("history", histories(6, 0.9)), settings, OWN, (3,))
    assert run(misled, 0.2, 15) > 0.95
    misled.ask(16)
    assert misled.weights[:6].sum() < 0.2


@pytest.mark.parametrize("space", [MIXED, GRID])
@pytest.mark.parametrize("agent", [RGPEAgent, TAFAgent])
def test_asking_again_gives_the_same_point_of_any_space(agent: type, space: Space) -> None:
    rng = np.random.default_rng(0)
    units = space.sample(12, rng)
    others = surrogates_of("history", [History(units, units.sum(axis=1))], space)
    settings = RGPESettings() if agent is RGPEAgent else TAFSettings()
    asked = []
    for _ in range(2):
        made = agent(space, others, settings, OWN, (7,))
        for unit in made.explore():
            made.tell(unit, float(unit.sum()))
        made.tell(units[0], None)  # a failure is no observation
        asked.append(made.ask(1))
        np.testing.assert_array_equal(made.ask(1), asked[-1])
    np.testing.assert_array_equal(*asked)
    np.testing.assert_array_equal(space.snap(asked[0])[0], asked[0])


@pytest.mark.parametrize(("agent", "settings"), BOTH)
def test_units_of_the_scores_do_not_matter(agent: type, settings: object) -> None:
    asked = []
    for scale in (1.0, 1000.0):
        raw = ThompsonSettings(lengthscale=0.3, noise=0.01, refit_every=0, standardise=False)
        made = agent(SQUARE, surrogates_of("history", histories(4, 0.3)), settings, raw, (5,))
        for unit in made.explore():
            made.tell(unit, scale * float(bump(unit[None])[0]) + 50.0)
        asked.append(made.ask(1))
    np.testing.assert_allclose(*asked, atol=1e-6)


def test_what_is_sent_is_what_the_paper_counts() -> None:
    assert numbers_sent("fts", features=50) == 50
    assert numbers_sent("rgpe", features=50) == 50 + 50**2
    assert numbers_sent("taf", features=50) == 50 + 50**2 + 1
    assert numbers_sent("rgpe", "history", observations=50, dimension=3) == 200


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`units` must be \(t, D\)"):
        History(np.zeros((3, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="must be finite"):
        History(np.zeros((1, 2)), np.array([np.nan]))
    features = RandomFeatures(np.zeros((4, 2)), np.zeros(4))
    with pytest.raises(ValueError, match="`covariances`"):
        WeightSurrogates(features, np.zeros((2, 4)), np.zeros((2, 4, 3)))
    with pytest.raises(ValueError, match="at least one evaluation"):
        TAFAgent(SQUARE, surrogates_of("history", []), TAFSettings(), OWN).ask(1)
    with pytest.raises(ValueError, match="fts, rgpe or taf"):
        numbers_sent("ucb")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="bandwidth"):
        TAFSettings(bandwidth=0.0)
