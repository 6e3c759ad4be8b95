"""The engines `processes` and `auto`: what `inline` does, on all processors, where it pays."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import Float, resume, simulate, task
from flwr_fbo.clients.evaluation_job import EvaluationMeter
from flwr_fbo.core import time_limit
from flwr_fbo.core.children import processors
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal import Journal, journal_path
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.simulation import automatic_agents, engine, process_agents
from flwr_fbo.simulation.automatic_agents import AutomaticAgents
from flwr_fbo.simulation.process_agents import PROCESSES, number_of_processes
from tests.runs.test_in_process import PLANS, Interrupt, hill, spec_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the engine forks")

REPOSITORY = Path(__file__).parents[2]
SPACE = {"x": Float(0.0, 1.0)}


@pytest.fixture(autouse=True)
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROCESSES, "2")


def evaluations(folder: Path, agents: int = 4) -> list[list[dict[str, Any]]]:
    return [
        [{**vars(e), "seconds": 0.0} for e in history]
        for history in read_evaluations(folder / "agents", agents, RunDirectory(folder).identity)
    ]


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine `auto` use processes as soon as it has measured anything."""
    monkeypatch.setattr(automatic_agents, "WORTH_A_DISPATCH", 0.0)
    monkeypatch.setattr(automatic_agents, "START_SECONDS", -1e9)


# -- the same results ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_agents_in_processes_do_what_agents_in_one_process_do(name: str, tmp_path: Path) -> None:
    given = {k.replace("-", "_"): v for k, v in PLANS[name].items() if k != "task"}
    for kind in ("inline", "processes"):
        simulate(
            spec_of(name).task, agents=4, strategy=name.split()[0], seed=3, engine=kind,  # type: ignore[arg-type]
            run_dir=tmp_path / kind, **given,
        )  # fmt: skip
    assert evaluations(tmp_path / "processes") == evaluations(tmp_path / "inline")


def test_a_run_that_changes_to_processes_in_a_round_ends_as_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: dict[str, Any] = {"agents": 4, "strategy": "fts", "seed": 3, "rounds": 4}
    whole = simulate(hill, engine="inline", run_dir=tmp_path / "inline", **plan)
    always(monkeypatch)
    changed = simulate(hill, engine="auto", run_dir=tmp_path / "auto", **plan)
    assert evaluations(tmp_path / "auto") == evaluations(tmp_path / "inline")
    assert changed.history == whole.history
    # The agent that was asked first has a journal that this process began and others went on with.
    resumed = resume(tmp_path / "auto", task=hill, rounds=5, engine="inline")
    assert resumed.rounds == 5


def test_a_run_goes_on_in_any_engine(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"agents": 4, "strategy": "fts", "seed": 3, "rounds": 6}
    simulate(hill, engine="inline", run_dir=tmp_path / "whole", **plan)
    with pytest.raises(KeyboardInterrupt):
        simulate(
            hill, engine="inline", run_dir=tmp_path / "parts", callbacks=[Interrupt(2)], **plan
        )
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "parts", task=hill, engine="processes", callbacks=[Interrupt(4)])
    resume(tmp_path / "parts", task=hill, engine="inline")
    assert evaluations(tmp_path / "parts") == evaluations(tmp_path / "whole")


def test_libraries_draw_other_numbers_at_each_agent_and_the_same_in_each_run(
    tmp_path: Path,
) -> None:
    @task(space=SPACE)
    def noisy(params: Any) -> float:
        return random.random() + float(np.random.random())  # noqa: NPY002

    scores = []
    for name in ("a", "b"):
        folder = tmp_path / name
        simulate(noisy, agents=4, strategy="random", rounds=3, engine="processes", run_dir=folder)
        scores.append([[e["score"] for e in h] for h in evaluations(tmp_path / name)])
    assert scores[0] == scores[1]
    drawn = [score for history in scores[0] for score in history]
    assert len(set(drawn)) == len(drawn)


# -- processes -------------------------------------------------------------------------------------


def test_data_are_prepared_once_in_a_process_and_outside_this_one(tmp_path: Path) -> None:
    def load(partition: Any) -> int:
        with (tmp_path / "prepared").open("a") as file:
            file.write(f"{os.getpid()} {partition.index}\n")
        return os.getpid()

    @task(space=SPACE, prepare=load)
    def local(params: Any, data: int) -> float:
        assert data == os.getpid()
        return float(params["x"])

    result = simulate(
        local, agents=5, strategy="random", rounds=4, engine="processes", run_dir=tmp_path / "r"
    )
    assert result.failures == 0
    lines = (tmp_path / "prepared").read_text().split("\n")[:-1]
    assert len(set(lines)) == len(lines)
    pids = {int(line.split()[0]) for line in lines}
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_evaluations_that_end_their_process_fail_and_the_others_go_on(tmp_path: Path) -> None:
    @task(space=SPACE)
    def fatal(params: Any, partition: Any) -> float:
        if partition.index == 1 and params["x"] > 0.5:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(params["x"])

    @task(space=SPACE)
    def harmless(params: Any, partition: Any) -> float:
        return float(params["x"])

    plan: dict[str, Any] = {"agents": 3, "strategy": "random", "rounds": 8, "seed": 3}
    result = simulate(fatal, engine="processes", run_dir=tmp_path / "r", **plan)
    simulate(harmless, engine="inline", run_dir=tmp_path / "h", **plan)
    mine, its = evaluations(tmp_path / "r", 3), evaluations(tmp_path / "h", 3)
    assert [mine[0], mine[2]] == [its[0], its[2]]
    assert [(e["round"], e["play"], e["unit"]) for e in mine[1]] == [
        (e["round"], e["play"], e["unit"]) for e in its[1]
    ]
    failed = [e for e in mine[1] if e["score"] is None]
    assert [e["params"]["x"] > 0.5 for e in mine[1]] == [e["score"] is None for e in mine[1]]
    assert failed
    assert all("process ended in the middle" in e["failure"] for e in failed)
    assert result.failures == len(failed)


def test_an_evaluation_that_never_returns_is_ended_and_the_others_are_not(tmp_path: Path) -> None:
    @task(space=SPACE)
    def endless(params: Any, partition: Any) -> float:
        if partition.index == 1:
            time.sleep(10_000)
        return float(params["x"])

    simulate(
        endless, agents=3, strategy="random", rounds=1, timeout=2.0, engine="processes",
        run_dir=tmp_path / "r", initial_points=1,
    )  # fmt: skip
    first, second, third = evaluations(tmp_path / "r", 3)
    assert [e["score"] is None for e in first + third] == [False] * 4
    assert {e["failure"] for e in second} == {"ended after 2 s, the `timeout` of a round"}


def test_an_evaluation_that_no_signal_reaches_ends_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "GRACE", 0.5)  # the processes inherit it

    @task(space=SPACE)
    def deaf(params: Any, partition: Any) -> float:
        if partition.index == 1:  # as in a long call into C code
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            time.sleep(10_000)
        return float(params["x"])

    simulate(
        deaf, agents=2, strategy="random", rounds=1, timeout=1.0, engine="processes",
        run_dir=tmp_path / "r", initial_points=1,
    )  # fmt: skip
    first, second = evaluations(tmp_path / "r", 2)
    assert [e["score"] is None for e in first] == [False, False]
    assert second
    assert all("process ended in the middle" in e["failure"] for e in second)


def test_a_process_that_a_task_forks_writes_nothing(tmp_path: Path) -> None:
    @task(space=SPACE)
    def forking(params: Any) -> float:
        if os.fork():
            with contextlib.suppress(ChildProcessError):
                os.wait()
        return float(params["x"])

    plan: dict[str, Any] = {"agents": 2, "strategy": "random", "rounds": 3, "seed": 1}
    result = simulate(forking, engine="processes", run_dir=tmp_path / "r", **plan)
    assert result.complete
    made = evaluations(tmp_path / "r", 2)
    assert all(len({(e["round"], e["play"]) for e in history}) == len(history) for history in made)
    assert all(e["score"] == e["params"]["x"] for history in made for e in history)


def test_several_evaluations_at_once_in_a_process_of_the_pool(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"agents": 2, "strategy": "alone", "rounds": 2, "parallel": 2, "seed": 1}
    for kind in ("inline", "processes"):
        simulate(hill, engine=kind, run_dir=tmp_path / kind, **plan)  # type: ignore[arg-type]
    assert evaluations(tmp_path / "inline", 2) == evaluations(tmp_path / "processes", 2)


SLOW = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {repository!r})
from flwr_fbo import Float, simulate, task

@task(space={{"x": Float(0.0, 1.0)}})
def slow(params, partition):
    Path("pids", str(os.getpid())).touch()
    # Two of the three wait in the same round, whoever is first in it.
    mine = sum(name.startswith(f"{{partition.index}}-") for name in os.listdir("calls"))
    if partition.index and mine == 2:
        Path("waiting", str(partition.index)).touch()
        time.sleep(10_000)
    Path("calls", f"{{partition.index}}-{{mine}}").touch()
    return params["x"]

simulate(slow, agents=3, strategy="random", rounds=20, engine="processes", run_dir="r",
         progress=sys.stderr, seed=2)
"""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a simulation of a script's own task, until all its processes wait."""
    for name in ("pids", "calls", "waiting"):
        (folder / name).mkdir()
    (folder / "script.py").write_text(SLOW.format(repository=str(REPOSITORY)))
    process = subprocess.Popen(
        [sys.executable, "script.py"], cwd=folder, start_new_session=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while len(list((folder / "waiting").iterdir())) < 2:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def all_gone(folder: Path) -> bool:
    return all(gone(int(path.name)) for path in (folder / "pids").iterdir())


def test_ctrl_c_twice_leaves_no_process_and_no_evaluation_to_blame(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        for _ in range(2):  # as a terminal does, to the whole group
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.3)
        process.communicate(timeout=60)
        assert process.returncode
    assert all_gone(tmp_path)
    kinds = [
        Journal(journal_path(tmp_path / "r" / "agents", agent), reading=True) for agent in range(3)
    ]
    assert sum(len(journal.read("interrupted")) for journal in kinds) == 2


def test_a_run_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux ends processes with their parent")
    with running(tmp_path) as process:
        process.kill()
        process.communicate(timeout=60)
        deadline = time.monotonic() + 60
        while not all_gone(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.02)


# -- the number of processes, and where there can be none ------------------------------------------


def test_the_environment_sets_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert number_of_processes() == 2
    monkeypatch.delenv(PROCESSES)
    assert number_of_processes() == processors()
    for wrong in ("0", "257", "many", "1.5"):
        monkeypatch.setenv(PROCESSES, wrong)
        with pytest.raises(SettingsError, match=f"integer from 1 to 256, but is '{wrong}'"):
            number_of_processes()


def test_an_engine_that_does_not_exist_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="auto, inline, processes, ray, but got 'threads'"):
        simulate(hill, agents=2, engine="threads", run_dir=tmp_path / "r")  # type: ignore[arg-type]
    assert not (tmp_path / "r").exists()


def test_where_nothing_can_fork_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_agents, "can_fork", lambda: False)
    with pytest.raises(SettingsError, match="cannot fork: use --engine inline"):
        simulate(hill, agents=2, engine="processes", run_dir=tmp_path / "r")
    always(monkeypatch)
    said = engines_of(tmp_path, monkeypatch)
    assert said == []  # `auto` is `inline` there


def test_a_process_that_has_used_cuda_is_not_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = types.SimpleNamespace(is_initialized=lambda: True)
    torch = types.SimpleNamespace(cuda=cuda, manual_seed=lambda seed: None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(SettingsError, match="this process has used CUDA"):
        simulate(hill, agents=2, engine="processes", run_dir=tmp_path / "r")


# -- the choice ------------------------------------------------------------------------------------


def engines_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **plan: Any) -> list[str]:
    """Run the engine `auto`, and return what it says."""
    said: list[str] = []
    spec = spec_of("random")
    directory = RunDirectory(folder / f"auto-{len(list(folder.iterdir()))}")
    directory.create(spec.to_mapping(), spec.task.space)
    engine.run(spec, directory, "auto", say=said.append)
    return said


def children() -> set[str]:
    """The processes that this one has started and that have not ended, or not been waited for."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_quick_evaluations_stay_in_this_process_and_no_process_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic_agents, "WORTH_A_DISPATCH", 1e9)
    before = children()
    (line,) = engines_of(tmp_path, monkeypatch)
    assert line.startswith("Evaluations take ")
    assert line.endswith("each: this process makes them (engine inline)")
    assert children() <= before


def test_slow_evaluations_go_to_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    (line,) = engines_of(tmp_path, monkeypatch)
    assert line.endswith("each: 2 processes make them (engine processes)")


def test_with_one_processor_there_is_nothing_to_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(monkeypatch)
    monkeypatch.setenv(PROCESSES, "1")
    assert engines_of(tmp_path, monkeypatch) == []


def test_after_an_evaluation_that_ended_the_run_others_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task(space=SPACE)
    def fatal(params: Any, partition: Any) -> float:
        if partition.index == 1 and params["x"] > 0.5:
            os._exit(0)
        return float(params["x"])

    plan: dict[str, Any] = {"agents": 3, "strategy": "random", "rounds": 8, "seed": 3}
    if (pid := os.fork()) == 0:
        simulate(fatal, engine="auto", run_dir=tmp_path / "r", **plan)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    result = resume(tmp_path / "r", task=fatal)
    assert result.complete
    assert result.failures > 0


class FakeAgents:
    """Agents whose evaluations take as long as a test says, and no time."""

    nodes = range(2, 100)
    processes = 2
    split = False

    def __init__(self, meter: EvaluationMeter | None, each: Mapping[int, list[float]]) -> None:
        self.meter, self.each = meter, each
        self.asked: list[list[int]] = []
        self.closed = False

    def check(self, setup: Setup) -> None: ...

    def answer(
        self, setup: Setup, requests: Mapping[int, Request], seconds: float,
        on_reply: Callable[[int], None],
    ) -> dict[int, Reply]:  # fmt: skip
        self.asked.append(list(requests))
        for count, agent in enumerate(requests, start=1):
            if self.meter is not None:
                for each in self.each[agent]:
                    self.meter.note(each)
            on_reply(count)
        return {agent: Reply() for agent in requests}

    def update(self, history: Any) -> None: ...

    def split_journal(self, setup: Setup) -> list[str]:
        self.split = True
        return []

    def close(self) -> None:
        self.closed = True


def alike(agents: range, each: list[float]) -> dict[int, list[float]]:
    return {agent: list(each) for agent in agents}


def choose(
    each: Mapping[int, list[float]], rounds: int = 1
) -> tuple[FakeAgents, FakeAgents, list[str], list[int]]:
    """Ask agents whose evaluations take so long; return both kinds, what was said, and counts."""
    meter, said, counts = EvaluationMeter(), list[str](), list[int]()
    inline, pool = FakeAgents(meter, each), FakeAgents(None, each)
    agents = AutomaticAgents(inline, meter, lambda: pool, said.append)  # type: ignore[arg-type,return-value]
    setup = Setup("random", Space(SPACE))
    for round in range(rounds):
        requests = {agent: Request("step", round, {}) for agent in each}
        assert list(agents.answer(setup, requests, 60.0, counts.append)) == list(each)
    return inline, pool, said, counts


def test_one_slow_agent_is_enough_to_know() -> None:
    inline, pool, said, counts = choose(alike(range(5), [2.0, 2.0]))
    assert (inline.asked, pool.asked) == ([[0]], [[1, 2, 3, 4]])
    assert inline.split  # each process opens the journals of the agents that it answers for
    assert said == ["Evaluations take 2 s each: 2 processes make them (engine processes)"]
    assert counts == [1, 2, 3, 4, 5]


def test_quick_agents_are_asked_together_and_the_pool_ends() -> None:
    inline, pool, said, counts = choose(alike(range(6), [1e-4, 1e-4]), rounds=2)
    assert inline.asked == [[0], [1], [2], [3, 4, 5], [0, 1, 2, 3, 4, 5]]
    assert pool.asked == []
    assert pool.closed
    assert not inline.split
    assert said == ["Evaluations take 0.1 ms each: this process makes them (engine inline)"]
    assert counts == [1, 2, 3, 4, 5, 6] * 2


def test_the_first_evaluation_may_load_a_library() -> None:
    _, pool, _, _ = choose({0: [20.0, 1e-4], **alike(range(1, 5), [1e-4, 1e-4])})
    assert pool.asked == []


def test_a_single_evaluation_that_takes_long_is_enough() -> None:
    inline, pool, said, _ = choose(alike(range(3), [600.0]))
    assert (inline.asked, pool.asked) == ([[0]], [[1, 2]])
    assert said == ["Evaluations take 600 s each: 2 processes make them (engine processes)"]


def test_the_pool_is_started_when_it_has_paid_to_wait_for_it() -> None:
    inline, pool, said, _ = choose(alike(range(4), [0.05]), rounds=5)
    # Four agents of 50 ms: after three rounds evaluations took as long as a pool takes to start.
    assert [len(asked) for asked in inline.asked] == [1, 1, 1, 1, 4, 4]
    assert pool.asked == [[0, 1, 2, 3]] * 2
    assert [line.rpartition("(")[2] for line in said] == ["engine inline)", "engine processes)"]


def test_a_method_that_asks_one_agent_at_a_time_needs_no_pool() -> None:
    inline, pool, _, _ = choose({0: [2.0, 2.0]}, rounds=3)
    assert inline.asked == [[0]] * 3
    assert pool.asked == []
