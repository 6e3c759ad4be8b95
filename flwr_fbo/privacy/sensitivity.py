r"""The sensitivity of a release: how far the message of one agent can move the sum.

Notation

=====================================  =================================  =========
paper                                  here                               shape
=====================================  =================================  =========
``phi_n^(i)``                          ``weights[i, n]``                  (P, N)
``S``                                  ``clip``                           scalar
``omega^_n``, norm <= ``S/sqrt(P)``    a row of ``clip_rows(...)``        (M,)
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
    r"""Return the L2 sensitivity of :math:`(\sum_{n \in S_t} \phi_n^{(i)} \hat\omega_n)_{i=1..P}`.

    The result is not divided by the sampling rate q: the division comes after the noise.

    **Neighbouring relation.** Two runs are neighbours if they are equal, except that the messages
    of one agent are zero in one of them. The number of agents, the sub-region of each and the
    weights are public and fixed: they follow from N, P and the round, never from data.

    **Claim.** The joint vectors of two neighbours differ by at most
    :math:`\max_n \lVert (\phi_n^{(1)}, \ldots, \phi_n^{(P)}) \rVert_2 \, S / \sqrt P`,
    and some message attains the bound.

    **Proof.** Take the same subset :math:`S_t` in both runs (the accountants average over the
    subset) and let n be the agent whose messages differ. If n is not in :math:`S_t`, the sums are
    equal. If n is in :math:`S_t`, all other terms cancel, and the difference is the joint vector
    :math:`(\phi_n^{(i)} \hat\omega_n)_i`, of squared norm
    :math:`\sum_i (\phi_n^{(i)})^2 \lVert \hat\omega_n \rVert^2
    = \lVert \phi_n \rVert_2^2 \, \lVert \hat\omega_n \rVert^2 \le \lVert \phi_n \rVert_2^2 S^2/P`,
    since *the same* clipped vector is multiplied by every weight. The largest such norm over n is
    the claim. A message of norm :math:`S / \sqrt P` or more from the maximising agent attains
    the bound. ∎

    The paper (Sec. 3.3) bounds every :math:`\phi_n^{(i)}` by :math:`\phi_{max}` before the sum
    over i. That gives ``rule="paper"``: :math:`\phi_{max} S`. The paper's bound is never smaller,
    since :math:`\lVert \phi_n \rVert_2 \le \sqrt P \phi_{max}`. It is larger by
    :math:`\sqrt P` where every agent counts for one sub-region only, as all agents do while the
    temperature is 1. Both bounds hold for any weights: also for the
    alternatives of App. B.2.3 and for uniform ones.

    Parameters
    ----------
    weights : Array
        phi, (P, N).
    clip : float
        S; an agent's vector is clipped to :math:`S / \sqrt P`.
    rule : str
        ``exact`` for the claim above, ``paper`` for the paper's bound.
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
    return float(np.linalg.norm(table, axis=0).max() * bound / math.sqrt(len(table)))  # the claim
