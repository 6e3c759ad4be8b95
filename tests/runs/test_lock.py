"""One process at a time runs or changes a run, whatever its strategy; dead ones hold nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo import Callback, Float, maximise, resume, simulate, task
from flwr_fbo.core.forks import EXIT_FORKED
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal_check import JournalError
from flwr_fbo.runs.files.lock import LOCK, RunLock
from flwr_fbo.runs.history import read_evaluations

STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "dp-fts-de", "epsilon": 5.0, "rounds": 4},
    {"strategy": "dp-fts-de", "rounds": 4},
    {"strategy": "fts", "rounds": 4},
    {"strategy": "random", "rounds": 4},
    {"strategy": "fed-pne", "budget": 60},
    {"strategy": "tgp", "budget": 9},
]


@task(space={"x": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    return 1.0 - abs(float(params["x"]) - 0.3)


class Crash(Callback):
    def on_round(self, run: Any, report: Any) -> None:
        if report.round == 0:
            raise ArithmeticError("the power went")


HOLDER = """
import sys
from pathlib import Path
from flwr_fbo.runs.files.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of tmp_path / "run"."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize("settings", STRATEGIES, ids=lambda s: f"{s['strategy']}{len(s)}")
def test_a_second_process_is_refused_with_who_holds_the_run(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(ArithmeticError):
        simulate(hill, agents=2, run_dir=run, callbacks=[Crash()], **settings)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != LOCK}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunDirectoryError, match=rf"in use: process {process.pid} on "):
            resume(run, hill)
        assert {
            p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != LOCK
        } == before
        process.kill()
    # The file is still there; its process is not, and is no obstacle.
    assert json.loads((run / LOCK).read_text())["process"] == process.pid
    assert resume(run, hill).complete


def test_a_new_run_takes_the_lock_too(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(RunDirectoryError, match="One process at a time"):
        simulate(hill, agents=2, rounds=1, run_dir=tmp_path / "run")
    holder.kill()
    holder.wait()
    assert simulate(hill, agents=2, rounds=1, run_dir=tmp_path / "run").complete


def test_the_lock_holds_within_a_process_and_may_be_taken_again_by_who_has_it(
    tmp_path: Path,
) -> None:
    one, other = RunDirectory(tmp_path), RunDirectory(tmp_path)
    with one.lock, one.lock:
        assert one.lock.held
        with pytest.raises(RunDirectoryError, match=f"process {os.getpid()} on"), other.lock:
            pass
    with other.lock:
        assert not one.lock.held


def test_a_child_that_outlives_the_run_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from flwr_fbo.runs.files.lock import RunLock\n"
        "with RunLock(Path(sys.argv[1])):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "    print(child, flush=True)\n"
        "    os._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())  # its end comes with the end of the child
    assert process.returncode == 0
    try:
        os.kill(child, 0)  # it lives
        deadline = time.monotonic() + 30
        while True:  # the child closes its copy of the lock in its first moments
            try:
                with RunLock(tmp_path):
                    break
            except RunDirectoryError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        os.kill(child, signal.SIGKILL)


def test_two_calls_of_maximise_do_not_share_a_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def score(params: dict[str, Any]) -> float:
        if not journal.with_suffix(".asked").exists():
            journal.with_suffix(".asked").touch()
            with pytest.raises(JournalError, match="another process is at work"):
                maximise(lambda p: 1.0, {"x": Float(0.0, 1.0)}, 20, journal=journal)
        return float(params["x"])

    assert len(maximise(score, {"x": Float(0.0, 1.0)}, 20, journal=journal).evaluations) == 20


@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_a_process_that_a_task_forks_never_goes_on_with_the_run(tmp_path: Path, how: str) -> None:
    """Before, each such process made all later evaluations and rounds once more."""
    codes = tmp_path / "codes"

    @task(space={"x": Float(0.0, 1.0)})
    def forking(params: Any) -> float:
        child = os.fork()
        if child == 0:
            if how == "raises":
                raise ArithmeticError
            if how == "exits":
                sys.exit(3)
            return 7.0
        with codes.open("a") as file:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=file)
        return float(params["x"])

    settings: dict[str, Any] = {"agents": 2, "rounds": 3, "epsilon": 5.0, "initial_points": 2}
    found = simulate(forking, run_dir=tmp_path / "run", **settings)
    assert found.history.evaluations == [2, 3, 4, 5]
    assert found.failures == 0
    ended = 3 if how == "exits" else EXIT_FORKED
    assert codes.read_text().split() == [str(ended)] * 10
    histories = read_evaluations(tmp_path / "run" / "agents", 2)
    assert [[(e.round, e.play) for e in history] for history in histories] == [
        [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0)]
    ] * 2
    rounds = (tmp_path / "run" / "rounds.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rounds] == ["0", "1", "2", "3"]
