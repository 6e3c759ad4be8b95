r"""The guarantee of one training of a model, and what many trainings cost together.

Notation (KOV is Kairouz, Oh and Viswanath 2015, "The composition theorem for differential privacy")

=============================  ==============================================  =======
KOV                            here                                            shape
=============================  ==============================================  =======
``k``                          ``count``, the number of trainings              int
``(epsilon, delta)``           ``ApproximateTraining(epsilon, delta)``         scalars
``(epsilon_g, delta_g)``       ``total``, ``composed_delta(total, ...)``       scalars
``l``                          ``flips``                                       (k + 1,)
=============================  ==============================================  =======

A composition bound holds for adaptive trainings: the settings of one training may follow from the
models and scores of all trainings before, as in Bayesian optimisation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import special

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks, pld, renyi
from flwr_fbo.privacy.accountants import PldAccountant, RdpAccountant
from flwr_fbo.privacy.events import GaussianRelease, LaplaceRelease
from flwr_fbo.privacy.selection import epsilon_from_renyi, selection_curve

#: Relative rounding of the sums in :func:`composed_delta`; a bound never profits from rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Bound:
    """A guarantee (epsilon, delta), with the name of the theorem that proves it."""

    name: str
    epsilon: float
    delta: float


def smallest_first(bound: Bound) -> tuple[float, float]:
    """Return the sorting key of a bound: its epsilon, then its delta."""
    return bound.epsilon, bound.delta


class Training(Protocol):
    """The guarantee of one training, which knows what several trainings cost."""

    def compositions(self, count: int, delta: float) -> list[Bound]:
        """Return bounds for adaptive trainings, all with a total delta of at most ``delta``."""

    def selected(self, mean: float, shape: float, delta: float) -> float:
        """Return the epsilon of the best of a random number of independent trainings."""


# ------------------------------------------------------------------ an (epsilon, delta) training


@dataclass(frozen=True)
class ApproximateTraining:
    """A training of which nothing is known but that it is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one training; delta may be 0.

    Examples
    --------
    >>> training = ApproximateTraining(epsilon=0.5, delta=0.0)
    >>> [bound.name for bound in training.compositions(40, delta=1e-5)]
    ['optimal composition (Kairouz, Oh and Viswanath 2015)', 'basic composition']
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        checks.positive("epsilon", self.epsilon)
        if self.delta != 0.0:
            checks.open_unit("delta", self.delta)

    def __str__(self) -> str:
        """Return the guarantee in a few words."""
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}"

    def compositions(self, count: int, delta: float) -> list[Bound]:
        """Return the optimal and the basic bound, the smaller epsilon first."""
        optimal = optimal_composition(self.epsilon, self.delta, count, delta)
        bounds = [
            Bound("optimal composition (Kairouz, Oh and Viswanath 2015)", optimal, delta),
            Bound("basic composition", count * self.epsilon, min(1.0, count * self.delta)),
        ]
        return sorted(bounds, key=smallest_first)

    def selected(self, mean: float, shape: float, delta: float) -> float:
        """Return the epsilon of the best of a random number of independent trainings.

        With probability 1 - ``self.delta`` a training behaves like one that is epsilon-private
        with delta 0 (KOV: every (epsilon, delta) mechanism is post-processing of randomised
        response that fails with probability delta). All trainings do so with probability at least
        1 - mean ``self.delta``. The theorems of :mod:`flwr_fbo.privacy.selection` then apply.
        """
        rest = delta - mean * self.delta
        if rest <= 0.0:
            return math.inf
        orders = renyi.RENYI_ORDERS
        divergences = randomised_response(self.epsilon, orders)
        curve = selection_curve(orders, divergences, mean, shape, self._profile, self.epsilon)
        converted = epsilon_from_renyi(orders, curve, rest)
        # Papernot and Steinke 2022, Corollary 3: (2 + eta) epsilon where the training has delta 0.
        pure = (2.0 + shape) * self.epsilon
        return min(converted, pure)

    def _profile(self, epsilons: Array) -> Array:
        """Return the least delta of randomised response at each epsilon: (a,)."""
        excess = np.maximum(0.0, -np.expm1(epsilons - self.epsilon))
        return np.asarray(excess * special.expit(self.epsilon))


def randomised_response(epsilon: float, orders: Array) -> Array:
    """Return the Renyi divergences of the worst epsilon-private training with delta 0: (a,)."""
    # Outputs of probability p = e^eps / (1 + e^eps) and 1 - p; exchanged for the neighbour.
    log_p, log_rest = special.log_expit(epsilon), special.log_expit(-epsilon)
    moments = np.logaddexp(
        orders * log_p + (1.0 - orders) * log_rest, orders * log_rest + (1.0 - orders) * log_p
    )
    return np.asarray(moments / (orders - 1.0))


def composed_delta(total: float, epsilon: float, delta: float, count: int) -> float:
    """Return the least delta at which ``count`` trainings are (total, delta)-private at worst.

    KOV, Theorem 3.3, here at any epsilon and not only at multiples of the training's epsilon.
    """
    flips = np.arange(count + 1.0)  # (k + 1,), l in the theorem
    log_chance = (
        special.gammaln(count + 1.0)
        - special.gammaln(flips + 1.0)
        - special.gammaln(count - flips + 1.0)
        + (count - flips) * special.log_expit(epsilon)
        + flips * special.log_expit(-epsilon)
    )
    loss = (count - 2.0 * flips) * epsilon
    excess = -np.expm1(np.minimum(total - loss, 0.0))
    failing = min(1.0, float(np.sum(np.exp(log_chance) * excess)))
    if failing == 1.0:
        return 1.0
    # 1 - (1 - delta)^k (1 - failing), without cancellation
    return -math.expm1(count * math.log1p(-delta) + math.log1p(-failing))


def optimal_composition(epsilon: float, delta: float, count: int, total_delta: float) -> float:
    """Return the least epsilon of ``count`` adaptive (epsilon, delta)-private trainings.

    No smaller epsilon holds for every such training. The total delta must exceed the probability
    that any training fails, which is 1 - (1 - delta)^count.
    """
    checks.count("count", count)
    checks.open_unit("total_delta", total_delta)
    allowed = total_delta / (1.0 + _ROUNDING)
    least = -math.expm1(count * math.log1p(-delta))
    if least > allowed:
        raise checks.PrivacyError(
            f"`delta` must be > {least:.3g}, the delta that {count} trainings have together, "
            f"but got {total_delta!r}"
        )
    low, high = 0.0, count * epsilon
    if composed_delta(low, epsilon, delta, count) <= allowed:
        return 0.0
    while high - low > 1e-12 * high:  # delta falls as epsilon grows
        middle = 0.5 * (low + high)
        kept = composed_delta(middle, epsilon, delta, count) <= allowed
        low, high = (low, middle) if kept else (middle, high)
    return high


# ------------------------------------------------------------------ a training with known events


@dataclass(frozen=True)
class AccountedTraining:
    """A training whose releases are known, such as the noisy steps of DP-SGD.

    Parameters
    ----------
    counts : tuple
        The events of one training by their cost, with their numbers; :meth:`of` reads them from
        an event of the library dp-accounting.

    Examples
    --------
    >>> training = AccountedTraining.of({
    ...     "class_name": "SelfComposedDpEvent", "count": 100,
    ...     "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 20.0},
    ... })
    >>> training.counts
    ((('gaussian', 20.0, 1.0), 100),)
    """

    counts: pld.EventCounts

    @classmethod
    def of(cls, event: Any) -> AccountedTraining:
        """Return the training of a dp-accounting event: an object of the library, or its JSON.

        The JSON names the class of each event, and has the fields of the class. Gaussian and
        Laplace events, Poisson samples of Gaussian events, and compositions of these are known.
        """
        found: Counter[renyi.CostKey] = Counter()
        for key, count in _leaves(event, 1):
            found[key] += count
        if not found:
            raise checks.PrivacyError("a training must have at least one event, but has none")
        return cls(tuple(found.items()))

    def __str__(self) -> str:
        """Return the number of the training's events."""
        return f"{sum(count for _, count in self.counts):,} events"

    def compositions(self, count: int, delta: float) -> list[Bound]:
        """Return the bounds of our accountants and the basic bound, the smallest epsilon first."""
        checks.count("count", count)
        times = tuple((key, count * number) for key, number in self.counts)
        bounds = [Bound("Renyi divergences", self._by(RdpAccountant(), times, delta), delta)]
        if delta >= pld.LEAST_DELTA:
            epsilon = self._by(PldAccountant(), times, delta)
            bounds.append(Bound("privacy-loss distributions", epsilon, delta))
        if delta / count >= pld.LEAST_DELTA:
            single = pld.epsilon(self.counts, delta / count)
            bounds.append(Bound("basic composition", count * single, delta))
        return sorted(bounds, key=smallest_first)

    @staticmethod
    def _by(accountant: Any, counts: pld.EventCounts, delta: float) -> float:
        for (name, first, rate), number in counts:
            laplace = name == "laplace"
            event = LaplaceRelease(first) if laplace else GaussianRelease(first, rate)
            accountant.compose(event, number)
        return float(accountant.epsilon(delta))

    def selected(self, mean: float, shape: float, delta: float) -> float:
        """Return the epsilon of the best of a random number of independent trainings."""
        orders = renyi.RENYI_ORDERS
        moments = sum(
            (number * renyi.log_moments(key, "rdp") for key, number in self.counts),
            start=np.zeros_like(orders),
        )
        divergences = np.asarray(moments / (orders - 1.0))
        curve = selection_curve(orders, divergences, mean, shape, self._profile)
        return epsilon_from_renyi(orders, curve, delta)

    def _profile(self, epsilons: Array) -> Array:
        # The transforms round delta by less than LEAST_DELTA, so the sum is an upper bound.
        return pld.delta(self.counts, epsilons) + pld.LEAST_DELTA


def _leaves(event: Any, times: int) -> list[tuple[renyi.CostKey, int]]:
    """Return the cost keys of an event of dp-accounting, with how often each occurs."""
    name, field = _reader(event)
    if name == "SelfComposedDpEvent":
        return _leaves(field("event"), times * checks.count("count", field("count")))
    if name == "ComposedDpEvent":
        return [leaf for each in field("events") for leaf in _leaves(each, times)]
    if name == "GaussianDpEvent":
        z = checks.positive("noise_multiplier", field("noise_multiplier"))
        return [(renyi.cost_key(GaussianRelease(z)), times)]
    if name == "LaplaceDpEvent":  # its multiplier is the scale over the sensitivity
        scale = checks.positive("noise_multiplier", field("noise_multiplier"))
        return [(renyi.cost_key(LaplaceRelease(1.0 / scale)), times)]
    if name == "PoissonSampledDpEvent" and _reader(field("event"))[0] == "GaussianDpEvent":
        rate = checks.rate("sampling_probability", field("sampling_probability"))
        ((_, z, _), _), *_ = _leaves(field("event"), 1)
        return [(renyi.cost_key(GaussianRelease(z, rate)), times)]
    raise checks.PrivacyError(
        "an event must be a GaussianDpEvent, a LaplaceDpEvent, a PoissonSampledDpEvent of a "
        f"GaussianDpEvent, or a composition of these, but got {name}"
    )


def _reader(event: Any) -> tuple[str, Callable[[str], Any]]:
    """Return the name of an event's class, and a function that reads the event's fields."""
    is_json = isinstance(event, Mapping)
    name = str(event.get("class_name")) if is_json else type(event).__name__

    def field(key: str) -> Any:
        if is_json and key not in event:
            raise checks.PrivacyError(f"an event of class {name} needs the field `{key}`")
        return event[key] if is_json else getattr(event, key)

    return name, field
