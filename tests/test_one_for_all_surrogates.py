"""One setting for all on surrogates: the federations in eleven dimensions, the runs, the table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.suite.federation import prepared
from benchmarks.suite.one_for_all import surrogates as command
from benchmarks.suite.one_for_all.mixed import BOOSTING, BOOSTING_SPACE
from benchmarks.suite.results import Store
from flwr_fbo.core.space import Categorical

SMALL = dataclasses.replace(BOOSTING, parties=4)


def test_boosting_has_eleven_mixed_parameters_and_parties_that_differ() -> None:
    assert BOOSTING_SPACE.dimension == 11
    categories = [p for p in BOOSTING_SPACE.parameters.values() if isinstance(p, Categorical)]
    assert len(categories) == 2
    units = BOOSTING_SPACE.sample(300, np.random.default_rng(0))
    settings = [BOOSTING_SPACE.from_unit(u) for u in units]
    scores = np.array([[t.expected(s) for s in settings] for t in prepared(SMALL, 0)])
    assert scores.min() >= 0.5
    assert scores.max() <= 0.98
    among = np.corrcoef(scores)[np.triu_indices(4, 1)]
    assert among.min() > 0.1  # what is good for one is better than chance for the others
    assert among.max() < 0.99
    assert len({int(np.argmax(row)) for row in scores}) > 1


def test_the_linear_learner_ignores_the_parameters_of_trees() -> None:
    task = prepared(SMALL, 0)[0]
    setting = {**BOOSTING_SPACE.from_unit(np.full(11, 0.5)), "booster": "gblinear"}
    tree = {"max_depth": 3, "colsample": 0.02, "gamma": 5.0}
    assert task.expected({**setting, **tree}) == task.expected(setting)
    trees = {**setting, "booster": "gbtree"}
    assert task.expected({**trees, **tree}) < task.expected(trees)


def test_a_run_is_recorded_once_and_judged_by_the_mean_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(command.METHODS, "ours, 8 finalists", ("dp-fts-de", 12, {"finalists": 3}))
    given = ([SMALL], ["voting", "ours, 8 finalists"], [3.0], [1], tmp_path)
    assert command.run(*given) == 0
    rows = Store(tmp_path).read(command.NAME)
    assert [(r["method"], r["asked_epsilon"], r["development"]) for r in rows] == [
        ("voting", 3.0, True), ("ours, 8 finalists", 3.0, True)
    ]  # fmt: skip
    assert all(0.0 <= r["recommended"] < 5.0 for r in rows)
    assert rows[0]["own"] is None
    assert 0.0 <= rows[1]["own"] < 2.0
    assert command.run(*given) == 0
    assert len(Store(tmp_path).read(command.NAME)) == 2


def row(method: str, epsilon: float, seed: int, loss: float, own: float | None) -> dict[str, Any]:
    return {
        "suite": 1, "federation": command.NAME, "case": "boosting", "version": 1, "own": own,
        "method": method, "evaluations": 20, "asked_epsilon": epsilon, "seed": seed,
        "development": False, "recommended": loss,
    }  # fmt: skip


def test_the_page_has_means_and_names_where_the_vote_is_ahead() -> None:
    rows = [row("voting", e, s, 0.4, None) for e in (1.0, 3.0) for s in (7000, 7001)]
    ours = "ours, 8 finalists"
    rows += [row(ours, 1.0, s, loss, 0.2) for s, loss in ((7000, 0.2), (7001, 0.3))]
    rows += [row(ours, 3.0, s, 0.5, 0.1) for s in (7000, 7001)]
    text = "\n".join(command.content(rows))
    assert "| one for all: voting | 100 | - | - | 0.40 ± 0.00 | 0.40 ± 0.00 | - |" in text
    # Student's 97.5 % quantile with one degree of freedom is 12.71; the error of the mean is .05.
    assert "| one for all: ours, 8 finalists | 20 | - | - | 0.25 ± 0.64 |" in text
    assert "| each party's own pick: ours, 8 finalists | 20 | - | - | 0.20 ± 0.00 |" in text
    assert text.endswith("boosting at epsilon 3 (0.40 against 0.50).")
    assert "24 parties, 2 seeds" in text


def test_development_runs_reach_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(tmp_path).add({**row("voting", 1.0, 3, 0.4, None), "development": True})
    assert command.main(["page", "--results", str(tmp_path)]) == 2
    assert "must name another page" in capsys.readouterr().err
    out = tmp_path / "page.md"
    assert command.main(["page", "--results", str(tmp_path), "--out", str(out)]) == 0
    assert "no results" in out.read_text()


def test_without_runs_the_page_says_how_to_make_them() -> None:
    assert command.content([]) == command.NOTHING
