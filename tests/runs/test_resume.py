"""Going on with a run: longer, by other rules, with other clients, and never with more privacy."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from flwr.app.user_config import UserConfig

import flwr_fbo.simulation.simulate
from flwr_fbo import (
    DPFTSDE,
    FTS,
    Callback,
    FedPNE,
    Float,
    LocalTS,
    client_app,
    resume,
    server_app,
    simulate,
    task,
)
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.registry import find_method, method_names
from flwr_fbo.methods.thompson.asynchronous import UNDER_WAY
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from tests.command import flwr_fbo as command

SMALL: dict[str, Any] = {"agents": 3, "seed": 2}


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def hill(params: Any) -> float:
    return 1.0 - (float(params["x"]) - 0.3) ** 2


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def flat(params: Any) -> float:
    return 0.25


def config(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "config.json").read_text())
    return found


def charges(run: Path) -> int:
    return (run / "ledger.jsonl").read_text().count('"event"')


class TestRules:
    """A run that a rule ended goes on once the rule is raised or dropped."""

    def test_as_it_was_it_is_over_and_says_what_to_do(self, tmp_path: Path) -> None:
        alone = LocalTS(initial_points=2)
        ended = simulate(flat, strategy=alone, rounds=9, patience=2, run_dir=tmp_path, **SMALL)
        stream = io.StringIO()
        assert resume(tmp_path, flat, progress=stream).to_dict() == ended.to_dict()
        assert "--set patience=none" in stream.getvalue()

    @pytest.mark.parametrize(("patience", "evaluations"), [(4, 6), (None, 11)])
    def test_raised_or_dropped_it_goes_on(
        self, tmp_path: Path, patience: int | None, evaluations: int
    ) -> None:
        alone = LocalTS(initial_points=2)
        ended = simulate(flat, strategy=alone, rounds=9, patience=2, run_dir=tmp_path, **SMALL)
        assert ended.history.evaluations == [2, 3, 4]
        found = resume(tmp_path, flat, patience=patience)
        assert found.history.evaluations == [*range(2, evaluations + 1)]
        assert config(tmp_path).get("patience") == patience
        assert found.complete

    def test_a_finished_run_gets_more_rounds(self, tmp_path: Path) -> None:
        long, short = tmp_path / "long", tmp_path / "short"
        whole = simulate(hill, strategy=FTS(), rounds=6, run_dir=long, **SMALL)
        simulate(hill, strategy=LocalTS(), rounds=3, run_dir=short, **SMALL)
        alone = simulate(hill, strategy=LocalTS(), rounds=6, run_dir=tmp_path / "at-once", **SMALL)
        found = resume(short, hill, rounds=6)
        assert found.history.evaluations == whole.history.evaluations
        assert found.complete
        assert found.history.best == alone.history.best  # as if it had been planned so
        assert found.seconds > 0

    @pytest.mark.parametrize("baseline", ["random", "alone", "local-ts", "tpe"])
    def test_comparisons_are_made_as_long(self, tmp_path: Path, baseline: str) -> None:
        if baseline == "tpe":
            pytest.importorskip("optuna")
        simulate(hill, rounds=2, compare=[baseline], run_dir=tmp_path, **SMALL)
        found = resume(tmp_path, hill, rounds=4)
        assert (
            found.compared[baseline].history.evaluations
            == found.history.evaluations
            == [2, 3, 4, 5, 6]
        )

    def test_every_method_that_counts_rounds_can_have_more_of_them(self) -> None:
        for name in method_names():
            method = find_method(name)
            if method.server_class.counts_rounds:
                assert hasattr(method.settings_class, "settings_for_more_rounds"), name

    def test_comparisons_that_were_not_made_are(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*given: Any) -> Any:
            raise KeyboardInterrupt

        rivals = ["random", "local-ts"]
        with monkeypatch.context() as patched:
            patched.setattr(flwr_fbo.simulation.simulate, "_baseline_result", broken)
            with pytest.raises(KeyboardInterrupt):
                simulate(hill, rounds=2, compare=rivals, run_dir=tmp_path, **SMALL)
        found = resume(tmp_path, hill)
        assert set(found.compared) == {"random", "local-ts"}
        stored = json.loads((tmp_path / "result.json").read_text())
        assert stored["compared"]["random"]["history"]["evaluations"] == [2, 3, 4]


class TestPrivateRuns:
    """The budget is for the releases that were planned; more rounds never add one."""

    def test_more_rounds_cost_nothing(self, tmp_path: Path) -> None:
        private = DPFTSDE(initial_points=5, epsilon=4.0, releases="early")
        before = simulate(hill, strategy=private, rounds=3, run_dir=tmp_path, **SMALL)
        made = charges(tmp_path)
        assert made == 3  # rounds 0, 1 and 2
        stream = io.StringIO()
        found = resume(tmp_path, hill, rounds=12, progress=stream)  # 4 and 8 would be next
        assert charges(tmp_path) == made
        assert found.epsilon == before.epsilon
        assert found.epsilon is not None
        assert found.epsilon <= 4.0
        assert found.complete
        assert found.history.evaluations[-1] == 5 + 12
        assert "cost no privacy" in stream.getvalue()
        assert config(tmp_path)["releases"] == "0,1,2"
        again = resume(tmp_path, hill, rounds=14)
        assert charges(tmp_path) == made
        assert again.epsilon == before.epsilon

    def test_stopped_early_it_makes_the_releases_that_are_left(self, tmp_path: Path) -> None:
        private = DPFTSDE(initial_points=5, epsilon=4.0, releases="all")
        simulate(hill, strategy=private, rounds=6, max_evaluations=18, run_dir=tmp_path, **SMALL)
        assert charges(tmp_path) == 2
        found = resume(tmp_path, hill, rounds=9, max_evaluations=None)
        assert charges(tmp_path) == 6
        assert found.epsilon is not None
        assert 3.9 < found.epsilon <= 4.0

    def test_without_privacy_releases_go_on(self, tmp_path: Path) -> None:
        simulate(hill, strategy=DPFTSDE(regions=1), rounds=2, run_dir=tmp_path, **SMALL)
        found = resume(tmp_path, hill, rounds=5)
        # Rounds 0, 1, 3 and 4: round 2 was the last, which had nobody to tell.
        assert found.recommendation["releases"] == 4


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "fault"),
        [
            ({"rounds": 1}, r"`rounds` must be >= 2, the planned number, but got 1"),
            ({"agents": 4}, r"`agents` must stay 3"),
            ({"regions": 2}, r"`regions` must stay 4 .*what may change is rounds,"),
            ({"epsilon": 9.0}, r"`epsilon` must stay 4.0"),
            ({"seed": 3}, r"`seed` must stay 2"),
            ({"patiense": None}, r"did you mean `patience`"),
            ({"patiense": 3}, r"did you mean `patience`"),
            ({"patience": "long"}, r"`patience` must be int"),
        ],
    )
    def test_what_would_be_another_run(
        self, tmp_path: Path, changes: dict[str, Any], fault: str
    ) -> None:
        simulate(hill, rounds=2, epsilon=4.0, regions=4, run_dir=tmp_path, **SMALL)
        before = (tmp_path / "config.json").read_text()
        with pytest.raises(SettingsError, match=fault):
            resume(tmp_path, hill, **changes)
        assert (tmp_path / "config.json").read_text() == before

    def test_what_is_repeated_is_no_change(self, tmp_path: Path) -> None:
        simulate(hill, rounds=2, epsilon=4.0, regions=4, run_dir=tmp_path, **SMALL)
        assert resume(tmp_path, hill, regions=4, epsilon=4.0, rounds=2).complete

    def test_rounds_of_a_strategy_that_counts_evaluations(self, tmp_path: Path) -> None:
        simulate("garland", agents=2, strategy=FedPNE(budget=40), run_dir=tmp_path)
        with pytest.raises(SettingsError, match="its length is its `budget`"):
            resume(tmp_path, rounds=30)

    def test_from_the_command_line(self, tmp_path: Path) -> None:
        few = {"points": 50, "initial_points": 5, **SMALL}
        simulate("synthetic", rounds=1, run_dir=tmp_path / "r", **few)
        wrong = command("resume", "r", "--set", "patiense=none", cwd=tmp_path)
        assert wrong.returncode == 2
        assert "did you mean `patience`" in wrong.stderr
        done = command("resume", "r", "--rounds", "2", "--engine", "inline", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "7 evaluations each" in done.stdout


def test_losses_of_before_are_counted_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result is about the whole run, whichever process made its rounds."""

    class Crash(Callback):
        def on_round(self, strategy: Any, report: Any) -> None:
            if report.round == 1:
                raise ArithmeticError("the power went")

    append = RoundTable.append

    def append_a_loss(self: RoundTable, report: RoundReport) -> None:
        if report.round == 1:
            # A reply was missing, and it took long; one was still at it, which is no failure.
            lost: dict[str, Any] = {"missing": 1, "seconds": 100.0, "declined": {UNDER_WAY: 1}}
            report = replace(report, **lost)
        append(self, report)

    with monkeypatch.context() as patched:
        patched.setattr(RoundTable, "append", append_a_loss)
        with pytest.raises(ArithmeticError):
            simulate(hill, rounds=3, run_dir=tmp_path, callbacks=[Crash()], **SMALL)
    table = (tmp_path / "rounds.csv").read_text().splitlines()
    row = dict(zip(table[0].split(","), table[-1].split(","), strict=True))
    counts = ("under-way", "declined", "missing", "refused")
    assert [row[name] for name in ("round", "asked", "replied", *counts)] == list("1331010")
    found = resume(tmp_path, hill)
    assert found.failures == 1
    assert 100 < found.seconds < 160


class TestClients:
    """Under one name, a run of Flower's goes on with whoever is there."""

    @pytest.fixture(autouse=True)
    def _home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path))

    def go(
        self,
        strategy: FBOStrategy,
        nodes: list[int],
        stop_after: int | None = None,
        said: dict[str, Any] | None = None,
        **settings: Any,
    ) -> list[Any]:
        """Start or go on with `spring`, with these of five nodes connected; asked by round."""

        class Watch(Callback):
            def __init__(self) -> None:
                self.asked: list[tuple[int, int]] = []

            def on_round(self, strategy: FBOStrategy, report: Any) -> None:
                self.asked.append((report.round, report.asked))
                if report.round == stop_after:
                    raise ArithmeticError("the power went")

        watch = Watch()
        given = {"rounds": 4, "initial_points": 2, "run_name": "spring", "timeout": 0.3}
        given |= settings
        told = {f"fbo.{key}": value for key, value in (said or {}).items()}
        grid = InProcessGrid(client_app(hill), 5, told)
        every = sorted(grid.contexts)
        grid.online = {every[n] for n in nodes}
        app = server_app(hill, strategy, callbacks=[watch], **given)
        context = Context(1, 1, UserConfig({}), RecordDict(), UserConfig(told))
        try:
            app(grid, context)
        except ArithmeticError:
            assert stop_after is not None
        return watch.asked

    def evaluations(self, home: Path) -> list[int]:
        return [len(h) for h in read_evaluations(home / "runs" / "spring" / "agents", 5)]

    @pytest.mark.parametrize("strategy", [DPFTSDE(epsilon=5.0), FTS()])
    def test_fewer(self, tmp_path: Path, strategy: FBOStrategy) -> None:
        assert self.go(strategy, [0, 1, 2], stop_after=1) == [(0, 3), (1, 3)]
        assert config(tmp_path / "runs" / "spring")["agents"] == 3
        assert self.go(strategy, [0, 2]) == [(2, 2), (3, 2), (4, 2)]
        assert self.evaluations(tmp_path) == [6, 3, 6, 0, 0]

    @pytest.mark.parametrize("strategy", [DPFTSDE(epsilon=5.0), FTS()])
    def test_more_as_planned_and_others(self, tmp_path: Path, strategy: FBOStrategy) -> None:
        """Of four that may come two begin; later one of them is gone, and two others are here."""
        assert self.go(strategy, [0, 1], stop_after=1, agents=4) == [(0, 2), (1, 2)]
        assert self.go(strategy, [1, 3, 4], agents=4) == [(2, 3), (3, 3), (4, 3)]
        # Newcomers take a step a round, and have no random points to begin with.
        assert self.evaluations(tmp_path) == [3, 6, 0, 3, 3]

    def test_more_than_planned_are_left_out(self, tmp_path: Path) -> None:
        self.go(DPFTSDE(epsilon=5.0), [0, 1], stop_after=1)
        assert self.go(DPFTSDE(epsilon=5.0), [0, 1, 2]) == [(2, 2), (3, 2), (4, 2)]
        assert self.evaluations(tmp_path) == [6, 6, 0, 0, 0]

    def test_settings_are_held_to(self, tmp_path: Path) -> None:
        self.go(FTS(), [0, 1], stop_after=1)
        with pytest.raises(SettingsError, match="`strategy` must stay 'fts'"):
            self.go(LocalTS(), [0, 1])
        with pytest.raises(SettingsError, match="`features` must stay 100"):
            self.go(FTS(), [0, 1], said={"features": 50})
        assert self.go(FTS(), [0, 1], said={"rounds": 5}) == [(2, 2), (3, 2), (4, 2), (5, 2)]
        assert self.evaluations(tmp_path)[:2] == [7, 7]
