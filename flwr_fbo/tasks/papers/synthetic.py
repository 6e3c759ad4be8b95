r"""The synthetic families of FTS and DP-FTS-DE: functions on a grid, with a known optimum.

A base function is drawn from a Gaussian process (squared exponential kernel, length scale .03) on
1,000 points of [0, 1] and scaled into [0, 1]. Every agent has a variant of the base function
(DP-FTS-DE App. B.1.1 and B.1.2, FTS App. D.1). Observations carry Gaussian noise of variance .01.

Notation

=========  ======================================================  ==========
paper      here                                                    shape
=========  ======================================================  ==========
``f``      ``base``, the same at all agents                        (points,)
``f_n``    ``_values``, the function of agent n                    (points,)
``d_n``    ``settings.difference``                                 scalar
=========  ======================================================  ==========
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
from flwr_fbo.tasks.task import Params, Partition, Task, number


@dataclass(frozen=True)
class SyntheticSettings(Settings):
    """Settings for the family of functions, and for how different its members are."""

    family: Literal["shifted", "mixed"] = setting(
        "shifted",
        "`shifted`: base function plus or minus `difference` at each point; `mixed`: `alpha` of an "
        "own function plus 1 - `alpha` of the base function",
    )
    difference: float = setting(
        0.02,
        "distance of an agent's function from the base function (d_n), shifted family",
        at_least(0),
    )
    unshifted: int = setting(
        0,
        "number of agents, from the first, that have the base function itself (FTS App. D.1)",
        at_least(0),
    )
    alpha: float = setting(
        0.7, "share of an agent's own function in the mixed family", within(0, 1)
    )
    points: int = setting(1000, "number of points of the domain", at_least(2))
    function_lengthscale: float = setting(0.03, "length scale of the functions", above(0))
    observation_noise: float = setting(0.01, "variance of the noise of a score", at_least(0))


class SyntheticTask(Task):
    """A noisy function on a grid of [0, 1], with a known optimum."""

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
        """Return the grid of [0, 1]."""
        return _grid(self.settings.points)

    def prepare(self, partition: Partition) -> None:
        """Draw the function of one agent."""
        s = self.settings
        base = _draw(s.points, s.function_lengthscale, (partition.seed, 2**32 - 1))
        if s.family == "shifted":
            signs = partition.rng(0).choice([-1.0, 1.0], s.points)
            shift = 0.0 if partition.index < s.unshifted else s.difference
            self._values = base + shift * signs  # f +- d_n
        else:
            own = _draw(s.points, s.function_lengthscale, (partition.seed, partition.index))
            self._values = s.alpha * own + (1.0 - s.alpha) * base

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Return the value of this agent's function with noise."""
        noise = np.sqrt(self.settings.observation_noise) * rng.standard_normal()
        return self.expected(params) + float(noise)

    def expected(self, params: Params) -> float:
        """Return the value of this agent's function."""
        # Points of the grid are i / (points - 1).
        point = round(number(params, "x") * (self.settings.points - 1))
        return float(self._function()[point])

    def optimum(self) -> float:
        """Return the maximum of this agent's function."""
        return float(self._function().max())

    def _function(self) -> Array:
        if self._values is None:
            raise RuntimeError("a task must be prepared for a partition before it is evaluated")
        return self._values


# The agents of a simulation share one process, so grid and functions are kept between them.
@lru_cache(maxsize=8)
def _grid(points: int) -> Space:
    return Space({"x": Float(0.0, 1.0)}, np.linspace(0.0, 1.0, points)[:, None])


@lru_cache(maxsize=256)
def _draw(points: int, lengthscale: float, seed: tuple[int, int]) -> Array:
    """Return a draw from the Gaussian process prior, scaled into [0, 1]: (points,)."""
    values = _root(points, lengthscale) @ np.random.default_rng(seed).standard_normal(points)
    # Into [0, 1], as in DP-FTS-DE App. B.1.1.
    scaled = (values - values.min()) / (values.max() - values.min())
    scaled.setflags(write=False)
    return np.asarray(scaled)


@lru_cache(maxsize=4)
def _root(points: int, lengthscale: float) -> Array:
    """Return a square root of the kernel matrix: (points, points)."""
    x = np.linspace(0.0, 1.0, points)[:, None]
    # The spectrum falls too fast for a Cholesky factor, so take the eigenvectors' root.
    values, vectors = np.linalg.eigh(SquaredExponential(lengthscale)(x, x))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
