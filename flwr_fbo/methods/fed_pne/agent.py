r"""The agent of Fed-PNE and DP-Fed-PNE: Algorithms 1 and 3.

Notation

===========================  =============================================  ==========
paper                        here                                           shape
===========================  =============================================  ==========
``t_{m,h,i}``                ``pulls``                                      (K,)
``r_{m,h,i,t}``              ``rewards``, flat; ``node`` holds the node     (sum t,)
``mu_{m,h,i}``               ``means``                                      (K,)
===========================  =============================================  ==========

An agent pulls the nodes that a request names, through its evaluator. Evaluation ``play`` of phase
``p`` is made once, also after a crash: the next call continues where the last call ended. Only
means leave the agent. A failed evaluation counts as reward 0, the low end of the range, because
a setting that cannot be evaluated should not be recommended.

The agent serves any server that asks for means of pulls. The comparators use the same agent.
"""

from __future__ import annotations

import logging
import math
from functools import cache

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.evaluation_groups import evaluate_many
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.fed_pne.privacy import (
    Guarantees,
    PrivacyLimits,
    PrivateMeans,
    guarantees_of,
    mean_noise,
)
from flwr_fbo.methods.fed_pne.server import BUDGET, UNFINISHED
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.methods.owner import Owner
from flwr_fbo.privacy.entropy import Entropy, system_entropy
from flwr_fbo.privacy.local import LocalBudget

_log = logging.getLogger("flwr.fbo")
#: Purpose of the generator that draws points; the objective's generator has another key.
_POINTS = 2


class FedPNEAgent:
    """The agent that pulls nodes and replies with the mean reward of each node.

    Parameters
    ----------
    setup
        The server's settings, which are public.
    evaluator
        Makes and records the evaluations.
    records
        Where releases are kept.
    seed
        Seed of the drawn points; privacy noise does not depend on the seed.
    entropy
        The source of privacy noise: the operating system, unless a test gives another source.
    limits
        The agent's own limits. A release that would exceed them is declined; where the server
        asks for no noise, every release is declined.
    budget
        The owner's ledger over all runs, which every release is charged to.
    """

    #: Records of what was released: asking again then costs and reveals nothing.
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
        budget: LocalBudget | None = None,
    ) -> None:
        self.settings = setup.read(FedPNESettings)
        self.space, self.evaluator, self.seed = setup.space, evaluator, seed
        self.noise = mean_noise(self.settings)
        self._limits = [limits] if limits is not None else []
        if self.settings.epsilon is not None:
            stated = self.settings.epsilon * (1 + 1e-9)  # sigma was rounded up, epsilon as well
            self._limits.append(PrivacyLimits(one_user=stated, delta=self.settings.promised_delta))
        self._records, self._entropy = records, entropy or system_entropy()
        self._budget = budget
        self._releases = {record["phase"]: record for record in records.read(self.KIND)}

    def answer(self, request: Request) -> Reply:
        """Return the means of the requested nodes, once all of their pulls have been made."""
        phase = int(request.values["phase"])
        # A released mean is repeated as it was: new noise on the same rewards would reveal more.
        if self.settings.private and phase in self._releases:
            return Reply({"means": np.array(self._releases[phase]["means"])})
        pulls = request.arrays["pulls"].astype(np.int64)  # (K,)
        if pulls.min(initial=1) < 1:
            raise ValueError(f"every node must be pulled at least once, but got {pulls.tolist()}")
        if self._exceeds(phase, pulls):
            return Reply(declined=BUDGET)
        node = np.repeat(np.arange(len(pulls)), pulls)  # (sum t,)
        rewards = self._rewards(phase, *self._points(request, phase, pulls))
        if rewards is None:
            return Reply(declined=UNFINISHED)
        if self.settings.secure:
            return Reply()  # the means leave in a secure sum only
        if self.settings.private:
            return Reply({"means": self._release(phase, rewards, pulls)})
        if rewards.min() < 0 or rewards.max() > 1:
            _log_outside_range(self.settings.reward_low, self.settings.reward_high, private=False)
        means = np.bincount(node, rewards, minlength=len(pulls)) / pulls
        return Reply({"means": means})

    def guarantees(self) -> Guarantees | None:
        """Return what this agent's releases so far reveal at most; None without noise."""
        if not self.settings.private:
            return None
        delta = self.settings.promised_delta
        pulls = self._released("pulls").astype(np.int64)
        return guarantees_of(self._released("deviations"), pulls, delta)

    @property
    def clipped(self) -> int:
        """Return how many rewards were outside the stated range and clipped before release."""
        return sum(record["clipped"] for record in self._releases.values())

    def _points(self, request: Request, phase: int, pulls: Indices) -> tuple[Array, Indices]:
        """Return points (K, D), and how often each is pulled (K,); points are drawn once."""
        if "points" in request.arrays:
            return request.arrays["points"], pulls
        rng = np.random.default_rng([*self.seed, _POINTS, phase])
        boxes = zip(pulls, request.arrays["low"], request.arrays["high"], strict=True)
        drawn = np.concatenate([self.space.sample(int(t), rng, a, b) for t, a, b in boxes])
        return drawn, np.ones(len(drawn), dtype=np.int64)

    def _rewards(self, phase: int, points: Array, counts: Indices) -> Array | None:
        """Return the rewards of a phase; None when this message's share of pulls is used up."""
        # Recorded evaluations are looked up, and do not count towards the share.
        made = evaluate_many(
            self.evaluator, points, counts, round=phase, source="node",
            most=self.settings.pulls_per_message, parallel=self.settings.parallel,
        )  # fmt: skip
        if made is None:
            return None
        low, high = self.settings.reward_low, self.settings.reward_high
        scores = np.array([low if e.score is None else e.score for e in made], dtype=np.float64)
        return np.asarray((scores - low) / (high - low))

    def _release(self, phase: int, rewards: Array, pulls: Indices) -> Array:
        """Return noisy means, after recording the means together with their privacy cost."""
        clipped = int(((rewards < 0) | (rewards > 1)).sum())
        if clipped:
            _log_outside_range(self.settings.reward_low, self.settings.reward_high, private=True)
        mechanism, kept = PrivateMeans(self.noise, pulls), np.clip(rewards, 0.0, 1.0)
        if self._budget is None:
            means = mechanism.release(kept, self._entropy)
        else:
            means = self._budget.answer(mechanism, kept, self._entropy, phase)
        record = {
            "phase": phase,
            "means": means.tolist(),
            "pulls": pulls.tolist(),
            # With the noise it had: a later setup must not say what an earlier release cost.
            "deviations": mechanism.deviations.tolist(),
            "clipped": clipped,
            "private": self._entropy.private,
        }
        # Recorded before the means can leave: a crash may overcount the cost, never undercount it.
        self._records.append(self.KIND, record)
        self._releases[phase] = record
        return means

    def _exceeds(self, phase: int, pulls: Indices) -> bool:
        """Say whether this phase would break the evaluation budget or a privacy limit."""
        made = len(self.evaluator.history)
        again = self.evaluator.count_recorded(phase, int(pulls.sum()))
        if made - again + pulls.sum() > self.settings.budget:
            return True
        if not self.settings.private:
            # An agent with a limit, or whose means were private before, sends none without noise.
            bounded = any(limits.exceeded(None) for limits in self._limits)
            return bounded or self._budget is not None or bool(self._releases)
        mechanism = PrivateMeans(self.noise, pulls)
        if self._budget is not None and self._budget.would_exceed(mechanism):
            return True
        deviations = np.concatenate([self._released("deviations"), mechanism.deviations])
        pulls = np.concatenate([self._released("pulls"), pulls])
        return any(
            limits.exceeded(guarantees_of(deviations, pulls, limits.delta))
            for limits in self._limits
        )

    def _released(self, what: str) -> Array:
        """Return a number of every released mean: its pulls, or the deviation of its noise."""
        rows = [np.array(r[what], dtype=np.float64) for r in self._releases.values()]
        return np.concatenate([np.zeros(0), *rows])


@cache  # once in a process for each range
def _log_outside_range(low: float, high: float, *, private: bool) -> None:
    """Write to the agent's own log that scores are outside the range; nothing of it is sent."""
    if private:
        _log.error("scores outside the stated range [%g, %g] are clipped to it", low, high)
    else:
        _log.warning(
            "scores lie outside [%g, %g], the range that the search assumes; set reward-low and "
            "reward-high to a range that holds every score",
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
    budget = owner.open_budget()
    return FedPNEAgent(setup, evaluator, records, seed, limits=limits, budget=budget)
