"""Random generators for many evaluations: the streams of numpy's ``default_rng``, made faster.

``numpy.random.default_rng([..., play])`` takes longer than a cheap evaluation. Here the states of
the generators of many plays, or of many agents, are computed at once, by the published algorithms
of numpy's ``SeedSequence`` and ``PCG64``. The numbers that the generators return are the same to
the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

#: Words of 32 or 64 bits.
Bits: TypeAlias = NDArray[np.unsignedinteger[Any]]
#: The constants of numpy's SeedSequence, which numpy promises not to change.
_INIT_A, _MULT_A, _INIT_B, _MULT_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF, _WORD, _POOL = np.uint32(16), 2**32, 4
#: The multiplier of PCG64.
_STEP = 0x2360ED051FC65DA44385DF649FCCF645
_BITS_128 = 2**128 - 1


def generators(key: Sequence[int], first: int, count: int) -> Iterator[np.random.Generator]:
    """Yield generators that draw what ``default_rng([*key, first])``, ... draw, one after another.

    It is one generator, which must not be used after the next one is taken.

    Parameters
    ----------
    key
        Integers >= 0.
    first, count
        The last number of the first generator, and how many there are.

    Examples
    --------
    >>> [g.random() for g in generators([7, 2], 5, 2)] == [
    ...     np.random.default_rng([7, 2, n]).random() for n in (5, 6)]
    True
    """
    if not count:
        return
    if first + count > _WORD:
        for play in range(first, first + count):
            yield np.random.default_rng([*key, play])
        return
    plays = np.arange(first, first + count, dtype=np.uint32)
    bits = np.random.PCG64(0)
    generator = np.random.Generator(bits)
    with np.errstate(over="ignore"):  # all of this is arithmetic modulo 2^32
        words = _state_words(_pool([*_words_of(key), plays], count))
    for a, b, c, d in words.tolist():
        increment = ((c << 64 | d) << 1 | 1) & _BITS_128
        state = ((increment + (a << 64 | b)) * _STEP + increment) & _BITS_128
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        yield generator


def generators_of(keys: Sequence[Sequence[int]]) -> list[np.random.Generator]:
    """Return a generator for each key, which draws what ``default_rng(key)`` draws.

    Examples
    --------
    >>> [g.random() for g in generators_of([(7, 2), (8, 2)])] == [
    ...     np.random.default_rng(key).random() for key in ((7, 2), (8, 2))]
    True
    """
    try:
        columns = np.array(keys, dtype=np.uint64).T
    except (OverflowError, ValueError):  # a number that is too large, or keys of unequal lengths
        columns = np.zeros((0, 0), dtype=np.uint64)
    if columns.ndim < 2 or not columns.size or columns.max() >= _WORD:
        return [np.random.default_rng(key) for key in keys]
    with np.errstate(over="ignore"):  # all of this is arithmetic modulo 2^32
        words = _state_words(_pool(list(columns.astype(np.uint32)), len(keys)))
    starts: list[Any] = [_Words(row) for row in words]
    return [np.random.Generator(np.random.PCG64(start)) for start in starts]


class _Words(ISeedSequence):
    """The words (4,) from which a PCG64 starts, in place of what they are computed from."""

    __slots__ = ("_words",)

    def __init__(self, words: Bits) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """Return the words, which is what PCG64 asks for."""
        if n_words != len(self._words) or np.dtype(dtype) != self._words.dtype:
            raise ValueError(f"a PCG64 starts from {len(self._words)} words of 64 bits")
        return self._words


def _words_of(key: Sequence[int]) -> list[np.uint32]:
    """Return the integers of a key as words of 32 bits, the low word of each first."""
    words = []
    for number in key:
        rest = int(number)
        if rest < 0:
            raise ValueError(f"the numbers of a key must be integers >= 0, but got {number!r}")
        while True:
            words.append(np.uint32(rest % _WORD))
            rest //= _WORD
            if not rest:
                break
    return words


class _Hash:
    """SeedSequence's hash, whose constant changes with every call."""

    def __init__(self, constant: int, multiplier: int) -> None:
        self._constant, self._multiplier = constant, multiplier

    def __call__(self, value: Bits) -> Bits:
        value = value ^ np.uint32(self._constant)
        self._constant = self._constant * self._multiplier % _WORD
        value = value * np.uint32(self._constant)
        return np.asarray(value ^ (value >> _HALF))


def _pool(entropy: Sequence[np.uint32 | Bits], count: int) -> list[Bits]:
    """Return the entropy pools of many seeds: four words, each (count,)."""
    given: list[Bits] = [np.broadcast_to(np.asarray(w), count).astype(np.uint32) for w in entropy]
    empty, hashed = np.zeros(count, dtype=np.uint32), _Hash(_INIT_A, _MULT_A)
    pool = [hashed(given[i] if i < len(given) else empty) for i in range(_POOL)]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = _mixed(pool[target], hashed(pool[source]))
    for word in given[_POOL:]:
        for target in range(_POOL):
            pool[target] = _mixed(pool[target], hashed(word))
    return pool


def _mixed(x: Bits, y: Bits) -> Bits:
    result = _MIX_L * x - _MIX_R * y
    return np.asarray(result ^ (result >> _HALF))


def _state_words(pool: Sequence[Bits]) -> Bits:
    """Return the four words of 64 bits from which PCG64 starts: (count, 4)."""
    hashed = _Hash(_INIT_B, _MULT_B)
    words = [hashed(pool[i % _POOL]).astype(np.uint64) for i in range(2 * _POOL)]
    pairs = zip(words[::2], words[1::2], strict=True)
    return np.stack([low | high << np.uint64(32) for low, high in pairs], axis=1)
