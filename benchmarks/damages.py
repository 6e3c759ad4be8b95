"""Damage the files of a run at random, and see that no damage gives a wrong result in silence.

    python benchmarks/damages.py [--count 2000] [--seed 0] [--table docs/evidence/reliability.md]

Runs of seven strategies are made, each interrupted in the middle, and finished. A case takes a
copy of one of them, damages one file (or a pair that belongs together), and then does what a person
would do: it resumes the interrupted run, resumes the finished run for more rounds, or reads the
finished run with everything that reads one (result, records, report, statement, newcomer).

=========  ======================================================================================
outcome    meaning
=========  ======================================================================================
same       everything that was read or computed is as without the damage
declared   the damage was mended, and the result says what was wrong, or counts what was lost
refused    an error of the package's own that names the file; before any evaluation or charge
silent     anything else: another result without a word, an error of Python's own, a late error
=========  ======================================================================================

The noise of private runs is seeded here: two undisturbed continuations are equal to the bit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr_fbo import Callback, Float, Result, join, resume, simulate, task
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.ldp import agent as ldp_agent
from flwr_fbo.methods.thompson import local_privacy
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.report.runs import read_run
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal_check import JournalError
from flwr_fbo.runs.files.statement import read_statement

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.pages import filled, table

#: The package's own errors, one of which every refusal must be.
DECLARED = (RunDirectoryError, JournalError, SettingsError, PrivacyError)
AGENTS = 3
#: What every strategy is given.
SHAPE: dict[str, Any] = {"agents": AGENTS, "seed": 3, "timeout": 1.0}
THOMPSON: dict[str, Any] = {"rounds": 5, "initial_points": 2, "features": 8, "refit_every": 0}
_CENTRAL: dict[str, Any] = {**THOMPSON, "strategy": "dp-fts-de", "epsilon": 6.0, "regions": 2,
                            "accountant": "rdp", "releases": "all", "noise_seed": 7}  # fmt: skip
STRATEGIES: dict[str, dict[str, Any]] = {
    "dp-fts-de": _CENTRAL,
    "dp-fts-de, last release": {**_CENTRAL, "advice": "last", "regions": 1},
    "fts-de": {**THOMPSON, "strategy": "dp-fts-de", "regions": 2},
    "fts": {**THOMPSON, "strategy": "fts"},
    "fts, local budgets": {**THOMPSON, "strategy": "fts", "local_epsilon": 8.0,
                           "local_answers": 12},
    "fed-pne": {"strategy": "fed-pne", "budget": 90},
    "ldp-ata": {"strategy": "ldp-ata", "budget": 9, "epsilon": 60.0, "epsilon_per_answer": 2.0,
                "bound": 1.0, "noise_bound": 0.1},
}  # fmt: skip
#: The round after which a run is interrupted: the search of Fed-PNE has few rounds, but long ones.
CRASHES = {"fed-pne": 1}
QUICK = ("dp-fts-de", "fts, local budgets", "fed-pne")
ACTIONS = ("resumed", "longer", "read")
#: How often the task was evaluated; a refusal must come before the first time.
calls = Counter[str]()


def _height(params: Any, partition: Any) -> float:
    calls["evaluations"] += 1
    if params["x"] > 0.9:
        raise ArithmeticError("too steep")  # failures are a part of what must be counted
    return float(1.0 - (params["x"] - 0.3 - 0.05 * partition.index) ** 2)


@task(space={"x": Float(0.0, 1.0)}, metric="height", score_range=(0.0, 1.0))
def slope(params: Any, partition: Any) -> float:
    """A hill that is tuned."""
    return _height(params, partition)


class Snapshots(Callback):
    """Keep a copy of the run's directory after each round, and crash after one of them."""

    def __init__(self, folder: Path, copies: Path, crash: int | None = None) -> None:
        self._folder, self._copies, self._crash = folder, copies, crash

    def on_round(self, run: Any, report: Any) -> None:
        shutil.copytree(self._folder, self._copies / f"{report.round:03d}")
        if report.round == self._crash:
            raise InterruptedError("the power went")


@dataclass
class Sources:
    """The runs of one strategy: interrupted, finished, another of the same settings, old copies."""

    strategy: str
    interrupted: Path
    finished: Path
    other: Path
    old: dict[str, list[Path]]
    expected: dict[str, Any] = field(default_factory=dict)

    def of(self, action: str) -> Path:
        """Return the run that an action begins with."""
        return self.interrupted if action == "resumed" else self.finished


@contextlib.contextmanager
def seeded_agents() -> Iterator[None]:
    """Let agents draw their noise from a seed, so that two runs are equal."""
    kept = [(module, module.system_entropy) for module in (ldp_agent, local_privacy)]
    for module, _ in kept:
        module.system_entropy = lambda: seeded_entropy(5)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, before in kept:
            module.system_entropy = before  # type: ignore[attr-defined]


def make(strategy: str, base: Path) -> Sources:
    """Make the runs of a strategy, and what undisturbed continuations of them give."""
    settings = {**SHAPE, **STRATEGIES[strategy]}
    folders = {name: base / name for name in ("interrupted", "finished", "other")}
    for name, folder in folders.items():
        crash = None if name == "finished" else CRASHES.get(strategy, 3)
        snapshots = Snapshots(folder, base / "old" / name, crash)
        with contextlib.suppress(InterruptedError):
            simulate(slope, run_dir=folder, callbacks=[snapshots], **settings)
    if (folders["interrupted"] / "result.json").exists():
        raise ValueError(f"the run of {strategy} must be long enough to be interrupted")
    old = {name: sorted((base / "old" / name).iterdir())[:-1] for name in folders}
    made = Sources(strategy, **folders, old=old)
    for action in actions_of(strategy):
        copy = base / "undisturbed"
        shutil.copytree(made.of(action), copy)
        made.expected[action] = act(action, copy, strategy)
        shutil.rmtree(copy)
    return made


def actions_of(strategy: str) -> tuple[str, ...]:
    """Return what can be done with the runs of a strategy."""
    counts = "rounds" in STRATEGIES[strategy]
    return ACTIONS if counts else tuple(a for a in ACTIONS if a != "longer")


# -- what a person does with a run ---------------------------------------------------------------


def act(action: str, folder: Path, strategy: str) -> dict[str, Any]:
    """Do it, and return everything that came out, or the errors that did, by who read it."""
    if action == "resumed":
        return outcome({"resume": lambda: _essence(resume(folder, slope))}, folder)
    if action == "longer":
        return outcome({"resume": lambda: _essence(resume(folder, slope, rounds=7))}, folder)
    readers: dict[str, Callable[[], Any]] = {
        "result": lambda: _essence(Result.read(folder)),
        "records": lambda: Result.read(folder).to_records(),
        "report": lambda: _reported(folder),
        "statement": lambda: read_statement(RunDirectory(folder)).to_dict(),
    }
    if STRATEGIES[strategy]["strategy"] == "dp-fts-de":
        readers["newcomer"] = lambda: _joined(folder)
    # Last, as it makes rounds again where the checkpoint is an old one.
    readers["resume"] = lambda: _essence(resume(folder, slope))
    return outcome(readers, folder)


def outcome(readers: dict[str, Callable[[], Any]], folder: Path) -> dict[str, Any]:
    """Return what each reader gives: a value, or its error."""
    found: dict[str, Any] = {}
    for name, read in readers.items():
        calls.clear()
        before = _charges(folder)
        try:
            found[name] = read()
        except Exception as error:
            late = calls["evaluations"] > 0 or _charges(folder) > before
            found[name] = (error, "late" if late else "")
    return found


def _charges(folder: Path) -> int:
    """Return how many lines the ledgers of a run hold."""
    ledgers = [folder / "ledger.jsonl", *folder.glob("agents/*.privacy.jsonl")]
    return sum(path.read_bytes().count(b"\n") for path in ledgers if path.exists())


def _essence(result: Result) -> dict[str, Any]:
    """Return a result without what differs between two equal runs."""
    plain = result.to_dict()
    del plain["seconds"], plain["run_dir"]
    plain["evaluations"] = [
        {k: v for k, v in row.items() if k != "seconds"} for row in result.to_records()
    ]
    return dict(json.loads(json.dumps(plain)))


def _reported(folder: Path) -> Any:
    """Return what a report shows."""
    run = read_run(folder)
    unfinished = ["the run is shown as not finished"] if run.result is None else []
    return {
        "config": run.config,
        "environment": run.environment,
        "space": run.space,
        "rounds": run.rounds,
        "histories": run.histories,
        "result": None if run.result is None else _essence(run.result),
        "damages": [*run.notices, *unfinished],
    }


def _joined(folder: Path) -> Any:
    """Return where a newcomer would begin."""
    return join(folder).ask()


# -- damages -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """One damage: its kind, the file, and the names of all files that it changed."""

    kind: str
    file: Path
    names: frozenset[str]

    @property
    def label(self) -> str:
        """Return the kind of the file, as the table names it."""
        name = re.sub(r"\d{4}", "*", self.file.as_posix())
        return re.sub(r"^agents/agent-\*", "agents/agent-*", name)


#: Files that no reader uses: the lock, and pictures and texts made of the result.
UNREAD = {"run.lock", "tree.svg", "tree.txt", "tree.json"}


def damage(folder: Path, sources: Sources, draw: random.Random) -> Damage | None:
    """Damage a file of a run; return None where the damage changed nothing."""
    files = [p.relative_to(folder) for p in sorted(folder.rglob("*")) if p.is_file()]
    file = draw.choice([f for f in files if f.name not in UNREAD])
    kind = draw.choice(list(KINDS))
    before = {f: (folder / f).read_bytes() for f in files}
    KINDS[kind](folder, file, sources, draw)
    after = {f: (folder / f).read_bytes() if (folder / f).exists() else None for f in files}
    changed = {f.name for f in files if after[f] != before[f]}
    names = {re.sub(r"\.(key|head)$", "", name) for name in changed} | changed
    return Damage(kind, file, frozenset(names)) if changed else None


def _change(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Put changed bytes in place of a file's."""
    path.write_bytes(change(path.read_bytes()))


def flip(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Flip one to three bits."""

    def flipped(data: bytes) -> bytes:
        new = bytearray(data)
        for _ in range(draw.randint(1, 3)) if data else ():
            new[draw.randrange(len(new))] ^= 1 << draw.randrange(8)
        return bytes(new)

    _change(folder / file, flipped)


def digit(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Replace a decimal digit by another, which leaves text well formed."""

    def changed(data: bytes) -> bytes:
        places = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
        if not places:
            return data
        place = draw.choice(places)
        new = draw.choice([d for d in range(48, 58) if d != data[place]])
        return data[:place] + bytes([new]) + data[place + 1 :]

    _change(folder / file, changed)


def cut(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Cut the file at any byte."""
    _change(folder / file, lambda data: data[: draw.randrange(len(data) + 1)])


def cut_lines(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Drop some lines at the end."""

    def shorter(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join(lines[: draw.randrange(len(lines))]) if lines else data

    _change(folder / file, shorter)


def move_lines(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Double a line, drop a line, or swap two."""

    def moved(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        if len(lines) < 2:
            return data
        one, two = draw.sample(range(len(lines)), 2)
        how = draw.randrange(3)
        if how == 0:
            lines.insert(two, lines[one])
        elif how == 1:
            del lines[one]
        else:
            lines[one], lines[two] = lines[two], lines[one]
        return b"".join(lines)

    _change(folder / file, moved)


def garbage(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Overwrite a stretch by random bytes or zeros, or add some at the end."""

    def spoilt(data: bytes) -> bytes:
        start, length = draw.randrange(len(data) + 1), draw.randint(1, 200)
        new = draw.choice([bytes(length), draw.randbytes(length)])
        return data[:start] + new + data[start + length :]

    _change(folder / file, spoilt)


def delete(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Delete the file."""
    (folder / file).unlink()


def old_copy(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Put back a copy of the file from an earlier round of the same run."""
    _old(folder, [file], sources, draw)


def old_pair(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Put back an old copy of a file together with the file beside it (key or head)."""
    base = Path(re.sub(r"\.(key|head)$", "", str(file)))
    _old(folder, [base, Path(f"{base}.key"), Path(f"{base}.head")], sources, draw)


def _old(folder: Path, files: list[Path], sources: Sources, draw: random.Random) -> None:
    """Put back copies of files from one earlier round of the run that the folder is a copy of."""
    name = "finished" if (folder / "result.json").exists() else "interrupted"
    copies = draw.choice(sources.old[name])
    for file in files:
        if (copies / file).exists():
            shutil.copyfile(copies / file, folder / file)


def swap(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Put the file of another run of the same settings in its place."""
    other = sources.other / file
    if other.exists():
        shutil.copyfile(other, folder / file)


def mix_up(folder: Path, file: Path, sources: Sources, draw: random.Random) -> None:
    """Swap the file with one of the same kind in the same run, such as another agent's journal."""
    pattern = re.sub(r"\d{4}", "????", file.name)
    twins = [p for p in sorted((folder / file).parent.glob(pattern)) if p.name != file.name]
    if twins:
        twin, mine = draw.choice(twins), folder / file
        data = twin.read_bytes()
        twin.write_bytes(mine.read_bytes())
        mine.write_bytes(data)


KINDS: dict[str, Callable[[Path, Path, Sources, random.Random], None]] = {
    "bits flipped": flip,
    "a digit changed": digit,
    "cut": cut,
    "lines cut off": cut_lines,
    "a line doubled, dropped, moved": move_lines,
    "garbage written over": garbage,
    "deleted": delete,
    "old copy put back": old_copy,
    "old copy, with its key or head": old_pair,
    "file of another run": swap,
    "mixed up in the run": mix_up,
}


# -- cases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One damage, what was done with the run afterwards, and how that ended."""

    strategy: str
    action: str
    damage: Damage
    outcome: str
    why: str = ""


def judge(
    expected: dict[str, Any], found: dict[str, Any], names: frozenset[str]
) -> tuple[str, str]:
    """Return the outcome of a case, and the error or difference behind it."""
    verdicts = [_judge_one(expected[name], found[name], names) for name in expected]
    # The worst outcome of any reader is that of the case.
    order = ("silent", "refused", "declared", "same")
    return min(verdicts, key=lambda verdict: order.index(verdict[0]))


def _judge_one(expected: Any, found: Any, names: frozenset[str]) -> tuple[str, str]:
    if found == expected:
        return "same", ""
    if isinstance(found, tuple) and isinstance(found[0], Exception):
        error, late = found
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, DECLARED):
            return "silent", "".join(traceback.format_exception(error))[-1500:]
        if late:
            return "silent", f"refused after work was done: {text}"
        return ("refused", text) if any(n in str(error) for n in names) else ("silent", text)
    if isinstance(found, dict) and found.get("damages"):
        return "declared", "; ".join(found["damages"])
    if isinstance(found, dict) and found.get("missed", []) != expected.get("missed", []):
        return "declared", f"missed rounds: {found['missed']}"  # named in result and summary
    if isinstance(found, dict) and _counts(found) > _counts(expected):
        return "declared", f"{_counts(found) - _counts(expected)} failures more"
    return "silent", _difference(expected, found)


def _counts(result: Any) -> int:
    """Return how many failures a result counts."""
    return int(result.get("failures", 0)) if isinstance(result, dict) else 0


def _difference(expected: Any, found: Any) -> str:
    """Return where two values differ, in short."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [k for k in {**expected, **found} if expected.get(k) != found.get(k)]
        return "; ".join(f"{k}: {str(expected.get(k))[:150]} -> {str(found.get(k))[:150]}"
                         for k in keys[:4])  # fmt: skip
    return f"{str(expected)[:300]} -> {str(found)[:300]}"


def try_one(sources: Sources, base: Path, draw: random.Random) -> Case | None:
    """Damage a copy of a run and use it; return None where the damage changed nothing."""
    action = draw.choice(actions_of(sources.strategy))
    copy = base / "case"
    shutil.copytree(sources.of(action), copy)
    try:
        done = damage(copy, sources, draw)
        if done is None:
            return None
        found = act(action, copy, sources.strategy)
        outcome, why = judge(sources.expected[action], found, done.names)
        return Case(sources.strategy, action, done, outcome, why)
    finally:
        shutil.rmtree(copy)


def matrix(count: int, seed: int, strategies: tuple[str, ...] = tuple(STRATEGIES)) -> list[Case]:
    """Make this many damages, spread over the strategies."""
    logging.disable()
    cases: list[Case] = []
    try:
        with seeded_agents(), tempfile.TemporaryDirectory() as inside:
            for number, strategy in enumerate(strategies):
                base = Path(inside) / str(number)
                sources, draw = make(strategy, base), random.Random(f"{seed} {strategy}")
                mine: list[Case] = []
                while len(mine) < -(-count // len(strategies)):
                    case = try_one(sources, base, draw)
                    mine += [] if case is None else [case]
                cases += mine
                print(f"{strategy}: {len(mine)} damages", file=sys.stderr, flush=True)
    finally:
        logging.disable(logging.NOTSET)
    return cases


def rows(cases: list[Case]) -> list[dict[str, Any]]:
    """Return the table: one row per file and kind of damage."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for case in cases:
        found.setdefault((case.damage.label, case.damage.kind), Counter())[case.outcome] += 1
    everything = Counter(case.outcome for case in cases)
    outcomes = ("same", "declared", "refused", "silent")
    table = [
        {"file": file, "damage": kind, "cases": sum(counts.values()),
         **{name: counts[name] for name in outcomes}}
        for (file, kind), counts in sorted(found.items())
    ]  # fmt: skip
    return [*table, {"file": "**all**", "damage": "", "cases": len(cases),
                     **{name: everything[name] for name in outcomes}}]  # fmt: skip


def main() -> None:
    """Make the damages, print the table, and exit with 1 if any was silent."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="strategies with this text in their name")
    parser.add_argument("--table", type=Path, help="the page whose table to write")
    given = parser.parse_args()
    started = time.monotonic()
    names = tuple(name for name in STRATEGIES if given.only in name)
    cases = matrix(given.count, given.seed, names)
    lines = table(rows(cases))
    print("\n".join(lines))
    silent = [case for case in cases if case.outcome == "silent"]
    for case in silent:
        print(f"SILENT {case.strategy}, {case.action}, {case.damage.file}, {case.damage.kind}: "
              f"{case.why}\n")  # fmt: skip
    print(f"{len(cases)} damages, {len(silent)} silent; {time.monotonic() - started:.0f} s")
    if given.table is not None and not silent:
        given.table.write_text(filled(given.table.read_text(), "damages", lines))
    sys.exit(1 if silent else 0)


if __name__ == "__main__":
    main()
