"""The sampler: repeatable, restorable, robust to failures, and following with the right odds."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import SharedFunction, shared_function_of
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.kernels import SquaredExponential
from flwr_fbo.models.score_scale import standardise_scores
from flwr_fbo.search.regions import Regions, split_space

from .thompson_harness import SQUARE

GRID = Space({"x": Float(0, 1)}, np.linspace(0, 1, 50)[:, None])
MIXED = Space({"x": Float(0, 1), "n": Int(1, 999), "k": Categorical(["a", "b"])})
SPACES = {"square": SQUARE, "grid": GRID, "mixed": MIXED}
QUICK = ThompsonSettings(features=30)


def features_for(space, settings=QUICK, seed=0):
    kernel = SquaredExponential(settings.feature_lengthscale)
    rng = np.random.default_rng(seed)
    return RandomFeatures.draw(kernel, settings.features, space.embedding_dimension, rng)


def sampler_on(space, settings=QUICK, seed=(3,), **options):
    return ThompsonSampler(space, settings, features_for(space, settings), seed, **options)


def score_of(unit):
    return float(np.sin(5 * unit).sum())


def with_scores(sampler, count, seed=0):
    for unit in sampler.space.sample(count, np.random.default_rng(seed)):
        sampler.tell(unit, score_of(unit))
    return sampler


def function_for(space, settings=QUICK, count=1, seed=1):
    weights = np.random.default_rng(seed).standard_normal((count, settings.features))
    return SharedFunction(weights, split_space(space, count))


def same_proposal(a, b):
    return np.array_equal(a.unit, b.unit) and a.source == b.source


# ------------------------------------------------------------------ restart


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kernel": "se", "lengthscale": 0.1, "noise": 0.01, "refit_every": 0},
        {"kernel": "matern32", "refit_every": 3, "message": "mean", "beta_rule": "theory"},
        {"standardise": False, "noise": 1e-12},
    ],
)
def test_a_restored_sampler_gives_the_same_points_and_messages_to_the_last_bit(name, given):
    settings = ThompsonSettings(features=30, **given)
    space = SPACES[name]
    live, shared = sampler_on(space, settings), function_for(space, settings, 2)
    for unit in live.explore(4):
        live.tell(unit, score_of(unit))
    for t in range(1, 13):
        restored = sampler_on(space, settings)
        restored.load_state_dict(json.loads(json.dumps(live.state_dict())))
        proposal = live.ask(t, 0.5, shared)
        assert same_proposal(restored.ask(t, 0.5, shared), proposal)
        assert np.array_equal(restored.message(t), live.message(t))
        if t == 5:
            live.tell(proposal.unit, None)  # a failure
        else:
            live.tell(proposal.unit, score_of(proposal.unit))
        if t == 7:
            live.tell(proposal.unit, 0.3)  # a repeated point
    assert restored.state_dict().keys() == live.state_dict().keys()
    best, score = live.best()
    assert score == max(live.state_dict()["scores"])
    assert np.array_equal(restored.best()[0].shape, best.shape)


def test_a_sampler_replayed_from_its_observations_is_the_same_one():
    # fits are a function of the observations, so even without the stored fits nothing differs
    live, fitted = sampler_on(SQUARE), []
    for unit in live.explore(5):
        live.tell(unit, score_of(unit))
    for t in range(1, 8):
        unit = live.ask(t).unit
        live.tell(unit, score_of(unit))
    replayed = sampler_on(SQUARE, on_fit=lambda n, found: fitted.append(n))
    state = live.state_dict()
    for unit, score in zip(state["units"], state["scores"], strict=True):
        replayed.tell(np.array(unit), score)
    assert same_proposal(replayed.ask(8), live.ask(8))
    assert fitted == [10]  # only the last due fit is made


@given(st.lists(st.sampled_from(["ask", "message", "model", "best"]), max_size=6))
@settings(max_examples=15, deadline=None)
def test_asking_changes_nothing(calls):
    plain, asked = with_scores(sampler_on(GRID), 6), with_scores(sampler_on(GRID), 6)
    shared = function_for(GRID)
    for call in calls:
        if call == "ask":
            asked.ask(1, 0.5, shared)
            asked.ask(2)
        elif call == "message":
            asked.message(1)
        else:
            getattr(asked, call)()
    state = asked.state_dict()
    state["fits"] = plain.state_dict()["fits"]
    assert state == plain.state_dict()
    assert same_proposal(asked.ask(1, 0.5, shared), plain.ask(1, 0.5, shared))
    assert np.array_equal(asked.message(1), plain.message(1))


def test_draws_differ_between_rounds_seeds_and_purposes():
    one = with_scores(sampler_on(SQUARE), 6)
    other = with_scores(sampler_on(SQUARE, seed=(4,)), 6)
    proposals = [one.ask(1).unit, one.ask(2).unit, other.ask(1).unit]
    messages = [one.message(1), one.message(2), other.message(1)]
    for drawn in (proposals, messages):
        assert len({tuple(v) for v in drawn}) == 3
    assert np.array_equal(one.explore(3), one.explore(3))
    assert not np.array_equal(one.explore(3), one.explore(3, round=1))


def test_the_state_stays_small():
    sampler = with_scores(sampler_on(SQUARE, ThompsonSettings(features=30, refit_every=10)), 70)
    sampler.ask(1)
    text = json.dumps(sampler.state_dict())
    assert len(text) < 8_000  # three numbers of twenty characters each, 70 times, and a fit


# ------------------------------------------------------------------ initial points


def test_initial_points_stay_in_their_box():
    units = sampler_on(SQUARE).explore(50, np.array([0.5, 0.0]), np.array([1.0, 0.5]))
    assert units.shape == (50, 2)
    assert SQUARE.inside(units, np.array([0.5, 0.0]), np.array([1.0, 0.5])).all()


# ------------------------------------------------------------------ own model or shared function


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 1.0])
def test_a_shared_function_is_followed_with_probability_one_minus_p(p):
    sampler, shared, rounds = sampler_on(GRID), function_for(GRID), 1500
    followed = sum(sampler.ask(t, p, shared).source == "advice" for t in range(1, rounds + 1))
    # four standard deviations of a binomial; none at the ends
    assert abs(followed - (1 - p) * rounds) <= 4 * math.sqrt(p * (1 - p) * rounds)


def test_without_a_shared_function_an_agent_follows_its_own_model():
    assert sampler_on(GRID).ask(1, 0.0).source == "own"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_shared_function_is_maximised_over_all_sub_regions(count):
    sampler, shared = with_scores(sampler_on(GRID), 3), function_for(GRID, count=count)
    proposal = sampler.ask(1, 0.0, shared)
    # Algorithm 2, line 8
    home = shared.regions.locate(GRID.points)
    values = (sampler.features(GRID.points) * shared.weights[home]).sum(axis=1)
    assert proposal.source == "advice"
    assert np.array_equal(proposal.unit, GRID.points[np.argmax(values)])


def test_an_own_proposal_maximises_a_sample_of_the_posterior():
    # With many observations of tiny noise the sample is the function: its maximum is known.
    settings = ThompsonSettings(features=30, kernel="se", lengthscale=0.2, noise=1e-6)
    sampler = sampler_on(GRID, settings)
    for unit in GRID.points[::2]:
        sampler.tell(unit, -((unit[0] - 0.47) ** 2))
    best = GRID.points[np.abs(GRID.points[:, 0] - 0.47).argmin()]
    assert np.array_equal(sampler.ask(1).unit, best)


def test_own_proposals_have_the_law_of_the_posteriors_maximiser():
    # Three points, two observations: the chance that each is the largest of the posterior, by
    # a million draws of the exact Gaussian, against 1,500 proposals (4 standard deviations, and
    # 0.02 for the 256 features of a path).
    three = Space({"x": Float(0, 1)}, np.array([[0.1], [0.5], [0.9]]))
    settings = ThompsonSettings(
        features=5, kernel="se", lengthscale=0.3, noise=0.1, refit_every=0, standardise=False
    )
    sampler = sampler_on(three, settings)
    sampler.tell(three.points[0], 0.4)
    sampler.tell(three.points[1], -0.2)
    model = GaussianProcess(SquaredExponential(0.3), 0.1, three.points[:2], np.array([0.4, -0.2]))
    k = model.kernel(three.points, three.points)
    cross = k[:, :2]
    solve = np.linalg.solve(k[:2, :2] + 0.1 * np.eye(2), cross.T)
    mean, covariance = model.posterior(three.points)[0], k - cross @ solve
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, 200_000)
    expected = np.bincount(draws.argmax(axis=1), minlength=3) / 200_000
    rounds = 1500
    found = [three.points[:, 0].tolist().index(sampler.ask(t).unit[0]) for t in range(rounds)]
    shares = np.bincount(found, minlength=3) / rounds
    np.testing.assert_allclose(shares, expected, atol=4 * math.sqrt(0.25 / rounds) + 0.02)


def test_a_shared_function_needs_the_features_it_was_made_for():
    sampler = ThompsonSampler(GRID, QUICK)
    with pytest.raises(ValueError, match="features it was made for"):
        sampler.ask(1, 0.0, function_for(GRID))
    with pytest.raises(ValueError, match="without shared features has no message"):
        sampler.message(1)


# ------------------------------------------------------------------ beta


@pytest.mark.parametrize("rule", ["constant", "theory"])
def test_beta_is_constant_or_the_theorems(rule, monkeypatch):
    seen = []
    original = GaussianProcess.sample_path

    def spy(self, rng, beta=1.0, **options):
        seen.append(beta)
        return original(self, rng, beta, **options)

    monkeypatch.setattr(GaussianProcess, "sample_path", spy)
    settings = ThompsonSettings(
        features=30, beta=1.5, beta_rule=rule, lengthscale=0.2, noise=0.04, refit_every=0
    )
    sampler = sampler_on(GRID, settings)
    sampler.ask(1)
    with_scores(sampler, 8)
    sampler.ask(2)
    if rule == "constant":
        assert seen == [1.5, 1.5]
        return
    model = sampler.model()
    gain = 0.5 * np.linalg.slogdet(np.eye(8) + model.kernel(model.x, model.x) / 0.04)[1]
    for beta, gamma in zip(seen, (0.0, gain), strict=True):
        # beta_t = B + sigma sqrt(2 (gamma + 1 + log(4 / delta))), delta = 0.1
        expected = 1.5 + 0.2 * math.sqrt(2 * (gamma + 1 + math.log(4 / 0.1)))
        assert beta == pytest.approx(expected, rel=1e-9)


# ------------------------------------------------------------------ messages


def test_a_message_is_a_draw_of_equation_2():
    settings = ThompsonSettings(features=12, feature_noise=0.1, standardise=False)
    sampler = with_scores(sampler_on(GRID, settings), 6)
    design = sampler.features(np.array(sampler.state_dict()["units"]))
    scores = np.array(sampler.state_dict()["scores"])
    sigma = design.T @ design + 0.1 * np.eye(12)
    mean, covariance = np.linalg.solve(sigma, design.T @ scores), 0.1 * np.linalg.inv(sigma)
    count = 3000
    draws = np.array([sampler.message(t) for t in range(count)])
    deviation = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4 * deviation / math.sqrt(count))
    error = np.abs(np.cov(draws.T) - covariance)
    assert np.all(error < 5 * math.sqrt(2 / count) * np.outer(deviation, deviation))
    average = sampler_on(GRID, ThompsonSettings(features=12, feature_noise=0.1, message="mean",
                                                standardise=False))  # fmt: skip
    np.testing.assert_allclose(with_scores(average, 6).message(1), mean, rtol=1e-9)


def test_messages_are_in_standardised_scores():
    # An agent with larger scores must not count more: scores 1000 y + 7 give the same message.
    plain, large = sampler_on(GRID), sampler_on(GRID)
    for unit in GRID.points[::7]:
        plain.tell(unit, score_of(unit))
        large.tell(unit, 1000 * score_of(unit) + 7)
    np.testing.assert_allclose(plain.message(1), large.message(1), rtol=1e-9)
    assert np.array_equal(plain.ask(1).unit, large.ask(1).unit)


# ------------------------------------------------------------------ failures and odd scores


def test_failures_that_are_not_learned_leave_the_model_as_it_is():
    settings = ThompsonSettings(features=30, learn_failures=False)
    plain = with_scores(sampler_on(SQUARE, settings), 6)
    failing = sampler_on(SQUARE, settings)
    points = SQUARE.sample(6, np.random.default_rng(0))
    for unit in points:
        failing.tell(unit + 0.1 * (0.5 - unit), None)
        failing.tell(unit, score_of(unit))
    assert np.array_equal(plain.message(1), failing.message(1))
    assert same_proposal(plain.ask(1), failing.ask(1))
    assert failing.best()[1] == plain.best()[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused(bad):
    sampler = sampler_on(SQUARE)
    with pytest.raises(ValueError, match=r"finite \(None for a failure\), but got"):
        sampler.tell(np.zeros(2), bad)
    assert sampler.state_dict()["units"] == []


@pytest.mark.parametrize("space", [Space({"k": Categorical(list("abcde"))}), GRID, SQUARE])
def test_a_point_that_failed_is_not_proposed_again(space):
    settings = ThompsonSettings(features=30, learn_failures=False)
    sampler, shared = sampler_on(space, settings), function_for(space)
    failed = []
    for _ in range(4):
        proposal = sampler.ask(1, 0.0, shared)  # the same function has the same maximum
        assert not any(np.array_equal(proposal.unit, f) for f in failed)
        # One that does not learn draws at random instead of the same maximum.
        assert proposal.source == ("escape" if failed else "advice")
        assert np.array_equal(space.snap(proposal.unit[None])[0], proposal.unit)
        sampler.tell(proposal.unit, None)
        failed.append(proposal.unit)


def test_where_every_point_failed_points_are_proposed_again():
    space = Space({"k": Categorical(["a", "b"])})
    sampler = sampler_on(space)
    for unit in (0.25, 0.75):
        sampler.tell(np.array([unit]), None)
    assert sampler.ask(1).source == "escape"
    assert sampler.best() is None
    assert np.isfinite(sampler.message(1)).all()


@pytest.mark.parametrize(
    "scores",
    [[5.0] * 6, [0.0] * 6, [1e308, -1e308, 0, 1, 2, 3], [1e-320] * 5 + [0.0],
     [1.0 + 1e-15 * i for i in range(6)], [-7.0]],
)  # fmt: skip
@pytest.mark.parametrize("standardise", [True, False])
def test_odd_scores_do_not_break_it(scores, standardise):
    if not standardise and max(map(abs, scores)) > 1e200:
        scores = [s / 1e300 for s in scores]  # squares of raw scores are what they are
    sampler = sampler_on(SQUARE, ThompsonSettings(features=30, standardise=standardise))
    for unit, score in zip(SQUARE.sample(6, np.random.default_rng(1)), scores, strict=False):
        sampler.tell(unit, score)
    proposal = sampler.ask(1)
    assert np.all((proposal.unit >= 0) & (proposal.unit <= 1))
    assert np.isfinite(sampler.message(1)).all()


@pytest.mark.parametrize("scores", [[0.5], [0.0] * 6, [1e308, -1e308, 0, 1, 2], [1e308, 1e308]])
@pytest.mark.parametrize("scale", [[0.0, 0.0], [9.0, -9.0], [-9.0, 9.0]])
def test_odd_scores_with_any_shared_scale_do_not_break_it(scores, scale):
    chosen = ThompsonSettings(
        features=30, acquisition="improvement", advice_use="prior", message="mean",
        vector_bound=2.0, reward_low=0.0, reward_high=1.0,
    )  # fmt: skip
    sampler = sampler_on(SQUARE, chosen)
    weights = np.random.default_rng(2).normal(size=(1, 30)) / 4
    shared = shared_function_of(np.hstack([weights, [scale]]), Regions((1, 1)), chosen)
    sampler.set_shared_function(shared)
    for unit, score in zip(SQUARE.sample(6, np.random.default_rng(1)), scores, strict=False):
        sampler.tell(unit, score)
        proposal = sampler.ask(1)
        assert np.all((proposal.unit >= 0) & (proposal.unit <= 1))
        message = sampler.message(1)
        assert message.shape == (chosen.vector_length,)
        # rounding of a norm
        assert np.linalg.norm(message) <= chosen.max_norm * (1 + 1e-12)


def test_what_others_say_of_another_range_of_scores_is_not_believed():
    # An accuracy in percent in a run whose range is 0 to 1: the shared mean and spread are of
    # scores that were cut to this range.
    chosen = ThompsonSettings(
        features=30, acquisition="improvement", advice_use="prior", message="mean",
        reward_low=0.0, reward_high=1.0,
    )  # fmt: skip
    weights = np.random.default_rng(2).normal(size=(1, 30)) / 4
    points = SQUARE.sample(4, np.random.default_rng(1))

    def targets(scores, reward_high=1.0):
        stated = replace(chosen, reward_high=reward_high)
        sampler = sampler_on(SQUARE, stated)
        shared = shared_function_of(np.hstack([weights, [[0.7, 0.0]]]), Regions((1, 1)), stated)
        sampler.set_shared_function(shared)
        for unit, score in zip(points, scores, strict=True):
            sampler.tell(unit, score)
        return sampler.own_model.targets()

    percent = np.array([70.0, 75.0, 80.0, 85.0])
    assert targets(percent) == pytest.approx(standardise_scores(percent))
    assert targets(percent, 100.0) != pytest.approx(standardise_scores(percent))
    # noise that takes a score out of the range a little is no sign of another range
    assert targets(percent / 80.0) != pytest.approx(standardise_scores(percent))


def test_a_point_repeated_many_times_is_no_obstacle():
    settings = ThompsonSettings(features=30, noise=1e-12)
    sampler = sampler_on(SQUARE, settings)
    rng = np.random.default_rng(0)
    for _ in range(40):
        sampler.tell(np.array([0.5, 0.5]), float(rng.normal()))
    sampler.tell(np.array([0.2, 0.8]), 1.0)
    assert np.isfinite(sampler.ask(1).unit).all()
    assert np.isfinite(sampler.message(1)).all()


# ------------------------------------------------------------------ fits and settings


@pytest.mark.parametrize("name", SPACES)
def test_the_first_point_may_be_of_the_middle(name):
    space = SPACES[name]
    middle = ThompsonSettings(features=30, first_point="middle")
    drawn = [
        sampler_on(space, middle, seed=(n,)).explore(2) for n in range(200)
    ]  # the first of two, of 200 agents
    first, second = np.array(drawn)[:, 0], np.array(drawn)[:, 1]
    numbers = [not isinstance(p, Categorical) for p in space.parameters.values()]
    assert np.all(np.abs(first[:, numbers] - 0.5) <= 0.25 + 0.5 / 49)  # a grid of 50 rounds it
    # categories, and all of the second point, are of the whole space
    assert np.ptp(second, axis=0).min() > 0.9 if name != "mixed" else True
    if name == "mixed":
        assert len(np.unique(first[:, -1])) == 2
    # not at the first point of the next rounds
    later = sampler_on(space, middle).explore(200, round=1)
    assert np.ptp(later[:, 0]) > 0.9


def on_a_plateau(count, **given):
    settings = ThompsonSettings(features=30, acquisition="improvement", **given)
    sampler = ThompsonSampler(SQUARE, settings, features_for(SQUARE, settings), (5,))
    for round in range(count):
        sampler.tell(sampler.ask(round).unit, 0.3)
    return sampler


def test_on_a_plateau_points_are_drawn_at_random():
    # With equal scores, the expected improvement would be largest in the corners every time.
    units = np.array(on_a_plateau(20).state_dict()["units"])
    assert len(np.unique(units, axis=0)) == 20
    # Uniform points are within .02 of the boundary with probability 1 - .96^2 = .08: at least
    # 7 of 20 have a probability below 2e-3.
    assert (np.minimum(units, 1 - units).min(axis=1) < 0.02).sum() < 7


def test_equal_scores_are_not_fitted():
    fits = []
    sampler = ThompsonSampler(SQUARE, QUICK, features_for(SQUARE), (5,), lambda *f: fits.append(f))
    for unit in SQUARE.sample(12, np.random.default_rng(0)):
        sampler.tell(unit, 0.3)
    sampler.model()
    assert not fits
    sampler.tell(np.array([0.5, 0.5]), 0.4)
    for unit in SQUARE.sample(7, np.random.default_rng(1)):
        sampler.tell(unit, 0.3)
    sampler.model()
    assert len(fits) == 1


def test_a_prior_mean_is_used_on_a_plateau_too():
    sampler = on_a_plateau(3, advice_use="prior")
    shared = function_for(SQUARE, sampler.settings)
    assert sampler.ask(3, shared=shared).source == "own"
    assert np.array_equal(sampler.ask(3, shared=shared).unit, sampler.ask(3).unit)


def test_fits_are_made_when_due_and_reported_once():
    made = []
    settings = ThompsonSettings(features=30, refit_every=4)
    sampler = sampler_on(SQUARE, settings, on_fit=lambda n, found: made.append(n))
    for count, unit in enumerate(SQUARE.sample(13, np.random.default_rng(0)), start=1):
        sampler.tell(unit, score_of(unit))
        sampler.ask(count)
        sampler.ask(count)
    assert made == [4, 8, 12]
    assert set(sampler.state_dict()["fits"]) == {"4", "8", "12"}


def test_without_fits_the_given_parameters_stand():
    settings = ThompsonSettings(
        features=30, kernel="se", lengthscale=0.11, noise=0.02, refit_every=0
    )
    model = with_scores(sampler_on(SQUARE, settings), 12).model()
    assert isinstance(model.kernel, SquaredExponential)
    np.testing.assert_allclose(model.kernel.lengthscales, 0.11)
    assert (model.noise, model.kernel.variance) == (0.02, 1.0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"initial_points": 0}, "`initial-points` must be >= 1, but got 0"),
        ({"features": 0}, "`features` must be >= 1, but got 0"),
        ({"beta": 0.0}, "`beta` must be > 0"),
        ({"kernel": "rbf"}, r"`kernel` must be matern52 \| matern32 \| se, but got 'rbf'"),
        ({"noise": -1.0}, "`noise` must be > 0, but got -1.0"),
        ({"refit_every": -1}, "`refit-every` must be >= 0"),
        ({"message": "median"}, r"`message` must be sample \| mean"),
    ],
)
def test_bad_settings_are_refused(given, says):
    with pytest.raises(SettingsError, match=says):
        ThompsonSettings(**given)


# ------------------------------------------------------------------ the point that is given out


def told_of_a_lucky_point(pick):
    """A sampler that knows a hill at .3, and one point of .9 whose neighbours are low."""
    line = Space({"x": Float(0, 1)})
    chosen = ThompsonSettings(features=30, pick=pick, lengthscale=0.15, noise=0.3)
    sampler = ThompsonSampler(line, chosen, seed=(3,))
    for x in (0.2, 0.25, 0.3, 0.35, 0.4):
        sampler.tell(np.array([x]), 0.8 - (x - 0.3) ** 2)
    for x, score in ((0.85, 0.1), (0.9, 0.9), (0.95, 0.1), (0.6, 0.2)):
        sampler.tell(np.array([x]), score)
    return sampler


def test_the_best_score_or_the_best_mean_is_given_out():
    by_score = told_of_a_lucky_point("score").best()
    assert by_score[0] == pytest.approx([0.9])
    by_mean = told_of_a_lucky_point("mean").best()
    # the score is that of the point, whatever the mean is
    assert by_mean[0] == pytest.approx([0.3])
    assert by_mean[1] == pytest.approx(0.8)


def test_without_noise_the_best_mean_is_the_best_score():
    chosen = ThompsonSettings(features=30, pick="mean", noise=1e-6)
    sampler = with_scores(sampler_on(SQUARE, chosen), 12)
    assert sampler.best()[1] == max(sampler.own_model.scores)


def test_asking_for_the_best_point_changes_no_proposal():
    chosen = ThompsonSettings(features=30, pick="mean", refit_every=3, advice_use="prior")
    asked, left = sampler_on(SQUARE, chosen), sampler_on(SQUARE, chosen)
    for t in range(8):
        function = function_for(SQUARE, chosen, seed=t)
        proposals = [sampler.ask(t, shared=function).unit for sampler in (asked, left)]
        np.testing.assert_array_equal(*proposals)
        for sampler in (asked, left):
            sampler.tell(proposals[0], score_of(proposals[0]))
        assert asked.best() is not None
    assert asked.state_dict() == left.state_dict()


# ------------------------------------------------------------------ a hill on a plateau

NETWORK = Space({"rate": Float(1e-4, 1.0, True), "depth": Int(1, 12), "k": Categorical(["a", "b"])})


def height(unit):
    """A plateau with a hill of .09, and a cliff of .4 beside the hill: a rate that is too large."""
    rate = 10.0 ** (4.0 * unit[0] - 4.0)
    return 0.9 - (rate - 0.35) ** 2


def regret_on_a_plateau(seed, count=20, **changes):
    sampler = ThompsonSampler(NETWORK, DPFTSDESettings(features=30, **changes), seed=(seed,))
    noise = np.random.default_rng([seed, 5])
    for t in range(count):
        unit = sampler.explore(2)[t] if t < 2 else sampler.ask(t).unit
        sampler.tell(unit, height(unit) + 0.01 * noise.standard_normal())
    return 0.9 - height(sampler.best()[0])


def test_a_plateau_and_a_cliff_do_not_hide_a_hill():
    """The noise of a plateau is taken for a slope, and a cliff for the scale of all scores."""
    now = np.mean([regret_on_a_plateau(seed) for seed in range(10)])
    before = {"cut_low_scores": False, "spread_points": 0, "pick": "score"}
    assert now < 0.4 * np.mean([regret_on_a_plateau(seed, **before) for seed in range(10)])


def test_scores_that_are_not_cut_stay_as_they_are():
    for cut in (True, False):
        sampler = ThompsonSampler(SQUARE, DPFTSDESettings(features=30, cut_low_scores=cut))
        for score in (0.1, 0.7, 0.8, 0.85, 0.9):
            sampler.tell(np.array([score, 0.5]), score)
        assert sampler.own_model.scores[0] == 0.1
        assert sampler.own_model.scores_to_scale[0] == pytest.approx(0.6 if cut else 0.1)


# ------------------------------------------------------------------ points that are spread


@pytest.mark.parametrize("failing", [False, True])
def test_the_first_points_reach_every_part_of_every_range(failing):
    chosen = DPFTSDESettings(features=30, feature_lengthscale=0.2, spread_points=5)
    sampler, units = sampler_on(NETWORK, chosen), []
    for t in range(5):
        units.append(sampler.explore(2)[t] if t < 2 else sampler.ask(t).unit)
        sampler.tell(units[-1], None if failing else float(units[-1][0]))
    rate, depth, k = np.array(units).T
    # the first two points may share a part, and so one part may be left out
    assert len(set((5 * rate).astype(int))) >= 4
    assert len(set((5 * depth).astype(int))) >= 4
    assert sorted(np.bincount((2 * k).astype(int))) in ([2, 3], [1, 4])
    if not failing:
        assert sampler.ask(5).source == "own"


def test_points_are_not_spread_where_others_tell_something():
    chosen = DPFTSDESettings(features=30, feature_lengthscale=0.2)
    sampler = with_scores(sampler_on(SQUARE, chosen), 1)
    assert sampler.ask(1).source == "initial"
    assert sampler.ask(1, shared=function_for(SQUARE, chosen)).source == "own"


def test_points_under_way_count_as_spread():
    chosen = DPFTSDESettings(features=30, feature_lengthscale=0.2, spread_points=4)
    sampler, pending = sampler_on(SQUARE, chosen), []
    for unit in ([0.1, 0.6], [0.4, 0.9]):
        sampler.tell(np.array(unit), score_of(np.array(unit)))
    for play in range(2):
        pending.append(sampler.ask(1, play=play, pending=pending).unit)
    every = np.vstack([sampler.own_model.units, pending])
    for column in every.T:
        assert sorted((4 * column).astype(int)) == [0, 1, 2, 3]
    assert sampler.ask(1, play=2, pending=pending).source == "own"
