"""``flwr-fbo new``: the app that it writes runs as it is."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from flwr_fbo.cli.new_app import new_app
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.spec import RunSettings, RunSpec
from tests.cli.test_cli import flwr_fbo
from tests.flower.processes import flower, free_ports


def test_its_config_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = new_app("my-tuning", tmp_path)
    config = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    monkeypatch.syspath_prepend(str(root))
    spec = RunSpec.from_mapping({**config, "agents": 2})
    assert spec.task.name == "tuned"
    assert spec.settings.to_mapping()["epsilon"] == 5.0
    assert config["rounds"] == RunSettings().rounds


def test_its_task_runs_from_the_command_line(tmp_path: Path) -> None:
    made = flwr_fbo("new", "tuning", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "flwr run ." in made.stdout
    done = flwr_fbo(
        "run", "tuning.task:tuned", "--agents", "2", "--rounds", "1", "--epsilon", "5",
        "--engine", "inline", "--set", "initial-points=2", "--json", cwd=tmp_path / "tuning",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["history"]["evaluations"] == [2, 3]


@pytest.mark.parametrize("name", ["", "1st", "a b", "class", "../up", "naïve"])
def test_other_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"`NAME` must consist of"):
        new_app(name, tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    new_app("it", tmp_path)
    done = flwr_fbo("new", "it", cwd=tmp_path)
    assert done.returncode == 2
    assert "exists" in done.stderr


@pytest.mark.slow
def test_flwr_run_works_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without network, with Flower's own installation of dependencies left on."""
    monkeypatch.setenv("UV_OFFLINE", "1")
    root = new_app("tuning", tmp_path)
    (port,) = free_ports(1)
    with flower(tmp_path) as running:
        running.start(
            "flower-superlink", "--insecure", "--simulation", "--port", str(port), port=port
        )
        running.connect("sim", port)
        output = running.run(
            "sim", "--run-config", "rounds=2 settings='epsilon=5 initial-points=2'", app=root
        )
        assert running.status("sim").startswith("finished:completed"), output
        assert "round 2/2  replies 2/2" in output
        (directory,) = running.run_directories()
        assert [len(h) for h in read_evaluations(directory / "agents", 2)] == [4, 4]
