r"""An audit: attack the release step and see whether it tells more than was claimed.

The auditor runs the step thousands of times on two neighbouring inputs: in one, an agent (the
*canary*) sends the worst message there is; in the other its message is zero. All other messages
are zero, the worst case too. From what comes out it guesses which input went in. If it guesses
better than (epsilon, delta)-DP allows anyone to, the claim is false.

**The attack.** A trial is a few releases in a row, in which the canary's message changes its
sign, so that noise which is used twice cancels; the message is ten times as long as the clip, so
that a missing clip shows; and its coordinates alternate in sign, so that noise shared by
coordinates cancels. Every release is projected on the canary's direction, once for each block
(sub-region). On *pilot* trials the auditor learns how the noise is spread over these
projections and two scores: the best linear one, and the likelihood ratio under the claim. It
also picks, still on the pilot, the score and the thresholds with which it will be judged.

**The verdict** is taken on fresh trials. Clopper-Pearson bounds hold for any step, known or not:

* ``epsilon_lower``: with :math:`\mathrm{TPR} \le e^\epsilon \mathrm{FPR} + \delta`, epsilon is at
  least :math:`\log((\mathrm{TPR}_{low} - \delta) / \mathrm{FPR}_{high})`, and likewise with the
  inputs changed over.
* ``noise_multiplier_upper``: the claim implies not one pair (epsilon, delta) but a whole
  profile :math:`\delta(\epsilon)`. It is the largest noise multiplier whose profile the
  observations do not contradict (an f-DP audit in the sense of Nasr et al. 2023): far more
  sensitive, and readable as "the noise is at most this much".

Six one-sided bounds are used, each at a sixth of the error probability, so a true claim passes
with at least the stated confidence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks, pld, renyi
from flwr_fbo.privacy.entropy import Entropy, poisson_sample, system_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.mechanisms import GaussianSum, clip_rows

#: A release step: messages (n, m) and entropy, to the released vector (d,), d a multiple of m.
Release: TypeAlias = Callable[[Array, Entropy], Array]
Score: TypeAlias = Callable[[Array], Array]
Trials: TypeAlias = tuple[Array, Array]

_BOUNDS = 6


@dataclass(frozen=True)
class Claim:
    """What is said about one release step, and what the auditor may know of its shape.

    ``canary`` should be the agent with the largest weights: the one that the sensitivity is for.
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

    def runs(self, releases: int, noise_multiplier: float | None = None) -> pld.EventCounts:
        """So many releases, as the accountant takes them."""
        z = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        return ((renyi.cost_key(GaussianRelease(z, self.sampling_rate)), releases),)


@dataclass(frozen=True)
class AuditResult:
    """What the attack found; ``passed`` is whether the claim stands."""

    epsilon_claimed: float
    epsilon_lower: float
    delta: float
    noise_multiplier_claimed: float
    noise_multiplier_upper: float
    sampling_rate: float
    releases: int
    trials: int
    confidence: float

    @property
    def passed(self) -> bool:
        """Whether nothing that was seen contradicts the claim."""
        return (
            self.epsilon_lower <= self.epsilon_claimed
            and self.noise_multiplier_upper >= self.noise_multiplier_claimed
        )

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON can hold it (None for a noise multiplier without a bound)."""
        data = dataclasses.asdict(self)
        if self.noise_multiplier_upper == math.inf:
            data["noise_multiplier_upper"] = None
        return {**data, "passed": self.passed}

    def to_text(self) -> str:
        """The result as people read it."""
        upper = self.noise_multiplier_upper
        found = "any" if upper == math.inf else f"{upper:.3f}"
        verdict = (
            "PASSED: nothing that was seen contradicts the claim."
            if self.passed
            else "FAILED: the step tells more than is claimed. Do not use it."
        )
        return "\n".join(
            [
                f"{self.trials} trials of {self.releases} releases, sampling rate "
                f"{self.sampling_rate:g}, confidence {self.confidence:g}",
                f"claimed:  epsilon <= {self.epsilon_claimed:.3f} at delta {self.delta:.3g}, "
                f"noise multiplier {self.noise_multiplier_claimed:g}",
                f"observed: epsilon >= {self.epsilon_lower:.3f} at delta {self.delta:.3g}, "
                f"noise multiplier <= {found}",
                verdict,
            ]
        )


def standard_release(clip: float, noise_multiplier: float, sampling_rate: float) -> Release:
    """The step as it is meant to be: sample, clip, sum, noise."""
    mechanism = GaussianSum(clip, noise_multiplier)

    def release(messages: Array, entropy: Entropy) -> Array:
        chosen = poisson_sample(len(messages), sampling_rate, entropy)
        clipped = clip_rows(messages[chosen], clip) if chosen.any() else messages[:0]
        return mechanism.release(mechanism.quantise(clipped).sum(axis=0), entropy)

    return release


def audit(
    release: Release,
    claim: Claim,
    *,
    releases: int = 2,
    trials: int = 4000,
    confidence: float = 0.99,
    entropy: Entropy | None = None,
) -> AuditResult:
    """Attack ``release`` and compare what it gives away with the claim."""
    checks.count("releases", releases)
    checks.count("trials", trials, low=100)
    checks.open_unit("confidence", confidence)
    source = system_entropy() if entropy is None else entropy
    pilot = _observe(release, claim, releases, trials // 2, source)
    fresh = _observe(release, claim, releases, trials, source)

    error = (1.0 - confidence) / _BOUNDS
    bounds, best = [], -math.inf
    for score in _scores(pilot, claim, releases):
        thresholds = _thresholds((score(pilot[0]), score(pilot[1])), claim, releases, trials, error)
        if thresholds.value > best:
            best, absent, present = thresholds.value, score(fresh[0]), score(fresh[1])
            bounds = [_rates(absent, present, t, error) for t in thresholds.cuts]
    return AuditResult(
        epsilon_claimed=pld.epsilon(claim.runs(releases), claim.delta),
        epsilon_lower=max(
            0.0,
            float(_above(*bounds[0], claim.delta)),
            float(_below(*bounds[1], claim.delta)),
        ),
        delta=claim.delta,
        noise_multiplier_claimed=claim.noise_multiplier,
        noise_multiplier_upper=_largest_noise(claim, releases, *map(float, bounds[2])),
        sampling_rate=claim.sampling_rate,
        releases=releases,
        trials=2 * trials,
        confidence=confidence,
    )


def _observe(
    release: Release, claim: Claim, releases: int, trials: int, entropy: Entropy
) -> Trials:
    """Projections of the releases without and with the canary: twice (trials, releases, P)."""
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
                messages[claim.canary] = present * sign * 10.0 * claim.clip * direction
                out = np.asarray(release(messages, entropy), dtype=np.float64)
                row.append((out.reshape(-1, claim.dimension) * direction).sum(axis=1))  # (P,)
            seen[present].append(row)
    absent, with_canary = (np.array(rows) for rows in seen)
    return absent * signs[:, None], with_canary * signs[:, None]


def _scores(pilot: Trials, claim: Claim, releases: int) -> list[Score]:
    """How to tell the two inputs apart: larger means that the canary is there."""
    absent, present = (part.reshape(len(part), -1) for part in pilot)  # (trials, releases P)
    spread = np.cov(absent, rowvar=False).reshape(absent.shape[1], -1)
    gap = present.mean(axis=0) - absent.mean(axis=0)
    floor = 1e-9 * float(np.trace(spread) + (gap**2).sum()) or 1.0  # some noise may cancel out
    linear = np.linalg.solve(spread + floor * np.eye(len(spread)), gap)

    # One number a release, 0 without the canary and 1 with it, for the likelihood ratio.
    response = np.maximum(gap.reshape(releases, -1).mean(axis=0), 0.0) / claim.sampling_rate
    unit = float((response**2).sum()) or 1.0
    z, q = claim.noise_multiplier, claim.sampling_rate

    def likelihood(seen: Array) -> Array:
        x = (seen * response).sum(axis=2) / unit  # (trials, releases)
        with np.errstate(divide="ignore"):
            ratio = np.logaddexp(np.log1p(-q), math.log(q) + (2.0 * x - 1.0) / (2.0 * z * z))
        return np.asarray(ratio.sum(axis=1))

    def projection(seen: Array) -> Array:
        return np.asarray((seen.reshape(len(seen), -1) * linear).sum(axis=1))

    return [projection, likelihood]


@dataclass(frozen=True)
class _Thresholds:
    """Where to cut a score: for epsilon from above, from below, and for the whole profile."""

    cuts: tuple[float, float, float]
    value: float


def _thresholds(
    scores: tuple[Array, Array], claim: Claim, releases: int, trials: int, error: float
) -> _Thresholds:
    """The cuts that promise most on the pilot, judged as ``trials`` fresh ones would be."""
    both = np.sort(np.concatenate(scores))
    picks = np.unique(np.linspace(0, len(both) - 2, min(len(both) - 1, 400)).astype(int))
    cuts = 0.5 * (both[picks] + both[picks + 1])  # (c,)
    false, true = ((part[:, None] > cuts).mean(axis=0) for part in scores)
    high = _upper(false * trials, trials, error)
    low = _lower(true * trials, trials, error)
    # How far two Gaussians must be apart to be told apart so well, given that the canary takes
    # part with this probability only.
    chance = 1.0 - (1.0 - claim.sampling_rate) ** releases
    taking_part = np.clip((low - (1.0 - chance) * high) / chance, 1e-300, 1.0 - 1e-16)
    separation = special.ndtri(taking_part) - special.ndtri(np.minimum(high, 1.0 - 1e-16))
    gains = np.stack(
        [_above(high, low, claim.delta), _below(high, low, claim.delta), separation]
    )  # (3, c)
    first, second, third = cuts[gains.argmax(axis=1)].tolist()
    return _Thresholds((first, second, third), float(separation.max()))


def _rates(absent: Array, present: Array, cut: float, error: float) -> tuple[Array, Array]:
    """An upper bound on the false-positive rate and a lower one on the true-positive rate."""
    return (
        _upper(np.array((absent > cut).sum()), len(absent), error),
        _lower(np.array((present > cut).sum()), len(present), error),
    )


def _lower(hits: Array, trials: int, error: float) -> Array:
    """Clopper and Pearson: the rate is below this with at most the error probability."""
    inside = np.maximum(hits, 1e-9)
    return np.where(hits > 0, special.betaincinv(inside, trials - hits + 1.0, error), 0.0)


def _upper(hits: Array, trials: int, error: float) -> Array:
    """Clopper and Pearson: the rate is above this with at most the error probability."""
    left = np.maximum(trials - hits, 1e-9)
    return np.where(hits < trials, special.betaincinv(hits + 1.0, left, 1.0 - error), 1.0)


def _above(false: Array, true: Array, delta: float) -> Array:
    """TPR <= e^eps FPR + delta, solved for epsilon."""
    return np.log(np.maximum(true - delta, 1e-300)) - np.log(false)


def _below(false: Array, true: Array, delta: float) -> Array:
    """The same with the inputs changed over: TNR <= e^eps FNR + delta."""
    return _above(1.0 - true, 1.0 - false, delta)


def _largest_noise(claim: Claim, releases: int, false: float, true: float) -> float:
    """The largest noise multiplier whose privacy profile allows these rates; inf if all do."""
    epsilons = np.concatenate([np.linspace(0.0, 2.0, 21), np.geomspace(2.2, 60.0, 25)])

    def allowed(z: float) -> bool:
        profile = pld.delta(claim.runs(releases, z), epsilons)
        growth = np.exp(epsilons)
        high = np.all(true <= growth * false + profile)
        return bool(high and np.all(1.0 - false <= growth * (1.0 - true) + profile))

    low, high = claim.noise_multiplier, claim.noise_multiplier
    while allowed(high):
        high *= 1.5
        if high > 100.0 * claim.noise_multiplier:
            return math.inf
    while not allowed(low):
        low /= 1.5
        if low < 0.02 * claim.noise_multiplier:
            return low
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low
