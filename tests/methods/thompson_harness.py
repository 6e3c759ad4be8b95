"""Agents and servers by hand: no Flower, no files; shared by the tests of the state machines."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Reply, Request, Setup, checked_reply
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.tasks.papers.synthetic import SyntheticTask
from flwr_fbo.tasks.task import Partition

SQUARE = Space({"x": Float(0, 1), "y": Float(0, 1)})


def bump(params: Mapping[str, Any], rng: np.random.Generator) -> float:
    """A smooth score with its maximum at (0.3, 0.7), and a little noise."""
    x, y = float(params["x"]), float(params["y"])
    return -((x - 0.3) ** 2) - (y - 0.7) ** 2 + 0.01 * float(rng.standard_normal())


class Party:
    """One agent whose evaluations are counted, and which can be rebuilt from its records."""

    def __init__(self, setup: Setup, function: Callable[..., float] = bump, seed: int = 0) -> None:
        self.setup, self.function, self.seed = setup, function, seed
        self.records: Any = MemoryRecords()
        self.calls = 0
        self.agent = self.build()

    def _count(self, params: Mapping[str, Any], rng: np.random.Generator) -> float:
        self.calls += 1
        return self.function(params, rng)

    def build(self) -> ThompsonAgent:
        evaluator = Evaluator(self.setup.space, self._count, self.records, (self.seed, 0))
        return ThompsonAgent(self.setup, evaluator, self.records, (self.seed, 1))

    def answer(self, request: Request) -> Reply:
        return checked_reply(request, self.agent.answer(request))

    def evaluations(self) -> list[dict[str, Any]]:
        return self.records.read(Evaluator.KIND)


class JsonRecords(MemoryRecords):
    """Records that pass through text, as a journal's do."""

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        super().append(kind, json.loads(json.dumps(record)))


class CrashingRecords(MemoryRecords):
    """Records of a process that dies after so many evaluations."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        super().append(kind, record)
        if kind == Evaluator.KIND:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def synthetic_parties(setup: Setup, agents: int, seed: int) -> tuple[list[Party], list[Any]]:
    """Parties that share a synthetic task, and their tasks."""
    tasks = [SyntheticTask() for _ in range(agents)]
    parties = []
    for n, task in enumerate(tasks):
        task.prepare(Partition(n, agents, seed))
        parties.append(
            Party(setup, lambda p, rng, task=task: task.evaluate(p, rng=rng), seed * 1000 + n)
        )
    return parties, tasks


def run(server: Any, parties: list[Party]) -> None:
    """All rounds, everybody present."""
    while not server.finished:
        requests = server.requests(range(server.agents))
        server.close({n: parties[n].answer(request) for n, request in requests.items()})


def restored(server: Any, make: Callable[[], Any]) -> Any:
    """A new server of the same making, with the state of this one."""
    other = make()
    other.load_state_dict(copy.deepcopy(server.state_dict()))
    return other
