r"""Secret randomness, and the sampling of the agents that take part in a round.

Noise and sampling protect agents only while nobody can predict or repeat the random numbers.
Every function here draws from an :class:`Entropy`. :func:`system_entropy` is the operating
system's generator, with no seed and no state that could be stored. :func:`seeded_entropy` is a
stream for research. It has ``private = False``, so a run that uses it can report NOT PRIVATE.

Notation

=============  ======================================  ===========
paper          here                                    shape
=============  ======================================  ===========
``q``          ``rate``                                scalar
``S_t``        ``poisson_sample(N, q, entropy)``       (N,) bool
``Nq`` agents  ``fixed_size_sample(N, Nq, entropy)``   (N,) bool
=============  ======================================  ===========

The sample is as secret as the noise: the accountants' gain from sampling holds only against
observers who do not know the sample. A sample must never be logged, stored or sent.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.privacy import checks

Words = NDArray[np.uint64]
_WORD = 1 << 64


class Entropy(Protocol):
    """A source of independent, uniform 64-bit words."""

    #: False where the words can be predicted, as from a seeded source.
    private: bool

    def words(self, count: int) -> Words:
        """Return the next ``count`` words: (count,)."""


class _SystemEntropy:
    """The operating system's generator. The object has no state that could be stored."""

    private = True

    def words(self, count: int) -> Words:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "system_entropy()"


class _SeededEntropy:
    """A reproducible stream. Anybody who knows the seed can subtract the noise."""

    private = False

    def __init__(self, seed: int) -> None:
        self._stream = np.random.Philox(seed)

    def words(self, count: int) -> Words:
        return np.asarray(self._stream.random_raw(count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "seeded_entropy(...)"  # without the seed, which reveals the noise and so the data


def system_entropy() -> Entropy:
    """Return the entropy for private runs."""
    return _SystemEntropy()


def seeded_entropy(seed: int) -> Entropy:
    """Return entropy for research and tests: reproducible, and therefore NOT PRIVATE."""
    return _SeededEntropy(checks.count("seed", seed, low=0))


def poisson_sample(count: int, rate: float, entropy: Entropy) -> NDArray[np.bool_]:
    """Return which of ``count`` agents take part, each independently with probability ``rate``.

    Algorithm 1, line 6. The probability is exact: the double ``rate`` is a fraction of integers,
    and random words are compared with as many of its bits as needed. (A comparison of a random
    double with ``rate`` would be off by up to 2^-53, while the accountants assume the exact rate.)
    """
    checks.count("count", count)
    chance = Fraction(checks.rate("rate", rate))
    chosen = np.zeros(count, dtype=np.bool_)  # (N,)
    undecided = np.arange(count)
    while undecided.size:
        whole = math.floor(chance * _WORD)
        if whole == _WORD:  # the probability is 1
            chosen[undecided] = True
            break
        words = entropy.words(undecided.size)
        chosen[undecided] = words < np.uint64(whole)
        # An agent whose word equals `whole` is still undecided; this probability is left to it.
        chance = chance * _WORD - whole
        undecided = undecided[words == np.uint64(whole)] if chance else undecided[:0]
    return chosen


def fixed_size_sample(count: int, size: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Return which agents are in a uniformly random subset of ``size`` of ``count`` agents.

    App. B.2.4. Every agent gets a random word, and the agents with the ``size`` smallest words
    are in the subset. Given that all words differ, every order of the words is equally likely,
    so the subset is exactly uniform.
    """
    checks.count("count", count)
    if not 1 <= checks.count("size", size) <= count:
        raise checks.PrivacyError(f"`1 <= size <= count` must hold, but got ({size=}, {count=})")
    while True:
        words = entropy.words(count)
        if np.unique(words).size == count:  # otherwise all words are drawn again
            break
    chosen = np.zeros(count, dtype=np.bool_)  # (N,)
    chosen[np.argpartition(words, size - 1)[:size]] = True
    return chosen
