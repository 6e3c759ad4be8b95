r"""Local privacy: an agent makes its answer private before the answer leaves the agent.

Notation

==================  =====================================  ==========
paper (LDP-BO)      here                                   shape
==================  =====================================  ==========
``B + R``           ``bound``                              scalar
``CTL(epsilon)``    ``LaplaceReward(bound, epsilon)``      Curator 1
``L = 2(B+R)/eps``  ``LaplaceReward.scale``                scalar
``omega_n``         ``value`` of ``LocalGaussian``         (M,)
==================  =====================================  ==========

The guarantee of an answer holds against everybody who sees the answer, the server included. Its
neighbouring relation is *any two* values of the agent, so two clipped vectors can lie twice the
clip apart. Every mechanism clips before it adds noise. The guarantee therefore holds even where
the assumption behind the bound is wrong. Every mechanism also states the event of one answer,
with which a :class:`LocalBudget` adds up the agent's cost over all its runs.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks, noise
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.calibration import gaussian_multiplier
from flwr_fbo.privacy.entropy import Entropy
from flwr_fbo.privacy.events import Event, GaussianRelease, LaplaceRelease
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.privacy.mechanisms import GaussianSum, Lattice, clip_rows

T = TypeVar("T")


class LocalMechanism(Protocol[T]):
    """A function that makes an agent's value private."""

    def release(self, value: T, entropy: Entropy) -> T:
        """Return the value with noise."""

    def event(self, round: int = 0) -> Event:
        """Return the event of one answer, which a budget charges."""


@dataclass(frozen=True)
class LaplaceReward:
    """CTL(epsilon): a reward clipped to [-bound, bound], with Laplace noise of scale 2 bound / eps.

    One answer is epsilon-locally private by Lemma 1 of the paper, for every reward, as the reward
    is clipped first. The noise is exact: the answer is a rounding of the continuous mechanism's
    (:mod:`flwr_fbo.privacy.noise`).
    """

    bound: float
    epsilon: float

    def __post_init__(self) -> None:
        checks.positive("bound", self.bound)
        checks.positive("epsilon", self.epsilon)
        _check_scale(self.scale, self.epsilon)

    @property
    def scale(self) -> float:
        """Return the scale b of the noise, whose variance is 2 b^2."""
        return math.nextafter(2.0 * self.bound / self.epsilon, math.inf)

    def release(self, value: float, entropy: Entropy) -> float:
        """Return the clipped reward with Laplace noise, the only result that may be sent."""
        lattice = Lattice(self.scale)
        units = lattice.quantise(np.array([_clipped(value, self.bound)]))
        drawn = noise.draw_rounded(noise.LAPLACE, lattice.units, 1, entropy)
        return float(lattice.values(units + drawn)[0])

    def event(self, round: int = 0) -> LaplaceRelease:
        """Return the event of one answer."""
        return LaplaceRelease(self.epsilon, round)


@dataclass(frozen=True)
class GaussianReward:
    """A reward clipped to [-bound, bound], with the least Gaussian noise for (epsilon, delta).

    One answer is (epsilon, delta)-locally private, by the exact condition of Balle and Wang
    (:func:`flwr_fbo.privacy.calibration.gaussian_multiplier`). The mechanism is for learners that
    need noise with light tails.
    """

    bound: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        checks.positive("bound", self.bound)
        _check_scale(self.mechanism.deviation, self.epsilon)

    @cached_property
    def mechanism(self) -> GaussianSum:
        """Return the mechanism for clipped rewards, any two of which are 2 bound apart at most."""
        return GaussianSum(2.0 * self.bound, gaussian_multiplier(self.epsilon, self.delta))

    def release(self, value: float, entropy: Entropy) -> float:
        """Return the clipped reward with Gaussian noise, the only result that may be sent."""
        units = self.mechanism.quantise(np.array([_clipped(value, self.bound)]))
        return float(self.mechanism.release(units[0], entropy)[0])

    def event(self, round: int = 0) -> GaussianRelease:
        """Return the event of one answer."""
        return GaussianRelease(self.mechanism.noise_multiplier, 1.0, round)


@dataclass(frozen=True)
class LocalGaussian:
    """A vector clipped at the agent, with Gaussian noise of deviation z times *twice* the clip.

    The sensitivity is 2 ``clip``, the distance of two opposite clipped vectors. The server sees
    every message by itself, so neither sampling nor the sum over agents lowers the cost. The
    mechanism works under any strategy; noise that the server adds is additional.
    """

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive("clip", self.clip)
        _ = self.mechanism  # checks the noise multiplier

    @classmethod
    def for_budget(cls, clip: float, epsilon: float, delta: float, answers: int) -> Self:
        """Return the mechanism with which ``answers`` answers cost (epsilon, delta) together."""
        # n Gaussian releases cost exactly as much as one with a multiplier sqrt(n) times smaller.
        z = gaussian_multiplier(epsilon, delta) * math.sqrt(checks.count("answers", answers))
        # A budget's accountant rounds epsilon up, and must not refuse the last answer for that.
        return cls(clip, z * (1.0 + 1e-3))

    @cached_property
    def mechanism(self) -> GaussianSum:
        """Return the mechanism for clipped vectors, any two of which are 2 clip apart at most."""
        return GaussianSum(2.0 * self.clip, self.noise_multiplier)

    def release(self, value: Array, entropy: Entropy) -> Array:
        """Return the clipped vector with Gaussian noise, the only result that may be sent: (M,)."""
        vector = np.asarray(value, dtype=np.float64)
        if vector.ndim != 1:
            raise checks.PrivacyError(f"`value` must have shape (m,), but got {vector.shape}")
        units = self.mechanism.quantise(clip_rows(vector, self.clip))
        return self.mechanism.release(units[0], entropy)

    def event(self, round: int = 0) -> GaussianRelease:
        """Return the event of one answer."""
        return GaussianRelease(self.noise_multiplier, 1.0, round)


class LocalBudget:
    """One agent's own budget, in the agent's own file, over all the runs it takes part in.

    With ``delta=0`` only Laplace answers are possible, and their epsilons add up: k answers cost
    k epsilon. With a positive delta the cost is computed with privacy-loss distributions.
    """

    def __init__(self, ledger: Ledger, budget: PrivacyBudget) -> None:
        self._ledger, self._budget = ledger, budget

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], owner: str, epsilon: float, delta: float = 0.0
    ) -> Self:
        """Return the budget in this file. Create the file if there is none.

        A file of another owner or of another delta is refused.
        """
        header: dict[str, Any] = {"owner": owner, "delta": delta}
        ledger = Ledger.open(path, header)
        try:
            name = "pld" if delta else "pure"
            return cls(ledger, PrivacyBudget(epsilon, delta, ledger, name))
        except BaseException:
            ledger.close()
            raise

    def answer(self, mechanism: LocalMechanism[T], value: T, entropy: Entropy, round: int = 0) -> T:
        """Charge an answer, then return the answer with noise.

        An answer that would exceed the budget raises :class:`BudgetExceeded` before any noise is
        drawn.
        """
        self._budget.charge(mechanism.event(round))
        return mechanism.release(value, entropy)

    def charge(self, event: GaussianRelease) -> None:
        """Charge an answer whose noise is made elsewhere; raise BudgetExceeded for one too many."""
        self._budget.charge(event)

    def would_exceed(self, mechanism: LocalMechanism[T]) -> bool:
        """Return whether one more answer of this mechanism would exceed the budget."""
        return self._budget.would_exceed(mechanism.event())

    @property
    def charges(self) -> int:
        """Return how many answers were charged, over all runs."""
        return len(self._ledger.events)

    @property
    def spent(self) -> float:
        """Return the epsilon of all answers so far, over all runs."""
        return self._budget.spent

    @property
    def remaining(self) -> float:
        """Return the epsilon of the budget less the epsilon spent, at least 0."""
        return self._budget.remaining

    def close(self) -> None:
        """Close the file."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _clipped(value: float, bound: float) -> float:
    """Return the reward, clipped to [-bound, bound]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise checks.PrivacyError("a reward must be a number, but is not")
    # The messages never hold the reward itself, which is private.
    if math.isnan(value):
        raise checks.PrivacyError("a reward must be a number, but is NaN")
    return float(min(bound, max(-bound, value)))


def _check_scale(scale: float, epsilon: float) -> None:
    """Refuse an epsilon or a scale of noise that the lattice cannot hold."""
    if not (1e-250 < scale < 1e250 and 1e-9 <= epsilon <= 1e4):
        raise checks.PrivacyError(
            f"`epsilon` must be in [1e-9, 1e4] and give a scale in (1e-250, 1e250), "
            f"but got epsilon={epsilon!r} and scale={scale!r}"
        )
