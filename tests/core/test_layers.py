"""The packages below the wire work without Flower, and importing them loads nothing heavy."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("ray", "torch", "matplotlib", "pandas")
WITHOUT_FLOWER = (
    "core",
    "models",
    "search",
    "privacy",
    "tasks",
    "methods",
    "runs",
    "report",
    "optuna",
)

#: Any import of these raises (a None in sys.modules would trip scipy, which looks torch up there).
BLOCKED = f"""
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {("flwr", *HEAVY)!r}:
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
"""


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_below(*packages: str) -> list[str]:
    found = []
    for name in packages:
        package = importlib.import_module(name)
        found.append(name)
        found += [m.name for m in pkgutil.walk_packages(package.__path__, name + ".")]
    return found


def test_packages_below_the_wire_and_reports_import_with_flower_blocked():
    names = modules_below(*(f"flwr_fbo.{package}" for package in WITHOUT_FLOWER))
    assert len(names) > 30
    code = BLOCKED + f"for name in {names!r}: importlib.import_module(name)\nprint('all imported')"
    assert in_a_fresh_process(code) == "all imported\n"


def test_the_block_blocks():
    code = BLOCKED + "try:\n    import flwr.app\nexcept ImportError as error:\n    print(error)"
    assert in_a_fresh_process(code) == "flwr is blocked\n"


@pytest.mark.parametrize(
    "name", ["flwr_fbo", "flwr_fbo.methods.dp_fts_de.server", "flwr_fbo.tasks"]
)
def test_importing_loads_nothing_heavy(name):
    code = f"import sys, {name}\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    assert in_a_fresh_process(code) == "[]\n"


#: A line that breaks each contract of pyproject.toml, and the file it is planted in.
FAULTS = {
    "Imports go down the layers": [
        ("privacy/noise.py", "from flwr_fbo.methods.owner import Owner"),
        ("core/space.py", "from flwr_fbo.privacy import checks"),
        ("runs/history.py", "from flwr_fbo.strategies import roster"),
        ("clients/doors.py", "from flwr_fbo.strategies import roster"),
        ("models/gp.py", "from flwr_fbo.search import newton"),
    ],
    "Only Flower's two sides, the wire and the simulation know Flower": [
        ("methods/method.py", "from flwr.app import Context"),
        ("report/page.py", "import ray"),
    ],
    "Privacy is mathematics of its own: no model, no search": [
        ("privacy/pld.py", "from flwr_fbo.models import kernels"),
    ],
    "Methods stand side by side": [
        ("methods/fts/server.py", "from flwr_fbo.methods.dp_fts_de import robust"),
    ],
}


def lint(folder: Path) -> str:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        env=environment,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(ROOT / "flwr_fbo", folder / "flwr_fbo")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_the_import_contracts_are_kept(copied):
    assert "4 kept, 0 broken" in lint(copied)


def test_every_contract_has_a_planted_fault():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in contracts} == set(FAULTS)


@pytest.mark.parametrize(
    ("contract", "file", "line"), [(c, f, line) for c, rows in FAULTS.items() for f, line in rows]
)
def test_a_planted_fault_breaks_its_contract(copied, contract, file, line):
    path = copied / "flwr_fbo" / file
    before = path.read_text()
    try:
        path.write_text(before + f"\n\n{line}\n")
        assert f"{contract} BROKEN" in lint(copied)
    finally:
        path.write_text(before)


def test_an_agent_loads_no_server():
    code = (
        "import sys, flwr_fbo.clients.client_app\n"
        "print([m for m in sys.modules if m.startswith(('flwr_fbo.strategies', 'ray'))])"
    )
    assert in_a_fresh_process(code) == "[]\n"


def test_a_worker_of_background_evaluations_loads_no_flower():
    code = BLOCKED + "import flwr_fbo.clients.worker, flwr_fbo.clients.background\nprint('ok')"
    assert in_a_fresh_process(code) == "ok\n"
