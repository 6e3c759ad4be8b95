"""Kill a run at every step of its protocol, resume it, and see what was lost.

    python benchmarks/faults.py [--quick] [--columns NAME ...] [--only WORDS] [--write]

Each case forks a process that runs a federation and dies by SIGKILL (or finds the disk full, or
read-only) at one step: before, after or in the middle of the n-th call of one function. With the
engines `processes` and `auto` that call may be one of a worker's, and the simulation dies at that
moment. The run is then resumed as `flwr-fbo resume` does, some runs with another engine, and these
things must hold:

1. the resumed run completes, with as many evaluations as one that nobody disturbed;
2. no evaluation that was recorded is made again. At most the evaluation under way in each process
   is lost, and before it quick ones that took .05 s in all, as those are recorded together;
3. the ledger has at least one charge for every release that was drawn, and its epsilon is
   within the budget; an agent's own ledger or journal likewise for every answer it gave;
4. without server noise the evaluations are exactly those of an undisturbed run;
5. a full or read-only disk is told in an error that names the file.

Workers are killed too, and the process that forks them: see worker_faults.py. For Ray see
ray_faults.py, and for a deployment deployment_faults.py. This command measures their columns too.

Prints a table of the cases by fault and column. `--write` saves the measured columns, with `--only`
the measured steps of them, and puts all that are saved into docs/evidence/reliability.md. Exits
with 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # where processes find the tasks
sys.path.insert(0, str(Path(__file__).parents[1]))

from fault_kit import (
    AGENTS,
    HOST,
    NOTES,
    RAY_WORKER,
    SIMULATION,
    Case,
    Step,
    are_too_many,
    charges,
    count_releases,
    drawn,
    end_left,
    ends,
    essence,
    folder,
    idle,
    in_child,
    install,
    lost,
    notes,
    say_nothing,
    write_plan,
)

from benchmarks.pages import filled, table
from flwr_fbo.simulation.process_agents import PROCESSES
from flwr_fbo.simulation.simulate import resume, simulate_run

ROOT = Path(__file__).parents[1]
SAVED = ROOT / "benchmarks" / "results" / "faults.json"
PAGE = ROOT / "docs" / "evidence" / "reliability.md"
MARK, ALL = "faults", "**all**"

STRATEGIES: dict[str, dict[str, Any]] = {
    "dp-fts-de": {"strategy": "dp-fts-de", "epsilon": 6.0, "regions": 2, "accountant": "rdp"},
    "dp-fts-de, sampled": {
        "strategy": "dp-fts-de", "epsilon": 20.0, "noise-multiplier": 1.0, "releases": "all",
        "sampling-rate": 0.5, "regions": 1, "accountant": "rdp",
    },
    "fts-de": {"strategy": "dp-fts-de", "regions": 2},
    "fts": {"strategy": "fts"},
    "fts, local budgets": {"strategy": "fts", "local-epsilon": 8.0, "local-answers": 12},
    "fed-pne": {"strategy": "fed-pne", "budget": 12},
    "ldp-ata": {"strategy": "ldp-ata", "budget": 9, "epsilon": 60.0, "epsilon-per-answer": 2.0,
                "bound": 1.0, "noise-bound": 0.1},
    "local-ts": {"strategy": "local-ts"},
}  # fmt: skip
#: Strategies whose evaluations are recorded one by one, as they take longer than a group may.
SLOW = {f"{name}, slow": name for name in ("dp-fts-de", "fts-de", "fed-pne")}
STRATEGIES |= {
    slow: {**STRATEGIES[name], "task": "fault_kit:slow_hill"} for slow, name in SLOW.items()
}
THOMPSON = {"rounds": 4, "initial-points": 2, "features": 8, "refit-every": 0}
#: The engines of the runs that are killed, and their strategies.
ENGINES = {
    "inline": [
        "dp-fts-de", "dp-fts-de, sampled", "fts-de", "fts", "fts, local budgets", "fed-pne",
        "ldp-ata", "fts-de, slow", "fed-pne, slow",
    ],
    "processes": [
        "dp-fts-de", "fts-de", "fts, local budgets", "fed-pne", "ldp-ata", "fed-pne, slow",
    ],
    # Slow enough for the pool, which makes the evaluations from the second round on.
    "auto": ["dp-fts-de, slow", "fts-de, slow"],
}  # fmt: skip
QUICK = {
    "inline": ["dp-fts-de", "fts, local budgets"], "processes": ["fts-de"], "auto": [],
}  # fmt: skip
#: The engine that continues a run, by its engine and the number of the call; else its own.
CONTINUED = {
    ("inline", 5): "processes", ("processes", 2): "inline", ("ray", 2): "inline",
    ("ray", 5): "processes",
}  # fmt: skip
#: Processes that evaluate at the same time.
AT_ONCE = {
    "inline": 1, "processes": 2, "auto": 2, "pool's host": 2, "asynchronous": 1, "ray": AGENTS,
    "deployment": AGENTS,
}  # fmt: skip

ROUNDS = "flwr_fbo.strategies.rounds:Rounds"
STORE = "flwr_fbo.runs.files.simulation_store:SimulationStore"
CHECKPOINT = "flwr_fbo.runs.files.checkpoint:Checkpoint"
KILLS = [
    Step("before a run's first round", "flwr_fbo.simulation.engine:serve", "before"),
    Step("before the ledger is made", "flwr_fbo.privacy.ledger:Ledger.create", "before"),
    Step("after the ledger is made", "flwr_fbo.privacy.ledger:Ledger.create", "after"),
    Step("before agents are asked", f"{ROUNDS}._ask_here", "before"),
    Step("after all agents have answered", f"{ROUNDS}._checked", "before"),
    Step("after replies, before the round is closed", f"{ROUNDS}._checked", "after"),
    Step("before a charge", "flwr_fbo.privacy.ledger:Ledger.charge", "before"),
    Step("in the middle of a charge's line", "flwr_fbo.privacy.ledger:_write", "half"),
    Step("after a charge, before its noise", "flwr_fbo.privacy.ledger:Ledger.charge", "after"),
    Step("after the noise is drawn", "flwr_fbo.privacy.mechanisms:GaussianSum.release", "after"),
    Step("before a checkpoint", f"{CHECKPOINT}.save", "before"),
    Step("in the middle of a checkpoint", "flwr_fbo.runs.files.atomic:np.savez", "half"),
    Step(
        "before a checkpoint's rename", "flwr_fbo.runs.files.atomic:Path.replace", "before",
        of="checkpoint.tmp",
    ),
    Step("after a checkpoint", f"{CHECKPOINT}.save", "after"),
    Step(
        "before the table of rounds is written",
        "flwr_fbo.runs.files.rounds:RoundTable._append", "before",
    ),
    Step("before an evaluation", "flwr_fbo.core.evaluation:Evaluator._guarded", "before"),
    Step("after an evaluation", "flwr_fbo.core.evaluation:Evaluator._guarded", "after"),
    Step("in the middle of a record", "flwr_fbo.runs.files.journal:_write_all", "half"),
    Step("after an agent's record", "flwr_fbo.runs.files.journal:Journal.append", "after"),
    Step("after an agent's record in the journal of all", f"{STORE}.append", "after"),
    Step("before a group of agents is written", f"{STORE}._end_group", "before"),
    Step("after a group of agents is written", f"{STORE}._end_group", "after"),
    Step("after records are written, before the head", f"{STORE}._write_head", "before"),
    Step(
        "before an agent's reply", "flwr_fbo.clients.tuning_client:TuningClient._answer", "after"
    ),
    Step(
        "before each agent has a journal of its own", "flwr_fbo.runs.files.arrangement:_split",
        "before",
    ),
    Step(
        "after each agent has a journal of its own", "flwr_fbo.runs.files.arrangement:_split",
        "after",
    ),
]  # fmt: skip
DISKS = [
    Step("disk full: charge", "flwr_fbo.privacy.ledger:_write", "full"),
    Step("disk full: checkpoint", "flwr_fbo.runs.files.atomic:np.savez", "full"),
    Step("disk full: table of rounds", "flwr_fbo.runs.files.rounds:RoundTable._append", "full"),
    Step("disk full: journal", "flwr_fbo.runs.files.journal:_write_all", "full"),
    Step("read-only: charge", "flwr_fbo.privacy.ledger:_write", "read-only"),
    Step("read-only: checkpoint", "flwr_fbo.runs.files.atomic:np.savez", "read-only"),
]

#: The columns of the table: engines, and processes that are killed beside the simulation.
ORDER = [
    "inline", "processes", "auto", "pool's worker", "pool's host", "asynchronous", "ray",
    "deployment",
]  # fmt: skip
#: By column and step: cases, failed cases, and the most evaluations lost in one.
Counts = dict[str, dict[str, list[int]]]
#: The evaluations of a run that nobody disturbed, and how many there were.
Undisturbed = tuple[list[list[tuple[Any, ...]]], int]


def settings_of(name: str) -> dict[str, Any]:
    own = STRATEGIES[name]
    common: dict[str, Any] = {"task": "fault_kit:hill", "agents": AGENTS, "seed": 3}
    if own["strategy"] in ("dp-fts-de", "fts", "local-ts"):
        common |= THOMPSON
    return {**common, **own}


def start(settings: dict[str, Any], engine: str, run: Path) -> None:
    logging.disable()
    simulate_run(settings, engine, run)


def undisturbed(settings: dict[str, Any]) -> Undisturbed:
    """What a run that nobody disturbs evaluates, and how often it evaluates."""
    with folder() as here:

        def work() -> None:
            start(settings, "inline", here / "run")
            (here / "modules").write_text("\n".join(sys.modules))

        code, said = in_child(work)
        assert code == 0, said
        for name in (here / "modules").read_text().splitlines():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)  # here, so that no other child has to
        return essence(here / "run"), len(ends(notes()))


def broken(
    case: Case,
    settings: dict[str, Any],
    engine: str,
    run: Path,
    victim: str,
    in_worker: bool = False,
) -> tuple[int, str]:
    """Run a federation that breaks at the step of a case: how it ended, and what it said."""

    def work() -> None:
        count_releases()
        if in_worker:
            write_plan(case.step, case.number, RAY_WORKER, victim)
        else:
            install(case.step, case.number, victim)
        start(settings, engine, run)

    ended = with_engine(engine, work, case)
    idle(run)
    case.reached = bool({"killed", "failed"}.intersection(notes()))
    return ended


def with_engine(engine: str, work: Callable[[], None], case: Case) -> tuple[int, str]:
    """Run in a forked process: how it ended, and what it said. No worker of Ray may be left."""
    if engine != "ray":
        return in_child(work)

    def quietly() -> None:
        say_nothing()  # Ray tells of workers that died
        # Else a busy machine starves them. Ray reads this name as it is written here.
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
        os.environ["RAY_TMPDIR"] = str(Path(os.environ[NOTES]).parent / "ray")
        work()

    ended = in_child(quietly)
    if left := end_left(f"{NOTES}={os.environ[NOTES]}"):
        case.faults.append(f"{left} workers of Ray were left behind")
    return ended


def resumed(case: Case, engine: str, run: Path) -> dict[str, Any]:
    """Resume a run, and return its result, which is empty where it cannot be resumed."""

    def work() -> None:
        logging.disable()
        count_releases()
        found = resume(run, engine=engine).to_dict()
        (run.parent / "result").write_text(json.dumps(found))

    code, said = with_engine(engine, work, case)
    if code != 0:
        case.faults.append(f"cannot be resumed: {said}")
        return {}
    result: dict[str, Any] = json.loads((run.parent / "result").read_text())
    return result


def try_case(
    case: Case,
    engine: str,
    expected: Undisturbed,
    victim: str = SIMULATION,
    in_worker: bool = False,
) -> Case:
    """Break a simulation, resume it, and check what became of it."""
    with folder() as here:
        run, settings = here / "run", settings_of(case.strategy)
        code, said = broken(case, settings, engine, run, victim, in_worker)
        _check_end(case, code, said, victim)
        if not case.reached:
            return case
        before, agents_own = lost(run, notes()), code == 0
        result = resumed(case, CONTINUED.get((engine, case.number), engine), run)
        if result:
            check(case, result, run, before, agents_own, expected)
    return case


def _check_end(case: Case, code: int, said: str, victim: str) -> None:
    """Check how the broken simulation ended."""
    if not case.reached:
        expected = code == 0
    elif case.step.when in ("full", "read-only"):
        at_agent = "local-epsilon" in STRATEGIES[case.strategy] or "journal" in case.step.name
        named = "written" in said and "/run/" in said
        expected = named or (code == 0 and at_agent)  # an agent's error does not end the run
    elif victim == HOST:
        expected = code == 1 and "flwr-fbo resume" in said
    else:
        expected = code == -signal.SIGKILL
    if not expected:
        case.faults.append(f"ended with {code}: {said}")


def check(
    case: Case,
    result: dict[str, Any],
    run: Path,
    before: list[float],
    agents_own: bool,
    expected: Undisturbed,
) -> None:
    """Check a resumed run; ``agents_own`` where the fault was an error of one agent."""
    evaluations, calls = expected
    if not result["complete"] and not agents_own:
        case.faults.append("the resumed run is not complete")
    case.lost = len(before)
    if are_too_many(before, AT_ONCE[case.column]):
        case.faults.append(f"evaluations of {before} s were lost")
    again = len(lost(run, notes())) - len(before)
    if again:
        case.faults.append(f"{again} recorded evaluations were made again")
    check_books(case, result, run)
    recorded = sum(map(len, essence(run)))
    noisy = charges(run) > 0
    if not noisy and not agents_own and essence(run) != evaluations:
        case.faults.append("the evaluations are not those of an undisturbed run")
    local = any((run / "agents").glob("*.privacy.jsonl"))
    if not local and not agents_own and recorded != calls:
        case.faults.append(f"{recorded} evaluations, {calls} in an undisturbed run")


def check_books(case: Case, result: dict[str, Any], run: Path) -> None:
    """Check that no evaluation is recorded twice, and that every release is charged."""
    keys = [[e[:2] for e in history] for history in essence(run)]
    if any(len(set(history)) != len(history) for history in keys):
        case.faults.append("an evaluation was made twice")
    releases, charged = drawn(notes()), charges(run)
    if charged < releases:
        case.faults.append(f"{releases} releases, {charged} charges")
    budget = settings_of(case.strategy).get("epsilon")
    if budget and (run / "ledger.jsonl").exists() and result["epsilon"] > budget:
        case.faults.append(f"epsilon {result['epsilon']} of {budget}")


@dataclass(frozen=True)
class Selection:
    """The part of the matrix that is measured."""

    quick: bool = False
    only: str = ""
    #: The calls at which a process breaks; where empty, those of the whole matrix.
    calls: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.calls or ((2,) if self.quick else (1, 2, 5))


def try_steps(
    column: str,
    name: str,
    steps: Sequence[Step],
    selection: Selection,
    try_one: Callable[[Case, Undisturbed], Case],
) -> list[Case]:
    """Try all steps in a strategy, print each case that failed, and return those that happened."""
    cases: list[Case] = []
    steps = [step for step in steps if selection.only in step.name]
    if not steps:
        return cases
    expected = undisturbed(settings_of(name))
    for step in steps:
        for number in selection.numbers:
            case = try_one(Case(step, name, number, column), expected)
            if case.faults:
                print(failure(case), flush=True)
            if case.reached or case.faults:
                cases.append(case)
    print(f"{column}, {name}: {len(cases)} cases", file=sys.stderr, flush=True)
    return cases


def of_engine(engine: str, selection: Selection) -> list[Case]:
    """Break simulations with an engine."""
    cases: list[Case] = []
    for name in (QUICK if selection.quick else ENGINES)[engine]:
        cases += try_steps(
            engine, name, [*KILLS, *DISKS], selection,
            lambda case, expected: try_case(case, engine, expected),
        )  # fmt: skip
    return cases


# -- the table ---------------------------------------------------------------------------------


def failure(case: Case) -> str:
    return (
        f"FAILED {case.column}, {case.step.name}, {case.strategy}, call {case.number}: "
        f"{'; '.join(case.faults)}"
    )


def counted(cases: Iterable[Case]) -> Counts:
    """How many cases there were, how many failed, and the most evaluations lost in one."""
    found: Counts = {}
    for case in cases:
        counts = found.setdefault(case.column, {}).setdefault(case.step.name, [0, 0, 0])
        counts[0] += 1
        counts[1] += bool(case.faults)
        counts[2] = max(counts[2], case.lost)
    return found


def merged(saved: Counts, found: Counts) -> Counts:
    """The saved counts with those of the steps that were measured again."""
    return saved | {column: saved.get(column, {}) | steps for column, steps in found.items()}


def lines(saved: Counts, steps: Iterable[str]) -> list[str]:
    """The saved counts as a table of Markdown."""
    columns = [column for column in ORDER if column in saved]
    rows = []
    for name in [*dict.fromkeys(steps), ALL]:
        cells = {
            column: [counts for step, counts in saved[column].items() if name in (step, ALL)]
            for column in columns
        }
        everything = [counts for found in cells.values() for counts in found]
        if everything:
            rows.append({
                "fault": name,
                **{column: sum(c[0] for c in found) or None for column, found in cells.items()},
                "cases": sum(counts[0] for counts in everything),
                "failed": sum(counts[1] for counts in everything),
            })  # fmt: skip
    return table(rows)


def all_steps() -> list[str]:
    """The names of all steps, in the order of the table."""
    import ray_faults
    import worker_faults

    first = [*KILLS[:3], *ray_faults.ONCE, *ray_faults.ROUND[:2]]
    return [step.name for step in (*first, *KILLS, *worker_faults.STEPS, *DISKS)]


def with_table(page: str, saved: Path) -> str:
    """A page with the table of the saved columns."""
    return filled(page, MARK, lines(json.loads(saved.read_text()), all_steps()))


def main() -> None:
    import deployment_faults
    import ray_faults
    import worker_faults

    columns: dict[str, Callable[[Selection], list[Case]]] = {
        **{engine: partial(of_engine, engine) for engine in ENGINES},
        **worker_faults.COLUMNS,
        "ray": ray_faults.ray,
        "deployment": deployment_faults.deployment,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few strategies, the second call")
    parser.add_argument("--columns", nargs="+", default=ORDER, choices=ORDER)
    parser.add_argument("--only", default="", help="steps with these words")
    parser.add_argument("--write", action="store_true", help="into docs/evidence/reliability.md")
    given = parser.parse_args()
    os.environ[PROCESSES] = "2"
    selection, started = Selection(given.quick, given.only), time.monotonic()
    cases = [case for name in given.columns for case in columns[name](selection)]
    found = counted(cases)
    print("\n".join(lines(found, all_steps())))
    failed = [case for case in cases if case.faults]
    for case in failed:
        print(failure(case))
    print(f"{len(cases)} cases, {len(failed)} failed; {time.monotonic() - started:.0f} s")
    if given.write:
        saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
        saved = merged(saved, found) if given.only else saved | found
        SAVED.write_text(json.dumps(saved, indent=0) + "\n")
        PAGE.write_text(with_table(PAGE.read_text(), SAVED))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
