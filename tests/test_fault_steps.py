"""The steps at which the fault matrix kills a run are functions that exist."""

from __future__ import annotations

import importlib
from functools import reduce
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("faults"), importlib.import_module("worker_faults")


def test_every_step_names_a_function(modules: tuple[ModuleType, ModuleType]) -> None:
    faults, worker_faults = modules
    steps = [*faults.KILLS, *faults.DISKS, *worker_faults.STEPS]
    assert len(steps) > 30
    for step in steps:
        module, _, path = step.where.partition(":")
        found = reduce(getattr, path.split("."), importlib.import_module(module))
        assert callable(found), step.name
