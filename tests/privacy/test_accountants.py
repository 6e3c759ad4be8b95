"""Accountants against the paper's printed losses, dp_accounting, mpmath and one another."""

from __future__ import annotations

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from absl import logging as absl_logging
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant as LibraryRdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from flwr_fbo.privacy import pld, renyi
from flwr_fbo.privacy.accountants import epsilon_by_accountant, make_accountant
from flwr_fbo.privacy.calibration import epsilon_of, paper_delta
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.events import FixedSizeRelease, GaussianRelease, LaplaceRelease

DELTA = 200**-1.1


@pytest.fixture(autouse=True)
def _quiet_library():
    """dp_accounting warns about fractional orders that it leaves out."""
    before = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    yield
    absl_logging.set_verbosity(before)


def cost(name: str, *releases: tuple[float, float, int], delta: float = DELTA) -> float:
    accountant = make_accountant(name)
    for z, q, count in releases:
        accountant.compose(GaussianRelease(z, q), count)
    return accountant.epsilon(delta)


# ------------------------------------------------------------------ known figures


@pytest.mark.parametrize(
    ("z", "q", "printed"),
    [(1.0, 0.15, 5.93), (1.0, 0.25, 9.91), (1.0, 0.5, 20.12), (1.2, 0.25, 7.39), (1.5, 0.25, 5.22)],
)
def test_the_five_losses_printed_in_the_paper(z, q, printed):
    """Fig. 2c and 2d: N = 200, T = 40, delta = N^-1.1."""
    assert round(cost("moments", (z, q, 40)), 2) == printed


@pytest.mark.parametrize(
    ("z", "q", "agents", "rounds", "moments", "pld"),
    [
        (1.0, 0.15, 200, 40, 5.934, 3.964),
        (1.0, 0.25, 200, 40, 9.909, 7.054),
        (1.0, 0.50, 200, 40, 20.123, 15.710),
        (1.2, 0.25, 200, 40, 7.391, 5.152),
        (1.5, 0.25, 200, 40, 5.223, 3.597),
        (1.0, 0.35, 29, 60, 15.166, 10.383),
    ],
)
def test_figures_of_an_independent_computation(z, q, agents, rounds, moments, pld):
    delta = paper_delta(agents)
    assert cost("moments", (z, q, rounds), delta=delta) == pytest.approx(moments, abs=1e-3)
    assert cost("pld", (z, q, rounds), delta=delta) == pytest.approx(pld, abs=1e-3)


def test_a_release_before_the_first_round_counts():
    """The algorithm releases T + 1 times, at t = 0, 1, ..., T. The figures count T releases."""
    assert cost("moments", (1.0, 0.25, 41)) > cost("moments", (1.0, 0.25, 40))


# ------------------------------------------------------------------ oracles


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.15), (0.6, 0.5), (4.0, 0.01)])
def test_log_moments_against_integration_in_many_digits(z, q):
    orders = np.array([1.1, 1.5, 2.0, 2.7, 3.0, 7.3, 20.0])
    ours = renyi.poisson_gaussian(z, q, orders)
    with mpmath.workdps(30):
        for a, got in zip(orders, ours, strict=True):
            order, middle = mpmath.mpf(float(a)), float(a)

            def integrand(x, order=order):
                ratio = (1 - mpmath.mpf(q)) + q * mpmath.exp((2 * x - 1) / (2 * mpmath.mpf(z) ** 2))
                return mpmath.npdf(x, 0, z) * ratio**order

            points = [-14 * z, -4 * z, 0, middle / 2, middle, middle + 4 * z, middle + 14 * z]
            assert got == pytest.approx(float(mpmath.log(mpmath.quad(integrand, points))), rel=1e-9)


def test_the_moment_taken_is_the_larger_of_the_two_directions():
    """The closed form relies on it: alpha bounds the moment over mu_0 and over the mixture."""
    for z, q in [(0.7, 0.1), (1.0, 0.5), (3.0, 0.9)]:
        x = np.arange(-30 * z, 60, z / 64)
        base = np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))
        ratio = (1 - q) + q * np.exp((2 * x - 1) / (2 * z**2))
        for a in (2, 3, 5):
            other = math.log(np.sum(base * ratio ** (1.0 - a)) * z / 64)
            assert other <= renyi.poisson_gaussian(z, q, np.array([float(a)]))[0] + 1e-12


def test_renyi_agrees_with_the_library_at_integer_orders():
    orders = np.arange(2.0, 64.0)
    for z, q in [(1.0, 0.15), (1.5, 0.25), (5.0, 0.01), (1.0, 1.0)]:
        library = LibraryRdp(orders=list(orders))
        library.compose(
            dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), 40
        )
        total = 40 * renyi.poisson_gaussian(z, q, orders) / (orders - 1)
        ours = total + np.log1p(-1 / orders) - np.log(DELTA * orders) / (orders - 1)
        assert ours.min() == pytest.approx(library.get_epsilon(DELTA), rel=1e-9)


def test_renyi_is_no_looser_than_the_library_with_its_own_orders():
    """The library's series for fractional orders is an upper bound; ours is the integral."""
    for z, q in [(1.0, 0.15), (1.0, 0.5), (1.5, 0.25)]:
        library = LibraryRdp()
        library.compose(
            dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), 40
        )
        assert cost("rdp", (z, q, 40)) <= library.get_epsilon(DELTA) * (1 + 1e-9)


@pytest.mark.parametrize("z", [4.0, 1.0, 0.41, 0.39, 0.1])
def test_fixed_size_agrees_with_the_library_at_half_the_noise_multiplier(z):
    """dp_accounting's multiplier is relative to a replacement, which moves the sum twice as far."""
    library = LibraryRdp(
        orders=list(renyi.FIXED_SIZE_ORDERS[:40]),
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
    )
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        200, 30, dp_accounting.GaussianDpEvent(z / 2)
    )
    library.compose(event, 10)
    accountant = make_accountant("fixed-size")
    accountant.compose(FixedSizeRelease(z, 200, 30), 10)
    assert accountant.epsilon(DELTA) == pytest.approx(library.get_epsilon(DELTA), rel=1e-9)


def test_pld_agrees_with_the_library_on_its_fine_grid_for_mixed_rounds():
    library = PLDAccountant()
    for z, q, count in [(1.0, 0.25, 10), (2.0, 1.0, 3), (1.5, 0.1, 5)]:
        library.compose(
            dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), count
        )
    ours = cost("pld", (1.0, 0.25, 10), (2.0, 1.0, 3), (1.5, 0.1, 5))
    assert ours == pytest.approx(library.get_epsilon(DELTA), rel=3e-4)
    assert ours >= library.get_epsilon(DELTA) * (1 - 1e-6)  # coarser grids only round up


@pytest.mark.parametrize("z", [0.5, 1.0, 4.0])
def test_one_unsampled_release_has_the_analytic_loss(z):
    """delta(eps) = Phi(1/2z - eps z) - e^eps Phi(-1/2z - eps z) (Balle and Wang 2018)."""
    eps = cost("pld", (z, 1.0, 1), delta=1e-3)
    delta = mpmath.ncdf(1 / (2 * z) - eps * z) - mpmath.exp(eps) * mpmath.ncdf(
        -1 / (2 * z) - eps * z
    )
    assert float(delta) == pytest.approx(1e-3, rel=2e-3)
    assert float(delta) <= 1e-3 * (1 + 1e-9)


# ------------------------------------------------------------------ properties


@given(
    st.lists(
        st.tuples(st.floats(0.7, 4.0), st.floats(0.02, 1.0), st.integers(1, 30)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([1e-2, DELTA, 1e-5]),
)
@settings(max_examples=12, deadline=None)
def test_pld_is_below_renyi_is_below_moments(releases, delta):
    pld, rdp, moments = (cost(n, *releases, delta=delta) for n in ("pld", "rdp", "moments"))
    assert pld <= rdp * (1 + 1e-3) + 1e-6
    assert rdp <= moments * (1 + 1e-12)


@given(st.floats(0.7, 4.0), st.floats(0.02, 1.0), st.integers(1, 20))
@settings(max_examples=15, deadline=None)
def test_more_noise_fewer_rounds_and_less_sampling_cost_less(z, q, count):
    for name in ("moments", "rdp"):
        base = cost(name, (z, q, count))
        assert cost(name, (z * 1.2, q, count)) < base
        assert cost(name, (z, q, count + 1)) > base
        assert cost(name, (z, q * 0.8, count)) < base


@pytest.mark.parametrize("name", ["moments", "rdp", "pld"])
def test_order_and_grouping_do_not_matter(name):
    one, other = make_accountant(name), make_accountant(name)
    a, b = GaussianRelease(1.0, 0.3, 1), GaussianRelease(2.0, 1.0, 2)
    for event in (a, b, a, b, a):
        one.compose(event)
    other.compose(b, 2)
    other.compose(GaussianRelease(1.0, 0.3, 9), 3)
    assert one.epsilon(DELTA) == pytest.approx(other.epsilon(DELTA), rel=1e-9)


@pytest.mark.parametrize("name", ["moments", "rdp", "pld"])
def test_no_release_costs_nothing_and_would_exceed_adds_nothing(name):
    accountant = make_accountant(name)
    assert accountant.epsilon(DELTA) == 0.0
    event = GaussianRelease(1.0, 0.25)
    assert accountant.would_exceed(event, 0.1, DELTA)
    assert not accountant.would_exceed(event, 50.0, DELTA)
    assert accountant.epsilon(DELTA) == 0.0
    accountant.compose(event)
    spent = accountant.epsilon(DELTA)
    assert not make_accountant(name).would_exceed(event, spent, DELTA)  # exactly spent is not over
    assert make_accountant(name).would_exceed(event, spent * (1 - 1e-9), DELTA)


def test_every_accountant_but_fixed_size_takes_laplace_releases():
    by_name = {name: make_accountant(name) for name in ("pure", "pld", "rdp", "moments")}
    for accountant in by_name.values():
        accountant.compose(LaplaceRelease(0.5), 8)
    assert by_name["pure"].epsilon(0.0) == 4.0
    assert (
        by_name["pld"].epsilon(1e-3)
        < by_name["rdp"].epsilon(1e-3)
        < by_name["moments"].epsilon(1e-3)
    )
    assert by_name["pld"].epsilon(1e-3) < 4.0
    single = make_accountant("pld")
    single.compose(LaplaceRelease(0.5))
    assert 0.49 < single.epsilon(1e-6) <= 0.5 + 1e-3


def test_renyi_divergence_of_laplace_against_integration():
    eps, orders = 0.8, np.array([1.5, 2.0, 9.0])
    x = np.linspace(-60, 60, 2_000_001)
    p, q = np.exp(-np.abs(x) * eps) * eps / 2, np.exp(-np.abs(x - 1) * eps) * eps / 2
    for order, got in zip(orders, renyi.laplace(eps, orders), strict=True):
        assert got == pytest.approx(math.log(trapezoid((p / q) ** order * q, x)), abs=1e-6)


# ------------------------------------------------------------------ speed


def test_epsilon_after_each_round_is_cheap():
    """Two compositions a round at most, whether rounds are alike, alternate, or all differ.

    Composing everything again would take 24 x 25 / 2 = 300 of them for the last.
    """
    alike = [GaussianRelease(1.0, 0.25, t) for t in range(40)]
    alternate = [GaussianRelease(1.0, (0.25, 0.5, 1.0)[t % 3], t) for t in range(24)]
    different = [GaussianRelease(1.0 + t / 50, 0.25, t) for t in range(24)]
    for events in (alike, alternate, different):
        pld._composed.cache_clear()
        pld._epsilon.cache_clear()
        accountant = make_accountant("pld")
        for event in events:
            accountant.would_exceed(event, 100.0, DELTA)
            accountant.compose(event)
            accountant.epsilon(DELTA)
        assert len(events) <= pld._composed.cache_info().misses <= 2 * len(events)


# ------------------------------------------------------------------ what is refused


def test_neighbouring_relations_are_never_mixed():
    poisson, fixed = GaussianRelease(1.0, 0.25), FixedSizeRelease(1.0, 200, 50)
    for name in ("pld", "rdp", "moments"):
        with pytest.raises(PrivacyError, match="different neighbouring relations"):
            make_accountant(name).compose(fixed)
    with pytest.raises(PrivacyError, match="different neighbouring relations"):
        make_accountant("fixed-size").compose(poisson)
    assert set(epsilon_by_accountant([poisson], DELTA)) == {"moments", "rdp", "pld"}
    by_name = epsilon_by_accountant([fixed], DELTA)
    assert by_name["fixed-size"] is not None
    assert by_name["pld"] is by_name["rdp"] is by_name["moments"] is None


def test_bad_input():
    accountant = make_accountant("pld")
    with pytest.raises(PrivacyError, match="must be one of pld, rdp, moments"):
        make_accountant("zcdp")
    for delta in (0.0, 1.0, -1e-3, math.nan):
        for name in ("pld", "rdp", "moments"):
            with pytest.raises(PrivacyError, match=r"`delta` must be in \(0, 1\), but got"):
                make_accountant(name).epsilon(delta)
    with pytest.raises(PrivacyError, match="`delta` must be >= 1e-10 for the pld accountant"):
        accountant.epsilon(1e-12)
    with pytest.raises(PrivacyError, match="`epsilon` must be a finite number > 0, but got 0"):
        accountant.would_exceed(GaussianRelease(1.0), 0, DELTA)
    with pytest.raises(PrivacyError, match="`count` must be an integer >= 1, but got 0"):
        accountant.compose(GaussianRelease(1.0), 0)
    with pytest.raises(PrivacyError, match="takes a LaplaceRelease"):
        make_accountant("pure").compose(GaussianRelease(1.0))


def test_epsilon_of_is_the_same_as_composing():
    rates = [0.1, 0.25, 0.1, 1.0]
    accountant = make_accountant("pld")
    for rate in rates:
        accountant.compose(GaussianRelease(1.3, rate))
    assert epsilon_of(1.3, DELTA, rates) == accountant.epsilon(DELTA)
