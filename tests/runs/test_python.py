"""flwr_fbo from Python: light to import, one path for settings, results that say everything."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.app.user_config import UserConfig

import flwr_fbo
from flwr_fbo import DPFTSDE, FTS, FedPNE, Float, Result, Space, Task, resume, simulate, task
from flwr_fbo.core.settings import Settings, SettingsError, setting
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.report import write_report
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.engine import SWITCH_INTERVAL
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.tasks import name_of
from flwr_fbo.tasks.papers.synthetic import SyntheticSettings, SyntheticTask

SMALL: dict[str, Any] = {"agents": 3, "rounds": 2, "initial_points": 2, "seed": 4}


@task(space={"x": Float(0.0, 1.0)}, metric="height", score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    return 1.0 - (float(params["x"]) - 0.3) ** 2


@dataclass(frozen=True)
class SlopeSettings(Settings):
    steepness: float = setting(1.0, "how steep")


#: Notes which heavy packages are imported by modules of flwr_fbo, in the set `found`.
WATCH_IMPORTS = """
import builtins, importlib, sys
heavy, found = {"ray", "torch", "matplotlib", "pandas"}, set()
plain_import, plain_module = builtins.__import__, importlib.import_module
def note(name, module):
    if name.partition(".")[0] in heavy and str(module).partition(".")[0] == "flwr_fbo":
        found.add(name.partition(".")[0])
def watched(name, globals=None, *rest, **more):
    note(name, (globals or {}).get("__name__"))
    return plain_import(name, globals, *rest, **more)
def module(name, *rest):
    note(name, sys._getframe(1).f_globals.get("__name__"))
    return plain_module(name, *rest)
builtins.__import__, importlib.import_module = watched, module
"""


class Slope(Task):
    settings_class = SlopeSettings
    settings: SlopeSettings

    @property
    def space(self) -> Space:
        return Space({"x": Float(0.0, 1.0)})

    def evaluate(self, params: Any, *, rng: np.random.Generator) -> float:
        return self.settings.steepness * float(params["x"])


def test_threads_of_a_simulation_wait_less_for_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def simulated(*args: Any, **settings: Any) -> None:
        seen.append(sys.getswitchinterval())
        raise RuntimeError("over")

    monkeypatch.setattr("flwr.simulation.run_simulation", simulated)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = sys.getswitchinterval()
    with pytest.raises(RuntimeError, match="over"):
        simulate(hill, agents=2, rounds=1, engine="ray", run_dir=tmp_path / "run")
    assert seen == pytest.approx([SWITCH_INTERVAL])
    assert sys.getswitchinterval() == before > SWITCH_INTERVAL


class TestImport:
    def test_loads_nothing_heavy(self) -> None:
        heavy = ("flwr", "ray", "torch", "matplotlib", "pandas", "numpy", "scipy", "sklearn")
        code = f"import sys, flwr_fbo; print([m for m in {heavy!r} if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.strip() == "[]", done.stderr

    def test_a_simulation_loads_neither_ray_nor_pictures(self, tmp_path: Path) -> None:
        def asked_for(then: str) -> str:
            """The packages that modules of flwr_fbo import; a library may import any of them."""
            code = (
                WATCH_IMPORTS
                + "import flwr_fbo\nflwr_fbo.simulate('digits', agents=2, rounds=0)\n"
                + then
                + "\nprint(sorted(found))"
            )
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        assert asked_for("") == "[]"
        # The watch sees what it is there for.
        ours = {"__name__": "flwr_fbo.planted"}
        for planted in ("import pandas", "import importlib; importlib.import_module('ray.x')"):
            name = "pandas" if "pandas" in planted else "ray"
            then = f"try:\n    exec({planted!r}, {ours!r})\nexcept ImportError:\n    pass"
            assert asked_for(then) == f"[{name!r}]"

    @pytest.mark.parametrize("name", flwr_fbo.__all__)
    def test_every_public_name_is_there_and_documented(self, name: str) -> None:
        found = getattr(flwr_fbo, name)
        assert callable(found)
        assert (found.__doc__ or "").strip()
        assert name in dir(flwr_fbo)

    def test_other_names_are_not(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'simulat'"):
            _ = flwr_fbo.simulat


class TestSpec:
    def test_objects_and_names_make_the_same_run(self) -> None:
        named = RunSpec.from_mapping({"task": "synthetic", "points": 50, "epsilon": 5.0})
        made = SyntheticTask(SyntheticSettings(points=50))
        objects = RunSpec.from_mapping({"task": made, "strategy": DPFTSDE(epsilon=5.0)})
        assert objects.to_mapping() == named.to_mapping()
        assert objects.task is made

    def test_a_strategy_leaves_room_for_presets(self) -> None:
        spec = RunSpec.from_mapping(
            {"task": "landmine", "strategy": DPFTSDE(epsilon=5.0, regions=2), "preset": "paper"}
        )
        settings = spec.settings
        assert isinstance(settings, DPFTSDESettings)
        assert (settings.epsilon, settings.regions, settings.clip) == (5.0, 2, 22.0)

    @pytest.mark.parametrize(
        ("parameters", "features", "noise"),
        [(2, 200, 0.3), (3, 400, 0.1), (4, 400, 0.1), (5, 200, 0.3)],
    )
    def test_three_and_four_parameters_have_more_features(
        self, parameters: int, features: int, noise: float
    ) -> None:
        space = {f"x{n}": Float(0.0, 1.0) for n in range(parameters)}
        many = task(space=space)(lambda params: 0.0)
        by_task = RunSpec.from_mapping({"task": many, "strategy": DPFTSDE(epsilon=5.0)}).settings
        made = DPFTSDE(space=space, epsilon=5.0).settings
        named = FBOStrategy.of("dp-fts-de", space=space, epsilon=5.0).settings
        for settings in (by_task, made, named):
            assert isinstance(settings, DPFTSDESettings)
            assert (settings.features, settings.feature_noise) == (features, noise)
        told = DPFTSDE(space=space, features=60, feature_noise=0.7).settings
        assert isinstance(told, DPFTSDESettings)
        assert (told.features, told.feature_noise) == (60, 0.7)

    def test_the_paper_has_its_own_number_of_features(self) -> None:
        for strategy in ("dp-fts-de", "fts"):  # with three parameters
            given = {"task": "activity", "strategy": strategy, "preset": "paper"}
            settings = RunSpec.from_mapping(given).settings.to_mapping()
            assert (settings["features"], settings["feature-noise"]) == (100, 1e-6)

    def test_none_survives_where_it_is_not_the_default(self) -> None:
        spec = RunSpec.from_mapping({"task": hill, "strategy": DPFTSDE(weights_decay=None)})
        again = RunSpec.from_mapping(json.loads(json.dumps(spec.to_mapping())))
        assert isinstance(again.settings, DPFTSDESettings)
        assert again.settings.weights_decay is None

    def test_a_settings_object_is_taken_whole(self) -> None:
        chosen = DPFTSDESettings(regions=2)
        spec = RunSpec.from_mapping(
            {"task": hill, "strategy": FBOStrategy(DPFTSDE().method, chosen), "preset": "paper"}
        )
        assert spec.settings == chosen

    def test_names_lead_back(self) -> None:
        assert name_of(hill) == f"{__name__}:hill"
        assert name_of(SyntheticTask) == "synthetic"
        assert name_of(Slope()) == f"{__name__}:Slope"

    @pytest.mark.parametrize(
        ("given", "fault"),
        [
            ({"task": 3}, "`task` must be a name, a Task"),
            ({"task": hill, "strategy": 3}, "`strategy` must be a name or an object"),
            ({"task": hill, "strategy": FTS}, "`strategy` must be a name or an object"),
            ({"task": hill, "strategy": DPFTSDE(epsilon=1.0), "epsilon": 2.0}, "given twice"),
            ({"task": hill, "epsilonn": 2.0}, "did you mean `epsilon`"),
            ({"task": Slope(), "steepness": 2.0}, "must be 1.0, as in the task object"),
        ],
    )
    def test_mistakes_name_the_rule(self, given: dict[str, Any], fault: str) -> None:
        with pytest.raises(SettingsError, match=fault):
            RunSpec.from_mapping(given)

    def test_a_strategy_of_ones_own_is_refused_by_name(self) -> None:
        class Mine(FTS):
            """Not registered."""

        with pytest.raises(SettingsError, match=r"is a .*Mine"):
            RunSpec.from_mapping({"task": hill, "strategy": Mine()})


class TestSimulate:
    def test_is_what_the_command_line_does(self, tmp_path: Path) -> None:
        from tests.command import run_json

        theirs = run_json(
            tmp_path, "synthetic", "--agents", "3", "--rounds", "2", "--seed", "4",
            "--strategy", "fts", "--set", "initial-points=2", "--set", "points=50",
        )  # fmt: skip
        result = simulate("synthetic", strategy=FTS(), run_dir=tmp_path / "r", points=50, **SMALL)
        mine = json.loads(result.to_json())
        different = {k for k in mine if mine[k] != theirs[k]}
        assert different <= {"seconds", "run_dir"}
        assert list(mine) == list(theirs)

    def test_a_result_comes_back_from_its_directory(self, tmp_path: Path) -> None:
        made = simulate(hill, run_dir=tmp_path / "r", compare=["random"], epsilon=5.0, **SMALL)
        (tmp_path / "r").rename(tmp_path / "moved")
        again = Result.read(tmp_path / "moved")
        assert again.run_dir == str(tmp_path / "moved")
        assert {**again.to_dict(), "run_dir": made.run_dir} == made.to_dict()
        assert again.compared["random"].strategy == "random"
        rows = again.to_records()
        assert len(rows) == 3 * 4
        assert rows[0].keys() >= {"agent", "round", "score", "params_x"}
        best = [max(r["score"] for r in rows if r["agent"] == n) for n in range(3)]
        assert np.mean(best) == pytest.approx(again.history.best[-1])

    def test_what_only_some_find_can_be_read_by_name(self, tmp_path: Path) -> None:
        found = simulate(hill, agents=2, strategy=FedPNE(budget=40), run_dir=tmp_path / "r")
        assert found.recommended["x"] == pytest.approx(0.3, abs=0.2)
        assert Result.read(tmp_path / "r").findings["tree"] == found.findings["tree"]
        with pytest.raises(AttributeError, match="no attribute 'recomended'"):
            _ = found.recomended

    def test_callbacks_see_every_round(self, tmp_path: Path) -> None:
        class Count(Callback):
            rounds: list[int] = []  # noqa: RUF012

            def on_round(self, strategy: Any, report: Any) -> None:
                self.rounds.append(report.round)

        simulate(hill, run_dir=tmp_path / "r", callbacks=[Count()], **SMALL)
        assert Count.rounds == [0, 1, 2]

    def test_a_task_of_a_notebook_is_resumed_with_the_task(self, tmp_path: Path) -> None:
        class Crash(Callback):
            def on_round(self, strategy: Any, report: Any) -> None:
                if report.round == 1:
                    raise ArithmeticError("the power went")

        calls = []

        @task(space={"x": Float(0.0, 1.0)})
        def local(params: Any) -> float:
            calls.append(params)
            return float(params["x"])

        with pytest.raises(ArithmeticError):
            simulate(local, run_dir=tmp_path / "r", callbacks=[Crash()], **SMALL)
        with pytest.raises(SettingsError, match="cannot be imported"):
            resume(tmp_path / "r")
        result = resume(tmp_path / "r", local)
        assert result.complete
        assert result.history.evaluations == [2, 3, 4]
        assert len(calls) == 12


class TestFactories:
    def test_make_an_app_that_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path))
        server = flwr_fbo.server_app(hill, DPFTSDE(initial_points=2), agents=2, run_name="it")
        client = flwr_fbo.client_app(hill)
        config = {"num-server-rounds": 3, "fbo.rounds": 1, "fbo.epsilon": ""}
        grid = InProcessGrid(client, 2, config)
        context = Context(1, 1, UserConfig({}), RecordDict(), UserConfig(config))
        server(grid, context)
        stored = json.loads((tmp_path / "runs" / "it" / "config.json").read_text())
        assert (stored["rounds"], stored["task"]) == (1, f"{__name__}:hill")
        journals = sorted((tmp_path / "runs" / "it" / "agents").glob("*.jsonl"))
        assert [p.read_text().count('"evaluation"') for p in journals] == [3, 3]

    @pytest.mark.parametrize(
        ("name", "settings"),
        [
            ("dp-fts-de", {"epsilon": 5.0, "initial_points": 2}),
            ("fts", {"initial_points": 2}),
            ("fed-pne", {"budget": 60}),
            ("ldp-tgp", {"budget": 30, "epsilon": 15.0}),
        ],
    )
    def test_the_server_writes_a_result_without_scores(
        self,
        name: str,
        settings: dict[str, Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path))
        made: dict[str, Any] = {"agents": 2, "rounds": 2, "run_name": "it", **settings}
        server = flwr_fbo.server_app(hill, name, **made)
        grid = InProcessGrid(flwr_fbo.client_app(hill), 2)
        server(grid, Context(1, 1, UserConfig({}), RecordDict(), UserConfig({})))
        found = Result.read(tmp_path / "runs" / "it")
        assert found.complete
        assert 0 <= found.recommended["x"] <= 1
        assert found.private == ("epsilon" in settings)
        assert (found.history.best, found.history.evaluations, found.agents_best) == ([], [], [])
        shutil.rmtree(tmp_path / "runs" / "it" / "agents")
        text = write_report([tmp_path / "runs" / "it"]).read_text()
        assert "Recommended to all" in text

    def test_refuse_what_they_do_not_know(self) -> None:
        server = flwr_fbo.server_app(hill)
        config = UserConfig({"fbo.round": 1})
        with pytest.raises(SettingsError, match="did you mean `rounds`"):
            server(
                InProcessGrid(flwr_fbo.client_app(hill), 1),
                Context(1, 1, UserConfig({}), RecordDict(), config),
            )


def test_without_ray_the_error_names_the_python_and_the_other_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("flwr_fbo.simulation.engine.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=rf"Python {platform.python_version()}.*--engine auto"):
        simulate(hill, agents=2, rounds=1, engine="ray", run_dir=tmp_path / "r")
