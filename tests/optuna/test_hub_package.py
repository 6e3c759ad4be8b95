"""The folder for OptunaHub: its parts, its front matter, and its example."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import optuna
import pytest

from flwr_fbo.optuna import FederatedSampler

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "optunahub" / "samplers" / "federated"


def imported(file: Path, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_front_matter_has_what_the_hub_asks_for() -> None:
    _, matter, text = (PACKAGE / "README.md").read_text().split("---\n", 2)
    keys = dict(line.split(": ", 1) for line in matter.splitlines())
    assert set(keys) == {"author", "title", "description", "tags", "optuna_versions", "license"}
    assert keys["license"] == "Apache-2.0"
    assert optuna.__version__ in keys["optuna_versions"]
    assert "## APIs" in text
    assert (PACKAGE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_package_offers_the_sampler_and_its_example_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = imported(PACKAGE / "__init__.py", "federated")
    assert package.FederatedSampler is FederatedSampler

    # The hub's loader, which downloads the folder: here it is loaded from this repository.
    def load_module(name: str) -> Any:
        assert ROOT / "examples" / "optunahub" / name == PACKAGE
        return package

    hub = types.ModuleType("optunahub")
    hub.load_module = load_module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "optunahub", hub)
    code = (PACKAGE / "example.py").read_text()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    exec(compile(code, "example.py", "exec"), {"__name__": "__main__"})
    value, params = capsys.readouterr().out.split(" ", 1)
    assert float(value) > 0.8
    assert "kind" in params
