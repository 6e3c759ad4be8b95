"""The rounds of one run: registration, the messages of a round, its replies and its end.

This module passes messages to Flower's grid. The strategy decides which round comes next, what is
stored and when the run ends.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_fbo import wire
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.method import MethodServer, RunParameters
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.strategies.registration import Registration
from flwr_fbo.strategies.replies import send_and_collect
from flwr_fbo.strategies.roster import Roster

logger = logging.getLogger("flwr.fbo")

#: Seconds between two looks for nodes that have not connected yet.
NODE_POLL = 0.5
#: Seconds without a change after which the number of connected nodes counts as final.
SETTLE_SECONDS = 2.0
#: Rounds in a row without any reply after which the run ends.
MOST_SILENT_ROUNDS = 3


@dataclass
class _OpenRound:
    """The messages of the open round, in the order in which they were sent."""

    agents: list[int] = field(default_factory=list)
    requests: dict[int, Request] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)


class Rounds:
    """The rounds of a run, which carry messages between the method's server and the agents.

    Parameters
    ----------
    server
        The method's server.
    setup
        The setup that every agent receives first.
    parameters
        The size, the timeout and the quorum of the run.
    on_reply
        Called with the numbers of replies and of asked agents whenever a reply arrives.
    seconds
        The fixed duration of every round; None ends a round with its last reply. A private run
        whose agents reply early needs a fixed duration: otherwise the time of one agent's
        evaluation would decide when other agents are asked again, and so what they know.
    """

    def __init__(
        self,
        server: MethodServer,
        setup: Setup,
        parameters: RunParameters,
        on_reply: Callable[[int, int], None],
        seconds: float | None = None,
    ) -> None:
        self._server, self.setup, self._parameters = server, setup, parameters
        self._on_reply, self._seconds = on_reply, seconds
        self.roster = Roster(parameters.agents)
        self._registration = Registration(self.roster)
        self._open = _OpenRound()
        self._silent = 0  # rounds in a row without any reply

    @property
    def given_up(self) -> str:
        """Return why the run must end; empty while agents reply."""
        if self._silent < MOST_SILENT_ROUNDS:
            return ""
        return f"no agent replied in {MOST_SILENT_ROUNDS} rounds in a row"

    # -- registration --------------------------------------------------------------------------

    def register(self, grid: Grid) -> None:
        """Send the setup to nodes that have not acknowledged it, and register their agents."""
        self._registration.update(grid, self.setup, self._parameters.timeout)

    def await_agents(self, grid: Grid) -> None:
        """Wait until all agents of the run are registered, for at most the timeout."""
        p = self._parameters
        deadline = time.monotonic() + p.timeout
        while True:
            self.register(grid)
            here = len(self.roster.present)
            if here == p.agents:
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(min(NODE_POLL, p.timeout))
        if here == 0:
            raise TimeoutError(f"none of {p.agents} agents registered in {p.timeout:g} s")
        # The others may come later: every round registers new nodes.
        logger.warning("%s of %s agents are registered; starting with them", here, p.agents)

    # -- one round -----------------------------------------------------------------------------

    def run_one(self, grid: Grid) -> RoundReport | None:
        """Send the requests of a round, collect the replies, and close the round."""
        messages = self._messages_in_time(grid)
        p, asked = self._parameters, len(messages)
        self._on_reply(0, asked)
        timeout = p.timeout if self._seconds is None else min(p.timeout, self._seconds)
        numbered = send_and_collect(
            grid, messages, timeout, p.quorum, lambda n: self._on_reply(n, asked)
        )
        self._wait_for_the_end()
        return self._close(numbered)

    def messages(self) -> list[Message]:
        """Return the messages of the next round, and open that round."""
        # A list and no generator: the grid of a deployment reads the messages twice.
        requests = self._server.requests(self.roster.present)
        self._open = _OpenRound(list(requests), requests)
        return [
            Message(
                wire.encode_request(request, self.setup.digest),
                self.roster.node(agent),
                self._registration.door(agent),
                ttl=self._parameters.timeout,  # no agent works for a round that is over
                group_id=str(request.round),
            )
            for agent, request in requests.items()
        ]

    def close_with(self, replies: Iterable[Message]) -> RoundReport | None:
        """Close the round with replies that Flower's own loop collected, matched by node."""
        order = {agent: number for number, agent in enumerate(self._open.agents)}
        numbered: dict[int, Message] = {}
        for reply in replies:
            number = order.get(self.roster.agent(reply.metadata.src_node_id))
            if number is not None:
                numbered.setdefault(number, reply)
        if not order:
            return None
        self._wait_for_the_end()
        return self._close(numbered)

    def _wait_for_the_end(self) -> None:
        """Wait until the open round has lasted as long as every round lasts."""
        if self._seconds is not None:
            time.sleep(max(0.0, self._open.started + self._seconds - time.monotonic()))

    def _messages_in_time(self, grid: Grid) -> list[Message]:
        """Return the messages of the next round, when an agent is there to receive one."""
        timeout = self._parameters.timeout
        deadline = time.monotonic() + timeout
        while True:
            self.register(grid)
            messages = self.messages()
            if messages or self._server.finished:
                return messages
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no agent could be asked within {timeout:g} s: none connected")
            time.sleep(min(NODE_POLL, timeout))

    def _close(self, numbered: Mapping[int, Message]) -> RoundReport | None:
        """Close the round with these replies, by the number of the message that they answer.

        A round without any reply stays open, and None is returned. Such a round releases and
        charges nothing. It is asked again, and agents reply without repeating an evaluation.
        """
        asked, number = len(self._open.agents), self._server.round
        if not numbered and asked and self._server.repeats_silent_rounds:
            # A round whose random *sample* of the replies is empty is another case: it releases
            # its noise all the same, because the sample must stay secret. That no agent replied
            # is no secret.
            self._silent += 1
            logger.warning(
                "round %s: none of %s agents replied (%s of %s times in a row)",
                number, asked, self._silent, MOST_SILENT_ROUNDS,
            )  # fmt: skip
            return None
        self._silent = 0
        counts = Counter[str]()
        replies = self._read(numbered, counts)
        self._server.close(replies)
        statement = self._server.statement()
        return RoundReport(
            round=number,
            rounds=self._server.rounds,
            asked=asked,
            replied=sum(not reply.declined for reply in replies.values()),
            missing=asked - len(numbered),
            declined=Counter(r.declined for r in replies.values() if r.declined),
            refused=counts["refused"],
            seconds=time.monotonic() - self._open.started,
            privacy=statement if statement.epsilon is not None else None,
            best=self._server.best(),
        )

    def _read(self, numbered: Mapping[int, Message], counts: Counter[str]) -> dict[int, Reply]:
        """Return the good and the declined replies by agent; count and drop all others."""
        replies: dict[int, Reply] = {}
        for number, message in numbered.items():
            agent = self._open.agents[number]
            try:
                reply = wire.decode_reply(message, self._open.requests[agent])
            except wire.WireError as error:
                counts["refused"] += 1
                logger.warning("a reply of agent %s is ignored: %s", agent, error)
                continue
            # A node that restarted has lost its setup, and registers again before the next round.
            if reply.declined == wire.NEEDS_SETUP:
                self.roster.drop(self.roster.node(agent))
            replies[agent] = reply
        return replies


def count_nodes(grid: Grid, timeout: float) -> int:
    """Return how many nodes are connected, once their number no longer changes."""
    deadline = time.monotonic() + timeout
    count, since = 0, time.monotonic()
    while time.monotonic() < deadline:
        now = len(list(grid.get_node_ids()))
        if now != count:
            count, since = now, time.monotonic()
        if count and time.monotonic() - since >= SETTLE_SECONDS:
            return count
        time.sleep(0.1)
    if count:
        return count
    raise TimeoutError(f"no node connected in {timeout:g} s")
