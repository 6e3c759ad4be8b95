"""The papers' figures, run again: runs are kept, and the page follows from them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.reproduce import checks, own, probes
from benchmarks.reproduce.__main__ import FIGURES, RESULTS, Progress, chosen, listing, missing
from benchmarks.reproduce.figures import Figure, Run, Size
from benchmarks.reproduce.reasons import REASONS, Reason, section
from benchmarks.reproduce.store import Store, thinned
from benchmarks.reproduce.table import last, page, word_of
from flwr_fbo.core.evaluation import Evaluation
from tests.test_reproduction_checks import figure_of

ROOT = Path(__file__).parents[1]


def test_a_run_is_made_once_and_survives_a_torn_line(tmp_path: Path) -> None:
    made: list[int] = []

    def work(run: Run, seed: int) -> dict[str, Any]:
        made.append(seed)
        return {"curve": [1 / 3, np.float64(0.5)]}

    run = Run("federation", {"rounds": 1})
    first = Store(tmp_path).make(run, 100, work)
    assert first == {"curve": [0.333333, 0.5]}
    with (tmp_path / "federation.jsonl").open("a") as file:
        file.write('{"run": "torn')
    again = Store(tmp_path)
    assert again.make(run, 100, work) == first
    assert again.get(run.with_(rounds=2), 100) is None
    assert made == [100]
    again.make(run, 101, work)  # not onto the torn line
    assert Store(tmp_path).get(run, 101) == first
    lines = (tmp_path / "federation.jsonl").read_text().splitlines()
    described = [json.loads(line) for line in lines if "settings" in line]
    assert [(line["kind"], line["settings"]) for line in described] == [
        ("federation", {"rounds": 1})  # once for all its seeds
    ]
    assert [json.loads(line)["seed"] for line in lines if "cpu_seconds" in line] == [100, 101]


def test_of_a_long_curve_its_shape_its_mean_and_its_end_are_kept() -> None:
    curve = [1.0 / (t + 1) for t in range(101)]
    kept = thinned({"curve": curve, "epsilon": 2.0})
    assert len(kept["curve"]) == 9
    assert (kept["curve"][0], kept["curve"][-1]) == (curve[0], curve[-1])
    assert kept["epsilon"] == 2.0
    for measure in ("mean", "end"):
        figure = replace(figure_of(checks.below("a", "b")), measure=measure)
        assert figure.number(kept) == pytest.approx(figure.number({"curve": curve}), rel=1e-12)
    assert thinned({"curve": curve[:9]}) == {"curve": curve[:9]}  # short ones are kept whole


def test_a_size_replaces_what_a_run_has_and_adds_what_it_says_besides() -> None:
    runs = {
        "a": Run("federation", {"rounds": 9, "agents": 5}),
        "b": Run("federation", {"agents": 5}),
    }
    sizes = {
        "quick": Size(1, {"rounds": 1}, {"epochs": 1}), "medium": Size(1, {"rounds": 2}),
        "full": Size(1),
    }  # fmt: skip
    figure = replace(figure_of(), curves=runs, sizes=sizes)
    assert [run.settings for run in figure.runs("quick").values()] == [
        {"rounds": 1, "agents": 5, "epochs": 1}, {"agents": 5, "epochs": 1},
    ]  # fmt: skip
    assert [run.settings for run in figure.runs("medium").values()] == [
        {"rounds": 2, "agents": 5}, {"agents": 5},
    ]  # fmt: skip
    assert figure.runs("full") == runs


def test_quick_runs_prove_nothing(tmp_path: Path) -> None:
    figure, store = figure_of(checks.below("a", "b")), Store(tmp_path)
    assert last(figure, store) is None
    for seed in (100, 101, 102):
        for label, run in figure.runs("medium").items():
            store.make(run, seed, lambda run, seed, x=label: {"curve": [1.0 if x == "a" else 2.0]})
    found = last(figure, store)
    assert found is not None
    assert (found.size, found.seeds, found.verdict) == ("medium", 3, "holds")
    shown = page([figure], store)
    row = "a is below b | holds | medium, 3 seeds |"
    assert f"| [Fig. 0](images/reproduction/toy.svg) | {row}" in shown
    assert "| a | 1 +- 0 | - |\n| b | 2 +- 0 | - |" in shown


def test_every_figure_that_does_not_hold_has_a_reason_that_was_measured() -> None:
    store = Store(RESULTS)
    for figure in FIGURES:
        found = last(figure, store)
        reasons = [reason for reason in REASONS if reason.explains(figure)]
        assert len(reasons) <= 1, figure.name
        if found is not None and found.verdict != "holds":
            assert reasons, figure.name
    for reason in REASONS:
        for run in reason.rows.values():
            for seed in reason.seeds_of_runs:
                assert store.get(run, seed) is not None, (reason.title, run, seed)


def test_a_reason_shows_its_measurements_or_none(tmp_path: Path) -> None:
    runs = {"one": Run("follows", {"rounds": 1}), "two": Run("follows", {"rounds": 2})}
    columns = {"value": "value", "noise": "noise", "start": "start"}
    reason = Reason("Because", ("toy",), "It is so.", runs, columns, 2)
    store = Store(tmp_path)
    assert section(reason, store) == ["**Because** (`toy`).", "It is so. Of 2 seeds.", ""]
    values = iter([1.0, 3.0, 5.0, 5.0])
    for run in runs.values():
        for seed in reason.seeds_of_runs:
            noise = 0.5 if run is runs["one"] else None
            made = {"value": next(values), "noise": noise, "curve": [9.0, 1.0]}
            store.make(run, seed, lambda run, seed, made=made: made)
    assert section(reason, store)[3:] == [
        "|  | value | noise | start |",
        "|---|---|---|---|",
        "| one | 2 +- 1.4 | 0.5 +- 0 | 9 +- 0 |",
        "| two | 5 +- 0 | - | 9 +- 0 |",
        "",
    ]


def test_advice_is_compared_with_own_points_round_by_round() -> None:
    """What is chosen by others is better in round 1 and worse in round 2."""

    def history(*told: tuple[int, str, float]) -> list[Evaluation]:
        return [
            Evaluation(round=r, play=0, params={}, unit=[0.0], score=0.0, source=s, regret=e)
            for r, s, e in told
        ]

    one = history((0, "initial", 0.9), (1, "own", 0.5), (2, "advice", 0.6))
    two = history((0, "initial", 0.2), (1, "advice", 0.0), (2, "own", 0.2))
    three = history((0, "initial", 0.8), (2, "advice", 0.6))
    points = probes.by_source([one, two, three])
    assert np.array(points[2, "advice"]) == pytest.approx(np.array([[0.6, 0.0], [0.6, 0.2]]))
    # Both rounds count once, as their fewer points are one each.
    assert probes.compared(points) == pytest.approx(
        {
            "own": (0.5 + 0.2) / 2, "advised": (0.0 + 0.6) / 2,
            "own-gain": (0.4 + 0.0) / 2, "advised-gain": (0.2 + 0.1) / 2,
        }
    )  # fmt: skip


def test_where_sharing_pays_is_told_by_parties_and_rounds() -> None:
    def runs(*ends: float) -> list[dict[str, Any]]:
        return [{"curve": [1.0, end]} for end in ends]

    results = {"TS N=5": runs(0.5, 0.6, 0.7), "FTS-DE N=5": runs(0.4, 0.5, 0.61),
               "TS N=9": runs(0.5, 0.6, 0.7), "FTS-DE N=9": runs(0.4, 0.9, 0.1)}  # fmt: skip
    assert own.paying(results) == [
        "| after round | 0 | 20 |", "|---|---|---|",
        "| N=5 | +0.0000 | -0.0967* |", "| N=9 | +0.0000 | -0.1333 |", "",
    ]  # fmt: skip


def test_a_target_with_a_fast_schedule_follows_others_less_than_once() -> None:
    # p_1 = p_2: 1/4 + 1/4 + 1/9 + 1/16
    found = probes.follows({"schedule": "1-1/t^2", "rounds": 4}, 0)
    assert found["value"] == pytest.approx(1 / 4 + 1 / 4 + 1 / 9 + 1 / 16)


def test_names_are_found_by_prefix_and_unknown_ones_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [f.name for f in chosen(["fts-1a"])] == ["fts-1a"]
    assert len(chosen(["ldp-bo"])) == 12
    assert chosen(["all"]) == FIGURES
    with pytest.raises(SystemExit, match="2"):
        chosen(["fig-99"])
    assert "no figure is called 'fig-99'" in capsys.readouterr().err
    absent = Figure("toy", "", "", {}, [], {}, needs=("no_such_package",))
    assert missing(absent) == ["no_such_package"]


def test_the_page_says_what_the_saved_runs_say() -> None:
    store = Store(RESULTS)
    assert (ROOT / "docs" / "evidence" / "reproduction.md").read_text() == page(FIGURES, store)
    entries = json.loads(json.dumps(listing(store)))
    assert {entry["name"] for entry in entries} == {figure.name for figure in FIGURES}
    assert any(entry["verdict"] for entry in entries)


def test_the_lessons_name_the_verdicts_of_the_saved_runs() -> None:
    store, named = Store(RESULTS), {figure.name: figure for figure in FIGURES}
    text = (ROOT / "docs" / "evidence" / "lessons.md").read_text().replace("\n", " ")
    cited = re.findall(r"`([\w-]+)`: (holds in part|holds|contradicted|cannot be decided)", text)
    assert len(cited) > 20
    for name, verdict in cited:
        assert word_of(named[name], last(named[name], store)) == verdict, name
    assert len(text.split()) <= 900


@pytest.mark.parametrize("name", ["fed-pne-6a", "fts-1a"])
def test_a_figure_runs_quickly_and_is_resumed(name: str, tmp_path: Path) -> None:
    from benchmarks.reproduce.__main__ import reproduce

    (figure,) = chosen([name])
    reproduce(figure, "quick", 2, Store(tmp_path))
    (file,) = tmp_path.iterdir()
    written = file.read_text()
    assert len(written.splitlines()) == 3 * len(figure.curves)  # two seeds, and what it is
    reproduce(figure, "quick", 2, Store(tmp_path))
    assert file.read_text() == written


def test_a_figure_that_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    start = heard + "from flwr_fbo.cli.main import main; main()"  # CI may have told us to ignore it
    command = [sys.executable, "-c", start, "reproduce", "ldp-bo-2a", "--out", str(tmp_path)]
    running = subprocess.Popen(
        command, cwd=ROOT, text=True, stderr=subprocess.PIPE, start_new_session=True
    )
    file = tmp_path / "learner.jsonl"
    deadline = time.monotonic() + 120
    while not file.exists() or file.read_text().count("cpu_seconds") < 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "what was made is kept, the same command goes on" in told
    assert "Traceback" not in told
    kept = file.read_text()
    figure, store = chosen(["ldp-bo-2a"])[0], Store(tmp_path)
    first = next(iter(figure.runs("full").values()))
    again = store.make(first, 100, lambda run, seed: pytest.fail("made again"))
    assert again == store.get(first, 100)
    assert file.read_text() == kept


def test_progress_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 10.0, 61.0, 61.0, 90.0])
    monkeypatch.setattr("benchmarks.reproduce.__main__.time.monotonic", lambda: next(now))
    with Progress("toy", 3) as progress:
        for what in ("a, seed 100", "a, seed 101", "b, seed 100"):
            progress(what)
    assert capsys.readouterr().err == "toy: run 2 of 3, a, seed 101\n"


def test_progress_makes_way_in_a_terminal_also_when_a_run_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with suppress(OSError), Progress("toy", 3) as progress:
        progress("a, seed 100")
        raise OSError("no such file")
    drawn, wiped = capsys.readouterr().err.split("\r")[1:3]
    assert drawn.rstrip() == "toy: run 1 of 3, a, seed 100"
    assert wiped == " " * len(drawn)


def test_the_command_line_reaches_the_figures() -> None:
    start = "from flwr_fbo.cli.main import main; main()"
    command = [sys.executable, "-c", start, "reproduce", "--list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert {entry["name"] for entry in json.loads(done.stdout)} == {f.name for f in FIGURES}
