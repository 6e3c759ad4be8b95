"""The worker process, which makes the evaluations of an asynchronous agent.

:mod:`flwr_fbo.clients.background` starts the worker with two open files: the lock of the journal,
and an evaluation job. The worker makes the same points with the same seeds and records as the
agent would within a message, with one addition: an evaluation that takes longer than the owner's
limit is recorded as failed, and the process ends.
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
    job_owner,
    job_path,
    make_evaluator,
    seed_of,
    worker_path,
)
from flwr_fbo.core.evaluation import Evaluation, Evaluator
from flwr_fbo.core.space import Value
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.runs.files.journal import Journal
from flwr_fbo.runs.files.journal_check import JournalOwner
from flwr_fbo.tasks import load

logger = logging.getLogger("flwr_fbo.clients.worker")

#: Seconds beyond the limit after which a signal ends even code that never lets Python run.
GRACE = 30.0
EXIT_FAILED, EXIT_LIMIT = 1, 3


class WorkerEvaluator(Evaluator):
    """An evaluator that ends an evaluation, and its process, at the owner's limit."""

    journal: Journal
    owners_limit: float | None = None

    limit_is = "its owner's `evaluation-limit`"

    def _begin(self, evaluation: Evaluation, session: str | None = None) -> None:
        """Record that an evaluation begins, if the disk has room for the evaluation."""
        self.journal.reserve()
        super()._begin(evaluation, session)
        # Kept for the thread of the timer, which records this evaluation if time runs out.
        self._current = evaluation

    def _score(
        self, params: Mapping[str, Value], rng: np.random.Generator
    ) -> tuple[float | None, str]:
        """Return the score and no failure, or no score and the reason."""
        with self._limited():
            return super()._score(params, rng)

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """End this process if the block takes longer than the limit."""
        if self.owners_limit is None:
            yield
            return
        gate = threading.Lock()  # the first to take it decides how the evaluation ended
        timer = threading.Timer(self.owners_limit, self._end_process, [gate])
        timer.daemon = True
        timer.start()
        # The timer's thread cannot run while C code holds the interpreter; the signal can.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.owners_limit + GRACE)
        yield
        gate.acquire()
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _end_process(self, gate: threading.Lock) -> None:
        """Record the evaluation as failed and end the process, unless the score came first."""
        if not gate.acquire(blocking=False):
            return
        failure = f"ended after {self.owners_limit:g} s, its owner's `evaluation-limit`"
        lost = asdict(self._current) | {"failure": failure, "seconds": self.owners_limit}
        self.journal.append(self.KIND, lost)
        os._exit(EXIT_LIMIT)


def work(job: EvaluationJob) -> None:
    """Make the evaluations of a job, while this process holds the journal's lock."""
    task = copy.copy(load(job.task, job.task_settings))
    task.prepare(job.partition)
    owner = JournalOwner(job.setup.identity, job.partition.index)
    journal = Journal(job.journal, owner)
    # Evaluations at once have processes of their own, of which each is ended at the limit.
    at_once = int(job.setup.values.get("parallel", 1)) > 1
    evaluator = make_evaluator(
        task, job.setup.space, job.partition, journal, WorkerEvaluator,
        limit=job.limit if at_once else None,
        most_at_once=Owner("", job.partition.config).parallel_limit,
    )  # fmt: skip
    evaluator.journal, evaluator.owners_limit = journal, None if at_once else job.limit
    evaluator.close_unfinished(job.request.round)
    ThompsonAgent(job.setup, evaluator, journal, (*seed_of(job.partition), 1)).work(job.request)


def main(arguments: list[str]) -> int:
    """Run the worker; the arguments are the descriptors of the lock and of the job's file."""
    lock, parcel = map(int, arguments)
    os.set_inheritable(lock, False)  # a program that the task starts may outlive the worker
    with os.fdopen(parcel, "rb") as file:
        job: EvaluationJob = pickle.load(file)
    worker_path(job.journal).write_text(f"{os.getpid()}\n")
    started = time.monotonic()
    try:
        work(job)
    except (Exception, SystemExit) as error:
        # This module imports Flower, which is slow to import.
        from flwr_fbo.clients.background import JobRecord

        logger.exception("the work of round %s failed", job.request.round)
        owner = job_owner(job.setup, job.partition)
        JobRecord(job.request, owner, type(error).__name__).save(job_path(job.journal))
        return EXIT_FAILED
    logger.info("round %s: %.0f s", job.request.round, time.monotonic() - started)
    return 0


def _main() -> Any:
    """Run the worker as a program."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    _main()
