r"""Gaussian and Laplace noise, rounded to integers, with exact probabilities.

Notation

==========================================  ==============================  ==========
symbol                                      here                            shape
==========================================  ==============================  ==========
``X``, a standard normal or Laplace number  ``NoiseDistribution``           scalar
``s``, scale of the noise in lattice units  ``scale``                       scalar
``K = round(s X)``                          ``draw_rounded(...)``           (count,)
``T(x) = P(|X| > x)``                       ``NoiseDistribution.tail``      scalar
``V``, uniform in (0, 1)                    ``v``, in doubles               (count,)
==========================================  ==============================  ==========

**Why not** ``x + scale * normal()`` **in floating point.** Doubles are not real numbers. The low
bits that a sum of doubles can have depend on its terms, so the released number reveals what the
noise should hide (Mironov 2012). The distribution of a pseudo-normal double also has gaps, which
grow in the tails. The remedy is to release a point of a lattice that is the same for all inputs,
and to choose that point with exactly the right probabilities.

**Construction.** The input is an integer vector x (a sum of quantised contributions). We add
:math:`K = \mathrm{round}(s X)`. As x is an integer,
:math:`x + \mathrm{round}(s X) = \mathrm{round}(x + s X)`: the released vector is *exactly a
rounding of the continuous mechanism*. Rounding is post-processing, so every accountant of the
continuous mechanism holds unchanged, with nothing added to delta. Two alternatives are weaker. A
discrete Gaussian (Canonne, Kamath, Steinke 2020) satisfies the same Renyi bounds, but has the
privacy-loss distribution of the continuous mechanism only up to a total variation, and its
rejection loops over big rationals are slower. A continuous double that is rounded afterwards lies
on the right lattice with the wrong probabilities.

**Sampling K exactly.** With a fair sign and V uniform in (0, 1), :math:`|K| = k` if and only if
:math:`T((k+½)/s) \le V < T((k-½)/s)`. V is read to 127 bits, k is computed in double precision,
and the two inequalities are *checked* with a margin of 2^-38, a hundred times the error of double
precision there. About two draws in a thousand are closer to an edge than the margin. They are
decided with as many digits, and as many further bits of V, as needed. The result is therefore a
function of uniform bits with exactly the stated distribution; double precision only makes the
function fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.entropy import Entropy

_MARGIN = 2.0**-38
#: Below this V, the bits of V that are not read could matter more than the margin.
_RARE = 2.0**-80
#: Guards the precision of the mpmath context, which all threads share.
_PRECISION = Lock()


@dataclass(frozen=True)
class NoiseDistribution:
    """A symmetric distribution of noise, given by its tail at scale 1."""

    #: x -> T(x) = P(|X| > x)
    tail: Callable[[Array], Array]
    #: T(x) -> x
    inverse: Callable[[Array], Array]
    #: The tail in arbitrary precision: (mpmath context, x) -> T(x).
    exact_tail: Callable[[Any, Any], Any]


def _gaussian_tail(x: Array) -> Array:
    from scipy import special  # slow to import, and most messages of a deployment draw no noise

    return np.asarray(special.erfc(x / np.sqrt(2.0)))


def _gaussian_inverse(v: Array) -> Array:
    from scipy import special

    return np.asarray(np.sqrt(2.0) * special.erfcinv(v))


GAUSSIAN = NoiseDistribution(
    tail=_gaussian_tail,
    inverse=_gaussian_inverse,
    exact_tail=lambda mp, x: mp.erfc(x / mp.sqrt(2)),
)
LAPLACE = NoiseDistribution(
    tail=lambda x: np.exp(-x),
    inverse=lambda v: -np.log(v),
    exact_tail=lambda mp, x: mp.exp(-x),
)


def draw_rounded(
    distribution: NoiseDistribution, scale: float, count: int, entropy: Entropy
) -> NDArray[np.int64]:
    """Return ``count`` independent draws of round(scale X): (count,)."""
    words = entropy.words(2 * count).reshape(2, count)
    high, low = words[0], words[1] >> np.uint64(1)  # V = (high 2^63 + low + ...) / 2^127
    negative = (words[1] & np.uint64(1)).astype(np.bool_)
    v = (high + low * 2.0**-63) * 2.0**-64  # (count,)
    common = v > _RARE
    safe = np.where(common, v, 0.5)
    k = np.rint(scale * distribution.inverse(safe))  # (count,)
    # T((k+1/2)/s) <= V < T((k-1/2)/s), each with the margin
    sure = common & (distribution.tail((k + 0.5) / scale) * (1.0 + _MARGIN) < v)
    sure &= (k == 0) | (v < distribution.tail(np.maximum(k - 0.5, 0.0) / scale) * (1.0 - _MARGIN))
    magnitude = k.astype(np.int64)
    for i in np.flatnonzero(~sure):
        bits = (int(high[i]) << 63) | int(low[i])
        magnitude[i] = _decide(distribution, scale, bits, int(magnitude[i]), entropy)
    return np.where(negative, -magnitude, magnitude)


def _decide(
    distribution: NoiseDistribution, scale: float, v: int, guess: int, entropy: Entropy
) -> int:
    """Return the k of V = (v + r) / 2^127, where the bits of r in [0, 1) are not read yet."""
    bits = 127
    while (k := _largest(_Comparison(distribution, scale, v, bits), guess)) is None:
        v, bits = (v << 64) | int(entropy.words(1)[0]), bits + 64
    return k


@dataclass(frozen=True)
class _Comparison:
    """The test V < T((k - 1/2)/s), where V lies in [v, v + 1) / 2^bits."""

    distribution: NoiseDistribution
    scale: float
    v: int
    bits: int

    def __call__(self, k: int) -> bool | None:
        """Return the result of the test, or None where more bits of V are needed."""
        if k <= 0:
            return True
        mp = _context()
        with _PRECISION, mp.workprec(self.bits + 80):
            error = mp.mpf(2) ** -(self.bits + 40)  # relative; far above the error of the tail
            tail = self.distribution.exact_tail(mp, (mp.mpf(k) - 0.5) / self.scale)
            edge = tail * mp.mpf(2) ** self.bits
            if self.v + 1 <= edge * (1 - error):
                return True
            return False if self.v >= edge * (1 + error) else None


def _largest(below: Callable[[int], bool | None], guess: int) -> int | None:
    """Return the largest k for which ``below`` holds; None where ``below`` cannot decide.

    The search starts near the guess, which is nearly always right or next to right.
    """
    k = max(guess - 1, 0)
    if below(k) is not True:
        k = 0
    step = 1
    # Steps that double find some high with not below(high); then the interval is halved.
    while (answer := below(k + step)) is True:
        k, step = k + step, 2 * step
    high = k + step
    while answer is not None and high - k > 1:  # below(k), and not below(high)
        answer = below((k + high) // 2)
        k, high = ((k + high) // 2, high) if answer else (k, (k + high) // 2)
    return None if answer is None else k


@cache
def _context() -> Any:
    import mpmath  # here: only two draws in a thousand need it

    return mpmath.mp.clone()
