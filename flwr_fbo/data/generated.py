"""Generated stand-ins for the real data: same shapes, classes and kinds of heterogeneity.

They exist so that a machine without network can try every task. They are drawn, not measured:
no result on them says anything about the real data, and every task that uses them carries
"(generated data)" in its name. Each function draws one party's share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.space import Array

Labelled = tuple[NDArray[Any], NDArray[np.int64]]


def landmine_field(party: int, shared: np.random.Generator, own: np.random.Generator) -> Labelled:
    """A field of 445-690 locations with 9 features, 2.9-9.4 % of which hold a mine.

    As in the real data, the fields lie in two kinds of terrain: the first half and the second
    half of the parties differ in where mines lie among the features.
    """
    terrain = int(party >= 15)
    n = int(own.triangular(445, 450, 640))  # mean 512
    mines = max(13, round(n * own.uniform(0.029, 0.094)))
    clutter, directions = shared.normal(0, 1, (2, 9)), shared.normal(0, 1, (2, 9))
    directions *= 1.6 / np.linalg.norm(directions, axis=1, keepdims=True)
    y = np.zeros(n, dtype=np.int64)
    y[:mines] = 1
    X: Array = own.normal(0, 1, (n, 9)) * np.exp(own.normal(0, 0.1, 9))
    X += 0.5 * clutter[terrain] + own.normal(0, 0.2, 9)
    X[y == 1] += directions[terrain] * np.where(own.random((mines, 1)) < 0.7, 1.0, -1.0)
    order = own.permutation(n)
    return X[order], y[order]
