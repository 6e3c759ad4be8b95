"""What all strategies share: registration, the round loop, replies, checkpoints and stopping."""

from __future__ import annotations

import logging
import math
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from flwr_fbo import wire
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Reply, Request, Server
from flwr_fbo.core.settings import Settings, SettingsError, kebab
from flwr_fbo.core.space import Space
from flwr_fbo.strategies.registration import Registration
from flwr_fbo.strategies.replies import exchange
from flwr_fbo.strategies.roster import Roster
from flwr_fbo.tasks import Task

logger = logging.getLogger("flwr.fbo")

#: How often to look for nodes that have not connected yet, in seconds.
NODE_POLL = 0.5


@dataclass(frozen=True)
class RoundReport:
    """What a round looked like to the server. It holds nothing that agents keep to themselves."""

    round: int
    rounds: int | None
    asked: int
    replied: int
    missing: int
    declined: Mapping[str, int]
    refused: int
    seconds: float
    privacy: Mapping[str, Any] | None = None
    #: Mean best score, known to the server only in a run with diagnostics.
    best: float | None = None


@dataclass(frozen=True, eq=False)
class Release:
    """A vector that everybody may see, the noise in each coordinate, and its round."""

    vector: Array
    deviation: float
    round: int


@dataclass(frozen=True)
class RunPlan:
    """What a strategy needs besides its settings to serve one run."""

    space: Space
    agents: int
    rounds: int
    seed: int = 0
    #: Longest time a round may take, and a node may take to connect at the start.
    timeout: float = 3600.0
    #: Share of the agents asked whose replies end a round; the others are not waited for.
    quorum: float = 1.0
    #: File of the privacy ledger; without one, charges are kept in memory only.
    ledger: Path | None = None
    #: The task, for strategies that must know more of it than its space.
    task: Task | None = None


class Callback:
    """Something that watches a run: derive from it and fill in what is of interest."""

    def on_start(self, strategy: FBOStrategy) -> None:
        """All agents are registered; the first round is about to begin."""

    def on_reply(self, strategy: FBOStrategy, replied: int, asked: int) -> None:
        """In the round under way so many of those asked have answered; at first none."""

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        """A round is closed, and its state is stored."""

    def on_end(self, strategy: FBOStrategy) -> None:
        """No further round will come."""


class Store(Protocol):
    """Where a run's state survives its process."""

    def save(self, state: Mapping[str, Any]) -> None:
        """Store the state in place of the last one, atomically."""

    def load(self) -> dict[str, Any] | None:
        """The last stored state, if any."""


@dataclass
class _Round:
    """The messages of the round under way, in the order in which they were sent."""

    agents: list[int] = field(default_factory=list)
    requests: dict[int, Request] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)


class FBOStrategy(Strategy):
    """A Flower strategy around a :class:`flwr_fbo.core.protocol.Server`.

    Give it settings, then :meth:`plan` it for a run, then :meth:`start` it on a grid::

        strategy = DPFTSDE(epsilon=5.0).plan(RunPlan(space, agents=30, rounds=40))
        strategy.start(grid)
    """

    settings_class: ClassVar[type[Settings]]
    #: Settings of the papers' experiments, applied by ``preset = "paper"``.
    paper_settings: ClassVar[Mapping[str, Any]] = {}
    #: Whether an agent can reply without a finished evaluation.
    asynchronous: ClassVar[bool] = False
    #: How often the state is stored at most; 0 is after every round.
    checkpoint_seconds: ClassVar[float] = 0.0

    def __init__(self, settings: Settings | None = None, /, **values: Any) -> None:
        if settings is not None and values:
            raise TypeError("give either a settings object or single values, not both")
        self.settings = self.settings_class(**values) if settings is None else settings
        whole = vars(self.settings) if settings is not None else values
        #: What was said, by kebab-case key; the rest may follow from the task or a preset.
        self.given: dict[str, Any] = {kebab(name): value for name, value in whole.items()}
        self.callbacks: list[Callback] = []
        self.store: Store | None = None
        self.stop: Callable[[RoundReport], bool] = lambda report: False
        self.reports: list[RoundReport] = []
        self._plan: RunPlan | None = None
        self._server: Server | None = None
        self._round = _Round()
        self._stored = -math.inf

    @classmethod
    def presets_for(cls, task: Task, seed: int) -> Mapping[str, Any]:
        """Settings that follow from the task where nothing else is said."""
        return {}

    # -- what a strategy is made of ---------------------------------------------------------

    @abstractmethod
    def build(self, plan: RunPlan) -> Server:
        """The state machine that this strategy carries messages for."""

    def privacy(self) -> dict[str, Any] | None:
        """What has been spent so far, for reports; None where nothing is private."""
        return None

    def best(self) -> float | None:
        """Mean best score so far, where agents tell it; they do not, but for research."""
        return None

    def close(self) -> None:
        """Let go of files; called when :meth:`start` ends, however it ends."""

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """What the result file says besides what all results say, from the agents' journals."""
        return {}

    def release(self) -> Release | None:
        """The last vector that was made public, where a strategy has such."""
        return None

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """A point for all agents, from all that was made public; None where nothing was."""
        return None

    def files(self) -> dict[str, str]:
        """Texts to keep in the run directory at the end, by file name."""
        return {}

    def notice(self) -> str:
        """What a person must know before trusting the run's privacy; empty where nothing is."""
        return ""

    @property
    def completed(self) -> bool:
        """Whether all was done that the settings ask for."""
        return self.server.finished

    def evaluations_per_agent(self) -> int | None:
        """How many evaluations every agent makes in a whole run; None where that varies."""
        return None

    def lengthened(self, planned: int, agents: int) -> dict[str, Any]:
        """Settings to hold on to when a run gets more rounds than were planned."""
        raise SettingsError(
            "`rounds` does not say how long this strategy goes on: it spends its `budget`, which "
            "its confidence widths and its noise are made for"
        )

    # -- life of a run ------------------------------------------------------------------------

    def plan(self, plan: RunPlan, store: Store | None = None) -> FBOStrategy:
        """Get ready for a run; with a store that holds a state, for the rest of that run."""
        self._plan, self._server, self.store = plan, self.build(plan), store
        self.roster = Roster(plan.agents)
        self._registration = Registration(self.roster)
        self.reports = []
        state = None if store is None else store.load()
        if state is not None:
            self.roster.load_state_dict(state["roster"])
            self._server.load_state_dict(state["server"])
        return self

    @property
    def server(self) -> Server:
        """The state machine of the planned run."""
        if self._server is None:
            raise RuntimeError("plan() the strategy for a run before it is used")
        return self._server

    @property
    def run_plan(self) -> RunPlan:
        """The run this strategy was planned for."""
        if self._plan is None:
            raise RuntimeError("plan() the strategy for a run before it is used")
        return self._plan

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 0,
        timeout: float = 0.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run all rounds that are left, until the server is finished or the stop hook says so.

        The arguments after ``grid`` are Flower's and have no meaning here: rounds and time-out
        are part of the plan, and scores stay with the agents.
        """
        self.summary()
        try:
            self._await_agents(grid)
            self._notify("on_start")
            self._run_rounds(grid)
            self._notify("on_end")
        finally:
            self.close()
        return Result()

    def _run_rounds(self, grid: Grid) -> None:
        while not self.server.finished:
            report = self._run_round(grid)
            self.reports.append(report)
            self._checkpoint()
            self._notify("on_round", report)
            if self.stop(report):
                logger.info("stopped after round %s", report.round)
                return

    def _checkpoint(self) -> None:
        """Store the state, unless the last time is so recent that it need not be yet."""
        recent = time.monotonic() - self._stored < self.checkpoint_seconds
        if self.store is None or (recent and not self.server.finished):
            return
        self.store.save(self.state_dict())
        self._stored = time.monotonic()

    def _notify(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *details)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs; see :meth:`plan`."""
        return {"roster": self.roster.state_dict(), "server": self.server.state_dict()}

    def _run_round(self, grid: Grid) -> RoundReport:
        messages = self._messages(grid)
        plan, asked = self.run_plan, len(messages)
        self._notify("on_reply", 0, asked)
        numbered = exchange(
            grid, messages, plan.timeout, plan.quorum, lambda n: self._notify("on_reply", n, asked)
        )
        number = self.server.round
        counts: Counter[str] = Counter()
        replies = self._read(numbered, counts)
        self.server.close(replies)
        answered = sum(not reply.declined for reply in replies.values())
        return RoundReport(
            round=number,
            rounds=self.server.rounds,
            asked=asked,
            replied=answered,
            missing=asked - len(numbered),
            declined=Counter(r.declined for r in replies.values() if r.declined),
            refused=counts["refused"],
            seconds=time.monotonic() - self._round.started,
            privacy=self.privacy(),
            best=self.best(),
        )

    def _messages(self, grid: Grid) -> list[Message]:
        """The round's messages, as soon as there is an agent to send one to."""
        deadline = time.monotonic() + self.run_plan.timeout
        while True:
            self._register(grid)
            empty = ArrayRecord()
            messages = list(self.configure_train(self.server.round, empty, ConfigRecord(), grid))
            if messages or self.server.finished:
                return messages
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no agent to ask in {self.run_plan.timeout:g} s")
            time.sleep(min(NODE_POLL, self.run_plan.timeout))

    # -- registration -------------------------------------------------------------------------

    def _await_agents(self, grid: Grid) -> None:
        """Wait until all agents of the plan are registered, as long as the time-out allows."""
        deadline = time.monotonic() + self.run_plan.timeout
        while True:
            self._register(grid)
            here = len(self.roster.present)
            if here == self.run_plan.agents:
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(min(NODE_POLL, self.run_plan.timeout))
        if here == 0:
            raise TimeoutError(
                f"none of {self.run_plan.agents} agents registered in {self.run_plan.timeout:g} s"
            )
        logger.warning("%s of %s agents are here; going on", here, self.run_plan.agents)

    def _register(self, grid: Grid) -> None:
        """Send the setup to nodes that have not acknowledged it, and learn who they are."""
        self._registration.update(grid, self.server.setup(), self.run_plan.timeout)

    # -- Flower's five methods ------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The round's messages: a list, since a deployment's grid reads it twice."""
        requests = self.server.requests(self.roster.present)
        self._round = _Round(list(requests), requests)
        digest = self.server.setup().digest
        return [
            Message(
                wire.encode_request(request, digest),
                self.roster.node(agent),
                wire.MESSAGE_TYPE,
                ttl=self.run_plan.timeout,  # nobody shall work on a round that is over
                group_id=str(request.round),
            )
            for agent, request in requests.items()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close the round with these replies, matched to agents by the nodes they come from."""
        order = {agent: number for number, agent in enumerate(self._round.agents)}
        numbered: dict[int, Message] = {}
        for reply in replies:
            number = order.get(self.roster.agent(reply.metadata.src_node_id))
            if number is not None:
                numbered.setdefault(number, reply)
        self.server.close(self._read(numbered, Counter()))
        return None, None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: scores stay with the agents."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing: scores stay with the agents."""
        return None

    def summary(self) -> None:
        """Log the settings."""
        plan = self.run_plan
        logger.info("%s: %s agents, %s rounds", type(self).__name__, plan.agents, plan.rounds)
        for key, value in self.settings.to_mapping().items():
            logger.info("  %s = %s", key, value)

    def _read(self, numbered: Mapping[int, Message], counts: Counter[str]) -> dict[int, Reply]:
        """Replies by agent: good ones and declined ones; anything else is counted and ignored."""
        replies: dict[int, Reply] = {}
        for number, message in numbered.items():
            agent = self._round.agents[number]
            try:
                reply = wire.decode_reply(wire.content(message), self._round.requests[agent])
            except wire.WireError as error:
                counts["refused"] += 1
                logger.warning("a reply of agent %s is ignored: %s", agent, error)
                continue
            if reply.declined == wire.NEEDS_SETUP:
                self.roster.drop(self.roster.node(agent))
            replies[agent] = reply
        return replies
