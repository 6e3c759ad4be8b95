"""Fed-PNE with its comparators, and the learners of LDP-BO: one run of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks import fed_pne as harness
from benchmarks import ldp_bo
from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.space import Space
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.search import NodeElimination
from flwr_fbo.methods.fed_pne.settings import Confidence, FedPNESettings
from flwr_fbo.methods.method import Method, RunParameters
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.registry import find_method
from flwr_fbo.search.box_tree import BoxTree
from flwr_fbo.tasks import load
from flwr_fbo.tasks.papers.garland import RoughTask
from flwr_fbo.tasks.task import Partition, Task

from .drivers import driver, prepared

#: Points of a curve that are kept.
KEPT = 50
_OWN = ("method", "task", "task-settings", "clients")


class Memo(FedPNEAgent):
    """An agent of a deterministic task: every point is scored once, and counts as pulled often."""

    def __init__(self, server: Any, task: Task, number: int, seed: int) -> None:
        records = MemoryRecords()
        evaluator = Evaluator(server.space, lambda params, rng: 0.0, records)
        super().__init__(server.setup(), evaluator, records, (seed, number))
        self.task, self.rng, self.steps = task, np.random.default_rng([seed, number]), []
        self.known: dict[bytes, float] = {}

    def _rewards(self, phase: int, points: Array, counts: Indices) -> Array:
        rewards = np.repeat([self._score(p) for p in points], counts)
        self.steps.append(1.0 - rewards)  # the papers take 1 for the unknown optimum
        return rewards

    def _score(self, point: Array) -> float:
        key = point.tobytes()
        if key not in self.known:
            params = self.task.space.from_unit(point)
            self.known[key] = self.task.evaluate(params, rng=self.rng)
        return self.known[key]


class Rough(harness.WholePhases):
    """An agent of a synthetic function: all pulls of a phase at once, each with its noise."""

    def __init__(self, server: Any, task: RoughTask, number: int, seed: int) -> None:
        super().__init__(server, task, number, seed)
        self.steps: list[Array] = []

    def _rewards(self, phase: int, points: Array, counts: Indices) -> Array:
        regret = self.task.optimum() - self.task.function(points[:, 0])
        self.steps.append(np.repeat(regret, counts))
        return super()._rewards(phase, points, counts)


class Single:
    """FN-UCB's agent, which evaluates one by one."""

    def __init__(self, method: Method, server: Any, task: Task, number: int, seed: int) -> None:
        records = MemoryRecords()
        self.evaluator = Evaluator(
            server.space, lambda p, rng: task.evaluate(p, rng=rng), records, (seed, number),
            lambda p: _regret(task, p),
        )  # fmt: skip
        owner = Owner("benchmark")
        agent = method.make_agent(server.setup(), self.evaluator, records, (seed, number), owner)
        self.answer = agent.answer

    @property
    def steps(self) -> list[Array]:
        return [np.array([e.regret for e in self.evaluator.history])]


def _regret(task: Task, params: Any) -> float:
    optimum = task.optimum()
    if optimum is None:
        return 1.0 - task.evaluate(params, rng=np.random.default_rng(0))
    return optimum - (task.expected(params) or 0.0)


def clients_of(settings: Mapping[str, Any], seed: int) -> tuple[list[Task], Space]:
    """Every client's task, and the space: "each client chooses one landmine field (randomly)"."""
    clients = int(settings["clients"])
    given = dict(pair.split("=") for pair in settings["task-settings"].split())
    made = load(settings["task"], given)
    count = max(clients, made.parties or 0)
    rows = np.random.default_rng(seed).permutation(count)[:clients] if made.parties else None
    tasks = []
    for n in range(clients):
        if rows is None:
            task = load(settings["task"], given)
            task.prepare(Partition(n, clients, seed))
        else:
            task = prepared(made, settings["task"], int(rows[n]), count, 0)
        tasks.append(task)
    return tasks, made.space


def marks_of(length: int) -> Indices:
    """The evaluations after which a point of a cumulative curve is kept."""
    return np.unique(np.linspace(1, length, KEPT).round().astype(np.int64)) - 1


@driver
def pulls(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """Mean cumulative regret of a client by its evaluations, communication rounds, numbers sent."""
    method = settings["method"]
    tasks, space = clients_of(settings, seed)
    clients = len(tasks)
    values = {k.replace("-", "_"): v for k, v in settings.items() if k not in _OWN}
    chosen = find_method(method, "global")
    server: Any = chosen.make_server(
        RunParameters(space, clients, 0, seed), chosen.settings_class(**values)
    )
    kind: Any = Rough if isinstance(tasks[0], RoughTask) else Memo
    if chosen.agent_kind != "fed-pne":
        kind = partial(Single, chosen)
    agents = [kind(server, task, n, seed) for n, task in enumerate(tasks)]
    while not server.finished:
        asked = server.requests(range(clients))
        server.close({n: agents[n].answer(request) for n, request in asked.items()})
    steps = [np.concatenate(agent.steps) for agent in agents]
    regret = np.mean([np.cumsum(s) for s in steps], axis=0)  # (T,)
    return {
        "curve": regret[marks_of(len(regret))].tolist(), "rounds": int(server.round),
        "sent": float(np.mean(server.sent)), "evaluations": len(regret),
    }  # fmt: skip


@driver
def phases(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """Communication rounds and numbers sent for budgets T of ever more digits, without noise."""
    made = load(settings["task"])
    assert isinstance(made, RoughTask)
    clients = int(settings["clients"])
    budgets = [10**e for e in range(3, 4 + int(settings["digits"]))]
    rounds, sent = [], []
    for budget in budgets:
        width = Confidence.of(FedPNESettings(budget=budget), clients)
        search = NodeElimination(BoxTree(made.space), width, budget)
        while not search.finished:
            phase = search.next()
            centres = search.partition.centres(phase.nodes)[:, 0]
            search.update(made.function(centres), clients)
        rounds.append(search.phase)
        sent.append(search.released)
    return {"value": rounds[-1], "budgets": budgets, "rounds": rounds, "sent": sent}


@driver
def shape(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """What a plot of a function shows: its maximum and how many local maxima it has."""
    made = load(settings["task"])
    assert isinstance(made, RoughTask)
    x = np.linspace(0.0, 1.0, int(settings["points"]))
    y = made.function(x)
    near = x[y.argmax()] + np.linspace(-1e-5, 1e-5, len(x))  # Garland's best is a cusp
    peaks = int(((y[1:-1] > y[:-2]) & (y[1:-1] > y[2:])).sum())
    best = float(made.function(near).max())
    at = float(x[y.argmax()])
    return {"value": best, "at": at, "local_maxima": peaks, "optimum": made.optimum()}


@driver
def learner(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """Cumulative regret of a learner of LDP-BO over what uniform play costs on average."""
    values = {k: v for k, v in settings.items() if k not in ("learner", "problem", "plays", "law")}
    if "epsilon" in values:  # the paper's, which is what one answer costs
        values["epsilon_per_answer"] = values.pop("epsilon")
    problem, plays = settings["problem"], int(settings["plays"])
    if problem in ("light", "stocks"):
        bandit = ldp_bo.real(problem)
    else:
        bandit = ldp_bo.synthetic(seed, function_kernel=problem, noise_law=settings["law"])
    regret, _, _ = ldp_bo.play(bandit, settings["learner"], seed, plays, **values)
    uniform = float(bandit.mean.max() - bandit.mean.mean())
    return {"curve": (np.cumsum(regret)[marks_of(plays)] / (plays * uniform)).tolist()}
