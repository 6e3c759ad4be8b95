r"""How far one agent can move what the server releases.

Notation

=====================================  =================================  =========
paper                                  here                               shape
=====================================  =================================  =========
``phi_n^(i)``                          ``weights[i, n]``                  (P, N)
``S``                                  ``clip``                           scalar
``omega^_n``, norm <= ``S/sqrt(P)``    what :func:`clip_rows` returns     (N, M)
``phi_max``                            ``weights.max()``                  scalar
=====================================  =================================  =========
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks


def joint_sensitivity(
    weights: Array, clip: float, rule: Literal["exact", "paper"] = "exact"
) -> float:
    r"""The L2 sensitivity of :math:`(\sum_{n \in S_t} \phi_n^{(i)} \hat\omega_n)_{i=1..P}`.

    It is not yet divided by the sampling rate q: the mean is taken after the noise.

    **Neighbours.** Two runs are neighbours when they are the same except that the messages of
    one agent are zero in one of them. How many agents there are, which sub-region each explores
    and the weights are public and fixed: they follow from N, P and the round, never from data.

    **Claim.** The joint vector of two neighbours differs by at most
    :math:`\max_n \lVert (\phi_n^{(1)}, \ldots, \phi_n^{(P)}) \rVert_2 \, S / \sqrt P`,
    and some message attains it.

    **Proof.** Take the same subset :math:`S_t` in both runs (the accountants average over it)
    and let n be the agent. If n is not in :math:`S_t` the sums are equal. If it is, all terms
    but its own cancel, and the difference is the joint vector
    :math:`(\phi_n^{(i)} \hat\omega_n)_i`, of squared norm
    :math:`\sum_i (\phi_n^{(i)})^2 \lVert \hat\omega_n \rVert^2
    = \lVert \phi_n \rVert_2^2 \, \lVert \hat\omega_n \rVert^2 \le \lVert \phi_n \rVert_2^2 S^2/P`,
    since *the same* clipped vector is multiplied by every weight. The largest over n is the
    claim; a message of norm :math:`S / \sqrt P` or more from the maximising agent attains it. ∎

    The paper (Sec. 3.3) bounds every :math:`\phi_n^{(i)}` by :math:`\phi_{max}` before it sums
    over i, which gives ``rule="paper"``: :math:`\phi_{max} S`. That is never smaller, since
    :math:`\lVert \phi_n \rVert_2 \le \sqrt P \phi_{max}`, and larger by :math:`\sqrt P` wherever
    an agent counts for one sub-region only, as all do while the temperature is 1. Both hold for
    any weights, so also for the alternatives of App. B.2.3 and for uniform ones.
    """
    table = np.asarray(weights, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise checks.PrivacyError(
            f"`weights` must have shape (regions, agents), but got {table.shape}"
        )
    if not np.all(np.isfinite(table)):
        raise checks.PrivacyError("`weights` must be finite, but hold NaN or infinity")
    bound = checks.positive("clip", clip)
    if rule == "paper":
        return float(np.abs(table).max() * bound)
    if rule != "exact":
        raise checks.PrivacyError(f"`rule` must be exact or paper, but got {rule!r}")
    return float(np.linalg.norm(table, axis=0).max() * bound / math.sqrt(len(table)))
