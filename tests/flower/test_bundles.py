"""App bundles hold the app and nothing else, as `flwr build` makes them."""

from __future__ import annotations

import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.flower.processes import BIN, REPOSITORY

DEPLOYED = REPOSITORY / "examples" / "deployment" / "app"


def bundle(app: Path, folder: Path) -> Path:
    """The bundle that `flwr build` makes of an app."""
    subprocess.run(
        [str(BIN / "flwr"), "build", "--app", str(app)],
        check=True, capture_output=True, cwd=folder, timeout=180,
        env={"FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0", "PATH": str(BIN)},
    )  # fmt: skip
    (path,) = folder.glob("*.fab")
    return path


def contents(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def app_config(app: Path) -> dict[str, Any]:
    config: dict[str, Any] = tomllib.loads((app / "pyproject.toml").read_text())
    return dict(config["tool"]["flwr"]["app"])


def test_the_app_of_a_deployment_brings_no_code_of_the_package(tmp_path: Path) -> None:
    path = bundle(DEPLOYED, tmp_path)
    assert contents(path) == {"pyproject.toml", "app.py", ".info/CONTENT"}
    assert path.stat().st_size < 10_000  # measured: 1.5 kB


def test_the_packages_own_app_is_the_package_and_nothing_else(tmp_path: Path) -> None:
    found = contents(bundle(REPOSITORY, tmp_path))
    package = {p.relative_to(REPOSITORY).as_posix() for p in REPOSITORY.glob("flwr_fbo/**/*.py")}
    assert found == package | {"pyproject.toml", "LICENSE", ".info/CONTENT"}


@pytest.mark.parametrize("app", [DEPLOYED, REPOSITORY], ids=["deployment", "package"])
def test_apps_have_the_keys_of_a_run(app: Path) -> None:
    from flwr_fbo.runs.spec import SETTINGS, RunSettings

    assert set(app_config(app)["config"]) == {*RunSettings.keys(), SETTINGS}
