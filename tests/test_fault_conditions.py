"""The conditions of the fault matrix: each one fails where what it forbids has happened.

Runs that nobody disturbed are checked as if a process had been killed in them. Then their records,
or what really happened, is changed.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]
BENCHMARKS = REPOSITORY / "benchmarks"
PRIVATE, SHARING, ALONE = "dp-fts-de", "fts-de", "local-ts, deployed"

Evaluations = list[list[tuple[Any, ...]]]


@dataclass
class Checked:
    """A run, what really happened in it, and what an undisturbed run evaluates."""

    strategy: str
    run: Path
    notes: Path
    result: dict[str, Any]
    evaluations: Evaluations

    @property
    def calls(self) -> int:
        return sum(map(len, self.evaluations))

    def note(self, *words: str) -> None:
        with self.notes.open("a") as file:
            file.write("".join(f"{word}\n" for word in words))


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    """The benchmark's modules, and the environment as it was before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        names = "fault_kit", "faults", "deployment_faults"
        yield {name: importlib.import_module(name) for name in names}


@pytest.fixture(scope="module")
def made(modules: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each strategy, and its notes."""
    folder, faults = tmp_path_factory.mktemp("runs"), modules["faults"]
    with pytest.MonkeyPatch.context() as patch:
        for name in (PRIVATE, SHARING, ALONE):
            patch.setenv(modules["fault_kit"].NOTES, str(folder / f"{name}.notes"))
            (folder / f"{name}.notes").touch()
            faults.simulate_run(faults.settings_of(name), "inline", folder / name)
    return folder


@pytest.fixture
def checked(
    made: Path, modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Checked]:
    def copied(name: str) -> Checked:
        notes = tmp_path / "notes"
        shutil.copy(made / f"{name}.notes", notes)
        monkeypatch.setenv(modules["fault_kit"].NOTES, str(notes))
        evaluations = modules["fault_kit"].essence(made / name)
        result = {"complete": True, "epsilon": 6.0}
        return Checked(name, made / name, notes, result, evaluations)

    return copied


def case(modules: dict[str, ModuleType], name: str, where: str = "") -> Any:
    kit = modules["fault_kit"]
    return kit.Case(kit.Step("a step", where, "before"), name, 2, "deployment")


class TestAServerThatWasKilled:
    def faults_of(self, modules: dict[str, ModuleType], run: Checked) -> str:
        tried = case(modules, run.strategy)
        expected = run.evaluations, run.calls
        modules["faults"].check(tried, run.result, run.run, [], False, expected)
        return "; ".join(tried.faults)

    @pytest.mark.parametrize("name", [PRIVATE, SHARING])
    def test_nothing_is_wrong(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked], name: str
    ) -> None:
        assert self.faults_of(modules, checked(name)) == ""

    def test_a_release_without_a_charge(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(PRIVATE)
        charges = modules["fault_kit"].charges(run.run)
        assert charges > 0
        run.note(*["release"] * charges)
        assert self.faults_of(modules, run) == ""
        run.note("release")
        assert f"{charges + 1} releases, {charges} charges" in self.faults_of(modules, run)

    def test_a_budget_that_was_exceeded(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(PRIVATE)
        run.result["epsilon"] = 6.1
        assert "epsilon 6.1 of 6.0" in self.faults_of(modules, run)

    def test_an_evaluation_that_was_made_again(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(SHARING)
        run.note(run.notes.read_text().splitlines()[0])
        assert "1 recorded evaluations were made again" in self.faults_of(modules, run)

    def test_an_evaluation_that_is_recorded_twice(
        self,
        modules: dict[str, ModuleType],
        checked: Callable[[str], Checked],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        run = checked(SHARING)
        twice = [[*run.evaluations[0], run.evaluations[0][0]], *run.evaluations[1:]]
        monkeypatch.setattr(modules["faults"], "essence", lambda run: twice)
        assert "an evaluation was made twice" in self.faults_of(modules, run)

    def test_other_evaluations(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(SHARING)
        run.evaluations[0] = run.evaluations[0][:-1]
        said = self.faults_of(modules, run)
        assert "not those of an undisturbed run" in said
        assert f"{run.calls + 1} evaluations, {run.calls} in an undisturbed run" in said

    def test_a_run_that_is_not_complete(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(SHARING)
        run.result["complete"] = False
        assert "not complete" in self.faults_of(modules, run)


class TestAClientThatWasKilled:
    def faults_of(
        self, modules: dict[str, ModuleType], run: Checked, where: str = "a:message"
    ) -> str:
        tried = case(modules, run.strategy, where)
        expected = run.evaluations, run.calls
        modules["deployment_faults"].check_client(tried, run.result, run.run, expected)
        return "; ".join(tried.faults)

    def test_nothing_is_wrong(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        assert self.faults_of(modules, checked(ALONE)) == ""

    def test_a_run_that_is_not_complete(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(ALONE)
        run.result["complete"] = False
        assert "not complete" in self.faults_of(modules, run)

    def test_one_evaluation_may_be_lost_and_not_two(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(ALONE)
        run.note("end 1 0.123 1.0")
        assert self.faults_of(modules, run) == ""
        run.note("end 1 0.124 1.0")
        assert "2 evaluations were lost or made again" in self.faults_of(modules, run)

    def test_a_release_without_a_charge(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(ALONE)
        run.note("left 0.5")
        assert "1 releases, 0 charges" in self.faults_of(modules, run)

    @pytest.mark.parametrize("party", [0, 2])
    def test_another_party_that_did_something_else(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked], party: int
    ) -> None:
        run = checked(ALONE)
        run.evaluations[party].append((9, 0, (0.5,), 0.5))  # as if it had missed a round
        said = self.faults_of(modules, run)
        assert said == f"party {party} did other than in an undisturbed run"

    def test_the_party_may_miss_a_round_and_do_something_else_then(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(ALONE)
        its = run.evaluations[1]
        missed = (its[-2][0], 7, (0.5,), 0.5)
        its[-1:] = [missed, (*its[-1][:2], (0.9,), 0.9)]
        assert self.faults_of(modules, run) == ""

    def test_the_party_did_something_else_before(
        self, modules: dict[str, ModuleType], checked: Callable[[str], Checked]
    ) -> None:
        run = checked(ALONE)
        run.evaluations[1][0] = (*run.evaluations[1][0][:3], 0.9)
        assert "party 1 did other than" in self.faults_of(modules, run)

    @pytest.mark.parametrize(
        ("party", "where", "wrong"),
        [
            (1, "flwr_fbo.core.evaluation:Evaluator._guarded", False),
            (1, "flwr_fbo.clients.tuning_client:TuningClient.fit", True),
            (0, "flwr_fbo.core.evaluation:Evaluator._guarded", True),
        ],
    )
    def test_what_may_fail(
        self,
        modules: dict[str, ModuleType],
        checked: Callable[[str], Checked],
        monkeypatch: pytest.MonkeyPatch,
        party: int,
        where: str,
        wrong: bool,
    ) -> None:
        read = modules["deployment_faults"].read_evaluations

        def with_a_failure(*given: Any) -> Any:
            histories = read(*given)
            histories[party][-1] = replace(histories[party][-1], score=None, failure="killed")
            return histories

        monkeypatch.setattr(modules["deployment_faults"], "read_evaluations", with_a_failure)
        said = self.faults_of(modules, checked(ALONE), where)
        assert ("evaluations failed" in said) == wrong


STEP = "flwr_fbo.runs.files.checks:checksum"
#: A program of Flower's, as far as the plan is concerned: it makes a step four times.
PROGRAM = """
import fault_kit
from flwr_fbo.runs.files import checks
for number in range(4):
    checks.checksum("run", "text")
    print(number, flush=True)
"""


class TestPlans:
    """A program that is started anew dies where the plan says, and once in a run."""

    def run(self, program: str, party: int = 1) -> tuple[int, list[str]]:
        kit = importlib.import_module("fault_kit")
        path = Path(os.environ[kit.PLAN]).parent / program
        path.write_text(PROGRAM)
        done = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=300,
            env={
                **os.environ, "PYTHONPATH": f"{BENCHMARKS}{os.pathsep}{REPOSITORY}",
                kit.PARTY: str(party),
            },
        )  # fmt: skip
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode, done.stdout.split()

    @pytest.fixture(autouse=True)
    def plan(
        self, modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kit = modules["fault_kit"]
        monkeypatch.setenv(kit.NOTES, str(tmp_path / "notes"))
        monkeypatch.setenv(kit.PLAN, str(tmp_path / "plan"))
        (tmp_path / "notes").touch()

    def test_a_server_is_killed_at_its_second_call_and_not_again(
        self, modules: dict[str, ModuleType]
    ) -> None:
        kit = modules["fault_kit"]
        kit.write_plan(kit.Step("a step", STEP, "before"), 2, kit.SERVER_APP)
        assert self.run(kit.SERVER_APP) == (-signal.SIGKILL, ["0"])
        assert kit.notes() == ["killed"]
        assert self.run(kit.SERVER_APP) == (0, ["0", "1", "2", "3"])

    def test_a_client_is_killed_at_the_sixth_call_of_its_party(
        self, modules: dict[str, ModuleType]
    ) -> None:
        kit = modules["fault_kit"]
        kit.write_plan(kit.Step("a step", STEP, "after"), 6, kit.CLIENT_APP, party=1)
        assert self.run(kit.CLIENT_APP, party=1)[0] == 0
        assert self.run(kit.CLIENT_APP, party=0)[0] == 0
        assert self.run(kit.SERVER_APP, party=1)[0] == 0
        assert self.run(kit.CLIENT_APP, party=1) == (-signal.SIGKILL, ["0"])


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize(("title", "left"), [("ray::IDLE", 1), ("ray::DashboardAgent", 0)])
def test_processes_of_ray_are_ended_and_workers_are_counted(
    modules: dict[str, ModuleType], tmp_path: Path, title: str, left: int
) -> None:
    kit, words = modules["fault_kit"], f"MARK={tmp_path}"
    process = subprocess.Popen(
        [title, "300"], executable=shutil.which("sleep"), env={"MARK": str(tmp_path)}
    )
    while kit.started_with(words) != [process.pid]:
        time.sleep(0.01)
    assert kit.end_left(words, 0.2) == left
    assert process.wait(60) == -signal.SIGKILL
