"""Kill a run at every step of its protocol, resume it, and see what was lost.

    python benchmarks/faults.py [--quick] [--only WORDS] [--without-workers]

Each case forks a process that runs a federation and dies by SIGKILL (or finds the disk full, or
read-only) at one step: before, after or in the middle of the n-th call of one function. The run
is then resumed as `flwr-fbo resume` does, and these things must hold:

1. the resumed run completes, with as many evaluations as one that nobody disturbed;
2. no evaluation that ended and was recorded is made again; at most the one that was under way,
   or had ended and was not yet recorded, is, or the quick ones of one round that are recorded
   together;
3. the ledger has at least one charge for every release that was drawn, and its epsilon is
   within the budget; an agent's own ledger or journal likewise for every answer it gave;
4. without server noise the evaluations are exactly those of an undisturbed run;
5. a full or read-only disk is told in an error that names the file.

Asynchronous agents, whose evaluations are made by workers, have steps of their own, and their
workers are killed too: see worker_faults.py, which this command runs as well.

Prints a table: cases by fault and strategy. Exits with 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr_fbo.clients.background import has_worker
from flwr_fbo.core.space import Float
from flwr_fbo.runs.files.journal import Journal, journal_path
from flwr_fbo.runs.files.simulation_store import SimulationStore
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.locations import has_store
from flwr_fbo.simulation.simulate import resume, simulate_run
from flwr_fbo.tasks import task

AGENTS = 3
#: Where the objective and the faults write down what really happened.
NOTES = "FLWR_FBO_FAULT_NOTES"


def note(word: str) -> None:
    descriptor = os.open(Path(os.environ[NOTES]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{word}\n".encode())
    os.close(descriptor)


def climb(params: Any, partition: Any) -> float:
    note(f"end {partition.index}")
    return float(1.0 - (params["x"] - 0.3 - 0.05 * partition.index) ** 2)


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def hill(params: Any, partition: Any) -> float:
    return climb(params, partition)


STRATEGIES: dict[str, dict[str, Any]] = {
    "dp-fts-de": {"strategy": "dp-fts-de", "epsilon": 6.0, "regions": 2, "accountant": "rdp"},
    "dp-fts-de, sampled": {
        "strategy": "dp-fts-de", "epsilon": 20.0, "noise-multiplier": 1.0, "releases": "all",
        "sampling-rate": 0.5, "regions": 1, "accountant": "rdp",
    },
    "fts-de": {"strategy": "dp-fts-de", "regions": 2},
    "fts": {"strategy": "fts"},
    "fts, local budgets": {"strategy": "fts", "local-epsilon": 8.0, "local-answers": 12},
    "fed-pne": {"task": "faults:hill", "strategy": "fed-pne", "budget": 12},
    "ldp-ata": {"strategy": "ldp-ata", "budget": 9, "epsilon": 60.0, "epsilon-per-answer": 2.0,
                "bound": 1.0, "noise-bound": 0.1},
}  # fmt: skip
#: An agent whose worker is given time enough to finish: a run as if it had none.
ASYNCHRONOUS = "local-ts, asynchronous"
STRATEGIES[ASYNCHRONOUS] = {"strategy": "local-ts", "answer-within": 60.0, "rounds": 2}
QUICK = ["dp-fts-de", "fts, local budgets"]
THOMPSON = {"rounds": 4, "initial-points": 2, "features": 8, "refit-every": 0}


def settings_of(name: str) -> dict[str, Any]:
    own = STRATEGIES[name]
    common: dict[str, Any] = {"task": "faults:hill", "agents": AGENTS, "seed": 3}
    if own["strategy"] in ("dp-fts-de", "fts", "local-ts"):
        common |= THOMPSON
    return {**common, **own}


@dataclass(frozen=True)
class Step:
    """A function of the protocol, and how to die there."""

    name: str
    where: str  # module:attribute path
    when: str  # before, after, half, full, read-only


STORE = "flwr_fbo.runs.files.simulation_store:SimulationStore"
KILLS = [
    Step("run directory made", "flwr_fbo.simulation.engine:serve", "before"),
    Step("before the ledger's header", "flwr_fbo.privacy.ledger:Ledger.create", "before"),
    Step("after the ledger's header", "flwr_fbo.privacy.ledger:Ledger.create", "after"),
    Step(
        "before agents are asked",
        "flwr_fbo.simulation.in_process_agents:InProcessAgents.answer",
        "before",
    ),
    Step(
        "after agents, before replies",
        "flwr_fbo.simulation.in_process_agents:InProcessAgents.answer",
        "after",
    ),
    Step("after replies, before close", "flwr_fbo.strategies.rounds:Rounds._checked", "after"),
    Step("before a charge", "flwr_fbo.privacy.ledger:Ledger.charge", "before"),
    Step("in the middle of a charge", "flwr_fbo.privacy.ledger:_write", "half"),
    Step("after a charge", "flwr_fbo.privacy.ledger:Ledger.charge", "after"),
    Step("after the noise is drawn", "flwr_fbo.privacy.mechanisms:GaussianSum.release", "after"),
    Step("before a checkpoint", "flwr_fbo.runs.files.checkpoint:Checkpoint.save", "before"),
    Step("in the middle of a checkpoint", "flwr_fbo.runs.files.atomic:np.savez", "half"),
    Step("before a checkpoint's rename", "flwr_fbo.runs.files.atomic:Path.replace", "before"),
    Step("after a checkpoint", "flwr_fbo.runs.files.checkpoint:Checkpoint.save", "after"),
    Step("in the table of rounds", "flwr_fbo.runs.files.rounds:RoundTable._append", "before"),
    Step("before an evaluation", "flwr_fbo.core.evaluation:Evaluator._score", "before"),
    Step("evaluated, not recorded", "flwr_fbo.core.evaluation:Evaluator._score", "after"),
    Step("in the middle of a record", "flwr_fbo.runs.files.journal:_write_all", "half"),
    Step("recorded, not answered", f"{STORE}.append", "after"),
    Step("before a group is written", f"{STORE}._end_group", "before"),
    Step("after a group is written", f"{STORE}._end_group", "after"),
    Step("written, not in the head", f"{STORE}._write_head", "before"),
    Step("before an agent's reply", "flwr_fbo.clients.tuning_client:TuningClient._answer", "after"),
]
DISKS = [
    Step("disk full: charge", "flwr_fbo.privacy.ledger:_write", "full"),
    Step("disk full: checkpoint", "flwr_fbo.runs.files.atomic:np.savez", "full"),
    Step("disk full: table of rounds", "flwr_fbo.runs.files.rounds:RoundTable._append", "full"),
    Step("disk full: journal", "flwr_fbo.runs.files.journal:_write_all", "full"),
    Step("read-only: charge", "flwr_fbo.privacy.ledger:_write", "read-only"),
    Step("read-only: checkpoint", "flwr_fbo.runs.files.atomic:np.savez", "read-only"),
]


def install(step: Step, number: int) -> None:
    """Make the n-th call of a function the last thing that this process does."""
    module, _, path = step.where.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for attribute in owners:
        owner = getattr(owner, attribute)
    plain = getattr(owner, name)
    kept = owner.__dict__.get(name) if isinstance(owner, type) else None
    calls = [0]

    def faulty(*args: Any, **named: Any) -> Any:
        if args and isinstance(args[-1], bytes) and not args[-1].strip():
            return plain(*args, **named)  # a journal making sure of room
        if name == "replace" and args[0].name != "checkpoint.tmp":
            return plain(*args, **named)  # the files of a run that is not begun yet
        calls[0] += 1
        if calls[0] != number:
            return plain(*args, **named)
        if step.when == "half":
            _half(plain, args)
        if step.when in ("full", "read-only"):
            note("failed")
            if step.when == "full":
                with contextlib.suppress(Exception):
                    _half(plain, args)
            code = errno.ENOSPC if step.when == "full" else errno.EROFS
            raise OSError(code, os.strerror(code))
        if step.when == "after":
            plain(*args, **named)
        note("killed")
        return os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, staticmethod(faulty) if isinstance(kept, classmethod) else faulty)


def _half(plain: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Do half of a write."""
    *target, data = args
    if isinstance(data, bytes):
        plain(*target, data[: len(data) // 2])
    else:  # np.savez(file, ...)
        args[0].write(b"PK\x03\x04 half a checkpoint")
        args[0].flush()


def count_releases() -> None:
    """Note every noise that is drawn: the truth that ledgers must not be below."""
    from flwr_fbo.methods.ldp import agent
    from flwr_fbo.privacy import mechanisms

    draw, answer = mechanisms.GaussianSum.release, agent._reply

    def drawn(*args: Any, **named: Any) -> Any:
        note("release")
        return draw(*args, **named)

    def left(reward: float) -> Any:
        note(f"left {reward}")  # an answer that is given twice is one answer
        return answer(reward)

    mechanisms.GaussianSum.release = drawn  # type: ignore[method-assign]
    agent._reply = left


def in_child(work: Callable[[], None]) -> tuple[int, str]:
    """Run in a forked process: how it ended, and what it said when it failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.close(reading)
            work()
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode()[:4000])
            code = 1
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as said:
        text = said.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), text


@dataclass
class Case:
    """One fault in one strategy, and what did not hold."""

    step: Step
    strategy: str
    number: int
    reached: bool = True
    faults: list[str] = field(default_factory=list)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        os.environ[NOTES] = str(Path(name) / "notes")
        Path(os.environ[NOTES]).touch()
        yield Path(name)


def idle(run: Path) -> None:
    """Wait until no worker is at work, as one may be that outlived what started it."""
    while any(has_worker(path) for path in (run / "agents").glob("agent-????.jsonl")):
        time.sleep(0.02)


def notes() -> list[str]:
    return Path(os.environ[NOTES]).read_text().splitlines()


def records(run: Path, agent: int, kind: str = "evaluation") -> list[dict[str, Any]]:
    if has_store(run / "agents"):
        return SimulationStore(run / "agents", None, reading=True).records(agent).read(kind)
    return Journal(journal_path(run / "agents", agent), reading=True).read(kind)


def essence(run: Path) -> list[list[tuple[Any, ...]]]:
    """The evaluations of each agent: round, play, point and score."""
    histories = read_evaluations(run / "agents", AGENTS)
    return [[(e.round, e.play, tuple(e.unit), e.score) for e in history] for history in histories]


def made(run: Path) -> int:
    """How many evaluations are recorded."""
    return sum(len(history) for history in essence(run))


def most_lost(strategy: str, evaluations: list[list[tuple[Any, ...]]]) -> int:
    """How many evaluations a kill may lose: the one under way, or a round's group of quick ones."""
    if strategy == ASYNCHRONOUS:
        return 1
    return max(Counter(e[0] for history in evaluations for e in history).values())


def charges(path: Path) -> int:
    return path.read_text().count('"event"') if path.exists() else 0


def undisturbed(strategy: str) -> tuple[list[list[tuple[Any, ...]]], int]:
    """What a run that nobody disturbs evaluates, and how often it evaluates."""
    with folder() as here:
        code, said = in_child(lambda: _start(strategy, here / "run"))
        assert code == 0, said
        return essence(here / "run"), len(notes())


def _start(strategy: str, run: Path) -> None:
    logging.disable()
    simulate_run(settings_of(strategy), "inline", run)


def try_case(step: Step, strategy: str, number: int, expected: Any) -> Case:
    case = Case(step, strategy, number)
    with folder() as here:
        run = here / "run"

        def broken() -> None:
            logging.disable()
            count_releases()
            install(step, number)
            _start(strategy, run)

        code, said = in_child(broken)
        idle(run)
        before = notes()
        killed = step.when in ("before", "after", "half")
        if killed and code != -signal.SIGKILL:
            case.reached = False
            if code != 0:
                case.faults.append(f"ended with {code}: {said}")
            return case
        if not killed:
            _check_disk(case, code, said)
            if not case.reached:
                return case
        done = made(run)
        result: dict[str, Any] = {}

        def resumed() -> None:
            logging.disable()
            count_releases()
            found = resume(run, engine="inline").to_dict()
            (here / "result").write_text(json.dumps(found))

        code, said = in_child(resumed)
        if code != 0:
            case.faults.append(f"cannot be resumed: {said}")
            return case
        result = json.loads((here / "result").read_text())
        _check(case, result, run, done, before, expected)
    return case


def _check_disk(case: Case, code: int, said: str) -> None:
    """A run on a bad disk ends with an error that names a file; an agent's goes on without it."""
    if code == 0:
        case.reached = "journal" in case.step.name
    elif not ("written" in said and "/run/" in said):
        case.faults.append(f"an error that does not help: {said}")


def _check(
    case: Case, result: dict[str, Any], run: Path, done: int, before: list[str], expected: Any
) -> None:
    evaluations, calls = expected
    lost_journal = case.step.name == "disk full: journal"
    if not result["complete"] and not lost_journal:
        case.faults.append("the resumed run is not complete")
    ended = sum(word.startswith("end") for word in before)
    if not 0 <= ended - done <= most_lost(case.strategy, evaluations):
        case.faults.append(f"{ended} evaluations ended, {done} recorded")
    again = sum(word.startswith("end") for word in notes()) - (ended - done)
    recorded = made(run)
    if again != recorded:
        case.faults.append(f"{again} evaluations were paid for, {recorded} are recorded")
    keys = [[e[:2] for e in history] for history in essence(run)]
    if any(len(set(history)) != len(history) for history in keys):
        case.faults.append("an evaluation was made twice")
    central = charges(run / "ledger.jsonl")
    own = sum(charges(path) for path in (run / "agents").glob("*.privacy.jsonl"))
    answers = sum(len(records(run, agent, "ldp-answer")) for agent in range(AGENTS))
    drawn = notes().count("release") + len({w for w in notes() if w.startswith("left")})
    if central + own + answers < drawn:
        case.faults.append(f"{drawn} releases, {central} + {own} + {answers} charges")
    budget = settings_of(case.strategy).get("epsilon")
    if budget and central and result["epsilon"] > budget:
        case.faults.append(f"epsilon {result['epsilon']} of {budget}")
    noisy = central or own or answers
    if not noisy and not lost_journal and essence(run) != evaluations:
        case.faults.append("the evaluations are not those of an undisturbed run")
    if not own and not lost_journal and recorded != calls:
        case.faults.append(f"{recorded} evaluations, {calls} in an undisturbed run")


def matrix(
    numbers: tuple[int, ...],
    only: str,
    names: Iterable[str],
    steps: Sequence[Step],
    known: Any = None,
) -> list[Case]:
    cases = []
    for strategy in names:
        expected = known or undisturbed(strategy)
        for step in steps:
            if only in step.name or only in strategy:
                cases += [try_case(step, strategy, n, expected) for n in numbers]
    return cases


def report(cases: list[Case], steps: Sequence[Step]) -> bool:
    """Print cases by step; whether all is well."""
    reached = [c for c in cases if c.reached or c.faults]
    print(f"{'fault':<34}{'cases':>7}{'failed':>8}")
    for step in steps:
        mine = [c for c in reached if c.step == step]
        print(f"{step.name:<34}{len(mine):>7}{sum(bool(c.faults) for c in mine):>8}")
    failed = [c for c in reached if c.faults]
    print(f"{'all':<34}{len(reached):>7}{len(failed):>8}")
    for c in failed:
        print(f"FAILED {c.step.name}, {c.strategy}, call {c.number}: {'; '.join(c.faults)}")
    return not failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two strategies, the second call")
    parser.add_argument("--only", default="", help="steps or strategies with these words")
    parser.add_argument("--without-workers", action="store_true", help="no asynchronous agents")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # where the task is found
    quick, only = arguments.quick, arguments.only
    names = QUICK if quick else [name for name in STRATEGIES if name != ASYNCHRONOUS]
    started = time.monotonic()
    steps = [*KILLS, *DISKS]
    cases = matrix((2,) if quick else (1, 2, 5), only, names, steps)
    if not arguments.without_workers:
        import worker_faults

        cases += worker_faults.matrix(quick, only)
        steps += worker_faults.STEPS
    well = report(cases, steps)
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
