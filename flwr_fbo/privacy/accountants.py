r"""What events cost: four views of one ledger.

=============  =======================================================================
accountant     how it bounds epsilon at a given delta
=============  =======================================================================
``pld``        privacy-loss distributions; the tightest, and the default
``rdp``        Renyi divergences of many orders, with the conversion of Canonne et al.
               (2020, Proposition 12)
``moments``    the classical moments accountant of the paper (Algorithm 1, line 13)
``fixed-size`` Renyi divergences for samples of fixed size (App. B.2.4)
``pure``       the plain sum, for Laplace releases: the delta of 0
=============  =======================================================================

The first three speak about neighbours of which one lacks an agent's message, ``fixed-size``
about neighbours with *different* messages of one agent. An epsilon of one relation must never
be shown beside one of the other, so each accountant refuses the other's events.

**What composition allows.** Messages may depend on everything released before. The schedule
(which rounds release, and with what q and z) may not: it is fixed before the run. Then stopping
early costs at most what the whole schedule costs. Only Renyi accountants remain valid as a stop
rule where q and z themselves are chosen from what was released (Feldman and Zrnic 2021).
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
    """The running cost of a sequence of events."""

    def compose(self, event: Event, count: int = 1) -> None:
        """Add an event, ``count`` times."""

    def epsilon(self, delta: float) -> float:
        """What has been spent so far."""

    def would_exceed(self, event: Event, epsilon: float, delta: float) -> bool:
        """Whether one more such event would spend more than ``epsilon``; nothing is added."""


class _Base:
    name = ""
    fixed_size = False

    def compose(self, event: Event, count: int = 1) -> None:
        """See :class:`Accountant`."""
        checks.count("count", count)
        if isinstance(event, FixedSizeRelease) != self.fixed_size:
            raise checks.PrivacyError(
                f"the {self.name} accountant cannot take a {type(event).__name__}: samples of "
                "fixed size are accounted for other neighbours than Poisson samples"
            )
        self._add(event, count)

    def would_exceed(self, event: Event, epsilon: float, delta: float) -> bool:
        """See :class:`Accountant`."""
        checks.positive("epsilon", epsilon)
        trial = copy.copy(self)  # states are immutable, so a shallow copy is apart
        trial.compose(event)
        return trial.epsilon(delta) > epsilon

    def copy(self) -> Self:
        """An accountant with the same past."""
        return copy.copy(self)

    def _add(self, event: Event, count: int) -> None:
        raise AssertionError(f"{type(self).__name__} must say what an event adds")

    def epsilon(self, delta: float) -> float:
        """See :class:`Accountant`."""
        raise AssertionError(f"{type(self).__name__} must say what was spent")


class _LogMoments(_Base):
    """Accountants that add up log moments over a set of orders."""

    orders: Array

    def __init__(self) -> None:
        self._total: Array = np.zeros_like(self.orders)  # (k,)
        self._count = 0

    def _add(self, event: Event, count: int) -> None:
        self._count += count
        self._total = self._total + count * renyi.log_moments(renyi.key(event), self.name)

    def _bounds(self, delta: float) -> Array:
        """Epsilon by each order, by the improved conversion of Renyi divergence."""
        a = self.orders
        divergence = self._total / (a - 1.0)
        return np.asarray(divergence + np.log1p(-1.0 / a) - np.log(delta * a) / (a - 1.0))

    def epsilon(self, delta: float) -> float:
        """See :class:`Accountant`."""
        checks.open_unit("delta", delta)
        if not self._count:
            return 0.0
        return max(0.0, float(np.min(self._bounds(delta))))


class MomentsAccountant(_LogMoments):
    """The paper's: epsilon = min over integers lambda of (alpha(lambda) + log 1/delta) / lambda."""

    name = "moments"
    orders = renyi.INTEGER_ORDERS

    def _bounds(self, delta: float) -> Array:
        return np.asarray((self._total - math.log(delta)) / (self.orders - 1.0))


class RdpAccountant(_LogMoments):
    """Renyi differential privacy; its orders include all of the moments accountant's."""

    name = "rdp"
    orders = renyi.RENYI_ORDERS


class FixedSizeAccountant(_LogMoments):
    """Renyi differential privacy under replacement, for samples of fixed size."""

    name = "fixed-size"
    fixed_size = True
    orders = renyi.FIXED_SIZE_ORDERS


class PldAccountant(_Base):
    """Privacy-loss distributions: never more than :class:`RdpAccountant` but for the grid."""

    name = "pld"

    def __init__(self) -> None:
        self._runs: pld.Runs = ()

    def _add(self, event: Event, count: int) -> None:
        runs = dict(self._runs)
        key = renyi.key(event)
        runs[key] = runs.get(key, 0) + count
        self._runs = tuple(runs.items())

    def epsilon(self, delta: float) -> float:
        """See :class:`Accountant`."""
        return pld.epsilon(self._runs, delta)


class PureAccountant(_Base):
    """The sum of the epsilons of Laplace releases; it holds for every delta, 0 included."""

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
        """See :class:`Accountant`."""
        return math.fsum(self._spent)


_MAKERS: dict[AccountantName, Callable[[], _Base]] = {
    "pld": PldAccountant,
    "rdp": RdpAccountant,
    "moments": MomentsAccountant,
    "fixed-size": FixedSizeAccountant,
    "pure": PureAccountant,
}


def accountant(name: str) -> Accountant:
    """A new accountant by its name."""
    for known in get_args(AccountantName):
        if known == name:
            return _MAKERS[known]()
    raise checks.PrivacyError(
        f"`accountant` must be one of {', '.join(get_args(AccountantName))}, but got {name!r}"
    )


def epsilons(events: list[Event] | tuple[Event, ...], delta: float) -> dict[str, float | None]:
    """What these events cost in each view of them; None where the view is of other neighbours."""
    fixed = any(isinstance(event, FixedSizeRelease) for event in events)
    costs: dict[str, float | None] = {}
    for name in ("moments", "rdp", "pld", "fixed-size"):
        if (name == "fixed-size") != fixed:
            costs[name] = None
            continue
        view = accountant(name)
        for event in events:
            view.compose(event)
        costs[name] = view.epsilon(delta)
    return costs if fixed else {name: costs[name] for name in ("moments", "rdp", "pld")}
