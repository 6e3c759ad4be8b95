r"""Accountants: the epsilon that a sequence of events costs at a given delta.

=============  =======================================================================
accountant     how the accountant bounds epsilon
=============  =======================================================================
``pld``        by privacy-loss distributions; the tightest, and the default
``rdp``        by Renyi divergences of many orders, with the conversion of Canonne et
               al. (2020, Proposition 12)
``moments``    by the classical moments accountant of the paper (Algorithm 1, line 13)
``fixed-size`` by Renyi divergences for samples of fixed size (App. B.2.4)
``pure``       by the sum of epsilons, for Laplace releases; delta is 0
=============  =======================================================================

``pld``, ``rdp`` and ``moments`` use the neighbouring relation in which the message of one agent
is zero (or absent). ``fixed-size`` uses the relation in which the message of one agent is
*replaced* by another. An epsilon of one relation must never stand beside an epsilon of the
other, so each accountant refuses the events of the other relation.

**What composition allows.** Messages may depend on everything released before. The schedule
(which rounds release, and with which q and z) must not: the schedule is fixed before the run.
Under that condition a run that stops early costs at most what the whole schedule costs. Where q
and z are themselves chosen from what was released, only Renyi accountants are a valid stop rule
(Feldman and Zrnic 2021).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Literal, Protocol, Self, get_args

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks, pld, renyi
from flwr_fbo.privacy.events import Event, FixedSizeRelease, LaplaceRelease

AccountantName = Literal["pld", "rdp", "moments", "fixed-size", "pure"]


class Accountant(Protocol):
    """The cost of a sequence of events, to which events are added."""

    def compose(self, event: Event, count: int = 1) -> None:
        """Add an event to the sequence, ``count`` times."""

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the sequence at this delta."""

    def would_exceed(self, event: Event, epsilon: float, delta: float) -> bool:
        """Return whether the sequence and one more event would cost more than ``epsilon``.

        The event is not added.
        """


class _Base:
    """The checks that every accountant shares."""

    name = ""
    #: Whether the accountant takes events of fixed-size samples, and only those.
    fixed_size = False

    def compose(self, event: Event, count: int = 1) -> None:
        """Add an event ``count`` times; refuse an event of the other neighbouring relation."""
        checks.count("count", count)
        if isinstance(event, FixedSizeRelease) != self.fixed_size:
            raise checks.PrivacyError(
                f"the {self.name} accountant cannot take a {type(event).__name__}: samples of "
                "fixed size and Poisson samples have different neighbouring relations"
            )
        self._add(event, count)

    def would_exceed(self, event: Event, epsilon: float, delta: float) -> bool:
        """Return whether one more event would cost more than ``epsilon``; add nothing."""
        checks.positive("epsilon", epsilon)
        trial = copy.copy(self)  # shallow is enough: no state is changed in place
        trial.compose(event)
        return trial.epsilon(delta) > epsilon

    def copy(self) -> Self:
        """Return an accountant of the same sequence."""
        return copy.copy(self)

    def _add(self, event: Event, count: int) -> None:
        raise AssertionError(f"{type(self).__name__} must implement `_add`")

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the sequence at this delta."""
        raise AssertionError(f"{type(self).__name__} must implement `epsilon`")


class _LogMoments(_Base):
    """The accountants that add up log moments over a set of orders."""

    orders: Array

    def __init__(self) -> None:
        self._total: Array = np.zeros_like(self.orders)  # (k,)
        self._count = 0

    def _add(self, event: Event, count: int) -> None:
        self._count += count
        self._total = self._total + count * renyi.log_moments(renyi.cost_key(event), self.name)

    def _bounds(self, delta: float) -> Array:
        """Return the epsilon that each order proves: (k,)."""
        # Canonne, Kamath and Steinke 2020, Proposition 12.
        a = self.orders
        divergence = self._total / (a - 1.0)
        return np.asarray(divergence + np.log1p(-1.0 / a) - np.log(delta * a) / (a - 1.0))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon that any order proves at this delta."""
        checks.open_unit("delta", delta)
        if not self._count:  # the conversion of no loss is not 0 at every order
            return 0.0
        return max(0.0, float(np.min(self._bounds(delta))))


class MomentsAccountant(_LogMoments):
    """The paper's: min over integers lambda of (alpha(lambda) + log(1/delta)) / lambda."""

    name = "moments"
    orders = renyi.INTEGER_ORDERS

    def _bounds(self, delta: float) -> Array:
        # Algorithm 1, line 13; lambda is the order less 1
        return np.asarray((self._total - math.log(delta)) / (self.orders - 1.0))


class RdpAccountant(_LogMoments):
    """Renyi differential privacy, at all orders of the moments accountant and some more."""

    name = "rdp"
    orders = renyi.RENYI_ORDERS


class FixedSizeAccountant(_LogMoments):
    """Renyi differential privacy for samples of fixed size, where one message is replaced."""

    name = "fixed-size"
    fixed_size = True
    orders = renyi.FIXED_SIZE_ORDERS


class PldAccountant(_Base):
    """Privacy-loss distributions: at most :class:`RdpAccountant`'s epsilon, but for the grid."""

    name = "pld"

    def __init__(self) -> None:
        self._counts: pld.EventCounts = ()

    def _add(self, event: Event, count: int) -> None:
        counts = dict(self._counts)
        key = renyi.cost_key(event)
        counts[key] = counts.get(key, 0) + count
        self._counts = tuple(counts.items())

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the composed distribution at this delta, rounded up."""
        return pld.epsilon(self._counts, delta)


class PureAccountant(_Base):
    """The sum of the epsilons of Laplace releases, which holds for every delta and for delta 0."""

    name = "pure"

    def __init__(self) -> None:
        self._spent: tuple[float, ...] = ()

    def _add(self, event: Event, count: int) -> None:
        if not isinstance(event, LaplaceRelease):
            raise checks.PrivacyError(
                f"the pure accountant takes a LaplaceRelease, but got a {type(event).__name__}"
            )
        self._spent = (*self._spent, *(event.epsilon,) * count)

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the sum of the epsilons; ``delta`` has no effect."""
        return math.fsum(self._spent)  # exact: ten times 0.1 is 1


_ACCOUNTANTS: dict[AccountantName, Callable[[], _Base]] = {
    "pld": PldAccountant,
    "rdp": RdpAccountant,
    "moments": MomentsAccountant,
    "fixed-size": FixedSizeAccountant,
    "pure": PureAccountant,
}


def make_accountant(name: str) -> Accountant:
    """Return a new accountant of this name, with no events."""
    for known in get_args(AccountantName):
        if known == name:
            return _ACCOUNTANTS[known]()
    raise checks.PrivacyError(
        f"`accountant` must be one of {', '.join(get_args(AccountantName))}, but got {name!r}"
    )


def epsilon_by_accountant(
    events: list[Event] | tuple[Event, ...], delta: float
) -> dict[str, float | None]:
    """Return the epsilon of the events by each accountant.

    The value is None for an accountant whose neighbouring relation is not that of the events.
    """
    fixed = any(isinstance(event, FixedSizeRelease) for event in events)
    costs: dict[str, float | None] = {}
    for name in ("moments", "rdp", "pld", "fixed-size"):
        if (name == "fixed-size") != fixed:
            costs[name] = None
            continue
        accountant = make_accountant(name)
        for event in events:
            accountant.compose(event)
        costs[name] = accountant.epsilon(delta)
    return costs if fixed else {name: costs[name] for name in ("moments", "rdp", "pld")}
