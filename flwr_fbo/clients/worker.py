"""The process in which an asynchronous agent's evaluations are made.

:mod:`flwr_fbo.clients.background` starts it with the journal's lock and an evaluation job, both as open
files. It does what the agent's own ``work`` does within a message otherwise: the same points,
seeds and records. What is special here:

- Before an evaluation it records that it *begins*. An evaluation that was begun twice and has
  no record has ended two processes, and is given up: recorded as failed, and avoided.
- An evaluation that outlasts its owner's limit is recorded as failed, and the process ends.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from flwr_fbo.clients.evaluation_job import (
    EvaluationJob,
    evaluator_of,
    identity_of,
    job_path,
    worker_path,
)
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation, Evaluator
from flwr_fbo.core.space import Value
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.runs.files.journal import Journal
from flwr_fbo.tasks import load

logger = logging.getLogger("flwr_fbo.clients.worker")

#: How often an evaluation is begun before it is given up.
ATTEMPTS = 2
#: Kind of the record that says so.
BEGUN = "begun"
#: Seconds beyond the limit after which even code that never lets Python run is ended.
GRACE = 30.0
EXIT_FAILED, EXIT_LIMIT = 1, 3


class WorkerEvaluator(Evaluator):
    """Counts attempts, makes sure of room for the record, and keeps the owner's limit."""

    journal: Journal
    limit: float | None = None

    def __call__(self, unit: Array, *, round: int, play: int = 0, source: str = "") -> Evaluation:
        """See :class:`Evaluator`."""
        if self.recorded(round, play) is None:
            this = {"round": round, "play": play}
            self._attempts = sum(r == this for r in self.journal.read(BEGUN))
            self.journal.reserve()
            self.journal.append(BEGUN, this)
            params = self.space.from_unit(unit)
            point = [float(u) for u in unit]
            self._current = Evaluation(round, play, params, point, None, source=source)
        return super().__call__(unit, round=round, play=play, source=source)

    def _score(
        self, params: Mapping[str, Value], rng: np.random.Generator
    ) -> tuple[float | None, str]:
        if self._attempts >= ATTEMPTS:
            return None, f"given up: {ATTEMPTS} processes ended in the middle of it"
        with self._limited():
            return super()._score(params, rng)

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        if self.limit is None:
            yield
            return
        gate = threading.Lock()  # whoever has it first decides how the evaluation ended
        timer = threading.Timer(self.limit, self._give_up, [gate])
        timer.daemon = True
        timer.start()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.limit + GRACE)
        yield
        gate.acquire()
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _give_up(self, gate: threading.Lock) -> None:
        if not gate.acquire(blocking=False):
            return
        failure = f"ended after {self.limit:g} s, its owner's `evaluation-limit`"
        lost = asdict(self._current) | {"failure": failure, "seconds": self.limit}
        self.journal.append(self.KIND, lost)
        os._exit(EXIT_LIMIT)


def work(job: EvaluationJob) -> None:
    """Make the evaluations of a job; the caller holds the journal's lock."""
    task = copy.copy(load(job.task, job.task_settings))
    task.prepare(job.partition)
    journal = Journal(job.journal)
    evaluator = evaluator_of(task, job.setup.space, job.partition, journal, WorkerEvaluator)
    evaluator.journal, evaluator.limit = journal, job.limit
    identity = identity_of(job.partition)
    ThompsonAgent(job.setup, evaluator, journal, (*identity, 1)).work(job.request)


def main(arguments: list[str]) -> int:
    """Do the job in one open file while holding the lock that is another."""
    lock, parcel = map(int, arguments)
    os.set_inheritable(lock, False)  # programs that a task starts may outlive it
    with os.fdopen(parcel, "rb") as file:
        job: EvaluationJob = pickle.load(file)
    worker_path(job.journal).write_text(f"{os.getpid()}\n")
    started = time.monotonic()
    try:
        work(job)
    except Exception as error:
        from flwr_fbo.clients.background import JobRecord  # with Flower, which is slow to import

        logger.exception("the work of round %s failed", job.request.round)
        JobRecord(job.request, job.setup.digest, type(error).__name__).save(job_path(job.journal))
        return EXIT_FAILED
    logger.info("round %s: %.0f s", job.request.round, time.monotonic() - started)
    return 0


def _main() -> Any:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    _main()
