"""What becomes of a run in which one party's evaluations end, hang or answer nonsense, by engine.

    python benchmarks/evaluation_faults.py [--engines inline processes ray deployment]
        [--only WORDS] [--write]

Three parties tune alone (`local-ts`). Party 1's objective misbehaves wherever x is above 0.5. The
same run is made by an objective that behaves, and these things must hold:

1. the run ends with a result, with the engine `inline` after at most one `resume`;
2. the other parties' evaluations are those of the run that nobody disturbed;
3. party 1 has a record for every evaluation that it began, once: failed where x is above 0.5, with
   the parameters and a reason of at most 1,100 printable characters, and scored elsewhere. In a
   deployment the last one may still be open, as it is closed when the party is asked again.

Prints a table by kind and engine. `--write` puts the rows into the table in
docs/evidence/reliability.md, and keeps its other rows. Exits with 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import filled, table
from flwr_fbo.core.evaluation import Evaluation, Records
from flwr_fbo.runs.files.journal import Journal, journal_path
from flwr_fbo.runs.files.simulation_store import SimulationStore
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.locations import has_store
from tests.flower.processes import BIN, REPOSITORY, Flower, flower, free_ports

MARK = "evaluation faults"
PAGE = REPOSITORY / "docs" / "evidence" / "reliability.md"
PARTIES, ROUNDS, INITIAL = 3, 3, 2
#: Seconds that a round may take where an evaluation never returns. Workers need time to start.
TIMEOUTS = {"inline": 3.0, "processes": 10.0, "ray": 60.0, "deployment": 60.0}
#: Seconds that any other round may take.
LONG = 900.0
#: What party 1 does where x is above 0.5, in Python, by the name of the fault.
KINDS = {
    "`sys.exit(0)`": "sys.exit(0)",
    "`os._exit(0)`": "os._exit(0)",
    "SIGKILL, as if out of memory": "os.kill(os.getpid(), signal.SIGKILL)",
    "an exception that is no `Exception`": "raise Panic('a library in Rust')",
    "an error of 700 kB with lone surrogates": r"raise ValueError('data \ud800 \x00 ' * 50_000)",
    "a score of 1e308": "return 1e308",
    "never returns": "time.sleep(10_000)",
}
MODULE = """
import os, signal, sys, time
from flwr_fbo.core.space import Float
from flwr_fbo.tasks import task

class Panic(BaseException):
    pass

@task(space={{"x": Float(0.0, 1.0)}})
def fault(params, partition):
    if partition.index == 1 and params["x"] > 0.5:
        {fault}
    return 1.0 - (params["x"] - 0.6) ** 2
"""


@dataclass
class Outcome:
    """What one kind of fault did in one engine."""

    kind: str
    engine: str
    made: int = 0
    failed: int = 0
    resumed: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def write_tasks(folder: Path) -> dict[str, str]:
    """Write a module for each kind, and return the names of their tasks."""
    names = {}
    for number, (kind, fault) in enumerate({"undisturbed": "pass", **KINDS}.items()):
        (folder / f"fault_{number}.py").write_text(MODULE.format(fault=fault))
        names[kind] = f"fault_{number}:fault"
    return names


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{REPOSITORY}",
        "FLWR_TELEMETRY_ENABLED": "0", "FLWR_FBO_HOME": str(folder / "fbo"),
    }  # fmt: skip


def timeout_of(kind: str, engine: str) -> float:
    return TIMEOUTS[engine] if kind == "never returns" else LONG


def simulate(folder: Path, task: str, engine: str, run: Path, timeout: float) -> int:
    """Run a simulation, and resume it if the process ended; return how often it was resumed."""
    plan = [
        "--strategy", "local-ts", "--agents", str(PARTIES), "--rounds", str(ROUNDS), "--set",
        f"initial-points={INITIAL}", "--set", f"timeout={timeout}", "--set", "seed=3",
        "--run-dir", str(run),
    ]  # fmt: skip
    command = [str(BIN / "flwr-fbo"), "run", task, *plan, "--engine", engine]
    for resumed in range(3):
        subprocess.run(
            command, capture_output=True, env=environment(folder), cwd=folder, timeout=1800,
            check=False,
        )  # fmt: skip
        if (run / "result.json").exists():
            return resumed
        command = [str(BIN / "flwr-fbo"), "resume", str(run), "--engine", engine]
    return 3


def deploy(running: Flower, task: str, name: str, timeout: float) -> Path:
    """Run a task in a deployment to its end."""
    settings = (
        f"task='{task}' strategy='local-ts' agents={PARTIES} rounds={ROUNDS} seed=3 "
        f"settings='initial-points={INITIAL}' timeout={timeout} run-name='{name}'"
    )
    running.command("flwr", "run", str(REPOSITORY), "dep", "--run-config", settings, timeout=300)
    run = running.folder / "fbo" / "runs" / name
    running.until(lambda: (run / "result.json").exists(), 1800)
    return run


def essence(history: list[Evaluation]) -> list[tuple[object, ...]]:
    return [(e.round, e.play, tuple(e.unit), e.score) for e in history]


def check(outcome: Outcome, run: Path, undisturbed: Path) -> Outcome:
    """Compare a run with the one that nobody disturbed."""
    if not (run / "result.json").exists():
        outcome.faults.append("there is no result")
        return outcome
    found = read_evaluations(run / "agents", PARTIES)
    expected = read_evaluations(undisturbed / "agents", PARTIES)
    # In process a party whose turn did not come in time is behind, and nothing else.
    for party in (0, 2):
        mine, its = essence(found[party]), essence(expected[party])
        late = outcome.kind == "never returns"
        if mine != its and not (late and _is_behind(mine, its)):
            outcome.faults.append(f"party {party} was disturbed")
    history = found[1]
    records: Records = Journal(journal_path(run / "agents", 1), reading=True)
    if has_store(run / "agents"):
        records = SimulationStore(run / "agents", None, reading=True).records(1)
    begun = {(b["round"], b["play"]) for b in records.read("begun")}
    keys = [(e.round, e.play) for e in history]
    open_ones = len(begun - set(keys))
    if len(set(keys)) != len(keys) or open_ones > (outcome.engine == "deployment"):
        outcome.faults.append("an evaluation was begun and is not recorded once")
    for e in history:
        if e.failed != (e.params["x"] > 0.5):
            outcome.faults.append(f"x = {e.params['x']} has the score {e.score}")
        if e.failed and not (e.failure.isprintable() and len(e.failure) <= 1100):
            outcome.faults.append("a reason cannot be printed")
    if outcome.resumed > (outcome.engine == "inline"):
        outcome.faults.append(f"the run was resumed {outcome.resumed} times")
    outcome.made, outcome.failed = len(history), sum(e.failed for e in history)
    if not outcome.failed and not open_ones:
        outcome.faults.append("nothing failed")
    return outcome


def _is_behind(mine: list[tuple[object, ...]], its: list[tuple[object, ...]]) -> bool:
    """Whether a party began as the other one did, and left rounds out afterwards."""
    same = [e for e in mine if e in its]
    return len(mine) <= len(its) and mine[: len(same)] == same


def in_process(engine: str, only: str) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = write_tasks(folder)
        simulate(folder, tasks["undisturbed"], engine, folder / "undisturbed", LONG)
        outcomes = []
        for number, kind in enumerate(KINDS):
            if only in kind:
                outcome, started = Outcome(kind, engine), time.monotonic()
                run = folder / f"run-{number}"
                outcome.resumed = simulate(
                    folder, tasks[kind], engine, run, timeout_of(kind, engine)
                )
                outcome.seconds = time.monotonic() - started
                outcomes.append(check(outcome, run, folder / "undisturbed"))
                print(outcome, flush=True)
        return outcomes


def deployed(only: str) -> list[Outcome]:
    folder = Path(tempfile.mkdtemp())
    tasks = write_tasks(folder)
    link, *ports = free_ports(1 + PARTIES)
    with flower(folder, quick=True) as running:
        running.superlink(link)
        for party, port in enumerate(ports):
            running.supernode(link, port, f"partition-id={party} num-partitions={PARTIES}")
        undisturbed = deploy(running, tasks["undisturbed"], "undisturbed", LONG)
        outcomes = []
        for number, kind in enumerate(KINDS):
            if only in kind:
                outcome, started = Outcome(kind, "deployment"), time.monotonic()
                run = deploy(running, tasks[kind], f"run-{number}", timeout_of(kind, "deployment"))
                outcome.seconds = time.monotonic() - started
                outcomes.append(check(outcome, run, undisturbed))
                print(outcome, flush=True)
        return outcomes


def lines(outcomes: list[Outcome]) -> list[str]:
    """The outcomes as a table of Markdown."""
    return table([
        {
            "what party 1's objective does": o.kind, "engine": o.engine,
            "evaluations of party 1": o.made, "failed": o.failed,
            "runs resumed": o.resumed, "seconds": f"{o.seconds:.0f}",
            "outcome": "; ".join(o.faults) or "as it must be",
        }
        for o in outcomes
    ])  # fmt: skip


def _rows(page: str) -> list[str]:
    """The rows that a page holds, without the table's head."""
    held = page.partition(f"<!-- {MARK} -->\n")[2].partition("<!-- end -->")[0]
    return held.splitlines()[2:]


def _order(row: str) -> tuple[int, int]:
    """The place of a row: by engine, and by kind within an engine."""
    kind, engine = row.removeprefix("| ").split(" | ")[:2]
    return list(TIMEOUTS).index(engine), list(KINDS).index(kind)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", nargs="+", default=list(TIMEOUTS), choices=list(TIMEOUTS))
    parser.add_argument("--only", default="", help="kinds with these words")
    parser.add_argument("--write", action="store_true", help="into docs/evidence/reliability.md")
    given = parser.parse_args()
    outcomes: list[Outcome] = []
    for engine in given.engines:
        outcomes += (
            deployed(given.only) if engine == "deployment" else in_process(engine, given.only)
        )
    text = lines(outcomes)
    print("\n".join(text))
    if given.write:
        measured = {_order(row) for row in text[2:]}
        kept = [row for row in _rows(PAGE.read_text()) if _order(row) not in measured]
        order = [*text[:2], *sorted(kept + text[2:], key=_order)]
        PAGE.write_text(filled(PAGE.read_text(), MARK, order))
    sys.exit(1 if any(o.faults for o in outcomes) else 0)


if __name__ == "__main__":
    main()
