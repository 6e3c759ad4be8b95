r"""The agent of Fed-PNE and DP-Fed-PNE: Algorithms 1 and 3.

Notation

===========================  =============================================  ==========
paper                        here                                           shape
===========================  =============================================  ==========
``t_{m,h,i}``                ``pulls``                                      (K,)
``r_{m,h,i,t}``              ``rewards``, flat; ``node`` says whose         (sum t,)
``mu_{m,h,i}``               ``means``                                      (K,)
===========================  =============================================  ==========

An agent pulls the nodes it is asked to pull, through its evaluator: evaluation ``play`` of phase
``p`` is made once, whatever crashes, and the next call goes on where the last one ended. Only
means leave. A failed evaluation counts as reward 0, the low end of the range: a setting that
cannot be evaluated is not one to recommend.

It answers to any server that asks for means of pulls: the comparators use it too.
"""

from __future__ import annotations

import logging
import math
from functools import cache

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.fed_pne.privacy import (
    Guarantees,
    PrivacyLimits,
    guarantees,
    mean_noise,
    private_means,
)
from flwr_fbo.methods.fed_pne.server import BUDGET, UNFINISHED
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.methods.owner import Owner
from flwr_fbo.privacy.entropy import Entropy, system_entropy

_log = logging.getLogger("flwr.fbo")
_DRAWS = 2  # purpose of the generator that draws points, apart from the objective's own


class FedPNEAgent:
    """An :class:`~flwr_fbo.core.protocol.Agent` that replies with means of rewards.

    ``limits`` are this agent's own: a release that would exceed them is declined, and so is every
    release if the server asks for no noise at all. ``entropy`` is the operating system's unless a
    test says otherwise.
    """

    #: Records of what was released: kept so that asking again costs and reveals nothing.
    KIND = "release"

    def __init__(
        self,
        setup: Setup,
        evaluator: Evaluator,
        records: Records,
        seed: tuple[int, ...],
        *,
        entropy: Entropy | None = None,
        limits: PrivacyLimits | None = None,
    ) -> None:
        self.settings = setup.read(FedPNESettings)
        self.space, self.evaluator, self.seed = setup.space, evaluator, seed
        self.noise = mean_noise(self.settings)
        self._limits = [limits] if limits is not None else []
        if self.settings.protects == "user" and self.settings.epsilon is not None:
            promise = self.settings.epsilon * (1 + 1e-9)  # sigma was rounded up, epsilon as well
            self._limits.append(PrivacyLimits(one_user=promise, delta=self.settings.delta))
        self._records, self._entropy = records, entropy or system_entropy()
        self._releases = {record["phase"]: record for record in records.read(self.KIND)}

    def answer(self, request: Request) -> Reply:
        """The means of the nodes asked for, when all of their pulls have been made."""
        phase = int(request.values["phase"])
        if self.settings.private and phase in self._releases:
            return Reply({"means": np.array(self._releases[phase]["means"])})
        pulls = request.arrays["pulls"].astype(np.int64)  # (K,)
        if pulls.min(initial=1) < 1:
            raise ValueError(f"every node must be pulled at least once, but got {pulls.tolist()}")
        if self._exceeds(phase, pulls):
            return Reply(declined=BUDGET)
        node = np.repeat(np.arange(len(pulls)), pulls)  # (sum t,)
        rewards = self._rewards(phase, self._points(request, phase, pulls))
        if rewards is None:
            return Reply(declined=UNFINISHED)
        if self.settings.private:
            return Reply({"means": self._release(phase, rewards, pulls)})
        self._warn_of_range(rewards)
        means = np.bincount(node, rewards, minlength=len(pulls)) / pulls
        return Reply({"means": means})

    def guarantees(self) -> Guarantees | None:
        """What this agent's releases so far reveal at most; None without noise."""
        return guarantees(self.settings, self._pulls_released())

    @property
    def clipped(self) -> int:
        """How many rewards were outside the stated range and clipped before release."""
        return sum(record["clipped"] for record in self._releases.values())

    def _points(self, request: Request, phase: int, pulls: Indices) -> Array:
        """Where each pull is made: (sum t, D). Drawn ones are the same when asked again."""
        if "points" in request.arrays:
            return np.repeat(request.arrays["points"], pulls, axis=0)
        rng = np.random.default_rng([*self.seed, _DRAWS, phase])
        boxes = zip(pulls, request.arrays["low"], request.arrays["high"], strict=True)
        return np.concatenate([self.space.sample(int(t), rng, a, b) for t, a, b in boxes])

    def _rewards(self, phase: int, points: Array) -> Array | None:
        """The rewards of a phase, or None when this message's share of the work is done."""
        left = self.settings.pulls_per_message
        low, high = self.settings.reward_low, self.settings.reward_high
        rewards = np.zeros(len(points))
        for play, point in enumerate(points):
            if left is not None and self.evaluator.recorded(phase, play) is None:
                if left == 0:
                    return None
                left -= 1
            evaluation = self.evaluator(point, round=phase, play=play, source="node")
            if evaluation.score is not None:
                rewards[play] = (evaluation.score - low) / (high - low)
        return rewards

    def _release(self, phase: int, rewards: Array, pulls: Indices) -> Array:
        """Noisy means; what they cost is stored with them, before they can leave."""
        clipped = int(((rewards < 0) | (rewards > 1)).sum())
        if clipped:
            _outside_range(self.settings.reward_low, self.settings.reward_high, private=True)
        means = private_means(self.noise, np.clip(rewards, 0.0, 1.0), pulls, self._entropy)
        record = {
            "phase": phase,
            "means": means.tolist(),
            "pulls": pulls.tolist(),
            "clipped": clipped,
            "private": self._entropy.private,
        }
        self._records.append(self.KIND, record)
        self._releases[phase] = record
        return means

    def _exceeds(self, phase: int, pulls: Indices) -> bool:
        """Whether this phase would break the evaluation budget or a privacy limit."""
        made = len(self.evaluator.history)
        again = sum(self.evaluator.recorded(phase, j) is not None for j in range(pulls.sum()))
        if made - again + pulls.sum() > self.settings.budget:
            return True
        pulls = np.concatenate([self._pulls_released(), pulls])
        return any(limits.exceeded(self.settings, pulls) for limits in self._limits)

    def _pulls_released(self) -> Indices:
        pulls = [np.array(r["pulls"], dtype=np.int64) for r in self._releases.values()]
        return np.concatenate([np.zeros(0, dtype=np.int64), *pulls])

    def _warn_of_range(self, rewards: Array) -> None:
        if rewards.min() < 0 or rewards.max() > 1:
            _outside_range(self.settings.reward_low, self.settings.reward_high, private=False)


@cache
def _outside_range(low: float, high: float, *, private: bool) -> None:
    """Say so once in a process. The log is the agent's own; nothing of it is sent."""
    if private:
        _log.error("scores outside the stated range [%g, %g] are clipped to it", low, high)
    else:
        _log.warning(
            "scores lie outside the stated range [%g, %g]; the theory's constants no longer hold",
            low,
            high,
        )


def make_agent(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], owner: Owner
) -> FedPNEAgent:
    """Make an agent that pulls nodes, within its owner's limits."""
    user, reward = owner.epsilon_limit, owner.epsilon_limit_reward
    limits = None
    if user is not None or reward is not None:
        limits = PrivacyLimits(reward or math.inf, user or math.inf, owner.delta_limit)
    return FedPNEAgent(setup, evaluator, records, seed, limits=limits)
