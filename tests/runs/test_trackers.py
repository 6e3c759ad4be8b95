"""Trackers: what they log, from where, and into which files."""

from __future__ import annotations

import json
import shutil
import sys
import types
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flwr_fbo import Float, Result, client_app, simulate, task
from flwr_fbo.cli.main import app
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.files.arrangement import arrange
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.trackers import MLflow, TensorBoard, Tracker, WandB, tracker_named
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.server_app import serve

SMALL: dict[str, Any] = {"agents": 3, "rounds": 2, "initial_points": 2, "epsilon": 5.0}


@task(space={"x": Float(0.0, 1.0)})
def hill(params: Any) -> float:
    return 1.0 - (float(params["x"]) - 0.3) ** 2


class Memory(Tracker):
    def __init__(self, journals: Path | None = None) -> None:
        super().__init__(journals)
        self.rows: dict[int, dict[str, float]] = {}

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        self.rows[round] = dict(numbers)


def test_scores_are_logged_only_from_named_journals(tmp_path: Path) -> None:
    blind, seeing = Memory(), Memory(tmp_path / "r" / "agents")
    found = simulate(hill, run_dir=tmp_path / "r", callbacks=[blind, seeing], **SMALL)
    assert set(blind.rows[2]) == {"replies", "lost", "seconds", "epsilon"}
    assert blind.rows[2]["epsilon"] == pytest.approx(found.epsilon)
    assert [seeing.rows[t]["best"] for t in range(3)] == pytest.approx(found.history.best)
    assert [seeing.rows[t]["evaluations"] for t in range(3)] == found.history.evaluations
    assert seeing.rows[2]["best/quarter"] <= seeing.rows[2]["best/median"]


@pytest.mark.parametrize(
    ("make", "extra"), [(TensorBoard, "tensorboard"), (WandB, "wandb"), (MLflow, "mlflow")]
)
def test_without_its_package_the_extra_is_named(
    make: Any, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorboardX", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingsError, match=rf"install flwr-fbo\[{extra}\]"):
        make(tmp_path)


def events(folder: Path) -> dict[tuple[str, int], float]:
    """The numbers in the event file of a folder, by their names and steps."""
    from tensorboardX import proto

    (path,) = folder.iterdir()
    data, logged, at = path.read_bytes(), {}, 0
    while at < len(data):  # a record: length, its checksum, the event, its checksum
        length = int.from_bytes(data[at : at + 8], "little")
        event = proto.event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
        for value in event.summary.value:
            logged[value.tag, event.step] = value.simple_value
        at += 16 + length
    return logged


@pytest.mark.skipif(find_spec("tensorboardX") is None, reason="tensorboardX is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_the_files(tmp_path: Path) -> None:
    tracker = TensorBoard(tmp_path / "logs", tmp_path / "r" / "agents")
    found = simulate(hill, run_dir=tmp_path / "r", callbacks=[tracker], **SMALL)
    logged = events(tmp_path / "logs")
    assert logged["best", 2] == pytest.approx(found.history.best[-1], rel=1e-6)
    assert 0 < logged["epsilon", 0] <= logged["epsilon", 2]


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = WandB(tmp_path / "r" / "agents", project="test", dir=str(tmp_path))
    simulate(hill, run_dir=tmp_path / "r", callbacks=[tracker], **SMALL)
    (kept,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    stored = kept.read_bytes()
    assert b"best/median" in stored
    assert b"epsilon" in stored


def test_mlflow_is_told_of_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in with the four functions that are called, by their own names."""
    told: list[tuple[str, Any]] = []
    stand_in = types.ModuleType("mlflow")
    for name in ("start_run", "log_params", "log_metrics", "end_run"):

        def note(*given: Any, name: str = name, **named: Any) -> None:
            told.append((name, given or named))
            if name == "log_metrics":
                assert named.keys() == {"step"}

        setattr(stand_in, name, note)
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    tracker = MLflow(tmp_path / "r" / "agents", run_name="it")
    found = simulate(hill, run_dir=tmp_path / "r", callbacks=[tracker], **SMALL)
    assert [name for name, _ in told] == [
        "start_run",
        "log_params",
        *["log_metrics"] * 3,
        "end_run",
    ]
    assert told[0][1] == {"run_name": "it"}
    assert told[4][1][0]["best"] == pytest.approx(found.history.best[-1])


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/m.db")
    tracker = MLflow(tmp_path / "r" / "agents")
    found = simulate(hill, run_dir=tmp_path / "r", callbacks=[tracker], **SMALL)
    (kept,) = mlflow.search_runs(output_format="list")
    assert kept.info.status == "FINISHED"
    assert kept.data.metrics["best"] == pytest.approx(found.history.best[-1])
    assert kept.data.params["epsilon"] == "5.0"


@pytest.mark.skipif(find_spec("tensorboardX") is None, reason="tensorboardX is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_command_line_tracks_a_simulation(tmp_path: Path) -> None:
    run = tmp_path / "r"
    simulated = ("--agents", "2", "--rounds", "2", "--engine", "inline", "--run-dir", str(run))
    done = CliRunner().invoke(
        app, ["run", "tests.runs.test_trackers:hill", *simulated, "--track", "tensorboard",
              "--epsilon", "5", "--compare", "random"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    logged = events(run / "tensorboard" / "server")
    found = Result.read(run)
    assert [logged["best", t] for t in range(3)] == pytest.approx(found.history.best, rel=1e-6)
    assert json.loads((run / "config.json").read_text())["track"] == "tensorboard"
    assert not (run / "compare" / "random" / "tensorboard").exists()


@pytest.mark.skipif(find_spec("tensorboardX") is None, reason="tensorboardX is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_server_that_owns_no_journals_tracks_no_scores(tmp_path: Path) -> None:
    """As under `flwr run`: the ServerApp on a grid, with the key of its run-config."""
    clients = client_app(hill)
    given = {
        "task": hill,
        "strategy": "dp-fts-de",
        "agents": 2,
        "rounds": 2,
        "track": "tensorboard",
    }
    spec = RunSpec.from_mapping(given)
    directory = RunDirectory(tmp_path / "r").create(spec.to_mapping(), spec.task.space)
    serve(spec, InProcessGrid(clients, 2), directory)
    names = {name for name, _ in events(tmp_path / "r" / "tensorboard" / "server")}
    assert names == {"replies", "lost", "seconds"}


@pytest.mark.skipif(find_spec("tensorboardX") is None, reason="tensorboardX is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_side_tracks_what_its_own_directory_holds(tmp_path: Path) -> None:
    found = simulate(hill, run_dir=tmp_path / "r", **SMALL)
    server, party = tmp_path / "server", tmp_path / "party"
    shutil.copytree(tmp_path / "r", server, ignore=shutil.ignore_patterns("agents"))
    (party / "agents").mkdir(parents=True)
    arrange(tmp_path / "r" / "agents", RunDirectory(tmp_path / "r").identity, shared=False)
    shutil.copy(tmp_path / "r" / "agents" / "agent-0001.jsonl", party / "agents")
    for side in (server, party):
        done = CliRunner().invoke(app, ["track", str(side), "--to", "tensorboard"])
        assert done.exit_code == 0, done.output
    assert [p.name for p in (server / "tensorboard").iterdir()] == ["server"]
    logged = events(server / "tensorboard" / "server")
    assert {name for name, _ in logged} == {"replies", "lost", "seconds", "epsilon"}
    assert logged["epsilon", 2] == pytest.approx(found.epsilon, rel=1e-5)
    assert [p.name for p in (party / "tensorboard").iterdir()] == ["agent-0001"]
    logged = events(party / "tensorboard" / "agent-0001")
    assert {name for name, _ in logged} == {"score", "best", "seconds", "failed"}
    assert logged["best", 3] == pytest.approx(found.agents_best[1]["best"], rel=1e-6)


def test_steps_are_logged_and_what_was_stopped_is_never_the_best(tmp_path: Path) -> None:
    from flwr_fbo.runs.trackers import _evaluation_numbers

    from .test_pruning import trained

    seeing = Memory(tmp_path / "r" / "agents")
    found = simulate(
        trained, agents=1, rounds=14, initial_points=4, strategy="random", seed=1,
        run_dir=tmp_path / "r", callbacks=[seeing],
    )  # fmt: skip
    assert seeing.rows[14]["steps"] == found.findings["steps"]
    assert seeing.rows[14]["pruned"] == found.findings["pruned"] > 0
    rows = _evaluation_numbers(found.read_evaluations()[0])
    assert sum(numbers["steps"] for _, numbers in rows) == found.findings["steps"]
    assert sum(numbers["pruned"] for _, numbers in rows) == found.findings["pruned"]
    whole = [numbers["score"] for _, numbers in rows if not numbers["pruned"]]
    assert rows[-1][1]["best"] == max(whole)


def test_trackers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["track", str(tmp_path), "--to", "tensorboard"])
    assert done.exit_code == 2
    assert "must hold rounds.csv or journals" in done.output
    with pytest.raises(SettingsError, match="a tracker must be tensorboard, wandb, mlflow"):
        tracker_named("pen", tmp_path)


def test_trackers_by_name_keep_their_files_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        tracker = tracker_named(name, tmp_path / "spring", part="agent-0001")
        made[name] = tracker._arguments  # type: ignore[attr-defined]
    assert made["wandb"] == {
        "dir": str(tmp_path / "spring"), "name": "spring-agent-0001", "group": "spring"
    }  # fmt: skip
    assert made["mlflow"] == {"run_name": "spring-agent-0001"}
