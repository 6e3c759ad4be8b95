r"""Learners: state machines that suggest points to play and take in rewards.

Notation

=====================  ========================================================  ==========
paper                  here                                                      shape
=====================  ========================================================  ==========
``mu(x)``              ``mean``: weights h, with mu(x) = U_x' h                  (m,)
``sigma(x)``           ``posterior.variances()`` ** 0.5                          (n,)
``beta``               ``width()``                                               scalar
``gamma``              ``posterior.information``, gained by the plays made       scalar
``k`` plays an epoch   ``plays``, rows of what ``suggest`` returns               int
=====================  ========================================================  ==========

There are three sets of constants. ``theory`` is what each theorem states; each deviation is named
where it is made. ``orders`` is for the paper's experiments, whose parameters are "order-wise
similar to those recommended by the theorems": lambda is 1, and a width has the theorem's terms with
factors of 1 in place of the proof's. ``practical`` keeps the algorithms, and gives every learner
the same two:

- :math:`\lambda = c / B^2`, the ratio of noise to signal that a Gaussian process with
  functions of size B would use. With :math:`\lambda = 1`, as in the theorems' experiments, the
  mean follows noise that is many times larger than the function.
- :math:`\beta = e \sqrt{c/\lambda} \sqrt{2 (\gamma + \ln(1/\delta))}`: the width that Gaussian
  rewards of the same variance would need, times an ``exploration`` factor e. The factor is 0.5,
  and 0.3 for MoMA, where every exploring step costs a whole epoch. Both were chosen on other
  functions than those that results are reported on.
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
    """The base of all learners: checks, the order of calls, storing and restoring.

    ``suggest`` changes nothing: its draws depend on the seed and on the number of updates only.
    ``update`` takes the rewards of the points that were suggested.

    Parameters
    ----------
    domain
        The points that can be played.
    settings
        The settings of the method.
    seed
        Seed of the learner's draws.
    """

    #: Number of plays in one update.
    plays = 1

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        self.domain, self.settings, self.seed = domain, settings, seed
        self.model = RewardModel.of(settings)
        self.updates = 0

    @abstractmethod
    def _choose(self, seed: list[int]) -> Keys:
        """Return the key to play next, as an array of one."""

    @abstractmethod
    def _learn(self, key: Keys, rewards: Array) -> None:
        """Take in the rewards (k,) of k plays of one key."""

    def suggest(self) -> Array:
        """Return the points to play before the next update, all equal: (k, D)."""
        # The last number is the purpose of a draw: 0 here, 1 in `recommend`, 2 in `nystrom`.
        key = self._choose([self.seed, self.updates, 0])
        return np.repeat(self.domain.points(key), self.plays, axis=0)

    def recommend(self) -> Array:
        """Return the point that is best by all rewards so far: (D,)."""
        return np.asarray(self.suggest()[0])

    def update(self, points: Array, rewards: Array) -> None:
        """Take in one finite reward for each row of ``points``, which must all be equal."""
        # All is checked before anything changes: a refused update leaves the learner as it was.
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
        """Return all that changes: JSON values and numpy arrays."""
        return {"updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state as if nothing had happened."""
        self.updates = int(state["updates"])


class Uniform(Learner):
    """A learner that plays uniformly at random, as the floor of comparisons."""

    def _choose(self, seed: list[int]) -> Keys:
        return self.domain.draw(np.random.default_rng(seed))

    def _learn(self, key: Keys, rewards: Array) -> None:
        """Ignore the rewards."""


class UpperConfidence(Learner):
    """A learner that plays where mean + width * standard deviation is largest."""

    #: The practical preset's factor on the width.
    practical_exploration: ClassVar[float] = 0.5

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        super().__init__(domain, settings, seed)
        self.regularisation = settings.regularisation or self._preset_regularisation()
        self.posterior = Posterior.prior(domain.features, self.regularisation)
        self.exploration = settings.exploration or (
            self.practical_exploration if self.practical else 1.0
        )

    @property
    def practical(self) -> bool:
        """Say whether the constants are those that work in practice."""
        return self.settings.constants == "practical"

    @property
    def theory(self) -> bool:
        """Say whether the constants are the theorems'."""
        return self.settings.constants == "theory"

    @property
    def norm(self) -> float:
        """Return the bound on the RKHS norm (B of the confidence widths)."""
        return self.settings.norm or self.settings.bound

    def _preset_regularisation(self) -> float:
        # In practice lambda = c / B^2, as the module explains.
        return self.model.noise_variance / self.model.bound**2 if self.practical else 1.0

    @property
    @abstractmethod
    def mean(self) -> Array:
        """Return the weights h (m,) of the mean: mu(x) = U_x' h."""

    @abstractmethod
    def theory_width(self) -> float:
        """Return the theorem's beta for the next play."""

    def order_width(self) -> float:
        """Return a beta of the theorem's order with factors of 1; here the theorem's own."""
        return self.theory_width()

    def width(self) -> float:
        """Return the factor on the posterior standard deviation at the next play."""
        if not self.practical:
            return self.exploration * (self.theory_width() if self.theory else self.order_width())
        # sqrt(c / lambda), which is B with the practical regularisation
        sd = math.sqrt(self.model.noise_variance / self.regularisation)
        return self.exploration * sd * self._spread()

    def _spread(self) -> float:
        """Return sqrt(2 (gamma + ln(1/delta)))."""
        gained = self.posterior.information + math.log(1.0 / self.settings.failure)
        return math.sqrt(2.0 * gained)

    def confidence(self) -> tuple[Array, Array]:
        """Return mean (n,) and width * standard deviation (n,) of every tracked point."""
        deviation = np.sqrt(self.posterior.variances())
        return self.mean @ self.posterior.root, self.width() * deviation

    def recommend(self) -> Array:
        """Return the point with the largest mean: (D,)."""
        # A width of 0 leaves the mean alone.
        key = self.domain.best(self.posterior, self.mean, 0.0, [self.seed, self.updates, 1])
        return np.asarray(self.domain.points(key)[0])

    def _choose(self, seed: list[int]) -> Keys:
        return self.domain.best(self.posterior, self.mean, self.width(), seed)

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return super().state_dict() | {"posterior": self.posterior.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        super().load_state_dict(state)
        self.posterior.load_state_dict(state["posterior"])


class GPUCB(UpperConfidence):
    """GP-UCB on the rewards as they are, without truncation, as if they were light-tailed.

    The other learners are justified by comparison with this one. The width is that of Chowdhury
    and Gopalan (2017), with the rewards' standard deviation in place of a sub-Gaussian constant.
    Heavy-tailed rewards and rewards with Laplace noise have no such constant.
    """

    def __init__(self, domain: Domain, settings: LDPSettings, seed: int = 0) -> None:
        super().__init__(domain, settings, seed)
        self.sums = np.zeros(len(domain.features))  # (n,)

    @property
    def mean(self) -> Array:
        """Return h = U s, hence mu = U'U s = Phi V^-1 Phi' y: (m,)."""
        return np.asarray(self.posterior.root @ self.sums)

    def theory_width(self) -> float:
        """Return B + sd sqrt(2 (gamma + ln(1/delta)) / lambda)."""
        sd = math.sqrt(self.model.noise_variance / self.regularisation)
        return self.norm + sd * self._spread()

    def _learn(self, key: Keys, rewards: Array) -> None:
        self.sums += self.domain.scatter(key, self._truncated(rewards))
        self.posterior.add(self.domain.project(self.posterior.root, key)[:, 0])

    def _truncated(self, rewards: Array) -> Array:
        """Return the rewards to learn from; a learner that truncates overrides this."""
        return rewards

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return super().state_dict() | {"sums": self.sums.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        super().load_state_dict(state)
        self.sums = np.array(state["sums"], dtype=np.float64)
