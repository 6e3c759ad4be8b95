r"""The terms of one sum: every public fact on which the parties and the server must agree.

Notation

==================================  ========================  ======
symbol                              here                      shape
==================================  ========================  ======
``N``, number of parties            ``terms.parties``         int
``t``, survivors that are needed    ``terms.threshold``       int
``c``, parties that may collude     ``terms.colluding``       int
``d``, length of the vectors        ``terms.length``          int
``S``, largest norm of a vector     ``terms.sensitivity``     scalar
``z``, noise over sensitivity       ``terms.noise_multiplier``  scalar
==================================  ========================  ======

The digest of the terms enters every key that two parties derive. Parties that were told different
terms therefore cannot decrypt each other's shares, and the sum ends without a result. A server
cannot tell one party that the noise of the others is large while it is small.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

from flwr_fbo.privacy import checks

#: The name and the version of the protocol, which is part of every digest.
PROTOCOL = b"flwr-fbo secure sum 1"
#: Bytes of the number that makes the terms of every attempt differ.
NONCE = 16
#: The largest number of parties: beyond it, sums of clipped vectors could leave 64 bits.
MOST_PARTIES = 10**6


class SecureSumError(checks.PrivacyError):
    """A message or a parameter breaks a rule of the secure sum; the text quotes no secret."""


@dataclass(frozen=True)
class Terms:
    """The public facts of one attempt at one sum.

    Parameters
    ----------
    run : str
        The name of the run.
    release : int
        The number of the round whose vectors are added up.
    nonce : bytes
        Random bytes of the server. Another attempt has other bytes, and so other keys.
    parties : int
        N, the parties of the run.
    threshold : int
        t, the number of parties without whose vectors the sum is abandoned.
    colluding : int
        c, the number of parties that may tell the server all that they know.
    length : int
        d, the length of each vector.
    sensitivity : float
        S, the norm to which each party clips its vector.
    noise_multiplier : float
        z, the deviation over S of the noise of any t - c parties together.
    """

    run: str
    release: int
    nonce: bytes
    parties: int
    threshold: int
    colluding: int
    length: int
    sensitivity: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        if len(self.nonce) != NONCE:
            raise SecureSumError(f"`nonce` must have {NONCE} bytes, but has {len(self.nonce)}")
        checks.count("length", self.length)
        check_threshold(self.parties, self.threshold, self.colluding)

    @cached_property
    def digest(self) -> bytes:
        """Return the fingerprint of the terms: 32 bytes."""
        numbers = (self.release, self.parties, self.threshold, self.colluding, self.length)
        name = self.run.encode()
        parts = (
            PROTOCOL,
            struct.pack("<I", len(name)),
            name,
            self.nonce,
            struct.pack("<5q", *numbers),
            struct.pack("<2d", self.sensitivity, self.noise_multiplier),
        )
        return hashlib.sha256(b"".join(parts)).digest()


def default_threshold(parties: int, colluding: int, share: float = 2.0 / 3.0) -> int:
    """Return t: this share of the parties, and enough that no two lists of survivors get t votes.

    2 t > N + c makes any two groups of t parties share an honest one.
    """
    return min(parties, max(-int(-share * parties // 1), (parties + colluding) // 2 + 1))


def check_threshold(parties: int, threshold: int, colluding: int) -> None:
    """Raise SecureSumError unless 0 <= c < t <= N and 2 t > N + c."""
    if not 2 <= checks.count("parties", parties) <= MOST_PARTIES:
        raise SecureSumError(
            f"`parties` of a secure sum must be in [2, {MOST_PARTIES}], but got {parties!r}"
        )
    checks.count("colluding", colluding, low=0)
    if not colluding < checks.count("threshold", threshold) <= parties:
        raise SecureSumError(
            "`colluding < threshold <= parties` must hold, but got "
            f"({colluding=}, {threshold=}, {parties=})"
        )
    if 2 * threshold <= parties + colluding:
        raise SecureSumError(
            "`2 * threshold > parties + colluding` must hold, or the server could open two sums, "
            f"but got ({threshold=}, {parties=}, {colluding=})"
        )
