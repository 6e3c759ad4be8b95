"""Setting nodes up, and learning which agents they speak for, without waiting for the silent.

A node that does not acknowledge its setup in time, or is refused, is tried again later and more
and more rarely: whoever connects and says nothing can delay a run a few times, not every round.
Registered is who has a number in the :class:`~flwr_fbo.strategies.roster.Roster`; that is the
population over which a private strategy samples, whether or not its nodes are there just now.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_fbo import wire
from flwr_fbo.core.protocol import Setup
from flwr_fbo.strategies.replies import exchange
from flwr_fbo.strategies.roster import Roster

logger = logging.getLogger("flwr.fbo")

#: Seconds in which a node should acknowledge its setup; doubled each time that it did not.
PATIENCE = 60.0
#: Most calls of :meth:`Registration.update` between two attempts with the same node.
MOST_SKIPPED = 64


@dataclass
class _Failures:
    count: int = 0
    skip: int = 0


class Registration:
    """Keeps a roster in step with the nodes that are connected."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self._failed: dict[int, _Failures] = {}

    def update(self, grid: Grid, setup: Setup, timeout: float) -> None:
        """Set up nodes that are new, have come back or have lost their setup."""
        online = set(grid.get_node_ids())
        self.roster.forget_absent(online)
        self._failed = {n: f for n, f in self._failed.items() if n in online}
        due = [node for node in sorted(online) if self._due(node)]
        if not due:
            return
        claims = self._claims(grid, due, setup, min(timeout, self._patience(due)))
        for complaint in self.roster.admit(claims):
            logger.warning("%s", complaint)
        for node in due:
            if self.roster.known(node):
                self._failed.pop(node, None)
            else:
                self._note_failure(node)

    def _claims(self, grid: Grid, nodes: list[int], setup: Setup, timeout: float) -> dict[int, str]:
        messages = [
            Message(
                wire.encode_setup(setup), node, wire.MESSAGE_TYPE, ttl=timeout, group_id="setup"
            )
            for node in nodes
        ]
        claims: dict[int, str] = {}
        for number, reply in exchange(grid, messages, timeout).items():
            try:
                claims[nodes[number]] = wire.decode_registration(wire.content(reply))
            except wire.WireError as error:
                logger.warning("node %s is not registered: %s", nodes[number], error)
        return claims

    def _due(self, node: int) -> bool:
        if self.roster.known(node):
            return False
        failures = self._failed.get(node)
        if failures is None or failures.skip == 0:
            return True
        failures.skip -= 1
        return False

    def _patience(self, nodes: list[int]) -> float:
        # The least patience of all: a new node need not wait for one that failed before.
        fewest = min(self._failed[n].count if n in self._failed else 0 for n in nodes)
        return PATIENCE * 2.0 ** min(fewest, 20)

    def _note_failure(self, node: int) -> None:
        failures = self._failed.setdefault(node, _Failures())
        failures.skip = min(2**failures.count, MOST_SKIPPED)
        failures.count += 1
