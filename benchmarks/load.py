"""How much the server holds: agents in process, a long run through Ray, and a sum over a million.

    python benchmarks/load.py inline [--agents 1000] [--rounds 5] [--strategy dp-fts-de]
    python benchmarks/load.py ray [--agents 200] [--rounds 100]
    python benchmarks/load.py sum [--agents 1000000]

`inline` and `ray` run DP-FTS-DE with an epsilon (or another strategy) on a task that costs nothing,
and print seconds a round and the resident memory of the server's process after some rounds, so that
growth shows; `inline` also the CPU time, the memory, the files and the bytes for each agent, and
`ray` the memory of Ray's workers together, each page counted once (PSS). `sum` streams vectors
of a million agents through the server's exact sum.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.space import Categorical, Float
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.methods.thompson.schedules import WeightSchedule
from flwr_fbo.privacy.entropy import system_entropy
from flwr_fbo.privacy.mechanisms import GaussianSum
from flwr_fbo.runs.callbacks import Callback, RoundReport
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.engine import run
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.tasks import task


@task(space={"x": Float(0.0, 1.0)})
def free(params: Any, partition: Any) -> float:
    return float(-((params["x"] - 0.3) ** 2))


#: Seconds of an evaluation of the task `waiting`.
WAIT = 0.05


@task(space={"x": Float(0.0, 1.0)})
def waiting(params: Any, partition: Any) -> float:
    """Take as long as a small training, but no processor: other work does not disturb it."""
    time.sleep(WAIT)
    return float(-((params["x"] - 0.3) ** 2))


@task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
def free_plane(params: Any, partition: Any) -> float:
    return float(-((params["x"] - 0.3) ** 2) - (params["y"] - 0.6) ** 2)


@task(space={name: Float(0.0, 1.0) for name in "xyz"})
def free_cube(params: Any, partition: Any) -> float:
    return float(-sum((value - 0.3) ** 2 for value in params.values()))


@task(space={"x": Float(0.0, 1.0), "kind": Categorical(("a", "b", "c"))})
def free_mixed(params: Any, partition: Any) -> float:
    return float(-((params["x"] - 0.3) ** 2) - 0.1 * (params["kind"] != "b"))


@task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
def failing(params: Any, partition: Any) -> float:
    """Fail in a quarter of the space, which hardly any agent does not try."""
    return float("nan") if max(params.values()) < 0.5 else float(params["y"] - params["x"])


def resident() -> float:
    """Megabytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def descendants(root: int) -> list[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # ended meanwhile
            continue
        children.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(
            int(stat.parent.name)
        )
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def workers() -> tuple[int, float]:
    """How many of Ray's workers this process has, and their megabytes, shared pages divided."""
    count, total = 0, 0.0
    for pid in descendants(os.getpid()):
        try:
            if not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                continue
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        count += 1
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return count, total


class Watch(Callback):
    """Resident memory, seconds, and CPU seconds of this process, by round."""

    def __init__(self, rounds: int) -> None:
        self.memory: list[float] = []
        self.workers: list[float] = []
        self.seconds: list[float] = []
        self.processor: list[float] = []
        self._before = time.process_time()
        self._every = max(1, rounds // 10)

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        self.memory.append(resident())
        self.seconds.append(report.seconds)
        now = time.process_time()
        self.processor.append(now - self._before)
        self._before = now
        if report.round % self._every == 0:
            count, megabytes = workers()
            self.workers.append(megabytes)
            told = f"round {report.round:>4}  {self.memory[-1]:7.1f} MB  {report.seconds:6.2f} s"
            told += f"  replies {report.replied}/{report.asked}"
            print(f"{told}  {count} workers, {megabytes:.0f} MB", flush=True)


def federation(
    engine: Any, agents: int, rounds: int, strategy: str = "dp-fts-de", task: str = "free"
) -> None:
    sys.path.insert(0, str(Path(__file__).parent))  # where workers find the task
    given: dict[str, Any] = {
        "task": f"load:{task}", "agents": agents, "rounds": rounds, "strategy": strategy,
        "initial-points": 1,
    }  # fmt: skip
    if strategy == "dp-fts-de":
        given |= {"epsilon": 5.0, "refit-every": 0, "features": 50}
    spec, watch = RunSpec.from_mapping(given), Watch(rounds)
    before, started = resident(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run").create(spec.to_mapping())
        run(spec, directory, engine, [watch])
        files = [path for path in directory.root.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
    cost = 1e3 * (time.process_time() - started) / agents / len(watch.seconds)
    memory = 2**10 * (max(watch.memory) - before) / agents
    print(
        f"{cost:.3f} ms of this process's CPU for an agent in a round, {memory:.1f} kB of memory "
        f"for an agent, {len(files)} files, {size / agents / len(watch.seconds):.0f} bytes for an "
        "agent in a round"
    )
    half = len(watch.memory) // 2
    print(
        f"{engine}: {agents} agents, {len(watch.seconds)} rounds, "
        f"median {np.median(watch.seconds):.2f} s a round; server's memory "
        f"{watch.memory[0]:.0f} MB after the first round, {watch.memory[half]:.0f} MB half-way, "
        f"{watch.memory[-1]:.0f} MB at the end"
    )


def stream(agents: int, features: int = 100, regions: int = 4) -> None:
    """Vectors come a few thousand at a time, as replies would, and are forgotten at once."""
    weights = WeightSchedule().at(0, agents, regions)
    mechanism = GaussianSum(10.0 * float(weights.max()), 1.0)
    total = WeightedSum(weights, features, 5.0, mechanism)
    rng, chunk = np.random.default_rng(0), 4096
    start, before = time.process_time(), resident()
    most = before
    for first in range(0, agents, chunk):
        numbers = np.arange(first, min(first + chunk, agents))
        total.add(numbers, rng.normal(size=(len(numbers), features)))
        most = max(most, resident())
    released = mechanism.release(total.exact.ravel(), system_entropy())
    assert np.all(np.isfinite(released))
    seconds, held = time.process_time() - start, weights.nbytes / 2**20
    print(
        f"sum: {agents} agents, {features} features, {regions} sub-regions: {seconds:.1f} s of "
        f"CPU, {most - before:.0f} MB more than before (weights alone: {held:.0f} MB)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["inline", "ray", "sum"])
    parser.add_argument("--agents", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--strategy", default="dp-fts-de")
    parser.add_argument("--task", choices=["free", "free_plane"], default="free")
    arguments = parser.parse_args()
    defaults = {"inline": (1000, 5), "ray": (200, 100), "sum": (1_000_000, 0)}
    agents = arguments.agents or defaults[arguments.what][0]
    if arguments.what == "sum":
        stream(agents)
        return
    rounds = arguments.rounds or defaults[arguments.what][1]
    federation(arguments.what, agents, rounds, arguments.strategy, arguments.task)


if __name__ == "__main__":
    main()
