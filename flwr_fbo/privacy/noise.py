r"""Gaussian and Laplace noise, rounded to an integer lattice, without any error in its law.

**Why not** ``x + scale * normal()`` **in floating point.** Doubles are not real numbers: which
low bits a sum can have depends on its terms, so the noise leaks what it should hide (Mironov
2012), and the law of a pseudo-normal has gaps that grow in the tails. The remedy is to choose
what comes out from a lattice that is the same for all inputs, and to choose it with exactly the
right probabilities.

**Construction.** The input is an integer vector (a sum of quantised contributions). To it we
add :math:`K = \mathrm{round}(s X)` for a standard normal (or Laplace) :math:`X` and a scale
:math:`s` in lattice units. As the input is an integer,
:math:`x + \mathrm{round}(s X) = \mathrm{round}(x + s X)`: what is released is *exactly a
rounding of the continuous mechanism*. Rounding is post-processing, so every accountant of the
continuous mechanism holds as it stands, with nothing added to delta. A discrete Gaussian
(Canonne, Kamath, Steinke 2020) would satisfy the same Renyi bounds, but the privacy-loss
distribution of the continuous mechanism only up to a total variation; and its rejection loops
over big rationals are slower. A continuous double rounded afterwards has the right lattice and
the wrong probabilities.

**Sampling K exactly.** With a fair sign and ``V`` uniform in (0, 1),
:math:`|K| = k` if and only if :math:`T((k+½)/s) \le V < T((k-½)/s)`, where
:math:`T(x) = P(|X| > x)`. ``V`` is read to 127 bits, ``k`` is found in double precision, and
the two inequalities are *checked* with a margin of 2^-38, a hundred times what double
precision can be wrong by there. The few draws that come nearer to an edge than that (about two
in a thousand) are settled with as many digits, and as many further bits of ``V``, as it takes.
The result is therefore a function of uniform bits that has exactly the stated law; double
precision only makes it fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.entropy import Entropy

_MARGIN = 2.0**-38
_PRECISION = Lock()  # of the context, which threads share
_RARE = 2.0**-80  # below this V has too few bits read for the margin to cover the rest


@dataclass(frozen=True)
class Law:
    """A symmetric law of noise, by the tail P(|X| > x) of its standard member."""

    tail: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    #: The tail in arbitrary precision: (mpmath context, x) -> T(x).
    exact_tail: Callable[[Any, Any], Any]


GAUSSIAN = Law(
    tail=lambda x: np.asarray(special.erfc(x / np.sqrt(2.0))),
    inverse=lambda v: np.asarray(np.sqrt(2.0) * special.erfcinv(v)),
    exact_tail=lambda mp, x: mp.erfc(x / mp.sqrt(2)),
)
LAPLACE = Law(
    tail=lambda x: np.exp(-x),
    inverse=lambda v: -np.log(v),
    exact_tail=lambda mp, x: mp.exp(-x),
)


def rounded(law: Law, scale: float, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """``count`` independent draws of round(scale X), X of the given law: (count,)."""
    words = entropy.words(2 * count).reshape(2, count)
    high, low = words[0], words[1] >> np.uint64(1)  # V = (high 2^63 + low + ...) / 2^127
    negative = (words[1] & np.uint64(1)).astype(np.bool_)
    v = (high + low * 2.0**-63) * 2.0**-64  # (count,)
    common = v > _RARE
    safe = np.where(common, v, 0.5)
    k = np.rint(scale * law.inverse(safe))  # (count,)
    sure = common & (law.tail((k + 0.5) / scale) * (1.0 + _MARGIN) < v)
    sure &= (k == 0) | (v < law.tail(np.maximum(k - 0.5, 0.0) / scale) * (1.0 - _MARGIN))
    magnitude = k.astype(np.int64)
    for i in np.flatnonzero(~sure):
        magnitude[i] = _settle(
            law, scale, (int(high[i]) << 63) | int(low[i]), int(magnitude[i]), entropy
        )
    return np.where(negative, -magnitude, magnitude)


def _settle(law: Law, scale: float, v: int, guess: int, entropy: Entropy) -> int:
    """The k that belongs to V = (v + an unread part of [0, 1)) / 2^127, however close."""
    bits = 127
    while (k := _last(_Comparison(law, scale, v, bits), guess)) is None:
        v, bits = (v << 64) | int(entropy.words(1)[0]), bits + 64
    return k


@dataclass(frozen=True)
class _Comparison:
    """Whether V < T((k - 1/2)/s), where V lies in [v, v + 1) / 2^bits."""

    law: Law
    scale: float
    v: int
    bits: int

    def __call__(self, k: int) -> bool | None:
        """The answer, or None where the bits read so far do not tell."""
        if k <= 0:
            return True
        mp = _context()
        with _PRECISION, mp.workprec(self.bits + 80):
            error = mp.mpf(2) ** -(self.bits + 40)  # relative, far above that of the tail
            edge = self.law.exact_tail(mp, (mp.mpf(k) - 0.5) / self.scale) * mp.mpf(2) ** self.bits
            if self.v + 1 <= edge * (1 - error):
                return True
            return False if self.v >= edge * (1 + error) else None


def _last(below: Callable[[int], bool | None], guess: int) -> int | None:
    """The largest k for which ``below`` holds, sought from near the guess; None if undecided."""
    k = max(guess - 1, 0)
    if below(k) is not True:
        k = 0
    step = 1
    while (answer := below(k + step)) is True:
        k, step = k + step, 2 * step
    high = k + step
    while answer is not None and high - k > 1:  # below(k), and not below(high)
        answer = below((k + high) // 2)
        k, high = ((k + high) // 2, high) if answer else (k, (k + high) // 2)
    return None if answer is None else k


@cache
def _context() -> Any:
    import mpmath  # only here: two draws in a thousand need it

    return mpmath.mp.clone()
