"""A privacy budget, checked before every release and charged to a ledger before the release."""

from __future__ import annotations

import math
from typing import Any

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.accountants import epsilon_by_accountant, make_accountant
from flwr_fbo.privacy.events import Event
from flwr_fbo.privacy.ledger import LedgerLike


class BudgetExceeded(checks.PrivacyError):
    """The next release would cost more than the budget has left. Nothing was charged."""


class PrivacyBudget:
    """The epsilon and delta that a run may spend, with the ledger of what was spent.

    Parameters
    ----------
    epsilon : float
        The limit. ``math.inf`` sets no limit; events are charged and added up all the same.
    delta : float
        The delta of the limit; without effect for the accountant ``pure``, whose delta is 0.
    ledger : LedgerLike
        Where charges are stored. The events that a resumed run's ledger holds count as spent,
        even where their cost is over the limit.
    accountant : str
        The accountant that decides what fits into the limit.
    """

    def __init__(
        self, epsilon: float, delta: float, ledger: LedgerLike, accountant: str = "pld"
    ) -> None:
        self.epsilon = math.inf if epsilon == math.inf else checks.positive("epsilon", epsilon)
        self.delta = 0.0 if accountant == "pure" else checks.open_unit("delta", delta)
        self.ledger, self.name = ledger, accountant
        self._accountant = make_accountant(accountant)
        for event in ledger.events:
            self._accountant.compose(event)

    def would_exceed(self, event: Event) -> bool:
        """Return whether this event would bring the cost over the limit."""
        if self.epsilon == math.inf:
            return False
        return self._accountant.would_exceed(event, self.epsilon, self.delta)

    def charge(self, event: Event) -> None:
        """Charge an event. When the call returns, the event is stored and may be released."""
        # An event that the accountant refuses must not reach the ledger either.
        make_accountant(self.name).compose(event)
        if self.would_exceed(event):
            raise BudgetExceeded(
                f"one more release would exceed epsilon={self.epsilon:g} at "
                f"delta={self.delta:g}: {len(self.ledger.events)} releases have spent "
                f"{self.spent:.4g}"
            )
        self.ledger.charge(event)
        self._accountant.compose(event)

    @property
    def spent(self) -> float:
        """Return the epsilon of all events charged so far."""
        return self._accountant.epsilon(self.delta)

    @property
    def remaining(self) -> float:
        """Return the limit less what was spent, at least 0.

        The cost of a release depends on the releases before, so use :meth:`would_exceed` to
        learn whether a release fits.
        """
        return max(0.0, self.epsilon - self.spent)

    def report(self) -> dict[str, Any]:
        """Return the limit and the cost so far, by this and the other accountants, for JSON."""
        return {
            "accountant": self.name,
            "delta": self.delta,
            "epsilon": self.spent if self.name == "pure" else self._by_accountant(),
            "epsilon_budget": None if self.epsilon == math.inf else self.epsilon,
            "epsilon_spent": self.spent,
            "releases": len(self.ledger.events),
        }

    def _by_accountant(self) -> dict[str, float | None]:
        return epsilon_by_accountant(self.ledger.events, self.delta)
