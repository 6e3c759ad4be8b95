"""The fault matrix: its steps are functions that exist, and the page says what was measured."""

from __future__ import annotations

import importlib
import json
import re
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
    ray_faults = importlib.import_module("ray_faults")
    steps = [*faults.KILLS, *faults.DISKS, *worker_faults.STEPS, *worker_faults.POOLED]
    steps += [*ray_faults.SERVER, *ray_faults.WORKER]
    assert len(steps) > 60
    for step in steps:
        module, _, path = step.where.partition(":")
        found = reduce(getattr, path.split("."), importlib.import_module(module))
        assert callable(found), step.name


def test_the_page_says_what_was_measured(modules: tuple[ModuleType, ModuleType]) -> None:
    faults, _ = modules
    page = faults.PAGE.read_text()
    assert faults.with_table(page, faults.SAVED) == page
    saved = json.loads(faults.SAVED.read_text())
    assert set(saved) == set(faults.ORDER)
    assert {step for column in saved.values() for step in column} <= set(faults.all_steps())
    counts = [step for column in saved.values() for step in column.values()]
    (cases,) = re.findall(r"\| \[a process killed.*?\| ([\d,]+) \| none failed", page)
    assert int(cases.replace(",", "")) == sum(step[0] for step in counts)
    assert sum(step[1] for step in counts) == 0


def test_steps_that_are_measured_alone_leave_the_others(
    modules: tuple[ModuleType, ModuleType],
) -> None:
    saved = {"ray": {"a": [1, 0, 0], "b": [1, 1, 0]}, "auto": {"a": [2, 0, 0]}}
    found = {"ray": {"b": [3, 0, 1]}, "deployment": {"c": [1, 0, 0]}}
    assert modules[0].merged(saved, found) == {
        "ray": {"a": [1, 0, 0], "b": [3, 0, 1]}, "auto": {"a": [2, 0, 0]},
        "deployment": {"c": [1, 0, 0]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "processes", "too_many"),
    [
        ([], 1, False),
        ([900.0], 1, False),
        ([900.0, 900.0], 1, True),
        ([900.0, 900.0], 2, False),
        ([0.02, 0.02, 900.0], 1, False),
        ([0.03, 0.03, 900.0], 1, True),
    ],
)
def test_what_a_kill_may_lose(
    modules: tuple[ModuleType, ModuleType], seconds: list[float], processes: int, too_many: bool
) -> None:
    kit = importlib.import_module("fault_kit")
    assert kit.are_too_many(seconds, processes) == too_many
