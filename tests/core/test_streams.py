"""Streams of random numbers: those of numpy's own generators, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.core.streams import generators, generators_of

WORDS = st.one_of(st.integers(0, 9), st.integers(0, 2**70), st.sampled_from([2**31, 2**32 - 1]))


def drawn(generator: np.random.Generator) -> list[float]:
    # an odd number of 32-bit draws leaves half a word behind, which must not be passed on
    small = generator.integers(0, 7, size=3, dtype=np.uint32).tolist()
    return [*small, generator.random(), *generator.standard_normal(4)]


@given(st.lists(WORDS, max_size=8), st.integers(0, 2**32 - 8), st.integers(0, 5))
def test_streams_are_those_of_numpy(key: list[int], first: int, count: int) -> None:
    found = [drawn(g) for g in generators(key, first, count)]
    expected = [drawn(np.random.default_rng([*key, first + n])) for n in range(count)]
    assert found == expected


def test_numbers_beyond_one_word_are_streams_too() -> None:
    first = 2**32 - 1
    found = [g.random() for g in generators([3], first, 2)]
    assert found == [np.random.default_rng([3, first + n]).random() for n in range(2)]


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"integers >= 0, but got -1"):
        next(generators([-1], 0, 1))


@given(st.lists(st.lists(WORDS, min_size=1, max_size=8), max_size=4))
def test_generators_of_any_keys_are_those_of_numpy(keys: list[list[int]]) -> None:
    expected = [drawn(np.random.default_rng(key)) for key in keys]
    assert [drawn(g) for g in generators_of(keys)] == expected


def test_generators_of_many_keys_live_side_by_side() -> None:
    keys = [(3, agent, 2, 7) for agent in range(50)]
    found = generators_of(keys)
    first = [g.random() for g in found]
    second = [g.standard_normal() for g in reversed(found)][::-1]
    oracles = [np.random.default_rng(key) for key in keys]
    assert first == [g.random() for g in oracles]
    assert second == [g.standard_normal() for g in oracles]


def test_a_key_with_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        generators_of([(1, 2), (1, -2)])
