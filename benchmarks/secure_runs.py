"""What secure sums add to the time of a whole private run, as ratios.

    python -m benchmarks.secure_runs                         # in one process, and through Ray
    python -m benchmarks.secure_runs --engine deployment     # three SuperNodes on loopback
    python -m benchmarks.secure_runs --table PAGE            # the saved figures into a page

A pair is the same run with ``aggregation=secure`` and with a trusted server; the two take turns in
going first. What is shown is the pair whose ratio is the middle one, with the least and the
greatest. The time is that on the clock, so the load of the machine is shown too, before and after.
In one process there is also the CPU time, which depends less on other work. The run is the default
one of ``dp-fts-de`` on the task ``digits``: 20 rounds, epsilon 5, four releases. The deployment has
three parties instead of 30, and four rounds with one release, which is as many legs a round.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.pages import filled, table
from benchmarks.ratios import Ratio, Turns, show
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.engine import Engine, run

SAVED = Path(__file__).parent / "results" / "secure_runs.json"
AGENTS, DEPLOYED, MOST = 30, 3, 1.3
RUN: dict[str, Any] = {"task": "digits", "rounds": 20, "epsilon": 5.0, "releases": "0,1,4,13"}
#: Rounds and releases in a deployment, whose runs take minutes.
DEPLOYED_ROUNDS, DEPLOYED_RELEASES = 4, "0"
SIDES = ("secure", "central")


#: Seconds of one run, by the word for what was measured.
Seconds: TypeAlias = Mapping[str, float]
CLOCK, CPU = "on the clock", "CPU"


def simulated(engine: Engine, rounds: int, aggregation: str) -> Seconds:
    """Seconds of a whole simulated run, from its first message to its result."""
    given = {**RUN, "rounds": rounds, "agents": AGENTS, "aggregation": aggregation}
    with tempfile.TemporaryDirectory() as folder:
        spec = RunSpec.from_mapping(given)
        directory = RunDirectory(Path(folder) / "run").create(spec.to_mapping())
        start, computed = time.perf_counter(), time.process_time()
        made = run(spec, directory, engine)
        assert made.server.charges == sum(t < rounds for t in (0, 1, 4, 13))
        seconds = {CLOCK: time.perf_counter() - start}
        if engine == "inline":
            seconds[CPU] = time.process_time() - computed
        return seconds


def pairs(once: Callable[[str], Seconds], count: int, kept: Callable[[str, Turns], None]) -> None:
    """Make pairs of runs, and pass on all of them after each."""
    found: dict[str, Turns] = {}
    for i in range(count):
        order = SIDES if i % 2 == 0 else SIDES[::-1]
        made = {side: once(side) for side in order}
        print(f"  pair {i + 1} of {count}", flush=True)
        for what in made["secure"]:
            found.setdefault(what, []).append((made["secure"][what], made["central"][what]))
            kept(what, found[what])


def deployed(count: int, kept: Callable[[str, Turns], None]) -> None:
    """Make the pairs in one deployment, whose SuperNodes stay."""
    from tests.flower.processes import flower, free_ports

    link, *ports = free_ports(DEPLOYED + 1)
    with tempfile.TemporaryDirectory() as folder, flower(Path(folder)) as running:
        running.superlink(link)
        for party, port in enumerate(ports):
            running.supernode(link, port, f"partition-id={party} num-partitions={DEPLOYED}")
        numbers = iter(range(10**6))

        def once(aggregation: str) -> Seconds:
            name = f"run-{next(numbers)}"
            own = f"epsilon={RUN['epsilon']} releases={DEPLOYED_RELEASES} aggregation={aggregation}"
            config = f"task='digits' agents={DEPLOYED} rounds={DEPLOYED_ROUNDS} run-name='{name}' "
            running.run("dep", "--run-config", config + f"settings='{own}'", timeout=3600)
            path = Path(folder) / "fbo" / "runs" / name / "result.json"
            assert path.exists(), running.logs()
            return {CLOCK: float(json.loads(path.read_text())["seconds"])}

        pairs(once, count, kept)


def measure(engine: str, count: int, out: Path | None) -> None:
    rounds = DEPLOYED_ROUNDS if engine == "deployment" else RUN["rounds"]
    before = os.getloadavg()[0]
    agents = DEPLOYED if engine == "deployment" else AGENTS

    def kept(what: str, found: Turns) -> None:
        name = f"whole run, {engine}, N={agents}, {what}"
        show(Ratio(name, found, "s", MOST))
        if out is None:
            return
        entry = {
            **Ratio(name, found, "s", MOST).to_dict(),
            "rounds": rounds,
            "load": [before, os.getloadavg()[0]],
        }
        known = json.loads(out.read_text()) if out.exists() else []
        merged = {e["name"]: e for e in known} | {name: entry}
        out.write_text(json.dumps(list(merged.values()), indent=2) + "\n")

    # Ray's workers have a priority that waits for all other work on a busy machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    print(f"{engine}: load {before:.1f}", flush=True)
    if engine == "deployment":
        deployed(count, kept)
        return
    for side in SIDES:  # imports, caches and compiled modules
        simulated(engine, 1, side)  # type: ignore[arg-type]
    pairs(lambda side: simulated(engine, rounds, side), count, kept)  # type: ignore[arg-type]


def with_table(page: str, saved: Path) -> str:
    """A page with the saved ratios between its marks."""
    rows = []
    for entry in json.loads(saved.read_text()):
        low, high = entry["spread"]
        rows.append({
            "run": f"{entry['name']}, {entry['rounds']} rounds",
            "secure": f"{entry['ours']:.1f} s", "trusted server": f"{entry['theirs']:.1f} s",
            "ratio": f"{entry['ratio']:.2f}", "of pairs": f"{low:.2f} to {high:.2f}",
            "pairs": entry["turns"], "load": "{:.0f} to {:.0f}".format(*sorted(entry["load"])),
            "target": f"<= {entry['most']:g}", "": entry["outcome"].lower(),
        })  # fmt: skip
    return filled(page, "secure-runs", table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    engines = ("inline", "ray", "deployment")
    parser.add_argument("--engine", nargs="*", choices=engines, default=["inline", "ray"])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="JSON file in which the ratios are replaced")
    parser.add_argument("--table", type=Path, help="put the saved figures into a page, and end")
    given = parser.parse_args()
    if given.table:
        given.table.write_text(with_table(given.table.read_text(), SAVED))
        return
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for engine in given.engine:
        measure(engine, given.pairs, given.out)


if __name__ == "__main__":
    main()
