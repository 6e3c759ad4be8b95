"""Evaluations: paid for once, recorded whatever happens, and never a score that is none."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sys
import threading
import time
from dataclasses import asdict

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluation, Evaluator, MemoryRecords
from flwr_fbo.core.text import MOST_TEXT
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
        (1e308, "must be in [-1e+60, 1e+60], but got 1e+308"),
        (-1.1e60, "must be in [-1e+60, 1e+60]"),
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


@pytest.mark.parametrize("score", [1, np.int64(3), np.float32(0.5), np.float64(2), 1e60])
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


class TestAnEvaluationThatEndsItsProcess:
    """It is begun, has no score, and the next process closes it as failed."""

    def begin(self, records, session="", times=1):
        """Leave behind what a process leaves that ends in the middle of an evaluation."""
        for _ in range(times):
            evaluate = evaluator(lambda p, rng: 1.0, records, session=session)
            evaluate._begin(evaluate._evaluation(UNIT, 3, 1, "own"))

    def test_it_fails_where_what_started_the_process_goes_on(self):
        records = JsonRecords()
        self.begin(records, "node 1")
        evaluate = evaluator(pytest.fail, records, session="node 1")
        evaluate.close_unfinished(3)
        (lost,) = evaluate.history
        assert (lost.round, lost.play, lost.source) == (3, 1, "own")
        assert (lost.params, lost.unit) == ({"x": 0.25, "y": 0.75}, [0.25, 0.75])
        assert lost.failure == "the process ended in the middle of the evaluation"
        assert evaluate(np.zeros(2), round=3, play=1) is lost
        assert evaluator(pytest.fail, records).history == [lost]

    def test_elsewhere_it_is_made_again_at_the_same_point(self):
        records = JsonRecords()
        self.begin(records, "node 1")
        evaluate = evaluator(lambda p, rng: p["x"], records, session="node 2")
        evaluate.close_unfinished(3)
        assert evaluate.history == []
        made = evaluate(np.zeros(2), round=3, play=1, source="other")
        assert (made.score, made.params["y"], made.source) == (0.25, 0.75, "own")

    def test_it_is_made_again_once_only(self):
        records = JsonRecords()
        self.begin(records, times=2)
        lost = evaluator(pytest.fail, records)(np.zeros(2), round=3, play=1)
        assert lost.failed
        assert lost.failure == "2 processes ended in the middle of the evaluation"
        assert lost.unit == [0.25, 0.75]

    def test_it_fails_when_its_round_is_over(self):
        records = JsonRecords()
        self.begin(records)
        evaluate = evaluator(lambda p, rng: 1.0, records)
        evaluate.close_unfinished(4)
        assert [e.round for e in evaluate.history] == [3]
        assert evaluate(UNIT, round=4).score == 1.0

    @pytest.mark.parametrize("attempts", [1, 2])
    def test_ctrl_c_makes_it_as_if_it_had_never_begun(self, attempts):
        records = JsonRecords()

        def interrupted(params, rng):
            raise KeyboardInterrupt

        for _ in range(attempts):
            with pytest.raises(KeyboardInterrupt):
                evaluator(interrupted, records, session="one")(UNIT, round=0)
        evaluate = evaluator(lambda p, rng: 2.0, records, session="one")
        evaluate.close_unfinished(1)
        assert evaluate.history == []
        assert evaluate(UNIT, round=0).score == 2.0

    def test_sys_exit_is_a_failure(self):
        found = evaluator(lambda p, rng: sys.exit(0))(UNIT, round=0)
        assert (found.score, found.failure) == (None, "SystemExit: 0")

    def test_a_panic_that_is_no_exception_is_a_failure(self):
        class PanicException(BaseException):  # as libraries in Rust raise it
            pass

        def panic(params, rng):
            raise PanicException("index out of bounds")

        found = evaluator(panic)(UNIT, round=0)
        assert found.failure == "PanicException: index out of bounds"

    @pytest.mark.parametrize("package", ["flwr.supercore.exit", "ray"])
    def test_a_signal_that_ends_the_process_is_no_failure(self, package):
        handler = {"__name__": package, "sys": sys}
        exec("def handle():\n    sys.exit(0)", handler)  # as in Flower's handler of SIGTERM
        records = JsonRecords()
        with pytest.raises(SystemExit):
            evaluator(lambda p, rng: handler["handle"](), records)(UNIT, round=0)
        assert evaluator(lambda p, rng: 1.0, records)(UNIT, round=0).score == 1.0


class TestTexts:
    def test_a_long_unprintable_text_is_cut_and_escaped(self):
        def quotes(params, rng):
            raise ValueError("x\ud800\x1b[31m\n" * 100_000)

        failure = evaluator(quotes)(UNIT, round=0).failure
        assert failure.isprintable()
        assert failure.startswith("ValueError: x\\ud800\\x1b[31m x")
        assert len(failure) < 1.1 * MOST_TEXT
        assert "more characters" in failure
        failure.encode()

    def test_an_error_whose_text_fails_is_a_failure(self):
        class HostileError(Exception):
            def __str__(self):
                raise RuntimeError("no text")

        def fails(params, rng):
            raise HostileError

        found = evaluator(fails)(UNIT, round=0)
        assert found.failure == "HostileError: (its text cannot be read)"

    def test_a_large_value_is_quoted_in_few_words(self):
        class Hostile:
            def __repr__(self):
                raise RuntimeError("no repr")

        assert "<Hostile instance" in evaluator(lambda p, rng: Hostile())(UNIT, round=0).failure
        assert len(evaluator(lambda p, rng: [0.5] * 10**6)(UNIT, round=0).failure) < 200


class TestTheTimeLimit:
    def test_an_evaluation_that_catches_every_exception_is_ended(self):
        def stubborn(params, rng):
            while True:
                with contextlib.suppress(Exception):
                    time.sleep(100.0)

        found = evaluator(stubborn, limit=0.05)(UNIT, round=0)
        assert found.failure == "ended after 0.05 s, the `timeout` of a round"
        assert 0.05 <= found.seconds < 60.0

    def test_one_that_catches_everything_is_ended_at_the_next_alarm(self, monkeypatch):
        monkeypatch.setattr("flwr_fbo.core.time_limit.AGAIN", 0.01)
        caught = []

        def deaf(params, rng):
            try:
                time.sleep(100.0)
            except BaseException:
                caught.append(1)
            time.sleep(100.0)

        assert "ended after" in evaluator(deaf, limit=0.05)(UNIT, round=0).failure
        assert caught == [1]

    def test_an_alarm_that_was_set_before_comes_all_the_same(self):
        rang = []
        before = signal.signal(signal.SIGALRM, lambda number, frame: rang.append(1))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            assert evaluator(lambda p, rng: 1.0, limit=60.0)(UNIT, round=0).score == 1.0
            deadline = time.monotonic() + 60.0
            while not rang and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
        assert rang == [1]

    def test_outside_the_main_thread_there_is_none(self):
        made = []
        thread = threading.Thread(
            target=lambda: made.append(evaluator(lambda p, rng: 1.0, limit=1e-9)(UNIT, round=0))
        )
        thread.start()
        thread.join()
        assert made[0].score == 1.0
