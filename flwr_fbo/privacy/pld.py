r"""Privacy-loss distributions over dp_accounting: the tightest of the accountants.

A sequence of releases is a tuple of ``(key, count)`` in the order in which each kind of event
first happened (composition commutes). The distribution of equal events is a power of one
(one Fourier transform), and that of the sequence is composed kind by kind, each step cached. So
one more round costs a few transforms, and the result depends on the sequence alone, not on when
it was asked for: what the planner promised is, to the last bit, what the run reports.

Everything is rounded up (connect the dots, Doroshenko et al. 2022), so that epsilon is an upper
bound whatever the grid. The grid's step follows from the events: fine enough that epsilon is
within one part in 10^3 of its limit (10^4 for up to 100 releases), coarse enough that a round
costs milliseconds.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks
from flwr_fbo.privacy.renyi import Key

Runs: TypeAlias = tuple[tuple[Key, int], ...]

#: Mass in a tail that is counted as an infinite loss instead of being kept on the grid.
_TAIL = 1e-15
#: Rounding in the transforms is some 1e-12 in delta; below this it would matter.
LEAST_DELTA = 1e-10
_POINTS = 2048


def epsilon(runs: Runs, delta: float) -> float:
    """The smallest epsilon for which the sequence is (epsilon, delta)-DP, rounded up."""
    if checks.open_unit("delta", delta) < LEAST_DELTA:
        raise checks.PrivacyError(
            f"`delta` must be >= {LEAST_DELTA:g} for the pld accountant, but got {delta!r}; "
            "the rdp accountant takes any delta"
        )
    if not runs:
        return 0.0
    return _epsilon(runs, delta)


@lru_cache(maxsize=1024)
def _epsilon(runs: Runs, delta: float) -> float:
    composed = _composed(runs, grid(runs))
    return float(max(0.0, composed.get_epsilon_for_delta(delta)))


def delta(runs: Runs, epsilons: Array) -> Array:
    """The privacy profile: the delta of each epsilon, rounded up."""
    if not runs:
        return np.zeros_like(epsilons)
    composed = _composed(runs, grid(runs))
    return np.array([composed.get_delta_for_epsilon(float(eps)) for eps in epsilons])


def grid(runs: Runs) -> float:
    """The step of the grid of losses: a power of two, for all runs the same."""
    steps = [_range(key) / _POINTS for key, _ in runs]
    # Coarse events need no fine grid, and next to them fine ones hardly count.
    return float(2.0 ** math.floor(math.log2(max(min(steps), max(steps) / 4.0))))


def _range(key: Key) -> float:
    """About how far apart the losses of one event lie, improbable ones left aside."""
    name, first, rate = key
    if name == "laplace":
        return 2.0 * first
    shift = 1.0 / (2.0 * first**2)
    high = math.log1p(-rate + rate * math.exp(min(10.0 / first + shift, 700.0)))
    low = math.log1p(-rate + rate * math.exp(-10.0 / first - shift)) if rate < 1.0 else -high
    return high - low


@lru_cache(maxsize=16)
def _composed(runs: Runs, step: float) -> Any:
    """The distribution of a sequence: that of all but its last run, and that run's power."""
    (key, count), before = runs[-1], runs[:-1]
    last = _single(key, step)
    power = last if count == 1 else last.self_compose(count, _TAIL)
    return _composed(before, step).compose(power, _TAIL) if before else power


@lru_cache(maxsize=64)
def _single(key: Key, step: float) -> Any:
    """The distribution of one event, for messages taken away and for messages added."""
    from dp_accounting.pld import privacy_loss_distribution as distributions  # 0.5 s to import

    name, first, rate = key
    if name == "laplace":
        return distributions.from_laplace_mechanism(1.0 / first, value_discretization_interval=step)
    return distributions.from_gaussian_mechanism(
        first, value_discretization_interval=step, sampling_prob=rate
    )
