"""From epsilon to noise and back: never less privacy than asked, hardly more noise than needed."""

from __future__ import annotations

import math
import subprocess
import sys

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.privacy import pld
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.calibration import (
    default_delta,
    epsilon_of,
    gaussian_epsilon,
    gaussian_multiplier,
    largest_sound_delta,
    noise_multiplier_for,
    paper_delta,
    sample_size,
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
    accountant = make_accountant("pld")
    for t, rate in enumerate(rates):
        event = GaussianRelease(z, rate, t)
        assert not accountant.would_exceed(event, 3.0, DELTA)
        accountant.compose(event)
    assert accountant.would_exceed(GaussianRelease(z, rates[-1]), 3.0, DELTA)


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
    accountant = make_accountant("fixed-size")
    accountant.compose(FixedSizeRelease(z, 30, 8), 6)  # 7.5 agents, rounded
    assert 4.995 < accountant.epsilon(DELTA) <= 5.0
    assert z > noise_multiplier_for(5.0, DELTA, [0.25] * 6)  # replacing moves the sum further
    assert sample_size(29, 0.35) == 10
    assert sample_size(10, 0.01) == 1
    with pytest.raises(PrivacyError, match="`agents` must be an integer >= 1, but got None"):
        noise_multiplier_for(5.0, DELTA, [0.25], "fixed-size")


def exact_delta(z: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang's Theorem 8, left side, with as many digits as the context has."""
    shift, middle = 1 / (2 * mpmath.mpf(z)), mpmath.mpf(epsilon) * mpmath.mpf(z)
    high, low = (mpmath.erfc((middle + s) / mpmath.sqrt(2)) / 2 for s in (-shift, shift))
    return high - mpmath.exp(epsilon) * low


#: From 1e-300 to nearly 1, and no less often where people choose it.
DELTAS = st.one_of(st.floats(-300.0, -1e-3), st.floats(-15.0, -0.31)).map(lambda e: 10.0**e)


@given(st.floats(-9.0, 9.0), DELTAS)
@settings(max_examples=300, deadline=None)
def test_the_noise_of_one_release_is_enough_and_hardly_more(exponent, delta):
    epsilon = 10.0**exponent
    z = gaussian_multiplier(epsilon, delta)
    with mpmath.workdps(80):
        assert exact_delta(z, epsilon) <= delta
        if 1e-3 <= epsilon <= 1e6 and 1e-15 <= delta <= 0.5:
            assert exact_delta(z * (1 - 1e-8), epsilon) > delta


@given(st.floats(-8.0, 11.0), DELTAS)
@settings(max_examples=300, deadline=None)
def test_the_epsilon_of_one_release_is_enough_and_hardly_more(exponent, delta):
    z = 10.0**exponent
    epsilon = gaussian_epsilon(z, delta)
    with mpmath.workdps(80):
        assert exact_delta(z, epsilon) <= delta
        less = epsilon - 1e-10 * (1 + epsilon)
        if 0.01 <= z <= 1000 and 1e-15 <= delta <= 0.5 and less > 0:
            assert exact_delta(z, less) > delta


@given(st.floats(1e-3, 100.0), st.floats(1e-12, 0.1))
@settings(deadline=None)
def test_noise_and_epsilon_of_one_release_are_each_others_inverse(epsilon, delta):
    back = gaussian_epsilon(gaussian_multiplier(epsilon, delta), delta)
    assert back == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-100, 1e20, 1e300])
@pytest.mark.parametrize("delta", [5e-324, 1e-5, 1.0 - 2**-53])
def test_one_release_at_the_ends_of_what_is_accepted(epsilon, delta):
    assert gaussian_multiplier(epsilon, delta) > 0.0
    assert gaussian_epsilon(epsilon, delta) >= 0.0  # here it is the noise that is extreme


def test_one_release_agrees_with_the_accountant():
    z = gaussian_multiplier(2.0, 1e-6)
    assert 2.0 * (1 - 1e-9) <= epsilon_of(z, 1e-6, [1.0]) <= 2.0 * (1 + 1e-3)  # its grid rounds up


def test_agents_without_noise_do_not_load_the_accounting_library():
    """An agent answers every message in a process of its own, and the library takes 0.4 s."""
    program = (
        "import sys, flwr_fbo.privacy.local, flwr_fbo.methods.fed_pne.agent, "
        "flwr_fbo.methods.thompson.local_privacy; "
        "assert not {'dp_accounting', 'scipy.stats', 'mpmath'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_default_delta():
    assert default_delta(30) == 1e-5
    assert default_delta(10**6) == pytest.approx(1e-7)
    assert largest_sound_delta(30) == pytest.approx(1 / 300)
    assert paper_delta(200) == pytest.approx(200**-1.1)
    with pytest.raises(PrivacyError, match="`agents` must be"):
        paper_delta(1)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_bad_epsilon(epsilon):
    with pytest.raises(PrivacyError, match="`epsilon` must be a finite number > 0, but got"):
        noise_multiplier_for(epsilon, DELTA, [0.5])


@pytest.mark.parametrize(
    ("function", "name"), [(gaussian_multiplier, "epsilon"), (gaussian_epsilon, "noise_multiplier")]
)
def test_bad_input_of_one_release(function, name):
    for value in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PrivacyError, match=f"`{name}` must be a finite number > 0, but got"):
            function(value, 1e-5)
    for delta in (0.0, 1.0):
        with pytest.raises(PrivacyError, match=r"`delta` must be in \(0, 1\), but got"):
            function(1.0, delta)


def test_other_bad_input():
    with pytest.raises(PrivacyError, match=r"`delta` must be in \(0, 1\), but got 1.0"):
        noise_multiplier_for(1.0, 1.0, [0.5])
    with pytest.raises(PrivacyError, match="at least one sampling rate, but is empty"):
        noise_multiplier_for(1.0, DELTA, [])
    with pytest.raises(PrivacyError, match=r"`sampling_rate` must be in \(0, 1\], but got 1.5"):
        noise_multiplier_for(1.0, DELTA, [0.5, 1.5])
    with pytest.raises(PrivacyError, match="no noise multiplier up to 1e\\+06 keeps"):
        noise_multiplier_for(1e-12, 1e-9, [1.0] * 10)
