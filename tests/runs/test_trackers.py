"""Trackers: what they log, from where, and into which files."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo import Float, simulate, task
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.trackers import MLflow, TensorBoard, Tracker, WandB

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


@pytest.mark.skipif(find_spec("tensorboardX") is None, reason="tensorboardX is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_the_files(tmp_path: Path) -> None:
    from tensorboardX import proto
    from tensorboardX.record_writer import masked_crc32c  # noqa: F401 - the format's own check

    tracker = TensorBoard(tmp_path / "logs", tmp_path / "r" / "agents")
    found = simulate(hill, run_dir=tmp_path / "r", callbacks=[tracker], **SMALL)
    (path,) = (tmp_path / "logs").iterdir()
    data, logged, at = path.read_bytes(), {}, 0
    while at < len(data):  # a record: length, its checksum, the event, its checksum
        length = int.from_bytes(data[at : at + 8], "little")
        event = proto.event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
        for value in event.summary.value:
            logged[value.tag, event.step] = value.simple_value
        at += 16 + length
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
