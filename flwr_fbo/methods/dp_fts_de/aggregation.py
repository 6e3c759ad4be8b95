r"""The server's sum: clip every vector, weight it for every sub-region, add them up.

Notation (DP-FTS-DE Algorithm 1, lines 7-10)

==========================  ============================  ==========
paper                       here                          shape
==========================  ============================  ==========
``omega_{n,t}``             ``vectors[k]``                (K, M)
``phi_n^(i)``               ``weights[i, n]``             (P, N)
``S / sqrt(P)``             ``bound``                     scalar
``q omega_t^(i)``           ``sum.plain[i]``, or in       (P, M)
without noise               lattice units ``sum.exact[i]``
==========================  ============================  ==========

Vectors are added in blocks, so that a million agents need no more memory than one block.
"""

from __future__ import annotations

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.privacy.mechanisms import GaussianSum, clip_rows

#: Agents whose weighted vectors are held at once: few enough to stay in the processor's cache.
BLOCK = 512


class WeightedSum:
    r"""Sum over agents of :math:`\varphi_n^{(i)} \hat\omega_n`, for every sub-region i.

    With a mechanism each agent's joint contribution (its P weighted copies) is rounded towards
    zero onto the mechanism's lattice before it is added, so that the sum is exact and removing
    one agent changes it by no more than the sensitivity, also in floating point.
    """

    def __init__(
        self,
        weights: Array,
        features: int,
        bound: float | None = None,
        mechanism: GaussianSum | None = None,
    ) -> None:
        self._weights, self._bound, self._mechanism = weights, bound, mechanism
        shape = (len(weights), features)
        self.exact = np.zeros(shape, dtype=np.int64)
        self.plain = np.zeros(shape)

    def add(self, agents: Indices, vectors: Array) -> None:
        """Add the vectors (K, M) of these agents (K,)."""
        for start in range(0, len(agents), BLOCK):
            block = slice(start, start + BLOCK)
            self._add(self._weights[:, agents[block]], vectors[block])

    def _add(self, weights: Array, vectors: Array) -> None:
        if self._bound is not None:
            vectors = clip_rows(vectors, self._bound)
        if self._mechanism is None:
            self.plain += weights @ vectors  # (P, M)
            return
        joint = weights.T[:, :, None] * vectors[:, None, :]  # (K, P, M)
        rows = joint.reshape(len(vectors), -1)
        self.exact += self._mechanism.quantise(rows).sum(axis=0).reshape(self.exact.shape)
