"""How agents share the mean and spread of their scores, and standardise by shared ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flwr_fbo.models.score_scale import (
    LARGEST_NUMBER,
    LOG_RANGE,
    ScoreScale,
    cut_low_scores,
    standardise_scores,
)

RANGES = st.tuples(st.floats(-1e3, 1e3), st.floats(1e-2, 1e3)).map(
    lambda ends: ScoreScale(ends[0], ends[0] + ends[1])
)


@given(RANGES, st.lists(st.floats(-1e9, 1e9), max_size=20))
def test_the_numbers_are_bounded_whatever_the_scores(scale, scores):
    numbers = scale.encode(np.array(scores))
    assert numbers.shape == (2,)
    assert np.all(np.abs(numbers) <= LARGEST_NUMBER)
    # the norm is a sum of two squares, rounded
    assert np.linalg.norm(numbers) <= scale.max_norm * (1 + 4e-16)


@given(RANGES, st.lists(st.floats(0.0, 1.0), min_size=2, max_size=20))
def test_decoding_gives_what_was_encoded(scale, shares):
    width = scale.high - scale.low
    scores = scale.low + width * np.array(shares)
    assume(np.std(scores) > 1.001 * math.exp(-LOG_RANGE) * width)
    mean, spread = scale.decode(scale.encode(scores))
    # a height in [-1, 1] is good to a few 2^-52, in the width and in the ends' own size
    size = width + abs(scale.low)
    assert mean == pytest.approx(np.mean(scores), abs=1e-14 * size)
    assert spread == pytest.approx(np.std(scores), rel=1e-12)


def test_by_hand():
    scale = ScoreScale(0.0, 1.0)
    assert scale.encode(np.array([0.5])).tolist() == [0.0, 0.0]  # one score has no spread
    assert scale.encode(np.array([])).tolist() == [0.0, 0.0]
    assert scale.encode(np.array([1.0, 1.0])) == pytest.approx([LARGEST_NUMBER, 0.0])
    assert scale.encode(np.array([0.0, 1.0]))[1] == pytest.approx(
        LARGEST_NUMBER * (1 - 2 * math.log(2) / LOG_RANGE)
    )
    # noise takes averaged numbers anywhere: the range and its 400th part are the ends
    assert scale.decode(np.array([9.0, 9.0])) == pytest.approx((1.0, 1.0))
    assert scale.decode(np.array([-9.0, -9.0])) == pytest.approx((0.0, math.exp(-LOG_RANGE)))
    # zeros, as of agents that know nothing: the middle, and a spread of e^-3 of the range
    assert scale.decode(np.zeros(2)) == pytest.approx((0.5, math.exp(-LOG_RANGE / 2)))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
@example([0.0])
@example([3.0, 3.0])
def test_alone_scores_have_mean_zero_and_spread_one(scores):
    y = standardise_scores(np.array(scores))
    largest = np.abs(scores).max()
    if np.std(scores) <= 1e-9 * largest:  # nothing, or rounding, between them
        assert abs(y.mean()) < 1e-3
        return
    # both are good to 2^-52 times the size over the spread, which is at most 1e9
    assert y.mean() == pytest.approx(0.0, abs=1e-6)
    assert y.std() == pytest.approx(1.0, abs=1e-6)
    assert np.all(np.diff(y[np.argsort(scores)]) >= 0)


def test_one_score_alone_is_neither_good_nor_bad():
    assert standardise_scores(np.array([0.9])).tolist() == [0.0]
    assert standardise_scores(np.array([])).tolist() == []


def test_one_score_with_a_shared_scale_by_hand():
    # mean (0.9 + 0.5) / 2 = 0.7; squares 0.2^2 + (0.2^2 + 0.2^2) = 0.12, over two: 0.06
    shared = (0.5, 0.2)
    assert standardise_scores(np.array([0.9]), shared) == pytest.approx([0.2 / math.sqrt(0.06)])
    assert standardise_scores(np.array([0.5]), shared) == pytest.approx([0.0])
    assert standardise_scores(np.array([0.2]), shared)[0] < 0
    assert standardise_scores(np.array([]), shared).tolist() == []


@given(
    st.lists(st.floats(0.0, 1.0), max_size=20), st.floats(0.0, 1.0), st.floats(math.exp(-6.0), 1.0)
)
def test_a_shared_scale_counts_as_one_score_more(scores, mean, spread):
    """As if there were two more scores of weight one half each, `spread` about the mean."""
    known = np.array([*scores, mean - spread, mean + spread])
    weights = np.array([*[1.0] * len(scores), 0.5, 0.5])
    centre = np.average(known, weights=weights)
    deviation = math.sqrt(np.average((known - centre) ** 2, weights=weights))
    expected = (known[:-2] - centre) / deviation
    # deviation is at least spread / sqrt(21) > 5e-4: rounding of 2^-52 stays below 1e-11
    np.testing.assert_allclose(
        standardise_scores(np.array(scores), (mean, spread)), expected, atol=1e-11, rtol=1e-11
    )


@pytest.mark.parametrize("scores", [[1e308, 1e308], [1e300, -1e300, 0.5], [1e160], [1e-320] * 3])
def test_scores_out_of_range_do_not_overflow(scores):
    scale = ScoreScale(0.0, 1.0)
    numbers = scale.encode(np.array(scores))
    assert np.linalg.norm(numbers) <= scale.max_norm * (1 + 4e-16)
    y = standardise_scores(np.array(scores), (0.5, 0.1))
    # mean 0 and spread 1 with one score more, so that none is beyond sqrt(t + 1)
    assert np.all(np.abs(y) <= math.sqrt(len(scores) + 1) * (1 + 1e-12))
    assert np.array_equal(np.argsort(y, kind="stable"), np.argsort(scores, kind="stable"))


def test_low_scores_are_cut_by_hand():
    # median .8, best .9, lower quartile .7: the floor is .8 - 2 (.9 - .8) = .6
    cut = cut_low_scores(np.array([0.1, 0.7, 0.8, 0.85, 0.9]))
    assert cut == pytest.approx([0.6, 0.7, 0.8, 0.85, 0.9])
    # most scores are near the best, and the lower quartile, .6, is .28 away: the floor is .32
    cut = cut_low_scores(np.array([0.1, 0.6, 0.88, 0.88, 0.89]))
    assert cut == pytest.approx([0.32, 0.6, 0.88, 0.88, 0.89])
    # of three scores and fewer nothing is cut: the lowest is as far as two widths
    for few in ([], [0.1], [0.1, 0.9], [0.1, 0.9, 0.9], [0.1, 0.8, 0.9]):
        assert cut_low_scores(np.array(few)) == pytest.approx(few)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(0.1, 10.0))
def test_a_cut_keeps_the_order_and_the_upper_half(scores, factor):
    y = np.array(scores)
    cut = cut_low_scores(y)
    assert np.all(cut >= y)
    assert np.all(np.diff(cut[np.argsort(y, kind="stable")]) >= 0)
    upper = y >= np.median(y)
    np.testing.assert_array_equal(cut[upper], y[upper])
    # in other units the same scores are cut to the same
    np.testing.assert_allclose(cut_low_scores(factor * y), factor * cut, rtol=1e-9, atol=1e-6)
