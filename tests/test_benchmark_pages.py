"""Pages and charts of the documentation say what the saved runs say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import audit_bounds, parallel, pruning, scale, secure_runs
from benchmarks.agent_tasks import HartmannTask
from benchmarks.charts import style
from benchmarks.federations import Problem
from benchmarks.pages import filled, table
from benchmarks.ratios import SAVED, with_table
from benchmarks.reproduce import checks
from benchmarks.reproduce.__main__ import FIGURES, RESULTS
from benchmarks.reproduce.charts import drawn
from benchmarks.reproduce.figures import Figure, Run, Size
from benchmarks.reproduce.store import Store
from benchmarks.reproduce.table import IMAGES, charts
from flwr_fbo.methods.registry import method_names
from flwr_fbo.runs.spec import RunSpec

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_table_of_whole_runs_with_secure_sums_is_of_the_saved_runs() -> None:
    page_ = (ROOT / "docs" / "reference" / "privacy.md").read_text()
    assert secure_runs.with_table(page_, secure_runs.SAVED) == page_
    for entry in json.loads(secure_runs.SAVED.read_text()):
        assert entry["turns"] >= 5
        low, high = entry["spread"]
        assert entry["ratio"] == pytest.approx(entry["ours"] / entry["theirs"])
        assert low <= entry["ratio"] <= high
        assert entry["outcome"] == ("met" if entry["ratio"] <= 1.3 else "MISSED")


def test_the_table_of_ratios_is_of_the_saved_run() -> None:
    page_ = (ROOT / "docs" / "evidence" / "benchmarks.md").read_text()
    assert with_table(page_, SAVED) == page_
    for entry in json.loads(SAVED.read_text()):
        assert entry["ratio"] == pytest.approx(entry["ours"] / entry["theirs"])
        told = "-" if entry["most"] is None else "met"
        missed = entry["most"] is not None and entry["ratio"] > entry["most"]
        assert entry["outcome"] == ("MISSED" if missed else told)


def test_the_empirical_bounds_are_of_the_saved_audits_and_below_the_claims() -> None:
    page_ = (ROOT / "docs" / "evidence" / "audit.md").read_text()
    saved = json.loads(audit_bounds.SAVED.read_text())
    assert audit_bounds.with_table(page_, saved) == page_
    assert [round(row["epsilon_claimed"], 2) for row in saved] == [1, 4, 8]
    for row in saved:
        assert row["passed"]
        assert row["confidence"] == 0.99
        assert row["epsilon_lower"] <= row["epsilon_profile"] <= row["epsilon_claimed"]
        assert row["epsilon_profile"] >= 0.85 * row["epsilon_claimed"]


def test_the_tables_of_how_to_pages_are_of_the_saved_runs() -> None:
    own_task, optuna = ((DOCS / "how-to" / f"{n}.md").read_text() for n in ("own-task", "optuna"))
    at_once = parallel.known(parallel.RESULTS)
    assert filled(own_task, "at once", table(list(parallel.rows(at_once)))) == own_task
    stopped = pruning.known(pruning.RESULTS)
    assert filled(own_task, "pruning", table(list(pruning.rows(stopped)))) == own_task
    assert min(r["seed"] for r in at_once) >= parallel.FIRST_SEED
    assert min(r["seed"] for r in stopped) >= pruning.FIRST_SEED
    pytest.importorskip("optuna")
    from benchmarks import late_joiner

    assert filled(optuna, "late joiner", table(late_joiner.rows_of_page())) == optuna


def test_runs_of_the_benchmarks_of_one_party_are_made_and_shown(tmp_path: Path) -> None:
    problem = Problem(HartmannTask(), 2, 3)  # type: ignore[arg-type]
    small = {"PARTIES": 2, "INITIAL": 3, "EVALUATIONS": 7}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in small.items():
            patch.setattr(parallel, name, value)
        regrets = [parallel.one_run(problem, "alone", k, 3) for k in (1, 2)]
    assert [len(r) for r in regrets] == [5, 3]
    assert regrets[0][0] == regrets[1][0]  # the same initial points
    pytest.importorskip("sklearn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "EVALUATIONS", 8)
        digits = Problem(pruning.DigitsByEpoch(), 2, 3)  # type: ignore[arg-type]
        whole, median = (pruning.one_run(digits, rule, 3) for rule in ("none", "median"))
    assert whole["steps"][0][-1] == 8 * pruning.DigitsByEpoch.epochs
    assert whole["pruned"] == 0 < median["pruned"]
    assert median["steps"][0][-1] < whole["steps"][0][-1]
    curves = {"steps": [[15, 30, 45], [15, 30, 45]], "regret": [[0.3, 0.2, 0.1], [0.5, 0.4, 0.3]]}
    assert pruning._at_steps(curves, [[9, 31], [9, 14]]) == pytest.approx((0.2 + 1.0) / 2)


def test_charts_are_files_of_their_own_with_marks_at_powers_of_ten(tmp_path: Path) -> None:
    rows = [{"N": 10, "CPU ms": 0.5}, {"N": 1000, "CPU ms": 40.0}]
    scale.save_charts({"server": rows}, tmp_path)
    text = (tmp_path / "server.svg").read_text()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    for mark in (">10<", ">100<", ">1000<", ">0.1<"):
        assert mark in text


def test_the_page_of_defaults_says_what_the_saved_runs_say() -> None:
    from benchmarks import defaults

    page = defaults.PAGE.read_text()
    assert defaults.written(page) == page, "run `make defaults`"
    assert len(defaults.known()) > 50


def test_a_table_stands_between_its_marks() -> None:
    text = "a\n<!-- one -->\nold\n<!-- end -->\nb\n<!-- two -->\n<!-- end -->\n"
    rows = [{"x": 12345, "y": 0.012345}, {"x": 2.0, "y": None}, {"x": "told", "y": 4321.5}]
    made = filled(text, "one", table(rows))
    assert made == text.replace(
        "old\n", "| x | y |\n|---|---|\n| 12,345 | 0.0123 |\n| 2 | - |\n| told | 4,322 |\n"
    )
    assert filled(made, "one", ["old"]) == text
    with pytest.raises(ValueError, match="must have `<!-- three -->`"):
        filled(text, "three", [])


def test_the_tables_and_charts_of_scale_are_of_the_saved_run() -> None:
    page = (DOCS / "evidence" / "scale.md").read_text()
    saved = json.loads((scale.SAVED / "scale.json").read_text())
    again = "run `python -m benchmarks.scale --table docs/evidence/scale.md`"
    assert scale.page(page, saved) == page, again
    drawn = {path.name: path.read_text() for path in scale.SAVED.glob("*.svg")}
    assert scale.charts(saved) == drawn, again
    counted = "\n".join(row["strategy"] for row in saved["wire"])
    for name in (*method_names(), "RGPE", "TAF"):
        assert name in counted, f"what {name} sends was not counted"


@pytest.mark.parametrize("name", method_names())
def test_what_each_strategy_sends_can_be_counted(name: str) -> None:
    for given in scale.wired(name).values():
        spec = RunSpec.from_mapping({"agents": scale.PARTIES, "strategy": name, **given})
        assert spec.run.strategy == name


def test_messages_are_counted_by_what_they_hold() -> None:
    # FTS's vector is M numbers of eight bytes; the rest of a message does not grow with M.
    rows = scale.axis(quick=True)
    measured = {row["M"]: row["FTS, measured"] for row in rows}
    assert measured[200] - measured[100] == pytest.approx(8 * 100 * 10 / 11, rel=0.01)
    assert measured[150] < 2 * 8 * 150
    assert [row["RGPE, posterior"] for row in rows] == [8 * (m + m * m) for m in measured]


def test_the_charts_of_reproduction_are_of_the_saved_runs() -> None:
    made = charts(FIGURES, Store(RESULTS))
    folder = DOCS / "evidence" / IMAGES
    assert {f.stem for f in folder.iterdir()} == set(made)
    for name, text in made.items():
        assert (folder / f"{name}.svg").read_text() == text, f"{name}: run `make reproduction`"
        assert ElementTree.fromstring(text).tag == f"{SVG}svg"
    linked = set(
        re.findall(rf"{IMAGES}/([\w-]+)\.svg", (DOCS / "evidence" / "reproduction.md").read_text())
    )
    assert linked == set(made)


def toy(plot: Any, curves: Mapping[str, Run]) -> Figure:
    one = Size(1)
    return Figure("toy", "Fig. 0", "a < b", curves, [checks.least(next(iter(curves)), [])],
                  {"quick": one, "medium": one, "full": one}, measure="end", plot=plot)  # fmt: skip


def shapes(text: str) -> tuple[list[str], list[list[float]], list[str]]:
    """Classes of the curves, their heights in the file, and all labels."""
    root = ElementTree.fromstring(text)
    lines = list(root.iter(f"{SVG}polyline"))
    heights = [[float(p.split(",")[1]) for p in e.attrib["points"].split()] for e in lines]
    return (
        [e.attrib["class"] for e in lines],
        heights,
        [e.text or "" for e in root.iter(f"{SVG}text")],
    )


def test_curves_are_means_over_seeds_by_iteration() -> None:
    runs = {"a": Run("federation", {"rounds": 40}), "b": Run("federation", {"rounds": 40})}
    results = {
        "a": [{"curve": [4.0, 0.0]}, {"curve": [0.0, 0.0]}], "b": [{"curve": [2.0, 1.0]}] * 2,
    }  # fmt: skip
    text = drawn(toy("curves", runs), runs, results)
    assert text is not None
    classes, heights, labels = shapes(text)
    assert classes == [f"line {style(0)}", f"line {style(1)}"]
    assert heights[0][0] == heights[1][0]  # 2 at the start, both
    assert heights[0][1] > heights[1][1]  # downwards in the file
    assert {"a", "b", "iterations", "regret", "40"} <= set(labels)


def test_private_settings_are_drawn_by_epsilon_in_families() -> None:
    runs = {x: Run("federation", {"rounds": 4}) for x in ("TS", "q=1 z=1", "q=1 z=2", "q=.5 z=1")}
    epsilons = {"TS": None, "q=1 z=1": 8.0, "q=1 z=2": 4.0, "q=.5 z=1": 2.0}
    results = {x: [{"curve": [0.0, 1.0 + (e or 0.0)], "epsilon": e}] for x, e in epsilons.items()}
    text = drawn(toy("privacy", runs), runs, results)
    assert text is not None
    classes, heights, labels = shapes(text)
    assert {"q=1", "z=1", "TS", "epsilon"} <= set(labels)
    assert [len(h) for h in heights] == [2, 1, 2]
    assert heights[0][0] > heights[0][1]  # from the smaller epsilon to the larger
    assert heights[2][0] == heights[2][1]  # a level
    assert len(set(classes)) == 3


def test_a_figure_that_is_no_chart_is_not_drawn() -> None:
    runs = {"a": Run("shape", {})}
    assert drawn(toy("nothing", runs), runs, {"a": [{"value": 1.0}]}) is None


def test_the_page_of_the_agent_says_what_the_saved_runs_say() -> None:
    from benchmarks import agent

    page = agent.PAGE.read_text()
    assert agent.written(page) == page, "run `python -m benchmarks.agent page`"
    for name, (_, parties, length, _) in agent.FEDERATIONS.items():
        for row in agent.known(name):
            assert row["seed"] >= agent.FIRST_SEED
            assert np.shape(row["regret"]) == (parties, len(row["at"]))
            assert max(row["failed"]) <= row["evaluations"] == length
