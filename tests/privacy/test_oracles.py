"""Epsilon against computations that share no code with the accountants.

The built-in oracle always runs. Those of packages run where ``flwr-fbo[oracles]`` is installed,
and are skipped by name elsewhere.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import mpmath
import numpy as np
import pytest

from benchmarks import oracles
from benchmarks.oracles import SETTINGS, Comparison, Setting, gaussian, grid_bracket
from flwr_fbo.privacy.events import LaplaceRelease

ROOT = Path(__file__).parents[2]
#: OpenDP has no Gaussian releases of a sample.
UNSAMPLED = [s for s in SETTINGS if all(getattr(e, "sampling_rate", 1) == 1 for e, _ in s.releases)]

needs_prv = pytest.mark.skipif(
    not oracles.installed("prv-accountant"), reason="prv-accountant is not installed: [oracles]"
)
needs_opendp = pytest.mark.skipif(
    not oracles.installed("opendp"), reason="opendp is not installed: [oracles]"
)


def ids(setting: Setting) -> str:
    return setting.name


# ------------------------------------------------------------------ the oracle itself


def one_release(z: float, q: float, epsilon: mpmath.mpf, removed: bool) -> mpmath.mpf:
    """The delta of one release at any real epsilon, from the two tails beyond the crossing."""

    def mixture(x: mpmath.mpf) -> mpmath.mpf:  # P(noise > x), with the message in the sample or not
        return (1 - q) * mpmath.ncdf(-x / z) + q * mpmath.ncdf((1 - x) / z)

    sign = 1 if removed else -1
    rest = mpmath.exp(sign * epsilon) - (1 - q)
    if rest <= 0:  # the loss is above epsilon everywhere, or nowhere
        return 1 - mpmath.exp(epsilon) if removed else mpmath.mpf(0)
    x = mpmath.mpf(1) / 2 + z * z * (mpmath.log(rest) - mpmath.log(q))
    if removed:
        return mixture(x) - mpmath.exp(epsilon) * mpmath.ncdf(-x / z)
    return mpmath.ncdf(x / z) - mpmath.exp(epsilon) * (1 - mixture(x))


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.2), (0.7, 0.5), (2.0, 0.05)])
def test_the_bracket_of_one_release_holds_the_integral(z: float, q: float) -> None:
    for delta in (1e-2, 1e-4):
        low, high = grid_bracket(Setting("one", (gaussian(z, q, 1),), delta))
        assert high - low < 1e-4

        def worst(epsilon: float, z: float = z, q: float = q) -> float:
            return float(max(one_release(z, q, mpmath.mpf(epsilon), way) for way in (True, False)))

        assert worst(high) <= delta * (1 + 1e-9)
        assert low == 0.0 or worst(low) >= delta * (1 - 1e-9)


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.2), (1.5, 0.5)])
def test_the_bracket_of_two_releases_holds_the_double_integral(z: float, q: float) -> None:
    """delta(eps) of two is the mean over the first loss l of delta_1(eps - l)."""
    delta = 1e-3
    low, high = grid_bracket(Setting("two", (gaussian(z, q, 2),), delta))
    assert high - low < 1e-4

    def two(epsilon: float) -> float:
        def inner(x: mpmath.mpf) -> mpmath.mpf:  # P removes the message; x is the first output
            ratio = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * z * z))
            density = mpmath.npdf(x, 0, z) * ratio
            return density * one_release(z, q, epsilon - mpmath.log(ratio), True)

        return float(mpmath.quad(inner, np.linspace(-9 * z, 1 + 9 * z, 25).tolist()))

    assert two(low) >= delta * (1 - 1e-6)
    assert two(high) <= delta * (1 + 1e-6)


@pytest.mark.parametrize(("z", "count"), [(1.0, 1), (3.0, 6), (20.0, 100)])
def test_the_bracket_of_unsampled_releases_holds_the_exact_epsilon(z: float, count: int) -> None:
    """Gaussian releases of everybody are one release with sqrt(count) times less noise."""
    delta, mu = 1e-5, math.sqrt(count) / z
    low, high = grid_bracket(Setting("all", (gaussian(z, 1.0, count),), delta))

    def exact(epsilon: float) -> float:
        tail = mpmath.ncdf(-mu / 2 - epsilon / mu)
        return float(mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * tail)

    assert exact(high) <= delta * (1 + 1e-6)
    assert exact(low) >= delta * (1 - 1e-6)
    assert high - low < 1e-2 * high


def test_the_bracket_of_laplace_releases_holds_the_pure_sum_where_delta_vanishes() -> None:
    low, high = grid_bracket(Setting("laplace", ((LaplaceRelease(0.5), 1),), 1e-9))
    assert low <= 0.5 <= high + 1e-3
    # At delta: 1 - e^((eps' - eps)/2) = delta for one release (Dwork and Roth, by hand).
    low, high = grid_bracket(Setting("laplace", ((LaplaceRelease(0.5), 1),), 0.01))
    assert low <= 0.5 + 2 * math.log1p(-0.01) <= high


# ------------------------------------------------------------------ our accountants


@pytest.mark.parametrize("setting", SETTINGS, ids=ids)
def test_pld_is_within_the_bracket_of_the_grid(setting: Setting) -> None:
    low, high = grid_bracket(setting)
    assert low <= setting.by("pld") <= high * (1 + oracles.TOLERANCE)
    assert high - low <= 0.03 * high


@pytest.mark.parametrize("setting", SETTINGS, ids=ids)
def test_renyi_bounds_are_above_the_bracket(setting: Setting) -> None:
    low, _ = grid_bracket(setting)
    assert low < setting.by("rdp") < setting.by("moments") * (1 + 1e-9)


@needs_prv
@pytest.mark.parametrize("setting", SETTINGS, ids=ids)
def test_pld_is_within_the_bounds_of_prv_accountant(setting: Setting) -> None:
    low, high = oracles.prv_bracket(setting)
    assert low <= setting.by("pld") <= high * (1 + oracles.TOLERANCE)


@needs_opendp
@pytest.mark.parametrize("setting", UNSAMPLED, ids=ids)
def test_opendp_bounds_unsampled_releases_as_our_renyi_accountant_does(setting: Setting) -> None:
    bound = oracles.opendp_bound(setting)
    assert bound is not None
    assert setting.by("pld") <= bound
    theory = "pure" if isinstance(setting.releases[0][0], LaplaceRelease) else "rdp"
    assert bound == pytest.approx(setting.by(theory), rel=oracles.SAME_THEORY)


# ------------------------------------------------------------------ the comparison


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_wrong_epsilon_is_noticed(factor: float) -> None:
    right = Comparison.of(SETTINGS[1])
    assert right.faults == []
    wrong = replace(right, pld=factor * right.pld, prv=(right.pld, right.pld), opendp=1.0)
    assert wrong.faults == ["grid", "prv", "opendp"]
    assert "NOT: grid" in wrong.row()["outcome"]


def test_the_saved_table_is_of_these_settings_and_on_the_page() -> None:
    saved = json.loads(oracles.SAVED.read_text())
    assert [row["releases"] for row in saved["rows"]] == [s.name for s in SETTINGS]
    assert {row["outcome"] for row in saved["rows"]} == {"agree"}
    assert set(oracles.PACKAGES) < set(saved["versions"])
    for setting, row in zip(SETTINGS, saved["rows"], strict=True):
        assert float(row["ours (`pld`)"]) == pytest.approx(setting.by("pld"), abs=1e-4)
    text = (ROOT / "docs" / "reference" / "proofs.md").read_text()
    assert oracles.page(text, saved) == text, (
        "run `python -m benchmarks.oracles --table docs/reference/proofs.md`"
    )
