"""One run of an experiment, without Flower: the state machines of core, called in turn.

A driver takes settings and a seed and returns what was measured, ready for JSON: ``curve`` (by
iteration, lower is better) or ``value``, and whatever else a figure's checks look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from flwr_fbo.core.evaluation import Evaluation, Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.space import Space
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.runs.history import by_round
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.tasks.task import Partition, Task

from .batch import GridAgents, can_batch
from .figures import Run
from .lattice import lattice_of, values_of
from .lattice_agents import LatticeAgents, can_join
from .objectives import made_faster

Driver = Callable[[Mapping[str, Any], int], Mapping[str, Any]]
DRIVERS: dict[str, Driver] = {}


def driver(function: Driver) -> Driver:
    """Register a driver under its name."""
    DRIVERS[function.__name__] = function
    return function


def make(run: Run, seed: int) -> Mapping[str, Any]:
    """One run."""
    from . import finite_arms, lattice_checks, probes, pulls, targets  # noqa: F401 - they register

    return DRIVERS[run.kind](run.settings, seed)


@lru_cache(maxsize=400)
def _prepared(name: str, settings: tuple[tuple[str, Any], ...], index: int, count: int,
              seed: int) -> Task:  # fmt: skip
    from flwr_fbo.tasks import load

    task = load(name, dict(settings))
    task.prepare(Partition(index, count, seed))
    return made_faster(task)


def prepared(task: Task, name: str, index: int, count: int, seed: int) -> Task:
    """One party's task. Parties of real data are kept between runs, as are their scores."""
    settings = tuple(sorted(task.settings.to_mapping().items()))
    return _prepared(name, settings, index, count, seed)


class Federation:
    """All agents of an experiment and their server, called in turn.

    Settings are those of ``flwr-fbo run``, ``preset = "paper"`` unless said otherwise, and
    ``measured``: how many agents count, from the first; 0 is all. ``task-seed`` fixes the data
    while the seed moves initial points and draws; unset, the data follow the seed. With
    ``placebo`` agents are sent random vectors of the same length instead of the broadcast.
    """

    def __init__(self, settings: Mapping[str, Any], seed: int) -> None:
        given = {"preset": "paper", **settings}
        self._placebo = np.random.default_rng([seed, 3]) if given.pop("placebo", False) else None
        measured, task_seed = int(given.pop("measured", 0)), int(given.pop("task-seed", -1))
        spec = RunSpec.from_mapping({**given, "seed": seed})
        agents, self.rounds = spec.run.agents or spec.task.parties or 0, spec.run.rounds
        plan = RunParameters(spec.task.space, agents, self.rounds, seed, task=spec.task)
        self.server: Any = spec.method.make_server(plan, spec.settings)
        data_seed = seed if task_seed < 0 else task_seed
        self._parties, histories = [], []
        for n in range(agents):
            task = prepared(spec.task, spec.run.task, n, agents, data_seed)
            evaluator, records = _evaluator(spec.task.space, task, (seed, n, 0))
            agent = ThompsonAgent(self.server.setup(), evaluator, records, (seed, n, 1))
            self._parties.append(agent)
            histories.append(evaluator.history)
        self.histories = histories[: measured or agents]
        alone = spec.run.strategy in ("local-ts", "random")
        # Who counts for nothing rests.
        self._present = range(measured if alone and measured else agents)

    def round(self) -> None:
        """One round."""
        asked = self.server.requests(self._present)
        if self._placebo is not None:
            asked = with_placebo(asked, self._placebo)
        replies = {n: self._parties[n].answer(request) for n, request in asked.items()}
        self.server.close(replies)


def with_placebo(asked: Mapping[int, Request], rng: np.random.Generator) -> dict[int, Request]:
    """Requests whose shared function is random, the same for all and as long as it was."""
    changed, drawn = {}, None
    for n, request in asked.items():
        if "advice" in request.arrays:
            real = request.arrays["advice"]
            if drawn is None:
                drawn = rng.standard_normal(real.shape)
                drawn *= np.linalg.norm(real) / np.linalg.norm(drawn)
            request = replace(request, arrays={**request.arrays, "advice": drawn})
        changed[n] = request
    return changed


def _evaluator(space: Space, task: Task, seed: tuple[int, ...]) -> tuple[Evaluator, MemoryRecords]:
    records, optimum = MemoryRecords(), task.optimum()

    def regret(params: Any) -> Any:
        return None if optimum is None else optimum - (task.expected(params) or 0.0)

    def score(params: Any, rng: np.random.Generator) -> float:
        return task.evaluate(params, rng=rng)

    return Evaluator(space, score, records, seed, regret), records


@driver
def federation(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """Every agent optimises (DP-FTS-DE), or the first few and the others help (FTS)."""
    if settings["task"] == "synthetic" and settings["strategy"] in ("dp-fts-de", "local-ts"):
        found = on_grid(settings, seed)
        if found is not None:
            return found
    if settings.get("lattice"):
        return on_lattice(settings, seed)
    made = Federation(settings, seed)
    while not made.server.finished:
        made.round()
    budget = getattr(made.server, "budget", None)
    return {
        "curve": error_curve(made.histories, made.rounds),
        "epsilon": None if budget is None else budget.spent,
    }


def on_grid(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any] | None:
    """A synthetic federation whose agents are computed together; None if they cannot be."""
    given = {"preset": "paper", **settings}
    if int(given.pop("measured", 0)):
        return None
    task_seed = int(given.pop("task-seed", -1))
    spec = RunSpec.from_mapping({**given, "seed": seed})
    agents = spec.run.agents or 0
    plan = RunParameters(spec.task.space, agents, spec.run.rounds, seed, task=spec.task)
    server: Any = spec.method.make_server(plan, spec.settings)
    if not can_batch(server.settings, spec.task):
        return None
    data_seed = seed if task_seed < 0 else task_seed
    together = GridAgents(server.setup(), spec.task, agents, seed, data_seed)
    while not server.finished:
        server.close(together.answer(server.requests(range(agents))))
    budget = getattr(server, "budget", None)
    return {
        "curve": [float(v) for v in np.mean(together.regret, axis=1)],
        "epsilon": None if budget is None else budget.spent,
    }


def on_lattice(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """A federation on data whose agents are computed together, and whose scores are tabulated.

    ``lattice`` says whether these are interpolated, or agents choose among the table's points.
    """
    given = {"preset": "paper", **settings}
    interpolates = given.pop("lattice") == "interpolated"
    task_seed = int(given.pop("task-seed", -1))
    spec = RunSpec.from_mapping({**given, "seed": seed})
    agents = spec.run.agents or spec.task.parties or 0
    plan = RunParameters(spec.task.space, agents, spec.run.rounds, seed, task=spec.task)
    server: Any = spec.method.make_server(plan, spec.settings)
    lattice = lattice_of(spec.task)
    if lattice is None or not can_join(server.settings):
        raise ValueError(f"agents with these settings are not computed together: {settings}")
    data_seed = seed if task_seed < 0 else task_seed
    parties = [prepared(spec.task, spec.run.task, n, agents, data_seed) for n in range(agents)]
    tables = np.array([values_of(party, lattice) for party in parties])
    lattice = replace(lattice, interpolates=interpolates)
    together = LatticeAgents(server.setup(), lattice, tables, seed)
    while not server.finished:
        server.close(together.answer(server.requests(range(agents))))
    budget = getattr(server, "budget", None)
    return {"curve": together.errors, "epsilon": None if budget is None else budget.spent}


def error_curve(histories: list[list[Evaluation]], rounds: int) -> list[float]:
    """Simple regret by round where the optimum is known, else 1 - best score so far."""
    found = by_round(histories, rounds)
    if found.regret is not None:
        return [float(v) for v in found.regret if v is not None]
    return [1.0 - float(v) for v in found.best if v is not None]
