"""The agent behind the protocol: evaluates once, survives crashes, and sends only omega."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluator
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.thompson.agent import KIND, thompson_setup
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.search.regions import Regions

from .thompson_harness import SQUARE, CrashingRecords, JsonRecords, Party, bump

SETTINGS = ThompsonSettings(features=20, initial_points=4)
OMEGA = {"omega": (20,)}
EXPLORE = Request("explore", 0, {"count": 4, "home": 1}, {}, OMEGA)


def setup_on(space=SQUARE, settings=SETTINGS, splits=(2, 2)):
    return thompson_setup(space, settings, Regions(splits), np.random.default_rng(0))


def step(t, weights=None, p=0.5, expects=OMEGA):
    arrays = {} if weights is None else {"advice": weights}
    return Request("step", t, {"own-probability": p}, arrays, expects)


def shared_weights(count=4, seed=2):
    return np.random.default_rng(seed).standard_normal((count, 20))


def schedule(rounds=7):
    return [EXPLORE, *(step(t, shared_weights(seed=t)) for t in range(1, rounds + 1))]


def test_the_setup_holds_what_agents_must_know_and_no_more():
    setup = setup_on()
    assert setup.kind == KIND
    assert set(setup.arrays) == {"frequencies", "phases", "splits"}
    assert setup.arrays["frequencies"].shape == (20, 2)
    assert setup.arrays["splits"].tolist() == [2, 2]
    assert ThompsonSettings.from_mapping(setup.values) == SETTINGS


def test_an_agent_explores_its_sub_region_and_then_takes_steps():
    party = Party(setup_on())
    reply = party.answer(EXPLORE)
    assert set(reply.arrays) == {"omega"}
    made = party.evaluations()
    assert [(e["round"], e["play"], e["source"]) for e in made] == [
        (0, k, "initial") for k in range(4)
    ]
    units = np.array([e["unit"] for e in made])
    assert np.all(Regions((2, 2)).locate(units) == 1)
    assert party.answer(step(1, expects={})).arrays == {}
    assert party.evaluations()[-1]["source"] == "own"


@pytest.mark.parametrize("said", [False, True])
def test_scores_leave_only_in_a_run_that_says_so_whatever_a_server_asks(said):
    setup = setup_on(settings=dataclasses.replace(SETTINGS, diagnostics=said))
    asked = dataclasses.replace(EXPLORE, expects={**OMEGA, "diagnostics": (2,)})
    sent = {"omega", "diagnostics"} if said else {"omega"}
    assert set(Party(setup).build().answer(asked).arrays) == sent


def test_home_minus_one_is_the_whole_space():
    party = Party(setup_on())
    party.answer(Request("explore", 0, {"count": 40, "home": -1}))
    units = np.array([e["unit"] for e in party.evaluations()])
    assert set(Regions((2, 2)).locate(units).tolist()) == {0, 1, 2, 3}


def test_a_request_delivered_twice_is_evaluated_once_and_answered_the_same():
    party = Party(setup_on())
    for request in schedule():
        first = party.answer(request)
        calls = party.calls
        again = party.answer(request)
        assert party.calls == calls
        assert np.array_equal(first.arrays["omega"], again.arrays["omega"])


def test_rebuilt_for_every_message_it_is_the_same_agent():
    # as on Flower, where a client object lives for one message
    living, rebuilt = Party(setup_on(), seed=5), Party(setup_on(), seed=5)
    rebuilt.records = JsonRecords()
    for request in schedule(12):
        rebuilt.agent = rebuilt.build()
        a, b = living.answer(request), rebuilt.answer(request)
        assert np.array_equal(a.arrays["omega"], b.arrays["omega"])
    keys = ("round", "play", "unit", "score", "source")
    assert [[e[k] for k in keys] for e in living.evaluations()] == [
        [e[k] for k in keys] for e in rebuilt.evaluations()
    ]
    assert living.records.read("fit") == [
        {**r, "lengthscales": tuple(r["lengthscales"])} for r in rebuilt.records.read("fit")
    ]


@pytest.mark.parametrize("crash_after", range(1, 12))
def test_after_a_crash_at_any_evaluation_it_continues_exactly(crash_after):
    calm, crashed = Party(setup_on(), seed=6), Party(setup_on(), seed=6)
    crashed.records = CrashingRecords(left=crash_after)
    crashed.agent = crashed.build()
    crashes = 0
    for request in schedule():
        expected = calm.answer(request)
        try:
            found = crashed.answer(request)
        except KeyboardInterrupt:
            crashes += 1
            crashed.agent = crashed.build()
            found = crashed.answer(request)
        assert np.array_equal(found.arrays["omega"], expected.arrays["omega"])
    assert crashes == 1
    assert crashed.calls == calm.calls == 4 + 7


def test_fits_that_were_recorded_are_not_made_again(monkeypatch):
    party = Party(setup_on())
    for request in [EXPLORE, step(1), step(2), step(3)]:
        party.answer(request)
    assert [r["observations"] for r in party.records.read("fit")] == [5]

    def never(*args, **kwargs):
        raise AssertionError("fitted again")

    monkeypatch.setattr("flwr_fbo.models.hyperparameters.fit_together", never)
    party.build().answer(step(4))


# ------------------------------------------------------------------ the shared function


@pytest.mark.parametrize("count", [1, 4])
def test_a_shared_function_that_is_followed_is_maximised(count):
    space = Space({"x": Float(0, 1)}, np.linspace(0, 1, 200)[:, None])
    setup = setup_on(space, splits=(4,))
    party = Party(setup, lambda params, rng: 0.0)
    weights = shared_weights(count)
    party.answer(step(1, weights, p=0.0))
    waves = np.cos(space.points @ setup.arrays["frequencies"].T + setup.arrays["phases"])
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    home = Regions((4,)).locate(space.points) if count == 4 else np.zeros(200, int)
    best = space.points[np.argmax((waves * weights[home]).sum(axis=1))]
    assert party.evaluations()[0]["source"] == "advice"
    assert party.evaluations()[0]["unit"] == best.tolist()


@pytest.mark.parametrize(
    "bad", [np.zeros((3, 20)), np.zeros((4, 19)), np.zeros(20), np.full((4, 20), np.nan)]
)
def test_bad_weights_are_refused_before_anything_is_evaluated(bad):
    party = Party(setup_on())
    fault = r"`advice` must (have shape \(\d, 20\), but got|be finite, but holds NaN)"
    with pytest.raises(ValueError, match=fault):
        party.answer(step(1, bad, p=0.0))
    assert party.calls == 0


def test_an_unknown_request_is_refused():
    party = Party(setup_on())
    with pytest.raises(ValueError, match="step, final or listed, but got 'dance'"):
        party.answer(Request("dance", 0))
    assert party.calls == 0


# ------------------------------------------------------------------ histories


def test_a_history_is_a_bayesian_optimisation_before_the_start():
    party = Party(setup_on())
    request = Request("history", 0, {"count": 9}, {}, OMEGA)
    reply = party.answer(request)
    assert [e["source"] for e in party.evaluations()] == ["initial"] * 4 + ["own"] * 5
    assert np.array_equal(party.answer(request).arrays["omega"], reply.arrays["omega"])
    assert party.calls == 9
    short = Party(setup_on())
    short.answer(Request("history", 0, {"count": 2}))
    assert [e["source"] for e in short.evaluations()] == ["initial"] * 2


@pytest.mark.parametrize("crash_after", [1, 4, 6])
def test_a_history_survives_a_crash(crash_after):
    request = Request("history", 0, {"count": 9}, {}, OMEGA)
    calm, crashed = Party(setup_on()), Party(setup_on())
    crashed.records = CrashingRecords(left=crash_after)
    crashed.agent = crashed.build()
    with pytest.raises(KeyboardInterrupt):
        crashed.answer(request)
    crashed.agent = crashed.build()
    assert np.array_equal(
        crashed.answer(request).arrays["omega"], calm.answer(request).arrays["omega"]
    )
    assert crashed.calls == 9


# ------------------------------------------------------------------ failures


def flaky(params, rng):
    """Fails on the left, in four ways."""
    x = float(params["x"])
    if x < 0.1:
        raise RuntimeError("diverged")
    if x < 0.2:
        return float("nan")
    if x < 0.3:
        return float("inf")
    if x < 0.4:
        return "good"
    return bump(params, rng)


def test_failed_evaluations_are_recorded_and_the_run_goes_on():
    party = Party(setup_on(), flaky)
    party.answer(Request("explore", 0, {"count": 30, "home": -1}, {}, OMEGA))
    for t in range(1, 8):
        assert np.isfinite(party.answer(step(t, shared_weights(seed=t))).arrays["omega"]).all()
    made = party.evaluations()
    failed = [e for e in made if e["failure"]]
    assert len(made) == party.calls == 37
    assert {e["failure"].split(":")[0].split(",")[0] for e in failed} >= {
        "RuntimeError", "the score must be finite", "the score must be a number"
    }  # fmt: skip
    assert all(e["score"] is None for e in failed)
    units = [tuple(e["unit"]) for e in failed]
    assert len(set(units)) == len(units)
    state = party.agent.sampler.state_dict()
    assert len(state["scores"]) + len(state["failed"]) == 37


def test_an_agent_whose_every_evaluation_fails_still_answers():
    def broken(params, rng):
        raise MemoryError

    party = Party(setup_on(), broken)
    for request in schedule(3):
        assert np.isfinite(party.answer(request).arrays["omega"]).all()
    assert party.calls == 7
    assert len(party.records.read(Evaluator.KIND)) == 7
