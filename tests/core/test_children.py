"""Evaluations at once: each in a child process, recorded in order, and none is left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.children import run_in_children
from flwr_fbo.core.evaluation import Evaluation, Evaluator, MemoryRecords
from flwr_fbo.core.reports import report
from flwr_fbo.core.settings import SettingsError
from tests.methods.thompson_harness import SQUARE, CrashingRecords, JsonRecords

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes must fork")

#: Seconds after which a test that waits for other processes has failed.
LONGEST = 120.0


def points(count: int) -> list[tuple[int, Any, str]]:
    return [(n, np.array([n / 10, 0.5]), "own") for n in range(count)]


def evaluator(function: Any, records: Any = None, **options: Any) -> Evaluator:
    return Evaluator(SQUARE, function, JsonRecords() if records is None else records, **options)


def meeting(folder: Path, count: int) -> Any:
    """A function that ends only when so many calls are under way at the same time."""

    def meet(params: Any, rng: np.random.Generator) -> float:
        (folder / f"{os.getpid()}").touch()
        deadline = time.monotonic() + LONGEST
        while len(list(folder.iterdir())) < count:
            assert time.monotonic() < deadline, "the others never came"
            time.sleep(0.005)
        return float(params["x"])

    return meet


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class TestAtOnce:
    def test_all_are_under_way_at_the_same_time(self, tmp_path: Path) -> None:
        made = evaluator(meeting(tmp_path, 4)).at_once(points(4), round=1)
        assert [e.score for e in made] == [0.0, 0.1, 0.2, 0.3]
        assert os.getpid() not in {int(path.name) for path in tmp_path.iterdir()}

    def test_they_are_recorded_in_their_order_whichever_ends_first(self, tmp_path: Path) -> None:
        def last_first(params: Any, rng: np.random.Generator) -> float:
            mine = round(10 * params["x"])
            while mine < 2 and not (tmp_path / str(mine + 1)).exists():
                time.sleep(0.005)
            (tmp_path / str(mine)).touch()
            return float(mine)

        records = JsonRecords()
        evaluate = evaluator(last_first, records)
        made = evaluate.at_once(points(3), round=5)
        assert [e.score for e in made] == [0.0, 1.0, 2.0]
        assert [r["play"] for r in records.read("evaluation")] == [0, 1, 2]
        assert [r["play"] for r in records.read("begun")] == [0, 1, 2]
        # Those that had to wait were recorded before their turn, and once more in their turn.
        assert {r["play"] for r in records.read("ended")} <= {1, 2}
        assert evaluator(last_first, records).history == evaluate.history == made

    def test_scores_are_those_of_one_after_another(self) -> None:
        def noisy(params: Any, rng: np.random.Generator) -> float:
            return float(params["x"] + rng.standard_normal())

        one = [evaluator(noisy)(u, round=2, play=p) for p, u, _ in points(3)]
        made = evaluator(noisy).at_once(points(3), round=2)
        assert [e.score for e in made] == [e.score for e in one]

    def test_the_global_generators_of_children_differ_and_are_repeatable(self) -> None:
        def careless(params: Any, rng: np.random.Generator) -> float:
            return float(np.random.rand() + random.random())  # noqa: NPY002

        first = evaluator(careless).at_once(points(3), round=2)
        again = evaluator(careless).at_once(points(3), round=2)
        scores = [e.score for e in first]
        assert len(set(scores)) == 3
        assert scores == [e.score for e in again]

    def test_what_fails_fails_alone(self) -> None:
        def mixed(params: Any, rng: np.random.Generator) -> Any:
            which = round(10 * params["x"])
            if which == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if which == 2:
                os._exit(0)
            if which == 3:
                raise ZeroDivisionError("no")
            if which == 4:
                sys.exit(3)
            return "a" if which == 5 else 0.5

        made = evaluator(mixed).at_once(points(7), round=1)
        assert [e.score for e in made] == [0.5, None, None, None, None, None, 0.5]
        says = [
            "", "ended its process by signal 9", "ended its process with exit code 0",
            "ZeroDivisionError: no", "SystemExit: 3", "must be a number, but got 'a'", "",
        ]  # fmt: skip
        assert all(text in e.failure for text, e in zip(says, made, strict=True))

    def test_each_has_the_time_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import flwr_fbo.core.evaluation as module

        monkeypatch.setattr(module, "KILL_AFTER", 0.2)

        def slow(params: Any, rng: np.random.Generator) -> float:
            which = round(10 * params["x"])
            if which == 1:
                time.sleep(LONGEST)
            if which == 2:  # code that no signal ends but the last one
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
                time.sleep(LONGEST)
            return 1.0

        made = evaluator(slow, limit=0.5).at_once(points(3), round=1)
        assert made[0].score == 1.0
        failure = "ended after 0.5 s, the `timeout` of a round"
        assert [e.failure for e in made] == ["", failure, failure]

    def test_the_limit_holds_in_any_thread(self) -> None:
        made: list[Evaluation] = []

        def slow(params: Any, rng: np.random.Generator) -> float:
            time.sleep(LONGEST)
            return 1.0

        def work() -> None:
            made.extend(evaluator(slow, limit=0.2).at_once(points(2), round=1))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(LONGEST)
        assert ["ended after 0.2 s" in e.failure for e in made] == [True, True]

    def test_a_process_that_a_child_leaves_behind_holds_nobody_up(self, tmp_path: Path) -> None:
        def leaves(params: Any, rng: np.random.Generator) -> float:
            left = multiprocessing.get_context("fork").Process(target=time.sleep, args=(LONGEST,))
            left.start()
            (tmp_path / f"{left.pid}").touch()
            if params["x"] > 0:
                os._exit(7)
            multiprocessing.process._children.clear()  # type: ignore[attr-defined]
            return 1.0

        made = evaluator(leaves).at_once(points(2), round=1)
        assert [e.failure for e in made] == [
            "",
            "the evaluation ended its process with exit code 7",
        ]
        for path in tmp_path.iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name), signal.SIGKILL)

    def test_a_child_that_returns_twice_is_one_evaluation(self) -> None:
        def forks(params: Any, rng: np.random.Generator) -> float:
            if os.fork() == 0:
                return 2.0  # the process that the task forked returns from the task's function
            os.wait()
            return 1.0

        records = JsonRecords()
        made = evaluator(forks, records).at_once(points(2), round=1)
        assert [e.score for e in made] == [1.0, 1.0]
        assert len(records.read("evaluation")) == 2

    def test_reports_come_back_and_the_rule_stops_the_hopeless(self) -> None:
        def reports(params: Any, rng: np.random.Generator) -> float:
            for step in (1, 2, 3):
                report(step, params["x"] * step)
            return 1.0

        evaluate = evaluator(reports)
        evaluate.is_hopeless = lambda given: given[-1][1] < 0.3 and given[-1][0] >= 2  # type: ignore[assignment]
        bad, good = evaluate.at_once([points(2)[1], points(4)[3]], round=1)
        assert (bad.pruned, bad.score, bad.steps) == (True, 0.2, 2)
        assert (good.pruned, good.score, good.steps) == (False, 1.0, 3)

    def test_no_more_than_the_limit_are_under_way_at_the_same_time(self, tmp_path: Path) -> None:
        def crowds(params: Any, rng: np.random.Generator) -> float:
            here = tmp_path / f"{os.getpid()}"
            here.touch()
            crowd = 0
            for _ in range(20):
                crowd = max(crowd, len(list(tmp_path.iterdir())))
                time.sleep(0.005)
            here.unlink()
            return float(crowd)

        records = JsonRecords()
        made = evaluator(crowds, records, most_at_once=2).at_once(points(5), round=1)
        assert len(made) == 5
        assert max(e.score or 0.0 for e in made) <= 2
        assert [r["play"] for r in records.read("begun")] == [0, 1, 2, 3, 4]

    def test_the_limit_of_time_is_of_each_and_not_of_all(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import flwr_fbo.core.evaluation as module

        monkeypatch.setattr(module, "KILL_AFTER", 0.5)

        def first_hangs(params: Any, rng: np.random.Generator) -> float:
            if params["x"] == 0.0:
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
                time.sleep(LONGEST)
            return 1.0

        # The others begin when the time of the first one is up.
        made = evaluator(first_hangs, limit=1.0, most_at_once=1).at_once(points(3), round=1)
        assert [e.score for e in made] == [None, 1.0, 1.0]

    def test_nothing_is_printed_twice(self, capfd: pytest.CaptureFixture[str]) -> None:
        def prints(params: Any, rng: np.random.Generator) -> float:
            print("a child")
            return 1.0

        sys.stdout.write("the parent")
        evaluator(prints).at_once(points(3), round=1)
        sys.stdout.flush()
        printed = capfd.readouterr().out
        assert printed.count("the parent") == 1
        assert printed.count("a child") == 3

    def test_a_system_without_fork_is_told_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "fork")
        with pytest.raises(SettingsError, match="`parallel` must be 1 where processes cannot fork"):
            evaluator(lambda p, rng: 1.0).at_once(points(2), round=1)

    def test_an_evaluator_in_children_makes_each_in_one(self) -> None:
        evaluate = evaluator(lambda p, rng: float(os.getpid()), in_children=True)
        made = evaluate(points(1)[0][1], round=1)
        assert made.score != os.getpid()
        assert evaluate(points(1)[0][1], round=1) is made


class TestInterruptions:
    @pytest.mark.parametrize("attempt", range(5))
    def test_ctrl_c_leaves_no_child_and_nothing_begun(self, attempt: int, tmp_path: Path) -> None:
        def hangs(params: Any, rng: np.random.Generator) -> float:
            (tmp_path / f"{os.getpid()}").touch()
            time.sleep(LONGEST)
            return 1.0

        def interrupt() -> None:
            deadline = time.monotonic() + LONGEST
            # In the first attempts, while children are being started.
            while (
                len(list(tmp_path.iterdir())) < min(attempt + 1, 3) and time.monotonic() < deadline
            ):
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGINT)

        records = JsonRecords()
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            evaluator(hangs, records).at_once(points(3), round=1)
        thread.join()
        assert not any(is_alive(int(path.name)) for path in tmp_path.iterdir())
        assert [r["play"] for r in records.read("interrupted")] == [0, 1, 2]
        again = evaluator(lambda p, rng: 1.0, records, session="node 1")
        again.close_unfinished(1)
        assert again.history == []
        assert [e.score for e in again.at_once(points(3), round=1)] == [1.0, 1.0, 1.0]

    @pytest.mark.parametrize("left", [1, 2, 3])
    def test_after_a_crash_only_what_had_not_ended_is_made_again(
        self, left: int, tmp_path: Path
    ) -> None:
        def counts(params: Any, rng: np.random.Generator) -> float:
            with (tmp_path / f"{params['x']:.1f}").open("a") as file:
                file.write("made\n")
            return float(params["x"] + rng.standard_normal())

        whole = evaluator(counts).at_once(points(3), round=1)
        for path in tmp_path.iterdir():
            path.unlink()
        records = CrashingRecords(left)
        with pytest.raises(KeyboardInterrupt):
            evaluator(counts, records).at_once(points(3), round=1)
        ended = {r["play"] for kind in ("evaluation", "ended") for r in records.read(kind)}
        for path in tmp_path.iterdir():
            path.unlink()
        again = evaluator(counts, records)
        asked = [(play, *(again.begun(1, play) or (np.zeros(2), ""))) for play in range(3)]
        made = again.at_once(asked, round=1)
        assert [e.score for e in made] == [e.score for e in whole]
        assert [e.params for e in made] == [e.params for e in whole]
        assert len(list(tmp_path.iterdir())) == 3 - len(ended)

    def test_the_end_of_the_parent_is_no_evaluations_fault_before_the_second_time(self) -> None:
        records = MemoryRecords()
        for attempts in (1, 2):
            first = evaluator(lambda p, rng: 1.0, records, session="node 1")
            for _, unit, source in points(1):
                first._begin(first._evaluation(unit, 1, 0, source), "")
            again = evaluator(lambda p, rng: 1.0, records, session="node 1")
            again.close_unfinished(1)
            assert len(again.history) == attempts - 1
        assert "2 processes ended in the middle" in again.history[0].failure

    def test_an_evaluation_that_ended_before_its_turn_outlives_its_round(self) -> None:
        records = JsonRecords()
        first = evaluator(lambda p, rng: 1.0, records)
        for play, unit, source in points(2):
            first._begin(first._evaluation(unit, 1, play, source), "")
        shown = {
            "score": 0.7,
            "failure": "",
            "seconds": 3.0,
            "reports": [[1, 0.7]],
            "pruned": False,
        }
        records.append("ended", {"round": 1, "play": 1, **shown})
        later = evaluator(lambda p, rng: 1.0, records)
        later.close_unfinished(2)
        assert [(e.play, e.score, e.seconds) for e in later.history] == [
            (0, None, 0.0),
            (1, 0.7, 3.0),
        ]

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
    def test_children_end_with_their_parent(self, tmp_path: Path) -> None:
        def hangs() -> None:
            (tmp_path / f"{os.getpid()}").touch()
            time.sleep(LONGEST)

        parent = os.fork()
        if parent == 0:
            run_in_children([hangs, hangs], lambda *ended: None)
            os._exit(0)
        deadline = time.monotonic() + LONGEST
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        while any(is_alive(int(path.name)) for path in tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.005)
