r"""Composition of privacy-loss distributions, with dp_accounting.

A sequence of releases is a tuple of ``(key, count)``, one for each cost key, in the order in
which each key first occurs (composition commutes). The distribution of ``count`` equal events is
a power of one distribution (one Fourier transform). The distribution of the sequence is composed
key by key, and every step is cached. One more round therefore costs a few transforms. The result
depends on the sequence alone, not on the time of the question: the epsilon that the planner
promises is, to the last bit, the epsilon that the run reports.

Every approximation is rounded up (connect the dots, Doroshenko et al. 2022), so epsilon is an
upper bound on every grid. The step of the grid follows from the events. The step is fine enough
that epsilon is within one part in 10^3 of its limit (10^4 for up to 100 releases), and coarse
enough that a round costs milliseconds.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks
from flwr_fbo.privacy.renyi import CostKey

EventCounts: TypeAlias = tuple[tuple[CostKey, int], ...]

#: Probability in a tail that is counted as an infinite loss, so that the grid stays short.
_TAIL = 1e-15
#: The transforms round delta by some 1e-12, which would matter for a smaller delta.
LEAST_DELTA = 1e-10
#: Grid points over the losses of one event.
_POINTS = 2048


def epsilon(counts: EventCounts, delta: float) -> float:
    """Return the least epsilon for which the sequence is (epsilon, delta)-DP, rounded up."""
    if checks.open_unit("delta", delta) < LEAST_DELTA:
        raise checks.PrivacyError(
            f"`delta` must be >= {LEAST_DELTA:g} for the pld accountant, but got {delta!r}; "
            "the rdp accountant takes any delta"
        )
    if not counts:
        return 0.0
    return _epsilon(counts, delta)


@lru_cache(maxsize=1024)
def _epsilon(counts: EventCounts, delta: float) -> float:
    composed = _composed(counts, grid(counts))
    return float(max(0.0, composed.get_epsilon_for_delta(delta)))


def delta(counts: EventCounts, epsilons: Array) -> Array:
    """Return the privacy profile: the delta at each epsilon, rounded up."""
    if not counts:
        return np.zeros_like(epsilons)
    composed = _composed(counts, grid(counts))
    return np.array([composed.get_delta_for_epsilon(float(eps)) for eps in epsilons])


def grid(counts: EventCounts) -> float:
    """Return the step of the grid of losses: a power of two, one for all events."""
    steps = [_range(key) / _POINTS for key, _ in counts]
    # An event of large losses needs no fine grid, and hides the rounding of small losses.
    return float(2.0 ** math.floor(math.log2(max(min(steps), max(steps) / 4.0))))


def _range(key: CostKey) -> float:
    """Return about the width of the losses of one event, without the improbable ones."""
    name, first, rate = key
    if name == "laplace":
        return 2.0 * first
    # The loss is log(1 - q + q e^(u/z - 1/2z^2)); 10 deviations of u to either side.
    shift = 1.0 / (2.0 * first**2)
    high = math.log1p(-rate + rate * math.exp(min(10.0 / first + shift, 700.0)))
    low = math.log1p(-rate + rate * math.exp(-10.0 / first - shift)) if rate < 1.0 else -high
    return high - low


@lru_cache(maxsize=16)
def _composed(counts: EventCounts, step: float) -> Any:
    """Return the distribution of a sequence.

    The function composes the distribution of all keys but the last with a power of the last
    key's distribution, so that a sequence that grows at its end is computed from the cache.
    """
    (key, count), before = counts[-1], counts[:-1]
    last = _single(key, step)
    power = last if count == 1 else last.self_compose(count, _TAIL)
    return _composed(before, step).compose(power, _TAIL) if before else power


@lru_cache(maxsize=64)
def _single(key: CostKey, step: float) -> Any:
    """Return the distribution of one event, for a message removed and for a message added."""
    # Imported here, as it takes 0.4 s and agents without noise of their own do not need it.
    from dp_accounting.pld import privacy_loss_distribution as distributions

    name, first, rate = key
    if name == "laplace":
        return distributions.from_laplace_mechanism(1.0 / first, value_discretization_interval=step)
    return distributions.from_gaussian_mechanism(
        first, value_discretization_interval=step, sampling_prob=rate
    )
