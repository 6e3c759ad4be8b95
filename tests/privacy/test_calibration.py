"""From epsilon to noise and back: never less privacy than asked, hardly more noise than needed."""

from __future__ import annotations

import math

import pytest

from flwr_fbo.privacy import pld
from flwr_fbo.privacy.accountants import accountant
from flwr_fbo.privacy.calibration import (
    default_delta,
    epsilon_of,
    fixed_size,
    noise_multiplier_for,
)
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.events import FixedSizeRelease, GaussianRelease

DELTA = 200**-1.1
SCHEDULES = {
    "paper": [0.25] * 40,
    "early": [1.0] * 6,
    "long": [0.01] * 1000,
    "mixed": [0.1, 0.2, 0.4] * 4,
}


@pytest.mark.parametrize("name", ["pld", "rdp", "moments"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("schedule", ["paper", "early"])
def test_round_trip_over_a_grid(schedule, epsilon, name):
    rates = SCHEDULES[schedule]
    z = noise_multiplier_for(epsilon, DELTA, rates, name)
    assert epsilon_of(z, DELTA, rates, name) <= epsilon
    assert epsilon_of(z * (1 - 3e-4), DELTA, rates, name) > epsilon


@pytest.mark.parametrize("schedule", ["long", "mixed"])
def test_round_trip_of_other_schedules(schedule):
    rates = SCHEDULES[schedule]
    z = noise_multiplier_for(2.0, DELTA, rates)
    assert 2.0 * (1 - 3e-3) < epsilon_of(z, DELTA, rates) <= 2.0


@pytest.mark.parametrize("rates", [[0.25] * 10, [0.2, 1.0, 0.2, 0.5]])
def test_a_run_may_make_all_the_releases_it_was_calibrated_for_and_not_one_more(rates):
    z = noise_multiplier_for(3.0, DELTA, rates)
    view = accountant("pld")
    for t, rate in enumerate(rates):
        event = GaussianRelease(z, rate, t)
        assert not view.would_exceed(event, 3.0, DELTA)
        view.compose(event)
    assert view.would_exceed(GaussianRelease(z, rates[-1]), 3.0, DELTA)


def test_a_tighter_accountant_needs_less_noise():
    z = [noise_multiplier_for(5.0, DELTA, [0.25] * 40, n) for n in ("pld", "rdp", "moments")]
    assert z == sorted(z)
    assert z[0] < 0.85 * z[2]


def test_calibration_asks_for_few_epsilons():
    for rates in SCHEDULES.values():
        pld._epsilon.cache_clear()
        noise_multiplier_for(1.7, DELTA, rates)
        assert 2 <= pld._epsilon.cache_info().misses <= 12  # 9 at most were measured


def test_samples_of_fixed_size_are_calibrated_by_their_own_accountant():
    z = noise_multiplier_for(5.0, DELTA, [0.25] * 6, "fixed-size", agents=30)
    view = accountant("fixed-size")
    view.compose(FixedSizeRelease(z, 30, 8), 6)  # 7.5 agents, rounded
    assert 4.995 < view.epsilon(DELTA) <= 5.0
    assert z > noise_multiplier_for(5.0, DELTA, [0.25] * 6)  # replacing moves the sum further
    assert fixed_size(29, 0.35) == 10
    assert fixed_size(10, 0.01) == 1
    with pytest.raises(PrivacyError, match="`agents` must be an integer >= 1, but got None"):
        noise_multiplier_for(5.0, DELTA, [0.25], "fixed-size")


def test_default_delta():
    assert default_delta(200) == pytest.approx(200**-1.1)
    with pytest.raises(PrivacyError, match="`agents` must be an integer >= 2, but got 1"):
        default_delta(1)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_bad_epsilon(epsilon):
    with pytest.raises(PrivacyError, match="`epsilon` must be a finite number > 0, but got"):
        noise_multiplier_for(epsilon, DELTA, [0.5])


def test_other_bad_input():
    with pytest.raises(PrivacyError, match=r"`delta` must be in \(0, 1\), but got 1.0"):
        noise_multiplier_for(1.0, 1.0, [0.5])
    with pytest.raises(PrivacyError, match="at least one sampling rate, but is empty"):
        noise_multiplier_for(1.0, DELTA, [])
    with pytest.raises(PrivacyError, match=r"`sampling_rate` must be in \(0, 1\], but got 1.5"):
        noise_multiplier_for(1.0, DELTA, [0.5, 1.5])
    with pytest.raises(PrivacyError, match="no noise multiplier up to 1e\\+06 keeps"):
        noise_multiplier_for(1e-12, 1e-9, [1.0] * 10)
