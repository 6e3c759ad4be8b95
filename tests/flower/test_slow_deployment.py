"""Evaluations that outlast rounds, between Flower's own processes: a message is a process here."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flwr_fbo.clients.background import has_worker, kill_worker
from flwr_fbo.clients.evaluation_job import worker_path
from flwr_fbo.runs.files.journal import Journal, journal_path
from flwr_fbo.runs.history import read_evaluations
from tests.flower.processes import REPOSITORY, Flower, flower, free_ports
from tests.flower.slow_tasks import NOTES, allow, notes

pytestmark = [
    pytest.mark.slow(90),
    pytest.mark.skipif(sys.platform == "win32", reason="workers need fork"),
]

TIMEOUT = 1800.0
# No round ends by its timeout: each waits for the test, however slow the machine is.
SETTINGS = (
    f"task='tests.flower.slow_tasks:gated' strategy='fts' agents=2 rounds=6 timeout={TIMEOUT} "
    "answer-within=0.0 run-name='slow' settings='initial-points=1 features=8 refit-every=0'"
)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flower]:
    monkeypatch.setenv(NOTES, str(tmp_path))
    with flower(tmp_path, quick=True) as processes:
        yield processes
    for path in tmp_path.rglob("agent-????.jsonl"):
        kill_worker(path)


def node(running: Flower, link: int, port: int, party: int) -> subprocess.Popen[bytes]:
    """Party 1 waits for its evaluations, so that they let rounds pass one by one."""
    config = f"partition-id={party} num-partitions=2" + (" answer-within='never'" if party else "")
    return running.supernode(link, port, config)


def test_answers_come_meanwhile_whoever_dies(running: Flower) -> None:
    link, *ports = free_ports(4)
    running.superlink(link)
    nodes = [node(running, link, ports[party], party) for party in (0, 1)]
    running.command("flwr", "run", str(REPOSITORY), "dep", "--run-config", SETTINGS)
    directory = running.folder / "fbo" / "runs" / "slow"
    slow = journal_path(directory / "agents", 0)

    def rounds() -> list[dict[str, str]]:
        table = directory / "rounds.csv"
        return list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []

    def pass_rounds(count: int) -> None:
        allow(1, count)
        running.until(lambda: len(rounds()) >= count)

    # The message that began it is over, and so are others: its evaluation goes on.
    pass_rounds(2)
    running.until(lambda: len(notes(0, "begin")) == 1)
    os.kill(int(worker_path(slow).read_text()), signal.SIGKILL)
    pass_rounds(4)  # the message of round 2 may have come before the kill
    running.until(lambda: len(notes(0, "begin")) == 2)
    assert len({x for _, x in notes(0, "begin")}) == 1  # the same point again

    # The SuperNode is stopped; the worker is none of its business. (One that is killed is
    # missed by the SuperLink for a minute only: tests/flower/test_deployment.py waits for that.)
    nodes[0].terminate()
    nodes[0].wait()
    assert has_worker(slow)
    again = node(running, link, ports[2], 0)
    running.until(lambda: "SuperNode ID" in running.log(again))
    allow(0, 1)
    running.until(lambda: not has_worker(slow))
    allow(1, 7)
    running.until(lambda: len(notes(0, "begin")) == 3)  # it is asked again, as another node

    running.until_finished(running.link)
    assert running.status("dep").startswith("finished:completed"), running.logs()
    assert has_worker(slow)  # the run is over; what was begun is not
    allow(0, 2)
    running.until(lambda: not has_worker(slow))

    table = rounds()
    assert [int(r["round"]) for r in table] == list(range(7))
    # Nobody was waited for in vain. The round in which the SuperNode was stopped may be without its
    # reply: Flower says so at once.
    assert sum(int(r["missing"]) for r in table) <= 1
    assert max(float(r["seconds"]) for r in table) < TIMEOUT
    assert table[-1]["replied"] == "2"  # agent 0 with what it knows
    late, quick = read_evaluations(directory / "agents", 2)
    assert [e.round for e in quick] == list(range(7))
    assert len(late) == len(notes(0, "end")) == 2
    assert late[0].round == 0
    assert len(Journal(slow, reading=True).read("begun")) == 3
