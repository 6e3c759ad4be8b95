"""The Hartmann function in 8 dimensions, two of which do nothing, shifted for every party."""

from __future__ import annotations

import numpy as np

from benchmarks.suite.federation import Federation
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.task import Params, Partition, Task

_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array([
    [10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14],
    [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14],
])  # fmt: skip
_P = 1e-4 * np.array([
    [1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381],
])  # fmt: skip
#: The maximum of the function, and where it is.
MAXIMUM = 3.32237
OPTIMUM = (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)
#: How far the optimum of a party lies from OPTIMUM in each dimension, at most.
SHIFT = 0.1
NOISE = 0.02


def hartmann6(x: np.ndarray) -> float:
    """Return the function at a point (6,), to be maximised."""
    return float(_ALPHA @ np.exp(-(_A * (x - _P) ** 2).sum(axis=1)))


class HartmannTask(Task):
    """The function of one party, between 0 and 1."""

    label = "hartmann"
    score_range = (-0.1, 1.1)

    @property
    def space(self) -> Space:
        return Space({f"x{i}": Float(0.0, 1.0) for i in range(8)})

    def prepare(self, partition: Partition) -> None:
        # The shifts belong to the federation, not to a seed.
        rng = np.random.default_rng([20_261_119, partition.index])
        self.shift = rng.uniform(-SHIFT, SHIFT, 6)

    def expected(self, params: Params) -> float:
        x = np.array([params[f"x{i}"] for i in range(6)], dtype=np.float64)
        return hartmann6(x - self.shift) / MAXIMUM

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        return self.expected(params) + NOISE * float(rng.standard_normal())


class HartmannFederation(Federation):
    """Hartmann's maximum is known, so the best known score need not be a random setting's."""

    def _measure(self) -> np.ndarray:
        rows = super()._measure()
        rows[:, 1] = 1.0
        return rows


HARTMANN = HartmannFederation(
    name="hartmann",
    title="Hartmann in 8 dimensions, shifted, 20 parties",
    version=1,
    task=HartmannTask,
    parties=20,
    evaluations=30,
    about="A known function whose optimum is up to .1 elsewhere in each dimension at each party.",
)
