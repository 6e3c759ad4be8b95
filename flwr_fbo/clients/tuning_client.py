"""The client that answers tuning messages: decode, let the agent answer, encode.

A client object lives for one message. What must last is kept in two places: the setup in
Flower's ``context.state``, and the agent's records in its journal, a file of the agent's own.
What is costly and the same for all messages is kept by the process: prepared data sets, decoded
setups, and the lines of journals that it has read (:func:`flwr_fbo.runs.files.journal.current`).
The agent itself is made anew from its records, so that it makes no difference which processes
answered before.

A client is never told which method the server runs. The setup message names the kind of agent,
the run and the seed, and the registry of methods knows how to make an agent of that kind.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context
from flwr.client import NumPyClient

from flwr_fbo import wire
from flwr_fbo.clients.evaluation_job import evaluator_of, identity_of
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.registry import method_of_agent
from flwr_fbo.runs.files.journal import current, exclusive, journal_path
from flwr_fbo.runs.locations import agents_of, run_directory
from flwr_fbo.tasks import Partition, Task, load

logger = logging.getLogger("flwr.fbo")

#: Where an agent's setup lives in ``context.state``, in one piece: a simulation copies the state
#: to and fro with every message.
SETUP_RECORD = "flwr-fbo.setup"
#: Prepared tasks and decoded setups kept by one process.
MOST_PREPARED, MOST_SETUPS = 512, 8

K = TypeVar("K")
V = TypeVar("V")


class TuningClient(NumPyClient):
    """One party's agent behind Flower's NumPyClient.

    Parameters
    ----------
    context
        Flower's context; its node configuration must have ``partition-id`` and
        ``num-partitions``, and may have the owner's limits (:mod:`flwr_fbo.methods.owner`).
    tuned
        What is tuned: a :class:`~flwr_fbo.Task`, a function with :func:`~flwr_fbo.task`, or the
        name of either.
    journals
        The folder of the agents' journals. The default is a folder below ``FLWR_FBO_HOME`` (or
        ``~/.flwr-fbo``) that is named after the run.

    Examples
    --------
    A ``client_fn`` of an app that only tunes::

        def client_fn(context: Context) -> Client:
            return TuningClient(context, tuned).to_client()

        app = ClientApp(client_fn=client_fn)
    """

    def __init__(
        self, context: Context, tuned: Task | type[Task] | str, journals: Path | None = None
    ) -> None:
        self._state = context.state
        self._task = task_object(tuned)
        self._node = dict(context.node_config)
        self._journals = journals

    def get_properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Say that this client takes part in tuning, and in which version of the messages."""
        return {wire.MARK: wire.SCHEMA}

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Answer one message. Whatever goes wrong, the server learns its class only."""
        number = config.get("round")
        round_number = number if isinstance(number, int) else -1
        try:
            partition = partition_of(self._node)
            instruction = wire.decode_instruction(parameters, config)
            if instruction.setup is not None:
                self._accept(instruction.setup)
                return wire.encode_reply(Reply(), -1, agent=str(partition.index))
            setup = self._setup()
            if setup is None or setup.digest != instruction.digest:
                return wire.encode_reply(Reply(declined=wire.NEEDS_SETUP), round_number)
            assert instruction.request is not None
            partition = replace(partition, seed=setup.seed)
            return wire.encode_reply(
                self._answer(setup, instruction.request, partition), round_number
            )
        except Exception as error:
            logger.exception("an agent could not answer")
            return wire.encode_reply(Reply(declined=type(error).__name__), round_number)

    def _accept(self, setup: Setup) -> None:
        method_of_agent(setup.kind)  # an agent that nobody can make is refused now
        if setup.space != self._task.space:
            raise ValueError("the server's search space is not that of this agent's task")
        self._journal_folder(setup)
        self._state[SETUP_RECORD] = ConfigRecord(
            {"digest": setup.digest, "setup": json.dumps(setup.to_dict())}
        )

    def _setup(self) -> Setup | None:
        record = self._state.get(SETUP_RECORD)
        if not isinstance(record, ConfigRecord):
            return None
        digest = str(record["digest"])
        if digest not in _setups:
            _keep(_setups, digest, Setup.from_dict(json.loads(str(record["setup"]))), MOST_SETUPS)
        return _setups[digest]

    def _journal_folder(self, setup: Setup) -> Path:
        return agents_of(run_directory(setup.run)) if self._journals is None else self._journals

    def _answer(self, setup: Setup, request: Request, partition: Partition) -> Reply:
        """Return the agent's answer, while nobody else may touch its journal."""
        path = journal_path(self._journal_folder(setup), partition.index)
        with contextlib.ExitStack() as stack:
            owner = Owner(
                f"agent {partition.index}", self._node, path.with_suffix(".privacy.jsonl"), stack
            )
            patience = owner.answer_within(setup.answer_within)
            limit = owner.evaluation_limit(patience)
            if patience is not None:
                return self._answer_early(setup, request, partition, owner, patience, limit, path)
            stack.enter_context(exclusive(path))
            journal = current(path)
            journal.reserve()  # what could not be recorded must not be paid for
            return self._agent(setup, journal, partition, owner).answer(request)

    def _agent(self, setup: Setup, journal: Records, partition: Partition, owner: Owner) -> Agent:
        task = _prepared(self._task, partition, self._journal_folder(setup))
        evaluator = evaluator_of(task, setup.space, partition, journal, Evaluator)
        method = method_of_agent(setup.kind)
        return method.make_agent(setup, evaluator, journal, (*identity_of(partition), 1), owner)

    def _answer_early(
        self,
        setup: Setup,
        request: Request,
        partition: Partition,
        owner: Owner,
        patience: float,
        limit: float | None,
        path: Path,
    ) -> Reply:
        """Return the answer after ``patience`` seconds at most, while an evaluation goes on."""
        if not method_of_agent(setup.kind).answers_early:
            raise SettingsError(
                f"`answer-within` must be left unset for a {setup.kind!r} agent, but is "
                f"{patience:g}: its replies are evaluations"
            )
        from flwr_fbo.clients.background import answer_early

        return answer_early(self._task, setup, request, partition, owner, patience, limit, path)


def task_object(tuned: Task | type[Task] | str) -> Task:
    """Return the task of a name, a class or an object."""
    if isinstance(tuned, str):
        return load(tuned)
    if isinstance(tuned, type) and issubclass(tuned, Task):
        return tuned()
    if isinstance(tuned, Task):
        return tuned
    raise SettingsError(
        "what is tuned must be a Task, a function with @task, or the name of either, "
        f"but is {tuned!r}"
    )


def partition_of(node_config: Mapping[str, Any]) -> Partition:
    """Return which agent a node is, from its node configuration."""
    for key in ("partition-id", "num-partitions"):
        if not isinstance(node_config.get(key), int):
            raise ValueError(
                f"the node configuration must have an integer `{key}`, but got "
                f"{node_config.get(key)!r}; start the SuperNode with "
                "--node-config 'partition-id=0 num-partitions=2'"
            )
    index, count = int(node_config["partition-id"]), int(node_config["num-partitions"])
    if not 0 <= index < count:
        raise ValueError(
            f"`partition-id` must be in [0, `num-partitions`), but got {index} of {count}"
        )
    return Partition(index, count, 0, dict(node_config))


_tasks: OrderedDict[tuple[Any, ...], Task] = OrderedDict()
_setups: OrderedDict[str, Setup] = OrderedDict()


def _prepared(task: Task, partition: Partition, journals: Path) -> Task:
    """Return the task with this agent's data, prepared at most once a process."""
    what = (type(task).__qualname__, task.name, task.settings)
    key = (*what, str(journals), partition.index, partition.count, partition.seed)
    if key not in _tasks:
        mine = copy.copy(task)
        mine.prepare(partition)
        _keep(_tasks, key, mine, MOST_PREPARED)
    _tasks.move_to_end(key)
    return _tasks[key]


def _keep(cache: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    cache[key] = value
    while len(cache) > most:
        cache.popitem(last=False)
