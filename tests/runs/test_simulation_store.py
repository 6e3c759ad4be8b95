"""The journal of a whole simulation: no damage is silent, and no crash loses what was promised."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import Float, resume, simulate, task
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.core import evaluation_groups
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.files import arrangement, simulation_store
from flwr_fbo.runs.files.arrangement import arrange
from flwr_fbo.runs.files.checks import LAYOUT, Chain
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal_check import JournalError
from flwr_fbo.runs.files.simulation_store import SimulationStore
from flwr_fbo.runs.history import (
    RunHistory,
    ended_a_run,
    histories_in,
    read_evaluations,
    read_journal,
)
from flwr_fbo.runs.locations import has_store, store_path
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.server_app import serve

REPOSITORY = Path(__file__).parents[2]


@task(space={"x": Float(0.0, 1.0)})
def hill(params: Any, rng: np.random.Generator) -> float:
    return float(1.0 - (params["x"] - 0.3) ** 2 + 0.1 * rng.standard_normal())


def note(store: SimulationStore, agent: int, number: int, seconds: float = 0.0) -> None:
    """Record an evaluation that begins, and that it has ended."""
    for kind in ("begun", "evaluation"):
        taken = seconds if kind == "evaluation" else 0.0
        store.append(agent, kind, {"number": number, "seconds": taken})


def numbers(store: SimulationStore, agent: int, kind: str = "evaluation") -> list[int]:
    return [record["number"] for record in store.records(agent).read(kind)]


def written(folder: Path, seconds: float = 0.0) -> SimulationStore:
    """Return a store with single records, and with a group of three agents."""
    store = SimulationStore(folder, "run")
    note(store, 7, 0, seconds)
    with store.group(1, [2, 3, 5]):
        for agent in (2, 3, 5):
            note(store, agent, agent)
    note(store, 7, 1, seconds)
    store.close()
    return store


# -- records -------------------------------------------------------------------------------------


def test_each_agent_reads_its_own_records(tmp_path: Path) -> None:
    written(tmp_path)
    for _ in range(2):  # what a second process reads is what it goes on with
        store = SimulationStore(tmp_path, "run")
        assert store.agents == [2, 3, 5, 7]
        assert numbers(store, 3) == [3]
        assert numbers(store, 7) == [0, 1]
        assert numbers(store, 7, "begun") == [0, 1]
        assert numbers(store, 4) == []
        assert store.unfinished is None
    records = store.records(7)
    records.forget(["evaluation"])
    records.append("evaluation", {"number": 2, "seconds": 0.0})
    records.append("fit", {"number": np.float64(2).item()})
    store.close()
    assert records.read("evaluation") == []
    assert records.read("fit") == [{"number": 2.0}]
    assert numbers(SimulationStore(tmp_path, "run"), 7) == [0, 1, 2]


def test_a_group_is_two_writes_and_names_its_agents(tmp_path: Path, monkeypatch: Any) -> None:
    store = SimulationStore(tmp_path, "run")
    writes: list[bytes] = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda f, data: writes.append(bytes(data)) or write(f, data))
    with store.group(4, [3, 0, 1, 2, 9]):
        for agent in range(4):
            note(store, agent, agent)
        assert store.path.read_bytes().count(b"\n") == 2  # the header, and the group
    assert len(writes) == 2
    lines = [json.loads(line) for line in store.path.read_bytes().splitlines()]
    assert lines[1]["agents"] == [[0, 3], [9, 9]]
    assert [line["kind"] for line in lines[2:]] == ["evaluation"] * 4 + ["group-end"]


def test_slow_evaluations_have_a_record_before_they_begin(tmp_path: Path) -> None:
    store = SimulationStore(tmp_path, "run")
    with store.group(0, range(4)):
        for agent in range(4):
            note(store, agent, 0, seconds=0.06)
    lines = [json.loads(line) for line in store.path.read_bytes().splitlines()]
    kinds = [line["kind"] for line in lines[1:]]
    assert kinds == ["group", "evaluation", "group-end", *["begun", "evaluation"] * 3]


def test_one_slow_evaluation_among_many_does_not_end_the_group(tmp_path: Path) -> None:
    store = SimulationStore(tmp_path, "run")
    with store.group(0, range(20)):
        for agent in range(20):
            note(store, agent, 0, seconds=0.06 if agent == 10 else 0.0)
            assert SimulationStore(tmp_path, None, reading=True).unfinished is not None
            if agent == 10:  # it is worth a write at once
                assert len(SimulationStore(tmp_path, None, reading=True).agents) == 11
    assert store.path.read_bytes().count(b'"begun"') == 0


# -- damages -------------------------------------------------------------------------------------


def test_a_file_that_was_cut_anywhere_is_a_prefix_or_refused(tmp_path: Path) -> None:
    """Lines that were flushed (of evaluations that took long) are promised, the others are not."""
    store = written(tmp_path / "whole", seconds=0.1)
    whole = store.path.read_bytes()
    (tmp_path / "cut").mkdir()
    for head in (True, False):
        if head:
            shutil.copy(tmp_path / "whole" / "agents.jsonl.head", tmp_path / "cut")
        else:
            (tmp_path / "cut" / "agents.jsonl.head").unlink()
        for end in range(len(whole)):
            store_path(tmp_path / "cut").write_bytes(whole[:end])
            try:
                found = SimulationStore(tmp_path / "cut", "run", reading=True)
            except JournalError:
                assert head
                continue
            assert not head  # the very last record was flushed
            assert found.size == whole.rfind(b"\n", 0, end) + 1


def test_a_cut_of_what_was_never_flushed_is_said(tmp_path: Path) -> None:
    store = written(tmp_path)
    whole = store.path.read_bytes()
    for end in range(len(whole)):
        store.path.write_bytes(whole[:end])
        found = SimulationStore(tmp_path, "run", reading=True)
        lines = whole[:end].count(b"\n")
        assert found.lost == whole.count(b"\n") - max(lines, 1)
        assert len(store.path.read_bytes()) == end  # reading changes nothing
    SimulationStore(tmp_path, "run")
    assert store.path.read_bytes() == whole[: whole.rfind(b"\n", 0, len(whole) - 1) + 1]


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    store = written(tmp_path)
    whole = store.path.read_bytes()
    for place in range(0, len(whole) - 1, 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 7
        store.path.write_bytes(damaged)
        with pytest.raises(JournalError):
            SimulationStore(tmp_path, "run", reading=True)


@pytest.mark.parametrize("how", ["doubled", "dropped", "swapped"])
def test_lines_that_were_moved_are_noticed(tmp_path: Path, how: str) -> None:
    store = written(tmp_path)
    lines = store.path.read_bytes().splitlines(keepends=True)
    for n in range(1, len(lines) - 1):
        moved = {
            "doubled": [*lines[:n], lines[n], *lines[n:]],
            "dropped": [*lines[:n], *lines[n + 1 :]],
            "swapped": [*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]],
        }[how]
        store.path.write_bytes(b"".join(moved))
        with pytest.raises(JournalError, match="does not fit its checksum"):
            SimulationStore(tmp_path, "run", reading=True)


def test_the_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(JournalError, match="the records of all agents in run other"):
        SimulationStore(tmp_path, "other")


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    store = written(tmp_path)
    before = store.path.read_bytes()
    real = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) > 200:
            real(descriptor, bytes(data)[:50])
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)

    def grow() -> None:
        with store.group(2, [2, 3, 5]):
            for agent in (2, 3, 5):
                note(store, agent, 10)

    with pytest.raises(JournalError, match="No space left"):
        grow()
    monkeypatch.undo()
    assert [numbers(store, agent) for agent in (2, 3, 5)] == [[2], [3], [5]]
    grown = store.path.read_bytes()
    assert grown.startswith(before)
    assert grown[len(before) :].count(b"\n") == 1  # the line that opens the group
    grow()
    again = SimulationStore(tmp_path, "run")
    assert [numbers(again, agent) for agent in (2, 3, 5)] == [[2, 10], [3, 10], [5, 10]]


@pytest.mark.parametrize("seconds", [0.0, 0.06])
def test_a_write_that_fails_in_the_middle_of_a_group_fails_for_all(
    tmp_path: Path, monkeypatch: Any, seconds: float
) -> None:
    """An agent that answered before must not count as recorded, nor hide the failure."""
    store, failing = SimulationStore(tmp_path, "run"), [False]
    plain = simulation_store.append_lines

    def fail(*given: Any) -> None:
        if failing[0]:
            failing[0] = False
            raise OSError(28, "No space left on device")
        plain(*given)

    monkeypatch.setattr(simulation_store, "append_lines", fail)

    def together() -> None:
        with store.group(0, range(20)):
            for agent in range(20):
                failing[0] = agent == 12
                with contextlib.suppress(JournalError):  # as an agent that declines
                    note(store, agent, 0, seconds if agent == 12 else 0.0)

    if not seconds:
        failing[0] = False
        monkeypatch.setattr(evaluation_groups, "GROUP_SECONDS", -1.0)
    with pytest.raises(JournalError, match="No space left"):
        together()
    again = SimulationStore(tmp_path, "run")
    assert [n for n in range(20) if numbers(again, n)] == [
        n for n in range(20) if numbers(store, n)
    ]
    assert not numbers(store, 12)


def test_nobody_has_replied_whose_evaluation_is_not_recorded(
    tmp_path: Path, monkeypatch: Any
) -> None:
    plain, count = simulation_store.append_lines, 0

    def fail(*given: Any) -> None:
        nonlocal count
        count += 1
        if count % 7 == 0:
            raise OSError(28, "No space left on device")
        plain(*given)

    monkeypatch.setattr(simulation_store, "append_lines", fail)
    simulate(hill, run_dir=tmp_path / "run", **PLAN)
    table = (tmp_path / "run" / "rounds.csv").read_text().splitlines()[1:]
    replied = {int(row.split(",")[0]): int(row.split(",")[2]) for row in table}
    made = read_evaluations(tmp_path / "run" / "agents", 40)
    recorded = {t: sum(e.round == t for h in made for e in h) for t in replied}
    assert sum(replied.values()) < 40 * 5
    # Records of agents that declined, as others of their group could not be written, may be there.
    assert all(replied[t] <= recorded[t] for t in replied)


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    store = written(tmp_path)
    before = store.path.read_bytes()
    child = os.fork()
    if not child:
        try:
            note(store, 2, 99)
        except JournalError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.path.read_bytes() == before


# -- a run that is killed ------------------------------------------------------------------------

PLAN: dict[str, Any] = {"agents": 40, "strategy": "random", "rounds": 4, "initial_points": 1,
                        "seed": 3}  # fmt: skip


def evaluations(run: Path, agents: int = 40) -> list[list[dict[str, Any]]]:
    return [
        [{**vars(e), "seconds": 0.0} for e in history]
        for history in read_evaluations(run / "agents", agents, RunDirectory(run).identity)
    ]


@task(space={"x": Float(0.0, 1.0)})
def killed_once(params: Any, rng: np.random.Generator) -> float:
    """End the process once, in the middle of a group."""
    count = int(os.environ.get("FBO_KILL_AT", "0"))
    if count:
        os.environ["FBO_KILL_AT"] = str(count - 1)
        if count == 1:
            os.kill(os.getpid(), 9)
    return float(1.0 - (params["x"] - 0.3) ** 2 + 0.1 * rng.standard_normal())


@task(space={"x": Float(0.0, 1.0)})
def vanishes(params: Any) -> float:
    if params["x"] > 0.9:
        os._exit(3)
    return float(params["x"])


def killed(run: Path, which: str, evaluations: int = 0) -> None:
    """Run a federation in a process that ends in the middle of an evaluation."""
    code = (
        "from flwr_fbo import simulate; from tests.runs import test_simulation_store as tasks\n"
        "from flwr_fbo.core import evaluation_groups\n"
        f"simulate(tasks.{which}, engine='inline', run_dir={str(run)!r}, **{PLAN!r})"
    )
    environment = {**os.environ, "FBO_KILL_AT": str(evaluations), "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, timeout=300, check=False, env=environment
    )
    assert done.returncode in (-9, 3)


@pytest.mark.parametrize("after", [1, 3, 30, 41, 100])
def test_a_killed_run_ends_as_one_that_was_not(tmp_path: Path, after: int) -> None:
    run = tmp_path / "run"
    killed(run, "killed_once", after)
    assert ended_a_run(run / "agents")
    simulate(hill, run_dir=tmp_path / "whole", **PLAN)
    result = resume(run, task=killed_once, engine="inline")
    assert result.complete
    assert result.failures == 0
    assert evaluations(run) == evaluations(tmp_path / "whole")
    # Nobody is under suspicion any more, and evaluations are made in this process again.
    assert ended_a_run(run / "agents") == ""
    # An evaluation that was recorded before it began is to blame for itself; a group is not.
    groups = store_path(run / "agents").read_bytes().count(b'"kind":"group"')
    assert groups == 0 if after == 1 else groups > 1


def test_an_evaluation_that_ends_the_process_in_a_group_is_found(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed(run, "vanishes")
    result = resume(run, task=vanishes, engine="inline")
    assert result.complete
    made = [e for history in read_evaluations(run / "agents", 40) for e in history]
    assert len(made) == 40 * 5
    assert all(e.failed == (e.params["x"] > 0.9) for e in made)
    assert result.failures == sum(e.failed for e in made) > 0
    assert ended_a_run(run / "agents") == ""


@pytest.mark.parametrize("kind", ["evaluation", "begun"])
@pytest.mark.parametrize("shared", [True, False])
def test_records_without_what_they_must_have_are_refused_by_every_reader(
    kind: str, shared: bool, tmp_path: Path
) -> None:
    """Their checksums are right, so only their content says that they are no records."""
    store = SimulationStore(tmp_path, "run")
    store.append(0, kind, {"round": 0, "unit": [0.5], "plays": "x", "seconds": 0.0})
    store.close()
    if not shared:
        arrange(tmp_path, "run", shared=False)
    (path,) = tmp_path.glob("agent*.jsonl")
    says = f"{path.name} holds a line that is no record"
    if kind == "begun":
        with pytest.raises(JournalError, match=says):
            ended_a_run(tmp_path)
    else:
        with pytest.raises(JournalError, match=says):
            histories_in(tmp_path)
        with pytest.raises(JournalError, match=says):
            read_journal(tmp_path / "agent-0000.jsonl")


@pytest.mark.parametrize("name", ["score", "regret"])
def test_numbers_that_no_float_holds_are_refused(name: str, tmp_path: Path) -> None:
    store = SimulationStore(tmp_path, "run")
    evaluation = Evaluation(0, 0, {"x": 0.5}, [0.5], 1.0, regret=0.5, seconds=0.1)
    store.append(0, "evaluation", {**vars(evaluation), name: 10**400})
    store.close()
    with pytest.raises(JournalError, match="no evaluation: a value is of a wrong type"):
        read_evaluations(tmp_path, 1, "run")


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"group","round":0,"agents":[[0,9223372036854775807]]}',
        b'{"kind":"group","round":0,"agents":[[5,3]]}',
        b'{"kind":"group","round":0,"agents":[[0,3],[2,5]]}',
        b'{"kind":"group","round":0,"agents":[[-1,3]]}',
        b'{"kind":"group","round":1e999,"agents":[[0,1]]}',
        b'{"agent":%d,"kind":"fit"}' % 10**30,
        b'{"agent":-1,"kind":"fit"}',
    ],
)
def test_agents_that_no_run_can_have_are_refused(line: bytes, tmp_path: Path) -> None:
    header = b'{"kind":"journal","layout":%d,"run":"run","agent":"all"}' % LAYOUT
    chain = Chain()
    store_path(tmp_path).write_bytes(chain.add(header) + chain.add(line))
    with pytest.raises(JournalError, match="a line is not a record"):
        SimulationStore(tmp_path, "run", reading=True)


# -- the two arrangements ------------------------------------------------------------------------


def test_agents_with_workers_have_a_journal_each(tmp_path: Path) -> None:
    """A worker process writes the journal of its agent, also where the agents are in process."""
    result = simulate(
        "synthetic", agents=2, strategy="local-ts", rounds=1, initial_points=1,
        answer_within=250.0, timeout=300.0, run_dir=tmp_path / "run",
    )  # fmt: skip
    assert result.history.evaluations == [1, 2]
    folder = tmp_path / "run" / "agents"
    assert not has_store(folder)
    assert {path.name for path in folder.glob("agent-000?.jsonl")} == {
        "agent-0000.jsonl", "agent-0001.jsonl"
    }  # fmt: skip
    made = read_evaluations(folder, 2, RunDirectory(tmp_path / "run").identity)
    assert [len(history) for history in made] == [2, 2]


class Stop(Callback):
    """End the process after a round, as far as a test can."""

    def __init__(self, round: int) -> None:
        self._round = round

    def on_round(self, run: Any, report: Any) -> None:
        if report.round == self._round:
            raise KeyboardInterrupt


SMALL: dict[str, Any] = {"agents": 4, "rounds": 4, "epsilon": 8.0, "releases": "all", "seed": 3,
                         "features": 10, "initial_points": 2}  # fmt: skip


def by_messages(folder: Path, until: int | None = None) -> None:
    """Run or continue the federation of SMALL with messages: each agent has its own journal."""
    given = {name.replace("_", "-"): value for name, value in SMALL.items()}
    spec = RunSpec.from_mapping({"task": hill, **given})
    directory = RunDirectory(folder)
    if not directory.holds_a_run:
        directory.create(spec.to_mapping(), spec.task.space)
    history = RunHistory(directory.agents, 4, directory.identity)
    callbacks = [] if until is None else [Stop(until)]
    clients = simulated_client_app(spec.task, directory.agents)
    serve(spec, InProcessGrid(clients, 4), directory, callbacks, Stopper(spec.run, history))


def own_points(run: Path) -> list[list[Any]]:
    """Return what no noise of a release can have changed: the initial points and their scores."""
    return [[e for e in history if e["round"] == 0] for history in evaluations(run, 4)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("arrangements") / "run"
    simulate(hill, run_dir=run, **SMALL)
    return run


def check_continued(run: Path, undisturbed: Path) -> None:
    """A run that changed its engine has all its evaluations once, and lost none."""
    assert own_points(run) == own_points(undisturbed)
    for history in evaluations(run, 4):
        assert [(e["round"], e["play"]) for e in history] == [
            (0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (4, 0)
        ]  # fmt: skip
    damages = json.loads((run / "result.json").read_text()).get("damages", [])
    assert not [text for text in damages if "lost" in text]


def test_a_run_continues_with_the_other_engine_and_back(tmp_path: Path, undisturbed: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        simulate(hill, run_dir=run, callbacks=[Stop(1)], **SMALL)
    assert has_store(run / "agents")
    with pytest.raises(KeyboardInterrupt):
        by_messages(run, until=2)
    assert not has_store(run / "agents")
    with pytest.raises(KeyboardInterrupt):
        resume(run, task=hill, callbacks=[Stop(3)])
    assert not list((run / "agents").glob("agent-*.jsonl*"))
    by_messages(run)
    check_continued(run, undisturbed)


def ends_at(step: int, folder: Path, shared: bool, monkeypatch: Any) -> bool:
    """Move the records of a folder, and end before this step; return whether it was reached."""
    done = 0

    def counted(real: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done == step:
                raise KeyboardInterrupt
            return real(*given, **named)

        return call

    with monkeypatch.context() as patched:
        for owner, name in ((Path, "replace"), (Path, "unlink"), (arrangement, "_write_head")):
            patched.setattr(owner, name, counted(getattr(owner, name)))
        try:
            arrange(folder, "run", shared=shared)
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize("shared", [True, False])
def test_a_move_may_end_anywhere(tmp_path: Path, monkeypatch: Any, shared: bool) -> None:
    """What was recorded is read at every step of a move, and after the move is made again."""
    whole = tmp_path / "whole"
    store = SimulationStore(whole, "run")
    for agent in range(3):
        store.append(agent, "evaluation", vars(Evaluation(0, 0, {"x": 0.5}, [0.5], float(agent))))
    store.close()
    expected = read_evaluations(whole, 3, "run")
    if shared:
        arrange(whole, "run", shared=False)
    step, reached = 0, True
    while reached:
        step += 1
        folder = Path(shutil.copytree(whole, tmp_path / f"step-{step}"))
        reached = ends_at(step, folder, shared, monkeypatch)
        assert read_evaluations(folder, 3, "run") == expected
        assert arrange(folder, "run", shared=shared) == []
        assert read_evaluations(folder, 3, "run") == expected
        assert has_store(folder) == shared
        assert sorted(histories_in(folder)) == ["agent-0000", "agent-0001", "agent-0002"]
        assert read_journal(folder / "agent-0002.jsonl") == (expected[2], 0)
    assert step > 8


def test_a_damaged_journal_is_not_moved(tmp_path: Path) -> None:
    written(tmp_path, seconds=0.1)
    data = bytearray(store_path(tmp_path).read_bytes())
    data[len(data) // 2] ^= 4
    store_path(tmp_path).write_bytes(data)
    with pytest.raises(JournalError):
        arrange(tmp_path, "run", shared=False)
    assert store_path(tmp_path).read_bytes() == data


def test_the_journal_of_all_is_not_one_of_an_agent(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(JournalError, match=r"name one of them, such as .*agent-0000\.jsonl"):
        read_journal(store_path(tmp_path))
    with pytest.raises(FileNotFoundError):
        read_journal(tmp_path / "other.jsonl")
