"""Release plans: schedules that fit, that gain with agents and epsilon, and that cost epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.privacy.calibration import (
    default_delta,
    epsilon_of,
    gaussian_multiplier,
    noise_multiplier_for,
)
from flwr_fbo.privacy.release_plan import (
    KEPT,
    _candidates,
    _multiplier,
    _worth,
    plan_releases,
)

DELTA = 1e-5


def planned(agents=100, rounds=20, epsilon=2.0, rate=None, use=None):
    return plan_releases(agents, rounds, epsilon, DELTA, 2.0, 2, rate, use)


@pytest.mark.parametrize("rounds", [1, 2, 3, 7, 40, 100])
def test_schedules_begin_at_once_increase_and_fit(rounds):
    schedules = _candidates(rounds)
    assert (0,) in schedules
    assert tuple(range(rounds)) in schedules
    assert len(set(schedules)) == len(schedules)
    for schedule in schedules:
        assert schedule[0] == 0
        assert list(schedule) == sorted(set(schedule))
        assert schedule[-1] < rounds


@given(
    agents=st.integers(1, 10_000), rounds=st.integers(1, 40), epsilon=st.floats(0.05, 50.0),
    rate=st.sampled_from([None, 1.0, 0.3, 1e-3]),
)  # fmt: skip
@settings(max_examples=15)
def test_a_plan_is_a_schedule_and_a_rate(agents, rounds, epsilon, rate):
    plan = planned(agents, rounds, epsilon, rate)
    assert plan.rounds in _candidates(rounds)
    assert 0.0 <= plan.worth <= 1.0
    assert rate in (None, plan.sampling_rate)


def test_without_rounds_nothing_is_released():
    assert planned(rounds=0).rounds == ()


@given(
    agents=st.tuples(st.integers(1, 10_000), st.integers(0, 10_000)),
    epsilon=st.tuples(st.floats(0.05, 20.0), st.floats(0.0, 20.0)),
    rate=st.sampled_from([1.0, 0.1, None]),
)
@settings(max_examples=20)
def test_more_agents_or_epsilon_are_never_worth_less(agents, epsilon, rate):
    few, more = agents[0], sum(agents)
    little, much = epsilon[0], sum(epsilon)
    worth = planned(few, 12, little, rate).worth
    # Every schedule at one rate is worth more for more. Where the rate is chosen, the least is
    # taken that keeps KEPT of what q = 1 is worth, and that is what may be lost.
    kept = KEPT if rate is None else 1.0
    slack = 1e-9  # of the root that mu is found as
    assert planned(more, 12, little, rate).worth >= kept * worth - slack
    assert planned(few, 12, much, rate).worth >= kept * worth - slack


def test_of_many_agents_a_sample_is_enough():
    rates = [planned(n).sampling_rate for n in (10, 1000, 100_000, 10_000_000)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 1.0
    assert rates[-1] < 0.01
    # The messages saved cost hardly anything.
    assert planned(10_000_000).worth >= KEPT * planned(10_000_000, rate=1.0).worth


def test_releases_that_are_used_late_are_not_all_early():
    use = np.zeros(20)
    use[-1] = 1.0
    late = planned(rate=1.0, use=use)
    # One release just before the only round that uses it; 0 is part of every schedule.
    assert late.rounds[-1] == 19
    early = planned(rate=1.0, use=use[::-1])
    assert early.rounds[0] == 0
    assert early.worth < late.worth  # whoever is asked later knows more


def test_rounds_with_several_scores_are_planned_as_they_are_known():
    one = planned(rate=1.0)
    four = plan_releases(100, 20, 2.0, DELTA, 2.0, 2, 1.0, per_round=4)
    assert one == plan_releases(100, 20, 2.0, DELTA, 2.0, 2, 1.0, per_round=1)
    # After round 1 with four scores a round an agent has as many as after round 4 with one.
    assert four.worth > one.worth


def test_a_release_is_used_in_the_rounds_after_it():
    in_round = np.eye(8)  # used in one of the rounds 1 .. 8 only
    known = 2 + np.arange(9.0)
    worth = [_worth((0, 5), 100, 1.0, 0.5, 2.0, known, use) for use in in_round]
    assert worth[:5] == [worth[0]] * 5  # the release of round 5 is too late for round 5
    assert worth[5:] == [worth[5]] * 3
    assert worth[5] > worth[0]


@pytest.mark.parametrize("releases", [1, 3, 10])
def test_the_cost_of_releases_of_all_agents_is_exact(releases):
    """mu = sqrt(K) / z for q = 1, which is what the exact accountant says too."""
    mu = 1.0 / gaussian_multiplier(3.0, DELTA)
    near = _multiplier(mu, releases, 1.0)
    assert near == pytest.approx(math.sqrt(releases) / mu, rel=1e-12)
    # noise_multiplier_for exceeds the least by one part in 10^4, its PLD rounds up a little
    exact = noise_multiplier_for(3.0, DELTA, [1.0] * releases)
    assert near * (1 - 1e-6) <= exact <= near * (1 + 5e-4)


@pytest.mark.parametrize(("rate", "releases"), [(0.1, 400), (0.05, 1000)])
def test_the_cost_of_sampled_releases_is_nearly_exact(rate, releases):
    """The limit is for many releases of much noise; one part in 20 is enough for a choice."""
    near = _multiplier(1.0 / gaussian_multiplier(1.0, DELTA), releases, rate)
    exact = noise_multiplier_for(1.0, DELTA, [rate] * releases, "rdp")
    assert near == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize(("agents", "epsilon"), [(8, 1.0), (200, 4.0), (20_000, 0.5)])
def test_a_planned_run_costs_its_epsilon_and_no_more(agents, epsilon):
    chosen = DPFTSDESettings(epsilon=epsilon)
    server = DPFTSDEServer(Space({"x": Float(0, 1)}), agents, chosen, rounds=15)
    plan = server.release_plan
    assert plan == chosen.release_plan(agents, 15)
    assert server.noise_multiplier is not None
    rates = [plan.sampling_rate] * len(plan.rounds)
    cost = epsilon_of(server.noise_multiplier, default_delta(agents), rates)
    assert 0.99 * epsilon < cost <= epsilon


def test_a_rate_that_is_given_is_kept():
    for rate in (1.0, 0.3, 0.017):
        assert DPFTSDESettings(epsilon=2.0, sampling_rate=rate).release_plan(
            1_000_000, 10
        ).sampling_rate == rate  # fmt: skip
    fixed = DPFTSDESettings(epsilon=2.0, sampling="fixed-size")
    assert fixed.release_plan(1_000_000, 10).sampling_rate == 1.0
    listed = DPFTSDESettings(epsilon=2.0, releases="0,3,99")
    assert listed.release_plan(1_000_000, 10).rounds == (0, 3)
