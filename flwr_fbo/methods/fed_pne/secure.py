r"""The means of a phase as one secure, noisy sum over the agents.

Notation

===========================  =======================================  =======
symbol                       here                                     shape
===========================  =======================================  =======
``M``, ``h = t - c``         ``plan.parties``, honest survivors       int
``K_max``                    ``settings.most_means``                  int
``sigma``                    ``mean_noise(settings).sigma``           scalar
``mu_{m,h,i} - 1/2``         ``summand(...)``, of one agent           (K,)
===========================  =======================================  =======

The means of an agent lie in [0, 1]. Let all rewards of one agent be others: each of its means
moves by 1 at most, so the sum over agents moves by 1 at most in each number. Over the whole run,
with :math:`K_{max}` numbers and noise of deviation sigma on each, that is one Gaussian release with
:math:`\mu^2 = K_{max} / \sigma^2`, whatever later phases depend on. The noise is that of *one*
agent's means in the local mechanism, but here it is on the sum of all: it shrinks with M instead
of its root.

The terms of a sum state a length S and a multiplier z. Here :math:`S = \sqrt{K_{max}} / 2`, which
no agent's centred means exceed, and :math:`z = \sigma / S`. The agents count the *numbers* that
they have sent, not the sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Request, Setup
from flwr_fbo.core.settings import Scalar
from flwr_fbo.methods.fed_pne.privacy import mean_noise
from flwr_fbo.methods.fed_pne.settings import FedPNESettings, MeanNoise
from flwr_fbo.methods.secure_sum import SecurePlan, SecureSum, plan_sums
from flwr_fbo.privacy.secure.collector import new_nonce


def secure_plan(settings: FedPNESettings, agents: int) -> SecurePlan:
    """Return the plan of all secure sums of a run; raise SettingsError where none is possible."""
    share, colluding = settings.secure_threshold, settings.secure_colluding
    z = mean_noise(settings).sigma / longest(settings)
    return plan_sums(agents, share, colluding, z, settings.most_means, by_number=True)


def longest(settings: FedPNESettings) -> float:
    """Return S, a length that the centred means of no phase exceed."""
    return math.sqrt(settings.most_means) / 2.0


def noise_of_one(settings: FedPNESettings, plan: SecurePlan) -> MeanNoise:
    """Return the share of the noise that each agent adds to its means, as if it sent them."""
    return MeanNoise(mean_noise(settings).sigma / math.sqrt(plan.threshold - plan.colluding), 0)


def open_sum(
    plan: SecurePlan, settings: FedPNESettings, setup: str, round: int, phase: int, pulls: Indices
) -> SecureSum:
    """Return a secure sum of the agents' means of a phase, without any reply yet."""
    terms = plan.terms(setup, round, new_nonce(), len(pulls), longest(settings))

    def own(n: int) -> tuple[Mapping[str, Scalar], Mapping[str, Array]]:
        return {"phase": phase}, {"pulls": pulls.astype(np.float64)}

    return SecureSum(terms, own)


def summand(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], request: Request
) -> Array:
    """Return an agent's centred means of a phase, from its recorded evaluations: (K,)."""
    settings = setup.read(FedPNESettings)
    low, high = settings.reward_low, settings.reward_high
    phase, pulls = int(request.values["phase"]), request.arrays["pulls"].astype(np.int64)
    rewards = np.zeros(int(pulls.sum()))
    for play in range(len(rewards)):
        made = evaluator.recorded(phase, play)
        if made is None:
            raise ValueError("all pulls of a phase must be made before its sum, but some are not")
        if made.score is not None:  # a failed evaluation counts as the worst reward
            rewards[play] = (made.score - low) / (high - low)
    node = np.repeat(np.arange(len(pulls)), pulls)
    means = np.bincount(node, np.clip(rewards, 0.0, 1.0), minlength=len(pulls)) / pulls
    return np.clip(means, 0.0, 1.0) - 0.5
