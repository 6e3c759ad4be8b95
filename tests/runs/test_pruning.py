"""Evaluations that report on the way: stopped, recorded, learned from, and counted in steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import Float, Result, Space, Task, resume, simulate, task
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.reports import report
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.report import write_report

SPACE = Space({"x": Float(0.0, 1.0)})
EPOCHS = 9


def curve(x: float, epoch: int) -> float:
    """The score of an epoch, which grows to 1 - (x - .3)^2."""
    return (1.0 - (x - 0.3) ** 2) * epoch / EPOCHS


@task(space=SPACE, score_range=(0.0, 1.0))
def trained(params: Any, report: Any) -> float:
    for epoch in range(1, EPOCHS + 1):
        report(epoch, curve(params["x"], epoch))
    return curve(params["x"], EPOCHS)


def run(folder: Path, **settings: Any) -> Result:
    given: dict[str, Any] = {"agents": 2, "rounds": 14, "initial_points": 4, "strategy": "random"}
    return simulate(trained, run_dir=folder, seed=1, **{**given, **settings})


def test_hopeless_evaluations_stop_and_are_counted_in_steps(tmp_path: Path) -> None:
    result = run(tmp_path / "r")
    rows = result.to_records()
    pruned = [row for row in rows if row["pruned"]]
    assert 5 < len(pruned) < 25
    for row in pruned:
        assert row["steps"] < EPOCHS
        assert row["score"] == curve(row["params_x"], row["steps"])  # what it showed
        assert not row["failure"]
    whole = [row for row in rows if not row["pruned"]]
    assert all(row["steps"] == EPOCHS for row in whole)
    assert result.failures == 0
    assert result.findings["pruned"] == len(pruned)
    assert result.findings["steps"] == sum(row["steps"] for row in rows) / 2
    for agent in result.agents_best:
        mine = [row["score"] for row in whole if row["agent"] == agent["agent"]]
        assert agent["best"] == max(mine)


def test_the_cost_is_in_the_summary_and_in_the_report(tmp_path: Path) -> None:
    from flwr_fbo.runs.summary import steps_text, summary

    result = run(tmp_path / "r")
    assert "of 36 evaluations pruned" in steps_text(result)
    assert steps_text(result) in summary(result)
    assert steps_text(result) in Path(write_report([tmp_path / "r"])).read_text()


@pytest.mark.parametrize("rule", ["none", "median", "halving"])
def test_the_rule_is_a_setting(rule: str, tmp_path: Path) -> None:
    result = run(tmp_path / "r", pruning=rule)
    assert (result.findings["pruned"] == 0) == (rule == "none")
    never = run(tmp_path / "s", pruning=rule, pruning_startup=100)
    assert never.findings["pruned"] == 0


def test_a_run_that_is_continued_prunes_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", strategy="local-ts")
    run(tmp_path / "half", strategy="local-ts", rounds=7)
    rest = resume(tmp_path / "half", trained, rounds=14)
    keys = ("agent", "round", "params_x", "score", "pruned", "steps")
    assert [[row[k] for k in keys] for row in rest.to_records()] == [
        [row[k] for k in keys] for row in whole.to_records()
    ]


def test_a_pruned_evaluation_teaches_what_it_showed_and_what_others_gained_from_there() -> None:
    server = ThompsonServer(SPACE, 1, ThompsonSettings(pruning_startup=2), 5)
    records = MemoryRecords()

    def score(params: Any, rng: Any) -> float:
        values = next(scores)
        for step, value in enumerate(values, start=1):
            report(step, value)
        return values[-1]

    scores = iter([[0.2, 0.8], [0.4, 0.8], [0.1, 0.9]])
    evaluator = Evaluator(SPACE, score, records)
    agent = ThompsonAgent(server.setup(), evaluator, records, (1,))
    agent.answer(Request("explore", 0, {"count": 3, "home": -1}))
    assert [e.pruned for e in evaluator.history] == [False, False, True]
    assert evaluator.history[2].score == 0.1
    # From step 1 on, the finished ones gained .6 and .4.
    np.testing.assert_allclose(agent.sampler.own_model.scores, [0.8, 0.8, 0.1 + 0.5])
    again = ThompsonAgent(server.setup(), Evaluator(SPACE, score, records), records, (1,))
    np.testing.assert_array_equal(again.sampler.own_model.scores, agent.sampler.own_model.scores)


class Classy(Task):
    """A task that reports from its own method."""

    @property
    def space(self) -> Space:
        return SPACE

    def evaluate(self, params: Any, *, rng: Any) -> float:
        self.report(1, params["x"])
        return float(params["x"])


def test_a_class_reports_by_its_own_method(tmp_path: Path) -> None:
    result = simulate(
        Classy, agents=1, rounds=2, initial_points=2, strategy="random", run_dir=tmp_path / "run"
    )
    assert result.findings["steps"] == 4
    assert Classy().evaluate({"x": 0.5}, rng=None) == 0.5  # outside an agent nothing happens


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        ([(1, float("nan"))], "step 1: the score must be finite"),
        ([(2, 0.1), (2, 0.2)], "must be growing integers from 0, but got 2 after 2"),
        ([(1.5, 0.1)], "must be growing integers from 0, but got 1.5"),
    ],
)
def test_wrong_reports_are_failures_that_say_so(reports: Any, text: str) -> None:
    def score(params: Any, rng: Any) -> float:
        for step, value in reports:
            report(step, value)
        return 1.0

    made = Evaluator(SPACE, score, MemoryRecords())(np.array([0.5]), round=0)
    assert made.failed
    assert text in made.failure


def test_an_evaluation_that_goes_on_all_the_same_counts_with_its_score() -> None:
    def stubborn(params: Any, rng: Any) -> float:
        try:
            report(1, 0.0)
        except Exception:
            return 0.7
        return 0.1

    evaluator = Evaluator(SPACE, stubborn, MemoryRecords())
    evaluator.is_hopeless = lambda reports: True
    made = evaluator(np.array([0.5]), round=0)
    assert (made.score, made.pruned) == (0.7, False)
