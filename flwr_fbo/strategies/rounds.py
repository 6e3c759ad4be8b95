"""The rounds of one run: registration, the messages of a round, its replies and its end.

This module passes messages to Flower's grid. The strategy decides which round comes next, what is
stored and when the run ends.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_fbo import wire
from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup, checked_reply
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.method import MethodServer, RunParameters
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.strategies.absences import Absences
from flwr_fbo.strategies.held_rounds import HeldRounds
from flwr_fbo.strategies.local import LocalAgents, local_agents
from flwr_fbo.strategies.registration import (
    AppRefusedError,
    Registration,
    is_simulation,
    registration_seconds,
)
from flwr_fbo.strategies.replies import enough_of, send_and_collect
from flwr_fbo.strategies.roster import Roster

logger = logging.getLogger("flwr.fbo")

#: Seconds between two looks for nodes that have not connected yet.
NODE_POLL = 0.5
#: Seconds without a change after which the number of connected nodes counts as final.
SETTLE_SECONDS = 2.0
#: Seconds between two notices that agents are still missing.
NOTICE_SECONDS = 30.0
#: The most seconds that a leg of a secure sum waits for replies, for which nobody evaluates.
LEG_SECONDS = 120.0
#: Flower's codes for an exception while an app is loaded, and for one that an app raised.
ERRORS_OF_APPS = (1, 2)
#: Rounds in a row without any reply after which the run ends.
MOST_SILENT_ROUNDS = 3


@dataclass
class _OpenRound:
    """The messages of the open round, in the order in which they were sent."""

    agents: list[int] = field(default_factory=list)
    requests: dict[int, Request] = field(default_factory=dict)
    everybody: bool = False  # whether all agents that could be asked are asked
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None  # how long the round lasts; None until the last reply


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
    holds
        Whether a round lasts its whole timeout after a round in which an agent was late
        (:mod:`flwr_fbo.strategies.held_rounds`).
    node_ids
        The node of each agent by its number, where the server's operator has fixed them.
    on_registration
        Called with the number of nodes that have acknowledged their setup, and the number of those
        that were sent it.
    """

    def __init__(
        self,
        server: MethodServer,
        setup: Setup,
        parameters: RunParameters,
        on_reply: Callable[[int, int], None],
        seconds: float | None = None,
        holds: bool = False,
        node_ids: Sequence[int] = (),
        on_registration: Callable[[int, int], None] = lambda replied, asked: None,
    ) -> None:
        self._server, self.setup, self._parameters = server, setup, parameters
        self._on_reply, self._seconds = on_reply, seconds
        self._held = HeldRounds(parameters.timeout if holds else None)
        self.roster = Roster(parameters.agents, node_ids)
        self._registration = Registration(self.roster, on_registration)
        self.absences = Absences(parameters.agents)
        self._open = _OpenRound()
        self._silent = 0  # rounds in a row without any reply
        self._grid: Grid | None = None  # the last one, for Flower's own loop, which passes none
        self._local: LocalAgents | None = None  # where the agents are in this process

    @property
    def given_up(self) -> str:
        """Return why the run must end; empty while agents reply."""
        if self._silent < MOST_SILENT_ROUNDS:
            return ""
        return f"no agent replied in {MOST_SILENT_ROUNDS} rounds in a row"

    # -- registration --------------------------------------------------------------------------

    def register(self, grid: Grid) -> None:
        """Send the setup to nodes that have not acknowledged it, and register their agents."""
        self._grid, self._local = grid, local_agents(grid)
        if self._local is None:
            before = set(self.roster.present)
            self._registration.update(grid, self.setup, self._parameters.timeout)
            if came := set(self.roster.present) - before:
                self.absences.wake(came)
        elif not self.roster.present:
            self._local.check(self.setup)
            self.roster.seat_all(self._local.nodes)

    def update(self, history: RunHistory) -> None:
        """Read the evaluations of the closed round into a history."""
        if self._local is None:
            history.refresh()
        else:
            self._local.update(history)

    def await_agents(self, grid: Grid) -> None:
        """Wait until all agents of the run are registered, for at most the timeout."""
        p = self._parameters
        if is_simulation(grid):
            with mistakes_logged():
                check_size(grid, p.agents, p.timeout)
        deadline = time.monotonic() + registration_seconds(grid, p.timeout)
        notice = -math.inf
        while True:
            # The notice comes first: registering the nodes that are here may take a while.
            if time.monotonic() - notice >= NOTICE_SECONDS:
                self._say_who_is_missing(len(list(grid.get_node_ids())))
                notice = time.monotonic()
            self.register(grid)
            here = len(self.roster.present)
            if here == p.agents:
                return
            if refused := self._registration.refused_app:
                raise AppRefusedError(
                    f"none of {refused} connected nodes runs this app: their owners run only apps "
                    "that are signed with keys they trust. Sign the app, and submit it as "
                    "`flwr run @PUBLISHER/NAME==VERSION`; an app from a folder is never signed"
                )
            if time.monotonic() >= deadline:
                break
            time.sleep(min(NODE_POLL, p.timeout))
        if here == 0:
            raise TimeoutError(f"none of {p.agents} agents registered in {p.timeout:g} s")
        # The others may come later: every round registers new nodes.
        logger.warning("%s of %s agents are registered; starting with them", here, p.agents)

    def _say_who_is_missing(self, here: int) -> None:
        """Log how many nodes are still missing, and what to do; log nothing if all are here."""
        p = self._parameters
        if here < p.agents:
            logger.warning(
                "%s of %s agents are connected; waiting up to %.0f s for the others. Start more "
                "SuperNodes, or set agents=%s",
                here, p.agents, p.timeout, max(here, 1),
            )  # fmt: skip

    # -- one round -----------------------------------------------------------------------------

    def run_one(self, grid: Grid) -> RoundReport | None:
        """Send the requests of a round, collect the replies, and close the round."""
        messages = self._messages_in_time(grid)
        if self._local is not None:
            return self._run_here(self._local)
        p, asked = self._parameters, len(messages)
        self._on_reply(0, asked)
        seconds = self._open.seconds
        timeout = p.timeout if seconds is None else min(p.timeout, seconds)
        numbered = send_and_collect(
            grid, messages, timeout, p.quorum, lambda n: self._on_reply(n, asked)
        )
        self._wait_for_the_end()
        return self._run_legs(grid, self._close(numbered))

    def _run_here(self, local: LocalAgents) -> RoundReport | None:
        """Run the open round, and the further legs of a secure sum, with agents of this process."""
        report = self._ask_here(local)
        if report is None or not self._server.legs_left:
            return report
        started = self._open.started
        while self._server.legs_left:
            self._open_round()
            replies = local.answer(
                self.setup, self._open.requests, self._parameters.timeout, lambda count: None
            )
            self._server.close(self._checked(replies, Counter()))
        seconds = time.monotonic() - started
        return replace(report, privacy=self._server.statement(), seconds=seconds)

    def _ask_here(self, local: LocalAgents) -> RoundReport | None:
        """Ask agents of this process, and close the round."""
        p, requests = self._parameters, self._open.requests
        self._on_reply(0, len(requests))
        answered = local.answer(
            self.setup, requests, p.timeout, lambda n: self._on_reply(n, len(requests))
        )
        enough = enough_of(len(requests), p.quorum)
        came = dict(list(answered.items())[:enough]) if len(answered) > enough else answered
        if self._is_silent(list(came), only_errors=not came):
            return None
        counts = Counter[str]()
        return self._take_in(list(came), self._checked(came, counts), counts)

    def _checked(self, replies: Mapping[int, Reply], counts: Counter[str]) -> dict[int, Reply]:
        """Return the good and the declined replies of agents of this process; count all others."""
        good: dict[int, Reply] = {}
        for agent, reply in sorted(replies.items()):
            try:
                good[agent] = checked_reply(self._open.requests[agent], reply)
            except ReplyError as error:
                counts["refused"] += 1
                logger.warning("a reply of agent %s is ignored: %s", agent, error)
                continue
            if not reply.declined:
                self.roster.note_use(agent)
        return good

    def _run_legs(self, grid: Grid, report: RoundReport | None) -> RoundReport | None:
        """Run the further messages of the round that was closed, such as those of a secure sum."""
        started = self._open.started
        if report is None or not self._server.legs_left:
            return report
        while self._server.legs_left:
            timeout = min(self._parameters.timeout, LEG_SECONDS)
            numbered = send_and_collect(grid, self.messages(), timeout)
            self._server.close(self._read(numbered, Counter()))
        statement = self._server.statement()
        seconds = time.monotonic() - started
        return replace(report, privacy=statement, seconds=seconds)

    def messages(self) -> list[Message]:
        """Return the messages of the next round, and open that round."""
        self._open_round()
        encoder = wire.ArrayEncoder()
        # A list and no generator: the grid of a deployment reads the messages twice.
        return [
            Message(
                wire.encode_request(request, self.setup.digest, encoder),
                self.roster.node(agent),
                self._registration.door(agent),
                ttl=self._parameters.timeout,  # no agent works for a round that is over
                group_id=str(request.round),
            )
            for agent, request in self._open.requests.items()
        ]

    def _open_round(self) -> None:
        """Open the next round, with the requests to the agents that can be asked."""
        asked = self.absences.awake(self.roster.present)
        requests = self._server.requests(asked)
        if not requests and len(asked) < len(self.roster.present):
            asked = self.roster.present  # nobody else is left to ask: the pauses end
            requests = self._server.requests(asked)
        everybody, seconds = len(requests) == len(asked), self._seconds_of(requests)
        self._open = _OpenRound(list(requests), requests, everybody, seconds=seconds)

    def _seconds_of(self, requests: Mapping[int, Request]) -> float | None:
        """Return how long a round with these requests lasts; None until its last reply."""
        if self._seconds is not None or (held := self._held.seconds(requests)) is None:
            return self._seconds
        logger.info(
            "this round lasts its whole timeout of %g s, because agents were still at work at the "
            "end of the last round: %s", held, ", ".join(map(str, self._held.late(requests))),
        )  # fmt: skip
        return held

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
        report = self._close(numbered)
        return report if self._grid is None else self._run_legs(self._grid, report)

    def _wait_for_the_end(self) -> None:
        """Wait until the open round has lasted as long as every round lasts."""
        if self._open.seconds is not None:
            time.sleep(max(0.0, self._open.started + self._open.seconds - time.monotonic()))

    def _messages_in_time(self, grid: Grid) -> list[Message]:
        """Open the next round when an agent is there to ask, and return its messages.

        Agents of this process get no messages.
        """
        timeout = self._parameters.timeout
        deadline = time.monotonic() + timeout
        while True:
            self.register(grid)
            messages = []
            if self._local is None:
                messages = self.messages()
            else:
                self._open_round()
            if self._open.requests or self._server.finished:
                return messages
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no agent could be asked within {timeout:g} s: none connected")
            time.sleep(min(NODE_POLL, timeout))

    def _close(self, numbered: Mapping[int, Message]) -> RoundReport | None:
        """Close the round with these replies, by the number of the message that they answer.

        A round without any reply stays open, and None is returned. Such a round releases and
        charges nothing. It is asked again, and agents reply without repeating an evaluation.
        """
        came = {n: message for n, message in numbered.items() if not _of_flower(message)}
        agents = [self._open.agents[n] for n in came]
        if self._is_silent(agents, all(message.has_error() for message in came.values())):
            return None
        counts = Counter[str]()
        return self._take_in(agents, self._read(came, counts), counts)

    def _is_silent(self, came: Sequence[int], only_errors: bool) -> bool:
        """Note who replied; return whether nobody did, so that the round is asked again."""
        asked, number = len(self._open.agents), self._server.round
        self._note_absences(came)
        if not (asked and only_errors and self._server.repeats_silent_rounds):
            self._silent = 0
            return False
        # A round whose random *sample* of the replies is empty is another case: it releases
        # its noise all the same, because the sample must stay secret. That no agent replied
        # is no secret.
        self._silent += 1
        self._held.note(self._open.agents, [], {})
        logger.warning(
            "round %s: none of %s agents replied (%s of %s times in a row)",
            number, asked, self._silent, MOST_SILENT_ROUNDS,
        )  # fmt: skip
        return True

    def _take_in(
        self, came: Sequence[int], replies: Mapping[int, Reply], counts: Counter[str]
    ) -> RoundReport:
        """Close the round with these replies, and return its report."""
        asked, number = len(self._open.agents), self._server.round
        self._held.note(self._open.agents, came, replies)
        self._server.close(replies)
        statement = self._server.statement()
        return RoundReport(
            round=number,
            rounds=self._server.rounds,
            asked=asked,
            replied=sum(not reply.declined for reply in replies.values()),
            missing=asked - len(came),
            declined=Counter(r.declined for r in replies.values() if r.declined),
            refused=counts["refused"],
            seconds=time.monotonic() - self._open.started,
            privacy=statement if statement.epsilon is not None else None,
            best=self._server.best(),
        )

    def _note_absences(self, replied: Sequence[int]) -> None:
        """Take in who replied; an agent that a quorum did not wait for is not silent."""
        agents = self._open.agents
        cut = len(replied) < len(agents) and self._parameters.quorum < 1.0 and not self._timed_out
        asked = replied if cut else agents
        if agents:
            self.absences.note(self._server.round, asked, replied, self._open.everybody and not cut)

    @property
    def _timed_out(self) -> bool:
        """Return whether the open round has lasted until its timeout."""
        timeout = self._parameters.timeout if self._seconds is None else self._seconds
        return time.monotonic() - self._open.started >= min(timeout, self._parameters.timeout)

    def _read(self, numbered: Mapping[int, Message], counts: Counter[str]) -> dict[int, Reply]:
        """Return the good and the declined replies by agent; count and drop all others.

        The replies are in the order of the agents. In the order of arrival, the last digits of a
        sum would depend on which agent replied first.
        """
        replies: dict[int, Reply] = {}
        by_agent = {self._open.agents[number]: message for number, message in numbered.items()}
        for agent, message in sorted(by_agent.items()):
            try:
                reply = wire.decode_reply(message, self._open.requests[agent])
            except wire.WireError as error:
                counts["refused"] += 1
                logger.warning("a reply of agent %s is ignored: %s", agent, error)
                continue
            # A node that restarted has lost its setup, and registers again before the next round.
            if reply.declined == wire.NEEDS_SETUP:
                self.roster.drop(self.roster.node(agent))
            if not reply.declined:
                self.roster.note_use(agent)
            replies[agent] = reply
        return replies


@contextlib.contextmanager
def mistakes_logged() -> Iterator[None]:
    """Log a mistake in a run's settings or directory in one line, before it ends the ServerApp.

    Flower shows an error of a ServerApp only after its simulation engine has started, some ten
    seconds later, and below a traceback.
    """
    try:
        yield
    except (ValueError, ImportError, RunDirectoryError) as mistake:
        logger.error("%s", mistake)
        raise


def check_size(grid: Grid, agents: int, timeout: float) -> None:
    """Raise SettingsError if a simulation has fewer nodes than agents; no more nodes will come."""
    nodes = len(list(grid.get_node_ids()))
    if nodes >= agents:
        return
    nodes = count_nodes(grid, timeout)  # the engine may still be starting nodes
    if nodes < agents:
        raise SettingsError(
            f"`agents` must be at most {nodes}, the number of nodes in this simulation, but got "
            f"{agents}: {nodes} of {agents} agents are here, and no others will come. Type: "
            f'flwr run . --federation-config "num-supernodes={agents} client-resources-num-cpus=1"'
        )


def _of_flower(message: Message) -> bool:
    """Return whether Flower reports an error in place of a reply that no app made.

    Such an error says that the message or the node is gone, or that the app's process died. An
    exception in an app is a reply of that app.
    """
    return message.has_error() and message.error.code not in ERRORS_OF_APPS


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
