"""The pool of processes: jobs, their order, and workers that end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo.simulation import worker_pool
from flwr_fbo.simulation.worker_pool import MOST_ENDED, PoolError, WorkerPool, _Turns

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the pool forks")

LONG = 60.0


@contextmanager
def pool(answer: Callable[[Any, Any], Any], count: int = 2) -> Iterator[WorkerPool]:
    made = WorkerPool(count, lambda: answer)
    try:
        yield made
    finally:
        made.close()


def ask(
    made: WorkerPool, jobs: dict[int, Any], seconds: float = LONG, shared: Any = None
) -> tuple[dict[int, Any], list[int]]:
    answers: dict[int, Any] = {}
    late = made.ask(shared, jobs, jobs.__getitem__, seconds, answers.__setitem__)
    return answers, late


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = LONG) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_every_job_is_answered_once_in_another_process() -> None:
    factor = 3  # a closure is forked, and need not be pickled
    with pool(lambda shared, job: (factor * job + shared, os.getpid())) as made:
        for shared in (10, 20):
            answers, late = ask(made, {key: key * key for key in range(50)}, shared=shared)
            assert late == []
            assert {key: a for key, (a, _) in answers.items()} == {
                key: 3 * key * key + shared for key in range(50)
            }
            assert os.getpid() not in {pid for _, pid in answers.values()}


def test_shared_values_are_sent_once_while_they_are_the_same() -> None:
    class Counted:
        pickled = 0

        def __reduce__(self) -> Any:
            Counted.pickled += 1
            return int, (7,)

    with pool(lambda shared, job: shared + job) as made:
        shared = Counted()
        for _ in range(3):
            assert ask(made, {1: 1, 2: 2, 3: 3}, shared=shared)[0] == {1: 8, 2: 9, 3: 10}
        assert Counted.pickled <= made.count


def test_a_key_goes_to_the_worker_that_knows_it() -> None:
    turns = _Turns([1, 2, 3, 4, 5], {1: 0, 2: 1, 3: 1, 4: 1}, {})
    assert [turns.take(0), turns.take(0)] == [1, 5]  # its own, then a new one
    assert turns.take(0) == 2  # of the worker that has most to do
    assert [turns.take(1), turns.take(1)] == [3, 4]
    assert turns.empty


def test_a_key_whose_last_job_is_under_way_waits() -> None:
    turns = _Turns([1, 2], {1: 0, 2: 0}, {1: 0})
    assert turns.take(1) == 2
    assert not turns.waiting
    assert not turns.empty
    turns.release(1)
    assert turns.take(0) == 1


def test_jobs_and_answers_may_be_larger_than_a_socket_holds() -> None:
    large = bytes(1 << 20)
    with pool(lambda shared, job: job * 2, count=1) as made:
        answers, _ = ask(made, dict.fromkeys(range(8), large))
        assert all(len(answer) == 2 << 20 for answer in answers.values())


def test_a_job_that_ends_its_worker_is_given_to_another_one(tmp_path: Path) -> None:
    def answer(shared: Any, job: Any) -> Any:
        mark = tmp_path / str(job)
        if job in ("exit", "kill") and not mark.exists():
            mark.touch()
            if job == "exit":
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    jobs = {0: "a", 1: "exit", 2: "b", 3: "kill", 4: "c"}
    with pool(answer) as made:
        assert ask(made, jobs) == (jobs, [])


def test_a_job_that_always_ends_its_worker_is_dropped(tmp_path: Path) -> None:
    def answer(shared: Any, job: Any) -> Any:
        if job == "exit":
            with (tmp_path / "ended").open("a") as file:
                file.write(".")
            os._exit(3)
        return job

    with pool(answer) as made:
        answers, late = ask(made, {0: "a", 1: "exit", 2: "b"})
        assert (answers, late) == ({0: "a", 2: "b"}, [])
        assert len((tmp_path / "ended").read_text()) == MOST_ENDED + 1
        assert ask(made, {1: "again"})[0] == {1: "again"}


def test_a_process_that_a_job_leaves_behind_hides_no_end(tmp_path: Path) -> None:
    def answer(shared: Any, job: Any) -> Any:
        if (tmp_path / "left").exists():
            return "again"
        if (left := os.fork()) == 0:
            time.sleep(1000)
            os._exit(0)
        (tmp_path / "left").write_text(str(left))
        os._exit(0)

    started = time.monotonic()
    with pool(answer, count=1) as made:
        assert ask(made, {0: None})[0] == {0: "again"}
        assert time.monotonic() - started < LONG
    left = int((tmp_path / "left").read_text())
    wait_for(lambda: not is_running(left))


def test_no_job_is_begun_after_the_time_and_late_answers_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "GRACE", 0.2)

    def answer(shared: Any, job: Any) -> Any:
        if job == "wait":
            wait_for(lambda: (tmp_path / "go").exists())
        return job, shared

    with pool(answer, count=1) as made:
        assert ask(made, {0: "wait", 1: "never"}, seconds=1.0, shared=1) == ({}, [1])
        (tmp_path / "go").touch()
        # The answer of the last round belongs to nobody, and its agent waits until it is free.
        assert ask(made, {0: "now", 1: "b"}, shared=2) == ({0: ("now", 2), 1: ("b", 2)}, [])


def test_nothing_is_begun_without_time() -> None:
    with pool(lambda shared, job: job) as made:
        assert ask(made, {0: "a", 1: "b"}, seconds=0.0) == ({}, [0, 1])


def test_closing_interrupts_what_is_under_way_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "GRACE", 0.0)

    def answer(shared: Any, job: Any) -> Any:
        (tmp_path / f"{job}.pid").write_text(str(os.getpid()))
        try:
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            (tmp_path / f"{job}.interrupted").touch()
            raise

    with pool(answer) as made:
        wait_started = {0: "a", 1: "b"}
        made.ask(None, wait_started, wait_started.__getitem__, 0.5, lambda key, answer: None)
        wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        host = made._host._pid
    assert {p.stem for p in tmp_path.glob("*.interrupted")} == {"a", "b"}
    for pid in [host, *(int(p.read_text()) for p in tmp_path.glob("*.pid"))]:
        assert not is_running(pid)


def test_a_worker_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "GRACE", 0.0)
    monkeypatch.setattr(worker_pool, "LAST_WORDS", 0.2)

    def answer(shared: Any, job: Any) -> Any:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(1000)

    with pool(answer) as made:
        ask(made, {0: None}, seconds=0.3)
    # `close` has returned: the host has ended, and with it the worker.


def test_a_host_that_was_killed_is_an_error() -> None:
    with pool(lambda shared, job: os.getpid()) as made:
        ask(made, {0: None})
        os.kill(made._host._pid, signal.SIGKILL)
        wait_for(lambda: not is_running(made._host._pid))
        with pytest.raises(PoolError, match="`flwr-fbo resume` continues the run"):
            ask(made, dict.fromkeys(range(4)))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_a_simulation_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:

            def answer(shared: Any, job: Any) -> Any:
                (tmp_path / f"{job}.pid").write_text(str(os.getpid()))
                time.sleep(1000)

            with pool(answer) as made:
                ask(made, {0: "a", 1: "b"})
        finally:
            os._exit(0)
    wait_for(lambda: len([p for p in tmp_path.glob("*.pid") if p.read_text()]) == 2)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for path in tmp_path.glob("*.pid"):
        wait_for(lambda path=path: not is_running(int(path.read_text())))  # type: ignore[misc]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_worker_whose_simulation_is_gone_ends_without_an_error(jobs: int) -> None:
    mine, its = multiprocessing.Pipe()
    made = []

    def answer(shared: Any, job: Any) -> Any:
        made.append(job)
        if len(made) == jobs:
            mine.close()  # with an answer that was not read, if there was one
        return job

    for job in range(jobs):
        mine.send_bytes(pickle.dumps((False, job)))
    worker_pool._make_jobs(its, answer)
    assert made == list(range(jobs))


def test_a_worker_whose_answer_nobody_reads_ends_without_an_error() -> None:
    mine, its = multiprocessing.Pipe()
    sent = its.send_bytes

    def send(data: bytes) -> None:
        sent(data)
        mine.close()

    its.send_bytes = send  # type: ignore[method-assign]
    mine.send_bytes(pickle.dumps((False, "job")))
    worker_pool._make_jobs(its, lambda shared, job: job)
