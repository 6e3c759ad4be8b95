"""The registration of nodes: each node receives the setup and names the agent it speaks for.

A node that does not acknowledge its setup in time, or is refused, is tried again later, more and
more rarely. So a node that connects and never replies delays a few rounds, but not every round. The
nodes of a simulation are all there, and each has a message only when a worker of the engine is
free: they have :data:`SIMULATION_SECONDS`, however short the timeout of a round is.
The registered agents are those with a number in the :class:`~flwr_fbo.strategies.roster.Roster`.
They are the population from which a private method samples, whether or not their nodes are
connected at the moment.

**Finding the door.** An app receives tuning messages by a handler of their own, or by a
``client_fn`` (:mod:`flwr_fbo.wire`). The server does not know which, and a plain ``train`` message
to an app with handlers would reach the app's own training. So the setup goes to the handler first.
A node that replies with an error is asked for its properties, which only an app with a
``client_fn`` can answer. Such a node receives ``train`` messages only if its client takes part in
tuning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_fbo import wire
from flwr_fbo.core.protocol import Setup
from flwr_fbo.strategies.replies import send_and_collect
from flwr_fbo.strategies.roster import Roster

logger = logging.getLogger("flwr.fbo")

#: Flower's codes of messages that did not arrive: message, reply or node unavailable.
UNDELIVERED = frozenset({3, 4, 5})
#: Seconds that a node has to acknowledge its setup; doubled after each failed attempt.
ACKNOWLEDGE_SECONDS = 60.0
#: The least seconds that the nodes of a simulation have together to acknowledge their setup.
SIMULATION_SECONDS = 1800.0
#: Flower's code for a node that does not run the app, because no key that it trusts signed the app.
APP_REFUSED = 7
#: The most calls of :meth:`Registration.update` between two attempts with the same node.
MOST_SKIPPED = 64


def is_simulation(grid: Grid) -> bool:
    """Return whether the grid is that of Flower's simulation engine, which runs all nodes here."""
    # By name: Flower's facades do not offer the class.
    return type(grid).__name__ == "InMemoryGrid"


def registration_seconds(grid: Grid, timeout: float) -> float:
    """Return the most seconds that a registration may take, in a run with this timeout."""
    return max(timeout, SIMULATION_SECONDS) if is_simulation(grid) else timeout


class AppRefusedError(RuntimeError):
    """An error for a run whose app no connected node is willing to run."""


@dataclass
class _Failures:
    """The failed attempts with one node, and how many calls to skip before the next attempt."""

    count: int = 0
    skip: int = 0


class Registration:
    """The registration of nodes, which keeps a roster up to date.

    Parameters
    ----------
    roster
        The roster to keep.
    on_reply
        Called with the number of nodes that have acknowledged their setup, and the number of those
        that were sent it, whenever one does.
    """

    def __init__(
        self, roster: Roster, on_reply: Callable[[int, int], None] = lambda replied, asked: None
    ) -> None:
        self.roster, self._on_reply = roster, on_reply
        self._failed: dict[int, _Failures] = {}
        self._doors: dict[int, str] = {}
        self._refused_app: set[int] = set()

    def door(self, agent: int) -> str:
        """Return the type of the messages that reach this agent."""
        return self._doors.get(self.roster.node(agent), wire.HANDLER_DOOR)

    @property
    def refused_app(self) -> int:
        """Return how many connected nodes refuse the app, where no node runs the app; else 0."""
        return 0 if self._doors else len(self._refused_app)

    def update(self, grid: Grid, setup: Setup, timeout: float) -> None:
        """Send the setup to nodes that are new, have come back or have lost their setup."""
        online = set(grid.get_node_ids())
        # A node that comes back may be another process with another agent, and registers again.
        self.roster.forget_absent(online)
        self._failed = {n: f for n, f in self._failed.items() if n in online}
        self._refused_app &= online
        due = [node for node in sorted(online) if self._due(node)]
        if not due:
            return
        seconds = registration_seconds(grid, timeout)
        if not is_simulation(grid):
            seconds = min(seconds, self._seconds_for(due))
        claims = self._claims(grid, due, setup, seconds)
        for refusal in self.roster.admit(claims):
            logger.warning("%s", refusal)
        for node in due:
            if self.roster.known(node):
                self._failed.pop(node, None)
            else:
                self._note_failure(node)

    def _claims(
        self, grid: Grid, nodes: list[int], setup: Setup, timeout: float
    ) -> dict[int, wire.Claim]:
        """Return the agent that each node claims to speak for."""
        claims: dict[int, wire.Claim] = {}
        # The door of a node never changes: a node that has shown its door is not probed again.
        with_client = [node for node in nodes if self._doors.get(node) == wire.CLIENT_DOOR]
        others = [node for node in nodes if node not in with_client]
        no_handler = self._set_up(grid, others, wire.HANDLER_DOOR, setup, timeout, claims)
        willing = self._willing_clients(grid, no_handler, timeout)
        for node in set(no_handler) - set(willing):
            logger.warning(
                "node %s takes no part in tuning: its app must have a handler "
                '@app.train("fbo"), or a client_fn made by with_tuning or of TuningClient',
                node,
            )
        with_client += willing
        for node in self._set_up(grid, with_client, wire.CLIENT_DOOR, setup, timeout, claims):
            logger.warning("node %s is not registered: its client failed", node)
        return claims

    def _set_up(
        self,
        grid: Grid,
        nodes: Sequence[int],
        door: str,
        setup: Setup,
        timeout: float,
        claims: dict[int, wire.Claim],
    ) -> list[int]:
        """Send the setup through a door and add the claims; return the nodes that failed."""
        messages = [
            Message(wire.encode_setup(setup), node, door, ttl=timeout, group_id="setup")
            for node in nodes
        ]
        failed, asked = [], len(nodes)

        def told(count: int) -> None:
            self._on_reply(count, asked)

        collected = send_and_collect(grid, messages, timeout, on_reply=told)
        for number, reply in sorted(collected.items()):
            node = nodes[number]
            if reply.has_error():
                # The SuperLink's own errors: the setup did not reach the node in time, as where a
                # machine is busy. That says nothing of the app, so the node is tried again later.
                if reply.error.code in UNDELIVERED:
                    continue
                # Flower never runs the app at such a node, so the node has no door to find.
                if reply.error.code == APP_REFUSED:
                    self._refused_app.add(node)
                    logger.warning(
                        "node %s refuses the app: no key that its owner trusts has signed the app",
                        node,
                    )
                else:
                    failed.append(node)
                continue
            try:
                claims[node] = wire.decode_registration(reply)
                self._doors[node] = door
            except wire.WireError as error:
                logger.warning("node %s is not registered: %s", node, error)
        return failed

    def _willing_clients(self, grid: Grid, nodes: Sequence[int], timeout: float) -> list[int]:
        """Return the nodes whose clients reply to a probe that they take part in tuning."""
        messages = [
            Message(wire.encode_probe(), node, wire.PROBE, ttl=timeout, group_id="probe")
            for node in nodes
        ]
        replies = send_and_collect(grid, messages, timeout)
        return [nodes[n] for n, reply in sorted(replies.items()) if wire.takes_part(reply)]

    def _due(self, node: int) -> bool:
        """Return whether a node is to be sent its setup now, and count a skipped call."""
        if self.roster.known(node):
            return False
        failures = self._failed.get(node)
        if failures is None or failures.skip == 0:
            return True
        failures.skip -= 1
        return False

    def _seconds_for(self, nodes: list[int]) -> float:
        """Return the seconds that these nodes have to acknowledge their setup."""
        # The shortest time of all, so that new nodes do not wait for one that failed before.
        fewest = min(self._failed[n].count if n in self._failed else 0 for n in nodes)
        return ACKNOWLEDGE_SECONDS * 2.0 ** min(fewest, 20)

    def _note_failure(self, node: int) -> None:
        """Count a failed attempt, and double the number of calls to skip."""
        failures = self._failed.setdefault(node, _Failures())
        failures.skip = min(2**failures.count, MOST_SKIPPED)
        failures.count += 1
