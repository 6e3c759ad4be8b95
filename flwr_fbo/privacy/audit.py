r"""An audit: attack what a step releases, and test whether that is more than is claimed.

The auditor runs the step thousands of times on two neighbouring inputs. In one, an agent (the
*canary*) sends the worst possible message; in the other, the canary's message is zero. From the
released vectors the auditor guesses which input was used. If the guesses are better than
(epsilon, delta)-differential privacy allows, the claim is false.
:mod:`flwr_fbo.privacy.attack` explains the guesses and the bounds.

This module audits a single step, any step, which is fast. The messages of all other agents are
zero. :mod:`flwr_fbo.methods.dp_fts_de.release_audit` audits the whole schedule of a run.

**The attack.** A trial is a few releases in a row. The canary's message changes its sign from
release to release, so that noise that is used twice cancels. The message is ten times as long as
the clip, so that a missing clip shows. Its coordinates alternate in sign, so that noise shared
by coordinates cancels. Every release is projected on the canary's direction, once for each block
(sub-region).

**The verdict** uses fresh trials only. Its six one-sided bounds each have a sixth of the error
probability, so a true claim passes with at least the stated confidence. A claim that passes is
not proven.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import attack, checks
from flwr_fbo.privacy.attack import BOUNDS, Bounds, Schedule, Trials
from flwr_fbo.privacy.entropy import Entropy, poisson_sample, system_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.mechanisms import GaussianSum, clip_rows

#: A release step: messages (n, m) and entropy, to the released vector (d,), d a multiple of m.
ReleaseStep: TypeAlias = Callable[[Array, Entropy], Array]
#: How many times as long as the clip the canary's message is.
CANARY_LENGTH = 10.0


@dataclass(frozen=True)
class Claim:
    """What is claimed about one release step, and the shape of its inputs.

    Parameters
    ----------
    noise_multiplier, sampling_rate : float
        z and q of one release.
    delta : float
        The delta of the epsilons that are compared.
    agents, dimension : int
        n and m, the shape of the messages.
    clip : float
        The norm to which the step clips a message.
    canary : int
        The agent whose message differs. The agent with the largest weights is the right choice,
        as the sensitivity is that agent's.
    """

    noise_multiplier: float
    sampling_rate: float
    delta: float
    agents: int
    dimension: int
    clip: float
    canary: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.canary < self.agents:
            raise checks.PrivacyError(
                f"`0 <= canary < agents` must hold, but got ({self.canary}, {self.agents})"
            )
        GaussianRelease(self.noise_multiplier, self.sampling_rate)
        checks.open_unit("delta", self.delta)
        checks.count("agents", self.agents)
        checks.count("dimension", self.dimension)
        checks.positive("clip", self.clip)

    def schedule(self, releases: int) -> Schedule:
        """Return the claim for a number of releases."""
        return Schedule(self.noise_multiplier, self.sampling_rate, releases, self.delta)


@dataclass(frozen=True)
class AuditResult:
    """The bounds of an attack, and the verdict.

    Parameters
    ----------
    epsilon_claimed : float
        The epsilon of all releases of a trial, at delta.
    epsilon_lower : float
        The bound on epsilon that holds for any step. Few trials cannot show a large epsilon.
    epsilon_profile : float
        The epsilon that the releases would have with ``noise_multiplier_upper``. This bound uses
        the whole privacy profile, and comes close to a claim that is tight.
    delta : float
        The delta of the three epsilons.
    noise_multiplier_claimed, noise_multiplier_upper : float
        z, and the largest z that the observations allow.
    sampling_rate : float
        q.
    releases : int
        The number of releases of a trial.
    trials : int
        The number of fresh trials on both inputs together.
    confidence : float
        The probability, at least, with which a true claim passes.
    """

    epsilon_claimed: float
    epsilon_lower: float
    epsilon_profile: float
    delta: float
    noise_multiplier_claimed: float
    noise_multiplier_upper: float
    sampling_rate: float
    releases: int
    trials: int
    confidence: float

    @classmethod
    def of(cls, schedule: Schedule, found: Bounds, trials: int, confidence: float) -> Self:
        """Return the result of an attack on a schedule with this many trials of each input."""
        upper = found.noise_multiplier_upper
        return cls(
            epsilon_claimed=schedule.epsilon(),
            epsilon_lower=found.epsilon_lower,
            epsilon_profile=0.0 if upper == math.inf else schedule.epsilon(upper),
            delta=schedule.delta,
            noise_multiplier_claimed=schedule.noise_multiplier,
            noise_multiplier_upper=upper,
            sampling_rate=schedule.sampling_rate,
            releases=schedule.releases,
            trials=2 * trials,
            confidence=confidence,
        )

    @property
    def passed(self) -> bool:
        """Return whether no bound contradicts the claim."""
        return (
            self.epsilon_lower <= self.epsilon_claimed
            and self.noise_multiplier_upper >= self.noise_multiplier_claimed
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON object (None for a noise multiplier without a bound)."""
        data = dataclasses.asdict(self)
        if self.noise_multiplier_upper == math.inf:
            data["noise_multiplier_upper"] = None
        return {**data, "passed": self.passed}

    def to_text(self) -> str:
        """Return the result as a text."""
        verdict = (
            "PASSED: no observation contradicts the claim."
            if self.passed
            else "FAILED: the step reveals more than is claimed. Do not use it."
        )
        return "\n".join([*self.lines(), verdict])

    def lines(self) -> list[str]:
        """Return the claim and what was observed, a line each."""
        upper = self.noise_multiplier_upper
        found = "any" if upper == math.inf else f"{upper:.4g}"
        return [
            f"{self.trials} trials of {self.releases} releases, sampling rate "
            f"{self.sampling_rate:g}, confidence {self.confidence:g}",
            f"claimed:  epsilon <= {self.epsilon_claimed:.3f} at delta {self.delta:.3g}, "
            f"noise multiplier {self.noise_multiplier_claimed:.4g}",
            f"observed: epsilon >= {self.epsilon_profile:.3f} by the profile of the noise, "
            f">= {self.epsilon_lower:.3f} for any step, noise multiplier <= {found}",
        ]


def standard_release(clip: float, noise_multiplier: float, sampling_rate: float) -> ReleaseStep:
    """Return a correct release step: sample, clip, sum, add noise."""
    mechanism = GaussianSum(clip, noise_multiplier)

    def release(messages: Array, entropy: Entropy) -> Array:
        chosen = poisson_sample(len(messages), sampling_rate, entropy)
        clipped = clip_rows(messages[chosen], clip) if chosen.any() else messages[:0]
        return mechanism.release(mechanism.quantise(clipped).sum(axis=0), entropy)

    return release


def audit(
    release: ReleaseStep,
    claim: Claim,
    *,
    releases: int = 2,
    trials: int = 4000,
    confidence: float = 0.99,
    entropy: Entropy | None = None,
) -> AuditResult:
    """Attack a release step and compare the bounds with the claim.

    Parameters
    ----------
    release : ReleaseStep
        The step under audit.
    claim : Claim
        What is claimed about the step.
    releases : int
        The number of releases in one trial.
    trials : int
        The number of fresh trials on each of the two inputs; half as many are pilot trials.
    confidence : float
        The probability, at least, with which a true claim passes.
    entropy : Entropy, optional
        The entropy of the step; by default the operating system's.
    """
    checks.count("releases", releases)
    checks.count("trials", trials, low=100)
    checks.open_unit("confidence", confidence)
    source = system_entropy() if entropy is None else entropy
    pilot = _observe(release, claim, releases, trials // 2, source)
    fresh = _observe(release, claim, releases, trials, source)

    schedule = claim.schedule(releases)
    found = attack.bounds(pilot, fresh, schedule, (1.0 - confidence) / BOUNDS)
    return AuditResult.of(schedule, found, trials, confidence)


def _observe(
    release: ReleaseStep, claim: Claim, releases: int, trials: int, entropy: Entropy
) -> Trials:
    """Return projections of the releases on the canary's direction, for both inputs."""
    direction = np.where(np.arange(claim.dimension) % 2 == 0, 1.0, -1.0)
    direction /= math.sqrt(claim.dimension)  # (m,)
    signs = np.where(np.arange(releases) % 2 == 0, 1.0, -1.0)
    zero = np.zeros((claim.agents, claim.dimension))  # (n, m)
    seen: list[list[list[Array]]] = [[], []]
    for present in (0, 1):
        for _ in range(trials):
            row = []
            for sign in signs:
                messages = zero.copy()
                messages[claim.canary] = present * sign * CANARY_LENGTH * claim.clip * direction
                out = np.asarray(release(messages, entropy), dtype=np.float64)
                row.append((out.reshape(-1, claim.dimension) * direction).sum(axis=1))  # (P,)
            seen[present].append(row)
    absent, with_canary = (np.array(rows) * signs[:, None] for rows in seen)  # (t, K, P)
    return Trials(absent, with_canary)
