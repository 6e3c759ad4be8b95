"""Worker processes for evaluations that take longer than a message.

On Flower a message is a process (in a deployment) or a call (in a simulation). An evaluation that
outlasts the message needs a process of its own, the *worker*. The message that asks for the work
starts the worker in a session of its own with init as its parent, so neither Ctrl-C nor the end
of the message, of the SuperNode or of the run ends the worker.

Only the worker writes to the journal ``agent-0000.jsonl``. Beside the journal there are these:

=============================  =============================================================
file                           content
=============================  =============================================================
lock of ``agent-0000.jsonl``   held by the worker from before it starts until it ends, even
                               by a crash: a process that gets the lock knows that no worker
                               runs. An agent that evaluates within its message takes the same
                               lock (:func:`flwr_fbo.runs.files.journal.exclusive`)
``agent-0000.jsonl.head``      how far the journal had come, written by the worker
``agent-0000.job``             the request of the worker, so that another worker can continue
                               after a crash, and the class of the error if the work failed
``agent-0000.worker``          the process id of the worker
``agent-0000.worker.log``      what the worker and the task print
``agent-0000.sent.jsonl``      records of what was sent (private vectors), written by messages
=============================  =============================================================
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
    job_owner,
    job_path,
    seed_of,
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
from flwr_fbo.runs.files.journal import Journal, exclusive, take_lock
from flwr_fbo.runs.files.journal_check import JournalBusyError, JournalOwner
from flwr_fbo.tasks import Partition, Task

#: Seconds between two looks at a worker: short at first, for quick evaluations.
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
#: A program that forks, starts the worker in a new session, and ends. init adopts the worker.
DETACH = "import os, sys\nif os.fork() == 0:\n os.setsid()\n os.execv(sys.argv[1], sys.argv[1:])"


def sent_path(journal: Path) -> Path:
    """Return the journal of what an asynchronous agent has sent."""
    return journal.with_suffix(".sent.jsonl")


# -- the job file ------------------------------------------------------------------------------

#: The errors that a damaged job file may raise.
_DAMAGED = (RunDirectoryError, LookupError, TypeError, AttributeError, ValueError, OverflowError)


class JobError(ValueError):
    """An error for a job file that does not hold a job."""


def _is_scalar(value: object) -> bool:
    """Return whether a value may stand in a request."""
    return isinstance(value, (bool, int, str)) or (
        isinstance(value, float) and math.isfinite(value)
    )


@dataclass(frozen=True)
class JobRecord:
    """The content of a job file.

    Parameters
    ----------
    request
        The request of the worker.
    setup
        The setup and the agent that the request belongs to (:func:`job_owner`).
    error
        The class of the error that ended the work; empty without an error.
    """

    request: Request
    setup: str
    error: str = ""

    def save(self, path: Path) -> None:
        """Write the job in place of the last job, whole or not at all."""
        request = vars(self.request) | {
            "expects": {name: list(shape) for name, shape in self.request.expects.items()}
        }
        Checkpoint(path).save({"setup": self.setup, "trouble": self.error, "request": request})
        path.chmod(0o600)  # the request may hold the vector of another agent

    @classmethod
    def load(cls, path: Path) -> JobRecord | None:
        """Return the job of a file; None without a file. Raise JobError for a damaged file."""
        try:
            state = Checkpoint(path).load()
            return None if state is None else cls._from_state(state)
        except _DAMAGED as error:
            raise JobError(f"{path} does not hold a job: {error}") from None

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> JobRecord:
        """Return the job of a stored state, after a check of all types."""
        stored = state["request"]
        expects = {name: tuple(map(int, shape)) for name, shape in stored["expects"].items()}
        values: dict[str, Scalar] = {str(k): v for k, v in stored["values"].items()}
        if not all(map(_is_scalar, values.values())):
            raise ValueError("a value of the request is not a scalar")
        arrays: dict[str, Array] = {str(k): np.asarray(a) for k, a in stored["arrays"].items()}
        if any(a.dtype != np.float64 for a in arrays.values()):
            raise ValueError("an array of the request is not float64")
        request = Request(str(stored["kind"]), int(stored["round"]), values, arrays, expects)
        return cls(request, str(state["setup"]), str(state["trouble"]))


# -- starting, watching and ending workers -----------------------------------------------------


class ProcessWork:
    """The background work of one agent, in a worker process.

    A :class:`~flwr_fbo.methods.thompson.asynchronous.BackgroundWork`. An agent answers one message
    at a time, and only messages start workers.

    Parameters
    ----------
    journal
        The journal of the agent.
    setup
        The setup and the agent (:func:`~flwr_fbo.clients.evaluation_job.job_owner`).
    prepare
        Returns the job for a request.
    """

    def __init__(
        self, journal: Path, setup: str, prepare: Callable[[Request], EvaluationJob]
    ) -> None:
        self._journal, self._setup, self._prepare = journal, setup, prepare

    def busy(self) -> bool:
        """Return whether a worker runs."""
        return has_worker(self._journal)

    def begin(self, request: Request) -> None:
        """Start a worker for a request; raise JournalBusyError while another worker runs."""
        job = self._prepare(request)
        with _locked(self._journal) as lock:
            # The id of the last worker must go before the lock passes to the new one.
            worker_path(self._journal).unlink(missing_ok=True)
            JobRecord(request, self._setup).save(job_path(self._journal))
            _start_worker(job, lock)

    def wait(self, seconds: float) -> None:
        """Wait until no worker runs, for at most this number of seconds."""
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
        while (left := deadline - time.monotonic()) > 0 and self.busy():
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def unfinished(self) -> Request | None:
        """Return the last request of this setup that a worker was started for."""
        job = self._job()
        return None if job is None else job.request

    def last_error(self) -> str:
        """Return the class of the error that ended the last work, or ``""`` without an error."""
        job = self._job()
        return "" if job is None else job.error

    def _job(self) -> JobRecord | None:
        """Return the stored job; None where it belongs to another setup, so to another run."""
        job = JobRecord.load(job_path(self._journal))
        return job if job is not None and job.setup == self._setup else None


@contextlib.contextmanager
def _locked(journal: Path) -> Iterator[int]:
    """Hold the lock of a journal; a process that inherits the descriptor keeps the lock."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(journal, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        take_lock(descriptor, journal)
        yield descriptor
    finally:
        os.close(descriptor)


def has_worker(journal: Path) -> bool:
    """Return whether a worker runs for a journal."""
    try:
        with _locked(journal):
            return False
    except JournalBusyError:
        return True


def _start_worker(job: EvaluationJob, lock: int) -> None:
    """Start a worker that holds the lock from its first moment."""
    if sys.platform == "win32":
        raise SettingsError("`answer-within` must be left unset on Windows: it needs fork")
    log = job.journal.with_suffix(".worker.log")
    with tempfile.TemporaryFile() as parcel, os.fdopen(_open_private(log), "ab") as output:
        pickle.dump(job, parcel)
        parcel.flush()
        parcel.seek(0)
        worker = [sys.executable, "-m", "flwr_fbo.clients.worker", str(lock), str(parcel.fileno())]
        # -I and -S: the program that only forks needs no site packages, and starts sooner.
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", DETACH, *worker],
            pass_fds=(lock, parcel.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # The worker must find the same task as this process.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            check=True,
        )


def _open_private(path: Path) -> int:
    """Open a file to append to, which only its owner can read; return the descriptor."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def kill_worker(journal: Path) -> None:
    """Kill the worker of a journal, if one runs; its evaluation can be repeated later."""
    while has_worker(journal):
        with contextlib.suppress(OSError, ValueError):
            # The worker holds the lock, so the id in its file is not that of another process.
            os.kill(int(worker_path(journal).read_text()), signal.SIGKILL)
        time.sleep(FIRST_PAUSE)


def wait_for_workers(journals: Sequence[Path], give_up: Callable[[], bool]) -> None:
    """Wait until no worker runs; kill the workers if ``give_up`` returns true or on Ctrl-C."""
    try:
        while (left := [path for path in journals if has_worker(path)]) and not give_up():
            time.sleep(LONGEST_PAUSE / 5)
    finally:
        for path in journals if sys.exc_info()[0] else left:
            kill_worker(path)


# -- one message -------------------------------------------------------------------------------


def answer_early(
    task: Task,
    setup: Setup,
    request: Request,
    partition: Partition,
    owner: Owner,
    answer_within: float,
    limit: float | None,
    journal: Path,
) -> Reply:
    """Return an agent's reply after at most ``answer_within`` seconds.

    An evaluation that still runs goes on in its worker. The worker writes to the journal, and the
    message writes to a journal of its own, so that a message never waits for a worker.
    """

    mine = JournalOwner(setup.identity, partition.index)

    def agent_now() -> ThompsonAgent:
        records = Journal(journal, mine, reading=True)
        evaluator = Evaluator(setup.space, _evaluate_nothing, records)
        return ThompsonAgent(setup, evaluator, records, (*seed_of(partition), 1))

    def prepare(work: Request) -> EvaluationJob:
        return evaluation_job(journal, setup, work, task, partition, limit)

    with exclusive(sent_path(journal)):
        sent = Journal(sent_path(journal), JournalOwner(setup.identity, f"{partition.index}, sent"))
        sent.reserve()
        work = ProcessWork(journal, job_owner(setup, partition), prepare)
        agent = AsynchronousAgent(agent_now, work, answer_within)
        records = _TwoJournals(Journal(journal, mine, reading=True), sent)
        return with_local_privacy(agent, setup, records, owner).answer(request)


def _evaluate_nothing(params: Mapping[str, Any], rng: np.random.Generator) -> float:
    """Raise RuntimeError: the agent of a message has no evaluation to make."""
    raise RuntimeError("an asynchronous agent evaluates in its worker only")


class _TwoJournals:
    """Records that are read from two journals, and added to the second one."""

    def __init__(self, first: Records, second: Records) -> None:
        self._first, self._second = first, second

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store a record in the second journal."""
        self._second.append(kind, record)

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of a kind from both journals, those of the first one first."""
        return [*self._first.read(kind), *self._second.read(kind)]
