"""``flwr-fbo new``: the app that it writes runs as it is."""

from __future__ import annotations

import importlib
import io
import json
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import Partition, simulate
from flwr_fbo.cli.new_app import new_app
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.flower_versions import OLDEST
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.spec import RunSettings, RunSpec
from tests.command import flwr_fbo
from tests.flower.processes import REPOSITORY, flower, free_ports

HUB = REPOSITORY / "examples" / "hub"


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


@pytest.mark.parametrize(
    "name", ["", "1st", "a b", "class", "../up", "naïve", "a_b", "a-", "a" * 33]
)
def test_other_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"`NAME` must consist of"):
        new_app(name, tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    new_app("it", tmp_path)
    done = flwr_fbo("new", "it", cwd=tmp_path)
    assert done.returncode == 2
    assert "exists" in done.stderr


def built(app: Path) -> tuple[zipfile.ZipFile, Any]:
    """The bundle that Flower makes of an app, and what its Hub would store of it."""
    build = pytest.importorskip("flwr.cli.build")
    if not hasattr(build, "build_fab_from_files"):
        pytest.skip("this version of Flower has no format version of apps")
    bundle, metadata = build.build_fab_from_files(build.collect_files(app))
    return zipfile.ZipFile(io.BytesIO(bundle)), metadata


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
@pytest.mark.parametrize("which", ["new", "uneven-digits"])
def test_flowers_own_build_accepts_an_app_for_the_hub(which: str, tmp_path: Path) -> None:
    app = new_app("my-tuning", tmp_path, "someone") if which == "new" else HUB / which
    bundle, metadata = built(app)
    assert metadata.fab_format_version == 1
    assert metadata.flwr_version_min == OLDEST
    module = app.name.replace("-", "_")
    files = {f"{module}/__init__.py", f"{module}/task.py", "README.md", "LICENSE"}
    assert set(bundle.namelist()) == {*files, "pyproject.toml", ".info/CONTENT"}
    config = tomllib.loads(bundle.read("pyproject.toml").decode())["tool"]["flwr"]["app"]
    assert config["publisher"] == ("someone" if which == "new" else "flwr-fbo")
    readme = bundle.read("README.md").decode()
    assert "## Nodes" in readme
    assert "--node-config" in readme


def test_the_licence_of_an_app_is_that_of_the_package(tmp_path: Path) -> None:
    text = (REPOSITORY / "LICENSE").read_text()
    assert (new_app("it", tmp_path) / "LICENSE").read_text() == text
    assert (HUB / "uneven-digits" / "LICENSE").read_text() == text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_app_of_the_hub_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("flwr_datasets", reason="flwr-datasets is not installed")
    monkeypatch.syspath_prepend(str(HUB / "uneven-digits"))
    result = simulate(
        "uneven_digits.task:tuned", agents=4, rounds=1, initial_points=1, run_dir=tmp_path / "r"
    )
    assert result.complete
    assert result.failures == 0
    # A party with a file of its own uses it.
    x, y = np.random.default_rng(0).random((30, 64)), np.repeat([0, 1, 2], 10)
    np.savez(tmp_path / "own.npz", x=x, y=y)
    module = importlib.import_module("uneven_digits.task")
    found = module.load(Partition(0, 4, config={"data": str(tmp_path / "own.npz")}))
    np.testing.assert_array_equal(found[1], y)


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
