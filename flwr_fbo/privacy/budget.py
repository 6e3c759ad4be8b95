"""A budget: what a run may spend, checked before every release and written down before it."""

from __future__ import annotations

import math
from typing import Any

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.accountants import accountant as accountant_named
from flwr_fbo.privacy.accountants import epsilons
from flwr_fbo.privacy.events import Event
from flwr_fbo.privacy.ledger import Book


class BudgetExceeded(checks.PrivacyError):
    """The next release would spend more than the budget; nothing was charged or sent."""


class PrivacyBudget:
    """Epsilon and delta for a run, spent through a ledger.

    ``epsilon=math.inf`` keeps the books without a limit. A ledger that already holds events (a
    resumed run) is continued from what it says was spent, even if that is over the budget.
    """

    def __init__(self, epsilon: float, delta: float, ledger: Book, accountant: str = "pld") -> None:
        self.epsilon = math.inf if epsilon == math.inf else checks.positive("epsilon", epsilon)
        self.delta = 0.0 if accountant == "pure" else checks.open_unit("delta", delta)
        self.ledger, self.name = ledger, accountant
        self._view = accountant_named(accountant)
        for event in ledger.events:
            self._view.compose(event)

    def would_exceed(self, event: Event) -> bool:
        """Whether one more such release would spend more than the budget."""
        if self.epsilon == math.inf:
            return False
        return self._view.would_exceed(event, self.epsilon, self.delta)

    def charge(self, event: Event) -> None:
        """Spend an event: when this returns it is on disk, and its release may leave."""
        trial = accountant_named(self.name)
        trial.compose(event)  # an event that this accountant cannot take never reaches the ledger
        if self.would_exceed(event):
            raise BudgetExceeded(
                f"epsilon={self.epsilon:g} at delta={self.delta:g} is spent: {self.spent:.4g} so "
                f"far in {len(self.ledger.events)} releases, and one more would exceed it"
            )
        self.ledger.charge(event)
        self._view.compose(event)

    @property
    def spent(self) -> float:
        """Epsilon so far."""
        return self._view.epsilon(self.delta)

    @property
    def remaining(self) -> float:
        """Epsilon that is left; never negative. (Releases do not cost the same each: compose.)"""
        return max(0.0, self.epsilon - self.spent)

    def report(self) -> dict[str, Any]:
        """What was spent, in the view that decides and in the others, as JSON can hold it."""
        return {
            "accountant": self.name,
            "delta": self.delta,
            "epsilon": self.spent if self.name == "pure" else self._views(),
            "epsilon_budget": None if self.epsilon == math.inf else self.epsilon,
            "epsilon_spent": self.spent,
            "releases": len(self.ledger.events),
        }

    def _views(self) -> dict[str, float | None]:
        return epsilons(self.ledger.events, self.delta)
