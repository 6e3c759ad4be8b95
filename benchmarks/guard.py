"""What must not become slow, in counts of calls and in ratios: a step of CI, and never in seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.guard

A *count* is how many function calls a piece of work makes: the same on every machine, and it
grows at once when somebody loops over agents or candidates in Python. A *ratio* compares with
plain numpy or with a smaller size of the same work, best of several turns. Bounds are up to
twice what is measured. Exits with 1 and says which guard failed.
"""

from __future__ import annotations

import cProfile
import gc
import logging
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.agent_iteration import default_sampler, mixed_sampler, sampler_with
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.core import evaluation_groups
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.fed_pne.search import NodeElimination
from flwr_fbo.methods.fed_pne.settings import Confidence, FedPNESettings
from flwr_fbo.methods.ldp.server import RewardServer
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.registry import find_method
from flwr_fbo.methods.thompson.schedules import WeightSchedule
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.methods.thompson.together import prepare_points, prepare_vectors
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.mechanisms import GaussianSum
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.search.box_tree import BoxTree
from flwr_fbo.search.regions import split_space
from flwr_fbo.simulation.engine import run
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.rounds import Rounds
from flwr_fbo.strategies.server_app import serve
from flwr_fbo.tasks.papers.garland import GarlandTask

#: Calls of a query in eleven mixed dimensions.
MOST_MIXED = 6000
#: While this holds, the size of a group of quick evaluations does not depend on the machine.
BIG_GROUPS = mock.patch.object(evaluation_groups, "GROUP_SECONDS", 1e9)
#: While this holds, the number of checkpoints does not depend on the machine.
FEW_CHECKPOINTS = mock.patch.object(RewardServer, "checkpoint_seconds", 1e9)


@dataclass(frozen=True)
class Guard:
    """A measurement and the most it may be."""

    name: str
    found: float
    most: float

    @property
    def holds(self) -> bool:
        return self.found <= self.most


def calls(work: Callable[[], object], turns: int = 1) -> int:
    """How many functions a piece of work calls, least of several turns; caches are filled first."""
    work()
    return min(_calls_of_one(work) for _ in range(turns))


def _calls_of_one(work: Callable[[], object]) -> int:
    profile = cProfile.Profile()
    profile.runcall(work)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def ratio(ours: Callable[[], object], theirs: Callable[[], object], turns: int = 5) -> float:
    """Least CPU time of ours over the least of theirs, taking turns."""
    best = [float("inf"), float("inf")]
    for _ in range(turns):
        for side, work in enumerate((ours, theirs)):
            start = time.process_time()
            work()
            best[side] = min(best[side], time.process_time() - start)
    return best[0] / max(best[1], 1e-9)


def agent() -> Iterator[Guard]:
    """Queries and messages do not loop over candidates, features or observations."""
    sampler = sampler_with(60, 2, 100)
    regions = split_space(sampler.space, 4)
    advice = SharedFunction(np.random.default_rng(0).standard_normal((4, 100)), regions)
    yield Guard("calls of a query on the agent's own sample", calls(lambda: sampler.ask(1)), 1600)
    yield Guard("calls of a query on advice", calls(lambda: sampler.ask(1, 0.0, advice)), 1800)
    yield Guard("calls of a message", calls(lambda: sampler.message(1)), 280)
    default = default_sampler(60, 2)
    yield Guard("calls of a query of the default agent", calls(lambda: default.ask(1)), 1200)
    mixed = mixed_sampler(11, 45)
    found = calls(lambda: mixed.ask(1))
    yield Guard("calls of a query in eleven mixed dimensions", found, MOST_MIXED)
    few, many = sampler_with(300, 2, 100), sampler_with(4800, 2, 100)
    grown = ratio(lambda: _anew(many), lambda: _anew(few), 4)
    yield Guard("query with 4,800 observations over 300 (cubic: 4,096)", grown, 8)


def together() -> Iterator[Guard]:
    """Agents of one process are computed in the same calls, and not one after another."""
    team = [sampler_with(12, 2, 200, seed, DPFTSDESettings()) for seed in range(128)]
    shared = SharedFunction(0.1 * np.ones((1, 200)), split_space(team[0].space, 1))
    for sampler in team:
        sampler.set_shared_function(shared)

    def fitted() -> None:
        for sampler in team:
            sampler.own_model._fits.clear()
        prepare_points(team, 2)

    found = calls(fitted) / len(team)
    yield Guard("calls of a point and a fit, of 128 agents together, an agent", found, 400)
    found = calls(lambda: prepare_points(team, 1)) / len(team)
    yield Guard("calls of a point alone, of 128 agents together, an agent", found, 200)
    found = calls(lambda: prepare_vectors(team)) / len(team)
    yield Guard("calls of a vector, of 128 agents together, an agent", found, 60)
    counts = [calls(partial(_sharing, 128, rounds)) for rounds in (3, 6)]
    found = (counts[1] - counts[0]) / (128 * 3)
    yield Guard("calls of a round of dp-fts-de, an agent of 128 in process", found, 1000)


def _sharing(agents: int, rounds: int) -> None:
    """A federation of dp-fts-de in this process on a task that costs nothing, without messages."""
    given = {"task": "benchmarks.load:free_plane", "strategy": "dp-fts-de", "agents": agents}
    with BIG_GROUPS:
        simulated({**given, "rounds": rounds, "initial-points": 2})


def _anew(sampler: object) -> None:
    sampler.own_model._process = None  # type: ignore[attr-defined]
    sampler.ask(1)  # type: ignore[attr-defined]


def garbage() -> Iterator[Guard]:
    """The garbage collector does not visit all agents again and again."""
    found = _full_visits(3000, 4)
    yield Guard("visits of all objects by the garbage collector, 4 rounds", found, 2)


def _full_visits(agents: int, rounds: int) -> int:
    """How often the garbage collector visits all objects in a run of many agents."""
    visits = 0

    def note(phase: str, how: dict[str, int]) -> None:
        nonlocal visits
        visits += phase == "stop" and how["generation"] == 2 and not gc.get_freeze_count()

    federation(2, 1, "inline")  # imports make many objects
    gc.collect()
    gc.callbacks.append(note)
    try:
        federation(agents, rounds, "inline")
    finally:
        gc.callbacks.remove(note)
    return visits


def server() -> Iterator[Guard]:
    """The private sum is a few passes over its bytes, whatever the number of agents."""
    agents, features, regions = 8192, 100, 4
    vectors = np.random.default_rng(0).standard_normal((agents, features))
    weights, every = WeightSchedule().at(0, agents, regions), np.arange(agents)
    mechanism = GaussianSum(11.5 * float(np.linalg.norm(weights, axis=0).max()), 1.0)

    def add() -> None:
        WeightedSum(weights, features, 11.5, mechanism).add(every, vectors)

    def plain() -> None:
        joint = weights.T[:, :, None] * vectors[:, None, :]
        np.trunc(joint / 1e-9).astype(np.int64).sum(axis=0)

    yield Guard("calls of the private sum of 8,192 vectors", calls(add), 4000)
    yield Guard("private sum over plain numpy", ratio(add, plain), 1.5)


def search() -> Iterator[Guard]:
    """Fed-PNE's search does not loop over pulls; an epsilon is not computed again."""
    task = GarlandTask()

    def whole() -> None:
        settings = FedPNESettings(budget=100_000)
        found = NodeElimination(BoxTree(task.space), Confidence.of(settings, 10), settings.budget)
        while not found.finished:
            phase = found.next()
            found.update(task.function(found.partition.centres(phase.nodes)[:, 0]), 10)

    yield Guard("calls of a Fed-PNE search, T = 100,000", calls(whole), 6000)
    for name, most in (("rdp", 60), ("pld", 40)):
        book = make_accountant(name)
        book.compose(GaussianRelease(1.0, 0.25, 0), 40)
        found = calls(lambda book=book: book.epsilon(1e-3))  # type: ignore[misc]
        yield Guard(f"calls of an epsilon query ({name})", found, most)


def shell() -> Iterator[Guard]:
    """Around an evaluation: journals, records, checkpoints and Flower's messages, in process."""
    agents, rounds = 20, (2, 6)
    for told, way, most in (
        ("request", "inline", 420), ("message", "messages", 1750),
        ("request to a process", "processes", 300),
    ):  # fmt: skip
        counts = [calls(partial(federation, agents, count, way)) for count in rounds]
        found = (counts[1] - counts[0]) / (agents * (rounds[1] - rounds[0]))
        yield Guard(f"calls of a {told} there and back, random search", found, most)
    found = {_files_of(agents, 3) for agents in (50, 400)}
    yield Guard("files of a simulation that depend on the number of agents", len(found) - 1, 0)
    found = server_side(4000) / 4000
    yield Guard("calls of the server's side of a round, an agent (dp-fts-de)", found, 45)
    plays = [_calls_of_plays(agents) for agents in (100, 5000)]
    yield Guard("calls of a play that one agent is asked for (ldp-tgp)", plays[0], 1500)
    yield Guard("the same with 5,000 agents over 100", plays[1] / plays[0], 1.1)
    pulls = [calls(partial(pulled, budget)) for budget in (500, 2500)]
    found = (pulls[1] - pulls[0]) / 2000
    yield Guard("calls of a pull that costs nothing (fed-pne)", found, 80)


def federation(agents: int, rounds: int, way: str) -> None:
    """Random search of a task that costs nothing, by an engine or with messages."""
    given = {"task": "benchmarks.load:free", "strategy": "random", "agents": agents}
    with BIG_GROUPS:
        simulated({**given, "rounds": rounds, "initial-points": 1}, way)


def simulated(given: dict[str, Any], way: Any = "inline") -> None:
    """Simulate a run, with messages in this process or by an engine."""
    spec = RunSpec.from_mapping(given)
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run").create(spec.to_mapping())
        if way == "messages":
            clients = simulated_client_app(spec.task, directory.agents)
            serve(spec, InProcessGrid(clients, given["agents"]), directory)
        else:
            run(spec, directory, way)


def _files_of(agents: int, rounds: int) -> int:
    """How many files a simulation leaves behind."""
    given = {"task": "benchmarks.load:free", "strategy": "random", "agents": agents}
    spec = RunSpec.from_mapping({**given, "rounds": rounds, "initial-points": 1})
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run").create(spec.to_mapping())
        run(spec, directory, "inline")
        return sum(path.is_file() for path in directory.root.rglob("*"))


class _Answering:
    """Agents that answer at once with one vector, and so cost next to nothing."""

    def __init__(self, agents: int, length: int) -> None:
        self.local_agents = self  # of a grid, which this object is too
        self.nodes = range(2, 2 + agents)
        self._vector = np.full(length, length**-0.5)

    def check(self, setup: Setup) -> None: ...

    def answer(
        self, setup: Setup, requests: dict[int, Request], seconds: float, on_reply: Any
    ) -> dict[int, Reply]:
        due = Reply({"omega": self._vector})
        return {n: due if "omega" in r.expects else Reply() for n, r in requests.items()}


def server_side(agents: int) -> int:
    """Calls of a round of dp-fts-de that releases, without what its agents do."""
    method = find_method("dp-fts-de")
    given = {"epsilon": 5.0, "features": 50, "releases": "all", "initial-points": 1}
    settings = method.settings_class.from_mapping(given)
    parameters = RunParameters(Space({"x": Float(0.0, 1.0)}), agents, 6, seed=1)
    server = method.make_server(parameters, settings)
    rounds = Rounds(server, server.setup(), parameters, lambda replied, asked: None)
    grid: Any = _Answering(agents, server.settings.vector_length)
    for _ in range(2):
        rounds.run_one(grid)  # the initial points, and a first release
    return _calls_of_one(lambda: rounds.run_one(grid))


def _calls_of_plays(agents: int) -> float:
    """Calls of one play among agents of whom few are asked."""
    given = {"task": "ldp-synthetic", "strategy": "ldp-tgp", "epsilon-per-answer": 1.0}
    # Two draws of noise in a thousand need more digits, and thousands of calls: at 40 plays, 8 % of
    # the runs. That all of five turns have such a draw happens once in 300,000 times.
    with FEW_CHECKPOINTS:
        counts = [
            calls(partial(simulated, {**given, "agents": agents, "budget": plays}), turns=5)
            for plays in (10, 40)
        ]
    return (counts[1] - counts[0]) / 30


def pulled(budget: int) -> None:
    """Fed-PNE with two agents, on a function that costs nothing."""
    with BIG_GROUPS:
        simulated({"task": "garland", "strategy": "fed-pne", "agents": 2, "budget": budget})


def imports() -> Iterator[Guard]:
    """`import flwr_fbo` loads nothing of others, and core and privacy do without Flower."""
    for module, unwanted in (
        ("flwr_fbo", ("numpy", "flwr", "scipy", "sklearn")),
        (
            "flwr_fbo.methods.thompson.sampler",
            ("flwr", "ray", "torch", "matplotlib", "pandas", "sklearn"),
        ),
        (
            "flwr_fbo.strategies.server_app",
            ("ray", "torch", "matplotlib", "pandas", "sklearn", "optuna"),
        ),
    ):
        code = f"import sys, {module}; print(sum(m in sys.modules for m in {unwanted!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        yield Guard(f"heavy modules loaded by import {module}", int(done.stdout), 0)


SECTIONS = (agent, together, garbage, server, search, shell, imports)


def main() -> int:
    guards = [guard for section in SECTIONS for guard in section()]
    for guard in guards:
        word = "ok" if guard.holds else "FAILED"
        print(f"{guard.name:<60}{guard.found:>10.6g} <= {guard.most:<8g} {word}")
    return 0 if all(guard.holds for guard in guards) else 1


if __name__ == "__main__":
    sys.exit(main())
