"""Weights and p_t over the rounds: the papers' printed values, and their formulas literally."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.methods.thompson.schedules import SCHEDULES, WeightSchedule, own_probability

# ------------------------------------------------------------------ weights


def softmax_literally(t, agents, regions, a, hold, decay):
    """App. B, first paragraph, term by term."""
    if t <= hold:
        a_t = a + 1.0
    elif t <= hold + decay:
        a_t = np.linspace(a + 1.0, 1.0, decay)[t - hold - 1]
    else:
        a_t = 1.0
    temperature = math.inf if a_t == 1.0 else a / (a_t - 1.0)
    weights = np.zeros((regions, agents))
    for i in range(regions):
        exponents = [(a * (n % regions == i) + 1) / temperature for n in range(agents)]
        total = sum(math.exp(e) for e in exponents)
        weights[i] = [math.exp(e) / total for e in exponents]
    return weights


@given(
    st.integers(0, 60), st.integers(1, 40), st.integers(1, 8),
    st.sampled_from([("softmax-15", 15.0), ("softmax-9", 9.0)]),
    st.integers(0, 12), st.integers(2, 30),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_softmax_weights_are_the_papers_formula(t, agents, regions, scheme, hold, decay):
    name, a = scheme
    found = WeightSchedule(name, hold, decay).at(t, agents, regions)
    expected = softmax_literally(t, agents, regions, a, hold, decay)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


def test_the_papers_five_values():
    # App. B: 16 for t <= 5; 16, 12.25, 8.5, 4.75, 1 for t = 6 .. 10; 1 afterwards
    schedule = WeightSchedule("softmax-15", hold=5, decay=5)
    printed = [16] * 5 + [16, 12.25, 8.5, 4.75, 1] + [1] * 5
    for t, a_t in enumerate(printed, start=1):
        assert schedule.advantage(t) == pytest.approx(math.exp(a_t - 1))


def test_real_experiments_hold_ten_rounds_and_are_uniform_after_forty():
    schedule = WeightSchedule("softmax-15", hold=10, decay=30)
    assert schedule.advantage(10) == schedule.advantage(11) == math.exp(15)
    assert schedule.advantage(39) > 1
    for t in (40, 41, 100):
        np.testing.assert_array_equal(schedule.at(t, 7, 3), np.full((3, 7), 1 / 7))
    falling = [schedule.advantage(t) for t in range(11, 41)]
    assert falling == sorted(falling, reverse=True)


def test_the_alternatives_of_b23():
    # weights 1: a = 9; weights 2: a = 1000 .. 1; weights 3: a^2, a = 40 .. 1; others always b = 1
    for scheme, first in (("softmax-9", math.exp(9)), ("linear-1000", 1000), ("square-40", 1600)):
        schedule = WeightSchedule(scheme, hold=10, decay=30)
        assert schedule.advantage(1) == pytest.approx(first)
        assert schedule.advantage(40) == 1.0
        weights = schedule.at(1, 6, 2)
        assert weights[0, 0] / weights[0, 1] == pytest.approx(first)
        assert weights[1, 1] / weights[1, 0] == pytest.approx(first)
    halfway = WeightSchedule("square-40", hold=0, decay=3)
    assert halfway.advantage(2) == pytest.approx(20.5**2)
    assert WeightSchedule("linear-1000", 0, 3).advantage(2) == pytest.approx(500.5)


def test_uniform_and_non_adaptive_weights():
    assert WeightSchedule("uniform").at(1, 5, 2).tolist() == [[0.2] * 5] * 2
    fixed = WeightSchedule("softmax-15", decay=None)  # App. B.2.5: the temperature stays 1
    assert fixed.advantage(1) == fixed.advantage(10**6) == math.exp(15)


def test_one_region_or_one_round_of_decay():
    # P = 1: every agent is at home, so all count the same whatever the contrast
    np.testing.assert_allclose(WeightSchedule().at(1, 9, 1), np.full((1, 9), 1 / 9))
    sudden = WeightSchedule("linear-1000", hold=3, decay=1)
    assert [sudden.advantage(t) for t in (0, 3, 4, 5)] == [1000, 1000, 1, 1]


def test_more_regions_than_agents():
    weights = WeightSchedule().at(1, 2, 3)
    assert weights[2].tolist() == [0.5, 0.5]  # the home of no agent
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)


# ------------------------------------------------------------------ p_t


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1-1/sqrt(t)", [0.0, 1 - 2**-0.5, 1 - 3**-0.5, 0.5]),
        ("1-1/t", [0.0, 1 / 2, 2 / 3, 3 / 4]),
        ("1-1/t^2", [0.0, 3 / 4, 8 / 9, 15 / 16]),
        ("always-own", [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_schedules_by_hand(name, expected):
    np.testing.assert_allclose([own_probability(name, t) for t in (1, 2, 3, 4)], expected)
    # FTS, Section 5.1: p_1 = p_2
    shifted = [own_probability(name, t, first_as_second=True) for t in (1, 2, 3, 4)]
    np.testing.assert_allclose(shifted, [expected[1], *expected[1:]])


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_rise_towards_one(name):
    values = [own_probability(name, t) for t in range(1, 2000)]
    assert values == sorted(values)
    assert values[-1] > 0.95


def test_any_callable_serves():
    assert own_probability(lambda t: 0.1 * t, 3) == pytest.approx(0.3)
    assert own_probability(lambda t: int(t > 3), 4) == 1.0
    assert own_probability(np.float64, 1) == 1.0


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf, None, "half", True, 0.5j])
def test_a_callable_that_gives_no_probability_is_refused(bad):
    with pytest.raises(ValueError, match=r"must give probabilities, but got .* for t=7"):
        own_probability(lambda t: bad, 7)
