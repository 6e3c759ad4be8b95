"""The diffs of docs/how-to/existing-apps.md, applied to the unmodified app and run."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.app.user_config import UserConfig

from flwr_fbo import Float, maximise
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from tests.docs.test_docs import ROOT

APP = ROOT / "examples" / "existing_app" / "fedavg"
PAGE = (ROOT / "docs" / "how-to" / "existing-apps.md").read_text()


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the app, importable while the test lasts."""
    shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path / "home"))
    yield tmp_path / "app"
    for name in [name for name in sys.modules if name.split(".")[0] == "digits_app"]:
        del sys.modules[name]


def apply(diff: str, app: Path) -> None:
    (found,) = re.findall(rf"<!-- {diff} -->\n```diff\n(.*?)```", PAGE, flags=re.DOTALL)
    (app / diff).write_text(found)
    subprocess.run(["git", "apply", diff], cwd=app, check=True)


def run(app: Path, clients: int, **config: Any) -> None:
    """Run the components that pyproject.toml names, with its config."""
    settings = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    component = {}
    for kind, where in settings["components"].items():
        module, _, attribute = where.partition(":")
        component[kind] = getattr(importlib.import_module(module), attribute)
    config = {**settings["config"], **config}
    grid = InProcessGrid(component["clientapp"], clients, config)
    context = Context(1, 1, UserConfig({}), RecordDict(), UserConfig(config))
    component["serverapp"](grid, context)


def accuracy(printed: str) -> float:
    return float(re.findall(r"accuracy ([\d.]+)", printed)[-1])


def test_local_hyperparameters_by_dp_fts_de_then_fedavg(
    app: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply("local.diff", app)
    run(app, 3)
    printed = capsys.readouterr().out
    assert "recommended {'learning-rate'" in printed
    assert "privacy epsilon 5.000" in printed
    assert 0 < accuracy(printed) < 1  # of three parties at this epsilon, mostly of the noise
    (directory,) = (tmp_path / "home" / "runs").iterdir()
    histories = read_evaluations(directory / "agents", 3)
    assert [len(h) for h in histories] == [10, 10, 10]  # two initial points, eight rounds
    scores = [e.score for h in histories for e in h]
    assert all(score is not None for score in scores)
    assert max(score for score in scores if score is not None) > 0.5
    assert (directory / "ledger.jsonl").read_text().count('"event"') >= 1


def test_with_little_noise_the_recommended_setting_serves_fedavg(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply("local.diff", app)
    server = app / "digits_app" / "server_app.py"
    server.write_text(server.read_text().replace("epsilon=5.0", "epsilon=100.0"))
    run(app, 3)
    assert accuracy(capsys.readouterr().out) > 0.8  # ten runs had .913 or more


def test_a_factory_takes_settings_from_the_apps_run_config(app: Path, tmp_path: Path) -> None:
    from flwr_fbo import DPFTSDE, server_app

    apply("local.diff", app)
    task_module = importlib.import_module("digits_app.task")
    config: dict[str, Any] = {"fbo.rounds": 2, "fbo.run-name": "it", "num-server-rounds": 5}
    config["fbo.settings"] = "initial-points=3 releases=all"
    server = server_app(task_module.local_model, DPFTSDE(epsilon=5.0))
    client = importlib.import_module("digits_app.client_app").app
    grid = InProcessGrid(client, 3, config)
    server(grid, Context(1, 1, UserConfig({}), RecordDict(), UserConfig(config)))
    directory = tmp_path / "home" / "runs" / "it"
    assert [len(h) for h in read_evaluations(directory / "agents", 3)] == [5, 5, 5]
    assert (directory / "ledger.jsonl").read_text().count('"event"') == 2


def test_one_setting_for_fedavg_by_fed_pne(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(app, 5)
    before = accuracy(capsys.readouterr().out)
    for name in [name for name in sys.modules if name.split(".")[0] == "digits_app"]:
        del sys.modules[name]
    apply("global.diff", app)
    run(app, 5)
    printed = capsys.readouterr().out
    assert "chosen {'learning-rate'" in printed
    # The figures that the page states. 540 test images: a binomial's standard error is .011,
    # which other versions of the libraries may well use up.
    stated = [float(v) for v in re.findall(r"rises from\s([\d.]+) [^.]* to\s([\d.]+)\.", PAGE)[0]]
    assert [before, accuracy(printed)] == pytest.approx(stated, abs=0.022)
    assert stated[1] > stated[0] + 0.022


class TestMaximise:
    def test_finds_a_hill(self) -> None:
        found = maximise(lambda p: 1 - (p["x"] - 0.7) ** 2, {"x": Float(0.0, 1.0)}, budget=60)
        assert found.params["x"] == pytest.approx(0.7, abs=0.1)
        assert found.mean == pytest.approx(1.0, abs=0.02)
        assert len(found.evaluations) <= 60

    def test_goes_on_where_it_was_interrupted(self, tmp_path: Path) -> None:
        calls: list[float] = []

        def fragile(params: Any) -> float:
            if len(calls) == 20:
                calls.append(np.nan)
                raise KeyboardInterrupt
            calls.append(float(params["x"]))
            return 0.5

        space = {"x": Float(0.0, 1.0)}
        with pytest.raises(KeyboardInterrupt):
            maximise(fragile, space, 40, journal=tmp_path / "j.jsonl")
        found = maximise(fragile, space, 40, journal=tmp_path / "j.jsonl")
        assert len(calls) - 1 == len(found.evaluations)

    def test_a_budget_that_is_too_small_is_refused(self) -> None:
        with pytest.raises(SettingsError, match="`budget` must be enough"):
            maximise(lambda p: 0.5, {"x": Float(0.0, 1.0)}, budget=3)
