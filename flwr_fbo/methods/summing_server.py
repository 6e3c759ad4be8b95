"""The server of a method that releases sums: their ledger, and the legs of secure sums.

A method whose server needs the sum of the agents' vectors has a :class:`SummingServer`. Without
``aggregation=secure`` the method asks for the vectors in its rounds, and adds them up itself. With
it, the method opens a :class:`~flwr_fbo.methods.secure_sum.SecureSum` when it closes a round
(``self._sum = ...``). The messages that follow are the legs of this sum, and not a round.

**The charge comes first.** The replies of leg ``masked`` are the first that hold anything of the
vectors, so the sum is charged, on disk, before that leg is asked for. A sum that is abandoned
before costs nothing. A sum that is abandoned later stays charged.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.method import MethodServer
from flwr_fbo.methods.secure_sum import SecurePlan, SecureSum
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.events import Event
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.privacy.mechanisms import Integers
from flwr_fbo.privacy.secure.collector import AbandonedError

logger = logging.getLogger("flwr.fbo")


class SummingServer(MethodServer):
    """A server that releases sums of the agents' vectors, of which each is charged to a budget.

    A subclass has two parts. :meth:`_round_requests` and :meth:`_close_round` are the rounds of the
    method, the second of which may open a sum. :meth:`_sum_event`, :meth:`_take_sum` and
    :meth:`_sum_failed` say what a secure sum costs, and what becomes of it.
    """

    #: The budget of a private run; None in any other run.
    budget: PrivacyBudget | None = None
    #: The plan of all secure sums of the run; None where no secure sum is made.
    secure_plan: SecurePlan | None = None
    _ledger: Ledger | None = None
    _sum: SecureSum | None = None  # the sum whose legs are open; never stored
    _setup_digest = ""

    # -- the rounds of the method ------------------------------------------------------------

    @abstractmethod
    def _round_requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request of the open round for each present agent that takes part."""

    @abstractmethod
    def _close_round(self, replies: Mapping[int, Reply]) -> None:
        """Take in the replies of a round; open a secure sum where the round releases one."""

    # -- what a secure sum is to the method --------------------------------------------------

    @abstractmethod
    def _sum_event(self, opened: SecureSum) -> Event:
        """Return what a secure sum costs."""

    @abstractmethod
    def _take_sum(self, opened: SecureSum, total: Integers) -> None:
        """Take in the sum of the survivors' vectors and noise, in units of the lattice."""

    def _sum_failed(self) -> None:
        """Go on without a secure sum that was abandoned, or that no honest agents can have made."""

    # -- the state machine -------------------------------------------------------------------

    def note_setup(self, setup: Setup) -> None:
        """Take note of the setup that agents receive, to which their secure sums are bound."""
        self._setup_digest = setup.digest

    @property
    def _bound_to(self) -> str:
        """Return the digest of the setup that agents receive."""
        return self._setup_digest or self.setup().digest

    @property
    def legs_left(self) -> bool:
        """Return whether the secure sum of the round that was closed last is still open."""
        return self._sum is not None

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the requests of a round, or those of the open leg of a secure sum."""
        if self._sum is not None:
            return self._sum.requests(present)
        return self._round_requests(present)

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in the replies of a round, or of a leg of a secure sum."""
        if self._sum is not None:
            self._close_leg(self._sum, replies)
        else:
            self._close_round(replies)

    def _close_leg(self, opened: SecureSum, replies: Mapping[int, Reply]) -> None:
        """Take in the replies of a leg, and pass the sum on after the last leg."""
        round, self._sum = opened.terms.release, None  # nothing is open if this raises an error
        try:
            total = opened.close(replies)
        except AbandonedError as error:
            logger.warning("round %s: the secure sum is abandoned: %s", round, error)
            self._sum_failed()
            return
        if total is None:
            if opened.leg == "masked":  # the first leg whose replies hold anything of the vectors
                assert self.budget is not None
                self.budget.charge(self._sum_event(opened))
            self._sum = opened
        elif opened.noise.plausible(total, opened.survivors):
            self._take_sum(opened, total)
        else:
            logger.warning(
                "round %s: the secure sum is dropped: it is longer than %s clipped vectors and "
                "their noise, so a party has not clipped its vector or sent wrong shares",
                round, opened.survivors,
            )  # fmt: skip
            self._sum_failed()

    # -- what a run reports ------------------------------------------------------------------

    def close_files(self) -> None:
        """Close the file of the ledger."""
        if self._ledger is not None:
            self._ledger.close()

    @property
    def charges(self) -> int:
        """Return how many sums the ledger has charged."""
        return 0 if self.budget is None else len(self.budget.ledger.events)

    @property
    def _sum_facts(self) -> dict[str, Any]:
        """Return the facts about secure sums for the privacy statement; empty without any."""
        return {} if self.secure_plan is None else self.secure_plan.facts()
