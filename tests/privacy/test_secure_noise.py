"""Sums of rounded normal numbers against the exact mechanism: docs/reference/proofs.md, 8."""

from __future__ import annotations

import math

import mpmath
import pytest

from flwr_fbo.privacy.secure.noise_share import (
    LEAST_UNITS,
    NoiseShare,
    charged_delta,
    distance_bound,
)
from flwr_fbo.privacy.secure.terms import SecureSumError

#: Points of the grid of angles, which is also the period of the sums: far above their support.
GRID = 256


def characteristic(s: float, parties: int, theta: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Of the sum of rounded normal numbers, and of the B-spline rounding of their sum."""
    terms = []
    for j in range(-6, 7):
        angle = theta + 2 * mpmath.pi * j
        terms.append(mpmath.exp(-((s * angle) ** 2) / 2) * mpmath.sinc(angle / 2))
    return mpmath.fsum(terms) ** parties, mpmath.fsum(t**parties for t in terms)


def distance(s: float, parties: int) -> mpmath.mpf:
    """The total variation between the two, by the inverse discrete Fourier transform."""
    angles = [2 * mpmath.pi * i / GRID for i in range(GRID)]
    angles = [a if a <= mpmath.pi else a - 2 * mpmath.pi for a in angles]
    both = [characteristic(s, parties, a) for a in angles]
    gaps = [left - right for left, right in both]
    assert abs(both[0][0] - 1) < 1e-30
    assert abs(both[0][1] - 1) < 1e-30
    total = mpmath.mpf(0)
    for k in range(GRID):  # the gaps are even in the angle
        at_k = mpmath.fsum(
            g * mpmath.cos(2 * mpmath.pi * (i * k % GRID) / GRID) for i, g in enumerate(gaps)
        )
        total += abs(at_k) / GRID
    return total / 2


@pytest.mark.parametrize(("s", "parties"), [(2.0, 2), (2.0, 3), (2.0, 7), (2.5, 2), (3.0, 4)])
def test_the_distance_is_within_its_bound_and_the_bound_is_of_its_order(s, parties):
    with mpmath.workdps(80):
        found = distance(s, parties)
    bound = distance_bound(s, parties, 1)
    assert 0 < found <= bound
    if parties == 2:  # not vacuous: e^(-pi^2 s^2) is the right exponent; more parties are closer
        assert bound <= 1e4 * found


def test_the_characteristic_function_is_that_of_rounded_normal_numbers():
    # P(round(s X) = k) from the error function, summed by hand.
    s, theta = 2.0, mpmath.mpf("0.7")
    with mpmath.workdps(40):
        total = mpmath.fsum(
            (mpmath.ncdf((k + mpmath.mpf(1) / 2) / s) - mpmath.ncdf((k - mpmath.mpf(1) / 2) / s))
            * mpmath.cos(k * theta)
            for k in range(-60, 61)
        )
        assert abs(total - characteristic(s, 1, theta)[0]) < mpmath.mpf(10) ** -30


def test_a_share_of_real_size_is_nowhere_near_the_bound():
    share = NoiseShare(2.0, 3.0, honest=666)
    assert share.share_units > 2**28 / math.sqrt(667)
    assert distance_bound(share.share_units, 1000, 10**9) == 0.0
    assert distance_bound(LEAST_UNITS, 10**6, 10**12) == 0.0
    logarithm = math.log(130e12) + 2 * math.log(1e6 * LEAST_UNITS) - (math.pi * LEAST_UNITS) ** 2
    assert logarithm / math.log(10) < -17_000  # what the docstring of charged_delta says
    assert charged_delta(1e-5) < 1e-5
    assert charged_delta(1e-5) == pytest.approx(1e-5, rel=1e-15)


def test_shares_that_are_a_few_lattice_steps_are_refused():
    with pytest.raises(SecureSumError, match="must have 64 lattice steps"):
        NoiseShare(1.0, 1.0, honest=2**46)
    with pytest.raises(SecureSumError, match="`honest` must be >= 1"):
        NoiseShare(1.0, 1.0, honest=0)
    with pytest.raises(SecureSumError, match="`share_units` must be >= 2"):
        distance_bound(1.0, 2, 1)
