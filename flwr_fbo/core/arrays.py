"""The array types of the package: real numbers, indices that count from 0, and 64-bit words."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
#: Words of 64 bits, which are added modulo 2^64.
Words: TypeAlias = NDArray[np.uint64]
