"""The first screen of a report: four answers, by what the result holds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo import Float, Result, simulate, task
from flwr_fbo.report.answers import answers, comparison_html, main_baseline
from flwr_fbo.report.runs import Run, read_run
from flwr_fbo.runs.comparison import Difference, Saving


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def hill(params: Any) -> float:
    return 1.0 - float(params["x"] - 0.3) ** 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("answers") / "run"
    simulate(hill, agents=3, rounds=3, epsilon=4.0, compare=["random"], run_dir=folder)
    return read_run(folder)


def with_result(run: Run, **changes: Any) -> Run:
    assert run.result is not None
    return dataclasses.replace(run, result=dataclasses.replace(run.result, **changes))


def saving(ours: int, theirs: int, end: Difference, along: Difference) -> Saving:
    return Saving(0.9, ours, theirs, end, along, agents=3, won=2, lost=1)


BETTER, WORSE, UNCLEAR = (
    Difference(0.1, 0.05, 0.15), Difference(-0.1, -0.15, -0.05), Difference(0.0, -0.1, 0.1)
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "helped"),
    [
        (saving(5, 12, BETTER, BETTER), "Yes"),
        (saving(5, 12, UNCLEAR, BETTER), "Yes"),
        (saving(5, 12, UNCLEAR, UNCLEAR), "Not clear"),
        (saving(12, 5, WORSE, WORSE), "No"),
        (saving(12, 5, UNCLEAR, UNCLEAR), "Not clear"),
    ],
)
def test_did_it_help_is_what_the_intervals_say(run: Run, found: Saving, helped: str) -> None:
    first, second, *_ = answers(with_result(run, savings={"alone": found}))
    assert first.question == "Did it help?"
    assert first.answer == helped
    # What may be chance is not claimed in large letters.
    assert ("saved" in second.answer) == (helped == "Yes")


def test_the_agent_alone_is_the_baseline_to_speak_of() -> None:
    any_saving = saving(1, 1, UNCLEAR, UNCLEAR)
    assert main_baseline({"random": any_saving, "alone": any_saving}) == "alone"
    assert main_baseline({"dp-fts-de epsilon=2": any_saving}) == "dp-fts-de epsilon=2"
    assert main_baseline({}) is None


def test_how_private_and_what_now(run: Run) -> None:
    *_, private, now = answers(run)
    assert private.answer == "epsilon 4"
    assert "if the server is honest" in private.words
    assert "x = " in now.answer
    assert run.result is not None
    many = {f"parameter {i}": 0.25 for i in range(9)}
    long = answers(with_result(run, recommended=many))[-1]
    assert len(long.answer) < 40  # a long setting is no headline
    assert "parameter 8 = 0.25" in long.words
    unclear = {**(run.result.recommendation or {}), "clear": False}
    assert "Noise alone" in answers(with_result(run, recommendation=unclear))[-1].words
    stopped = answers(with_result(run, complete=False, stopped_early="interrupted"))[-1]
    assert "flwr-fbo resume" in stopped.words


def test_a_run_without_comparison_or_result_says_what_to_do(run: Run) -> None:
    assert answers(with_result(run, savings={}, compared={}))[0].answer == "Not compared"
    assert answers(dataclasses.replace(run, result=None))[0].answer == "Not finished"


def test_the_table_names_every_baseline(run: Run) -> None:
    result = run.result
    assert isinstance(result, Result)
    text = comparison_html(result)
    assert "95 %" in text
    assert result.savings["random"].text in text
    assert str(result.savings["random"].at_end) in text


def test_a_deployments_server_has_answers_too(run: Run, tmp_path: Path) -> None:
    from flwr_fbo.runs.history import RoundHistory

    server = with_result(run, history=RoundHistory([], []), agents_best=[], compared={}, savings={})
    first, second, *_ = answers(dataclasses.replace(server, histories=[]))
    assert "journals" in first.words
    assert "3 agents took part" in second.words
