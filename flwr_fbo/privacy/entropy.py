r"""Where randomness that must stay secret comes from, and who takes part in a round.

Noise and sampling protect people only while nobody can predict or replay them. Everything
here draws from an :class:`Entropy`: the operating system's generator (nothing is seeded, kept
or restored), or a seeded stream for research, which says ``private = False`` so that whatever
uses it can say NOT PRIVATE too.

Notation

=============  ======================================  ===========
paper          here                                    shape
=============  ======================================  ===========
``q``          ``rate``                                scalar
``S_t``        ``poisson_sample(N, q, entropy)``       (N,) bool
``Nq`` agents  ``fixed_size_sample(N, Nq, entropy)``   (N,) bool
=============  ======================================  ===========

The sample is as secret as the noise: amplification by sampling holds only against those who
do not know who was sampled. It must never be logged, stored or sent.
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

    #: False where the words can be foretold, as those of a seeded source can.
    private: bool

    def words(self, count: int) -> Words:
        """The next ``count`` words."""


class _SystemEntropy:
    """The operating system's generator; there is no state here that could be stored."""

    private = True

    def words(self, count: int) -> Words:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "system_entropy()"


class _SeededEntropy:
    """A reproducible stream. Whoever knows the seed can subtract the noise."""

    private = False

    def __init__(self, seed: int) -> None:
        self._stream = np.random.Philox(seed)

    def words(self, count: int) -> Words:
        return np.asarray(self._stream.random_raw(count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "seeded_entropy(...)"  # the seed is the key to the noise: not for logs


def system_entropy() -> Entropy:
    """Entropy for runs that must be private."""
    return _SystemEntropy()


def seeded_entropy(seed: int) -> Entropy:
    """Entropy for research and tests: reproducible, and therefore NOT PRIVATE."""
    return _SeededEntropy(checks.count("seed", seed, low=0))


def poisson_sample(count: int, rate: float, entropy: Entropy) -> NDArray[np.bool_]:
    """Algorithm 1, line 6: each of ``count`` agents, independently, with probability ``rate``.

    Exactly so: a double is a fraction with a power of two below, and a word is compared with
    as many of its bits as it takes. (Comparing a double in [0, 1) with ``rate`` would be off by
    up to 2^-53, and the accountants assume that it is not.)
    """
    checks.count("count", count)
    chance = Fraction(checks.rate("rate", rate))
    chosen = np.zeros(count, dtype=np.bool_)  # (N,)
    undecided = np.arange(count)
    while undecided.size:
        whole = math.floor(chance * _WORD)
        if whole == _WORD:  # the chance is 1
            chosen[undecided] = True
            break
        words = entropy.words(undecided.size)
        chosen[undecided] = words < np.uint64(whole)
        chance = chance * _WORD - whole  # the chance left to those that met the edge
        undecided = undecided[words == np.uint64(whole)] if chance else undecided[:0]
    return chosen


def fixed_size_sample(count: int, size: int, entropy: Entropy) -> NDArray[np.bool_]:
    """A uniformly random subset of exactly ``size`` of ``count`` agents (App. B.2.4).

    The agents with the ``size`` smallest of ``count`` distinct words: given that they are
    distinct, every order of the words is equally likely, so the subset is exactly uniform.
    """
    checks.count("count", count)
    if not 1 <= checks.count("size", size) <= count:
        raise checks.PrivacyError(f"`1 <= size <= count` must hold, but got ({size=}, {count=})")
    while True:
        words = entropy.words(count)
        if np.unique(words).size == count:
            break
    chosen = np.zeros(count, dtype=np.bool_)  # (N,)
    chosen[np.argpartition(words, size - 1)[:size]] = True
    return chosen
