"""Rules that stop hopeless evaluations, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.search.pruning import best_until, gain_after, is_hopeless

#: Three finished evaluations: best scores until step 1: .2 .4 .6; until step 2: .5 .5 .7.
FINISHED = [[(1, 0.2), (2, 0.5)], [(1, 0.4), (2, 0.5)], [(1, 0.6), (2, 0.7)]]


def median(own: list[tuple[int, float]], startup: int = 3) -> bool:
    return is_hopeless("median", own, FINISHED, [], startup)


def test_the_median_rule_stops_what_is_below_the_median_at_its_step() -> None:
    assert median([(1, 0.39)])
    assert not median([(1, 0.4)])  # equal to the median
    assert not median([(1, 0.1), (2, 0.5)])
    assert not median([(1, 0.55), (2, 0.3)])  # its best so far counts
    assert median([(1, 0.1), (2, 0.49)])


def test_no_rule_stops_before_enough_evaluations_have_finished() -> None:
    assert not median([(1, 0.0)], startup=4)
    assert not is_hopeless("median", [(1, 0.0)], [*FINISHED, []], [], 4)  # without reports
    assert not is_hopeless("none", [(1, 0.0)], FINISHED, [], 1)
    assert not is_hopeless("median", [(1, 0.0)], [[(5, 0.9)]], [], 1)  # nobody reported so early


def test_halving_goes_on_with_the_best_third_at_the_steps_1_3_9() -> None:
    def halving(own: list[tuple[int, float]]) -> bool:
        stopped = [[(1, 0.1)], [(1, 0.3)]]
        return is_hopeless("halving", own, FINISHED, stopped, 3)

    # At step 1 there are .1 .2 .3 .4 .6 and its own: the best two of six go on.
    assert halving([(1, 0.35)])
    assert not halving([(1, 0.5)])
    assert not halving([(1, 0.5), (2, 0.0)])  # step 2 is no rung
    # Step 4 is the first report at or after the rung 3: .5 .5 .7 and its own, one goes on.
    assert halving([(1, 0.5), (2, 0.5), (4, 0.6)])
    assert not halving([(1, 0.5), (2, 0.5), (4, 0.8)])


def test_what_finished_evaluations_gained_from_a_step_on() -> None:
    scored = [(reports, reports[-1][1] + 0.1) for reports in FINISHED]
    assert gain_after(1, scored) == pytest.approx((0.4 + 0.2 + 0.2) / 3)
    assert gain_after(2, scored) == pytest.approx(0.1)
    assert gain_after(0, scored) == 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.sampled_from(["median", "halving"]))
def test_the_best_of_all_is_never_stopped(scores: list[float], rule: str) -> None:
    finished = [[(step, score) for step in (1, 2, 3)] for score in scores]
    own = [(1, 2.0)]
    assert not is_hopeless(rule, own, finished, [], 1)  # type: ignore[arg-type]
    assert best_until(own, 5) == 2.0
