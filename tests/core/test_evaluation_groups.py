"""Many evaluations as one record: the same evaluations, and no fault that is not seen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.core import evaluation as module
from flwr_fbo.core.evaluation import Evaluation, Evaluator, evaluations_of
from flwr_fbo.core.evaluation_groups import (
    GROUP_SECONDS,
    GroupSize,
    begun_together,
    evaluate_many,
    members,
)
from flwr_fbo.core.reports import report
from tests.methods.thompson_harness import SQUARE, JsonRecords

POINTS = np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])


def noisy(params: Any, rng: np.random.Generator) -> float:
    return float(params["x"] + rng.standard_normal())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every evaluation take no time at all."""
    monkeypatch.setattr(module.time, "perf_counter", lambda: 0.0)


def plain(evaluations: list[Evaluation]) -> list[Any]:
    return [{**vars(e), "seconds": 0.0} for e in evaluations]


@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.lists(st.integers(1, 12), max_size=6),
    st.integers(0, 5),
)
def test_evaluations_together_are_those_one_at_a_time(
    counts: list[int], shares: list[int], round: int
) -> None:
    one, records = Evaluator(SQUARE, noisy, JsonRecords(), (7,)), JsonRecords()
    rows = np.repeat(POINTS, counts, axis=0)
    alone = [one(u, round=round, play=n, source="node") for n, u in enumerate(rows)]
    # Whatever the shares of messages are, and whether the process lives on or not.
    for most in [*shares, None]:
        many = Evaluator(SQUARE, noisy, records, (7,))
        many.group_size.next = 1 + sum(shares) % 5
        found = evaluate_many(many, POINTS, np.array(counts), round=round, source="node", most=most)
    assert found is not None
    assert plain(found) == plain(alone)
    assert plain(Evaluator(SQUARE, noisy, records, (7,)).history) == plain(alone)


def test_recorded_plays_of_a_round_are_counted() -> None:
    evaluator = Evaluator(SQUARE, noisy, JsonRecords(), (7,))
    counts = np.array([3, 4, 2])
    evaluate_many(evaluator, POINTS, counts, round=2, source="node")
    evaluator(POINTS[0], round=2, play=20, source="node")
    assert [evaluator.count_recorded(2, plays) for plays in (0, 4, 9, 20, 21)] == [0, 4, 9, 9, 10]
    assert evaluator.count_recorded(1, 20) == 0


def test_thousands_of_quick_evaluations_are_a_few_short_records(quick: None) -> None:
    records = JsonRecords()
    many = Evaluator(SQUARE, noisy, records)
    evaluate_many(many, POINTS, np.array([1000, 2000, 1000]), round=1, source="node")
    made = records.read(Evaluator.KIND)
    assert len(made) == 7  # 1, 4, 16, 64, 256, 1024 and the rest
    assert len(evaluations_of(made)) == 4000
    assert sum(len(json.dumps(record)) for record in made) < 24 * 4000


def test_slow_evaluations_have_records_of_their_own() -> None:
    size = GroupSize()
    for _ in range(9):
        size.note(size.next, seconds=size.next * GROUP_SECONDS)
    assert size.next == 1


def test_a_group_ends_with_an_evaluation_that_becomes_slow() -> None:
    size = GroupSize()
    for seconds in (0.0001, 0.0004, 0.0016):
        size.note(size.next, seconds)
    assert size.next == 64
    size.note(64, seconds=64.0)  # a second each
    assert size.next == 1


@pytest.mark.parametrize("each", [GROUP_SECONDS / 10, 10.0])
def test_no_group_outlasts_its_time_where_evaluations_become_slow(
    each: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, seconds, clock = JsonRecords(), list[float](), [0.0]
    unrecorded: list[float] = []  # the work that would be lost, as each evaluation begins
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])

    def slow_later(params: Any, rng: np.random.Generator) -> float:
        recorded = len(evaluations_of(records.read(Evaluator.KIND)))
        unrecorded.append(sum(seconds[recorded:]))
        seconds.append(each if len(seconds) >= 12 else 0.0)
        clock[0] += seconds[-1]
        return noisy(params, rng)

    evaluator = Evaluator(SQUARE, slow_later, records)
    found = evaluate_many(evaluator, POINTS, np.array([20, 20, 20]), round=0, source="")
    assert found is not None
    assert len(unrecorded) == 60
    assert max(unrecorded) < GROUP_SECONDS + 1e-9
    again = Evaluator(SQUARE, noisy, records)
    assert plain(again.history) == plain(found)


def test_what_a_group_does_not_come_to_was_never_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    records, clock = JsonRecords(), [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])

    def slow(params: Any, rng: np.random.Generator) -> float:
        clock[0] += 1.0
        return noisy(params, rng)

    evaluator = Evaluator(SQUARE, slow, records)
    made = evaluator.together(POINTS, np.array([0, 1, 2]), round=0, first=0, source="")
    assert len(made) == 1
    assert begun_together(records, Evaluator.BEGUN, Evaluator.INTERRUPTED) <= {(0, 0)}
    assert not any(Evaluator(SQUARE, slow, records).must_be_alone(0, n) for n in (1, 2))


def test_failures_are_recorded_each_with_its_reason(quick: None) -> None:
    def some(params: Any, rng: np.random.Generator) -> float:
        if rng.random() < 0.5:
            raise LookupError("no data")
        return float("nan") if rng.random() < 0.5 else 1.0

    records = JsonRecords()
    found = evaluate_many(
        Evaluator(SQUARE, some, records), POINTS, np.array([20, 20, 20]), round=0, source=""
    )
    assert found is not None
    assert {e.failure for e in found} == {
        "", "LookupError: no data", "the score must be finite, but got nan",
    }  # fmt: skip
    assert all(e.failed == bool(e.failure) for e in found)
    assert plain(Evaluator(SQUARE, some, records).history) == plain(found)


class Killed(BaseException):
    """Ends the process, as far as a test can."""


def killing(play: int) -> Any:
    """An objective whose process ends in one evaluation, whenever that is made."""
    expected = np.random.default_rng([0, Evaluator.STREAM, 0, play]).random()

    def score(params: Any, rng: np.random.Generator) -> float:
        drawn = rng.random()
        if drawn == expected:
            raise Killed
        return float(drawn)

    return score


def test_after_a_crash_the_evaluations_of_a_group_are_made_one_at_a_time(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, counts = JsonRecords(), np.array([10, 10, 10])
    monkeypatch.setattr(module, "ends_the_process", lambda error: isinstance(error, Killed))
    append = JsonRecords.append

    def lost(self: JsonRecords, kind: str, record: Any) -> None:
        """Append nothing that a process could not append that ends in the middle of a group."""
        in_group = "plays" in record or "scores" in record
        if kind == Evaluator.BEGUN or not (in_group or kind == Evaluator.INTERRUPTED):
            append(self, kind, record)

    attempts = 0
    while attempts < 5:
        attempts += 1
        evaluator = Evaluator(SQUARE, killing(17), records, session="one")
        evaluator.close_unfinished(0)
        try:
            # The process ends at once: of the group nothing but its beginning is recorded.
            monkeypatch.setattr(JsonRecords, "append", lost)
            found = evaluate_many(evaluator, POINTS, counts, round=0, source="node")
            break
        except Killed:
            continue
        finally:
            monkeypatch.setattr(JsonRecords, "append", append)
    assert found is not None
    assert [e.play for e in found if e.failed] == [17]
    assert found[17].failure == "the process ended in the middle of the evaluation"
    assert attempts == 3  # in the group, alone, and then it is known


def test_an_interrupted_group_keeps_what_was_made_and_blames_nobody(quick: None) -> None:
    records, counts = JsonRecords(), np.array([10, 10, 10])
    done = 0

    def interrupted(params: Any, rng: np.random.Generator) -> float:
        nonlocal done
        done += 1
        if done == 12:
            raise KeyboardInterrupt
        return float(rng.random())

    with pytest.raises(KeyboardInterrupt):
        evaluate_many(
            Evaluator(SQUARE, interrupted, records), POINTS, counts, round=0, source="node"
        )
    again = Evaluator(SQUARE, interrupted, records)
    assert len(again.history) == 11
    assert not begun_together(records, Evaluator.BEGUN, Evaluator.INTERRUPTED) - set(again._known)
    assert not any(again.must_be_alone(0, play) for play in range(30))
    found = evaluate_many(again, POINTS, counts, round=0, source="node")
    assert found is not None
    assert not any(e.failed for e in found)
    assert done == 31  # the interrupted one is made again, and no other


def test_a_group_whose_round_is_over_is_forgotten() -> None:
    records = JsonRecords()
    records.append(Evaluator.BEGUN, {"round": 3, "play": 0, "plays": 9, "seconds": 0.0})
    evaluator = Evaluator(SQUARE, noisy, records)
    assert evaluator.must_be_alone(3, 8)
    evaluator.close_unfinished(4)
    assert not evaluator.must_be_alone(3, 8)
    assert evaluator.history == []


def test_an_evaluation_that_reports_has_a_record_of_its_own(quick: None) -> None:
    def reporting(params: Any, rng: np.random.Generator) -> float:
        if rng.random() < 0.2:
            report(1, 0.25)
        return 0.5

    records = JsonRecords()
    found = evaluate_many(
        Evaluator(SQUARE, reporting, records), POINTS, np.array([20, 20, 20]), round=0, source=""
    )
    assert found is not None
    assert [e.play for e in found] == list(range(60))
    assert {len(e.reports) for e in found} == {0, 1}
    assert plain(Evaluator(SQUARE, reporting, records).history) == plain(found)


@pytest.mark.parametrize("counts", [[2, 2], [0, 3], [-1, 4]])
def test_a_group_whose_counts_do_not_fit_is_refused(counts: list[int]) -> None:
    record = {
        "round": 0, "play": 0, "counts": counts, "units": [[0.0]] * 2, "params": [{}] * 2,
        "regrets": [None] * 2, "scores": [1.0] * 3, "failures": {}, "source": "", "seconds": 0.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match="add up to its scores"):
        members(record)
