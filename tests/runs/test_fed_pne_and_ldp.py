"""Fed-PNE, its comparators and LDP-BO through Flower and the command line."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo.runs.history import read_evaluations
from tests.command import flwr_fbo, run_json

SMALL = ("--agents", "6", "--budget", "60", "--seed", "3")


class TestFedPNE:
    @pytest.mark.parametrize("task", ["garland", "doublesine"])
    def test_has_the_fields_of_the_contract(self, tmp_path: Path, task: str) -> None:
        found = run_json(tmp_path, task, "--strategy", "fed-pne", *SMALL)
        assert found["history"]["evaluations"][-1] == 60  # the budget, not one more
        assert 1 < found["rounds"] < 15
        assert len(found["history"]["evaluations"]) == found["rounds"]
        assert 0 < found["findings"]["numbers_sent_per_agent"] <= 60
        assert found["findings"]["cumulative_regret_per_agent"] > 0
        assert 0 <= found["recommended"]["x"] <= 1
        low, high = found["recommendation"]["interval"]
        assert low <= found["recommendation"]["mean"] <= high
        assert found["epsilon"] is None

    def test_says_what_its_noise_guarantees(self, tmp_path: Path) -> None:
        found = run_json(
            tmp_path, "garland", "--strategy", "fed-pne", *SMALL, "--epsilon", "2",
            "--set", "client-offset=0",
        )  # fmt: skip
        assert found["private"] is True
        assert 0 < found["epsilon"] <= 2 * (1 + 1e-6)
        assert set(found["findings"]["guarantees"]) == {"one reward", "one user"}

    @pytest.mark.parametrize(
        "method",
        [
            "fed1-ucb",
            "fn-ucb",
            "kernel-ts",
            "gp-ucb",
            pytest.param(
                "hct",
                marks=pytest.mark.skipif(find_spec("PyXAB") is None, reason="PyXAB not installed"),
            ),
        ],
    )
    def test_comparators_run_in_the_same_harness(self, tmp_path: Path, method: str) -> None:
        found = run_json(
            tmp_path, "garland", "--strategy", method, "--agents", "3", "--budget", "12"
        )
        assert found["history"]["evaluations"][-1] == 12
        assert found["findings"]["cumulative_regret_per_agent"] > 0
        assert found["recommended"].keys() == {"x"}

    @pytest.mark.skipif(find_spec("PyXAB") is not None, reason="PyXAB is installed")
    def test_a_missing_library_is_named_with_its_extra(self, tmp_path: Path) -> None:
        done = flwr_fbo(
            "run", "garland", "--strategy", "hct", *SMALL, "--engine", "inline", cwd=tmp_path
        )
        assert done.returncode == 2
        assert "flwr-fbo[benchmarks]" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_killed_run_pays_for_nothing_twice(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            """
import os
from pathlib import Path
from flwr_fbo.core.space import Float
from flwr_fbo.tasks import task

@task(space={"x": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
def fragile(params):
    count = len(Path("calls").read_text()) if Path("calls").exists() else 0
    if count == 70 and not Path("died").exists():
        Path("died").touch()
        os._exit(9)
    with Path("calls").open("a") as file:
        file.write(".")
    return 1 - abs(params["x"] - 0.3)
"""
        )
        arguments = ("--strategy", "fed-pne", "--agents", "4", "--budget", "30")
        killed = flwr_fbo(
            "run", "mine:fragile", *arguments, "--engine", "inline", "--run-dir", "r", cwd=tmp_path
        )
        assert killed.returncode == 9
        done = flwr_fbo("resume", "r", "--engine", "inline", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["history"]["evaluations"][-1] == 30
        # Quick evaluations of a round are recorded together, and rounds before it are on the disk.
        made = [e for history in read_evaluations(tmp_path / "r" / "agents", 4) for e in history]
        before = max(n for r in range(30) if (n := sum(e.round < r for e in made)) <= 70)
        assert before > 0
        assert len(made) == 4 * 30
        assert len((tmp_path / "calls").read_text()) - len(made) <= 70 - before


class TestLDP:
    @pytest.mark.parametrize("strategy", ["ldp-ata", "ldp-tgp", "ldp-moma"])
    def test_private_learners_have_the_fields_of_the_contract(
        self, tmp_path: Path, strategy: str
    ) -> None:
        found = run_json(
            tmp_path,
            "ldp-synthetic",
            "--strategy",
            strategy,
            *SMALL,
            "--set",
            "epsilon-per-answer=1",
        )
        regret = found["findings"]["cumulative_regret"]
        assert len(regret) == 60
        assert regret == sorted(regret)
        assert found["private"] is True
        assert found["findings"]["epsilon_per_agent_max"] == pytest.approx(
            10.0
        )  # 60 plays, 6 agents
        assert found["findings"]["refused"] >= 0

    @pytest.mark.parametrize("strategy", ["ata", "tgp", "moma", "gp-ucb", "uniform"])
    def test_learners_without_privacy_say_so(self, tmp_path: Path, strategy: str) -> None:
        found = run_json(tmp_path, "ldp-synthetic", "--strategy", strategy, *SMALL)
        assert len(found["findings"]["cumulative_regret"]) == 60
        assert found["private"] is False
        assert found["findings"]["epsilon_per_agent_max"] is None

    @pytest.mark.parametrize("task", ["light", "stocks"])
    def test_runs_on_the_papers_tables(self, tmp_path: Path, task: str) -> None:
        found = run_json(
            tmp_path, task, "--strategy", "ldp-tgp", *SMALL, "--set", "epsilon-per-answer=1",
            "--set", "generated=true",
        )  # fmt: skip
        assert "generated" in found["task"]
        assert len(found["findings"]["cumulative_regret"]) == 60

    def test_budgets_that_run_out_end_the_run_incomplete(self, tmp_path: Path) -> None:
        done = flwr_fbo(
            "run", "ldp-synthetic", "--strategy", "ldp-tgp", *SMALL, "--engine", "inline", "--json",
            "--set", "epsilon-per-answer=1", "--epsilon", "3", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 1
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["complete"] is False
        assert found["findings"]["stopped"] == "budgets"
        assert len(found["findings"]["cumulative_regret"]) == 18  # six agents, three answers each

    @pytest.mark.parametrize(
        ("arguments", "fault"),
        [
            (("ldp-tgp",), "needs `epsilon`"),
            (("tgp", "--epsilon", "1"), "is not private"),
            (("ldp-tgp", "--epsilon", "1", "--set", "bound=-1"), "`bound` must be > 0"),
            (
                ("ldp-tgp", "--epsilon", "1", "--set", "epsilon-per-answer=2"),
                "pay for at least one",
            ),
            (("ldp-moma", "--epsilon", "1", "--set", "constants=theory"), "k"),
        ],
    )
    def test_mistakes_are_told(
        self, tmp_path: Path, arguments: tuple[str, ...], fault: str
    ) -> None:
        strategy, *rest = arguments
        done = flwr_fbo(
            "run", "ldp-synthetic", "--strategy", strategy, *SMALL, *rest, "--engine", "inline",
            cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 2
        assert fault in done.stderr
        assert "Traceback" not in done.stderr
