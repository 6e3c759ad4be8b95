"""Register nodes: send each its setup, and learn which agent it speaks for.

A node that does not acknowledge its setup in time, or is refused, is tried again later and more
and more rarely: a node that connects and says nothing delays a run a few times, not every round.
The registered agents are those with a number in the :class:`~flwr_fbo.strategies.roster.Roster`;
they are the population over which a private method samples, whether or not their nodes are
connected just now.

**Finding the door.** An app takes tuning messages by a handler of their own, or by a ``client_fn``
(see :mod:`flwr_fbo.wire`). The server does not know which, and a plain ``train`` message to an
app with handlers would reach the app's own training. So the setup goes to the handler first. A
node that answers with an error is asked for its properties, which only a ``client_fn`` app
can answer; it is sent ``train`` messages only if it says that it takes part in tuning.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
        self._doors: dict[int, str] = {}

    def door(self, agent: int) -> str:
        """Return the type of the messages that reach this agent."""
        return self._doors.get(self.roster.node(agent), wire.HANDLER_DOOR)

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
        """Return the name of the agent that each node claims to speak for."""
        known = [node for node in nodes if self._doors.get(node) == wire.CLIENT_DOOR]
        claims: dict[int, str] = {}
        others = [node for node in nodes if node not in known]
        unfit = self._set_up(grid, others, wire.HANDLER_DOOR, setup, timeout, claims)
        found = self._with_a_client(grid, unfit, timeout)
        for node in set(unfit) - set(found):
            logger.warning(
                'node %s takes no part: its app has neither @app.train("fbo") nor a client_fn '
                "made by with_tuning or of TuningClient",
                node,
            )
        for node in self._set_up(grid, [*known, *found], wire.CLIENT_DOOR, setup, timeout, claims):
            logger.warning("node %s could not be set up: its client failed", node)
        return claims

    def _set_up(
        self,
        grid: Grid,
        nodes: Sequence[int],
        door: str,
        setup: Setup,
        timeout: float,
        claims: dict[int, str],
    ) -> list[int]:
        """Send the setup through a door and note the claims; return nodes that answer an error."""
        messages = [
            Message(wire.encode_setup(setup), node, door, ttl=timeout, group_id="setup")
            for node in nodes
        ]
        failed = []
        for number, reply in sorted(exchange(grid, messages, timeout).items()):
            node = nodes[number]
            if reply.has_error():
                failed.append(node)
                continue
            try:
                claims[node] = wire.decode_registration(reply)
                self._doors[node] = door
            except wire.WireError as error:
                logger.warning("node %s is not registered: %s", node, error)
        return failed

    def _with_a_client(self, grid: Grid, nodes: Sequence[int], timeout: float) -> list[int]:
        """Return the nodes whose clients say that they take part in tuning."""
        messages = [
            Message(wire.encode_probe(), node, wire.PROBE, ttl=timeout, group_id="probe")
            for node in nodes
        ]
        replies = exchange(grid, messages, timeout)
        return [nodes[n] for n, reply in sorted(replies.items()) if wire.takes_part(reply)]

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
