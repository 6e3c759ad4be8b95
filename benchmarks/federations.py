"""Parties on the package's state machines, without Flower: what the benchmarks of defaults run.

A *curve* is the score that matters of the best evaluation so far, by evaluation, initial points
included: (agents, evaluations). What matters is the score itself, or, where a task knows it,
minus the noise-free regret.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Setup
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer, shared_weights
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.methods.thompson.shared_function import shared_function_of
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.runs.newcomer import Newcomer
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.tasks.task import Partition, Task

#: Evaluations at which curves are printed.
SHOWN = (1, 3, 5, 10, 20, 40)


class Problem:
    """A task divided among parties; ``seed`` is that of the task's own randomness."""

    def __init__(self, name: str, agents: int, seed: int, **settings: Any) -> None:
        spec = RunSpec.from_mapping(
            {"task": name, "agents": agents, "strategy": "local-ts", **settings}
        )
        self.agents, self.seed, self.space = agents, seed, spec.task.space
        self.tasks: list[Task] = [copy.copy(spec.task) for _ in range(agents)]
        for n, task in enumerate(self.tasks):
            task.prepare(Partition(n, agents, seed))

    def without(self, agent: int) -> Problem:
        """The same problem among the other parties."""
        others = copy.copy(self)
        others.tasks = [task for n, task in enumerate(self.tasks) if n != agent]
        others.agents = len(others.tasks)
        return others

    def evaluator(self, agent: int, seed: int) -> Evaluator:
        task = self.tasks[agent]

        def score(params: Mapping[str, Any], rng: np.random.Generator) -> float:
            return float(task.evaluate(params, rng=rng))

        def regret(params: Mapping[str, Any]) -> float | None:
            best, here = task.optimum(), task.expected(params)
            return None if best is None or here is None else best - here

        return Evaluator(self.space, score, MemoryRecords(), (seed, agent), regret)

    def agent(self, setup: Setup, agent: int, seed: int) -> tuple[ThompsonAgent, Evaluator]:
        evaluator = self.evaluator(agent, seed)
        return ThompsonAgent(setup, evaluator, MemoryRecords(), (seed, 1, agent)), evaluator


def curve(evaluator: Evaluator, length: int) -> Array:
    """The best so far of one agent: (length,). Failures count as the worst seen."""
    history = evaluator.history[:length]
    assert len(history) == length
    scores = np.array([np.nan if e.score is None else e.score for e in history])
    scores = np.where(np.isnan(scores), np.nanmin(scores), scores)
    if history[0].regret is None:
        return np.maximum.accumulate(scores)
    return -np.minimum.accumulate(np.array([e.regret for e in history], dtype=np.float64))


def server_for(
    problem: Problem, strategy: str, evaluations: int, seed: int, settings: Mapping[str, Any]
) -> ThompsonServer:
    """The server of a run with so many evaluations an agent in all."""
    given = {"task": problem.tasks[0], "strategy": strategy, "agents": problem.agents, "seed": seed}
    spec = RunSpec.from_mapping({**given, **settings})
    initial = spec.settings.initial_points
    plan = RunParameters(
        space=problem.space, agents=problem.agents, rounds=evaluations - initial, seed=seed
    )
    server = spec.method.make_server(plan, spec.settings)
    assert isinstance(server, ThompsonServer)
    return server


def federation(
    problem: Problem, strategy: str, evaluations: int, seed: int, **settings: Any
) -> tuple[Array, ThompsonServer, list[ThompsonAgent]]:
    """Run all rounds: curves (agents, evaluations), the server, and the agents."""
    server = server_for(problem, strategy, evaluations, seed, settings)
    pairs = [problem.agent(server.setup(), n, seed) for n in range(problem.agents)]
    while not server.finished:
        requests = server.requests(range(problem.agents))
        server.close({n: pairs[n][0].answer(r) for n, r in requests.items()})
    curves = np.stack([curve(evaluator, evaluations) for _, evaluator in pairs])
    return curves, server, [agent for agent, _ in pairs]


def alone(problem: Problem, method: str, evaluations: int, seed: int) -> Array:
    """Each party by itself with an optimiser of Optuna's, ``tpe`` or ``gp``: curves."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    curves = []
    for n in range(problem.agents):
        evaluator = problem.evaluator(n, seed)
        key = int(np.random.default_rng([seed, n, 3]).integers(2**31))
        sampler: Any = (
            optuna.samplers.TPESampler(seed=key)
            if method == "tpe"
            else optuna.samplers.GPSampler(seed=key)
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for t in range(evaluations):
            # In the unit cube, which is the scale that the task declares.
            trial = study.ask()
            unit = np.array([trial.suggest_float(p, 0.0, 1.0) for p in problem.space.names])
            done = evaluator(problem.space.snap(unit[None, :])[0], round=t)
            study.tell(trial, done.score) if done.score is not None else study.tell(
                trial, state=optuna.trial.TrialState.FAIL
            )
        curves.append(curve(evaluator, evaluations))
    return np.stack(curves)


def newcomer(
    problem: Problem, agent: int, server: ThompsonServer, evaluations: int, seed: int
) -> Array:
    """The curve of a party that joins when everything is over, from what was released."""
    assert isinstance(server, DPFTSDEServer)
    weights = shared_weights(server.settings, server.released)
    assert weights is not None
    arrays = server.setup().arrays
    features = RandomFeatures(arrays["frequencies"], arrays["phases"])
    advice = shared_function_of(weights, server.regions, server.settings)
    joined = Newcomer(problem.space, server.settings, features, advice, seed)
    evaluator = problem.evaluator(agent, seed)
    for t in range(evaluations):
        params = joined.ask()
        done = evaluator(problem.space.to_unit(params), round=t)
        joined.tell(params, done.score)
    return curve(evaluator, evaluations)
