"""A target agent that asks and tells, given models of the others: what RGPE and TAF share."""

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

#: Rounds of points drawn ever closer around the best, and how many in each.
CLOSER, NEARBY = 4, 200
#: Purpose of a target's generator; apart from those of its Thompson sampler.
_ASK = 2**20


def expected_improvement(mean: Array, variance: Array, best: float) -> Array:
    """E max(f - best, 0) for normal f: the shape of ``mean``."""
    deviation = np.sqrt(np.maximum(variance, 1e-18))
    u = (mean - best) / deviation
    density = np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
    return np.asarray(deviation * (u * ndtr(u) + density))


@dataclass(frozen=True)
class TransferSettings(Settings):
    """What both methods need to know; the target's own model has the Thompson settings."""

    initial_points: int = setting(3, "random points before the first query", at_least(1))


S = TypeVar("S", bound=TransferSettings)


class TransferAgent(ABC, Generic[S]):
    """A target agent that asks and tells, given models of the others.

    ``surrogates`` may be replaced between rounds as the others learn. Draws are keyed by seed
    and round, so asking again gives the same answer.
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
        own = replace(own, standardise=True)  # as the surrogates: their scores are mixed with its
        self._own, self._seed = ThompsonSampler(space, own, None, seed), seed
        self._points = all_points(space)

    def explore(self) -> Array:
        """Random points to begin with: (initial_points, D)."""
        return self._own.explore(self.settings.initial_points)

    def tell(self, unit: Array, score: float | None) -> None:
        """Take in an evaluation; a failed one (None) is ignored."""
        self._own.tell(unit, score)

    def best(self) -> tuple[Array, float] | None:
        """The best point and score so far."""
        return self._own.best()

    def ask(self, round: int) -> Array:
        """Where to evaluate next: (D,)."""
        model = self._own.model()
        if not len(model.y):
            raise ValueError("the target must be told of at least one evaluation before it asks")
        rng = np.random.default_rng([*self._seed, _ASK, round])
        self._prepare(model, rng)
        best = self._own.best()
        assert best is not None
        return self._search(model, best[0], rng)

    @abstractmethod
    def _prepare(self, model: GaussianProcess, rng: np.random.Generator) -> None:
        """Weigh the others by what they say of the target's observations."""

    @abstractmethod
    def _value(self, model: GaussianProcess, x: Array) -> Array:
        """The acquisition function at embedded rows (n, E): (n,)."""

    def _search(self, model: GaussianProcess, best: Array, rng: np.random.Generator) -> Array:
        """Where the acquisition is largest; ties are broken at random.

        TAF's has kinks, so both are searched without gradients: even points, then closer ones.
        """
        points = self._points
        if points is not None:
            return self._largest(model, points, rng)[0]
        even = quasi_random(CANDIDATES, self.space.dimension, rng)
        top, value = self._largest(model, self.space.snap(np.vstack([even, best])), rng)
        for step in 0.1 * 0.3 ** np.arange(CLOSER):
            near = top + step * rng.standard_normal((NEARBY, self.space.dimension))
            other, height = self._largest(model, self.space.snap(np.clip(near, 0, 1)), rng)
            if height > value:
                top, value = other, height
        return top

    def _largest(
        self, model: GaussianProcess, points: Array, rng: np.random.Generator
    ) -> tuple[Array, float]:
        values = self._value(model, self.space.embed(points))
        ties = np.flatnonzero(values == values.max())
        return np.asarray(points[rng.choice(ties)]), float(values.max())
