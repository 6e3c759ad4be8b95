"""Agents and failed evaluations: what is learned, what is proposed, and what leaves the agent."""

from __future__ import annotations

import json

import numpy as np
import pytest

from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.comparators.surrogates import GPSurrogates
from flwr_fbo.methods.comparators.taf import TAFAgent, TAFSettings
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.failures import REACH, Failures
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.models.features import RandomFeatures, feature_lengthscales
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.regions import Regions

from .thompson_harness import SQUARE

WHOLE = Regions((1, 1))
MIXED = Space({"x": Float(0, 1), "n": Int(1, 12), "k": Categorical(["a", "b"])})
DEFAULT = DPFTSDESettings()
AGENTS = {
    "improvement": DEFAULT,
    "samples": ThompsonSettings(features=50),
    "sampled prior mean": ThompsonSettings(features=50, advice_use="prior"),
}


def features_for(space, settings):
    scales = settings.feature_lengthscale or feature_lengthscales(settings.features, 2)
    kernel = kernel_named("se", scales)
    rng = np.random.default_rng(0)
    return RandomFeatures.draw(kernel, settings.features, space.embedding_dimension, rng)


def agent(settings=DEFAULT, seed=1, space=SQUARE, **changes):
    given = type(settings)(**{**vars(settings), **changes})
    return ThompsonSampler(space, given, features_for(space, given), (seed,))


def corner(unit):
    """A score with its maximum just inside the border of a corner where evaluations fail."""
    return None if unit.sum() > 1.4 else -float(((unit - 0.67) ** 2).sum())


def optimised(sampler, rounds=15):
    """Return the points of a whole optimisation, and which of them failed."""
    units = list(sampler.explore(2))
    for round in range(1, rounds + 1):
        for unit in units[round * 0 if round == 1 else -1 :]:
            sampler.tell(unit, corner(unit))
        units.append(sampler.ask(round).unit)
    return np.array(units), np.array([corner(u) is None for u in units])


@pytest.mark.parametrize("kind", AGENTS)
def test_fewer_evaluations_fail_where_failures_are_learned(kind):
    settings, failed, best = AGENTS[kind], {}, {}
    for learn in (True, False):
        runs = [optimised(agent(settings, s, learn_failures=learn)) for s in range(4)]
        failed[learn] = sum(int(f.sum()) for _, f in runs)
        best[learn] = np.mean([max(corner(unit) for unit in u[~f]) for u, f in runs])
    assert failed[False] > 15  # of 68
    assert failed[True] < 0.7 * failed[False]
    # Four seeds have a standard error of about .01.
    assert best[True] > best[False] - 0.03


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("space", [SQUARE, MIXED])
def test_nothing_within_reach_of_a_failed_point_is_proposed(space, kind):
    sampler = agent(AGENTS[kind], 2, space)
    for round in range(1, 12):
        unit = sampler.ask(round).unit
        state = sampler.state_dict()
        for failed in state["failed"]:
            apart = space.embed(unit) - space.embed(np.array(failed))
            assert np.linalg.norm(apart) >= REACH
        sampler.tell(unit, None if round % 4 else float(unit[0]))


def test_an_agent_restored_after_failures_proposes_the_same():
    live = agent()
    optimised(live)
    restored = agent()
    restored.load_state_dict(json.loads(json.dumps(live.state_dict())))
    assert np.array_equal(restored.ask(40).unit, live.ask(40).unit)
    assert np.array_equal(restored.message(40), live.message(40))


def test_the_order_of_successes_and_failures_does_not_matter():
    # A journal may hold an evaluation under way after a later one that failed.
    one, other = agent(), agent()
    points = SQUARE.sample(6, np.random.default_rng(0))
    scores = [0.1, None, 0.3, None, 0.2, 0.5]
    for unit, score in zip(points, scores, strict=True):
        one.tell(unit, score)
    for score_of in (True, False):
        for unit, score in zip(points, scores, strict=True):
            if (score is not None) == score_of:
                other.tell(unit, score)
    assert np.array_equal(one.ask(1).unit, other.ask(1).unit)


# ------------------------------------------------------------------ what leaves


def function_of(sampler, message):
    scale = sampler.settings.features
    return SharedFunction(message[None, :scale], WHOLE).path(sampler.features)


def with_failures(sampler):
    rng = np.random.default_rng(3)
    for unit in SQUARE.sample(10, rng):
        sampler.tell(unit, float(unit.sum()))
    for unit in np.array([0.8, 0.8]) + 0.05 * rng.standard_normal((5, 2)):
        sampler.tell(unit, None)
    return sampler


def test_the_shared_function_is_low_where_evaluations_failed():
    learned = with_failures(agent())
    ignored = with_failures(agent(learn_failures=False))
    at = np.array([[0.8, 0.8]])
    low, plain = (function_of(a, a.message(1)).value(at)[0] for a in (learned, ignored))
    assert low < plain - 0.3
    assert low < 0


def test_without_learning_failures_leave_no_trace_in_a_message():
    ignored, plain = with_failures(agent(learn_failures=False)), agent()
    for unit, score in zip(*(ignored.state_dict()[k] for k in ("units", "scores")), strict=True):
        plain.tell(np.array(unit), score)
    assert np.array_equal(ignored.message(1), plain.message(1))


@pytest.mark.parametrize("successes", [0, 1, 8])
def test_a_message_with_failures_has_the_length_and_the_bound_of_any_other(successes):
    scale = {"reward_low": 0.0, "reward_high": 1.0}
    sampler, rng = agent(**scale), np.random.default_rng(4)
    for unit in SQUARE.sample(successes, rng):
        sampler.tell(unit, float(unit[0]))
    numbers = sampler.message(1)[DEFAULT.features :]
    for unit in SQUARE.sample(200, rng):
        sampler.tell(unit, None)
    message = sampler.message(1)
    assert message.shape == (sampler.settings.vector_length,)
    assert np.linalg.norm(message) <= sampler.settings.max_norm * (1 + 1e-12)
    # The two numbers of the scale say nothing of failures.
    assert np.array_equal(message[DEFAULT.features :], numbers)


def test_a_failure_counts_as_the_worst_score_and_is_below_the_mean():
    failures = Failures(SQUARE, "matern52")
    failures.add(np.array([0.5, 0.5]))
    x = np.array([[0.1, 0.1], [0.2, 0.2]])
    assert failures.add_scores(x, np.array([0.5, -0.5]))[1].tolist() == [0.5, -0.5, -1.0]
    assert failures.add_scores(x, np.array([0.5, -2.5]))[1].tolist() == [0.5, -2.5, -2.5]
    assert failures.add_scores(np.zeros((0, 2)), np.zeros(0))[1].tolist() == [-1.0]


# ------------------------------------------------------------------ other agents


def test_agents_with_others_models_avoid_failures_too():
    rng = np.random.default_rng(0)
    target = TAFAgent(
        SQUARE, GPSurrogates.of(SQUARE, [], ThompsonSettings()), TAFSettings(),
        ThompsonSettings(), (1,),
    )  # fmt: skip
    for unit in SQUARE.sample(6, rng):
        target.tell(unit, float(unit[0]))
    first = target.ask(1)
    for near in first + 0.02 * rng.standard_normal((6, 2)):
        target.tell(np.clip(near, 0, 1), None)
    assert np.linalg.norm(target.ask(1) - first) > 0.1
