r"""The synthetic families of FTS and DP-FTS-DE: functions on a grid, known to the last digit.

A base function is drawn from a Gaussian process (squared exponential, length scale .03) on
1,000 points of [0, 1] and scaled into [0, 1]; every agent has a variant of it (DP-FTS-DE
App. B.1.1 and B.1.2, FTS App. D.1). Observations carry Gaussian noise of variance .01.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import Settings, above, at_least, setting, within
from flwr_fbo.core.space import Float, Space
from flwr_fbo.models.kernels import SquaredExponential
from flwr_fbo.tasks.task import Params, Partition, Task


@dataclass(frozen=True)
class SyntheticSettings(Settings):
    """Which family, and how different its members are."""

    family: Literal["shifted", "mixed"] = setting(
        "shifted", "`shifted`: base +- difference at each point; `mixed`: alpha own + rest base"
    )
    difference: float = setting(0.02, "d_n of the shifted family", at_least(0))
    unshifted: int = setting(
        0, "so many agents, from the first, have the base itself (FTS D.1: the target)", at_least(0)
    )
    alpha: float = setting(
        0.7, "share of an agent's own function in the mixed family", within(0, 1)
    )
    points: int = setting(1000, "size of the domain", at_least(2))
    function_lengthscale: float = setting(0.03, "length scale of the functions", above(0))
    observation_noise: float = setting(0.01, "variance of the noise of a score", at_least(0))


class SyntheticTask(Task):
    """A noisy function on an explicit grid of [0, 1], with its optimum known."""

    metric = "value"
    settings_class: ClassVar[type[Settings]] = SyntheticSettings
    settings: SyntheticSettings
    paper_settings: ClassVar[dict[str, Any]] = {
        "features": 50,
        "regions": 2,
        "p-schedule": "1-1/sqrt(t)",
        "clip": 11.0,
        "weights-hold": 5,
        "weights-decay": 5,
        "kernel": "se",
        "lengthscale": 0.03,
        "noise": 0.01,
        "feature-lengthscale": 0.03,
        "feature-noise": 0.01,
        "refit-every": 0,
    }

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._values: Array | None = None

    @property
    def space(self) -> Space:
        """See :class:`Task`."""
        return _grid(self.settings.points)

    def prepare(self, partition: Partition) -> None:
        """See :class:`Task`."""
        s = self.settings
        base = _draw(s.points, s.function_lengthscale, (partition.seed, 2**32 - 1))
        if s.family == "shifted":
            signs = partition.rng(0).choice([-1.0, 1.0], s.points)
            shift = 0.0 if partition.index < s.unshifted else s.difference
            self._values = base + shift * signs
        else:
            own = _draw(s.points, s.function_lengthscale, (partition.seed, partition.index))
            self._values = s.alpha * own + (1.0 - s.alpha) * base

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """See :class:`Task`."""
        noise = np.sqrt(self.settings.observation_noise) * rng.standard_normal()
        return self.expected(params) + float(noise)

    def expected(self, params: Params) -> float:
        """See :class:`Task`."""
        return float(self._function()[self._index(params)])

    def optimum(self) -> float:
        """See :class:`Task`."""
        return float(self._function().max())

    def _function(self) -> Array:
        if self._values is None:
            raise RuntimeError("a task must be prepared for a partition before it is evaluated")
        return self._values

    def _index(self, params: Params) -> int:
        return round(float(params["x"]) * (self.settings.points - 1))  # type: ignore[arg-type]


@lru_cache(maxsize=8)
def _grid(points: int) -> Space:
    return Space({"x": Float(0.0, 1.0)}, np.linspace(0.0, 1.0, points)[:, None])


@lru_cache(maxsize=256)
def _draw(points: int, lengthscale: float, seed: tuple[int, int]) -> Array:
    """A function from the Gaussian process prior, scaled into [0, 1]: (points,)."""
    values = _root(points, lengthscale) @ np.random.default_rng(seed).standard_normal(points)
    scaled = (values - values.min()) / (values.max() - values.min())
    scaled.setflags(write=False)
    return np.asarray(scaled)


@lru_cache(maxsize=4)
def _root(points: int, lengthscale: float) -> Array:
    """A square root of the kernel matrix; its spectrum falls too fast for a Cholesky factor."""
    x = np.linspace(0.0, 1.0, points)[:, None]
    values, vectors = np.linalg.eigh(SquaredExponential(lengthscale)(x, x))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
