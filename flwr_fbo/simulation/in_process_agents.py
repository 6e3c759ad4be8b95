"""The agents of a simulation in this process, which answer requests without messages.

Each agent has the records, the seed and the checks that it has behind a message
(:class:`~flwr_fbo.clients.tuning_client.TuningClient`). Between two requests an agent's evaluator
and journal stay in memory, as far as there is room: the agent itself is made anew from them, as it
is for every message. An agent's setup, task and journal come into being when the agent is first
asked.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from flwr.app import Context, RecordDict

from flwr_fbo.clients.tuning_client import EvaluationOptions, TuningClient
from flwr_fbo.core.arrays import Array, Words
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.evaluation_groups import MOST_TOGETHER
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.flower_versions import UserConfig
from flwr_fbo.runs.files.journal_check import JournalOwner
from flwr_fbo.runs.files.sole_journal import SoleJournal
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.simulation.in_process_grid import SERVER_NODE
from flwr_fbo.tasks import Partition, Task

A = TypeVar("A", Array, Words)

#: The most agents whose evaluators and journals stay in memory.
MOST_HELD = 200_000
#: Kinds of records that an evaluator keeps, so that a journal need not keep them too.
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
        self._late: dict[int, None] = {}  # the agent that has waited longest first

    @property
    def nodes(self) -> range:
        """Return the number of each agent's node, by agent."""
        return range(SERVER_NODE + 1, SERVER_NODE + 1 + self._agents)

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
        first in the next round. Otherwise agents that use up the time of every round would keep
        the same others out for ever.
        """
        started, replies = time.monotonic(), dict[int, Reply]()
        waited = [agent for agent in self._late if agent in requests]
        turn = [*waited, *(agent for agent in requests if agent not in self._late)]
        while turn:
            group = turn[: self._client.group_size]
            for agent, reply in self._client.answer_group(
                setup, {agent: _as_received(requests[agent]) for agent in group},
                lambda: time.monotonic() - started < seconds,
            ):  # fmt: skip
                self._late.pop(agent, None)
                replies[agent] = _as_sent(reply)
                on_reply(len(replies))
            self._late |= dict.fromkeys(agent for agent in group if agent not in replies)
            turn = turn[len(group) :]
        return {agent: replies[agent] for agent in requests if agent in replies}

    def update(self, history: RunHistory) -> None:
        """Add the evaluations that were made since the last call to a history."""
        self._client.update(history)


class _InProcessClient(TuningClient):
    """The client of all agents: it keeps their journals open in memory instead of on the disk."""

    def __init__(self, task: Task, journals: Path, agents: int, options: EvaluationOptions) -> None:
        context = Context(
            run_id=0, node_id=0, node_config=UserConfig(), state=RecordDict(),
            run_config=UserConfig(),
        )  # fmt: skip
        super().__init__(context, task, journals, options)
        self._agents = agents
        self._held: OrderedDict[int, tuple[str, SoleJournal, Evaluator]] = OrderedDict()
        self._grown: set[int] = set()  # agents whose journals may have grown
        self._asked = -1  # the agent that was asked last
        journals.mkdir(parents=True, exist_ok=True)

    def node(self, agent: int) -> dict[str, int]:
        """Return what the configuration of an agent's node says."""
        return {"partition-id": agent, "num-partitions": self._agents}

    def update(self, history: RunHistory) -> None:
        """Add what was evaluated since the last call to a history."""
        for agent in sorted(self._grown):
            held = self._held.get(agent)
            if held is None:
                history.refresh([agent])
            else:
                history.follow(agent, held[1], held[2].history)
        self._grown.clear()

    @property
    def group_size(self) -> int:
        """Return how many agents are asked together next."""
        return MOST_TOGETHER

    def answer_group(
        self, setup: Setup, requests: Mapping[int, Request], in_time: Callable[[], bool]
    ) -> Iterator[tuple[int, Reply]]:
        """Yield the agents of a group with their replies, until the time of the round is over."""
        for agent, request in requests.items():
            if not in_time():
                return
            partition = Partition(agent, self._agents, setup.seed, self.node(agent))
            yield agent, self.answer_here(setup, request, partition)

    def answer_here(self, setup: Setup, request: Request, partition: Partition) -> Reply:
        """Return the reply of an agent; after a failure its files are read again."""
        self._asked = partition.index
        self._grown.add(partition.index)
        try:
            return super().answer_here(setup, request, partition)
        except BaseException:
            self._held.pop(partition.index, None)
            raise

    def _declining(self, error: BaseException, setup: Setup | None) -> Reply:
        # What is in memory may be half-way between two states.
        self._held.pop(self._asked, None)
        return super()._declining(error, setup)

    def _open_records(
        self, setup: Setup, partition: Partition, path: Path, stack: contextlib.ExitStack
    ) -> tuple[Records, Evaluator]:
        """Return an agent's journal, which stays open until the request is answered."""
        agent = partition.index
        known = self._held.get(agent)
        if known is None or known[0] != setup.digest:
            owner = JournalOwner(setup.identity, agent)
            journal = SoleJournal(path, owner, _OF_EVALUATORS, Evaluator.BEGUN)
            known = setup.digest, journal, self._evaluator(setup, journal, partition)
            journal.forget()
            self._held[agent] = known
            while len(self._held) > MOST_HELD:
                self._held.popitem(last=False)
        _, journal, evaluator = known
        journal.reserve()
        stack.enter_context(journal.opened())
        return journal, evaluator


def _as_received(request: Request) -> Request:
    """Return a request whose arrays the agent cannot change, as they are the server's own."""
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
