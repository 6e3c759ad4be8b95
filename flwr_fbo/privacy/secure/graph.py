r"""The neighbour graph of Bell and others (CCS 2020): each party masks with k others.

With every other party as a neighbour, N parties derive some N^2 keys. A random graph in which each
party has k neighbours, with k of the order of log N, has the same guarantees but for a small
probability. The graph is a ring in a random order, in which each party is joined to the k/2 before
and the k/2 after it (a Harary graph). Three things must not happen:

======================================================================  ===================
event                                                                   probability at most
======================================================================  ===================
A. T or more of some party's neighbours collude: they know its secrets  2^-40
B. the ring breaks where dropped and colluding parties are left out:    2^-40
   then the server could open the sum of each part
C. some party keeps fewer than T neighbours: the sum is abandoned       2^-20
======================================================================  ===================

T is the number of neighbours, the party itself counted, that recover a secret. Each event is
bounded by the sum over parties of a hypergeometric tail, as the order is uniform and independent of
who drops out or colludes. For B, a part that is cut off lies between two runs of k/2 neighbours
that are all left out, so that at least one such run starts somewhere on the ring.

**The order is drawn by the server.** A server that follows the protocol but is curious gets the
bounds above. One that chooses the order itself could surround a party by colluding ones. Against
such a server use a complete graph, as all sums of up to 100 parties do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from flwr_fbo.privacy.entropy import Entropy

#: Up to this number of parties everybody is everybody's neighbour.
COMPLETE = 100
#: The bounds on the probabilities of A and B, and of C, as powers of 1/2.
SECRECY_BITS, RECOVERY_BITS = 40, 20


@dataclass(frozen=True)
class Degree:
    """The size of a neighbourhood.

    Parameters
    ----------
    neighbours : int
        k, the neighbours of each party.
    recover : int
        T, how many of the k + 1 parties of a neighbourhood recover a secret of its centre.
    """

    neighbours: int
    recover: int


@lru_cache(maxsize=128)
def degree(parties: int, threshold: int, colluding: int) -> Degree:
    """Return the least degree for this many parties, of whom ``threshold`` must survive.

    A graph whose neighbourhoods would have ``threshold`` parties or more is complete.

    Parameters
    ----------
    parties : int
        The number of parties that sent keys.
    threshold : int
        t, the least number of parties that answer every leg.
    colluding : int
        c, the parties that collude with the server.
    """
    complete = Degree(parties - 1, threshold)
    if parties <= COMPLETE:
        return complete
    for k in range(2, min(parties, threshold) - 1, 2):
        recover = _most_that_recover(parties, threshold, k)
        if 3 * recover <= k + 1:  # more than a third must be needed, however few may collude
            continue
        if _is_secret(parties, threshold, colluding, k, recover):
            return Degree(k, recover)
    return complete


def _most_that_recover(parties: int, threshold: int, k: int) -> int:
    """Return the largest T that event C allows."""
    allowed = 2.0**-RECOVERY_BITS / parties
    from scipy import stats  # here: slow to import, and only needed above COMPLETE parties

    # Of the other parties, threshold - 1 answer all legs; for a party that dropped, threshold do.
    answering = stats.hypergeom(parties - 1, threshold - 1, k)
    low = 0
    while low <= k and answering.cdf(low) <= allowed:  # P(answering < T) with T = low + 1
        low += 1
    return low


def _is_secret(parties: int, threshold: int, colluding: int, k: int, recover: int) -> bool:
    """Return whether events A and B are as improbable as they must be."""
    from scipy import stats

    allowed = math.log(0.5) * SECRECY_BITS - math.log(parties)
    known = stats.hypergeom(parties - 1, colluding, k).logsf(recover - 1)  # P(known >= T)
    left_out = min(parties, parties - threshold + colluding)
    # P(the k/2 places after a party are all left out), for places in a random order
    broken = sum(
        math.log(left_out - i) - math.log(parties - i) if left_out > i else -math.inf
        for i in range(k // 2)
    )
    return bool(known <= allowed and broken <= allowed)


def neighbours(members: Sequence[int], k: int, entropy: Entropy) -> dict[int, tuple[int, ...]]:
    """Return the neighbours of each member, in a ring whose order is drawn from the entropy."""
    count = len(members)
    if k >= count - 1:
        return {u: tuple(v for v in members if v != u) for u in members}
    ring = _shuffled(members, entropy)
    near = [step for step in range(-(k // 2), k // 2 + 1) if step]
    return {
        u: tuple(sorted(ring[(place + step) % count] for step in near))
        for place, u in enumerate(ring)
    }


def _shuffled(members: Sequence[int], entropy: Entropy) -> list[int]:
    """Return the members in a uniformly random order."""
    # Sorting by 128 random bits each: two are equal with probability below N^2 2^-128.
    words = entropy.words(2 * len(members)).reshape(-1, 2).tolist()
    return [member for _, member in sorted(zip(words, members, strict=True))]
