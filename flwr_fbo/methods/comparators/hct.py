"""HCT (Azar, Lazaric and Brunskill 2014) on the global objective, through PyXAB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import above, setting, within
from flwr_fbo.methods.comparators.base import Ask, ComparatorSettings, PullServer, import_extra


@dataclass(frozen=True)
class HCTSettings(ComparatorSettings):
    """Settings of HCT. The defaults are those of the Fed-PNE paper (App. E.1.1) and of PyXAB."""

    smoothness: float = setting(
        1.0, "how much the reward varies over the whole space (nu)", above(0)
    )
    decay: float = setting(
        0.75,
        "factor by which the reward's variation shrinks with every depth of the tree (rho)",
        within(0, 1, open_low=True, open_high=True),
    )
    confidence_scale: float = setting(0.1, "factor on the confidence widths (c)", above(0))
    failure: float = setting(
        0.01,
        "probability that a confidence bound may fail (the paper's delta)",
        within(0, 1, open_low=True),
    )


class HCTServer(PullServer[HCTSettings]):
    """The server of HCT: every agent pulls the same point once a round."""

    def start(self, rng: np.random.Generator) -> None:
        """Make PyXAB's algorithm on the unit cube."""
        HCT = import_extra("benchmarks", "PyXAB.algos.HCT").HCT
        self._legacy: Any = np.random.RandomState(int(rng.integers(2**32)))
        s = self.settings
        with self._global_randomness():
            self._hct: Any = HCT(
                nu=s.smoothness,
                rho=s.decay,
                c=s.confidence_scale,
                delta=s.failure,
                domain=[[0.0, 1.0]] * self.space.dimension,
            )

    def ask(self) -> Ask:
        """Return the point that PyXAB pulls next."""
        point = np.array(self._hct.pull(len(self._answers) + 1), dtype=np.float64)
        return Ask(self.space.snap(point), np.array([1]))

    def tell(self, ask: Ask, rewards: Array, replies: int) -> None:
        """Pass the reward to PyXAB."""
        with self._global_randomness():
            self._hct.receive_reward(len(self._answers), float(rewards[0]))

    def best_point(self) -> Array:
        """Return the leaf that the optimistic path leads to: (D,)."""
        leaf = np.array(self._hct.get_last_point(), dtype=np.float64)
        return np.asarray(self.space.snap(leaf)[0])

    @contextmanager
    def _global_randomness(self) -> Iterator[None]:
        """Give numpy's global generator this server's state, and restore the state after."""
        # PyXAB chooses the dimensions to split with numpy's global generator.
        kept = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._legacy.get_state())  # noqa: NPY002
        try:
            yield
        finally:
            self._legacy.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(kept)  # noqa: NPY002
