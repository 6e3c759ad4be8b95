"""A process of its own for evaluations that take longer than a message may.

On Flower a message is a process (in a deployment) or a call (in a simulation); an evaluation
that outlasts it needs a process that does too. The *worker* is started by the message that asks
for work, detached from it: in a session of its own, with init as its parent, so that neither
Ctrl-C nor the end of the message, the SuperNode or the run ends it.

Beside the journal ``agent-0000.jsonl``, which is the worker's alone to write, there are

==========================  ================================================================
file                        what it holds
==========================  ================================================================
``agent-0000.jsonl``'s      lock: held by the worker from before it starts until it ends,
                            however that comes about: whoever can take it knows that there
                            is no worker. It is the same lock that a client takes which
                            evaluates within its message (:func:`flwr_fbo.runs.files.journal.exclusive`)
``agent-0000.job``          the request being worked on, so that a worker that died is
                            followed by another; and the class of the error if it failed
``agent-0000.worker``       the worker's process id
``agent-0000.worker.log``   what the worker and the task print
``agent-0000.sent.jsonl``   records of messages (vectors made private): the message's to write
==========================  ================================================================
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.clients.evaluation_job import (
    EvaluationJob,
    evaluation_job,
    identity_of,
    job_path,
    worker_path,
)
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.settings import Scalar, SettingsError
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.methods.thompson.asynchronous import AsynchronousAgent
from flwr_fbo.methods.thompson.local_privacy import with_local_privacy
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.checkpoint import Checkpoint
from flwr_fbo.runs.files.journal import Journal, JournalBusyError, exclusive, take_lock
from flwr_fbo.tasks import Partition, Task

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
#: Leaves a process that nobody waits for behind, and ends.
DETACH = "import os, sys\nif os.fork() == 0:\n os.setsid()\n os.execv(sys.argv[1], sys.argv[1:])"


def sent_path(journal: Path) -> Path:
    """The journal of what an asynchronous agent sent."""
    return journal.with_suffix(".sent.jsonl")


#: What reading a file that is no job may raise.
_DAMAGE = (RunDirectoryError, LookupError, TypeError, AttributeError, ValueError, OverflowError)


class JobError(ValueError):
    """A job file does not hold a job."""


def _is_scalar(value: object) -> bool:
    return isinstance(value, (bool, int, str)) or (
        isinstance(value, float) and math.isfinite(value)
    )


@dataclass(frozen=True)
class JobRecord:
    """The request that is worked on, under which setup, and what went wrong."""

    request: Request
    setup: str
    trouble: str = ""

    def save(self, path: Path) -> None:
        """Put it in place of the last job, whole or not at all."""
        request = vars(self.request) | {
            "expects": {name: list(shape) for name, shape in self.request.expects.items()}
        }
        Checkpoint(path).save({"setup": self.setup, "trouble": self.trouble, "request": request})
        path.chmod(0o600)  # it may hold another agent's vector

    @classmethod
    def load(cls, path: Path) -> JobRecord | None:
        """The job of a file; None where there is none."""
        try:
            state = Checkpoint(path).load()
            return None if state is None else cls._of(state)
        except _DAMAGE as error:
            raise JobError(f"{path} does not hold a job: {error}") from None

    @classmethod
    def _of(cls, state: Mapping[str, Any]) -> JobRecord:
        said = state["request"]
        expects = {name: tuple(map(int, shape)) for name, shape in said["expects"].items()}
        values: dict[str, Scalar] = {str(k): v for k, v in said["values"].items()}
        if not all(map(_is_scalar, values.values())):
            raise ValueError("a value is no scalar")
        arrays: dict[str, Array] = {str(k): np.asarray(a) for k, a in said["arrays"].items()}
        if any(a.dtype != np.float64 for a in arrays.values()):
            raise ValueError("an array does not hold numbers")
        request = Request(str(said["kind"]), int(said["round"]), values, arrays, expects)
        return cls(request, str(state["setup"]), str(state["trouble"]))


class ProcessWork:
    """The background work of one agent, in a process of its own; see :class:`flwr_fbo.methods.thompson.asynchronous.BackgroundWork`.

    Only one message of an agent is answered at a time, and only messages start workers.
    """

    def __init__(
        self, journal: Path, setup: str, prepare: Callable[[Request], EvaluationJob]
    ) -> None:
        self._journal, self._setup, self._prepare = journal, setup, prepare

    def busy(self) -> bool:
        """See :class:`BackgroundWork`."""
        return busy(self._journal)

    def begin(self, request: Request) -> None:
        """See :class:`BackgroundWork`."""
        prepared = self._prepare(request)
        with _locked(self._journal) as lock:
            worker_path(self._journal).unlink(missing_ok=True)
            JobRecord(request, self._setup).save(job_path(self._journal))
            _start(prepared, lock)

    def wait(self, seconds: float) -> None:
        """See :class:`BackgroundWork`."""
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
        while (left := deadline - time.monotonic()) > 0 and self.busy():
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def unfinished(self) -> Request | None:
        """See :class:`BackgroundWork`; a job of another setup is none of this run's."""
        job = self._job()
        return None if job is None else job.request

    def trouble(self) -> str:
        """See :class:`BackgroundWork`."""
        job = self._job()
        return "" if job is None else job.trouble

    def _job(self) -> JobRecord | None:
        job = JobRecord.load(job_path(self._journal))
        return job if job is not None and job.setup == self._setup else None


@contextlib.contextmanager
def _locked(journal: Path) -> Iterator[int]:
    """The journal's lock; it goes on with whoever inherits the descriptor."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(journal, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        take_lock(descriptor, journal)
        yield descriptor
    finally:
        os.close(descriptor)


def busy(journal: Path) -> bool:
    """Whether a worker is at work on a journal."""
    try:
        with _locked(journal):
            return False
    except JournalBusyError:
        return True


def _start(prepared: EvaluationJob, lock: int) -> None:
    """Start a worker that holds the lock from its first moment."""
    if sys.platform == "win32":
        raise SettingsError("`answer-within` must be left unset on Windows: it needs fork")
    log = prepared.journal.with_suffix(".worker.log")
    with tempfile.TemporaryFile() as parcel, os.fdopen(_private(log), "ab") as said:
        pickle.dump(prepared, parcel)
        parcel.flush()
        parcel.seek(0)
        worker = [sys.executable, "-m", "flwr_fbo.clients.worker", str(lock), str(parcel.fileno())]
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", DETACH, *worker],
            pass_fds=(lock, parcel.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            check=True,
        )


def _private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def stop(journal: Path) -> None:
    """Kill the worker of a journal, if there is one; its evaluation can be made again."""
    while busy(journal):
        with contextlib.suppress(OSError, ValueError):
            # It wrote its id while it held the lock, and it holds the lock.
            os.kill(int(worker_path(journal).read_text()), signal.SIGKILL)
        time.sleep(FIRST_PAUSE)


def settle(journals: Sequence[Path], give_up: Callable[[], bool]) -> None:
    """Wait for all workers; kill them once ``give_up`` says so, or when interrupted."""
    try:
        while (left := [path for path in journals if busy(path)]) and not give_up():
            time.sleep(LONGEST_PAUSE / 5)
    finally:
        for path in journals if sys.exc_info()[0] else left:
            stop(path)


def answer_early(
    task: Task,
    setup: Setup,
    request: Request,
    partition: Partition,
    owner: Owner,
    patience: float,
    limit: float | None,
    journal: Path,
) -> Reply:
    """Return an agent's answer after ``patience`` seconds at most, while an evaluation goes on.

    The journal is the worker's to write. What is sent has a journal of its own, so that a
    message never waits for a worker.
    """

    def agent_now() -> ThompsonAgent:
        known = Journal(journal, reading=True)
        evaluator = Evaluator(setup.space, _evaluate_nothing, known)
        return ThompsonAgent(setup, evaluator, known, (*identity_of(partition), 1))

    def prepare(work: Request) -> EvaluationJob:
        return evaluation_job(journal, setup, work, task, partition, limit)

    with exclusive(sent_path(journal)):
        sent = Journal(sent_path(journal))
        sent.reserve()
        work = ProcessWork(journal, setup.digest, prepare)
        agent = AsynchronousAgent(agent_now, work, patience)
        records = _OldAndNew(Journal(journal, reading=True), sent)
        return with_local_privacy(agent, setup, records, owner).answer(request)


def _evaluate_nothing(params: Mapping[str, Any], rng: np.random.Generator) -> float:
    raise RuntimeError("an asynchronous agent evaluates in its worker only")


class _OldAndNew:
    """Records that are read from two journals and added to the second."""

    def __init__(self, before: Records, after: Records) -> None:
        self._before, self._after = before, after

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Add a record to the second journal."""
        self._after.append(kind, record)

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of a kind from both journals."""
        return [*self._before.read(kind), *self._after.read(kind)]
