r"""What every learner is: a state machine that suggests plays and takes in rewards.

Notation

=====================  ========================================================  ==========
paper                  here                                                      shape
=====================  ========================================================  ==========
``mu(x)``              ``mean``: weights h, with mu(x) = U_x' h                  (m,)
``sigma(x)``           ``posterior.variances()`` ** 0.5                          (n,)
``beta``               ``width()``                                               scalar
``gamma``              ``posterior.information``, what was gained really         scalar
``k`` plays an epoch   ``plays``, rows of what ``suggest`` returns               int
=====================  ========================================================  ==========

Two sets of constants. ``theory`` is what each theorem states (the deviations are named where
they are made). ``practical`` keeps the algorithms and gives every learner the same two:

- :math:`\lambda = c / B^2`, the ratio of noise to signal that a Gaussian process with
  functions of size B would use. With :math:`\lambda = 1`, as in the theorems' experiments, the
  mean follows noise many times the size of the function.
- :math:`\beta = e \sqrt{c/\lambda} \sqrt{2 (\gamma + \ln(1/\delta))}`: the width that Gaussian
  rewards of the same variance would need, times an ``exploration`` factor e: 0.5, and 0.3 for
  MoMA, whose every exploring step costs a whole epoch. Both were chosen on other functions
  than those that results are reported on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.ldp.domain import Domain, Keys
from flwr_fbo.methods.ldp.posterior import Posterior
from flwr_fbo.methods.ldp.rewards import RewardModel
from flwr_fbo.methods.ldp.settings import LDPSettings


class Learner(ABC):
    """Common part: checks, the order of calls, storing and restoring.

    ``suggest`` changes nothing at all: what it draws depends on the seed and on the number of
    updates. ``update`` takes the rewards of the points that were suggested.
    """

    #: How many plays one update takes.
    plays = 1

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        self.domain, self.settings, self.seed = domain, settings, seed
        self.model = RewardModel.of(settings)
        self.updates = 0

    @abstractmethod
    def _choose(self, seed: list[int]) -> Keys:
        """The key to play next, as an array of one."""

    @abstractmethod
    def _learn(self, key: Keys, rewards: Array) -> None:
        """Take in the rewards (k,) of k plays of one key."""

    def suggest(self) -> Array:
        """The points to play before the next update, one a row: (k, D)."""
        key = self._choose([self.seed, self.updates, 0])
        return np.repeat(self.domain.points(key), self.plays, axis=0)

    def recommend(self) -> Array:
        """The point that is best by what is known: (D,)."""
        return np.asarray(self.suggest()[0])

    def update(self, points: Array, rewards: Array) -> None:
        """Take in one finite reward for each row of ``points``, which must all be equal."""
        given = np.asarray(rewards, dtype=np.float64)
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
        if given.shape != (self.plays,) or rows.shape != (self.plays, self.domain.space.dimension):
            raise ValueError(
                f"an update takes {self.plays} rewards and their points, but got rewards of "
                f"shape {given.shape} and points of shape {rows.shape}"
            )
        if not np.all(np.isfinite(given)):
            raise ValueError(f"rewards must be finite, but got {given.tolist()}")
        if not np.all(rows == rows[0]):
            raise ValueError("the plays of one update must be of one point, but they differ")
        self._learn(self.domain.keys(rows[:1]), given)
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        """All that changes: JSON values and numpy arrays."""
        return {"updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state as if nothing had happened."""
        self.updates = int(state["updates"])


class Uniform(Learner):
    """Plays at random and learns nothing: what every other learner must beat."""

    def _choose(self, seed: list[int]) -> Keys:
        return self.domain.draw(np.random.default_rng(seed))

    def _learn(self, key: Keys, rewards: Array) -> None:
        """Nothing is learnt."""


class UpperConfidence(Learner):
    """A learner that plays where mean + width * standard deviation is largest."""

    #: The practical preset's factor on the width.
    practical_exploration: ClassVar[float] = 0.5

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        super().__init__(domain, settings, seed)
        self.regularisation = settings.regularisation or self._preset_regularisation()
        self.posterior = Posterior.prior(domain.features, self.regularisation)
        self.exploration = settings.exploration or (
            1.0 if self.theory else self.practical_exploration
        )

    @property
    def theory(self) -> bool:
        """Whether the constants are the theorems'."""
        return self.settings.constants == "theory"

    @property
    def norm(self) -> float:
        """The bound on the RKHS norm (B of the confidence widths)."""
        return self.settings.norm or self.settings.bound

    def _preset_regularisation(self) -> float:
        return 1.0 if self.theory else self.model.noise_variance / self.model.bound**2

    @property
    @abstractmethod
    def mean(self) -> Array:
        """Weights h (m,) of the mean: mu(x) = U_x' h."""

    @abstractmethod
    def theory_width(self) -> float:
        """The theorem's beta for the next play."""

    def width(self) -> float:
        """The factor on the posterior standard deviation at the next play."""
        if self.theory:
            return self.exploration * self.theory_width()
        sd = math.sqrt(self.model.noise_variance / self.regularisation)
        return self.exploration * sd * self._spread()

    def _spread(self) -> float:
        gained = self.posterior.information + math.log(1.0 / self.settings.failure)
        return math.sqrt(2.0 * gained)

    def confidence(self) -> tuple[Array, Array]:
        """Mean and width * standard deviation of every tracked point: (n,), (n,)."""
        deviation = np.sqrt(self.posterior.variances())
        return self.mean @ self.posterior.root, self.width() * deviation

    def recommend(self) -> Array:
        """See :class:`Learner`."""
        key = self.domain.best(self.posterior, self.mean, 0.0, [self.seed, self.updates, 1])
        return np.asarray(self.domain.points(key)[0])

    def _choose(self, seed: list[int]) -> Keys:
        return self.domain.best(self.posterior, self.mean, self.width(), seed)

    def state_dict(self) -> dict[str, Any]:
        """See :class:`Learner`."""
        return super().state_dict() | {"posterior": self.posterior.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`Learner`."""
        super().load_state_dict(state)
        self.posterior.load_state_dict(state["posterior"])


class GPUCB(UpperConfidence):
    """GP-UCB on the rewards as they are: no truncation, as if they were light-tailed.

    The comparison that justifies the other learners. Its width is the one of Chowdhury and
    Gopalan (2017) with the rewards' standard deviation in place of a sub-Gaussian constant,
    which heavy-tailed or Laplace-noised rewards do not have.
    """

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        super().__init__(domain, settings, seed)
        self.sums = np.zeros(len(domain.features))  # (n,)

    @property
    def mean(self) -> Array:
        """See :class:`UpperConfidence`: h = U s, hence mu = U'U s = Phi V^-1 Phi' y."""
        return np.asarray(self.posterior.root @ self.sums)

    def theory_width(self) -> float:
        """B + sd sqrt(2 (gamma + ln(1/delta)) / lambda)."""
        sd = math.sqrt(self.model.noise_variance / self.regularisation)
        return self.norm + sd * self._spread()

    def _learn(self, key: Keys, rewards: Array) -> None:
        self.sums += self.domain.scatter(key, self._kept(rewards))
        self.posterior.add(self.domain.project(self.posterior.root, key)[:, 0])

    def _kept(self, rewards: Array) -> Array:
        return rewards

    def state_dict(self) -> dict[str, Any]:
        """See :class:`Learner`."""
        return super().state_dict() | {"sums": self.sums.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`Learner`."""
        super().load_state_dict(state)
        self.sums = np.array(state["sums"], dtype=np.float64)
