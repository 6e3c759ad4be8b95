"""The packages below the wire work without Flower, and importing them loads nothing heavy."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

HEAVY = ("ray", "torch", "matplotlib", "pandas")
WITHOUT_FLOWER = ("core", "models", "search", "privacy", "tasks", "methods", "runs", "report")

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
