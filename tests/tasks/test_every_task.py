"""What every built-in task on data must do, on generated data (digits: on its own)."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.settings import SettingsError, describe
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks import BUILT_IN, FunctionTask, Partition, load, task
from flwr_fbo.tasks.data_task import DataTask
from flwr_fbo.tasks.listing import catalogue
from flwr_fbo.tasks.papers.data import DataError

NAMES = [
    "digits", "landmine", "activity", "glasses", "emnist", "mnist", "vaccine", "light", "stocks"
]  # fmt: skip
NOISY = {"light", "stocks"}
WITHOUT_TORCH = importlib.util.find_spec("torch") is None
each_task = pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.skipif(WITHOUT_TORCH, reason="torch is not installed"))
        if n == "emnist"
        else n
        for n in NAMES
    ],
)


def fresh(name: str) -> DataTask:
    given: dict[str, object] = {} if name == "digits" else {"generated": True}
    if name in ("mnist", "emnist"):
        given["epochs"] = 2
    task = load(name, given)
    assert isinstance(task, DataTask)
    return task


def prepared(name: str, index: int, seed: int = 0) -> DataTask:
    task = copy.copy(fresh(name))
    task.prepare(Partition(index, task.default_agents, seed))
    return task


def points(task: DataTask, count: int = 8) -> list[dict[str, object]]:
    units = task.space.sample(count, np.random.default_rng(7))
    return [task.space.from_unit(u) for u in units]


def scores(task: DataTask) -> list[float]:
    rng = np.random.default_rng(0)
    return [task.evaluate(p, rng=rng) for p in points(task)]  # type: ignore[arg-type]


def test_all_are_built_in() -> None:
    assert set(NAMES) <= set(BUILT_IN)


@each_task
def test_scores_are_within_their_range_and_vary(name: str) -> None:
    found = []
    for index in range(3):
        task = prepared(name, index)
        found.append(scores(task))
        assert task.score_range is not None
        low, high = task.score_range
        assert all(low <= s <= high for s in found[-1])
    assert len({s for row in found for s in row}) > 3


@each_task
def test_the_same_agent_scores_alike_everywhere(name: str) -> None:
    first, again = prepared(name, 1), pickle.loads(pickle.dumps(prepared(name, 1)))
    assert scores(first) == scores(again)
    if name not in NOISY:
        other_rng = np.random.default_rng(99)
        assert first.evaluate(points(first)[0], rng=other_rng) == scores(first)[0]  # type: ignore[arg-type]


@each_task
def test_another_agent_and_another_seed_have_other_data(name: str) -> None:
    if name in NOISY:  # every user faces the same arms
        assert scores(prepared(name, 0)) == scores(prepared(name, 1))
    else:
        assert scores(prepared(name, 0)) != scores(prepared(name, 1))
    assert scores(prepared(name, 0)) != scores(prepared(name, 0, seed=5))


@each_task
def test_an_unprepared_task_is_small_and_says_that_its_data_are_generated(name: str) -> None:
    task = fresh(name)
    assert len(pickle.dumps(task)) < 2000
    assert task.name == (name if name == "digits" else f"{name} (generated data)")


@each_task
def test_copies_share_nothing(name: str) -> None:
    template = fresh(name)
    one, two = copy.copy(template), copy.copy(template)
    for index, each in enumerate((one, two)):
        each.prepare(Partition(index, each.default_agents))
    assert scores(one) == scores(prepared(name, 0))
    assert scores(two) == scores(prepared(name, 1))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "digits"])
def test_without_data_the_error_says_what_to_do(name: str, empty: Path) -> None:
    task = load(name, {"data-dir": str(empty)})
    with pytest.raises(DataError, match=r"--data-dir or FLWR_FBO_DATA.*generated=true"):
        task.prepare(Partition(0, 5))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "digits"])
def test_a_nodes_own_directory_comes_first(name: str, empty: Path) -> None:
    (empty / "node").mkdir()
    partition = Partition(0, 5, config={"data-dir": str(empty / "node")})
    with pytest.raises(DataError, match=str(empty / "node")):
        load(name, {"data-dir": str(empty)}).prepare(partition)


@pytest.mark.parametrize("name", NAMES)
def test_paper_settings_are_settings(name: str) -> None:
    task = fresh(name)
    load(name, dict(task.paper_task_settings))
    assert all(row.help for row in describe(task.settings_class))
    with pytest.raises(SettingsError, match="unknown setting `sclae`"):
        load(name, {"sclae": "log"})


def test_more_agents_than_parties_are_refused() -> None:
    for name in ("activity", "glasses", "vaccine"):
        task = fresh(name)
        assert task.parties is not None
        with pytest.raises(SettingsError, match=f"at most {task.parties}, but got 231"):
            task.prepare(Partition(230, 231))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_task_can_be_divided_among_its_default_number_of_agents(name: str) -> None:
    task = load(name)
    task.check_agents(task.default_agents or task.parties or 1000, seed=3)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_number_of_agents_is_refused_before_any_of_them_starts(name: str) -> None:
    task = load(name)
    if task.parties is None:
        if name != "digits":
            task.check_agents(100_000)
        return
    task.check_agents(task.parties)
    more = task.parties + 1
    with pytest.raises(SettingsError, match=f"`agents` must be at most {task.parties}, but got"):
        task.check_agents(more)
    load(name, {"repeat-parties": True}).check_agents(more)


def test_a_task_of_ones_own_states_its_parties() -> None:
    hill = FunctionTask(lambda params: 0.0, Space({"x": Float(0.0, 1.0)}))
    hill.check_agents(1000)
    hill.parties = 3
    hill.check_agents(3)
    with pytest.raises(SettingsError, match=r"belong to 3 parties, .* at most 3, but got 4"):
        hill.check_agents(4)


def test_the_catalogue_is_json_and_says_what_is_here(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {entry["name"]: entry for entry in json.loads(json.dumps(catalogue()))}
    assert list(listed) == list(BUILT_IN)
    assert listed["digits"]["present"] is True
    assert listed["landmine"]["present"] is False
    assert listed["activity"]["agents"] == 30
    assert "CC BY 4.0" in listed["activity"]["licence"]
    assert listed["glasses"]["generated"] is True
    for entry in listed.values():
        assert Space.from_dict(entry["space"]).dimension >= 1
    (empty / "LandmineData.mat").touch()
    here = {entry["name"]: entry["present"] for entry in catalogue(str(empty))}
    assert here["landmine"] is True
    assert here["activity"] is False


def test_tasks_import_nothing_heavy() -> None:
    code = (
        "import sys, flwr_fbo.tasks.listing as t; t.catalogue();"
        "print([m for m in ('flwr', 'ray', 'torch', 'matplotlib', 'pandas', 'h5py') "
        "if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert run.stdout.strip() == "[]"


@pytest.mark.skipif(not WITHOUT_TORCH, reason="torch is installed")
def test_without_torch_the_error_names_the_extra() -> None:
    with pytest.raises(ImportError, match=r"pip install 'flwr-fbo\[torch\]'"):
        fresh("emnist").prepare(Partition(0, 50))


def test_a_task_can_be_called_as_the_function_that_it_was() -> None:
    @task(space={"x": Float(0.0, 1.0)}, prepare=lambda partition: 3.0)
    def scaled(params: Any, data: float = 2.0, sign: int = 1) -> float:
        return float(sign * data * params["x"])

    assert scaled({"x": 0.5}) == 1.0
    assert scaled({"x": 0.5}, 4.0, sign=-1) == -2.0
    with pytest.raises(TypeError, match="params"):
        scaled()
