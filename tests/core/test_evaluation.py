"""Evaluations: paid for once, recorded whatever happens, and never a score that is none."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluation, Evaluator, MemoryRecords
from tests.methods.thompson_harness import SQUARE, CrashingRecords, JsonRecords

UNIT = np.array([0.25, 0.75])


def evaluator(function, records=None, **options):
    return Evaluator(SQUARE, function, MemoryRecords() if records is None else records, **options)


def test_an_evaluation_is_made_once_and_recorded_whole():
    calls = []

    def score(params, rng):
        calls.append(params)
        return 2.5

    evaluate = evaluator(score, regret=lambda params: params["x"])
    first = evaluate(UNIT, round=3, play=1, source="own")
    again = evaluate(np.zeros(2), round=3, play=1)
    assert first is again
    assert calls == [{"x": 0.25, "y": 0.75}]
    assert first.unit == [0.25, 0.75]
    assert (first.score, first.failure, first.source, first.regret) == (2.5, "", "own", 0.25)
    assert not first.failed
    assert first.seconds >= 0
    assert evaluate.history == [first]
    assert evaluate.recorded(3, 1) is first
    assert evaluate.recorded(3, 0) is None
    json.dumps(asdict(first))


def test_records_outlive_the_evaluator():
    records = JsonRecords()
    first = evaluator(lambda p, rng: rng.random(), records)(UNIT, round=1)

    def never(params, rng):
        raise AssertionError("paid for twice")

    second = evaluator(never, records)
    assert second.history == [first]
    assert second(np.zeros(2), round=1) == first


def test_a_crash_after_recording_loses_nothing():
    records = CrashingRecords(left=1)
    with pytest.raises(KeyboardInterrupt):
        evaluator(lambda p, rng: 1.0, records)(UNIT, round=0)
    assert evaluator(lambda p, rng: 2.0, records)(UNIT, round=0).score == 1.0


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (math.nan, "must be finite, but got nan"),
        (math.inf, "must be finite, but got inf"),
        (np.float32(-np.inf), "must be finite"),
        (10**400, "must be finite"),
        ("0.9", "must be a number, but got '0.9'"),
        (None, "must be a number, but got None"),
        (True, "must be a number, but got True"),
        (np.bool_(True), "must be a number"),
        (1 + 2j, "must be a number"),
        (np.complex128(1), "must be a number"),
        (np.array(0.5), "must be a number"),
        ([0.5], "must be a number"),
    ],
)
def test_a_score_that_is_none_is_a_recorded_failure(result, says):
    records = JsonRecords()
    found = evaluator(lambda p, rng: result, records)(UNIT, round=0)
    assert found.failed
    assert found.score is None
    assert says in found.failure
    assert len(records.read(Evaluator.KIND)) == 1


@pytest.mark.parametrize("score", [1, np.int64(3), np.float32(0.5), np.float64(2), 1e308])
def test_numbers_of_all_kinds_are_scores(score):
    found = evaluator(lambda p, rng: score)(UNIT, round=0)
    assert type(found.score) is float
    assert found.score == float(score)


def test_an_exception_is_a_failure_that_names_it():
    def broken(params, rng):
        raise ZeroDivisionError("no data left")

    found = evaluator(broken)(UNIT, round=0)
    assert found.failure == "ZeroDivisionError: no data left"


def test_the_owner_can_still_stop_the_process():
    def stop(params, rng):
        raise KeyboardInterrupt

    records = MemoryRecords()
    with pytest.raises(KeyboardInterrupt):
        evaluator(stop, records)(UNIT, round=0)
    assert records.read(Evaluator.KIND) == []


def test_what_is_wrong_with_the_regret_is_said_before_anything_is_paid():
    calls = []

    def regret(params):
        raise LookupError("no optimum")

    evaluate = evaluator(lambda p, rng: calls.append(1) or 1.0, regret=regret)
    with pytest.raises(LookupError):
        evaluate(UNIT, round=0)
    assert calls == []


def test_noise_depends_on_seed_round_and_play_alone():
    def noise(params, rng):
        return rng.standard_normal()

    keys = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    forward, backward = evaluator(noise, seed=(7,)), evaluator(noise, seed=(7,))
    first = {k: forward(UNIT, round=k[0], play=k[1]).score for k in keys}
    second = {k: backward(UNIT, round=k[0], play=k[1]).score for k in reversed(keys)}
    assert first == second
    assert len(set(first.values())) == len(keys)
    assert evaluator(noise, seed=(8,))(UNIT, round=0).score != first[0, 0]


def test_noise_is_not_the_stream_that_chose_the_points():
    # A sampler keys its draws by (seed, purpose, round); with the same seed they must differ.
    first = evaluator(lambda p, rng: rng.random(), seed=(7,))
    scores = {first(UNIT, round=r, play=p).score for r in range(6) for p in range(6)}
    drawn = {np.random.default_rng([7, a, b]).random() for a in range(6) for b in range(6)}
    assert not scores & drawn


def test_records_are_copies():
    records = MemoryRecords()
    record = {"round": 1}
    records.append("note", record)
    record["round"] = 2
    records.read("note").clear()
    assert records.read("note") == [{"round": 1}]
    assert records.read("other") == []


def test_an_evaluation_can_be_read_back():
    found = evaluator(lambda p, rng: 0.5)(UNIT, round=2)
    assert Evaluation(**json.loads(json.dumps(asdict(found)))) == found
