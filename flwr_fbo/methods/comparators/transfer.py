"""The base of RGPE and TAF: a target agent that asks and tells, given models of other agents."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from scipy.special import ndtr

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.methods.comparators.surrogates import Surrogates
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.search.acquisition import CANDIDATES, all_points, quasi_random
from flwr_fbo.search.success import CAUTION

#: Rounds of the local search around the best point, and points in each.
LOCAL_ROUNDS, LOCAL_POINTS = 4, 200
#: Purpose of a target's generator; apart from those of its Thompson sampler.
_ASK = 2**20


def expected_improvement(mean: Array, variance: Array, best: float) -> Array:
    """Return E max(f - best, 0) for normal f, in the shape of ``mean``."""
    deviation = np.sqrt(np.maximum(variance, 1e-18))
    u = (mean - best) / deviation
    density = np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
    return np.asarray(deviation * (u * ndtr(u) + density))


@dataclass(frozen=True)
class TransferSettings(Settings):
    """The settings of both methods; the target's own model has the Thompson settings."""

    initial_points: int = setting(3, "random points before the first proposal", at_least(1))


S = TypeVar("S", bound=TransferSettings)


class TransferAgent(ABC, Generic[S]):
    """A target agent that asks and tells, given models of other agents.

    ``surrogates`` may be replaced between rounds, as the other agents learn. Draws are keyed by
    the seed and the round, so asking again returns the same point.

    Parameters
    ----------
    space
        The search space.
    surrogates
        The models of the other agents.
    settings
        The settings of the method.
    own
        The settings of the target's own model.
    seed
        Seed of the target's draws.
    """

    def __init__(
        self,
        space: Space,
        surrogates: Surrogates,
        settings: S,
        own: ThompsonSettings,
        seed: tuple[int, ...] = (0,),
    ) -> None:
        self.space, self.surrogates, self.settings = space, surrogates, settings
        # The surrogates' scores are standardised. Own scores must be too: the two are mixed.
        own = replace(own, standardise=True)
        self._own, self._seed = ThompsonSampler(space, own, None, seed), seed
        self._points = all_points(space)

    def explore(self) -> Array:
        """Return random points to begin with: (initial_points, D)."""
        return self._own.explore(self.settings.initial_points)

    def tell(self, unit: Array, score: float | None) -> None:
        """Take in an evaluation; the score of a failed one is None."""
        self._own.tell(unit, score)

    def best(self) -> tuple[Array, float] | None:
        """Return the best point and score so far; None without a score."""
        return self._own.best()

    def ask(self, round: int) -> Array:
        """Return the point to evaluate next: (D,)."""
        model = self._own.model()
        if not len(model.y):
            raise ValueError("`ask` needs at least one evaluation with a score, but got none")
        rng = np.random.default_rng([*self._seed, _ASK, round])
        self._weigh(model, rng)
        best = self._own.best()
        assert best is not None
        return self._search(model, best[0], rng)

    @abstractmethod
    def _weigh(self, model: GaussianProcess, rng: np.random.Generator) -> None:
        """Weigh the other agents by how well they predict the target's observations."""

    @abstractmethod
    def _acquisition(self, model: GaussianProcess, x: Array) -> Array:
        """Return the acquisition function, which is at least 0, at embedded rows (n, E): (n,)."""

    def _search(self, model: GaussianProcess, best: Array, rng: np.random.Generator) -> Array:
        """Return the point where the acquisition is largest, with ties broken at random: (D,).

        TAF's acquisition has kinks. Both methods are therefore searched without gradients: first
        by points spread evenly, then by points ever closer to the best one.
        """
        points = self._points
        if points is not None:
            return self._largest(model, points, rng)[0]
        even = quasi_random(CANDIDATES, self.space.dimension, rng)
        top, value = self._largest(model, self.space.snap(np.vstack([even, best])), rng)
        # Steps shrink from a tenth of the cube to a few thousandths.
        for step in 0.1 * 0.3 ** np.arange(LOCAL_ROUNDS):
            near = top + step * rng.standard_normal((LOCAL_POINTS, self.space.dimension))
            other, height = self._largest(model, self.space.snap(np.clip(near, 0, 1)), rng)
            if height > value:
                top, value = other, height
        return top

    def _largest(
        self, model: GaussianProcess, points: Array, rng: np.random.Generator
    ) -> tuple[Array, float]:
        """Return the point (D,) with the largest acquisition, and the acquisition there."""
        # Where the acquisition is flat, the first point must not always win.
        x = self.space.embed(points)
        values, success = self._acquisition(model, x), self._own.success()
        if success is not None:
            values = values * np.exp(CAUTION * success.logarithm(x))
        ties = np.flatnonzero(values == values.max())
        return np.asarray(points[rng.choice(ties)]), float(values.max())
