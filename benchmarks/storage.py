"""Files against SQLite as the store of agents and server: durability, speed, damage, readability.

    python benchmarks/storage.py [--agents 10000] [--kills 40] [--damages 400]

Three stores take the same records: one journal per agent (what the package does), one journal for
all agents, and one SQLite database in WAL mode. Measured are

- kill: a process appends numbered records, says each one, and is killed by SIGKILL at a random
  moment. Lost are records that were said and are not there afterwards.
- speed: two records for each of N agents, and reading all of them, in processor time; and by the
  clock with a flush to the disk (`fsync`, `synchronous=FULL`) after each record, for fewer agents.
- damage: a bit is flipped, the file is cut, an old copy is put back, a side file is deleted. Silent
  is a damage after which the store opens and returns other records than before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from flwr_fbo.runs.files.journal import Journal, journal_path
from flwr_fbo.runs.files.journal_check import JournalError, JournalOwner

Record = dict[str, Any]


def record_of(agent: int, number: int, seconds: float) -> Record:
    """Return a record like an evaluation."""
    return {"agent": agent, "round": number, "play": 0, "params": {"lr": 0.1234, "layers": 3},
            "unit": [0.25, 0.75], "score": 0.5 + number, "failure": "", "source": "own",
            "seconds": seconds, "regret": None}  # fmt: skip


class Store(Protocol):
    """A place for the records of many agents."""

    def append(self, agent: int, record: Record) -> None:
        """Store a record."""

    def read(self) -> list[Record]:
        """Return all records, agent by agent."""


class OneFileEach:
    """One journal per agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[int, Journal] = {}

    def append(self, agent: int, record: Record) -> None:
        if agent not in self._open:
            self._open[agent] = Journal(journal_path(self._folder, agent), JournalOwner("r", agent))
        self._open[agent].append("evaluation", record)

    def read(self) -> list[Record]:
        found = []
        # A journal or its head may be missing; the other one then says so.
        for agent in sorted({int(p.name[6:].split(".")[0]) for p in self._folder.iterdir()}):
            path = journal_path(self._folder, agent)
            journal = Journal(path, JournalOwner("r", agent), reading=True)
            if journal.lost:
                raise JournalError(f"{path} lost {journal.lost} records")
            found += journal.read("evaluation")
        return found


class OneFile:
    """One journal for all agents."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "all.jsonl"
        self._journal: Journal | None = None

    def append(self, agent: int, record: Record) -> None:
        if self._journal is None:
            self._journal = Journal(self._path, JournalOwner("r", "all"))
        self._journal.append("evaluation", record)

    def read(self) -> list[Record]:
        journal = Journal(self._path, JournalOwner("r", "all"), reading=True)
        if journal.lost:
            raise JournalError(f"{self._path} lost {journal.lost} records")
        return sorted(journal.read("evaluation"), key=lambda r: (r["agent"], r["round"]))


class Database:
    """One SQLite database in WAL mode."""

    def __init__(self, folder: Path, flush: bool = True) -> None:
        self._base = sqlite3.connect(folder / "all.sqlite", isolation_level=None)
        self._base.execute("pragma journal_mode=wal")
        self._base.execute(f"pragma synchronous={'full' if flush else 'off'}")
        self._base.execute(
            "create table if not exists records (agent integer, kind text, record text)"
        )

    def append(self, agent: int, record: Record) -> None:
        row = (agent, "evaluation", json.dumps(record))
        self._base.execute("insert into records values (?, ?, ?)", row)

    def read(self) -> list[Record]:
        if self._base.execute("pragma integrity_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("integrity_check")
        rows = self._base.execute("select record from records order by agent, rowid")
        return [json.loads(row[0]) for row in rows]

    def close(self) -> None:
        self._base.close()


STORES: dict[str, Callable[[Path, bool], Store]] = {
    "one journal per agent": lambda folder, flush: OneFileEach(folder),
    "one journal for all": lambda folder, flush: OneFile(folder),
    "SQLite, WAL": lambda folder, flush: Database(folder, flush),
}
#: The same database after it was closed, which moves all records into its main file.
CLOSED = "SQLite, closed"
STORES_OF = {CLOSED: "SQLite, WAL"}


def speed(name: str, agents: int, flush: bool) -> tuple[float, float, float]:
    """Return microseconds a record written and read, and kilobytes an agent.

    The time is that of the processor without flushes, and that of the clock with them.
    """
    clock = time.perf_counter if flush else time.process_time
    with tempfile.TemporaryDirectory() as inside:
        folder = Path(inside)
        store = STORES[name](folder, flush)
        started = clock()
        for number in range(2):
            for agent in range(agents):
                store.append(agent, record_of(agent, number, 1.0 if flush else 0.0))
        written = clock()
        assert len(STORES[name](folder, flush).read()) == 2 * agents
        read = clock()
        size = sum(path.stat().st_size for path in folder.iterdir())
        each = 1e6 / (2 * agents)
        return (written - started) * each, (read - written) * each, size / agents / 1000


def append_for_ever(name: str, folder: Path) -> None:
    """Append numbered records of three agents, and say each one once it is stored."""
    store = STORES[name](folder, True)
    for number in range(1_000_000):
        store.append(number % 3, record_of(number % 3, number, 1.0))
        os.write(1, f"{number}\n".encode())


def kills(name: str, count: int, seed: int) -> tuple[int, int]:
    """Return how many records were said before the kills, and how many of them are lost."""
    draw = random.Random(seed)
    said = lost = 0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as inside:
            here = [sys.executable, __file__, "--append", name, inside]
            with subprocess.Popen(here, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                if process.stdout.readline() != b"0\n":
                    raise RuntimeError(f"the process that writes to {name} did not start")
                time.sleep(draw.uniform(0.0, 0.2))
                process.send_signal(signal.SIGKILL)
                numbers = [0, *map(int, process.stdout.read().split(b"\n")[:-1])]
            there = {record["round"] for record in STORES[name](Path(inside), True).read()}
            said += len(numbers)
            lost += len(set(numbers) - there)
    return said, lost


def damages(name: str, count: int, seed: int) -> dict[str, list[int]]:
    """Return for each kind of damage how many were made, refused and silent."""
    draw = random.Random(seed)
    outcome: dict[str, list[int]] = {}
    closed, name = name == CLOSED, STORES_OF.get(name, name)
    with tempfile.TemporaryDirectory() as inside:
        whole, old = Path(inside) / "whole", Path(inside) / "old"
        whole.mkdir()
        store = STORES[name](whole, True)
        for number in range(40):
            if number == 20:
                shutil.copytree(whole, old)
            for agent in range(3):
                store.append(agent, record_of(agent, number, 1.0))
        expected = STORES[name](whole, True).read()
        if closed and isinstance(store, Database):
            store.close()
        for kind in ("bit flipped", "cut", "old copy of one file", "one file deleted"):
            for _ in range(count):
                hurt = Path(inside) / "hurt"
                shutil.copytree(whole, hurt)
                file = draw.choice([p for p in sorted(hurt.iterdir()) if p.stat().st_size])
                damage(kind, file, old / file.name, draw)
                found = outcome.setdefault(kind, [0, 0, 0])
                found[0] += 1
                try:
                    same = STORES[name](hurt, True).read() == expected
                    found[2] += not same
                except (JournalError, sqlite3.DatabaseError, ValueError):
                    found[1] += 1
                shutil.rmtree(hurt)
    return outcome


def damage(kind: str, file: Path, old: Path, draw: random.Random) -> None:
    """Damage a file."""
    data = bytearray(file.read_bytes())
    if kind == "bit flipped":
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(data)
    elif kind == "cut":
        file.write_bytes(data[: draw.randrange(len(data))])
    elif kind == "one file deleted" or not old.exists():
        file.unlink()
    else:
        shutil.copy(old, file)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--flushed", type=int, default=1000, help="agents with a flush each time")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--damages", type=int, default=400, help="damages of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--append", nargs=2, metavar=("STORE", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.append:
        append_for_ever(given.append[0], Path(given.append[1]))
    print("| store | CPU us a record | CPU us read | us flushed | kB an agent | said | lost |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in STORES:
        quick, slow = speed(name, given.agents, False), speed(name, given.flushed, True)
        said, lost = kills(name, given.kills, given.seed)
        print(f"| {name} | {quick[0]:.0f} | {quick[1]:.0f} | {slow[0]:.0f} | {quick[2]:.2f} | "
              f"{said:,} | {lost} |", flush=True)  # fmt: skip
    print("\n| store | damage | made | refused | same records | silent |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name in (*STORES, CLOSED):
        for kind, (made, refused, silent) in damages(name, given.damages, given.seed).items():
            same = made - refused - silent
            print(f"| {name} | {kind} | {made} | {refused} | {same} | {silent} |", flush=True)


if __name__ == "__main__":
    main()
