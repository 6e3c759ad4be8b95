"""Evaluations saved and differences to baselines, by hand and through a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from flwr_fbo import DPFTSDE, Categorical, Float, Int, Result, simulate, task
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.comparison import Difference, Saving, compare, folder_of
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.summary import along_text, saved_text, score_table, summary, verdict_text


def history(*scores: float | None) -> list[Evaluation]:
    return [Evaluation(i, 0, {"x": 0.5}, [0.5], score) for i, score in enumerate(scores)]


@task(space={"x": Float(0.0, 1.0), "k": Int(1, 8), "c": Categorical(["a", "b"])})
def hill(params: Any) -> float:
    return 1.0 - (float(params["x"]) - 0.3) ** 2 - 0.1 * (params["c"] == "b")


class TestByHand:
    def test_evaluations_to_the_score_that_both_reach(self) -> None:
        # Means of the best so far: ours 1, 3, 3, 3; theirs 0, 1, 1, 2. Both reach 2.
        saving = compare(
            [history(1, 3, 0, 0), history(1, 3, 3, 0)], [history(0, 1, 1, 2), history(0, 1, 1, 2)]
        )
        assert saving is not None
        assert (saving.score, saving.ours, saving.theirs) == (2.0, 2, 4)
        assert saving.text == "2 instead of 4"
        assert (saving.agents, saving.won, saving.lost) == (2, 2, 0)

    def test_a_baseline_that_got_there_early_is_not_charged_for_the_rest(self) -> None:
        saving = compare([history(0, 2, 5)], [history(0, 2, 2)])
        assert saving is not None
        assert (saving.ours, saving.theirs) == (2, 2)

    def test_a_run_that_is_behind_says_so(self) -> None:
        saving = compare([history(0, 1, 2)], [history(2, 3, 3)])
        assert saving is not None
        assert (saving.score, saving.ours, saving.theirs) == (2.0, 3, 1)
        assert "3 evaluations instead of 1" in saved_text({"alone": saving})

    def test_what_was_saved_is_one_sentence(self) -> None:
        zero = Difference(0.0, 0.0, 0.0)
        fewer = Saving(1.0, 9, 22, zero, zero, 3, 1, 1)
        same = replace(fewer, theirs=9)
        start = "The same score came after "
        for savings, words in (
            ({}, ""),
            ({"alone": fewer}, f"{start}9 evaluations instead of 22 (alone)."),
            ({"alone": same, "tpe": same}, f"{start}as many evaluations as alone and tpe."),
            (
                {"alone": same, "tpe": fewer, "random": fewer},
                f"{start}9 evaluations instead of 22 (tpe) and 9 instead of 22 (random), and after "
                "as many as alone.",
            ),
        ):
            assert saved_text(savings) == words

    def test_the_interval_is_students_over_the_agents(self) -> None:
        gains = np.array([0.1, 0.3, 0.2, -0.1])
        saving = compare([history(g) for g in gains], [history(0.0)] * 4)
        assert saving is not None
        expected = stats.ttest_1samp(gains, 0.0).confidence_interval(0.95)
        assert saving.at_end.mean == pytest.approx(gains.mean())
        assert (saving.at_end.low, saving.at_end.high) == pytest.approx(tuple(expected))
        assert saving.over_run == saving.at_end  # with one evaluation there is nothing else

    def test_failures_count_as_evaluations_and_have_no_score(self) -> None:
        saving = compare([history(None, 1.0)], [history(0.5, None)])
        assert saving is not None
        assert (saving.ours, saving.theirs) == (2, 1)
        # Over the run, only evaluation 2 has a score in both.
        assert saving.over_run.mean == pytest.approx(0.5)

    def test_agents_without_a_score_in_both_runs_are_left_out(self) -> None:
        saving = compare([history(1.0), history(None)], [history(0.0), history(5.0)])
        assert saving is not None
        assert saving.agents == 1
        assert saving.at_end == Difference(1.0)
        assert compare([history(None)], [history(1.0)]) is None
        assert compare([], []) is None

    @pytest.mark.parametrize(
        ("low", "high", "verdict"),
        [(0.1, 0.3, "better"), (-0.3, -0.1, "worse"), (-0.1, 0.3, "unclear"), (0, 0, "equal"),
         (None, None, "unclear")],
    )  # fmt: skip
    def test_a_verdict_needs_an_interval_without_zero(
        self, low: Any, high: Any, verdict: str
    ) -> None:
        difference = Difference(0.1 if low else 0.0, low, high)
        assert difference.verdict == verdict
        saving = Saving(1.0, 1, 1, difference, difference, 3, 1, 1)
        said = verdict_text({"alone": saving})
        assert ("clearly" in said.lower()) == (verdict in ("better", "worse"))
        assert ("clearly" in along_text({"alone": saving}).lower()) == (
            verdict in ("better", "worse")
        )

    def test_folders_of_labels_differ_and_are_no_paths(self) -> None:
        labels = ["a", "a/b", "a b", "../a", "x" * 200, "x" * 200 + "y"]
        folders = [folder_of(label) for label in labels]
        assert not any("/" in folder for folder in folders)
        assert len(set(folders[-2:])) == 2


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return simulate(
        hill,
        agents=4,
        rounds=5,
        seed=3,
        epsilon=4.0,
        compare=["alone", "tpe startup-trials=3", "random", DPFTSDE(epsilon=2.0)],
        run_dir=tmp_path_factory.mktemp("compared") / "run",
    )


class TestInARun:
    def test_every_baseline_has_equal_evaluations_and_its_saving(self, compared: Result) -> None:
        labels = {"alone", "tpe startup-trials=3", "random", "dp-fts-de epsilon=2.0"}
        assert set(compared.compared) == set(compared.savings) == labels
        for name, other in compared.compared.items():
            assert other.history.evaluations == compared.history.evaluations, name
            folder = Path(compared.run_dir) / "compare" / folder_of(name)
            again = compare(
                read_evaluations(Path(compared.run_dir) / "agents", 4),
                read_evaluations(folder / "agents", 4),
            )
            assert again == compared.savings[name]
        epsilon = compared.compared["dp-fts-de epsilon=2.0"].epsilon
        assert epsilon is not None
        assert epsilon <= 2.0

    def test_the_file_holds_what_python_has(self, compared: Result) -> None:
        stored = json.loads((Path(compared.run_dir) / "result.json").read_text())
        assert set(stored["savings"]) == set(compared.savings)
        saving = compared.savings["random"]
        assert stored["savings"]["random"]["ours"] == saving.ours
        assert stored["savings"]["random"]["theirs"] == saving.theirs
        assert Result.read(compared.run_dir) == compared

    def test_alone_is_the_same_agent_without_the_others(self, compared: Result) -> None:
        root = Path(compared.run_dir)
        mine = json.loads((root / "config.json").read_text())
        alone = json.loads((root / "compare" / "alone" / "config.json").read_text())
        for key in ("acquisition", "kernel", "refit-every", "first-point", "advice-use"):
            assert alone[key] == mine[key], key
        # The same seed draws the same first points, before anything was shared.
        first = read_evaluations(root / "agents", 4)
        there = read_evaluations(root / "compare" / "alone" / "agents", 4)
        for ours, theirs in zip(first, there, strict=True):
            assert [e.unit for e in ours[:2]] == [e.unit for e in theirs[:2]]
        assert not (root / "compare" / "alone" / "releases").exists()

    def test_a_tired_person_reads_the_table(self, compared: Result) -> None:
        text = summary(compared)
        assert str(compared) == text
        assert len(repr(compared)) < 120
        for words in ("evaluations to", "the same score", "95 % interval", "at the end",
                      "saved", "privacy", "epsilon 4.0", "next", "flwr-fbo report"):  # fmt: skip
            assert words in text, words
        rows = score_table(compared)
        for name, saving in compared.savings.items():
            (row,) = [line for line in rows if line.strip().startswith(name)]
            assert saving.text in row
            assert str(saving.at_end) in row

    @pytest.mark.parametrize("columns", [80, 90])
    def test_the_summary_fits_into_a_narrow_terminal(self, compared: Result, columns: int) -> None:
        """Commands and paths are not broken, so that they can be copied; nothing is left out."""
        lines = summary(compared, columns).splitlines()
        last = next(k for k, line in enumerate(lines) if line.startswith("  files"))
        before, after = lines[:last], lines[last:]
        assert max(len(line) for line in before) < columns
        assert after == summary(compared).splitlines()[-len(after) :]
        for name, saving in compared.savings.items():
            scores, differences = (line for line in before if line.startswith(f"  {name} "))
            assert saving.text in scores
            assert str(saving.at_end) in differences
            assert str(saving.over_run) in differences

    def test_a_wide_terminal_has_the_table_of_a_file(self, compared: Result) -> None:
        assert score_table(compared, 130) == score_table(compared)

    def test_a_single_run_says_how_to_compare(self, tmp_path: Path) -> None:
        result = simulate(hill, agents=2, rounds=1, run_dir=tmp_path / "run")
        assert result.savings == {}
        assert "--compare alone,random" in summary(result)
        # A reader in Python gets a call; in an app there is nothing to compare with.
        assert 'simulate(..., compare=["alone", "random"])' in str(result)
        assert "--compare" not in str(result)
        assert "compare" not in summary(result, comparing="")


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ("ranodm", "did you mean `random`"),
        ("random startup-trials=2", "unknown setting of random"),
        ("dp-fts-de epsilon", "key=value"),
        ("dp-fts-de epsilon=-1", "`epsilon` must be > 0"),
    ],
)
def test_a_mistake_in_a_baseline_is_told_before_anything_is_made(
    tmp_path: Path, other: str, fault: str
) -> None:
    with pytest.raises(SettingsError, match=fault):
        simulate(hill, agents=2, compare=[other], run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_baselines_are_a_list_and_no_single_text(tmp_path: Path) -> None:
    """A text is a sequence of letters, of which none is the name of a baseline."""
    with pytest.raises(SettingsError, match=r"must be a list of names .* but got 'alone'"):
        simulate(hill, agents=2, compare="alone", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("agents", [150, 250, 5000])
def test_what_digits_cannot_be_divided_into_leaves_nothing_behind(
    tmp_path: Path, agents: int
) -> None:
    with pytest.raises(SettingsError, match=f"cannot be divided among {agents} agents"):
        simulate("digits", agents=agents, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_mistake_that_the_server_finds_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="`regions` must leave every"):
        simulate("synthetic", agents=2, regions=201, points=100, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # A directory that was there before is not removed.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(SettingsError, match="`regions` must leave every"):
        simulate("synthetic", agents=2, regions=201, points=100, run_dir=tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").exists()
