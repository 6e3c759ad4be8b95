"""A federation in one process, for the tests of Fed-PNE and its comparators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluator, MemoryRecords, Records
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.regret import cumulative_regret
from flwr_fbo.methods.fed_pne.server import FedPNEServer
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.tasks.task import Partition, Task

LINE = Space({"x": Float(0.0, 1.0)})
Objective = Callable[[Mapping[str, Any], np.random.Generator], float]


def fed_pne(agents: int, space: Space = LINE, seed: int = 0, **values: Any) -> FedPNEServer:
    return FedPNEServer(space, agents, FedPNESettings(**values), seed)


def agent_of(
    server: Any,
    objective: Objective,
    number: int = 0,
    records: Records | None = None,
    kind: Any = FedPNEAgent,
    regret: Callable[[Mapping[str, Any]], float] | None = None,
    **options: Any,
) -> Any:
    """An agent, with reproducible and therefore NOT PRIVATE noise."""
    records = MemoryRecords() if records is None else records
    evaluator = Evaluator(server.space, objective, records, (0, number, 0), regret)
    if kind is FedPNEAgent:
        options.setdefault("entropy", seeded_entropy(number))
    return kind(server.setup(), evaluator, records, (0, number, 1), **options)


def agents_of(server: Any, task: type[Task], kind: Any = FedPNEAgent, **settings: Any) -> list[Any]:
    """One agent for each of the server's, on a task with its optimum known."""
    agents = []
    for number in range(server.agents):
        mine = task(task.settings_class(**settings))
        mine.prepare(Partition(number, server.agents, 0))
        agents.append(
            agent_of(
                server,
                lambda params, rng, mine=mine: mine.evaluate(params, rng=rng),
                number,
                kind=kind,
                regret=lambda params, mine=mine: mine.optimum() - mine.expected(params),
            )
        )
    return agents


def one_round(server: Any, agents: list[Any], present: Any = None) -> None:
    asked = server.requests(range(server.agents) if present is None else present)
    server.close({n: agents[n].answer(request) for n, request in asked.items()})


def play(server: Any, agents: list[Any]) -> float:
    """Run to the end; the mean cumulative regret of an agent."""
    while not server.finished:
        one_round(server, agents)
    return float(np.mean([cumulative_regret(a.evaluator.history)[-1] for a in agents]))


@contextmanager
def listening(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Hear our logger even where Flower keeps its messages from pytest."""
    logger = logging.getLogger("flwr.fbo")
    logger.addHandler(caplog.handler)
    kept, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = kept
        logger.removeHandler(caplog.handler)
