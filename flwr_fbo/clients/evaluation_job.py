"""The parts of an agent's work that a message and a worker process share.

A worker of :mod:`flwr_fbo.clients.background` starts sooner without Flower, so this module does
not import Flower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Request, Setup
from flwr_fbo.core.settings import Scalar
from flwr_fbo.core.space import Space
from flwr_fbo.tasks import Task, check_importable, name_of
from flwr_fbo.tasks.task import Params, Partition
from flwr_fbo.tasks.warm_start import known_points

E = TypeVar("E", bound=Evaluator)


def job_path(journal: Path) -> Path:
    """Return the file that holds the request of the current or last worker."""
    return journal.with_suffix(".job")


def job_owner(setup: Setup, partition: Partition) -> str:
    """Return what a job file must name, so that no agent takes the job of another one."""
    return f"{setup.digest} {partition.index}"


def worker_path(journal: Path) -> Path:
    """Return the file that holds the process id of the worker."""
    return journal.with_suffix(".worker")


@dataclass(frozen=True)
class EvaluationJob:
    """The input of a worker process, passed in a file without a name and never stored.

    Parameters
    ----------
    journal
        The journal of the agent.
    setup, request
        The setup of the run, and the request that asks for the evaluations.
    task, task_settings
        The name of the task and its settings, from which the worker makes the task.
    partition
        The share of the data that the agent holds.
    limit
        Seconds after which an evaluation is ended and counts as failed; None is no limit.
    """

    journal: Path
    setup: Setup
    request: Request
    task: str
    task_settings: Mapping[str, Scalar]
    partition: Partition
    limit: float | None = None


def evaluation_job(
    journal: Path, setup: Setup, request: Request, task: Task, partition: Partition,
    limit: float | None = None,
) -> EvaluationJob:  # fmt: skip
    """Return the job for a request; raise SettingsError for a task that cannot be imported."""
    check_importable(task)
    settings = {k: v for k, v in task.settings.to_mapping().items() if v is not None}
    return EvaluationJob(journal, setup, request, name_of(task), settings, partition, limit)


def seed_of(partition: Partition) -> tuple[int, int]:
    """Return the numbers that begin the seed of each generator of an agent."""
    return partition.seed, partition.index


class EvaluationMeter:
    """How long the evaluations of a process take.

    The first evaluation may load libraries and data, so the longest one does not count: see
    :attr:`typical`.

    Examples
    --------
    >>> meter = EvaluationMeter()
    >>> for seconds in (2.5, 0.1, 0.3):
    ...     meter.note(seconds)
    >>> meter.count, round(meter.typical, 3), round(meter.seconds, 3)
    (3, 0.2, 2.9)
    """

    def __init__(self) -> None:
        self.count, self.seconds, self._longest = 0, 0.0, 0.0

    @property
    def typical(self) -> float:
        """Return the mean seconds of all evaluations but the longest; 0 before there are two."""
        return (self.seconds - self._longest) / max(self.count - 1, 1)

    def note(self, seconds: float) -> None:
        """Take in the seconds of an evaluation."""
        self.count += 1
        self.seconds += seconds
        self._longest = max(self._longest, seconds)


def make_evaluator(
    task: Task,
    space: Space,
    partition: Partition,
    records: Records,
    kind: type[E],
    meter: EvaluationMeter | None = None,
    **options: Any,
) -> E:
    """Return an evaluator of a prepared task, with the same seeds in a message and a worker."""

    def evaluate(params: Params, rng: np.random.Generator) -> float:
        if meter is None:
            return task.evaluate(params, rng=rng)
        started = time.perf_counter()
        try:
            return task.evaluate(params, rng=rng)
        finally:
            meter.note(time.perf_counter() - started)

    # The 0 keeps the evaluator's generators apart from the agent's own, which end in 1.
    seed = (*seed_of(partition), 0)
    evaluator = kind(space, evaluate, records, seed, _regret_function(task), **options)
    evaluator.warm_start = lambda: known_points(space, task.warm_start(), partition)
    return evaluator


def _regret_function(task: Task) -> Callable[[Params], float | None] | None:
    """Return the function that computes the regret; None where the optimum is not known."""
    optimum = task.optimum()
    if optimum is None:
        return None

    def regret(params: Params) -> float | None:
        expected = task.expected(params)
        return None if expected is None else optimum - expected

    return regret
