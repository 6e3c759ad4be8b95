r"""From epsilon to noise: the least noise that keeps a schedule of releases within a budget.

Notation

===========  ==============================================  ========
paper        here                                            shape
===========  ==============================================  ========
``q``        ``releases``, one sampling rate for a release   sequence
``z``        ``noise_multiplier``, noise over sensitivity    scalar
``N^-1.1``   ``paper_delta(agents)``                         scalar
===========  ==============================================  ========

One Gaussian release of everybody (q = 1) has an exact condition (Balle and Wang 2018, Theorem
8). With :math:`a = 1/(2z) - \epsilon z` and :math:`b = -1/(2z) - \epsilon z`, the release is
(epsilon, delta)-private if and only if

.. math:: \Phi(a) - e^\epsilon \Phi(b) \le \delta.

:func:`gaussian_multiplier` and :func:`gaussian_epsilon` solve that condition with the functions
of dp_accounting, and round away from the solution on the safe side. Every other schedule is
calibrated numerically against an accountant, by :func:`noise_multiplier_for`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.events import FixedSizeRelease, GaussianRelease
from flwr_fbo.privacy.mechanisms import LEAST_NOISE, MOST_NOISE

#: How far above the exact solution, relatively, :func:`noise_multiplier_for` may end.
_PRECISION = 1e-4
#: Multipliers and epsilons for which doubles can tell the two tails of the exact condition apart.
_LEAST_EXACT, _MOST_EXACT = 1e-6, 1e9
_MOST_EPSILON = 1e6
#: The absolute tolerance of dp_accounting's root finder.
_TOLERANCE = 1e-12
#: Rounding of the logarithms of the two tails, relative to 1 + b^2. (An eighth was enough for
#: 3,000 random pairs of epsilon and delta.) Without this allowance the library's multiplier is
#: too small by up to 1e-11 at usual values, and by 7e-5 at epsilon = 1e-9 and delta = 1e-300.
_ROUNDING = 16 * 2.0**-53


def default_delta(agents: int) -> float:
    """Return the delta of a run that states none: min(1e-5, 1 / (10 N)).

    With probability delta the promise of epsilon may fail for somebody. A delta near 1/N would
    allow a mechanism that publishes the data of one party, drawn at random.
    """
    return min(1e-5, largest_sound_delta(agents))


def largest_sound_delta(agents: int) -> float:
    """Return 1 / (10 N): above this delta a guarantee for N parties says little."""
    return 1.0 / (10.0 * checks.count("agents", agents))


def paper_delta(agents: int) -> float:
    """Return delta = N^-1.1, the paper's choice (Sec. 5). N must be 2 or more."""
    return float(checks.count("agents", agents, low=2) ** -1.1)  # N = 1 would give delta = 1


def epsilon_of(
    noise_multiplier: float,
    delta: float,
    releases: Sequence[float],
    accountant: str = "pld",
    agents: int | None = None,
) -> float:
    """Return the epsilon of releases at these sampling rates, all with one noise multiplier.

    The ``fixed-size`` accountant also needs the number of ``agents``: its events hold the size
    of a sample, not a rate.
    """
    running = make_accountant(accountant)
    for rate, count in Counter(releases).items():  # in the order of first appearance
        if accountant != "fixed-size":
            running.compose(GaussianRelease(noise_multiplier, rate), count)
            continue
        population = checks.count("agents", agents)
        size = sample_size(population, rate)
        running.compose(FixedSizeRelease(noise_multiplier, population, size), count)
    return running.epsilon(delta)


def sample_size(agents: int, rate: float) -> int:
    """Return the number of agents in a sample of fixed size: N q rounded, at least 1."""
    return max(1, round(checks.count("agents", agents) * checks.rate("rate", rate)))


def noise_multiplier_for(
    epsilon: float,
    delta: float,
    releases: Sequence[float],
    accountant: str = "pld",
    agents: int | None = None,
) -> float:
    """Return the least noise multiplier for which the releases cost at most ``epsilon``.

    The accountant that will charge the run checks the result on the same sequence, so a rounding
    error never refuses the last release. The result is never below the accountant's exact
    solution, and at most one part in 10^4 above (or ``LEAST_NOISE``, where that is enough).
    """
    budget = checks.positive("epsilon", epsilon)
    checks.open_unit("delta", delta)
    if not releases:
        raise checks.PrivacyError("`releases` must hold at least one sampling rate, but is empty")

    def spent(z: float) -> float:
        return epsilon_of(z, delta, releases, accountant, agents)

    def approximate(z: float) -> float:
        return epsilon_of(z, delta, releases, near, agents)

    # The Renyi accountant costs a hundredth of the others and brackets their solution closely.
    near = "fixed-size" if accountant == "fixed-size" else "rdp"
    if approximate(MOST_NOISE) > budget:
        raise checks.PrivacyError(
            f"no noise multiplier up to {MOST_NOISE:g} keeps {len(releases)} releases within "
            f"epsilon={epsilon!r} at delta={delta!r}"
        )
    guess = _least(approximate, budget, LEAST_NOISE, MOST_NOISE, precision=1e-3)
    high = guess if accountant == near else _upwards(spent, budget, guess)
    # Epsilon falls at least like 1/z, so this point is below the solution, or nearly so.
    low = max(0.999 * high * min(1.0, spent(high) / budget), LEAST_NOISE)
    while low > LEAST_NOISE and spent(low) <= budget:
        low, high = max(low / 1.25, LEAST_NOISE), low
    return _least(spent, budget, low, high, _PRECISION)


@lru_cache(maxsize=256)
def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Return the least noise multiplier of one (epsilon, delta)-private Gaussian release.

    The result is never below the exact solution. For epsilon in [0.001, 10^6] and delta in
    [1e-15, 0.5] the result is at most one part in 10^8 above. Unlike the classical formula
    sqrt(2 log(1.25 / delta)) / epsilon, the exact condition holds for epsilon > 1 too.
    """
    checks.positive("epsilon", epsilon)
    checks.open_unit("delta", delta)
    # Phi(a) <= exp(-a^2 / 2) = delta, solved for z: looser, but safe where doubles are not enough.
    tail = math.sqrt(-2.0 * math.log(delta))
    bound = (tail + math.sqrt(tail**2 + 2.0 * epsilon)) / (2.0 * epsilon)
    if epsilon > _MOST_EPSILON:
        return bound
    from dp_accounting import gaussian_mechanism  # here: it takes 0.4 s to import

    with np.errstate(divide="ignore"):  # log 0, where its search tries far too much noise
        z = float(gaussian_mechanism.get_sigma_gaussian(epsilon, delta, _TOLERANCE))
    if z > _MOST_EXACT:
        return bound
    # The root finder stops within its tolerance, and rounding moves its function: an error of
    # log Phi(a), over the slope d log(delta) / d log(z) = -phi(a) / (z delta).
    a, b = _tails(z, epsilon)
    rounding = _ROUNDING * (1.0 + b * b) * z * _mills(a)
    return (z + _TOLERANCE) * (1.0 + rounding)


@lru_cache(maxsize=256)
def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the least epsilon for which one Gaussian release is (epsilon, delta)-private.

    The result is never below the exact solution. For multipliers in [0.01, 1000] and delta in
    [1e-15, 0.5] the result is at most 1e-10 (1 + epsilon) above.
    """
    z = checks.positive("noise_multiplier", noise_multiplier)
    checks.open_unit("delta", delta)
    from scipy import special  # slow to import

    # At epsilon = 0 the condition is 2 Phi(1/2z) - 1 <= delta, and the left side is an erf.
    if special.erf(1.0 / (math.sqrt(8.0) * z)) * (1.0 + 1e-12) <= delta:
        return 0.0
    if not _LEAST_EXACT <= z <= _MOST_EXACT:  # from Phi(a) <= exp(-a^2 / 2) = delta, as above
        return (0.5 / z + math.sqrt(-2.0 * math.log(delta))) / z
    from dp_accounting import gaussian_mechanism  # here: it takes 0.4 s to import

    with np.errstate(divide="ignore"):
        epsilon = float(gaussian_mechanism.get_epsilon_gaussian(z, delta, _TOLERANCE))
    # The same rounding as above, over the slope d delta / d epsilon = -e^epsilon Phi(b).
    a, b = _tails(z, epsilon)
    rounding = _ROUNDING * (1.0 + b * b) * _mills(a) / _mills(b)
    return epsilon + _TOLERANCE + rounding


def _tails(z: float, epsilon: float) -> tuple[float, float]:
    """Return a and b of the exact condition."""
    return 0.5 / z - epsilon * z, -0.5 / z - epsilon * z


def _mills(x: float) -> float:
    """Return Phi(x) / phi(x). (phi(a) = e^epsilon phi(b), so ratios of tails are ratios of it.)"""
    from scipy import special  # slow to import

    return math.sqrt(0.5 * math.pi) * float(special.erfcx(-x / math.sqrt(2.0)))


def _upwards(spent: Callable[[float], float], budget: float, start: float) -> float:
    """Return the first of start, 1.25 start, 1.25^2 start, ... that keeps the budget."""
    z = start
    while spent(z) > budget:
        z = z * 1.25
        if z > MOST_NOISE:
            raise checks.PrivacyError(
                f"no noise multiplier up to {MOST_NOISE:g} keeps to epsilon={budget!r}"
            )
    return z


def _least(
    spent: Callable[[float], float], budget: float, low: float, high: float, precision: float
) -> float:
    """Return the least z in [low, high] with spent(z) <= budget, to a relative precision.

    The search keeps spent(high) <= budget throughout and returns ``high``, so the result keeps
    the budget too.

    Epsilon falls in z almost like a power. The next point therefore lies just above the place
    where the power law through both ends meets the budget. If that point keeps the budget, a
    point just below usually does not, and the bracket is closed.
    """
    if spent(low) <= budget:
        return low
    # A line through (log z, log epsilon) is a power law.
    at_low, at_high = math.log(spent(low)), math.log(max(spent(high), 1e-300))
    target, left, right = math.log(budget), math.log(low), math.log(high)
    just_kept = False
    for turn in range(200):
        if right - left <= precision:
            break
        share = (at_low - target) / (at_low - at_high) if at_low > at_high else 0.5
        if turn % 5 == 4 or not 0.0 < share < 1.0:  # bisect now and then, against slow progress
            share = 0.5
        middle = left + (right - left) * share + 0.25 * precision
        if just_kept:
            middle = right - 0.9 * precision
        margin = min(0.1 * precision, 0.1 * (right - left))
        middle = min(max(middle, left + margin), right - margin)
        value = spent(math.exp(middle))
        just_kept = value <= budget and not just_kept
        if value <= budget:
            right, at_high = middle, math.log(max(value, 1e-300))
        else:
            left, at_low = middle, math.log(value)
    return math.exp(right)
