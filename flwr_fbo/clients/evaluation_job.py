"""What an agent's work needs, wherever it is done: in a message, or in a worker of its own.

Without Flower, so that a worker starts soon; see :mod:`flwr_fbo.clients.background`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Request, Setup
from flwr_fbo.core.settings import Scalar
from flwr_fbo.core.space import Space
from flwr_fbo.tasks import Task, check_importable, name_of
from flwr_fbo.tasks.task import Params, Partition

E = TypeVar("E", bound=Evaluator)


def job_path(journal: Path) -> Path:
    """The file of the request that is worked on."""
    return journal.with_suffix(".job")


def worker_path(journal: Path) -> Path:
    """The file of the worker's process id."""
    return journal.with_suffix(".worker")


@dataclass(frozen=True)
class EvaluationJob:
    """All that a worker must know. It is passed in a file without a name, never stored."""

    journal: Path
    setup: Setup
    request: Request
    task: str
    task_settings: Mapping[str, Scalar]
    partition: Partition
    #: Seconds after which the owner has an evaluation ended; it counts as failed.
    limit: float | None = None


def evaluation_job(
    journal: Path, setup: Setup, request: Request, task: Task, partition: Partition,
    limit: float | None = None,
) -> EvaluationJob:  # fmt: skip
    """Return the job that a request asks for; raise for a task that no process can import."""
    check_importable(task)
    settings = {k: v for k, v in task.settings.to_mapping().items() if v is not None}
    return EvaluationJob(journal, setup, request, name_of(task), settings, partition, limit)


def identity_of(partition: Partition) -> tuple[int, int]:
    """What the seeds of an agent's generators begin with."""
    return partition.seed, partition.index


def evaluator_of(
    task: Task,
    space: Space,
    partition: Partition,
    records: Records,
    kind: type[E],
) -> E:
    """An evaluator of a prepared task, the same wherever its agent's work is done."""

    def evaluate(params: Params, rng: np.random.Generator) -> float:
        return task.evaluate(params, rng=rng)

    return kind(space, evaluate, records, (*identity_of(partition), 0), _regret_of(task))


def _regret_of(task: Task) -> Callable[[Params], float | None] | None:
    optimum = task.optimum()
    if optimum is None:
        return None

    def regret(params: Params) -> float | None:
        expected = task.expected(params)
        return None if expected is None else optimum - expected

    return regret
