"""Clipping holds exactly, sums are exact, and the noise has exactly its distribution."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.guard import calls
from flwr_fbo.privacy import noise
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import Words, seeded_entropy, system_entropy
from flwr_fbo.privacy.mechanisms import GaussianSum, _shortened, clip_rows


def exact_square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


# ------------------------------------------------------------------ clipping


@given(
    st.integers(1, 60),
    st.floats(1e-3, 1e3),
    st.floats(0.999, 1.001) | st.floats(1e-6, 1e6),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_clipped_rows_are_within_the_bound_in_exact_arithmetic(m, bound, factor, seed):
    row = np.random.default_rng(seed).normal(size=m)
    row *= factor * bound / np.linalg.norm(row)
    clipped = clip_rows(row, bound)
    assert exact_square(clipped[0]) <= Fraction(bound) ** 2
    assert np.array_equal(clip_rows(clipped, bound), clipped)
    np.testing.assert_allclose(clipped[0], row * min(1.0, 1.0 / factor), rtol=1e-9)


@given(
    st.integers(1, 30),
    st.sampled_from([1e-200, 1e-120, 1e-99, 1e-3, 1.0, 1e50, 1e99, 1e120]),
    st.lists(st.floats(0.0, 4.0), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_the_short_cut_for_short_rows_changes_nothing(m, bound, factors, seed):
    rows = np.random.default_rng(seed).normal(size=(len(factors), m))
    rows *= np.array(factors)[:, None] * bound / np.linalg.norm(rows, axis=1, keepdims=True)
    rows[0] *= 1.0 - 3.0 * m * 2.0**-52  # as near to the bound as the short cut must tell
    guard = (m + 16) * 2.0**-52
    assert np.array_equal(clip_rows(rows, bound), _shortened(rows, bound, guard))


def test_short_rows_are_unchanged_and_huge_rows_stay_finite():
    rows = np.array([[3.0, 4.0], [3e200, 4e200], [0.0, 0.0], [3e-320, 0.0]])
    clipped = clip_rows(rows, 6.0)
    assert np.array_equal(clipped[[0, 2, 3]], rows[[0, 2, 3]])
    np.testing.assert_allclose(clipped[1], [3.6, 4.8], rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_unusable_messages_are_refused_without_their_numbers(bad):
    with pytest.raises(PrivacyError, match="must be finite") as caught:
        clip_rows(np.array([[0.123, bad]]), 1.0)
    assert "0.123" not in str(caught.value)


# ------------------------------------------------------------------ quantising


@given(st.floats(1e-6, 1e6), st.floats(0.02, 1e4), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_quantising_never_lengthens_and_loses_little(sensitivity, z, seed):
    mechanism = GaussianSum(sensitivity, z)
    rows = np.random.default_rng(seed).normal(size=(4, 9))
    rows *= sensitivity / np.linalg.norm(rows, axis=1, keepdims=True) * [[0.1], [1.0], [1.0], [7]]
    integers = mechanism.quantise(rows)
    step = Fraction(mechanism._lattice.step)
    for row in integers:
        assert sum(int(k) ** 2 for k in row) * step**2 <= Fraction(sensitivity) ** 2
    back = integers * float(step)
    assert np.abs(back[:3] - rows[:3]).max() <= mechanism.deviation * 2.0**-28 + 1e-12 * sensitivity
    assert np.abs(integers).max() * 10**7 < 2**61


def test_quantise_clips_where_the_caller_did_not():
    mechanism = GaussianSum(1.0, 1.0)
    units = mechanism.quantise(np.array([[300.0, 400.0]]))
    assert np.linalg.norm(units * mechanism._lattice.step) <= 1.0


def test_sums_are_exact_whatever_the_order():
    mechanism = GaussianSum(2.0, 0.7)
    units = mechanism.quantise(np.random.default_rng(0).normal(size=(500, 20)))
    shuffled = units[np.random.default_rng(1).permutation(500)]
    assert np.array_equal(units.sum(axis=0), shuffled.sum(axis=0))
    assert [int(x) for x in units.sum(axis=0)] == [sum(map(int, col)) for col in units.T]


# ------------------------------------------------------------------ the noise


@pytest.mark.parametrize(
    ("distribution", "scipy_distribution"),
    [(noise.GAUSSIAN, stats.norm), (noise.LAPLACE, stats.laplace)],
)
@pytest.mark.parametrize("scale", [0.4, 1.0, 7.3])
def test_coarse_noise_has_the_probabilities_of_the_rounded_distribution(
    distribution, scipy_distribution, scale
):
    """On a coarse lattice every probability can be compared: P(K = k) = F(k+½) - F(k-½)."""
    n = 60_000
    k = noise.draw_rounded(distribution, scale, n, seeded_entropy(5))
    edge = int(4 * scale) + 1
    values = np.arange(-edge, edge + 1)
    expected = n * (
        scipy_distribution.cdf((values + 0.5) / scale)
        - scipy_distribution.cdf((values - 0.5) / scale)
    )
    seen = np.array([(k == value).sum() for value in values])
    keep = expected > 8
    chi2 = ((seen - expected)[keep] ** 2 / expected[keep]).sum()
    assert chi2 < stats.chi2.ppf(0.9999, keep.sum() - 1)


@pytest.mark.parametrize(
    ("distribution", "scipy_distribution"),
    [(noise.GAUSSIAN, stats.norm), (noise.LAPLACE, stats.laplace)],
)
def test_fine_noise_has_the_distribution(distribution, scipy_distribution):
    scale = 1.37 * 2**28
    k = noise.draw_rounded(distribution, scale, 40_000, seeded_entropy(6))
    assert stats.kstest(k / scale, scipy_distribution.cdf).pvalue > 1e-4
    assert stats.kstest(k % 1024, stats.randint(0, 1024).cdf).pvalue > 1e-6  # low bits are flat
    assert abs(np.corrcoef(k[1:], k[:-1])[0, 1]) < 4 / math.sqrt(len(k))


class Bits:
    """Entropy whose 127 bits of V, sign and further words are given."""

    private = False

    def __init__(self, v: int, sign: int, further: list[int]) -> None:
        self.queue = [v >> 63, ((v & (2**63 - 1)) << 1) | sign, *further]

    def words(self, count: int) -> Words:
        taken, self.queue = self.queue[:count], self.queue[count:]
        return np.array(taken, dtype=np.uint64)


@given(
    st.integers(0, 2**127 - 1) | st.integers(0, 2**50),
    st.integers(0, 1),
    st.floats(0.3, 2.0**29),
    st.sampled_from(["gaussian", "laplace"]),
)
@settings(max_examples=80, deadline=None)
def test_each_draw_is_the_one_that_its_bits_define(v, sign, scale, name):
    """The definition, checked in 400 bits: T((k+½)/s) <= V < T((k-½)/s)."""
    distribution = {"gaussian": noise.GAUSSIAN, "laplace": noise.LAPLACE}[name]
    k = int(noise.draw_rounded(distribution, scale, 1, Bits(v, sign, [2**63] * 8))[0])
    assert k == 0 or (k < 0) == bool(sign)
    with mpmath.workprec(400):
        # The bits after the 127 read are 1000...: V is known to the last.
        exact = (mpmath.mpf(v) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 127
        below = distribution.exact_tail(mpmath.mp, (mpmath.mpf(abs(k)) + 0.5) / scale)
        above = distribution.exact_tail(mpmath.mp, (mpmath.mpf(abs(k)) - 0.5) / scale) if k else 2
        assert below <= exact * (1 + mpmath.mpf(2) ** -120)
        assert exact * (1 - mpmath.mpf(2) ** -120) < above


@pytest.mark.parametrize("distribution", [noise.GAUSSIAN, noise.LAPLACE])
def test_draws_at_the_edge_of_a_cell_read_further_bits(distribution):
    """Where V is within 2^-127 of an edge, the next word decides, and both results occur."""
    scale, k = 3.7 * 2**20, 3_000_000
    with mpmath.workprec(600):
        edge = (
            distribution.exact_tail(mpmath.mp, (mpmath.mpf(k) - 0.5) / scale) * mpmath.mpf(2) ** 127
        )
        v = int(mpmath.floor(edge))
        rest = int(mpmath.floor((edge - v) * mpmath.mpf(2) ** 64))
    assert (
        noise.draw_rounded(distribution, scale, 1, Bits(v, 0, [max(rest - 1, 0)]))[0] == k
    )  # V < T((k-½)/s)
    assert noise.draw_rounded(distribution, scale, 1, Bits(v, 0, [rest + 1]))[0] == k - 1


@pytest.mark.parametrize("distribution", [noise.GAUSSIAN, noise.LAPLACE])
def test_the_margin_covers_double_precision_a_hundred_times(distribution):
    """The fast path is exact only under this claim, measured here against 200 bits."""
    v = np.concatenate([np.geomspace(2.0**-79, 0.5, 300), 1 - np.geomspace(2.0**-40, 0.5, 50)])
    scale = 1.2345 * 2**28
    k = np.rint(scale * distribution.inverse(v))
    got = distribution.tail((k + 0.5) / scale)
    with mpmath.workprec(200):
        wrong = max(
            abs(
                mpmath.mpf(float(g))
                / distribution.exact_tail(mpmath.mp, (mpmath.mpf(int(a)) + 0.5) / scale)
                - 1
            )
            for g, a in zip(got, k, strict=True)
        )
    assert wrong < noise._MARGIN / 100


def test_release_is_the_sum_with_noise_of_the_stated_deviation():
    mechanism = GaussianSum(sensitivity=0.3, noise_multiplier=1.7)
    total = mechanism.quantise(np.full((10, 4), 0.05)).sum(axis=0)
    entropy = seeded_entropy(1)
    noisy = np.stack([mechanism.release(total, entropy) for _ in range(4000)])  # (4000, 4)
    n, deviation = noisy.size, 0.3 * 1.7
    assert abs(noisy.mean() - 0.5) < 4.5 * deviation / math.sqrt(n)
    assert abs(noisy.std() / deviation - 1) < 4.5 / math.sqrt(2 * n)
    lattice = noisy / mechanism._lattice.step
    assert np.array_equal(lattice, np.rint(lattice))  # the same support whatever the input


def test_noise_is_drawn_again_for_each_release():
    mechanism = GaussianSum(1.0, 1.0)
    zero = np.zeros(50, dtype=np.int64)
    first, second = (mechanism.release(zero, system_entropy()) for _ in range(2))
    assert not np.any(first == second)
    assert len(np.unique(first)) == 50


@pytest.mark.parametrize("unit", [0, 1, 12_345_678_901])
def test_a_release_uses_every_point_of_the_lattice_whatever_the_sum_is(unit):
    mechanism = GaussianSum(1.0, 1.0)
    released = mechanism.release(np.full(40_000, unit, dtype=np.int64), seeded_entropy(4))
    k = (released / mechanism._lattice.step).astype(np.int64)
    assert np.array_equal(k * mechanism._lattice.step, released)
    # 2,500 each, with a standard deviation of 49
    low_bits = np.bincount(k % 16, minlength=16)
    assert np.abs(low_bits - 2500).max() < 6 * 49


def test_noise_has_as_many_bits_as_the_lattice():
    """Two of n numbers are equal with probability 1 / (2 sqrt(pi) s) for noise of s lattice steps.

    Of 5 x 10^9 pairs that makes 5.3 equal ones at most, and more than 22 once in 10^8. Noise of
    single precision has 16 times as many or more."""
    mechanism = GaussianSum(1.0, 1.0)
    assert 2.0**28 <= mechanism._lattice.units <= 2.0**29
    released = np.sort(mechanism.release(np.zeros(100_000, dtype=np.int64), seeded_entropy(9)))
    assert (released[1:] == released[:-1]).sum() <= 22


def test_every_number_of_the_noise_has_random_words_of_its_own():
    class Counted:
        private = False
        count = 0

        def words(self, count: int) -> Words:
            self.count += count
            return system_entropy().words(count)

    entropy = Counted()
    GaussianSum(1.0, 1.0).release(np.zeros(300, dtype=np.int64), entropy)
    assert entropy.count >= 2 * 300


def test_releases_are_drawn_together():
    """A draw for every number by itself would read the entropy ten times as often or more."""
    mechanism, entropy = GaussianSum(1.0, 1.0), system_entropy()

    def called(size: int) -> int:
        return calls(lambda: mechanism.release(np.zeros(size, dtype=np.int64), entropy))

    assert called(400) < 3_000  # 57 to 790 were measured
    assert called(100_000) < 300_000  # 106,000 to 128,000


@pytest.mark.parametrize(
    ("sensitivity", "z", "message"),
    [
        (0.0, 1.0, "`sensitivity` must be a finite number > 0, but got 0.0"),
        (1.0, 0.0, "`noise_multiplier` must be a finite number > 0, but got 0.0"),
        (1.0, -1.0, "`noise_multiplier` must be a finite number > 0, but got -1.0"),
        (1.0, 1e-3, r"`noise_multiplier` must be in \[0.01, 1e\+06\], but got 0.001"),
        (1e-300, 1.0, r"must be in \(1e-250, 1e250\), but got 1.0*2e-300"),
        (math.nan, 1.0, "`sensitivity` must be a finite number > 0, but got nan"),
    ],
)
def test_bad_mechanisms(sensitivity, z, message):
    with pytest.raises(PrivacyError, match=message):
        GaussianSum(sensitivity, z)


def test_release_takes_integers_only():
    with pytest.raises(PrivacyError, match=r"must be int64 of shape \(d,\), but got float64"):
        GaussianSum(1.0, 1.0).release(np.zeros(3), system_entropy())  # type: ignore[arg-type]
