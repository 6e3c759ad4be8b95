r"""The statistics of an audit: scores that tell two inputs apart, and what follows from them.

Notation

==================  =================================================  ==============
symbol              here                                               shape
==================  =================================================  ==============
``z, q, K, delta``  the fields of :class:`Schedule`                    scalars
``y``               ``trials.absent``, ``trials.present``              (t, K, d)
``r_k``             ``response``: the shift of release k where the     (K, d)
                    canary is in its sample
``x_k``             :math:`\langle y_k, r_k \rangle / |r_k|^2`         (t, K)
``FPR, TPR``        rates of guessing "present" on either input        scalars
``mu^2``            precision of x_k, 1 over its variance              (K,)
==================  =================================================  ==============

The mean of x_k is 0 without the canary's message and 1 where the message is in the sample.

**Scores.** On pilot trials the auditor builds three scores, each larger where the canary is
present: the best linear combination of all numbers of all releases; the likelihood ratio of K
independent samples, :math:`\sum_k \log(1 - q + q e^{\mu_k^2 (x_k - 1/2)})`; and the likelihood
ratio of one sample that all releases share. The linear score needs no model of the step. The
score that promises most on other pilot trials is used.

**Bounds.** The rates of the guess on fresh trials have Clopper-Pearson bounds, which hold for any
step. Two statements follow:

* since :math:`\mathrm{TPR} \le e^\epsilon \mathrm{FPR} + \delta`, epsilon is at least
  :math:`\log((\mathrm{TPR}_{low} - \delta) / \mathrm{FPR}_{high})`, and likewise with the two
  inputs exchanged;
* a claim implies not one pair (epsilon, delta) but a whole privacy profile
  :math:`\delta(\epsilon)`. The largest noise multiplier whose profile the rates do not contradict
  bounds the noise from above (an f-DP audit in the sense of Nasr et al. 2023). This test is far
  more sensitive, because a moderate rate of false guesses already contradicts a profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import pld, renyi
from flwr_fbo.privacy.events import GaussianRelease

#: A statistic of trials (t, K, d), to one number a trial (t,).
Score: TypeAlias = Callable[[Array], Array]

#: The number of one-sided bounds of :func:`bounds`, which share the error probability.
BOUNDS = 6


@dataclass(frozen=True)
class Schedule:
    """A claim: K releases, each with noise multiplier z and sampling rate q.

    Parameters
    ----------
    noise_multiplier, sampling_rate : float
        z and q of every release.
    releases : int
        K.
    delta : float
        The delta of the epsilons that are compared.
    """

    noise_multiplier: float
    sampling_rate: float
    releases: int
    delta: float

    def event_counts(self, noise_multiplier: float | None = None) -> pld.EventCounts:
        """Return the events for the accountant, optionally with another noise multiplier."""
        z = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        return ((renyi.cost_key(GaussianRelease(z, self.sampling_rate)), self.releases),)

    def epsilon(self, noise_multiplier: float | None = None) -> float:
        """Return the epsilon of all releases, optionally with another noise multiplier."""
        return pld.epsilon(self.event_counts(noise_multiplier), self.delta)


@dataclass(frozen=True)
class Trials:
    """What the auditor saw: releases without and with the canary's message, (t, K, d) each."""

    absent: Array
    present: Array

    def halves(self) -> tuple[Trials, Trials]:
        """Return every second trial, and the others."""
        return (
            Trials(self.absent[::2], self.present[::2]),
            Trials(self.absent[1::2], self.present[1::2]),
        )


@dataclass(frozen=True)
class Bounds:
    """What fresh trials prove: epsilon is at least, and the noise multiplier at most, this."""

    epsilon_lower: float
    noise_multiplier_upper: float


def bounds(
    pilot: Trials, fresh: Trials, schedule: Schedule, error: float, response: Array | None = None
) -> Bounds:
    """Return the bounds that fresh trials prove, each wrong with at most ``error`` probability.

    The pilot alone decides which score and which thresholds count, so the bounds are valid.

    Parameters
    ----------
    pilot, fresh : Trials
        Two independent sets of trials.
    schedule : Schedule
        The claim.
    error : float
        The error probability of each of the ``BOUNDS`` one-sided bounds.
    response : Array, optional
        r, (K, d), in deviations of the claimed noise; by default r is estimated on the pilot, as
        a shift that is the same in every release.
    """
    options = []
    for score, choice, handicap in _scores(pilot, schedule, response):
        scores = score(choice.absent), score(choice.present)
        thresholds = _thresholds(scores, schedule, len(fresh.absent), error)
        options.append((thresholds.value - handicap, score, thresholds))
    _, score, thresholds = max(options, key=lambda option: option[0])
    absent, present = score(fresh.absent), score(fresh.present)
    rates = [_rates(absent, present, cut, error) for cut in thresholds.cuts]
    epsilon = max(
        0.0,
        float(_least_epsilon(*rates[0], schedule.delta)),
        float(_least_epsilon_exchanged(*rates[1], schedule.delta)),
    )
    return Bounds(epsilon, _largest_noise(schedule, *map(float, rates[2])))


# ------------------------------------------------------------------ scores


def _scores(
    pilot: Trials, schedule: Schedule, response: Array | None
) -> list[tuple[Score, Trials, float]]:
    """Return the scores of the module's docstring, each with trials to judge the score by.

    The third item is a handicap, in steps of the grid of :func:`_excluded`.
    """
    fit, rest = pilot.halves()
    if response is None:
        gap = (pilot.present.mean(axis=0) - pilot.absent.mean(axis=0)).mean(axis=0)  # (d,)
        one = np.maximum(gap, 0.0) / schedule.sampling_rate
        response = np.tile(one, (schedule.releases, 1))  # (K, d)
        precision = np.full(schedule.releases, schedule.noise_multiplier**-2.0)
    else:
        precision = (response**2).sum(axis=1)  # (K,)
    q = schedule.sampling_rate
    found = [(_likelihood(response, precision, q, False), pilot, 0.0)]
    if q < 1.0:  # else the two likelihood ratios are the same
        found.append((_likelihood(response, precision, q, True), pilot, 0.5))
    # The linear score has many coefficients, and would look too good on the trials of its fit.
    # Faults that only this score finds are gross, so a small advantage is an accident.
    return [*found, (_projection(fit), rest, 2.0)]


def _projection(fit: Trials) -> Score:
    """Return the linear score with the largest gap over its deviation (Fisher's)."""
    absent, present = (part.reshape(len(part), -1) for part in (fit.absent, fit.present))
    size = absent.shape[1]
    spread = np.cov(absent, rowvar=False).reshape(size, size)
    gap = present.mean(axis=0) - absent.mean(axis=0)
    # Where noise cancels, the covariance is singular; with few trials, its small eigenvalues are
    # too small. A ridge of the estimate's relative error keeps the solution finite and sensible.
    scale = float(np.trace(spread)) / size or float((gap**2).sum()) or 1.0
    ridge = max(1e-9, size / len(absent) * 0.1) * scale
    linear = np.linalg.solve(spread + ridge * np.eye(size), gap)  # (K d,)
    return lambda seen: np.asarray(seen.reshape(len(seen), -1) @ linear)


def _likelihood(response: Array, precision: Array, rate: float, shared: bool) -> Score:
    """Return the log likelihood ratio, with a sample for each release or one for all."""
    unit = (response**2).sum(axis=1)
    unit = np.where(unit > 0.0, unit, 1.0)  # (K,)

    def score(seen: Array) -> Array:
        x = (seen * response).sum(axis=2) / unit  # (t, K)
        exponent = precision * (x - 0.5)
        if shared:
            exponent = exponent.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):  # log(1 - q) at q = 1
            ratio = np.logaddexp(np.log1p(-rate), math.log(rate) + exponent)
        return np.asarray(ratio.sum(axis=1))

    return score


# ------------------------------------------------------------------ thresholds and rates


@dataclass(frozen=True)
class _Thresholds:
    """The thresholds of a score: for epsilon, epsilon with inputs exchanged, and the profile."""

    cuts: tuple[float, float, float]
    value: float


def _thresholds(
    scores: tuple[Array, Array], schedule: Schedule, trials: int, error: float
) -> _Thresholds:
    """Return the thresholds with the best bounds that ``trials`` trials may be expected to give."""
    both = np.sort(np.concatenate(scores))
    picks = np.unique(np.linspace(0, len(both) - 2, min(len(both) - 1, 400)).astype(int))
    cuts = 0.5 * (both[picks] + both[picks + 1])  # (c,)
    # One more hit and one more miss: a rate of 0 or 1 on the pilot is not one on fresh trials.
    hits = ((part[:, None] > cuts).sum(axis=0) for part in scores)
    false, true = ((h + 1.0) / (len(scores[0]) + 2.0) for h in hits)
    high = _upper(false * trials, trials, error)
    low = _lower(true * trials, trials, error)
    # Small rates promise much by accident; the wider bounds of the pilot's size prevent that.
    own = len(scores[0])
    wide = _upper(false * own, own, error), _lower(true * own, own, error)
    # Between thresholds that exclude equally much noise, the larger gap of the rates decides.
    profile_gains = _excluded(schedule, *wide) + 0.5 * (wide[1] - wide[0])
    gains = (
        _least_epsilon(high, low, schedule.delta),
        _least_epsilon_exchanged(high, low, schedule.delta),
        profile_gains,
    )
    first, second, third = (float(cuts[np.argmax(gain)]) for gain in gains)
    return _Thresholds((first, second, third), float(profile_gains.max()))


def _excluded(schedule: Schedule, high: Array, low: Array) -> Array:
    """Return how many noise multipliers of a grid each pair of rates (c,) contradicts: (c,)."""
    grid = schedule.noise_multiplier * np.geomspace(0.3, 10.0, 24)
    excluded = [~_allowed(schedule, float(z), high, low) for z in grid]
    return np.asarray(np.sum(excluded, axis=0))


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


# ------------------------------------------------------------------ from rates to privacy


def _least_epsilon(false: Array, true: Array, delta: float) -> Array:
    """Return the least epsilon with TPR <= e^epsilon FPR + delta."""
    return np.log(np.maximum(true - delta, 1e-300)) - np.log(false)


def _least_epsilon_exchanged(false: Array, true: Array, delta: float) -> Array:
    """Return the least epsilon with TNR <= e^epsilon FNR + delta: the inputs are exchanged."""
    return _least_epsilon(1.0 - true, 1.0 - false, delta)


def _largest_noise(schedule: Schedule, false: float, true: float) -> float:
    """Return the largest noise multiplier whose privacy profile allows these rates.

    The search ends within a factor of 1.002, and returns infinity where no noise multiplier up to
    100 times the claim is contradicted.
    """

    def allowed(z: float) -> bool:
        return bool(_allowed(schedule, z, np.array([false]), np.array([true]))[0])

    claimed = schedule.noise_multiplier
    low, high = claimed, claimed
    while allowed(high):
        high *= 1.5
        if high > 100.0 * claimed:
            return math.inf
    while not allowed(low):
        low /= 1.5
        if low < 0.02 * claimed:
            return low
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


#: The epsilons at which privacy profiles are compared.
_EPSILONS = np.concatenate([np.linspace(0.0, 2.0, 21), np.geomspace(2.2, 60.0, 25)])


def _allowed(schedule: Schedule, z: float, false: Array, true: Array) -> NDArray[np.bool_]:
    """Return whether noise of multiplier z allows the rates (c,): (c,)."""
    profile = _profile(schedule.event_counts(z))  # (e,)
    growth = np.exp(_EPSILONS)
    # TPR <= e^epsilon FPR + delta at every epsilon, in both directions
    one = true[:, None] <= growth * false[:, None] + profile
    other = 1.0 - false[:, None] <= growth * (1.0 - true[:, None]) + profile
    return np.asarray(np.all(one & other, axis=1))


@lru_cache(maxsize=256)
def _profile(counts: pld.EventCounts) -> Array:
    """Return the privacy profile at these epsilons: (e,)."""
    return pld.delta(counts, _EPSILONS)
