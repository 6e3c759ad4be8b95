"""Entropy and sampling: exact probabilities, statistical checks, and what is refused."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import (
    Words,
    fixed_size_sample,
    poisson_sample,
    seeded_entropy,
    system_entropy,
)


class Scripted:
    """Entropy whose words are given."""

    private = False

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> Words:
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count, "more words were drawn than the test foresaw"
        return np.array(taken, dtype=np.uint64)


def test_system_entropy_is_private_and_differs_each_time():
    entropy = system_entropy()
    assert entropy.private
    first, second = entropy.words(4), system_entropy().words(4)
    assert first.dtype == np.uint64
    assert not np.array_equal(first, second)  # equal by chance once in 2^256


def test_seeded_entropy_repeats_itself_and_is_not_private():
    one, other = seeded_entropy(7), seeded_entropy(7)
    assert not one.private
    assert np.array_equal(one.words(3), other.words(3))
    assert np.array_equal(np.concatenate([one.words(2), one.words(3)]), other.words(5))
    assert "7" not in repr(one)
    with pytest.raises(PrivacyError, match=r"`seed` must be an integer >= 0, but got -1"):
        seeded_entropy(-1)


def test_poisson_sample_compares_whole_words():
    half = 1 << 63
    got = poisson_sample(3, 0.5, Scripted(half - 1, half, 0))
    assert got.tolist() == [True, False, True]


def test_poisson_sample_reads_further_words_at_the_edge():
    """0.1 is 0x1.999999999999ap-4: times 2^64 it is an integer, so equality decides at once."""
    whole = int(0.1 * 2**64)
    assert poisson_sample(2, 0.1, Scripted(whole - 1, whole)).tolist() == [True, False]
    # 2^-66 needs two words: the first must be 0, the second below 2^62.
    tiny = 2.0**-66
    assert poisson_sample(1, tiny, Scripted(0, (1 << 62) - 1)).tolist() == [True]
    assert poisson_sample(1, tiny, Scripted(0, 1 << 62)).tolist() == [False]
    assert poisson_sample(1, tiny, Scripted(1)).tolist() == [False]


def test_a_rate_of_one_takes_everybody():
    assert poisson_sample(5, 1.0, Scripted()).all()


@pytest.mark.parametrize("rate", [0.05, 0.35, 0.999])
def test_poisson_sample_rate_and_independence(rate):
    n = 40_000
    sample = poisson_sample(n, rate, seeded_entropy(3))
    deviation = np.sqrt(rate * (1 - rate) / n)
    assert abs(sample.mean() - rate) < 4 * deviation  # false alarm once in 16,000
    pairs = (sample[1:] & sample[:-1]).mean()
    assert abs(pairs - rate**2) < 5 * np.sqrt(rate**2 / n)


@given(st.integers(1, 40), st.data())
@settings(max_examples=30, deadline=None)
def test_fixed_size_sample_has_its_size(count, data):
    size = data.draw(st.integers(1, count))
    assert fixed_size_sample(count, size, system_entropy()).sum() == size


def test_fixed_size_sample_is_uniform_over_subsets():
    entropy, trials = seeded_entropy(11), 12_000
    seen = Counter(tuple(np.flatnonzero(fixed_size_sample(5, 2, entropy))) for _ in range(trials))
    assert set(seen) == set(itertools.combinations(range(5), 2))
    expected = trials / 10
    chi2 = sum((got - expected) ** 2 / expected for got in seen.values())
    assert chi2 < 27.9  # the 0.999 quantile for 9 degrees of freedom


def test_equal_words_are_drawn_again():
    """Ties would favour low indices."""
    got = fixed_size_sample(3, 1, Scripted(5, 5, 9, 3, 1, 2))
    assert got.tolist() == [False, True, False]


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan"), "half", True])
def test_bad_rates_are_refused(rate):
    with pytest.raises(PrivacyError, match=r"`rate` must be in \(0, 1\], but got"):
        poisson_sample(3, rate, system_entropy())


def test_bad_sizes_are_refused():
    with pytest.raises(PrivacyError, match=r"size=4, count=3"):
        fixed_size_sample(3, 4, system_entropy())
    with pytest.raises(PrivacyError, match=r"`count` must be an integer >= 1, but got 0"):
        poisson_sample(0, 0.5, system_entropy())
