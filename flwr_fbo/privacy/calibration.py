"""From epsilon to noise: the least noise that keeps a schedule of releases within a budget.

Notation

===========  ==========================================  ========
paper        here                                        shape
===========  ==========================================  ========
``q``        ``releases``, one sampling rate a release   sequence
``z``        what :func:`noise_multiplier_for` returns   scalar
``N^-1.1``   ``default_delta(agents)``                   scalar
===========  ==========================================  ========
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from scipy import special

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.accountants import accountant as accountant_named
from flwr_fbo.privacy.events import FixedSizeRelease, GaussianRelease
from flwr_fbo.privacy.mechanisms import LEAST_NOISE, MOST_NOISE

_PRECISION = 1e-4


def default_delta(agents: int) -> float:
    """delta = N^-1.1, as in the paper (Sec. 5); N = 1 has no delta in (0, 1), so 2 is least."""
    return float(checks.count("agents", agents, low=2) ** -1.1)


def epsilon_of(
    noise_multiplier: float,
    delta: float,
    releases: Sequence[float],
    accountant: str = "pld",
    agents: int | None = None,
) -> float:
    """What releases at these sampling rates cost together, all with the same noise multiplier.

    The ``fixed-size`` accountant needs to know of how many ``agents`` the rate is a share.
    """
    view = accountant_named(accountant)
    for rate, count in Counter(releases).items():  # in the order of first appearance
        if accountant != "fixed-size":
            view.compose(GaussianRelease(noise_multiplier, rate), count)
            continue
        population = checks.count("agents", agents)
        size = fixed_size(population, rate)
        view.compose(FixedSizeRelease(noise_multiplier, population, size), count)
    return view.epsilon(delta)


def fixed_size(agents: int, rate: float) -> int:
    """How many agents a sample of fixed size has: Nq rounded, and one at least."""
    return max(1, round(checks.count("agents", agents) * checks.rate("rate", rate)))


def noise_multiplier_for(
    epsilon: float,
    delta: float,
    releases: Sequence[float],
    accountant: str = "pld",
    agents: int | None = None,
) -> float:
    """The least noise multiplier for which the releases cost at most ``epsilon``.

    The result is checked by the accountant that will keep the run's books, on the same
    sequence, so the last release is never refused for a rounding error. It exceeds the exact
    solution by at most one part in 10^4, and never falls below it.
    """
    budget = checks.positive("epsilon", epsilon)
    checks.open_unit("delta", delta)
    if not releases:
        raise checks.PrivacyError("`releases` must hold at least one sampling rate, but is empty")

    def spent(z: float) -> float:
        return epsilon_of(z, delta, releases, accountant, agents)

    def cheap(z: float) -> float:
        return epsilon_of(z, delta, releases, near, agents)

    # The Renyi accountant is a hundred times cheaper and brackets the others from near by.
    near = "fixed-size" if accountant == "fixed-size" else "rdp"
    if cheap(MOST_NOISE) > budget:
        raise checks.PrivacyError(
            f"no noise multiplier up to {MOST_NOISE:g} keeps {len(releases)} releases within "
            f"epsilon={epsilon!r} at delta={delta!r}"
        )
    guess = _least(cheap, budget, LEAST_NOISE, MOST_NOISE, precision=1e-3)
    high = guess if accountant == near else _upwards(spent, budget, guess)
    # Epsilon falls at least like 1/z, so this is below the solution, or nearly so.
    low = max(0.999 * high * min(1.0, spent(high) / budget), LEAST_NOISE)
    while low > LEAST_NOISE and spent(low) <= budget:
        low, high = max(low / 1.25, LEAST_NOISE), low
    return _least(spent, budget, low, high, _PRECISION)


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least noise multiplier of one Gaussian release, in closed form (Balle and Wang 2018).

    Exact where the classical sqrt(2 log(1.25 / delta)) / epsilon is loose, and valid for every
    epsilon, where the classical one holds below 1 only.
    """
    checks.positive("epsilon", epsilon)
    target = math.log(checks.open_unit("delta", delta))

    def log_delta(z: float) -> float:
        """log of Phi(1/2z - eps z) - e^eps Phi(-1/2z - eps z)."""
        first = float(special.log_ndtr(0.5 / z - epsilon * z))
        second = epsilon + float(special.log_ndtr(-0.5 / z - epsilon * z))
        return first + math.log(-math.expm1(second - first)) if second < first else -math.inf

    low, high = 1e-9, 1e12  # log_delta falls in z
    while high / low > 1.0 + 1e-13:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if log_delta(middle) <= target else (middle, high)
    return high * (1.0 + 1e-10)  # more than the rounding of the two tails, where they cancel


def _upwards(spent: Callable[[float], float], budget: float, start: float) -> float:
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
    """The least z in [low, high] with spent(z) <= budget, from above; it must hold at high.

    Epsilon falls in z almost like a power, so the next point is just above where the power law
    through the ends meets the budget; where that keeps the budget, a point just below it will
    usually not, and the bracket is closed.
    """
    if spent(low) <= budget:
        return low
    at_low, at_high = math.log(spent(low)), math.log(max(spent(high), 1e-300))
    target, left, right = math.log(budget), math.log(low), math.log(high)
    below_right = False
    for turn in range(200):
        if right - left <= precision:
            break
        share = (at_low - target) / (at_low - at_high) if at_low > at_high else 0.5
        if turn % 5 == 4 or not 0.0 < share < 1.0:
            share = 0.5
        middle = left + (right - left) * share + 0.25 * precision
        if below_right:
            middle = right - 0.9 * precision
        margin = min(0.1 * precision, 0.1 * (right - left))
        middle = min(max(middle, left + margin), right - margin)
        value = spent(math.exp(middle))
        below_right = value <= budget and not below_right
        if value <= budget:
            right, at_high = middle, math.log(max(value, 1e-300))
        else:
            left, at_low = middle, math.log(value)
    return math.exp(right)
