"""The client that answers tuning messages: it decodes, lets the agent answer, and encodes.

A client object lives for one message. Two things outlive the message: the setup, in Flower's
``context.state``, and the agent's records, in the agent's journal. Every message makes a new agent
from these records, so the processes that answered earlier messages do not matter. Only what is slow
to make stays in the process: prepared data sets, decoded setups, and the lines of journals that
were read before (:func:`flwr_fbo.runs.files.journal.cached_journal`).

A client has no setting for the method of the run. The setup message names the kind of agent, the
run and the seed, and the registry of methods makes an agent of that kind.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context
from flwr.client import NumPyClient

from flwr_fbo import wire
from flwr_fbo.clients.evaluation_job import make_evaluator, seed_of
from flwr_fbo.clients.session import session
from flwr_fbo.core.evaluation import Evaluator, Records, ends_the_process
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.registry import method_of_agent
from flwr_fbo.methods.secure_sum import KINDS, SecurePlan
from flwr_fbo.methods.thompson.asynchronous import UNDER_WAY
from flwr_fbo.runs.files.journal import Journal, cached_journal, exclusive, journal_path
from flwr_fbo.runs.files.journal_check import JournalBusyError, JournalOwner
from flwr_fbo.runs.files.owner_secret import owner_secret
from flwr_fbo.runs.locations import agents_of, home, owners_books, run_directory
from flwr_fbo.tasks import Partition, Task, load

logger = logging.getLogger("flwr.fbo")

#: The record of ``context.state`` that holds the setup. One record, as a simulation copies the
#: state with every message.
SETUP_RECORD = "flwr-fbo.setup"
#: The numbers of prepared tasks and of decoded setups that one process keeps.
MOST_PREPARED, MOST_SETUPS = 512, 8
#: The number of agents whose files' names one process keeps.
MOST_FILES = 1 << 14

#: The word with which a node declines a request for more than its owner allows.
REFUSED = "refused"
#: Values of a setup with which agents make private themselves what they send.
LOCAL_PRIVACY = frozenset({"local-epsilon", "epsilon", "epsilon-per-reward", "epsilon-per-answer"})
#: The declining word for every error of an agent that does not trust the server.
NEUTRAL_WORD = "error"

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class EvaluationOptions:
    """How a client makes evaluations.

    Parameters
    ----------
    limit
        Seconds after which an evaluation is ended and counts as failed, as far as
        :func:`~flwr_fbo.core.time_limit.time_limit` can; None is no limit.
    isolated
        Whether every evaluation is made in a child process.
    durable
        Whether the secrets of secure sums must survive a power cut; not so in a simulation.
    """

    limit: float | None = None
    isolated: bool = False
    durable: bool = True


class TuningClient(NumPyClient):
    """A NumPyClient of Flower that passes tuning messages to the agent of one party.

    Parameters
    ----------
    context : flwr.app.Context
        Flower's context. Its node configuration must have ``partition-id`` and
        ``num-partitions``, and may have the owner's limits (:mod:`flwr_fbo.methods.owner`).
    tuned : Task, type or str
        What is tuned: a :class:`~flwr_fbo.Task`, a function with :func:`~flwr_fbo.task`, or the
        name of either.
    journals : Path, optional
        The folder of the agents' journals. The default is a folder below ``FLWR_FBO_HOME`` (or
        ``~/.flwr-fbo``) that is named after the run.
    options : EvaluationOptions, optional
        How evaluations are made; simulations set these options.

    Examples
    --------
    An app whose clients only tune, run by an in-process grid:

    >>> import tempfile
    >>> from pathlib import Path
    >>> from flwr.clientapp import ClientApp
    >>> from flwr_fbo import Float, RandomSearch, TuningClient, task
    >>> from flwr_fbo.simulation.in_process_grid import InProcessGrid
    >>> folder = Path(tempfile.mkdtemp())
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> def client_fn(context):
    ...     return TuningClient(context, hill, folder / "agents").to_client()
    >>> app = ClientApp(client_fn=client_fn)
    >>> strategy = RandomSearch(space=hill.space, num_agents=2, run_dir=folder)
    >>> strategy.start(InProcessGrid(app, nodes=2), num_rounds=3).rounds
    3
    """

    def __init__(
        self,
        context: Context,
        tuned: Task | type[Task] | str,
        journals: Path | None = None,
        options: EvaluationOptions | None = None,
    ) -> None:
        self._state = context.state
        self._tuned = tuned
        self._node = dict(context.node_config)
        self._journals, self._options = journals, options or EvaluationOptions()

    @cached_property
    def _task(self) -> Task:
        """Return the task."""
        # Imported within fit and not in __init__, so that an error of the import is declined.
        return task_object(self._tuned)

    def get_properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the property that says that this client takes part in tuning."""
        return {wire.MARK: wire.SCHEMA}

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Answer one message; of an error, the reply holds the class only."""
        number, *shapes = wire.readable_part(config)
        try:
            partition = partition_of(self._node)
            instruction = wire.decode_instruction(parameters, config)
            if instruction.setup is not None:
                self._accept(instruction.setup)
                return wire.encode_reply(Reply(), -1, self._claim(instruction.setup, partition))
            setup = self._setup()
            # A resumed run has another setup, and a node that restarted has none.
            if setup is None or setup.digest != instruction.digest:
                needs = Reply(declined=wire.NEEDS_SETUP)
                return wire.encode_reply(needs, number, None, *shapes)
            request = instruction.request
            assert request is not None
            partition = replace(partition, seed=setup.seed)
            reply = self._answer(setup, request, partition)
            return wire.encode_reply(reply, number, None, *shapes)
        except (Exception, SystemExit) as error:
            if ends_the_process(error):
                raise
            reply = self._declining(error, self._setup())
            return wire.encode_reply(reply, number, None, *shapes)

    def answer_here(self, setup: Setup, request: Request, partition: Partition) -> Reply:
        """Return the reply to a request that came without a message, as in a simulation."""
        try:
            return self._answer(setup, request, partition)
        except (Exception, SystemExit) as error:
            if ends_the_process(error):
                raise
            return self._declining(error, setup)

    def _declining(self, error: BaseException, setup: Setup | None) -> Reply:
        """Return the reply that declines because of an error."""
        # The text of an error may quote the party's data, so it stays in the party's own log.
        logger.error("an agent could not answer", exc_info=error)
        return Reply(declined=self._word_for(error, setup))

    def _word_for(self, error: BaseException, setup: Setup | None) -> str:
        """Return the declining word for an error: its class, or a neutral word."""
        # An agent that does not trust the server reveals nothing that its epsilon does not cover,
        # and even the class of an error may depend on the data.
        trusts_nobody = LOCAL_PRIVACY & set(setup.values if setup else {})
        trusts_nobody |= {"secure"} if setup and SecurePlan.of(setup) else set()
        limited = {
            "epsilon-limit", "epsilon-limit-reward", "secure-only", "secure-peers"
        } & set(self._node)  # fmt: skip
        if not (trusts_nobody or limited):
            return type(error).__name__
        # That an evaluation still runs shows in any case: its round had no reply.
        return UNDER_WAY if isinstance(error, JournalBusyError) else NEUTRAL_WORD

    def check(self, setup: Setup) -> None:
        """Raise ValueError for a setup that cannot work."""
        method_of_agent(setup.kind)  # raises for a kind of agent that this node does not know
        if setup.space != self._task.space:
            raise ValueError(
                "the search space of the server must be that of this agent's task "
                f"{self._task.name!r}, but the two differ"
            )
        self._journal_folder(setup)  # raises for a name of a run that is no name of a folder

    def _accept(self, setup: Setup) -> None:
        """Check a setup and store it in the state."""
        self.check(setup)
        self._state[SETUP_RECORD] = ConfigRecord(
            {"digest": setup.digest, "setup": json.dumps(setup.to_dict())}
        )

    def _claim(self, setup: Setup, partition: Partition) -> wire.Claim:
        """Return the agent's name, and the secret by which its owner can return."""
        journal = journal_path(self._journal_folder(setup), partition.index)
        return wire.Claim(str(partition.index), owner_secret(journal))

    def _setup(self) -> Setup | None:
        """Return the stored setup; None before the first setup message."""
        record = self._state.get(SETUP_RECORD)
        if not isinstance(record, ConfigRecord):
            return None
        digest = str(record["digest"])
        if digest not in _setups:
            _keep(_setups, digest, Setup.from_dict(json.loads(str(record["setup"]))), MOST_SETUPS)
        return _setups[digest]

    def _journal_folder(self, setup: Setup) -> Path:
        """Return the folder of the agents' journals in this run."""
        return agents_of(run_directory(setup.run)) if self._journals is None else self._journals

    def _answer(self, setup: Setup, request: Request, partition: Partition) -> Reply:
        """Return the agent's reply, while this process holds the lock of the agent's journal."""
        path, ledger, books = files_of(self._journal_folder(setup), partition.index, home())
        with contextlib.ExitStack() as stack:
            owner = Owner(f"agent {partition.index}", self._node, ledger, books, stack)
            if request.kind in KINDS:
                from flwr_fbo.clients.secure import answer_leg

                records = partial(self._records_of_leg, setup, partition, path)
                durable = self._options.durable
                return answer_leg(setup, request, partition, owner, path, records, durable)
            if owner.secure_only and request.expects:
                return Reply(declined=REFUSED)
            wait = owner.answer_within(setup.answer_within)
            if setup.equal_waits and wait != setup.answer_within:
                raise SettingsError(
                    "node-config `answer-within` must be left unset in a private run, but the run "
                    f"has {_seconds_text(setup.answer_within)} and this node "
                    f"{_seconds_text(wait)}: the time that one agent takes would change what other "
                    "agents know at the next request"
                )
            limit = owner.evaluation_limit(wait)
            if wait is not None:
                return self._answer_early(setup, request, partition, owner, wait, limit, path)
            return self._agent(setup, request.round, partition, owner, path).answer(request)

    def _agent(
        self, setup: Setup, round: int, partition: Partition, owner: Owner, path: Path
    ) -> Agent:
        """Return the agent that answers a request of a round, made anew from its records."""
        records, evaluator = self._open_records(setup, partition, path, owner.stack)
        evaluator.close_unfinished(round)
        seed = (*seed_of(partition), 1)
        agent: Agent = method_of_agent(setup.kind).make_agent(
            setup, evaluator, records, seed, owner
        )
        return agent

    def _records_of_leg(self, setup: Setup, partition: Partition, path: Path) -> Records:
        """Return an agent's journal for a leg of a secure sum, which only reads the journal."""
        return Journal(path, JournalOwner(setup.identity, partition.index), reading=True)

    def _open_records(
        self, setup: Setup, partition: Partition, path: Path, stack: contextlib.ExitStack
    ) -> tuple[Records, Evaluator]:
        """Return an agent's journal, locked until the message is answered, and its evaluator."""
        stack.enter_context(exclusive(path))
        journal = cached_journal(path, JournalOwner(setup.identity, partition.index))
        # On a full disk an evaluation could not be recorded, and would have to be repeated.
        journal.reserve()
        return journal, self._evaluator(setup, journal, partition)

    def _evaluator(self, setup: Setup, journal: Records, partition: Partition) -> Evaluator:
        """Return the evaluator of an agent's own task and data."""
        return make_evaluator(
            _prepared(self._task, partition, self._journal_folder(setup)),
            setup.space, partition, journal, Evaluator,
            in_children=self._options.isolated, limit=self._options.limit, session=session(),
            most_at_once=Owner("", self._node).parallel_limit,
        )  # fmt: skip

    def _answer_early(
        self,
        setup: Setup,
        request: Request,
        partition: Partition,
        owner: Owner,
        wait: float,
        limit: float | None,
        path: Path,
    ) -> Reply:
        """Return the reply after at most ``wait`` seconds, while an evaluation may go on."""
        if not method_of_agent(setup.kind).answers_early:
            raise SettingsError(
                f"`answer-within` must be left unset for a {setup.kind!r} agent, but is "
                f"{wait:g}: its replies are evaluations"
            )
        from flwr_fbo.clients.background import answer_early

        return answer_early(self._task, setup, request, partition, owner, wait, limit, path)


@lru_cache(maxsize=MOST_FILES)
def files_of(folder: Path, agent: int, home: Path) -> tuple[Path, Path, Path]:
    """Return an agent's journal, its ledger in the run, and its owner's ledger below ``home``."""
    path = journal_path(folder, agent)
    return path, path.with_suffix(".privacy.jsonl"), owners_books(agent)


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
    """Return the partition of a node's agent, from the configuration of the node."""
    for key in ("partition-id", "num-partitions"):
        if not isinstance(node_config.get(key), int):
            raise ValueError(
                f"the node configuration must have an integer `{key}`, but got "
                f"{node_config.get(key)!r}; start the SuperNode with, for example, "
                "--node-config 'partition-id=0 num-partitions=2'"
            )
    index, count = int(node_config["partition-id"]), int(node_config["num-partitions"])
    if not 0 <= index < count:
        raise ValueError(
            f"`partition-id` must be in [0, `num-partitions`), but got {index} of {count}"
        )
    return Partition(index, count, 0, dict(node_config))


def _seconds_text(seconds: float | None) -> str:
    """Return a value of ``answer-within`` as it is written."""
    return "'never'" if seconds is None else f"{seconds:g}"


#: What this process keeps between messages, the entries that were used last at the end.
_tasks: OrderedDict[tuple[Any, ...], Task] = OrderedDict()
_setups: OrderedDict[str, Setup] = OrderedDict()


def _prepared(task: Task, partition: Partition, journals: Path) -> Task:
    """Return the task with this agent's data, prepared at most once in a process."""
    identity = (type(task).__qualname__, task.name, task.settings)
    # The folder of journals stands for the run, so that each run prepares its own data.
    key = (*identity, str(journals), partition.index, partition.count, partition.seed)
    if key not in _tasks:
        prepared = copy.copy(task)
        prepared.prepare(partition)
        _keep(_tasks, key, prepared, MOST_PREPARED)
    _tasks.move_to_end(key)
    return _tasks[key]


def _keep(cache: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Store a value in a cache, and drop the oldest entries beyond ``most``."""
    cache[key] = value
    while len(cache) > most:
        cache.popitem(last=False)
