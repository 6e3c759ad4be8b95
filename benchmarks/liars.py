"""What liars do to the honest: regret of honest agents by kind of lie, share of liars, defence.

    python benchmarks/liars.py [--agents 30] [--rounds 15] [--functions 8] [--out FILE]

Liars evaluate like everyone else, but send another vector: a random one as long as an honest
one, an honest one with its sign flipped and ten times as long, or one that is ten times the same
in every coordinate and round. Defences: none, the clip, the two robust aggregates, and a private
run, whose clip is planned with its noise. "alone" is local Thompson sampling, which nobody can
lie to. Prints the mean over functions of the honest agents' mean simple regret over all rounds.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message

from flwr_fbo import wire
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.history import by_round, read_evaluations
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.server_app import serve

SHARES = (0.0, 0.1, 0.2, 0.4)
DEFENCES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "dp-fts-de", "clip": 1e9},
    "clip": {"strategy": "dp-fts-de"},
    "trimmed mean": {"strategy": "dp-fts-de", "robust": "trimmed-mean", "robust-trim": 0.25},
    "geometric median": {"strategy": "dp-fts-de", "robust": "geometric-median"},
    "private, epsilon 7": {"strategy": "dp-fts-de", "epsilon": 7.0},
}


class LyingGrid(InProcessGrid):
    """Some nodes send lies instead of what their agent answered."""

    liars: frozenset[int] = frozenset()
    lie: str = ""
    rng = np.random.default_rng(0)

    def _call(self, message: Message, context: Context) -> Message:
        reply = super()._call(message, context)
        if message.metadata.dst_node_id in self.liars and reply.has_content():
            record = reply.content.array_records[wire.REPLY_PARAMETERS]
            if wire.EMPTY not in record:
                honest = next(iter(record.values())).numpy()
                record.update({"0": next(iter(ArrayRecord([self._lie(honest)]).values()))})
        return reply

    def _lie(self, honest: np.ndarray) -> np.ndarray:
        if self.lie == "random":
            drawn = self.rng.normal(size=honest.shape)
            return np.asarray(drawn * np.linalg.norm(honest) / np.linalg.norm(drawn))
        return -10.0 * honest if self.lie == "flipped" else np.full(honest.shape, 10.0)


def regret(given: dict[str, Any], lie: str, share: float) -> float:
    """Mean regret over rounds and honest agents; the first lie, whose homes alternate."""
    agents, rounds = given["agents"], given["rounds"]
    spec = RunSpec.from_mapping(given)
    count = round(share * agents)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder)).create(spec.to_mapping())
        app = simulated_client_app(spec.task, directory.agents)
        grid = LyingGrid(app, agents)
        grid.liars, grid.lie = frozenset(list(grid.contexts)[:count]), lie
        grid.rng = np.random.default_rng([spec.run.seed, count])
        serve(spec, grid, directory)
        honest = read_evaluations(directory.agents, agents)[count:]
    found = by_round(honest, rounds).regret
    assert found is not None
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--functions", type=int, default=8)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    base = {"task": "synthetic", "preset": "paper", "agents": arguments.agents,
            "rounds": arguments.rounds, "clip": 10.0}  # fmt: skip
    seeds = range(100, 100 + arguments.functions)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    started, saved = time.process_time(), []

    def mean(settings: dict[str, Any], lie: str, share: float) -> float:
        given = {**base, **settings}
        if settings["strategy"] != "dp-fts-de":
            del given["clip"]
        values = [regret({**given, "seed": s}, lie, share) for s in seeds]
        saved.append({**settings, "lie": lie, "share": share, "regret": values})
        return float(np.mean(values))

    print(f"alone: {mean({'strategy': 'local-ts'}, 'random', 0.0):.4f}")
    print(f"{'lie':<10} {'defence':<20}" + "".join(f"{s:>9.0%}" for s in SHARES))
    honest = {name: mean(settings, "", 0.0) for name, settings in DEFENCES.items()}
    for lie in ("random", "flipped", "constant"):
        for name, settings in DEFENCES.items():
            row = [honest[name], *(mean(settings, lie, share) for share in SHARES[1:])]
            cells = "".join(f"{r:>9.4f}" for r in row)
            print(f"{lie:<10} {name:<20}{cells}", flush=True)
    errors = [np.std(row["regret"], ddof=1) / len(seeds) ** 0.5 for row in saved]
    print(f"standard errors over functions: median {np.median(errors):.4f}, most {max(errors):.4f}")
    print(f"{time.process_time() - started:.0f} s of CPU")
    if arguments.out:
        arguments.out.write_text(json.dumps(saved, indent=1))


if __name__ == "__main__":
    main()
