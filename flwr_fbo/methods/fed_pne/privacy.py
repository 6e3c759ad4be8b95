r"""The noise of DP-Fed-PNE, and what its releases reveal at most.

Notation

==================  ==================================================  ======
paper               here                                                shape
==================  ==================================================  ======
``epsilon, delta``  ``settings.epsilon``, ``settings.delta``            scalar
``sigma``           ``noise.sigma``; see :class:`MeanNoise`             scalar
``t_{m,h,i}``       ``pulls``                                           (K,)
==================  ==================================================  ======

Rewards are in [0, 1]. For each node, an agent sends the mean of ``t`` rewards with Gaussian
noise. No server is trusted: each agent adds its own noise, from the operating system's entropy.
Two guarantees follow, for two neighbouring relations. Both hold against the server and everyone
else, and for the whole run: each phase has fresh noise, and each evaluation enters one mean only.

*One reward* (Definition 2). Neighbours differ in the result of one evaluation. The result moves
one mean by at most ``1 / t``, and no other release depends on the result. Gaussian noise of
deviation ``s`` on that mean has ``mu = 1 / (t s)``.

*One user*. Neighbours differ in all results of one agent. Every mean moves by at most 1, so a
release of ``K`` means with deviations ``s_i`` has ``mu^2 = sum 1 / s_i^2``. The squares add up
over phases, even where a phase depends on what was released before (Dong, Roth and Su 2022).

A Gaussian mechanism of parameter ``mu`` is (epsilon, delta)-private exactly when
``delta >= Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)`` (Balle and Wang 2018).
The paper's ``sigma^2 = 2 log(1.25/delta) / epsilon^2`` is proved for ``epsilon <= 1`` only. For
larger epsilon, and everywhere but in ``noise_on="reward"``, the exact condition is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.methods.fed_pne.settings import FedPNESettings, MeanNoise
from flwr_fbo.privacy.calibration import gaussian_epsilon, gaussian_multiplier
from flwr_fbo.privacy.entropy import Entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.mechanisms import Lattice
from flwr_fbo.privacy.noise import GAUSSIAN, draw_rounded
from flwr_fbo.privacy.secure.noise_share import charged_delta


@dataclass(frozen=True)
class Guarantees:
    """The epsilons of all releases of one agent, one for each neighbouring relation."""

    delta: float
    one_reward_epsilon: float
    one_user_epsilon: float

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return each guarantee under the name of its neighbouring relation, JSON-ready."""
        return {
            "one reward": {"epsilon": self.one_reward_epsilon, "delta": self.delta},
            "one user": {"epsilon": self.one_user_epsilon, "delta": self.delta},
        }


@lru_cache(maxsize=64)
def mean_noise(settings: FedPNESettings) -> MeanNoise:
    """Return the noise that keeps what the settings promise; no noise without ``epsilon``."""
    epsilon, delta = settings.epsilon_per_reward, settings.promised_delta
    if settings.epsilon is not None:
        # `most_means` means of sensitivity 1 are one release of sensitivity sqrt(most_means).
        if settings.secure:  # the accountant of the server's ledger rounds epsilon up
            sigma = gaussian_multiplier(settings.epsilon, charged_delta(delta)) * (1.0 + 1e-3)
        else:
            sigma = gaussian_multiplier(settings.epsilon, delta)
        return MeanNoise(math.sqrt(settings.most_means) * sigma, power=0)
    if epsilon is None:
        return MeanNoise()
    if settings.noise_on == "reward" and epsilon <= 1:  # Theorem D.1
        return MeanNoise(math.sqrt(2 * math.log(1.25 / delta)) / epsilon, power=1)
    sigma = gaussian_multiplier(epsilon, delta)
    return MeanNoise(sigma, power=1 if settings.noise_on == "reward" else 2)


@dataclass(frozen=True)
class PrivacyLimits:
    """An agent's own limits on what it reveals, at its own delta, whatever the server asks.

    Parameters
    ----------
    one_reward, one_user
        The largest epsilon of each neighbouring relation; infinite without a limit.
    delta
        The delta at which both are counted.
    """

    one_reward: float = math.inf
    one_user: float = math.inf
    delta: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("one_reward", "one_user"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be > 0, but got {getattr(self, name)!r}")
        if not 0 < self.delta < 1:
            raise ValueError(f"`delta` must be in (0, 1), but got {self.delta!r}")

    def exceeded(self, spent: Guarantees | None) -> bool:
        """Say whether releases with this guarantee break a limit; without noise every one does."""
        if spent is None:
            return math.isfinite(min(self.one_reward, self.one_user))
        return spent.one_reward_epsilon > self.one_reward or spent.one_user_epsilon > self.one_user


def guarantees(
    settings: FedPNESettings, pulls: Indices, delta: float | None = None
) -> Guarantees | None:
    """Return what one agent's means of ``pulls`` (K,) rewards each reveal; None without noise."""
    if not settings.private:
        return None
    deviations = np.sqrt(mean_noise(settings).variance(pulls)) if len(pulls) else np.zeros(0)
    return guarantees_of(deviations, pulls, settings.promised_delta if delta is None else delta)


def guarantees_of(deviations: Array, pulls: Indices, delta: float) -> Guarantees:
    """Return what means of ``pulls`` (K,) rewards reveal, with noise of these deviations (K,)."""
    if not len(pulls):
        return Guarantees(delta, 0.0, 0.0)
    # Noise over sensitivity: 1 / mu of the two neighbouring relations above.
    reward, user = float((pulls * deviations).min()), float((1 / deviations**2).sum() ** -0.5)
    return Guarantees(delta, gaussian_epsilon(reward, delta), gaussian_epsilon(user, delta))


@dataclass(frozen=True, eq=False)
class PrivateMeans:
    """The release of one phase as one mechanism, for a ledger: K means of one agent's rewards.

    All rewards of the agent may change at once: every mean then moves by at most 1, so that the
    release is a Gaussian mechanism whose noise multiplier is (sum 1 / deviation^2)^(-1/2).
    """

    noise: MeanNoise
    pulls: Indices

    @property
    def deviations(self) -> Array:
        """Return the standard deviation of the noise on each mean: (K,)."""
        return np.sqrt(self.noise.variance(self.pulls))

    def event(self, round: int = 0) -> GaussianRelease:
        """Return what the release costs its agent as a whole."""
        return GaussianRelease(float((1 / self.deviations**2).sum() ** -0.5), 1.0, round)

    def release(self, value: Array, entropy: Entropy) -> Array:
        """Return the means with noise, of rewards in [0, 1]."""
        return private_means(self.noise, value, self.pulls, entropy)


def private_means(noise: MeanNoise, rewards: Array, pulls: Indices, entropy: Entropy) -> Array:
    """Return the nodes' means with noise, of rewards in [0, 1] (Algorithm 3, lines 8-9): (K,).

    Rewards are rounded down, by less than 2^-28 of the noise, to a lattice that depends on the
    noise alone. They are summed as integers, so one reward moves the sum of its node by at most
    one reward's worth, exactly. The noise is an exact rounding of a Gaussian to that lattice.

    The paper's form (``noise_on="reward"``) adds noise to every reward. Only the sum leaves, and a
    sum of t Gaussian numbers is one Gaussian number of t times the variance, so one is drawn.
    """
    if rewards.size and not (rewards.min() >= 0 and rewards.max() <= 1):
        # The offending rewards are private: the message must not show them.
        raise ValueError("rewards must be in [0, 1] before noise is added, but some are outside")
    node = np.repeat(np.arange(len(pulls)), pulls)
    means = np.zeros(len(pulls))
    for t in np.unique(pulls):  # one or two values: pulls differ only in a cut phase
        rows = np.flatnonzero(pulls == t)
        deviation = math.sqrt(noise.variance(t)) * int(t)  # of the noise on the sum
        lattice = Lattice(deviation)
        if lattice.step > 1:
            raise ValueError(
                f"noise on a sum of rewards must have a lattice step <= 1, but noise of deviation "
                f"{deviation:g} has step {lattice.step:g}, which rounds every reward to 0"
            )
        units = lattice.quantise(rewards[np.isin(node, rows)]).reshape(len(rows), int(t))
        total = units.sum(axis=1) + draw_rounded(GAUSSIAN, lattice.units, len(rows), entropy)
        means[rows] = lattice.values(total) / t  # (rows,)
    return means
