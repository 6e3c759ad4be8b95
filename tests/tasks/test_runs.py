"""Every task end to end, with and without communication, on generated data."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from flwr_fbo.methods.registry import find_method
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.simulate import simulate_run
from flwr_fbo.tasks import BUILT_IN, find

WITHOUT_TORCH = importlib.util.find_spec("torch") is None
NAMES = [
    "digits", "landmine", "activity", "glasses", "mnist", "vaccine", "light", "stocks"
]  # fmt: skip
EMNIST = pytest.param(
    "emnist", marks=pytest.mark.skipif(WITHOUT_TORCH, reason="torch is not installed")
)


@pytest.mark.parametrize("strategy", ["dp-fts-de", "random"])
@pytest.mark.parametrize("name", [*NAMES, EMNIST])
def test_a_small_run_is_complete(name: str, strategy: str, tmp_path: Path) -> None:
    given: dict[str, object] = {"task": name, "strategy": strategy, "agents": 3, "rounds": 2}
    given["initial-points"] = 3
    if name != "digits":
        given["generated"] = True
    if name in ("mnist", "emnist"):
        given["epochs"] = 1
    result, _ = simulate_run(given, "inline", tmp_path / "run")
    assert result["complete"]
    assert result["failures"] == 0
    assert result["private"] is False
    assert ("generated data" in result["task"]) == (name != "digits")
    best = result["history"]["best"]
    assert best == sorted(best)
    assert find(name).score_range is None or 0.0 <= best[-1] <= 1.0


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_no_setting_means_something_to_both_task_and_strategy(name: str) -> None:
    for strategy in ("dp-fts-de", "fts", "local-ts", "random"):
        keys = find_method(strategy).settings_class.keys()
        assert not set(keys) & set(find(name).settings_class.keys())


@pytest.mark.parametrize("name", [*NAMES, "emnist"])
def test_the_papers_preset_applies(name: str) -> None:
    spec = RunSpec.from_mapping({"task": name, "strategy": "dp-fts-de", "preset": "paper"})
    chosen = spec.task.settings.to_mapping()
    assert all(chosen[key] == value for key, value in find(name).paper_task_settings.items())
    strategy = spec.settings.to_mapping()
    assert all(strategy[key] == value for key, value in find(name).paper_settings.items())
