"""`maximise` from Python: its examples, its journal, and what it refuses."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluator
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.runs import maximise as module
from flwr_fbo.runs.files.journal import Journal
from flwr_fbo.runs.maximise import maximise

LINE = {"x": Float(0.0, 1.0)}


def hill(params: Any) -> float:
    return 1.0 - (float(params["x"]) - 0.7) ** 2


def test_the_examples_are_true() -> None:
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted >= 4


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [("smoothnes", "smoothness"), ("reward_hgih", "reward_high"), ("sed", "seed")],
)
def test_an_unknown_argument_is_refused_with_the_nearest(typo: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match=rf"maximise\(\) `{typo}`; did you mean `{nearest}`"):
        maximise(hill, LINE, **{typo: 1.0})


def test_a_setting_that_breaks_its_rule_is_refused() -> None:
    with pytest.raises(SettingsError, match="`reward-low` must be < `reward-high`"):
        maximise(hill, LINE, reward_low=2.0)


def test_a_function_that_always_fails_recommends_nothing() -> None:
    def broken(params: Any) -> float:
        raise OSError("disk full")

    with pytest.raises(RuntimeError, match=r"all 30 calls of the function failed.*disk full"):
        maximise(broken, LINE)


def test_a_function_that_sometimes_fails_is_maximised() -> None:
    def fragile(params: Any) -> float:
        if params["x"] < 0.5:
            raise OSError("disk full")
        return hill(params)

    assert maximise(fragile, LINE, 60).params["x"] == pytest.approx(0.7, abs=0.1)


def test_a_journal_is_of_one_call_only(tmp_path: Path) -> None:
    calls: list[float] = []

    def counted(params: Any) -> float:
        calls.append(params["x"])
        return hill(params)

    first = maximise(counted, LINE, journal=tmp_path / "journal")
    again = maximise(counted, LINE, journal=tmp_path / "journal")
    assert (again, len(calls)) == (first, 30)
    for other in (
        {"budget": 40},
        {"seed": 1},
        {"space": {"x": Float(0.0, 2.0)}},
        {"smoothness": 1.1},
    ):
        with pytest.raises(SettingsError, match="`journal` must be new, or of a call of maximise"):
            maximise(counted, **{"space": LINE, "journal": tmp_path / "journal", **other})
    assert len(calls) == 30


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    other = Journal(tmp_path / "journal")
    Evaluator(Space(LINE), lambda params, rng: 0.5, other)(np.array([0.1]), round=0)
    with pytest.raises(SettingsError, match="`journal` must be new"):
        maximise(hill, LINE, journal=tmp_path / "journal")


def test_a_printed_answer_is_one_line_and_not_every_evaluation() -> None:
    found = maximise(lambda p: 1 - (p["x"] - 0.7) ** 2, {"x": Float(0.0, 1.0)}, budget=60)
    for text in (str(found), repr(found)):
        assert text.startswith("x = 0.")
        assert "after 60 evaluations" in text
        assert len(text) < 100
