"""Ends before the last round: rules, Ctrl-C, and what the views of progress show."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from flwr_fbo import Callback, Float, LocalTS, resume, simulate, task
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs import progress
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.progress import LiveProgress, PrintProgress, progress_views
from flwr_fbo.runs.spec import RunSettings
from flwr_fbo.runs.stopping import Stopper

ALONE: dict[str, Any] = {"agents": 2, "rounds": 30, "strategy": LocalTS(initial_points=2)}


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def flat(params: Any) -> float:
    return 0.25


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def hill(params: Any) -> float:
    return 1.0 - (float(params["x"]) - 0.3) ** 2


def report(round: int = 3, rounds: int | None = 10) -> RoundReport:
    return RoundReport(round, rounds, 2, 2, 0, {}, 0, 0.1)


class TestRules:
    def test_patience(self, tmp_path: Path) -> None:
        found = simulate(flat, run_dir=tmp_path / "r", patience=3, **ALONE)
        # The best of round 0 is not beaten in rounds 1, 2 and 3.
        assert found.history.evaluations == [2, 3, 4, 5]
        assert found.stopped_early == "patience: no gain in 3 rounds"
        assert found.complete  # it did what was asked

    def test_target_score(self, tmp_path: Path) -> None:
        found = simulate(hill, run_dir=tmp_path / "r", target_score=0.99, **ALONE)
        assert found.history.best[-1] is not None
        assert found.history.best[-1] >= 0.99
        assert all(best < 0.99 for best in found.history.best[:-1])
        assert found.stopped_early.startswith("target-score: the mean best score is 0.99")

    def test_evaluations(self, tmp_path: Path) -> None:
        found = simulate(hill, run_dir=tmp_path / "r", max_evaluations=9, **ALONE)
        assert found.history.evaluations == [2, 3, 4, 5]  # ten of all agents: the round is finished
        assert found.stopped_early == "max-evaluations: 10 evaluations were made"

    def test_seconds(self, tmp_path: Path) -> None:
        found = simulate(hill, run_dir=tmp_path / "r", max_seconds=1e-9, **ALONE)
        assert found.history.evaluations == [2]
        assert found.stopped_early.startswith("max-seconds")

    def test_a_run_that_ends_by_itself_was_not_stopped(self, tmp_path: Path) -> None:
        few = {**ALONE, "rounds": 3}
        found = simulate(flat, run_dir=tmp_path / "r", patience=3, **few)
        assert found.stopped_early == ""
        assert found.complete

    def test_those_it_is_compared_with_make_as_many_evaluations(self, tmp_path: Path) -> None:
        found = simulate(flat, run_dir=tmp_path / "r", patience=2, compare=["random"], **ALONE)
        assert (
            found.compared["random"].history.evaluations == found.history.evaluations == [2, 3, 4]
        )
        assert found.compared["random"].stopped_early == ""

    def test_an_end_that_tells_of_scores_is_noted_in_a_private_run(self, tmp_path: Path) -> None:
        given: dict[str, Any] = {"agents": 2, "rounds": 9, "initial_points": 2, "epsilon": 5.0}
        found = simulate(flat, run_dir=tmp_path / "r", patience=2, **given)
        assert "depended on scores" in " ".join(found.privacy.not_covered)
        untouched = simulate(flat, run_dir=tmp_path / "s", max_evaluations=9, **given)
        assert "scores" not in untouched.privacy.not_covered[0]
        assert not any("when the run stopped" in text for text in untouched.privacy.not_covered)

    @pytest.mark.parametrize("key", ["patience", "target_score", "max_evaluations"])
    def test_a_server_without_journals_refuses_rules_on_scores(self, key: str) -> None:
        with pytest.raises(SettingsError, match="unset outside simulations"):
            Stopper(RunSettings(**{key: 5}))
        assert not Stopper(RunSettings(max_seconds=60.0))(report())


SLOW_TASK = """
import time
from flwr_fbo import Callback, Float, task

@task(space={"x": Float(0.0, 1.0)})
def slow(params):
    time.sleep(0.1)
    with open("calls", "a") as file:
        file.write(".")
    return params["x"]
"""


def start(folder: Path, engine: str = "inline") -> subprocess.Popen[str]:
    (folder / "mine.py").write_text(SLOW_TASK)
    command = [
        sys.executable, "-c", "from flwr_fbo.cli.main import main; main()", "run", "mine:slow",
        "--agents", "2", "--rounds", "40", "--epsilon", "5", "--set", "initial-points=2",
        "--engine", engine, "--run-dir", "r", "--compare", "random",
    ]  # fmt: skip
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"}, start_new_session=True,
    )  # fmt: skip


def wait_for_round(folder: Path, number: int, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    table = folder / "r" / "rounds.csv"
    while not table.exists() or len(table.read_text().splitlines()) < number + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class TestInterrupt:
    def test_finishes_the_round_and_says_how_to_go_on(self, tmp_path: Path) -> None:
        running = start(tmp_path)
        wait_for_round(tmp_path, 2)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=240)
        assert running.returncode == 130
        assert "stopping after this round" in err
        assert "flwr-fbo resume r" in out
        assert "Traceback" not in err
        stored = json.loads((tmp_path / "r" / "result.json").read_text())
        assert stored["stopped_early"] == "interrupted"
        assert not stored["complete"]
        rounds = len(stored["history"]["evaluations"])
        assert 3 <= rounds < 40
        # Every evaluation of every closed round was made, and none of the next.
        assert len((tmp_path / "calls").read_text()) == 2 * (rounds + 1)
        command = [sys.executable, "-c", "from flwr_fbo.cli.main import main; main()"]
        done = subprocess.run(
            [*command, "resume", "r", "--engine", "inline", "--json",
             "--set", "max-evaluations=1"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["history"]["evaluations"]) == rounds + 1
        # As many again by random search, with which it is compared now that it is complete.
        assert len((tmp_path / "calls").read_text()) == 2 * 2 * (rounds + 2)

    def test_twice_stops_at_once(self, tmp_path: Path) -> None:
        running = start(tmp_path)
        wait_for_round(tmp_path, 1)
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGINT)
        time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=240)
        assert running.returncode == 130
        assert "Traceback" not in err

    def test_further_ones_do_not_kill_what_is_on_its_way_out(self, tmp_path: Path) -> None:
        running = start(tmp_path)
        wait_for_round(tmp_path, 1)
        for _ in range(3):  # far enough apart to be three: exiting takes longer
            running.send_signal(signal.SIGINT)
            time.sleep(0.02)
        _, err = running.communicate(timeout=240)
        assert running.returncode == 130
        assert "flwr-fbo: stopped after" in err

    @pytest.mark.slow
    def test_under_flowers_simulation_engine(self, tmp_path: Path) -> None:
        running = start(tmp_path, "ray")
        wait_for_round(tmp_path, 2)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        out, err = running.communicate(timeout=240)
        assert running.returncode == 130, err
        assert "flwr-fbo resume r" in out
        stored = json.loads((tmp_path / "r" / "result.json").read_text())
        assert stored["stopped_early"] == "interrupted"
        assert stored["failures"] == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestViews:
    @pytest.fixture(autouse=True)
    def _handlers(self) -> Iterator[None]:
        self.handlers: list[logging.Handler] = []
        yield
        for handler in self.handlers:
            logging.getLogger("flwr").removeHandler(handler)

    def test_fit_the_stream(self, tmp_path: Path) -> None:
        with progress_views(None) as views:
            assert views == []
        with progress_views(io.StringIO()) as views:
            assert [type(v) for v in views] == [PrintProgress]
        with progress_views(Terminal()) as views:
            assert [type(v) for v in views] == [LiveProgress]

    def test_a_terminal_shows_the_run_as_it_goes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        terminal = Terminal()
        simulate(hill, agents=2, rounds=3, epsilon=5.0, run_dir=tmp_path / "r", progress=terminal)
        shown = terminal.getvalue()
        for part in ("3 of 3", "mean best", "2 of 2", "0 lost so far", "of 5", "s left", "━"):
            assert part in shown

    def test_lines_beside_the_view_begin_a_line_of_their_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Warnings and notices stood behind the last line of the view, and left parts of it."""
        monkeypatch.setenv("TERM", "xterm-256color")
        terminal, elsewhere = Terminal(), io.StringIO()
        logger = logging.getLogger("flwr.fbo")
        shown = logging.StreamHandler(terminal)
        kept = logging.StreamHandler(elsewhere)
        for handler in (shown, kept):
            logging.getLogger("flwr").addHandler(handler)
            self.handlers.append(handler)

        class Log(Callback):
            def on_round(self, run: Any, report: Any) -> None:
                logger.warning("round %s is noisy", report.round)

        slow = task(space={"x": Float(0.0, 1.0)})(lambda p: time.sleep(0.03) or float(p["x"]))
        simulate(
            slow, agents=3, rounds=2, run_dir=tmp_path / "r", progress=terminal, engine="auto",
            callbacks=[Log()],
        )  # fmt: skip
        plain = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
        for text in ("round 0 is noisy", "round 2 is noisy", "Evaluations take"):
            before = plain[: plain.index(text)]
            assert before.endswith(("\n", "\x1b[2K")), before[-80:]
        assert shown.stream is terminal  # as before the run
        assert "round 1 is noisy" in elsewhere.getvalue()  # and other handlers were left alone

    def test_a_forked_process_prints_beside_the_view(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The lock of a view that another thread draws may be held for ever in a fork."""
        monkeypatch.setenv("TERM", "xterm-256color")
        terminal = Terminal()
        with progress_views(terminal) as (view,):
            lines: Any = view.lines
            monkeypatch.setattr(progress.os, "getpid", lambda: -1)
            with view.live.console._lock:  # type: ignore[attr-defined]
                thread = threading.Thread(target=lambda: lines.write("from a fork\n"))
                thread.start()
                thread.join(5.0)
                assert not thread.is_alive()
            monkeypatch.undo()
        assert "from a fork\n" in terminal.getvalue()

    def test_a_terminal_shows_replies_as_they_arrive(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        seen: list[str] = []

        def drawn(view: LiveProgress) -> str:
            console = Console(file=io.StringIO(), width=100)
            console.print(view._view())
            return str(console.file.getvalue())  # type: ignore[attr-defined]

        class Watch(Callback):
            def on_reply(self, strategy: Any, replied: int, asked: int) -> None:
                seen.append(drawn(view))

        with progress_views(Terminal()) as views:
            (view,) = views
            assert isinstance(view, LiveProgress)
            assert "Registering agents" in drawn(view)
            simulate(hill, agents=3, rounds=1, run_dir=tmp_path / "r", callbacks=[view, Watch()])
        assert all(f"{n} of 3" in text for text, n in zip(seen, [0, 1, 2, 3] * 2, strict=True))
        assert "mean best" not in seen[3]
        assert "mean best" in seen[4]
        assert "1 of 1" in seen[4]

    def test_lines_come_every_few_seconds_however_long_a_round_is(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
        stream, run = io.StringIO(), SimpleNamespace(server=SimpleNamespace(round=4))
        view: Any = PrintProgress(stream, "tpe")
        for count in range(1, 9):
            now[0] += 2.0
            view.on_registration(run, count, 8)
        for count in range(1, 9):
            now[0] += 2.0
            view.on_reply(run, count, 8)
        assert stream.getvalue().splitlines() == [
            "tpe: 3 of 8 agents are registered", "tpe: 6 of 8 agents are registered",
            "tpe: round 4: 1 of 8 replies", "tpe: round 4: 4 of 8 replies",
            "tpe: round 4: 7 of 8 replies",
        ]  # fmt: skip

    def test_a_resumed_run_counts_its_own_time(self, tmp_path: Path) -> None:
        stopped = simulate(hill, run_dir=tmp_path / "r", max_evaluations=10, **ALONE)
        assert stopped.history.evaluations == [2, 3, 4, 5]
        stream = io.StringIO()
        found = resume(tmp_path / "r", hill, progress=stream, max_evaluations=12)
        assert "round 4/30" in stream.getvalue()
        assert "round 3/30" not in stream.getvalue()
        assert found.history.evaluations == [2, 3, 4, 5, 6]
