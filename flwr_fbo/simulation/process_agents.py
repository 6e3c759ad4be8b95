"""The agents of a simulation in a pool of processes, which answer requests without messages.

Each worker of the pool answers as the client behind a message does
(:class:`~flwr_fbo.clients.tuning_client.TuningClient`), from the agent's journal on the disk. So it
does not matter which worker answers, but an agent is asked in the worker that has its data already,
unless another worker has nothing to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from flwr_fbo.clients.session import begin_session
from flwr_fbo.clients.tuning_client import EvaluationOptions, TuningClient
from flwr_fbo.core.children import MOST_PARALLEL, can_fork, processors, seed_libraries
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.flower_versions import UserConfig
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.simulation.in_process_grid import LateFirst, agents_nodes
from flwr_fbo.simulation.worker_pool import Answer, WorkerPool
from flwr_fbo.tasks import Partition, Task

#: The environment variable that sets the number of processes.
PROCESSES = "FLWR_FBO_PROCESSES"
#: Part of the seeds of libraries' generators, apart from those of the agents and evaluations.
STREAM = 2**31 + 1


class ProcessAgents:
    """All agents of a simulation, which several processes ask at the same time.

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
        self._client = _client(task, journals, options)
        self._late = LateFirst()
        count = min(number_of_processes(), agents)

        def make_answer() -> Answer:
            begin_session()
            if count > 1:
                _use_one_processor()
            return _Worker(_client(task, journals, options), agents).answer

        self._pool = WorkerPool(count, make_answer)

    @property
    def processes(self) -> int:
        """Return how many agents can be at work at the same time."""
        return self._pool.count

    @property
    def nodes(self) -> range:
        """Return the number of each agent's node, by agent."""
        return agents_nodes(self._agents)

    @property
    def share_a_journal(self) -> bool:
        """Return False: each agent has a journal of its own, which any process can read."""
        return False

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

        Nobody is asked after ``seconds``, and some seconds later the replies of those who were
        asked are no longer waited for. Agents whose turn did not come come first in the next round.
        """
        replies: dict[int, Reply] = {}

        def take(agent: int, reply: Reply) -> None:
            replies[agent] = reply
            on_reply(len(replies))

        turn = self._late.order(requests, int)
        left = self._pool.ask(setup, turn, lambda agent: (agent, requests[agent]), seconds, take)
        self._late.note(set(requests).difference(left), left)
        return {agent: replies[agent] for agent in requests if agent in replies}

    def update(self, history: RunHistory) -> None:
        """Add the evaluations that were made since the last call to a history."""
        history.refresh()

    def close(self) -> None:
        """End the processes; evaluations that are still under way count as never begun."""
        self._pool.close()


class _Worker:
    """What a worker of the pool does with a job."""

    def __init__(self, client: TuningClient, agents: int) -> None:
        self._client, self._agents = client, agents

    def answer(self, setup: Setup, job: tuple[int, Request]) -> Reply:
        """Return an agent's reply, as a message would bring it: its arrays as real numbers."""
        agent, request = job
        # A task should draw from its own generator. Those of libraries begin with the same numbers
        # in all workers, so that without this the noise of several agents would be the same.
        key = np.random.SeedSequence([setup.seed, STREAM, agent, request.round])
        seed_libraries(int(key.generate_state(1, np.uint64)[0] >> 1))
        node = {"partition-id": agent, "num-partitions": self._agents}
        partition = Partition(agent, self._agents, setup.seed, node)
        reply = self._client.answer_here(setup, request, partition)
        arrays = {name: np.asarray(array, np.float64) for name, array in reply.arrays.items()}
        words = {name: np.asarray(array, np.uint64) for name, array in reply.words.items()}
        return Reply(arrays, reply.declined, words)


def _client(task: Task, journals: Path, options: EvaluationOptions) -> TuningClient:
    """Return a client that is asked on behalf of all agents."""
    context = Context(
        run_id=0, node_id=0, node_config=UserConfig(), state=RecordDict(), run_config=UserConfig()
    )
    return TuningClient(context, task, journals, options)


def _use_one_processor() -> None:
    """Let the libraries of this worker compute in one thread, as Ray does.

    Otherwise as many threads would run as the square of the number of processors.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # for libraries that are loaded later
    from threadpoolctl import threadpool_limits  # which scikit-learn needs too

    threadpool_limits(1)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def number_of_processes() -> int:
    """Return how many processes the environment asks for; where unset, one for each processor."""
    text = os.environ.get(PROCESSES, "")
    if not text:
        return min(processors(), MOST_PARALLEL)
    with suppress(ValueError):
        if 1 <= int(text) <= MOST_PARALLEL:
            return int(text)
    raise SettingsError(
        f"the environment variable {PROCESSES} must be an integer from 1 to {MOST_PARALLEL}, but "
        f"is {text!r}"
    )


def why_no_processes() -> str:
    """Return why this process cannot fork workers, and what to do; empty where it can."""
    if not can_fork():
        return "this system cannot fork: use --engine inline, or ray"
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return (
            "this process has used CUDA, which no process that is forked from it can: use CUDA "
            "only in the task's own functions, or --engine ray or inline"
        )
    return ""
