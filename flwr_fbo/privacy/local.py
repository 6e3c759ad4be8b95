r"""Privacy for agents that do not trust the server: what they send is private already.

Notation

==================  =====================================  =========
paper (LDP-BO)      here                                   shape
==================  =====================================  =========
``B + R``           ``bound``                              scalar
``CTL(epsilon)``    ``LaplaceReward(bound, epsilon)``      (Curator 1)
``L = 2(B+R)/eps``  ``LaplaceReward.scale``                scalar
``omega_n``         what ``LocalGaussian`` is given        (M,)
==================  =====================================  =========

Local neighbours are *any two* inputs: of two clipped vectors, twice the clip apart. Every
mechanism clips before it adds noise, so that the guarantee holds even where the assumption that
motivated the bound does not; and every mechanism says which event its answer costs, so that a
:class:`LocalBudget` can keep the agent's own books across runs.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
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
    """What turns an agent's value into one that may leave."""

    def release(self, value: T, entropy: Entropy) -> T:
        """The value, made private."""

    def event(self, round: int = 0) -> Event:
        """What one answer costs."""


@dataclass(frozen=True)
class LaplaceReward:
    """CTL(epsilon): a reward clipped to [-bound, bound], with Laplace noise of scale 2 bound / eps.

    epsilon-LDP by Lemma 1 of the paper, for every reward, since it is clipped first. The noise is
    exact (:mod:`flwr_fbo.privacy.noise`): the answer is a rounding of the continuous mechanism's.
    """

    bound: float
    epsilon: float

    def __post_init__(self) -> None:
        checks.positive("bound", self.bound)
        checks.positive("epsilon", self.epsilon)
        _check_scale(self.scale, self.epsilon)

    @property
    def scale(self) -> float:
        """The scale of the noise; its variance is twice the square of this."""
        return math.nextafter(2.0 * self.bound / self.epsilon, math.inf)

    def release(self, value: float, entropy: Entropy) -> float:
        """The reward, made private: the only thing about it that may leave."""
        lattice = Lattice(self.scale)
        units = lattice.quantise(np.array([_clipped(value, self.bound)]))
        drawn = noise.draw_rounded(noise.LAPLACE, lattice.units, 1, entropy)
        return float(lattice.values(units + drawn)[0])

    def event(self, round: int = 0) -> LaplaceRelease:
        """See :class:`LocalMechanism`."""
        return LaplaceRelease(self.epsilon, round)


@dataclass(frozen=True)
class GaussianReward:
    """A reward clipped to [-bound, bound], with the least Gaussian noise for (epsilon, delta).

    For learners that want light tails. Calibrated exactly, after Balle and Wang.
    """

    bound: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        checks.positive("bound", self.bound)
        _check_scale(self.mechanism.deviation, self.epsilon)

    @cached_property
    def mechanism(self) -> GaussianSum:
        """The mechanism over the range of the clipped reward."""
        return GaussianSum(2.0 * self.bound, gaussian_multiplier(self.epsilon, self.delta))

    def release(self, value: float, entropy: Entropy) -> float:
        """The reward, made private."""
        units = self.mechanism.quantise(np.array([_clipped(value, self.bound)]))
        return float(self.mechanism.release(units[0], entropy)[0])

    def event(self, round: int = 0) -> GaussianRelease:
        """See :class:`LocalMechanism`."""
        return GaussianRelease(self.mechanism.noise_multiplier, 1.0, round)


@dataclass(frozen=True)
class LocalGaussian:
    """A vector clipped at the agent, with Gaussian noise of deviation z times *twice* the clip.

    Two clipped vectors can lie 2 ``clip`` apart, and a server that is not trusted sees each
    message by itself: that is the sensitivity, and neither sampling nor the sum over agents
    helps. Works below any strategy; the server's own noise, if any, comes on top.
    """

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive("clip", self.clip)
        _ = self.mechanism  # checks the noise multiplier

    @classmethod
    def for_budget(cls, clip: float, epsilon: float, delta: float, answers: int) -> Self:
        """The least noise for so many answers at (epsilon, delta) in total."""
        # Gaussian releases compose exactly: n of them are one with sqrt(n) less noise.
        total = gaussian_multiplier(epsilon, delta) * math.sqrt(checks.count("answers", answers))
        return cls(clip, total * (1.0 + 1e-3))  # the grid of losses rounds epsilon up

    @cached_property
    def mechanism(self) -> GaussianSum:
        """The mechanism over all clipped vectors."""
        return GaussianSum(2.0 * self.clip, self.noise_multiplier)

    def release(self, value: Array, entropy: Entropy) -> Array:
        """The vector, made private: (M,)."""
        vector = np.asarray(value, dtype=np.float64)
        if vector.ndim != 1:
            raise checks.PrivacyError(f"`value` must have shape (m,), but got {vector.shape}")
        units = self.mechanism.quantise(clip_rows(vector, self.clip))
        return self.mechanism.release(units[0], entropy)

    def event(self, round: int = 0) -> GaussianRelease:
        """See :class:`LocalMechanism`."""
        return GaussianRelease(self.noise_multiplier, 1.0, round)


class LocalBudget:
    """One agent's own budget, kept in its own file, over all the runs it takes part in.

    With ``delta=0`` only Laplace answers are possible and their epsilons add up (answering k
    times costs k epsilon); with a positive delta, privacy-loss distributions keep the books.
    """

    def __init__(self, ledger: Ledger, budget: PrivacyBudget) -> None:
        self._ledger, self._budget = ledger, budget

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], owner: str, epsilon: float, delta: float = 0.0
    ) -> Self:
        """The budget in this file, continued if it is there and made if it is not."""
        header: dict[str, Any] = {"owner": owner, "delta": delta}
        # A file without one whole line is what a crash while it was made leaves: no answer
        # was ever given from it.
        where = Path(path)
        if where.exists() and b"\n" not in where.read_bytes():
            where.unlink()
        ledger = (Ledger.resume if where.exists() else Ledger.create)(where, header)
        try:
            name = "pld" if delta else "pure"
            return cls(ledger, PrivacyBudget(epsilon, delta, ledger, name))
        except BaseException:
            ledger.close()
            raise

    def answer(self, mechanism: LocalMechanism[T], value: T, entropy: Entropy, round: int = 0) -> T:
        """Pay for an answer, then make it; :class:`BudgetExceeded` refuses, and nothing leaves."""
        self._budget.charge(mechanism.event(round))
        return mechanism.release(value, entropy)

    def would_exceed(self, mechanism: LocalMechanism[T]) -> bool:
        """Whether the next such answer would be refused."""
        return self._budget.would_exceed(mechanism.event())

    @property
    def spent(self) -> float:
        """Epsilon so far, over all runs."""
        return self._budget.spent

    @property
    def remaining(self) -> float:
        """Epsilon that is left."""
        return self._budget.remaining

    def close(self) -> None:
        """Let go of the file."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _clipped(value: float, bound: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise checks.PrivacyError("a reward must be a number, but is not")
    if math.isnan(value):
        raise checks.PrivacyError("a reward must be a number, but is NaN")  # never its value
    return float(min(bound, max(-bound, value)))


def _check_scale(scale: float, epsilon: float) -> None:
    if not (1e-250 < scale < 1e250 and 1e-9 <= epsilon <= 1e4):
        raise checks.PrivacyError(
            f"`epsilon` must be in [1e-9, 1e4] and give a scale in (1e-250, 1e250), "
            f"but got epsilon={epsilon!r} and scale={scale!r}"
        )
