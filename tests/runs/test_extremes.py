"""Sizes that no memory holds, scores that no sum holds, and texts that no terminal prints."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import DPFTSDE, LDPBO, FedPNE, Float, simulate, task
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs import sizes
from flwr_fbo.runs.sizes import check_sizes
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.summary import summary
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from tests.command import flwr_fbo as command

SPACE = {"x": Float(0.0, 1.0)}
HUGE = 10**24


@task(space=SPACE, score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    return 1.0 - (float(params["x"]) - 0.3) ** 2


class TestSizes:
    @pytest.mark.parametrize(
        ("strategy", "given", "key"),
        [
            ("dp-fts-de", {"agents": HUGE}, "agents"),
            ("dp-fts-de", {"agents": 10**400}, "agents"),
            ("dp-fts-de", {"agents": 3, "rounds": HUGE}, "rounds"),
            ("dp-fts-de", {"agents": 3, "features": HUGE}, "features"),
            ("dp-fts-de", {"agents": 3, "regions": HUGE}, "regions"),
            ("local-ts", {"agents": 3, "initial-points": HUGE}, "initial-points"),
            ("fts", {"agents": 3, "history": HUGE}, "initial-points"),
            ("fed-pne", {"agents": 3, "budget": HUGE}, "budget"),
            ("fed1-ucb", {"agents": 3, "arms": HUGE}, "arms"),
        ],
    )
    def test_what_no_memory_holds_is_refused(
        self, strategy: str, given: dict[str, Any], key: str
    ) -> None:
        with pytest.raises(SettingsError, match=f"`{key}` must be so small .* GB"):
            RunSpec.from_mapping({"task": hill, "strategy": strategy, **given})

    def test_python_and_the_command_line_refuse_it_too(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="`agents` must be so small"):
            simulate(hill, agents=HUGE, run_dir=tmp_path / "run")
        grid = InProcessGrid(simulated_client_app(hill, tmp_path), 1)
        made = DPFTSDE(space=hill.space, num_agents=HUGE, run_dir=tmp_path / "other")
        with pytest.raises(SettingsError, match="`agents` must be so small"):
            made.start(grid)
        done = command("run", "digits", "--agents", str(HUGE), cwd=tmp_path)
        assert done.returncode == 2
        assert "1000000000000000000000000" in done.stderr
        assert not (tmp_path / "run").exists()

    def test_the_message_says_estimate_and_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sizes, "memory", lambda: 2 * 10**9)
        settings = DPFTSDE(features=20_000).settings
        # 8 M^2 is 3.2 GB.
        with pytest.raises(SettingsError, match=r"memory of 2 GB, but got 20000.* least 3\.2 GB"):
            check_sizes(settings, 3, 20, 2)
        monkeypatch.setattr(sizes, "memory", lambda: 4 * 10**9)
        check_sizes(settings, 3, 20, 2)
        monkeypatch.setattr(sizes, "memory", lambda: None)
        check_sizes(settings, HUGE, 20, 2)

    def test_a_hundred_thousand_agents_fit_into_a_laptop(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sizes, "memory", lambda: 8 * 10**9)
        check_sizes(DPFTSDE().settings, 100_000, 20, 10)

    def test_a_budget_of_all_agents_is_counted_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sizes, "memory", lambda: 10**9)
        check_sizes(LDPBO(budget=20_000).settings, 20_000, 0, 1)
        with pytest.raises(SettingsError, match="`budget` must be so small"):
            check_sizes(FedPNE(budget=20_000).settings, 20_000, 0, 1)


EXTREMES = (1e60, -1e60, 0.0, 1e308, math.nan)


@task(space=SPACE)
def extreme(params: Any, partition: Any) -> float:
    return EXTREMES[int(1e6 * params["x"]) % len(EXTREMES)]


@task(space=SPACE, score_range=(-1e60, 1e60))
def wide(params: Any, partition: Any) -> float:
    return EXTREMES[int(1e6 * params["x"]) % 3]


@pytest.mark.parametrize(
    ("strategy", "given"),
    [
        ("local-ts", {}),
        ("random", {}),
        ("fts", {"features": 8}),
        ("dp-fts-de", {"features": 8, "epsilon": 5.0}),
        ("fed-pne", {"budget": 12}),
    ],
)
def test_a_run_with_the_largest_scores_has_a_result(
    strategy: str, given: dict[str, Any], tmp_path: Path
) -> None:
    work = wide if strategy == "fed-pne" else extreme
    plan = {} if "budget" in given else {"rounds": 6}
    result = simulate(work, agents=4, strategy=strategy, run_dir=tmp_path / "run", **plan, **given)
    assert result.complete
    assert result.best_score is not None
    assert abs(result.best_score) <= 1e60
    assert json.loads(result.to_json())["best_score"] == result.best_score
    if work is extreme:
        rule = {r["failure"] for r in result.to_records() if r["score"] is None}
        assert any("must be in [-1e+60, 1e+60], but got 1e+308" in text for text in rule)


def test_a_regret_that_is_no_number_is_not_known(tmp_path: Path) -> None:
    from flwr_fbo import Task
    from flwr_fbo.core.space import Space

    class Wild(Task):
        @property
        def space(self) -> Space:
            return Space(SPACE)

        def evaluate(self, params: Any, *, rng: np.random.Generator) -> float:
            return float(params["x"])

        def expected(self, params: Any) -> float | None:
            return -1e308

        def optimum(self) -> float | None:
            return 1e308

    result = simulate(Wild(), agents=2, strategy="random", rounds=2, run_dir=tmp_path / "run")
    assert result.complete
    assert result.history.regret is None


def test_an_unprintable_text_is_cut_in_journal_and_summary(tmp_path: Path) -> None:
    @task(space=SPACE, metric="height\ud800\n" * 100)
    def quotes(params: Any) -> float:
        raise ValueError("a line of data \ud800\x00\n" * 50_000)

    result = simulate(quotes, agents=1, strategy="random", rounds=1, run_dir=tmp_path / "run")
    assert (tmp_path / "run" / "agents" / "agents.jsonl").stat().st_size < 20_000
    text = summary(result)
    text.encode()
    assert "more characters" in text
    assert len(result.metric) < 200
    assert result.metric.isprintable()
