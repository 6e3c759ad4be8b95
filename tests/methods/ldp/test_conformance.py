"""What every learner must satisfy, on finite arms and on a continuous space."""

import copy
import json

import numpy as np
import pytest

from flwr_fbo.core.space import Float, Int, Space
from flwr_fbo.methods.ldp import METHODS
from flwr_fbo.methods.ldp.domain import Continuum
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.models.kernels import kernel_named

from .support import arms, learner_class

MIXED = Space({"x": Float(0.0, 1.0), "n": Int(1, 60)})


def domains():
    return {
        "arms": arms(),
        "continuum": Continuum(MIXED, kernel_named("se", 0.3), 30),
    }


CASES = [
    (name, place, preset, "exact")
    for name in [method.name for method in METHODS]
    for place in ("arms", "continuum")
    for preset in ("practical", "orders", "theory")
] + [(n, "arms", p, "nystrom") for n in ("ata", "moma") for p in ("practical", "orders", "theory")]


@pytest.fixture(params=CASES, ids="-".join)
def make(request):
    name, place, preset, embedding = request.param
    epsilon = 2.0 if name.startswith("ldp-") else None
    settings = LDPSettings(
        budget=60,
        epsilon_per_answer=epsilon,
        constants=preset,
        embedding=embedding,
        epoch=3,
        bound=2.0,
    )
    return lambda seed=5: learner_class(name)(domains()[place], settings, seed)


def feed(learner, updates, rng):
    for _ in range(updates):
        points = learner.suggest()
        learner.update(points, rng.standard_t(3, len(points)))


def test_suggestions_are_points_of_the_space_and_all_alike(make):
    learner = make()
    for _ in range(4):
        points = learner.suggest()
        assert points.shape == (learner.plays, learner.domain.space.dimension)
        assert np.all(points == points[0])
        assert np.array_equal(learner.domain.space.snap(points), points)
        learner.update(points, np.linspace(-1, 1, len(points)))


def test_suggest_and_recommend_change_nothing(make):
    learner = make()
    feed(learner, 2, np.random.default_rng(0))
    before = copy.deepcopy(learner.state_dict())
    first = learner.suggest()
    learner.recommend()
    assert np.array_equal(first, learner.suggest())
    assert_same_state(before, learner.state_dict())


def test_a_restored_learner_goes_on_identically(make):
    learner = make()
    feed(learner, 4, np.random.default_rng(1))
    restored = make()
    restored.load_state_dict(through_json(learner.state_dict()))
    for step in range(3):
        assert np.array_equal(learner.suggest(), restored.suggest())
        feed(learner, 1, np.random.default_rng([2, step]))
        feed(restored, 1, np.random.default_rng([2, step]))
    assert_same_state(learner.state_dict(), restored.state_dict())


def test_the_same_seed_plays_the_same(make):
    one, other = make(), make()
    feed(one, 3, np.random.default_rng(3))
    feed(other, 3, np.random.default_rng(3))
    assert np.array_equal(one.suggest(), other.suggest())


def test_a_state_is_a_copy(make):
    learner = make()
    feed(learner, 1, np.random.default_rng(4))
    state = learner.state_dict()
    kept = copy.deepcopy(state)
    feed(learner, 2, np.random.default_rng(5))
    assert_same_state(state, kept)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rewards_that_are_not_finite_are_refused_and_change_nothing(make, bad):
    learner = make()
    feed(learner, 1, np.random.default_rng(6))
    points = learner.suggest()
    rewards = np.zeros(len(points))
    rewards[-1] = bad
    before = copy.deepcopy(learner.state_dict())
    with pytest.raises(ValueError, match="must be finite, but got"):
        learner.update(points, rewards)
    assert_same_state(before, learner.state_dict())


def test_wrong_numbers_of_rewards_and_strange_points_are_refused(make):
    learner = make()
    points = learner.suggest()
    with pytest.raises(ValueError, match=f"takes {learner.plays} rewards"):
        learner.update(points, np.zeros(learner.plays + 1))
    with pytest.raises(ValueError, match="must be"):
        learner.update(np.full_like(points, 0.123456), np.zeros(learner.plays))
    assert learner.updates == 0


def through_json(state):
    """The state as a run stores it: plain JSON, with arrays as typed lists."""

    def pack(value):
        if isinstance(value, np.ndarray):
            return {"dtype": str(value.dtype), "shape": value.shape, "data": value.ravel().tolist()}
        raise TypeError(f"{type(value)} is neither JSON nor an array")

    def unpack(value):
        if set(value) == {"dtype", "shape", "data"}:
            return np.array(value["data"], dtype=value["dtype"]).reshape(value["shape"])
        return value

    return json.loads(json.dumps(state, default=pack), object_hook=unpack)


def assert_same_state(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same_state(a[key], b[key])
    else:
        assert np.array_equal(a, b)
