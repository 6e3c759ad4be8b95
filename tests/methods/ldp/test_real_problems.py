"""Light sensors and stocks with the paper's recipe, through the learners."""

import os
from pathlib import Path

import numpy as np
import pytest

from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.methods.ldp.learners import make_learner
from flwr_fbo.methods.ldp.problem import problem_presets
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.search.acquisition import all_points
from flwr_fbo.tasks.papers.data.bandits import (
    light_problem,
    load_light_sensors,
    load_stocks,
    stock_problem,
)

from .support import learner_class, play

DATA = os.environ.get("FLWR_FBO_DATA", "")
pytestmark = pytest.mark.skipif(
    not DATA or not Path(DATA).is_dir(), reason="FLWR_FBO_DATA names no directory with the data"
)


@pytest.fixture(params=["light", "stocks"])
def problem(request):
    if request.param == "light":
        return light_problem(load_light_sensors(DATA))
    return stock_problem(load_stocks(DATA))


def space_of(problem):
    return Space({"arm": Categorical(tuple(range(len(problem.mean))))})


def test_arms_are_numbered_like_the_choices(problem):
    space = space_of(problem)
    points = all_points(space)
    assert [space.from_unit(p)["arm"] for p in points] == list(range(len(problem.mean)))


def test_in_raw_units_the_noise_is_absurd_and_scaling_changes_nothing_but_units(problem):
    # B and R scale with the rewards, and so does everything in the practical learner.
    settings = [
        LDPSettings.from_mapping({"epsilon-per-answer": 2.0}, problem_presets(p))
        for p in (problem, problem.normalised())
    ]
    learners = [
        make_learner(learner_class("ldp-tgp"), space_of(problem), s, 0, problem.covariance)
        for s in settings
    ]
    assert learners[0].model.scale > 400.0
    assert learners[0].regularisation == pytest.approx(learners[1].regularisation)
    for learner, unit in zip(learners, (problem.bound, 1.0), strict=True):
        rng = np.random.default_rng(1)
        for _ in range(30):
            points = learner.suggest()
            learner.update(points, unit * rng.normal(size=1))
    assert np.array_equal(learners[0].suggest(), learners[1].suggest())


@pytest.mark.parametrize("name", ["ata", "tgp", "moma"])
def test_the_best_arm_is_found_among_real_rewards(problem, name):
    problem = problem.normalised()
    settings = LDPSettings.from_mapping({"budget": 2000}, problem_presets(problem))
    learner = make_learner(learner_class(name), space_of(problem), settings, 0, problem.covariance)
    rng = np.random.default_rng(2)

    def pay(arm, count):
        rows = rng.integers(len(problem.noise), size=count)
        return problem.mean[arm] + problem.noise[rows, arm]

    gaps = problem.mean.max() - problem.mean[play(learner, pay, 2000)]
    assert gaps.mean() < 0.4 * (problem.mean.max() - problem.mean.mean())
