"""The evidence's own machinery: guards fail when something is slow, verdicts follow the rule."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import guard, scale
from benchmarks.ratios import Ratio, turns
from benchmarks.reproduce import checks, probes
from benchmarks.reproduce.__main__ import FIGURES, RESULTS, Progress, chosen, listing, missing
from benchmarks.reproduce.figures import SIZES, Figure, Run, Size
from benchmarks.reproduce.reasons import REASONS, Reason, section
from benchmarks.reproduce.store import Store, thinned
from benchmarks.reproduce.table import last, page
from flwr_fbo.clients import tuning_client as base
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.models import gp
from flwr_fbo.models.gp import Path as SampledPath
from flwr_fbo.search import acquisition

ROOT = Path(__file__).parents[1]


# ------------------------------------------------------------------ guards


def failed(section: Any) -> list[str]:
    return [found.name for found in section() if not found.holds]


def test_a_loop_over_agents_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = WeightedSum._add

    def one_by_one(self: Any, weights: Any, vectors: Any) -> None:
        for i in range(len(vectors)):
            whole(self, weights[:, i : i + 1], vectors[i : i + 1])

    monkeypatch.setattr(WeightedSum, "_add", one_by_one)
    assert failed(guard.server) == [
        "calls of the private sum of 8,192 vectors",
        "private sum over plain numpy",
    ]


def test_a_loop_over_candidates_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SampledPath.scan

    def one_by_one(self: Any, x: Any, regions: Any = None) -> Any:
        rows = [None if regions is None else regions[i : i + 1] for i in range(len(x))]
        return np.concatenate([whole(self, x[i : i + 1], r) for i, r in enumerate(rows)])

    monkeypatch.setattr(SampledPath, "scan", one_by_one)
    assert "calls of a query on advice" in failed(guard.agent)


def test_a_cubic_wall_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gp, "WEIGHT_SPACE_FROM", 10**9)
    assert failed(guard.agent) == ["query with 4,800 observations over 300 (cubic: 4,096)"]


def test_a_setup_that_is_read_for_every_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(OrderedDict[str, Any]):
        def __contains__(self, key: object) -> bool:
            return False

    monkeypatch.setattr(base, "_setups", Forgetful())
    assert failed(guard.shell) == ["calls of a message there and back, random search"]


def test_what_is_now_passes() -> None:
    assert acquisition.CANDIDATES == 1000  # the counts are for the papers' number of candidates
    assert failed(guard.search) == []
    assert failed(guard.shell) == []


# ------------------------------------------------------------------ reproduction


def test_every_figure_is_listed_once_with_three_sizes() -> None:
    names = [figure.name for figure in FIGURES]
    assert len(names) == len(set(names))
    for figure in FIGURES:
        assert set(figure.sizes) == set(SIZES)
        assert figure.curves
        assert figure.checks
        assert figure.sizes["full"].seeds >= figure.sizes["medium"].seeds
        assert not figure.sizes["full"].smaller
    listed = {name.partition("-")[0] for name in names}
    assert listed == {"dp", "fts", "ldp", "fed"}
    # DP-FTS-DE 2a-d, 3a-f, 4-12; FTS 1-7; LDP-BO 2; Fed-PNE 2-8
    for prefix in [
        *[f"dp-fts-de-2{x}" for x in "abcd"], *[f"dp-fts-de-3{x}" for x in "abcdef"],
        *[f"dp-fts-de-{n}" for n in range(4, 13)], *[f"fts-{n}" for n in range(1, 8)],
        "ldp-bo-2", *[f"fed-pne-{n}" for n in range(2, 9)],
    ]:  # fmt: skip
        assert any(name.startswith(prefix) for name in names), prefix


def figure_of(*checked: checks.Check) -> Figure:
    runs = {"a": Run("federation", {"rounds": 1}), "b": Run("federation", {"rounds": 2})}
    sizes = {"quick": Size(2), "medium": Size(4), "full": Size(8)}
    return Figure("toy", "Fig. 0", "a is below b", runs, checked, sizes)  # type: ignore[arg-type]


def results(a: list[float], b: list[float]) -> dict[str, list[dict[str, Any]]]:
    return {"a": [{"curve": [v]} for v in a], "b": [{"curve": [v]} for v in b]}


def test_below_needs_an_interval_that_is_clear_of_zero() -> None:
    below = checks.below("a", "b")
    clear = results([1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 2.0, 1.9])
    assert figure_of(below).verdict(clear)[0] == "holds"
    noisy = results([1.0, 3.0, 0.9, 1.0], [2.0, 2.1, 2.0, 1.9])
    assert figure_of(below).verdict(noisy)[0] == "not reproduced"
    assert figure_of(below).verdict(results([1.0], [2.0]))[0] == "not reproduced"  # one seed
    # -1, -1.1, -.9, -1: mean -1, t(3, .975) = 3.182, error .0408: [-1.13, -.87]
    mean, low, high = checks.interval(np.array([-1.0, -1.1, -0.9, -1.0]))
    assert (mean, low, high) == pytest.approx((-1.0, -1.1299, -0.8701), abs=1e-3)


def test_an_undecided_check_says_how_many_seeds_would_tell() -> None:
    def evidence(a: list[float]) -> str:
        (found,) = figure_of(checks.below("a", "b")).verdict(results(a, [0.0] * len(a)))[1]
        return found.evidence

    # -1, 3, -2, 0, -1: mean -.2, deviation 1.924: (1.96 x 1.924 / .2)^2 = 355
    assert evidence([-1.0, 3.0, -2.0, 0.0, -1.0]).endswith("; about 360 seeds would tell")
    assert evidence([-1.0, 3.0, -2.0, 0.0, -0.001]).endswith("; over 1,000 seeds would tell")
    assert evidence([-1.0, -0.5]).endswith("; about 3 seeds would tell")  # more than there are
    assert "would tell" not in evidence([-1.0, -1.1, -0.9, -1.0])
    assert "would tell" not in evidence([1.0, 1.1, 0.9, 1.0])  # the other way round is told
    assert "would tell" not in evidence([0.0, 0.0])


def test_a_verdict_counts_what_holds() -> None:
    values = results([1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 2.0, 1.9])
    mixed = figure_of(checks.below("a", "b"), checks.below("b", "a"))
    verdict, findings = mixed.verdict(values)
    assert verdict == "holds in part"
    assert [f.holds for f in findings] == [True, False]
    assert figure_of(checks.below("b", "a")).verdict(values)[0] == "not reproduced"


def by_round(check: checks.Check, a: list[float], b: list[float]) -> str:
    """Yes, or why not."""
    (found,) = figure_of(check).verdict(results(a, b))[1]
    return "yes" if found.holds else found.why


def test_comparable_means_that_the_interval_lies_within_a_quarter() -> None:
    ones = [1.0, 1.0, 1.0, 1.0]
    comparable = checks.comparable("a", "b")
    # t(3, .975) = 3.182: of +-.1 around a difference of 0 the interval ends at 3.182 x .1155 / 2
    assert by_round(comparable, [1.1, 0.9, 1.1, 0.9], ones) == "yes"
    assert by_round(comparable, [1.2, 0.8, 1.2, 0.8], ones) == "undecided"  # .37
    assert by_round(comparable, [1.2, 1.2, 1.2, 1.21], ones) == "yes"  # not equal, but near
    assert by_round(comparable, [2.0, 2.1, 2.0, 1.9], ones) == "they differ"
    assert by_round(comparable, [1.0], [1.0]) == "undecided"  # one seed tells nothing


def test_not_above_means_that_the_interval_ends_within_a_quarter() -> None:
    ones = [1.0, 1.0, 1.0, 1.0]
    not_above = checks.not_above("a", "b")
    assert by_round(not_above, [0.1, 0.5, 0.1, 0.5], ones) == "yes"
    assert by_round(not_above, [1.1, 0.9, 1.1, 0.9], ones) == "yes"
    assert by_round(not_above, [1.2, 0.8, 1.2, 0.8], ones) == "undecided"
    assert by_round(not_above, [1.5, 1.6, 1.5, 1.6], ones) == "it is above"
    assert by_round(not_above, [0.1], [1.0]) == "undecided"


def test_orders_and_bests_need_intervals_that_are_clear_of_zero() -> None:
    twos = [2.0, 2.1, 2.0, 1.9]
    for check in (checks.ordered("a", "b"), checks.least("a", ["b"])):
        assert by_round(check, [1.0, 1.1, 0.9, 1.0], twos) == "yes"
        assert by_round(check, [1.0, 3.0, 0.9, 1.0], twos) == "undecided"
        assert by_round(check, [1.0], [2.0]) == "undecided"
    assert by_round(checks.ordered("b", "a"), [1.0, 1.1, 0.9, 1.0], twos) == "another order"
    assert by_round(checks.least("b", ["a"]), [1.0, 1.1, 0.9, 1.0], twos) == "another is best"


def test_a_middle_one_is_best_only_where_it_is_ahead_of_both_ends() -> None:
    def found(*levels: float) -> str:
        numbers = {x: np.array([v, v + 0.1, v - 0.1]) for x, v in zip("xyz", levels, strict=True)}
        made = checks.inside("x", "y", "z")(numbers, {})
        return "yes" if made.holds else made.why

    assert found(2.0, 1.0, 3.0) == "yes"
    assert found(1.0, 2.0, 3.0) == "an end is best"
    numbers = {"x": np.array([2.0, 0.9]), "y": np.array([1.0, 1.0]), "z": np.array([3.0, 3.1])}
    assert checks.inside("x", "y", "z")(numbers, {}).why == "undecided"


def test_printed_numbers() -> None:
    told = {"a": [{"curve": [0.0], "epsilon": 5.934}], "b": [{"curve": [0.0], "epsilon": None}]}
    printed = figure_of(checks.prints("a", "epsilon", 5.93), checks.prints("b", "epsilon", 1.0))
    assert [f.holds for f in printed.verdict(told)[1]] == [True, False]


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
    row = "a is below b | a: 1 +- 0; b: 2 +- 0 | medium, 3 seeds | holds |"
    assert f"| [Fig. 0](images/reproduction/toy.svg) | {row}" in page([figure], store)


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


def test_a_target_with_a_fast_schedule_follows_others_less_than_once() -> None:
    # p_1 = p_2: 1/4 + 1/4 + 1/9 + 1/16
    found = probes.follows({"schedule": "1-1/t^2", "rounds": 4}, 0)
    assert found["value"] == pytest.approx(1 / 4 + 1 / 4 + 1 / 9 + 1 / 16)


def test_names_are_found_by_prefix_and_unknown_ones_refused() -> None:
    assert [f.name for f in chosen(["fts-1a"])] == ["fts-1a"]
    assert len(chosen(["ldp-bo"])) == 6
    assert chosen(["all"]) == FIGURES
    with pytest.raises(SystemExit, match="no figure is called 'fig-99'"):
        chosen(["fig-99"])
    absent = Figure("toy", "", "", {}, [], {}, needs=("no_such_package",))
    assert missing(absent) == ["no_such_package"]


def test_the_page_says_what_the_saved_runs_say() -> None:
    store = Store(RESULTS)
    assert (ROOT / "docs" / "reproduction.md").read_text() == page(FIGURES, store)
    entries = json.loads(json.dumps(listing(store)))
    assert {entry["name"] for entry in entries} == {figure.name for figure in FIGURES}
    assert any(entry["verdict"] for entry in entries)


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


# ------------------------------------------------------------------ ratios


def test_a_ratio_is_that_of_the_middle_turn() -> None:
    # One slow turn of theirs and one of ours, and a machine half as fast in the fourth.
    found = [(1.1, 1.0), (1.2, 4.0), (5.0, 1.0), (2.4, 2.0), (1.25, 1.0)]
    ratio = Ratio("x", found, "ms", 1.25)
    assert ratio.value == pytest.approx(1.2)
    assert ratio.spread == pytest.approx([0.3, 5.0])
    saved = ratio.to_dict()
    assert (saved["ours"], saved["theirs"], saved["turns"]) == (2.4, 2.0, 5)
    assert ratio.outcome == "met"
    assert Ratio("x", found, "ms", 1.19).outcome == "MISSED"
    assert Ratio("x", found, "ms").outcome == "-"


def test_sides_begin_in_turn_and_the_first_turn_is_not_counted() -> None:
    order: list[str] = []
    found = turns(lambda i: order.append(f"ours {i}"), lambda i: order.append(f"theirs {i}"), 2)
    assert order == ["ours 0", "theirs 0", "theirs 1", "ours 1", "ours 2", "theirs 2"]
    assert len(found) == 2


# ------------------------------------------------------------------ scale


def test_a_tree_of_aggregators_gives_the_flat_sum() -> None:
    (row,) = scale._hierarchy(quick=True)  # asserts equality to the last bit itself
    assert row["leaf aggregators"] == 100
