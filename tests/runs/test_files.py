"""Run directories, results and run-configs."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.registry import find_method, method_names
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.checkpoint import Checkpoint
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.history import best_of_agent, by_round
from flwr_fbo.runs.spec import RunSettings, RunSpec, expand_settings
from flwr_fbo.tasks import BUILT_IN, find


def evaluation(round: int, score: float | None, regret: float | None = None) -> Evaluation:
    return Evaluation(round, 0, {"x": 1}, [0.5], score, regret=regret)


class TestOutcome:
    def test_follows_the_best_so_far_by_hand(self) -> None:
        histories = [
            [evaluation(0, 1.0, 0.5), evaluation(0, 3.0, 0.2), evaluation(2, 2.0, 0.1)],
            [evaluation(0, 2.0, 0.4), evaluation(1, None, 0.0), evaluation(2, 5.0, 0.3)],
        ]
        found = by_round(histories, 2)
        assert found.evaluations == [1.5, 2, 3]
        assert found.best == [2.5, 2.5, 4.0]
        # A failed evaluation has no regret, however good its point was.
        assert found.regret == pytest.approx([0.3, 0.3, 0.2])
        assert found.best_score == 4.0
        assert best_of_agent(1, histories[1]) == {
            "agent": 1, "evaluations": 3, "best": 5.0, "params": {"x": 1}
        }  # fmt: skip

    def test_says_null_where_nobody_has_a_score(self) -> None:
        histories = [[evaluation(0, None), evaluation(1, 2.0)], []]
        found = by_round(histories, 1)
        assert found.best == [None, 2.0]
        assert found.regret is None
        assert best_of_agent(1, histories[1])["best"] is None
        assert by_round([], 3).best_score is None


class TestCheckpoint:
    def test_keeps_arrays_and_values(self, tmp_path: Path) -> None:
        store = Checkpoint(tmp_path / "c.npz")
        assert store.load() is None
        state = {"server": {"released": np.eye(3), "none": None, "list": [1, {"a": np.ones(2)}]}}
        store.save(state)
        again = store.load()
        assert again is not None
        np.testing.assert_array_equal(again["server"]["released"], np.eye(3))
        np.testing.assert_array_equal(again["server"]["list"][1]["a"], np.ones(2))
        assert again["server"]["none"] is None
        assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]

    def test_refuses_what_json_cannot_hold(self, tmp_path: Path) -> None:
        store = Checkpoint(tmp_path / "c.npz")
        store.save({"a": 1})
        with pytest.raises(ValueError, match="JSON"):
            store.save({"a": math.nan})
        assert store.load() == {"a": 1}

    @pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"garbage"])
    def test_refuses_a_damaged_file(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "c.npz").write_bytes(data)
        with pytest.raises(RunDirectoryError, match="is not a checkpoint"):
            Checkpoint(tmp_path / "c.npz").load()


def test_a_run_directory_says_what_computed_it(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run").create({"rounds": 3})
    assert directory.read_json("config.json") == {"rounds": 3}
    assert {"python", "flwr", "numpy"} <= set(directory.read_json("environment.json"))
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        directory.create({})
    with pytest.raises(RunDirectoryError, match=r"result\.json"):
        directory.read_json("result.json")


class TestSpec:
    @pytest.mark.parametrize("strategy", list(method_names()))
    @pytest.mark.parametrize("preset", ["default", "paper"])
    @pytest.mark.parametrize("task", ["synthetic", "digits", "landmine"])
    def test_what_is_written_is_what_is_read(self, strategy: str, preset: str, task: str) -> None:
        given = {"task": task, "strategy": strategy, "preset": preset, "agents": 3}
        written = RunSpec.from_mapping(given).to_mapping()
        assert RunSpec.from_mapping(written).to_mapping() == written

    def test_what_is_given_wins_over_the_preset(self) -> None:
        spec = RunSpec.from_mapping({"task": "landmine", "preset": "paper", "regions": 2})
        assert spec.settings.to_mapping()["regions"] == 2
        assert spec.settings.to_mapping()["clip"] == 22.0
        assert spec.task.settings.to_mapping()["scale"] == "linear"

    def test_empty_values_of_a_run_config_are_unset(self) -> None:
        spec = RunSpec.from_mapping({"task": "digits", "epsilon": "", "regions": ""})
        assert spec.settings.to_mapping()["regions"] == 1

    def test_unknown_keys_are_refused_with_the_nearest(self) -> None:
        with pytest.raises(SettingsError, match="did you mean `epsilon`"):
            RunSpec.from_mapping({"task": "digits", "epsilonn": 3})
        with pytest.raises(SettingsError, match="unknown setting `clip`"):
            RunSpec.from_mapping({"task": "digits", "strategy": "random", "clip": 3.0})

    def test_a_setting_of_other_strategies_is_refused_with_their_names(self) -> None:
        with pytest.raises(SettingsError) as refused:
            RunSpec.from_mapping({"task": "digits", "budget": 30})
        text = str(refused.value)
        assert text.startswith("unknown setting `budget` of dp-fts-de; it is a setting of fed-pne")
        assert "dp-fts-de," not in text

    def test_no_key_means_two_things(self) -> None:
        shared = set(RunSettings.keys())
        for name in method_names():
            assert not shared & set(find_method(name).settings_class.keys())
            for task in BUILT_IN:
                of_task = set(find(task).settings_class.keys())
                assert not of_task & shared
                assert not of_task & set(find_method(name).settings_class.keys())


def test_the_apps_config_has_the_keys_of_a_run_and_one_for_all_others() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    config = project["tool"]["flwr"]["app"]["config"]
    assert "settings" in config
    assert set(config) <= {*RunSettings.keys(), "settings"}


class TestSettingsKey:
    """One key of a run-config holds the settings of method and task."""

    def test_holds_pairs(self) -> None:
        spec = RunSpec.from_mapping(
            {"task": "digits", "settings": "epsilon=5 regions=4 releases=0,1,2 class-mix=2"}
        )
        assert spec.settings.to_mapping()["epsilon"] == 5.0
        assert spec.settings.to_mapping()["releases"] == "0,1,2"
        assert spec.task.settings.to_mapping()["class-mix"] == 2.0
        assert "settings" not in spec.to_mapping()

    def test_values_with_blanks_are_quoted(self) -> None:
        assert expand_settings({"settings": "data-dir='/a b' rounds=3"}) == {
            "data-dir": "/a b", "rounds": "3",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("given", "fault"),
        [
            ({"settings": "epsilon"}, "must hold key=value pairs"),
            ({"settings": "=3"}, "must hold key=value pairs"),
            ({"settings": "epsilon="}, "must hold key=value pairs"),
            ({"settings": "regions=2 regions=3"}, "`regions` is given twice"),
            ({"settings": "rounds=2", "rounds": 3}, "`rounds` is given twice"),
            ({"settings": 3}, "`settings` must be text"),
            ({"epsilon": 10**400}, "`epsilon` must be at most 1e308 in size"),
            ({"settings": "data-dir='/a b"}, "`settings` must close every quote"),
            ({"settings": "epsilonn=3"}, "did you mean `epsilon`"),
            ({"settings": "regions=many"}, "`regions` must be int"),
        ],
    )
    def test_mistakes_are_named(self, given: dict[str, Any], fault: str) -> None:
        with pytest.raises(SettingsError, match=fault):
            RunSpec.from_mapping({"task": "digits", **given})
