"""Evaluations that outlast their rounds, in processes of their own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import Callback, simulate
from flwr_fbo.clients.background import (
    JobError,
    JobRecord,
    ProcessWork,
    has_worker,
    kill_worker,
    wait_for_workers,
)
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.clients.evaluation_job import evaluation_job, job_path, worker_path
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.files.checkpoint import Checkpoint
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal import Journal, journal_path
from flwr_fbo.runs.files.journal_check import JournalBusyError
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.baselines import LocalTS
from flwr_fbo.strategies.fed_pne import FedPNE
from flwr_fbo.strategies.fts import FTS
from flwr_fbo.strategies.ldp import LDPBO
from flwr_fbo.tasks import task
from flwr_fbo.tasks.task import Partition

from .slow_tasks import NOTES, SPACE, allow, gated, notes
from .test_strategies import SMALL

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers need fork")

ONE = {**SMALL, "initial_points": 1}
LONGEST_WAIT = 120.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(NOTES, str(tmp_path))
    yield tmp_path
    for path in (tmp_path / "agents").glob("agent-????.jsonl"):
        kill_worker(path)  # nothing outlives its test


def until(condition: Callable[[], bool], seconds: float = LONGEST_WAIT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def history(folder: Path, agent: int = 0) -> list[Evaluation]:
    return read_evaluations(folder / "agents", agent + 1)[agent]


def journal(folder: Path, agent: int = 0) -> Path:
    return journal_path(folder / "agents", agent)


class Federation:
    """A run whose rounds are taken one by one."""

    def __init__(
        self, folder: Path, strategy: FBOStrategy, agents: int = 1, rounds: int = 8, **node: Any
    ) -> None:
        directory = RunDirectory(folder)
        apps = simulated_client_app(gated, directory.agents)
        self.grid = InProcessGrid(apps, agents)
        for context in self.grid.contexts.values():
            context.node_config.update(node)
        self.strategy = strategy
        strategy.options = replace(strategy.options, answer_within=0.0)
        plan = RunParameters(SPACE, agents, rounds, timeout=60.0, ledger=directory.ledger)
        strategy.open_run(plan, directory.store)

    def rounds(self, count: int) -> list[RoundReport]:
        last = self.strategy.server.round + count
        self.strategy.reports = []
        self.strategy.stop = lambda report: report.round + 1 >= last
        self.strategy.run(self.grid)
        return self.strategy.reports


def test_replies_come_at_once_and_the_evaluation_is_recorded_once(folder: Path) -> None:
    f = Federation(folder, FTS(**ONE), agents=2)
    allow(1, 1)
    reports = f.rounds(3)
    assert max(r.seconds for r in reports) < 30  # the evaluations have not ended yet
    until(lambda: len(history(folder, 1)) == 1 and not has_worker(journal(folder, 1)))
    assert [dict(r.declined) for r in f.rounds(1)] == [{"under-way": 1}]  # agent 0 knows nothing
    allow(0, 1)
    until(lambda: not has_worker(journal(folder)))
    (first,) = history(folder)
    assert (first.round, first.source, first.failure) == (0, "initial", "")
    assert len(notes(0, "begin")) == len(notes(0, "end")) == 1
    server: Any = f.strategy.server
    assert sorted(server.messages) == [1]
    assert [r.replied for r in f.rounds(2)] == [2, 2]
    known = server.messages[0]
    allow(0, 2)
    until(lambda: len(history(folder)) == 2)
    assert f.rounds(1)[0].replied == 2
    assert not np.allclose(server.messages[0], known)  # the score is used
    assert [e.round for e in history(folder)] == [0, 4]


def test_a_worker_that_is_killed_is_followed_by_one_that_does_the_same(folder: Path) -> None:
    f = Federation(folder, LocalTS(**ONE))
    f.rounds(1)
    until(lambda: len(notes(0, "begin")) == 1)
    os.kill(int(worker_path(journal(folder)).read_text()), signal.SIGKILL)
    until(lambda: not has_worker(journal(folder)))
    assert history(folder) == []
    f.rounds(1)
    until(lambda: len(notes(0, "begin")) == 2)
    f.rounds(1)  # it is under way: no third
    allow(0, 1)
    until(lambda: not has_worker(journal(folder)))
    (made,) = history(folder)
    assert made.round == 0
    (first, x), (second, same) = notes(0, "begin")
    assert first != second
    assert x == same == repr(made.params["x"])
    assert len(Journal(journal(folder), reading=True).read("begun")) == 2


def test_evaluations_at_once_go_on_in_the_worker_and_are_recorded_once(folder: Path) -> None:
    f = Federation(folder, FTS(**{**ONE, "initial_points": 2}, parallel=2))
    assert f.rounds(1)[0].replied == 0
    until(lambda: len(notes(0, "begin")) == 2)  # both are under way at the same time
    assert len({process for process, _ in notes(0, "begin")}) == 2
    os.kill(int(worker_path(journal(folder)).read_text()), signal.SIGKILL)
    until(lambda: not has_worker(journal(folder)))
    f.rounds(1)
    until(lambda: len(notes(0, "begin")) == 4)
    assert {x for _, x in notes(0, "begin")[:2]} == {x for _, x in notes(0, "begin")[2:]}
    allow(0, 2)
    until(lambda: not has_worker(journal(folder)))
    assert [(e.round, e.play, e.failed) for e in history(folder)] == [(0, 0, False), (0, 1, False)]
    assert f.rounds(1)[0].replied == 1


def test_the_owners_limit_ends_each_of_the_evaluations_at_once(folder: Path) -> None:
    f = Federation(folder, LocalTS(initial_points=2, parallel=2), **{"evaluation-limit": 0.3})
    f.rounds(1)
    until(lambda: len(history(folder)) == 2)
    failure = "ended after 0.3 s, its owner's `evaluation-limit`"
    assert [e.failure for e in history(folder)] == [failure] * 2
    until(lambda: not has_worker(journal(folder)))


def test_an_evaluation_that_ends_two_processes_is_given_up(folder: Path) -> None:
    f = Federation(folder, LocalTS(**ONE))
    for attempt in (1, 2):
        f.rounds(1)
        until(lambda count=attempt: len(notes(0, "begin")) == count)  # type: ignore[misc]
        kill_worker(journal(folder))
    f.rounds(1)
    until(lambda: len(history(folder)) == 1)
    (lost,) = history(folder)
    assert lost.score is None
    assert "2 processes ended" in lost.failure
    assert len(notes(0, "begin")) == 2
    until(lambda: not has_worker(journal(folder)))
    f.rounds(1)
    until(lambda: len(notes(0, "begin")) == 3)  # another point
    assert len({x for _, x in notes(0, "begin")}) == 2


def test_a_server_that_dies_finds_the_evaluation_still_under_way(folder: Path) -> None:
    first = Federation(folder, LocalTS(**ONE))
    first.rounds(2)
    until(lambda: len(notes(0, "begin")) == 1)
    del first
    again = Federation(folder, LocalTS(**ONE))
    assert again.strategy.server.round == 2
    again.rounds(1)
    allow(0, 1)
    until(lambda: not has_worker(journal(folder)))
    again.rounds(1)
    allow(0, 2)
    until(lambda: len(history(folder)) == 2)
    assert [e.round for e in history(folder)] == [0, 3]
    assert len(notes(0, "begin")) == 2


def test_what_is_under_way_at_the_end_of_a_run_is_finished_and_recorded(folder: Path) -> None:
    f = Federation(folder, LocalTS(**ONE), rounds=2)
    f.rounds(3)
    assert f.strategy.server.finished
    del f
    assert has_worker(journal(folder))
    allow(0, 1)
    until(lambda: not has_worker(journal(folder)))
    assert [e.round for e in history(folder)] == [0]


def test_the_owners_limit_ends_an_evaluation(folder: Path) -> None:
    f = Federation(folder, LocalTS(**ONE), **{"evaluation-limit": 0.3})
    f.rounds(1)
    until(lambda: len(history(folder)) == 1)
    until(lambda: not has_worker(journal(folder)))
    (lost,) = history(folder)
    assert lost.score is None
    assert "after 0.3 s, its owner's `evaluation-limit`" in lost.failure
    allow(0, 1)
    f.rounds(1)
    until(lambda: len(history(folder)) == 2)
    assert [e.failed for e in history(folder)] == [True, False]


def test_agents_without_their_data_say_so_and_try_again(folder: Path) -> None:
    (folder / "no-data-0").touch()
    f = Federation(folder, LocalTS(**ONE), **{"answer-within": LONGEST_WAIT})
    (report,) = f.rounds(1)
    assert report.declined == {"FileNotFoundError": 1}
    assert "patients.csv" in journal(folder).with_suffix(".worker.log").read_text()
    (folder / "no-data-0").unlink()
    allow(0, 9)
    (report,) = f.rounds(1)
    assert report.replied == 1
    assert [e.round for e in history(folder)] == [0]  # what was asked first


def test_quick_evaluations_need_only_the_wait(folder: Path) -> None:
    allow(0, 9)
    f = Federation(folder, FTS(**ONE), rounds=1, **{"answer-within": LONGEST_WAIT})
    assert [r.replied for r in f.rounds(2)] == [1, 1]
    assert [e.round for e in history(folder)] == [0, 1]
    assert not has_worker(journal(folder))


def test_an_owner_may_wait_though_the_run_does_not(folder: Path) -> None:
    allow(0, 9)
    f = Federation(folder, LocalTS(**ONE), rounds=1, **{"answer-within": "never"})
    f.rounds(2)
    assert [e.round for e in history(folder)] == [0, 1]
    assert {int(pid) for pid, _ in notes(0, "begin")} == {os.getpid()}


def test_a_message_that_would_evaluate_itself_declines_while_a_worker_does(folder: Path) -> None:
    f = Federation(folder, LocalTS(**ONE))
    f.rounds(1)
    f.grid.contexts[2].node_config["answer-within"] = "never"
    (report,) = f.rounds(1)
    assert report.declined == {"JournalBusyError": 1}


def test_no_two_workers_for_one_agent(folder: Path) -> None:
    f = Federation(folder, LocalTS(**ONE))
    f.rounds(1)
    request = Request("step", 5, {"own-probability": 1.0})
    setup = f.strategy.server.setup()
    path = journal(folder)
    before = JobRecord.load(job_path(path))

    def prepare(work: Request) -> Any:
        return evaluation_job(path, setup, work, gated, Partition(0, 1))

    with pytest.raises(JournalBusyError):
        ProcessWork(path, setup.digest, prepare).begin(request)
    assert JobRecord.load(job_path(path)) == before


def test_vectors_made_private_are_paid_for_once_each_and_repeated(folder: Path) -> None:
    allow(0, 1)
    settings = {**ONE, "local_epsilon": 8.0, "local_answers": 20}
    f = Federation(folder, FTS(**settings), **{"answer-within": LONGEST_WAIT})
    f.rounds(1)
    f.grid.contexts[2].node_config["answer-within"] = 0.0
    f.rounds(3)
    books = journal(folder).with_suffix(".privacy.jsonl")
    assert books.read_text().count('"event"') == 4  # one a vector, whatever was evaluated
    again = Federation(folder, FTS(**settings))
    server: Any = again.strategy.server
    sent = np.array(server.messages[0])
    server.round -= 1
    again.rounds(1)
    assert np.array_equal(server.messages[0], sent)
    assert books.read_text().count('"event"') == 4


@pytest.mark.parametrize(
    ("strategy", "declined"),
    [
        (FedPNE(budget=40, reward_low=0.0, reward_high=1.0), "SettingsError"),
        (
            LDPBO(
                learner="tgp",
                budget=5,
                epsilon_per_answer=1.0,
                features=10,
                bound=1.0,
                noise_bound=0.1,
            ),
            "error",
        ),
    ],
)
def test_agents_whose_replies_are_evaluations_refuse(
    folder: Path, strategy: FBOStrategy, declined: str, caplog: pytest.LogCaptureFixture
) -> None:
    (report,) = Federation(folder, strategy).rounds(1)
    assert report.declined == {declined: 1}
    assert "`answer-within` must be left unset for a" in caplog.text
    assert not has_worker(journal(folder))


@pytest.mark.parametrize("name", ["fed-pne", "ldp-ata", "gp-ucb", "hct"])
def test_runs_whose_replies_are_evaluations_are_refused(name: str) -> None:
    task_name = "garland" if name in ("fed-pne", "hct") else "ldp-synthetic"
    with pytest.raises(SettingsError, match=f"`answer-within` must be left unset with {name}"):
        RunSpec.from_mapping({"task": task_name, "strategy": name, "answer-within": 5})


def test_a_task_that_no_other_process_finds_is_refused() -> None:
    @task(space=SPACE)
    def local(params: Any) -> float:
        return 0.0

    with pytest.raises(SettingsError, match="another process can import"):
        RunSpec.from_mapping({"task": local, "strategy": "fts", "answer-within": 5})
    RunSpec.from_mapping({"task": local, "strategy": "fts"})


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        ({"answer-within": -1}, "`answer-within` must be a number > 0"),
        ({"answer-within": "soon"}, "`answer-within` must be a number > 0"),
        ({"answer-within": "never", "evaluation-limit": 5}, "needs `answer-within`"),
        ({"evaluation-limit": 0}, "`evaluation-limit` must be a number > 0"),
    ],
)
def test_bad_node_configurations(
    folder: Path, node: dict[str, Any], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    (report,) = Federation(folder, LocalTS(**ONE), **node).rounds(1)
    assert report.declined == {"SettingsError": 1}
    assert fault in caplog.text


JOB = JobRecord(Request("step", 3, {"p": 0.5}, {"advice": np.eye(2)}, {"omega": (2,)}), "digest")


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    JOB.save(tmp_path / "a.job")
    again = JobRecord.load(tmp_path / "a.job")
    assert again is not None
    assert np.array_equal(again.request.arrays["advice"], np.eye(2))
    assert (again.request.kind, again.request.round) == ("step", 3)
    assert dict(again.request.values) == {"p": 0.5}
    assert dict(again.request.expects) == {"omega": (2,)}
    assert (again.setup, again.error) == ("digest", "")
    assert (tmp_path / "a.job").stat().st_mode & 0o077 == 0
    assert JobRecord.load(tmp_path / "none.job") is None


@pytest.mark.parametrize(
    "state", [{}, {"request": 3}, {"request": {"kind": "step"}}, {"setup": "", "request": []}]
)
def test_a_file_that_is_no_job_is_refused(tmp_path: Path, state: dict[str, Any]) -> None:
    Checkpoint(tmp_path / "a.job").save(state)
    with pytest.raises(JobError, match="does not hold a job"):
        JobRecord.load(tmp_path / "a.job")


def test_a_job_of_another_setup_is_nobodys(folder: Path) -> None:
    f = Federation(folder, LocalTS(**ONE))
    path = journal(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    JOB.save(job_path(path))
    f.rounds(1)
    until(lambda: len(notes(0, "begin")) == 1)
    job = JobRecord.load(job_path(path))
    assert job is not None
    assert job.request.kind == "explore"


class TestSimulation:
    """A simulator owns the agents: when it ends, nothing is left running."""

    def test_waits_for_what_is_under_way(self, folder: Path) -> None:
        class Allow(Callback):
            def on_end(self, strategy: FBOStrategy) -> None:
                threading.Timer(0.5, lambda: [allow(n, 9) for n in range(2)]).start()

        said = io.StringIO()
        result = simulate(
            gated, 2, "fts", 2, answer_within=0.0, run_dir=folder, callbacks=[Allow()],
            progress=said, **ONE,
        )  # fmt: skip
        assert "waiting for the evaluations of 2 agents; Ctrl-C ends them" in said.getvalue()
        assert result.complete
        assert result.failures == 0
        assert result.history.evaluations == [1, 1, 1]
        assert not any(has_worker(journal(folder, n)) for n in range(2))

    def test_is_not_compared_with_runs_that_evaluate_more(self, folder: Path) -> None:
        with pytest.raises(SettingsError, match="`answer-within` must be left unset in a run"):
            simulate(gated, 1, "fts", 2, answer_within=0.0, compare=["random"], run_dir=folder)

    @pytest.mark.slow
    def test_works_through_ray(self, folder: Path) -> None:
        """Workers outlive Ray's own, and the run waits for them."""
        command = [
            sys.executable, "-c", "from flwr_fbo.cli.main import main; main()",
            "run", "tests.flower.slow_tasks:gated", "--strategy", "fts", "--agents", "2",
            "--rounds", "3", "--engine", "ray", "--run-dir", str(folder), "--json",
        ]  # fmt: skip
        for setting in ("answer-within=2", "initial-points=1", "features=8", "refit-every=0"):
            command += ["--set", setting]
        repository = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": str(repository)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, cwd=repository
        ) as run:
            assert run.stdout is not None
            table = folder / "rounds.csv"
            until(lambda: table.exists() and len(table.read_text().splitlines()) == 5)
            assert has_worker(journal(folder))
            assert run.poll() is None  # it waits
            for agent in range(2):
                allow(agent, 9)
            result = json.loads(run.stdout.read())
            assert run.wait(600) == 0
        assert result["complete"]
        for agent in range(2):
            assert [e.round for e in history(folder, agent)] == [0]
            assert len(notes(agent, "begin")) == len(notes(agent, "end")) == 1
            assert not has_worker(journal(folder, agent))

    def test_a_failed_run_kills_its_workers(self, folder: Path) -> None:
        class Fault(Callback):
            def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
                raise OSError("unplugged")

        with pytest.raises(OSError, match="unplugged"):
            simulate(
                gated, 1, "fts", 2, answer_within=0.0, run_dir=folder, callbacks=[Fault()], **ONE
            )
        assert not has_worker(journal(folder))

    def test_waiting_can_be_given_up(self, folder: Path) -> None:
        Federation(folder, LocalTS(**ONE)).rounds(1)
        asked = iter([False, False, True])
        wait_for_workers([journal(folder)], lambda: next(asked))
        assert not has_worker(journal(folder))
        assert history(folder) == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="finds processes in /proc")
def test_the_worker_is_nobodys_child_and_holds_only_its_lock(folder: Path) -> None:
    """No terminal, SuperNode or Ray worker that ends takes it along."""
    Federation(folder, LocalTS(**ONE)).rounds(1)
    until(lambda: len(notes(0, "begin")) == 1)
    pid = int(worker_path(journal(folder)).read_text())
    parent, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:4]
    assert int(parent) != os.getpid()
    assert int(session) == os.getsid(pid) != os.getsid(0)
    held = [str(p.readlink()) for p in Path(f"/proc/{pid}/fd").iterdir() if p.exists()]
    assert str(journal(folder)) in held
