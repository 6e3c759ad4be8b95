r"""An audit: attack the release step, and test whether the step reveals more than is claimed.

The auditor runs the step thousands of times on two neighbouring inputs. In one, an agent (the
*canary*) sends the worst possible message; in the other, the canary's message is zero. All other
messages are zero, which is the worst case too. From the released vectors the auditor guesses
which input was used. If the guesses are better than (epsilon, delta)-differential privacy
allows, the claim is false.

**The attack.** A trial is a few releases in a row. The canary's message changes its sign from
release to release, so that noise that is used twice cancels. The message is ten times as long as
the clip, so that a missing clip shows. Its coordinates alternate in sign, so that noise shared
by coordinates cancels. Every release is projected on the canary's direction, once for each block
(sub-region). On *pilot* trials the auditor estimates the covariance of these projections, builds
two scores (the best linear one, and the likelihood ratio under the claim), and chooses the score
and the thresholds for the verdict.

**The verdict** uses fresh trials only. Its Clopper-Pearson bounds hold for any step:

* ``epsilon_lower``: since :math:`\mathrm{TPR} \le e^\epsilon \mathrm{FPR} + \delta`, epsilon is
  at least :math:`\log((\mathrm{TPR}_{low} - \delta) / \mathrm{FPR}_{high})`, and likewise with
  the two inputs exchanged.
* ``noise_multiplier_upper``: the claim implies not one pair (epsilon, delta) but a whole privacy
  profile :math:`\delta(\epsilon)`. The bound is the largest noise multiplier whose profile the
  observations do not contradict (an f-DP audit in the sense of Nasr et al. 2023). This test is
  far more sensitive than ``epsilon_lower``.

The verdict uses six one-sided bounds, each at a sixth of the error probability. A true claim
therefore passes with at least the stated confidence. A claim that passes is not proven.
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
ReleaseStep: TypeAlias = Callable[[Array, Entropy], Array]
#: A statistic of trials (t, r, P), to one number a trial (t,).
Score: TypeAlias = Callable[[Array], Array]
#: Projections (t, r, P) of trials without and with the canary's message.
Trials: TypeAlias = tuple[Array, Array]

#: The number of one-sided bounds that share the error probability.
_BOUNDS = 6


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

    def event_counts(self, releases: int, noise_multiplier: float | None = None) -> pld.EventCounts:
        """Return the events of ``releases`` releases, for the accountant."""
        z = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        return ((renyi.cost_key(GaussianRelease(z, self.sampling_rate)), releases),)


@dataclass(frozen=True)
class AuditResult:
    """The bounds of an audit, and the verdict."""

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
        upper = self.noise_multiplier_upper
        found = "any" if upper == math.inf else f"{upper:.3f}"
        verdict = (
            "PASSED: no observation contradicts the claim."
            if self.passed
            else "FAILED: the step reveals more than is claimed. Do not use it."
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

    error = (1.0 - confidence) / _BOUNDS
    bounds = _rate_bounds(pilot, fresh, claim, error)
    return AuditResult(
        epsilon_claimed=pld.epsilon(claim.event_counts(releases), claim.delta),
        epsilon_lower=max(
            0.0,
            float(_least_epsilon(*bounds[0], claim.delta)),
            float(_least_epsilon_exchanged(*bounds[1], claim.delta)),
        ),
        delta=claim.delta,
        noise_multiplier_claimed=claim.noise_multiplier,
        noise_multiplier_upper=_largest_noise(claim, releases, *map(float, bounds[2])),
        sampling_rate=claim.sampling_rate,
        releases=releases,
        trials=2 * trials,
        confidence=confidence,
    )


def _rate_bounds(
    pilot: Trials, fresh: Trials, claim: Claim, error: float
) -> list[tuple[Array, Array]]:
    """Return bounds of the two rates on fresh trials, at each threshold of the best score.

    The pilot alone decides which score and which thresholds count, so the bounds are valid.
    """
    trials, releases = fresh[0].shape[:2]
    options = [
        (score, _thresholds((score(pilot[0]), score(pilot[1])), claim, releases, trials, error))
        for score in _scores(pilot, claim, releases)
    ]
    score, thresholds = max(options, key=lambda option: option[1].value)
    absent, present = score(fresh[0]), score(fresh[1])
    return [_rates(absent, present, cut, error) for cut in thresholds.cuts]


def _observe(
    release: ReleaseStep, claim: Claim, releases: int, trials: int, entropy: Entropy
) -> Trials:
    """Return projections of releases without and with the canary: twice (trials, releases, P)."""
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
    """Return two scores that are larger where the canary's message is present."""
    absent, present = (part.reshape(len(part), -1) for part in pilot)  # (trials, releases P)
    spread = np.cov(absent, rowvar=False).reshape(absent.shape[1], -1)
    gap = present.mean(axis=0) - absent.mean(axis=0)
    # Where noise cancels, the covariance is singular; a small ridge keeps the solution finite.
    floor = 1e-9 * float(np.trace(spread) + (gap**2).sum()) or 1.0
    linear = np.linalg.solve(spread + floor * np.eye(len(spread)), gap)

    # For the likelihood ratio, scale each release so that its mean is 0 without the canary's
    # message and 1 where the message is in the sample.
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
    """The thresholds of a score: for epsilon, epsilon with inputs exchanged, and the profile."""

    cuts: tuple[float, float, float]
    value: float


def _thresholds(
    scores: tuple[Array, Array], claim: Claim, releases: int, trials: int, error: float
) -> _Thresholds:
    """Return the thresholds that are best on the pilot, at the bounds of ``trials`` trials."""
    both = np.sort(np.concatenate(scores))
    picks = np.unique(np.linspace(0, len(both) - 2, min(len(both) - 1, 400)).astype(int))
    cuts = 0.5 * (both[picks] + both[picks + 1])  # (c,)
    false, true = ((part[:, None] > cuts).mean(axis=0) for part in scores)
    high = _upper(false * trials, trials, error)
    low = _lower(true * trials, trials, error)
    # The distance of two Gaussians with these rates, given that the canary's message is in the
    # sample of at least one release with this probability only.
    chance = 1.0 - (1.0 - claim.sampling_rate) ** releases
    taking_part = np.clip((low - (1.0 - chance) * high) / chance, 1e-300, 1.0 - 1e-16)
    separation = special.ndtri(taking_part) - special.ndtri(np.minimum(high, 1.0 - 1e-16))
    gains = np.stack(
        [
            _least_epsilon(high, low, claim.delta),
            _least_epsilon_exchanged(high, low, claim.delta),
            separation,
        ]
    )  # (3, c)
    first, second, third = cuts[gains.argmax(axis=1)].tolist()
    return _Thresholds((first, second, third), float(separation.max()))


def _rates(absent: Array, present: Array, cut: float, error: float) -> tuple[Array, Array]:
    """Return an upper bound of the false-positive and a lower bound of the true-positive rate."""
    return (
        _upper(np.array((absent > cut).sum()), len(absent), error),
        _lower(np.array((present > cut).sum()), len(present), error),
    )


def _lower(hits: Array, trials: int, error: float) -> Array:
    """Return a bound that the rate is below with at most the error probability.

    Clopper and Pearson's, as :func:`_upper`.
    """
    inside = np.maximum(hits, 1e-9)
    return np.where(hits > 0, special.betaincinv(inside, trials - hits + 1.0, error), 0.0)


def _upper(hits: Array, trials: int, error: float) -> Array:
    """Return a bound that the rate is above with at most the error probability."""
    left = np.maximum(trials - hits, 1e-9)
    return np.where(hits < trials, special.betaincinv(hits + 1.0, left, 1.0 - error), 1.0)


def _least_epsilon(false: Array, true: Array, delta: float) -> Array:
    """Return the least epsilon with TPR <= e^epsilon FPR + delta."""
    return np.log(np.maximum(true - delta, 1e-300)) - np.log(false)


def _least_epsilon_exchanged(false: Array, true: Array, delta: float) -> Array:
    """Return the least epsilon with TNR <= e^epsilon FNR + delta: the inputs are exchanged."""
    return _least_epsilon(1.0 - true, 1.0 - false, delta)


def _largest_noise(claim: Claim, releases: int, false: float, true: float) -> float:
    """Return the largest noise multiplier whose privacy profile allows these rates.

    The search ends within a factor of 1.002, and returns infinity where no noise multiplier up to
    100 times the claim is contradicted.
    """
    epsilons = np.concatenate([np.linspace(0.0, 2.0, 21), np.geomspace(2.2, 60.0, 25)])

    def allowed(z: float) -> bool:
        profile = pld.delta(claim.event_counts(releases, z), epsilons)
        growth = np.exp(epsilons)
        # TPR <= e^epsilon FPR + delta at every epsilon, in both directions
        one = np.all(true <= growth * false + profile)
        return bool(one and np.all(1.0 - false <= growth * (1.0 - true) + profile))

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
