"""The NumPyClient that all strategies share: decode, let the agent answer, encode.

A client object lives for one message. What must last is kept in two places: the setup in
Flower's ``context.state``, and the agent's records in its journal, a file of the agent's own.
What is costly and the same for all messages is kept by the process: prepared data sets, decoded
setups, and the lines of journals that it has read (:func:`flwr_fbo.runs.journal.current`). The agent
itself is not: it is made anew from its records, so that which processes answered before cannot
make a difference.
"""

from __future__ import annotations

import copy
import json
import logging
from abc import abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context
from flwr.client import NumPyClient

from flwr_fbo import wire
from flwr_fbo.clients.evaluation_job import evaluator_of, identity_of
from flwr_fbo.clients.owner_limits import answer_within, evaluation_limit
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.journal import Journal, current, exclusive, journal_path
from flwr_fbo.tasks.task import Partition, Task

logger = logging.getLogger("flwr.fbo")

#: Where an agent's setup lives in ``context.state``, in one piece: a simulation copies the state
#: to and fro with every message.
SETUP_RECORD = "flwr-fbo.setup"
#: Prepared tasks and decoded setups kept by one process.
MOST_PREPARED, MOST_SETUPS = 512, 8

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Workplace:
    """What a client is given by whoever starts it: its task, and where to keep its journal."""

    task: Task
    journals: Path
    seed: int = 0
    #: Seconds after which agents answer without the evaluation under way; None waits for it.
    answer_within: float | None = None


class FBOClient(NumPyClient):
    """One message's view of an agent. Subclasses say which agent it is."""

    kind: ClassVar[str]

    def __init__(self, context: Context, workplace: Workplace) -> None:
        self._state = context.state
        self._workplace = workplace
        self._partition = partition_of(context, workplace.seed)
        self._journal = journal_path(workplace.journals, self._partition.index)

    @abstractmethod
    def make_agent(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> Agent:
        """The agent that answers requests under this setup."""

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Answer one message. Whatever goes wrong is told to the server by its class only."""
        number = config.get("round")
        round_number = number if isinstance(number, int) else -1
        try:
            instruction = wire.decode_instruction(parameters, config)
            if instruction.setup is not None:
                self._accept(instruction.setup)
                return wire.encode_reply(Reply(), -1, agent=str(self._partition.index))
            setup = self._setup()
            if setup is None or setup.digest != instruction.presumes:
                return wire.encode_reply(Reply(declined=wire.NEEDS_SETUP), round_number)
            assert instruction.request is not None
            return wire.encode_reply(self._answer(setup, instruction.request), round_number)
        except Exception as error:
            logger.exception("agent %s could not answer", self._partition.index)
            return wire.encode_reply(Reply(declined=type(error).__name__), round_number)

    def _accept(self, setup: Setup) -> None:
        if setup.kind != self.kind:
            raise ValueError(f"this client is a {self.kind!r} agent, not a {setup.kind!r} one")
        if setup.space != self._workplace.task.space:
            raise ValueError("the server's search space is not that of this agent's task")
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

    def _answer(self, setup: Setup, request: Request) -> Reply:
        """The agent's answer, while nobody else may touch its journal."""
        patience = answer_within(self._partition.config, self._workplace.answer_within)
        limit = evaluation_limit(self._partition.config, patience)
        if patience is not None:
            return self._answer_meanwhile(setup, request, patience, limit)
        with exclusive(self._journal):
            journal = current(self._journal)
            journal.reserve()  # what could not be recorded must not be paid for
            return self._agent(setup, journal).answer(request)

    def _answer_meanwhile(
        self, setup: Setup, request: Request, patience: float, limit: float | None
    ) -> Reply:
        """The agent's answer after so many seconds at most, while an evaluation goes on."""
        raise SettingsError(
            f"`answer-within` must be left unset for a {self.kind!r} agent, but is "
            f"{patience:g}: its replies are evaluations"
        )

    def _agent(self, setup: Setup, journal: Journal) -> Agent:
        task = _prepared(self._workplace.task, self._partition, self._workplace.journals)
        evaluator = evaluator_of(task, setup.space, self._partition, journal, Evaluator)
        return self.make_agent(setup, evaluator, journal, (*identity_of(self._partition), 1))

    @property
    def privacy_ledger(self) -> Path:
        """The file of the agent's own budget, beside its journal."""
        return self._journal.with_suffix(".privacy.jsonl")


def partition_of(context: Context, seed: int) -> Partition:
    """Which agent a node is, from its node configuration."""
    config = context.node_config
    for key in ("partition-id", "num-partitions"):
        if not isinstance(config.get(key), int):
            raise ValueError(
                f"the node configuration must have an integer `{key}`, but got "
                f"{config.get(key)!r}; start the SuperNode with "
                "--node-config 'partition-id=0 num-partitions=2'"
            )
    index, count = int(config["partition-id"]), int(config["num-partitions"])
    if not 0 <= index < count:
        raise ValueError(
            f"`partition-id` must be in [0, `num-partitions`), but got {index} of {count}"
        )
    return Partition(index, count, seed, dict(config))


_tasks: OrderedDict[tuple[Any, ...], Task] = OrderedDict()
_setups: OrderedDict[str, Setup] = OrderedDict()


def _prepared(task: Task, partition: Partition, journals: Path) -> Task:
    """The task with this agent's data, prepared at most once a process."""
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
