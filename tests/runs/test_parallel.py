"""Runs whose agents make k evaluations at once: the rounds, the counts, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import DPFTSDE, Float, LocalTS, Result, Space, resume, simulate, task
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.report import write_report
from flwr_fbo.runs.files.simulation_store import SimulationStore
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.summary import summary

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes must fork")

#: Seconds after which evaluations that wait for one another have failed.
LONGEST = 120.0
#: The folder in which evaluations meet, and how many must be there at the same time.
MEETING, COUNT = "FLWR_FBO_TEST_MEETING", "FLWR_FBO_TEST_COUNT"


@task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
def hill(params: Mapping[str, Any], rng: Any) -> float:
    away = (params["x"] - 0.3) ** 2 + (params["y"] - 0.6) ** 2
    return float(1.0 - away / 2 + 0.01 * rng.standard_normal())


@task(space={"x": Float(0.0, 1.0)}, prepare=lambda partition: partition.index)
def meets(params: Mapping[str, Any], data: int) -> float:
    """Ends when so many evaluations of the agent are under way at the same time."""
    here, me = Path(os.environ[MEETING]), f"{data}-{os.getpid()}"
    (here / me).touch()
    deadline = time.monotonic() + LONGEST
    while not (here / f"met-{me}").exists():
        mine = [p.name for p in here.glob(f"{data}-*")]
        if len(mine) >= int(os.environ[COUNT]):
            for name in mine:
                (here / f"met-{name}").touch()
        assert time.monotonic() < deadline, "the others never came"
        time.sleep(0.005)
    (here / me).unlink()
    return float(params["x"])


@task(space={"x": Float(0.0, 1.0)})
def dies(params: Mapping[str, Any]) -> float:
    if params["x"] > 0.5:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(params["x"])


def run(folder: Path, tuned: Any = hill, **settings: Any) -> Result:
    given: dict[str, Any] = {"agents": 2, "rounds": 3, "initial_points": 2, "seed": 4}
    return simulate(tuned, run_dir=folder, **{**given, **settings})


def points(folder: Path, agents: int = 2) -> list[list[tuple[int, int, dict[str, Any], Any]]]:
    return [
        [(e.round, e.play, e.params, e.score) for e in history]
        for history in read_evaluations(folder / "agents", agents)
    ]


def test_the_evaluations_of_a_round_are_under_way_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meeting").mkdir()
    monkeypatch.setenv(MEETING, str(tmp_path / "meeting"))
    monkeypatch.setenv(COUNT, "3")
    result = run(tmp_path / "run", meets, parallel=3, initial_points=3, strategy="local-ts")
    assert result.failures == 0
    assert result.complete
    assert [len(history) for history in points(tmp_path / "run")] == [12, 12]


@pytest.mark.parametrize("strategy", ["dp-fts-de", "fts", "alone", "local-ts", "random", "tpe"])
def test_a_run_counts_evaluations_and_not_rounds(strategy: str, tmp_path: Path) -> None:
    if strategy == "tpe":
        pytest.importorskip("optuna")
    result = run(tmp_path / "a", strategy=strategy, parallel=2)
    again = run(tmp_path / "b", strategy=strategy, parallel=2)
    assert points(tmp_path / "a") == points(tmp_path / "b")
    assert result.complete
    assert again.rounds == result.rounds == 3
    assert result.history.evaluations == [2, 4, 6, 8]
    assert [len({tuple(p.values()) for _, _, p, _ in h}) for h in points(tmp_path / "a")] == [8, 8]
    assert len(result.to_records()) == 16
    assert "8 evaluations each" in summary(result)
    assert "8 evaluations" in write_report([tmp_path / "a"]).read_text()


def test_a_private_run_charges_the_same_for_any_number_at_once(tmp_path: Path) -> None:
    settings = {"strategy": "dp-fts-de", "epsilon": 4.0, "releases": "all"}
    one, three = (run(tmp_path / str(k), parallel=k, **settings) for k in (1, 3))
    assert one.privacy is not None
    assert three.privacy is not None
    assert one.privacy.epsilon == three.privacy.epsilon
    ledgers = [(tmp_path / k / "ledger.jsonl").read_text().count('"event"') for k in ("1", "3")]
    assert ledgers[0] == ledgers[1] == 3
    assert [len(h) for h in points(tmp_path / "3")] == [11, 11]


def test_an_evaluation_that_ends_its_process_ends_no_run(tmp_path: Path) -> None:
    result = run(tmp_path / "run", dies, strategy="random", parallel=4)
    made = [e for h in read_evaluations(tmp_path / "run" / "agents", 2) for e in h]
    assert len(made) == 2 * (2 + 3 * 4)
    assert all(e.failed == (e.params["x"] > 0.5) for e in made)
    assert all("ended its process by signal 9" in e.failure for e in made if e.failed)
    assert 0 < result.failures < len(made)
    assert result.complete


def test_a_run_that_is_killed_in_the_middle_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    run(tmp_path / "whole", strategy="alone", parallel=3)
    code = (
        "import os, signal\n"
        "from flwr_fbo.core.evaluation import Evaluator\n"
        "from tests.runs import test_parallel as here\n"
        "from pathlib import Path\n"
        "plain, left = Evaluator._record, [9]\n"
        "def record(self, evaluation):\n"
        "    left[0] -= 1\n"
        "    if not left[0]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return plain(self, evaluation)\n"
        "Evaluator._record = record\n"
        f"here.run(Path({str(tmp_path / 'killed')!r}), strategy='alone', parallel=3)\n"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env=env, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL
    begun = SimulationStore(tmp_path / "killed/agents", None, reading=True).records(0).read("begun")
    assert not (tmp_path / "killed" / "result.json").exists()
    assert begun
    result = resume(tmp_path / "killed", task=hill)
    assert result.complete
    assert points(tmp_path / "killed") == points(tmp_path / "whole")


def test_reports_of_evaluations_at_once_stop_the_hopeless(tmp_path: Path) -> None:
    from .test_pruning import EPOCHS, trained

    result = run(
        tmp_path / "run", trained, strategy="random", parallel=3, initial_points=4, rounds=5
    )
    rows = result.to_records()
    pruned = [row for row in rows if row["pruned"]]
    assert pruned
    assert all(0 < row["steps"] < EPOCHS for row in pruned)
    assert result.findings["pruned"] == len(pruned)


def test_a_baseline_makes_as_many_evaluations(tmp_path: Path) -> None:
    result = run(
        tmp_path / "run", strategy="local-ts", parallel=3,
        compare=["random", "random parallel=2", "alone"],
    )  # fmt: skip
    assert result.history.evaluations[-1] == 11
    made = {name: other.history.evaluations[-1] for name, other in result.compared.items()}
    # Whole rounds of two: one more than 11.
    assert made == {"random": 11, "random parallel=2": 12, "alone": 11}


def test_an_owners_limit_changes_no_point(tmp_path: Path) -> None:
    from flwr_fbo.clients.client_app import simulated_client_app
    from flwr_fbo.methods.method import RunParameters
    from flwr_fbo.methods.owner import Owner
    from flwr_fbo.simulation.in_process_grid import InProcessGrid

    made = []
    for limit in (None, 1):
        folder = tmp_path / str(limit)
        strategy = LocalTS(initial_points=2, parallel=3)
        strategy.open_run(RunParameters(hill.space, 2, 2, timeout=60.0))
        grid = InProcessGrid(simulated_client_app(hill, folder / "agents"), 2)
        for context in grid.contexts.values():
            context.node_config.update({} if limit is None else {"parallel-limit": limit})
        strategy.run(grid)
        made.append(points(folder))
    assert made[0] == made[1]
    assert [len(h) for h in made[0]] == [8, 8]
    with pytest.raises(SettingsError, match="`parallel-limit` must be a whole number"):
        _ = Owner("me", {"parallel-limit": 1.5}).parallel_limit


def test_strategies_and_configurations_take_it() -> None:
    assert DPFTSDE(parallel=4).settings.parallel == 4
    spec = RunSpec.from_mapping({"task": "digits", "strategy": "fts", "settings": "parallel=4"})
    assert spec.settings.parallel == 4
    with pytest.raises(SettingsError, match=r"`parallel` must be in \[1, 256\], but got 0"):
        DPFTSDE(parallel=0)


@pytest.mark.parametrize("strategy", ["ldp-ata", "ldp-tgp", "gp-ucb", "fed1-ucb"])
def test_methods_with_one_answer_in_a_message_refuse_it(strategy: str) -> None:
    with pytest.raises(SettingsError, match=f"`parallel` must be left unset with {strategy}"):
        simulate("garland", agents=2, strategy=strategy, parallel=2)


def test_a_task_may_have_a_setting_of_this_name() -> None:
    from dataclasses import dataclass

    from flwr_fbo import Task
    from flwr_fbo.core.settings import Settings, at_least, setting

    @dataclass(frozen=True)
    class Own(Settings):
        parallel: int = setting(1, "threads of a training", at_least(1))

    class OwnTask(Task):
        settings_class = Own
        score_range = (0.0, 1.0)

        @property
        def space(self) -> Space:
            return Space({"x": Float(0.0, 1.0)})

        def evaluate(self, params: Any, *, rng: np.random.Generator) -> float:
            return 0.1 * self.settings.parallel  # type: ignore[attr-defined, no-any-return]

    spec = RunSpec.from_mapping({"task": OwnTask, "strategy": "ldp-tgp", "parallel": 3})
    assert spec.task.settings.parallel == 3  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_in_workers_of_ray(tmp_path: Path) -> None:
    """The workers are processes with threads of their own, which fork all the same."""
    (tmp_path / "meeting").mkdir()
    root = Path(__file__).parents[2]
    bin = Path(sys.executable).parent
    env = {
        **os.environ, "FLWR_TELEMETRY_ENABLED": "0",
        MEETING: str(tmp_path / "meeting"), COUNT: "2",
    }  # fmt: skip
    subprocess.run(
        [str(bin / "flwr-fbo"), "run", "tests.runs.test_parallel:meets", "--strategy", "local-ts",
         "--engine", "ray", "--agents", "2", "--rounds", "2", "--set", "initial-points=2",
         "--set", "parallel=2", "--set", "timeout=900", "--run-dir", str(tmp_path / "run")],
        check=True, cwd=root, timeout=1800, env=env,
    )  # fmt: skip
    made = [e for h in read_evaluations(tmp_path / "run" / "agents", 2) for e in h]
    assert len(made) == 2 * 6
    assert not any(e.failed for e in made)
