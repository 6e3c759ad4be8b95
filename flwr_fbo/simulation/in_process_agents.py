"""The agents of a simulation in this process, which answer requests without messages.

Each agent has the records, the seed and the checks that it has behind a message
(:class:`~flwr_fbo.clients.tuning_client.TuningClient`). The records of all agents are one file
(:mod:`flwr_fbo.runs.files.simulation_store`). Between two requests an agent's evaluator and records
stay in memory, as far as there is room: the agent itself is made anew from them, as it is for every
message. An agent's setup, task and records come into being when the agent is first asked.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from flwr.app import Context, RecordDict

from flwr_fbo.clients.tuning_client import EvaluationOptions, TuningClient, files_of
from flwr_fbo.core.arrays import Array, Words
from flwr_fbo.core.evaluation import (
    ENDED_ITS_PROCESS,
    Evaluation,
    Evaluator,
    Records,
    evaluations_of,
)
from flwr_fbo.core.evaluation_groups import GroupSize
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.time_limit import one_alarm
from flwr_fbo.flower_versions import UserConfig
from flwr_fbo.methods.owner import Owner
from flwr_fbo.runs.files.arrangement import arrange
from flwr_fbo.runs.files.journal_check import JournalError
from flwr_fbo.runs.files.simulation_store import AgentRecords, SimulationStore
from flwr_fbo.runs.history import RunHistory, begun_in
from flwr_fbo.runs.locations import home
from flwr_fbo.simulation.agents_together import AgentsTogether
from flwr_fbo.simulation.garbage import RareVisits
from flwr_fbo.simulation.in_process_grid import LateFirst, agents_nodes
from flwr_fbo.tasks import Partition, Task

A = TypeVar("A", Array, Words)

#: The most agents whose evaluators and records stay in memory.
MOST_HELD = 200_000
#: Kinds of records that an evaluator keeps, so that the store need not keep them too.
_OF_EVALUATORS = (Evaluator.KIND, Evaluator.BEGUN, Evaluator.INTERRUPTED)


class InProcessAgents:
    """All agents of a simulation, which are asked one after another.

    Parameters
    ----------
    task : Task
        What is tuned.
    journals : Path
        The folder of the agents' journals, whose run this process has locked.
    agents : int
        The number of agents.
    options : EvaluationOptions
        How evaluations are made.
    """

    def __init__(self, task: Task, journals: Path, agents: int, options: EvaluationOptions) -> None:
        self._agents = agents
        self._client = _InProcessClient(task, journals, agents, options)
        self._late = LateFirst()
        self._visits = RareVisits()

    @property
    def nodes(self) -> range:
        """Return the number of each agent's node, by agent."""
        return agents_nodes(self._agents)

    @property
    def share_a_journal(self) -> bool:
        """Return True: the agents of one process share a journal."""
        return True

    def split_journal(self, setup: Setup) -> list[str]:
        """Give each agent a journal of its own, and return what was damaged.

        Afterwards other processes answer for the agents, and these agents are not asked any more.
        """
        return self._client.split_journal(setup)

    def check(self, setup: Setup) -> None:
        """Raise an error for a setup with which these agents cannot work."""
        self._client.check(setup)

    def answer(
        self,
        setup: Setup,
        requests: Mapping[int, Request],
        seconds: float,
        on_reply: Callable[[int], None],
    ) -> dict[int, Reply]:
        """Return the replies by agent.

        Nobody is asked after ``seconds``: agents whose turn did not come have no reply, and come
        first in the next round.
        """
        started, replies = time.monotonic(), dict[int, Reply]()
        turn, client = self._late.order(requests, int), self._client
        # Agents that reply early evaluate in worker processes, which write journals of their own.
        ask = client.answer_group if setup.answer_within is None else client.answer_early
        with self._client.opened(), one_alarm(), self._visits.in_round(len(requests)):
            while turn:
                group = turn[: self._client.group_size]
                answered = ask(
                    setup,
                    _as_received({agent: requests[agent] for agent in group}),
                    lambda: time.monotonic() - started < seconds,
                    lambda count: on_reply(len(replies) + count),
                )
                replies.update((agent, _as_sent(reply)) for agent, reply in answered.items())
                self._late.note(answered, (agent for agent in group if agent not in answered))
                turn = turn[len(group) :]
        return {agent: replies[agent] for agent in requests if agent in replies}

    def update(self, history: RunHistory) -> None:
        """Add the evaluations that were made since the last call to a history."""
        self._client.update(history)


class _InProcessClient(TuningClient):
    """The client of all agents: their records share a journal, and stay in memory."""

    def __init__(self, task: Task, journals: Path, agents: int, options: EvaluationOptions) -> None:
        context = Context(
            run_id=0, node_id=0, node_config=UserConfig(), state=RecordDict(),
            run_config=UserConfig(),
        )  # fmt: skip
        super().__init__(context, task, journals, options)
        self._agents, self._folder = agents, journals
        self._store: SimulationStore | None = None
        self._of = ""  # the digest of the setup with which the evaluators were made
        self._held: OrderedDict[int, tuple[AgentRecords, Evaluator]] = OrderedDict()
        self._grown: set[int] = set()  # agents who may have new records
        self._asked = -1  # the agent that was asked last
        self._size = GroupSize()
        self._together: AgentsTogether | None = None  # the group that is asked
        #: Agents in the middle of whose group the last process ended; None without suspicion.
        self._suspects: set[int] | None = None
        journals.mkdir(parents=True, exist_ok=True)

    def node(self, agent: int) -> dict[str, int]:
        """Return what the configuration of an agent's node says."""
        return {"partition-id": agent, "num-partitions": self._agents}

    def update(self, history: RunHistory) -> None:
        """Add what was evaluated since the last call to a history."""
        if self._store is not None:
            history.follow(self._store, {n: self._evaluations(n) for n in sorted(self._grown)})
        elif self._grown:
            history.refresh()  # worker processes have written journals of their own
        self._grown.clear()

    def split_journal(self, setup: Setup) -> list[str]:
        """Move all records to one journal for each agent, and return what was damaged."""
        if self._store is not None:
            self._store.close()
        self._store = None
        self._held.clear()
        return arrange(self._folder, setup.identity, shared=False)

    def _evaluations(self, agent: int) -> list[Evaluation]:
        """Return all evaluations of an agent."""
        held = self._held.get(agent)
        if held is not None:
            return held[1].history
        assert self._store is not None
        return evaluations_of(self._store.records(agent).read(Evaluator.KIND))

    # -- groups of agents ----------------------------------------------------------------------

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Close the files of the records at the end."""
        try:
            yield
        finally:
            if self._store is not None:
                self._store.close()

    @property
    def group_size(self) -> int:
        """Return how many agents are asked together next.

        Their evaluations take .05 s in all. An evaluation in a child process is recorded alone.
        """
        return 1 if self._options.isolated else self._size.next

    def answer_group(
        self,
        setup: Setup,
        requests: Mapping[int, Request],
        in_time: Callable[[], bool],
        on_reply: Callable[[int], None],
    ) -> dict[int, Reply]:
        """Return the replies of a group of agents, without those who are not asked in time.

        Parameters
        ----------
        setup
            The setup of the run.
        requests
            The requests of one round, by agent.
        in_time
            Returns whether the time of the round is not over.
        on_reply
            Called with the number of replies whenever there is one more.
        """
        store, replies = self._open_store(setup), dict[int, Reply]()
        before, round = store.seconds, next(iter(requests.values())).round
        try:
            with store.group(round, requests):
                self._together = AgentsTogether.of(
                    setup, requests, partial(self._made, setup, home())
                )
                for agent, request in requests.items():
                    if not in_time():
                        break
                    partition = self._partition(setup, agent)
                    replies[agent] = self.answer_here(setup, request, partition)
                    on_reply(len(replies))
                if self._together is not None:  # replies of agents that have only evaluated
                    replies |= self._together.replies(partial(self._declining_of, setup))
        except JournalError as error:  # what could not be recorded did not happen
            for agent in replies or requests:
                replies[agent] = self._declining(error, setup, agent)
        else:
            self._size.note(len(requests), store.seconds - before)
            self._acquit(replies)
        finally:
            self._together = None
        return replies

    def _declining_of(self, setup: Setup, agent: int, error: BaseException) -> Reply:
        """Return the reply of an agent that declines because of an error."""
        return self._declining(error, setup, agent)

    def answer_early(
        self,
        setup: Setup,
        requests: Mapping[int, Request],
        in_time: Callable[[], bool],
        on_reply: Callable[[int], None],
    ) -> dict[int, Reply]:
        """Return what :meth:`answer_group` returns, of agents whose workers evaluate."""
        replies: dict[int, Reply] = {}
        for agent, request in requests.items():
            if not in_time():
                break
            partition = self._partition(setup, agent)
            replies[agent] = self.answer_here(setup, request, partition)
            on_reply(len(replies))
        return replies

    def _open_store(self, setup: Setup) -> SimulationStore:
        """Return the journal of all agents."""
        if self._store is None:
            self._store = SimulationStore(self._folder, setup.identity, Evaluator.BEGUN)
            group = self._store.unfinished
            if group is not None and not begun_in(self._store):
                self._suspects = set(group.agents)
        if setup.digest != self._of:
            self._of = setup.digest
            self._held.clear()
        return self._store

    def _acquit(self, answered: Collection[int]) -> None:
        """Make evaluations in this process again, once all suspects have answered.

        After a process ended in the middle of a group, evaluations are made in child processes. If
        none of that group's ends its process, something else has ended the one before.
        """
        if self._suspects is None or self._store is None:
            return
        guilty = any(
            evaluation.failure.startswith(ENDED_ITS_PROCESS)
            for agent in self._suspects.intersection(answered)
            for evaluation in self._evaluations(agent)
        )
        self._suspects -= set(answered)
        if self._suspects and not guilty:
            return
        self._suspects = None
        self._store.end_unfinished()
        if not guilty:
            self._options = replace(self._options, isolated=False)
            self._held.clear()

    # -- one agent -----------------------------------------------------------------------------

    def _partition(self, setup: Setup, agent: int) -> Partition:
        return Partition(agent, self._agents, setup.seed, self.node(agent))

    def _made(self, setup: Setup, home: Path, number: int, request: Request) -> Agent:
        """Return an agent that was not asked yet."""
        self._grown.add(number)  # opening records may close evaluations that have not ended
        partition = self._partition(setup, number)
        path, ledger, books = files_of(self._journal_folder(setup), number, home)
        with contextlib.ExitStack() as stack:
            owner = Owner(f"agent {number}", self.node(number), ledger, books, stack)
            return super()._agent(setup, request.round, partition, owner, path)

    def _agent(
        self, setup: Setup, round: int, partition: Partition, owner: Owner, path: Path
    ) -> Agent:
        """Return the agent that answers a request: one made already, or one made now."""
        made = None if self._together is None else self._together.take(partition.index)
        if made is not None:
            return made
        return super()._agent(setup, round, partition, owner, path)

    def answer_here(self, setup: Setup, request: Request, partition: Partition) -> Reply:
        """Return the reply of an agent; after a failure its records are read again."""
        self._asked = partition.index
        self._grown.add(partition.index)
        try:
            return super().answer_here(setup, request, partition)
        except BaseException:
            self._held.pop(partition.index, None)
            raise

    def _declining(
        self, error: BaseException, setup: Setup | None, agent: int | None = None
    ) -> Reply:
        # What is in memory may be half-way between two states.
        self._held.pop(self._asked if agent is None else agent, None)
        return super()._declining(error, setup)

    def _open_records(
        self, setup: Setup, partition: Partition, path: Path, stack: contextlib.ExitStack
    ) -> tuple[Records, Evaluator]:
        """Return an agent's records in the journal of all, and its evaluator."""
        store, agent = self._open_store(setup), partition.index
        store.reserve()
        held = self._held.get(agent)
        if held is None:
            records = store.records(agent)
            held = records, self._evaluator(setup, records, partition)
            records.forget(_OF_EVALUATORS)
            self._held[agent] = held
            while len(self._held) > MOST_HELD:
                self._held.popitem(last=False)
        return held

    def _records_of_leg(self, setup: Setup, partition: Partition, path: Path) -> Records:
        """Return all records of an agent, for a leg of a secure sum."""
        if setup.answer_within is not None:
            return super()._records_of_leg(setup, partition, path)
        return self._open_store(setup).records(partition.index)


def _as_received(requests: Mapping[int, Request]) -> dict[int, Request]:
    """Return requests whose arrays agents cannot change, as they are the server's own."""
    # Agents who are asked the same share a request.
    each = {id(request): request for request in requests.values()}
    received = {key: _read_only_request(request) for key, request in each.items()}
    return {agent: received[id(request)] for agent, request in requests.items()}


def _read_only_request(request: Request) -> Request:
    """Return a request whose arrays cannot be changed."""
    if not request.arrays and not request.words:
        return request
    arrays = {name: _read_only(array) for name, array in request.arrays.items()}
    words = {name: _read_only(array) for name, array in request.words.items()}
    return replace(request, arrays=arrays, words=words)


def _read_only(array: A) -> A:
    """Return a view of an array that nobody can write through."""
    view: A = array.view()
    view.flags.writeable = False
    return view


def _as_sent(reply: Reply) -> Reply:
    """Return a reply as a message would bring it: with copies of its arrays, as real numbers."""
    if reply.declined or not (reply.arrays or reply.words):
        return reply
    arrays = {name: np.array(array, dtype=np.float64) for name, array in reply.arrays.items()}
    words = {name: np.array(array, dtype=np.uint64) for name, array in reply.words.items()}
    return Reply(arrays, words=words)
