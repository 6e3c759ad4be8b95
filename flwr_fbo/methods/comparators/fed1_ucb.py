r"""Fed1-UCB (Shi and Shen 2021): federated elimination over a fixed mesh of arms.

Notation

===============  ===========================================  ======
paper            here                                         shape
===============  ===========================================  ======
``K``            ``arms``, for each dimension                 int
``f(p)``         ``per_phase``, ``ceil(kappa ln T)``          int
``F(p)``         ``pulled``, of each surviving arm so far     int
``B_p``          ``sqrt(4 sigma^2 ln T / (M F(p)))``          scalar
===============  ===========================================  ======

As in the Fed-PNE paper (App. E.1.3): ``kappa = 1``, and the mesh starts at a random point of its
first cell, so that runs do not all miss the optimum by the same distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError, above, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.methods.comparators.base import Ask, ComparatorSettings, PullServer

#: Most points of a mesh, which is held in memory.
MOST_POINTS = 1_000_000


@dataclass(frozen=True)
class Fed1UCBSettings(ComparatorSettings):
    """Settings of the mesh and of the phases."""

    arms: int = setting(10, "arms along each dimension of the mesh (K)", at_least(1))
    kappa: float = setting(1.0, "pulls of an arm in one phase, as a multiple of ln T", above(0))
    deviation: float = setting(0.5, "sub-Gaussian deviation of one reward (sigma)", above(0))


def mesh(space: Space, arms: int, rng: np.random.Generator) -> Array:
    """Return ``arms`` points along each dimension from a random start, without duplicates: (K, D).

    A finite space returns its own points.
    """
    if space.points is not None:
        return space.points
    if arms**space.dimension > MOST_POINTS:
        raise SettingsError(
            f"`arms` must give at most {MOST_POINTS} points, but {arms} along each of "
            f"{space.dimension} dimensions is {arms**space.dimension}"
        )
    axes = [(rng.uniform() + np.arange(arms)) / arms for _ in range(space.dimension)]
    grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    return np.unique(space.snap(grid), axis=0)


class Fed1UCBServer(PullServer[Fed1UCBSettings]):
    """The server of Fed1-UCB: one phase a round, until one arm takes the rest of the budget."""

    def start(self, rng: np.random.Generator) -> None:
        """Draw the mesh; all arms are active."""
        self._arms = mesh(self.space, self.settings.arms, rng)  # (K, D)
        self._total = np.zeros(len(self._arms))  # sum of rewards, mean over agents
        self._pulled = np.zeros(len(self._arms), dtype=np.int64)
        self._active = np.arange(len(self._arms))
        self.per_phase = math.ceil(self.settings.kappa * math.log(max(self.settings.budget, 2)))

    def ask(self) -> Ask:
        """Return all active arms, with f(p) pulls each, or all that is left for the last arm."""
        each = self.left if len(self._active) == 1 else self.per_phase
        pulls = np.full(len(self._active), each)
        pulls = np.clip(self.left - (np.cumsum(pulls) - pulls), 0, pulls)  # cut to the budget
        self._asked = self._active[pulls > 0]
        return Ask(self._arms[self._asked], pulls[pulls > 0])

    def tell(self, ask: Ask, rewards: Array, replies: int) -> None:
        """Add the rewards to the arms' sums, and eliminate arms at the end of a phase."""
        self._total[self._asked] += rewards * ask.pulls
        self._pulled[self._asked] += ask.pulls
        if len(self._asked) < len(self._active) or self.finished:
            return  # the budget ended within the phase
        s, active = self.settings, self._active
        means, pulled = self._total[active] / self._pulled[active], self._pulled[active]
        bound = s.deviation * np.sqrt(4 * math.log(max(s.budget, 2)) / (replies * pulled))  # B_p
        self._active = active[means + bound > (means - bound).max()]

    def best_point(self) -> Array:
        """Return the surviving arm with the best mean: (D,)."""
        means = np.full(len(self._arms), -np.inf)
        seen = self._active[self._pulled[self._active] > 0]
        means[seen] = self._total[seen] / self._pulled[seen]
        return np.asarray(self._arms[int(means.argmax())])
