r"""Settings of Fed-PNE, and the confidence widths and thresholds that follow from them.

Notation

====================  ================================================  =========
paper                 here                                              shape
====================  ================================================  =========
``T``                 ``settings.budget``, evaluations of one agent     int
``M``                 ``agents``                                        int
``nu_1``, ``rho``     ``settings.smoothness``, ``settings.decay``       scalars
``nu_1 rho^h``        ``confidence.variation(h)``                       scalar
``c``, ``c_1``        ``confidence.scale``, inside ``confidence.log``   scalars
``log(c_1 T/delta)``  ``confidence.log``                                scalar
``tau_h``             ``confidence.threshold(h)``                       int
``t_{m,h,i}``         ``confidence.pulls(h)``, per agent                int
``b_{h,i}``           ``confidence.width(pulls, replies)``              (K,)
``sigma^2`` (App. D)  ``noise.variance(t)``, of one agent's mean        (K,)
====================  ================================================  =========

Rewards are scores scaled by the range that the user states: ``(score - reward_low) /
(reward_high - reward_low)``. Every quantity above is in units of the reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.children import MOST_PARALLEL
from flwr_fbo.core.settings import Settings, SettingsError, above, at_least, setting, within
from flwr_fbo.methods.secure_settings import colluding_setting, threshold_setting
from flwr_fbo.privacy.calibration import default_delta


@dataclass(frozen=True)
class FedPNESettings(Settings):
    """Settings of Fed-PNE and DP-Fed-PNE.

    The defaults of the search are those of the paper's experiments (App. E.1.5).
    """

    # The search
    budget: int = setting(
        1000, "evaluations that each agent makes in the whole run (T)", at_least(1)
    )
    smoothness: float = setting(
        1.0, "how much the reward varies over the whole space (nu_1)", above(0)
    )
    decay: float = setting(
        0.5,
        "factor by which the reward's variation shrinks with every depth of the tree (rho)",
        within(0, 1, open_low=True, open_high=True),
    )
    searches: int = setting(
        1,
        "number of searches, with decays decay^(1/i); they share the rounds and the budget",
        at_least(1),
    )
    constants: Literal["experiments", "theory"] = setting(
        "experiments",
        "constants c and c_1: 0.1 and 1 (App. E.1.5), or 2 and (2M)^(1/8) (Lemma B.2)",
    )
    confidence_scale: float | None = setting(
        None, "factor on the confidence widths (c); unset: as `constants` says", above(0)
    )
    confidence_inner: float | None = setting(
        None,
        "factor inside the logarithm of the confidence widths (c_1); unset: as `constants` says",
        above(0),
    )
    failure: float | None = setting(
        None,
        "probability that a confidence bound may fail (the paper's delta); unset: 1 / agents",
        within(0, 1, open_low=True),
    )
    arity: int = setting(2, "most children that a tree node can have (k)", at_least(2))
    dimension_order: Literal["random", "round-robin"] = setting(
        "random", "dimension that a tree node is split along: a random one, or each in turn"
    )
    pull: Literal["centre", "uniform"] = setting(
        "centre",
        "where a tree node is evaluated: at its centre, or at a new random point each time",
    )
    depth_reading: Literal["node", "literal"] = setting(
        "node", "depth h in the thresholds: the nodes' depth, or one more as in the pseudo-code"
    )
    last_phase: Literal["best-first", "in-order", "even"] = setting(
        "best-first",
        "how the last phase is cut to the budget: children of the best nodes first, nodes in "
        "their order, or fewer pulls of every node",
    )
    # Rounds and messages
    phase_quorum: float = setting(
        0.5,
        "share of the agents that must reply in a phase; with fewer the phase is asked again",
        within(0, 1, open_low=True),
    )
    idle_rounds: int = setting(
        20, "rounds in a row without a new reply after which the run ends", at_least(1)
    )
    pulls_per_message: int | None = setting(
        None,
        "most evaluations that an agent makes for one message; unset: all of the phase",
        at_least(1),
    )
    parallel: int = setting(
        1,
        "number of evaluations of a phase that an agent makes at once, each in a process",
        within(1, MOST_PARALLEL),
    )
    # Rewards and their privacy
    reward_low: float = setting(0.0, "score that counts as reward 0")
    reward_high: float = setting(1.0, "score that counts as reward 1")
    epsilon: float | None = setting(
        None, "privacy budget of one agent for the whole run, against everybody; unset: none",
        above(0),
    )  # fmt: skip
    epsilon_per_reward: float | None = setting(
        None, "epsilon of one evaluation, as in the paper; unset: as `epsilon` says", above(0)
    )
    delta: float | None = setting(
        None,
        "delta of the epsilon that is set; unset: min(1e-5, 1/(10 N)) for N agents",
        within(0, 1, open_low=True, open_high=True),
    )
    noise_on: Literal["mean", "reward"] = setting(
        "mean", "what noise is added to: the mean of each tree node, or every reward (the paper)"
    )
    most_means: int = setting(
        64,
        "most means that an agent may send in the whole run with `epsilon`; more need more noise",
        above(0),
    )

    aggregation: Literal["local", "secure"] = setting(
        "local",
        "who adds the noise of `epsilon`: each agent to its own means, or all in secure sums",
    )
    secure_threshold: float = threshold_setting()
    secure_colluding: int = colluding_setting()

    @property
    def secure(self) -> bool:
        """Say whether the agents' means are added up by secure sums."""
        return self.aggregation == "secure"

    def check(self) -> None:
        """Raise SettingsError where several settings contradict each other."""
        if self.secure and self.epsilon is None:
            raise SettingsError(
                "`aggregation=secure` needs `epsilon`, the guarantee for a whole agent, but "
                "`epsilon` is unset"
            )
        if not self.reward_low < self.reward_high:
            raise SettingsError(
                "`reward-low` must be < `reward-high`, but got "
                f"(reward-low={self.reward_low}, reward-high={self.reward_high})"
            )
        if self.epsilon is not None and self.epsilon_per_reward is not None:
            raise SettingsError(
                "only one of `epsilon` and `epsilon-per-reward` may be given, but got "
                f"(epsilon={self.epsilon:g}, epsilon-per-reward={self.epsilon_per_reward:g})"
            )
        # A mean of t rewards with noise on each would be t releases of the agent's data.
        if self.epsilon is not None and self.noise_on == "reward":
            raise SettingsError(
                "`noise-on` must be mean with `epsilon`, but got reward: noise on every reward "
                "would cost an agent one release for each reward; `epsilon-per-reward` is the "
                "guarantee of the paper"
            )
        if self.searches > self.budget:
            raise SettingsError(
                f"`searches` must be <= `budget`, but got (searches={self.searches}, "
                f"budget={self.budget})"
            )

    @property
    def decays(self) -> tuple[float, ...]:
        """Return the decay of each search; later searches assume a rougher function."""
        return tuple(self.decay ** (1 / i) for i in range(1, self.searches + 1))

    @property
    def private(self) -> bool:
        """Say whether agents add noise."""
        return self.epsilon is not None or self.epsilon_per_reward is not None

    @property
    def promised_delta(self) -> float:
        """Return the delta of the promise; settings of a run always hold one."""
        return default_delta(1) if self.delta is None else self.delta

    def for_agents(self, agents: int) -> FedPNESettings:
        """Return the settings of a run with this number of agents, which state their delta."""
        return replace(self, delta=default_delta(agents)) if self.delta is None else self


@dataclass(frozen=True)
class MeanNoise:
    """Gaussian noise on one agent's mean of ``t`` rewards: variance ``sigma^2 / t^power``.

    - Power 1 is noise on every reward, as published (Algorithm 3, line 8).
    - Power 2 is one noise on the mean, whose sensitivity to one reward is ``1 / t``.
    - Power 0 is one noise on the mean, whose sensitivity to all of an agent's rewards is 1.
    """

    sigma: float = 0.0
    power: int = 2

    def variance(self, pulls: Array | Indices) -> Array:
        """Return the variance of the noise on means of ``pulls`` (K,) rewards each: (K,)."""
        return np.asarray(self.sigma**2 / np.asarray(pulls, dtype=np.float64) ** self.power)


@dataclass(frozen=True)
class Confidence:
    """The confidence widths and the thresholds of one search.

    With noise, Lemma D.3 replaces ``c = 2`` by ``sqrt(4 + 16 sigma^2)``: the squared width gains
    ``noise_scale`` (16) times the variance of the noise times ``log``. The experiments' ``c = 0.1``
    assumes that rewards vary little. Noise has a known variance, for which 0.1 would be too small:
    there the Gaussian tail of the noise itself (``noise_scale`` 2) is added.
    """

    scale: float
    log: float
    smoothness: float
    decay: float
    agents: int
    ahead: int = 0  # 1 in the literal reading, where h runs one ahead of the depth
    noise: MeanNoise = MeanNoise()
    noise_scale: float = 2.0

    @classmethod
    def of(
        cls,
        settings: FedPNESettings,
        agents: int,
        decay: float | None = None,
        noise: MeanNoise | None = None,
    ) -> Confidence:
        """Return the widths and thresholds that the settings give for a number of agents."""
        theory = settings.constants == "theory"
        scale = settings.confidence_scale or (2.0 if theory else 0.1)
        inner = settings.confidence_inner or ((2 * agents) ** 0.125 if theory else 1.0)
        # Theorem 3.1 sets delta = 1/M, which for a single agent would leave log(c_1 T) only.
        ratio = inner * settings.budget / (settings.failure or 1.0 / agents)
        return cls(
            scale=scale,
            log=math.log(max(ratio, math.e)),  # a budget of one or two would make it vanish
            smoothness=settings.smoothness,
            decay=settings.decay if decay is None else decay,
            agents=agents,
            ahead=1 if settings.depth_reading == "literal" else 0,
            noise=noise or MeanNoise(),
            noise_scale=16.0 if theory else 2.0,
        )

    def variation(self, depth: int) -> float:
        """Return how much the reward may vary inside a node of a depth: ``nu_1 rho^h``."""
        return self.smoothness * self.decay ** (depth + self.ahead)

    def threshold(self, depth: int) -> int:
        """Return ``tau_h``: pulls by all agents that bring a node's width to its variation."""
        M, target = self.agents, self.variation(depth) ** 2
        # Equation (3): width^2 = variation^2, with one term of the rewards and one of the noise.
        own, extra = self.scale**2 * self.log, self.noise_scale * self.noise.sigma**2 * self.log
        if self.noise.power == 1:
            own += extra
        if self.noise.power != 2 or extra == 0:  # noise that pulls cannot lessen is left out
            return math.ceil(own / target)
        # own / (M t) + extra / (M t^2) = target, solved for t, the pulls of one agent
        return math.ceil((own + math.sqrt(own**2 + 4 * extra * M * target)) / (2 * target))

    def pulls(self, depth: int) -> int:
        """Return the pulls of a node by each agent (Algorithm 2, line 8)."""
        return math.ceil(self.threshold(depth) / self.agents)

    def width(self, pulls: Array, replies: int) -> Array:
        """Return ``b_{h,i}`` after ``pulls`` (K,) by each of the agents that answered: (K,)."""
        reward = self.scale**2 / (replies * pulls)
        noise = self.noise_scale * self.noise.variance(pulls) / replies
        return np.asarray(np.sqrt(self.log * (reward + noise)))
