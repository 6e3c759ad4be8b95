"""The papers' figures, run again: a verdict follows from the measurements by the rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from benchmarks.reproduce import checks
from benchmarks.reproduce.__main__ import FIGURES, RESULTS
from benchmarks.reproduce.figures import SIZES, Figure, Run, Size
from benchmarks.reproduce.printed import DEFAULT, EFFECTS, Effect
from benchmarks.reproduce.store import Store, identity
from benchmarks.reproduce.table import last, left

ROOT = Path(__file__).parents[1]


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
    assert listed == {"dp", "fts", "ldp", "fed", "own"}
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


def test_below_is_held_against_zero_and_against_what_the_paper_claims() -> None:
    below = checks.below("a", "b")
    twos = [2.0, 2.0, 2.0, 2.0]  # the claim: a is at least .1 (a twentieth) below b
    assert outcome(below, [1.0, 1.1, 0.9, 1.0], twos) == "holds"
    # t(3, .975) = 3.182; of +-.01 the interval is .018 wide to either side: it leaves out -.1
    assert outcome(below, [2.01, 1.99, 2.01, 1.99], twos) == "contradicted"
    # +-.1: .184, which holds both 0 and -.1
    assert outcome(below, [2.1, 1.9, 2.1, 1.9], twos) == "cannot be decided"
    # Clear of zero, though less than claimed: the order is as the paper says.
    assert outcome(below, [1.97, 1.96, 1.97, 1.96], twos) == "holds"
    assert outcome(below, [3.0, 3.1, 2.9, 3.0], twos) == "contradicted"  # the other way round
    assert outcome(below, [1.0], [2.0]) == "cannot be decided"  # one seed
    # -1, -1.1, -.9, -1: mean -1, t(3, .975) = 3.182, error .0408: [-1.13, -.87]
    mean, low, high = checks.interval(np.array([-1.0, -1.1, -0.9, -1.0]))
    assert (mean, low, high) == pytest.approx((-1.0, -1.1299, -0.8701), abs=1e-3)


def test_an_axis_that_is_known_replaces_the_share() -> None:
    assert Effect("words", 0.1).of(-3.0) == pytest.approx(0.3)
    assert Effect("words", 0.1, units=0.005).of(3.0) == 0.005
    a, b = np.array([1.0, 1.03, 0.97]), np.ones(3)  # +-4.30 x .03 / sqrt(3) = .075
    assert checks.decide(a - b, Effect("words").of(1.0)) == "cannot be decided"
    assert checks.decide(a - b, Effect("words", units=0.2).of(1.0)) == "contradicted"


def test_a_check_that_cannot_be_decided_says_how_many_seeds_would_decide() -> None:
    def evidence(a: list[float]) -> str:
        (found,) = figure_of(checks.below("a", "b")).verdict(results(a, [1.0] * len(a)))[1]
        assert bool(found.seeds_needed) == (found.outcome == "cannot be decided")
        return found.evidence

    # Differences -1, 3, -2, 0, -1: mean -.2, deviation 1.924. To come clear of zero takes
    # (1.96 x 1.924 / .2)^2 = 355 seeds.
    assert evidence([0.0, 4.0, -1.0, 1.0, 0.0]).endswith("; about 360 seeds would decide")
    # Mean 0: the nearer end is then -.05, and (1.96 x 1.871 / .05)^2 = 5,378
    assert evidence([0.0, 4.0, -1.0, 1.0, 1.0]).endswith("; over 1,000 seeds would decide")
    assert evidence([0.0, 0.5]).endswith("; about 3 seeds would decide")  # more than there are
    assert "would decide" not in evidence([0.0, -0.1, 0.1, 0.0])
    assert "would decide" not in evidence([2.0, 2.1, 1.9, 2.0])


def test_a_verdict_counts_what_holds() -> None:
    values = results([1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 2.0, 1.9])
    mixed = figure_of(checks.below("a", "b"), checks.below("b", "a"))
    verdict, findings = mixed.verdict(values)
    assert verdict == "holds in part"
    assert [f.holds for f in findings] == [True, False]
    assert figure_of(checks.below("b", "a")).verdict(values)[0] == "contradicted"
    few = results([1.0], [2.0])
    assert figure_of(checks.below("b", "a")).verdict(few)[0] == "cannot be decided"
    # Data that are not available: whatever stands in their place decides nothing.
    closed = replace(figure_of(checks.below("a", "b")), obstacle="the data are not available")
    assert closed.verdict(values)[0] == "cannot be decided"


def outcome(check: checks.Check, a: list[float], b: list[float]) -> str:
    (found,) = figure_of(check).verdict(results(a, b))[1]
    return found.outcome


def test_comparable_means_that_the_interval_lies_within_a_quarter() -> None:
    ones = [1.0, 1.0, 1.0, 1.0]
    comparable = checks.comparable("a", "b")
    # t(3, .975) = 3.182: of +-.1 around a difference of 0 the interval ends at 3.182 x .1155 / 2
    assert outcome(comparable, [1.1, 0.9, 1.1, 0.9], ones) == "holds"
    assert outcome(comparable, [1.2, 0.8, 1.2, 0.8], ones) == "cannot be decided"  # .37
    assert outcome(comparable, [1.2, 1.2, 1.2, 1.21], ones) == "holds"  # not equal, but near
    assert outcome(comparable, [2.0, 2.1, 2.0, 1.9], ones) == "contradicted"
    assert outcome(comparable, [1.0], [1.0]) == "cannot be decided"  # one seed tells nothing


def test_not_above_means_that_the_interval_ends_within_a_quarter() -> None:
    ones = [1.0, 1.0, 1.0, 1.0]
    not_above = checks.not_above("a", "b")
    assert outcome(not_above, [0.1, 0.5, 0.1, 0.5], ones) == "holds"
    assert outcome(not_above, [1.1, 0.9, 1.1, 0.9], ones) == "holds"
    assert outcome(not_above, [1.2, 0.8, 1.2, 0.8], ones) == "cannot be decided"
    assert outcome(not_above, [1.5, 1.6, 1.5, 1.6], ones) == "contradicted"
    assert outcome(not_above, [0.1], [1.0]) == "cannot be decided"


def test_orders_and_bests_need_intervals_that_are_clear_of_zero() -> None:
    twos = [2.0, 2.1, 2.0, 1.9]
    for check in (checks.ordered("a", "b"), checks.least("a", ["b"])):
        assert outcome(check, [1.0, 1.1, 0.9, 1.0], twos) == "holds"
        assert outcome(check, [1.0, 3.0, 0.9, 1.0], twos) == "cannot be decided"
        assert outcome(check, [1.0], [2.0]) == "cannot be decided"
    assert outcome(checks.ordered("b", "a"), [1.0, 1.1, 0.9, 1.0], twos) == "contradicted"
    assert outcome(checks.least("b", ["a"]), [1.0, 1.1, 0.9, 1.0], twos) == "contradicted"


def test_neighbours_that_are_clearly_the_other_way_round_contradict_an_order() -> None:
    def found(*middle: float) -> str:
        numbers = {"x": np.array([1.0, 1.1, 0.9]), "y": np.array(middle),
                   "z": np.array([3.0, 3.1, 2.9])}  # fmt: skip
        return checks.ordered("x", "y", "z")(numbers, {}, Effect("words")).outcome

    assert found(2.0, 2.1, 1.9) == "holds"
    assert found(0.5, 0.6, 0.4) == "contradicted"  # the middle one is below the first
    assert found(0.8, 1.2, 0.9) == "cannot be decided"  # perhaps below it


def test_a_middle_one_is_best_only_where_it_is_ahead_of_both_ends() -> None:
    def found(*levels: float, spread: float = 0.1) -> str:
        off = np.array([[0.0, spread, -spread], [spread, 0.0, -spread], [0.0, -spread, spread]])
        numbers = {x: v + o for x, v, o in zip("xyz", levels, off, strict=True)}
        return checks.inside("x", "y", "z")(numbers, {}, Effect("words")).outcome

    assert found(2.0, 1.0, 3.0) == "holds"
    assert found(1.0, 2.0, 3.0) == "contradicted"
    assert found(2.0, 1.0, 3.0, spread=2.0) == "cannot be decided"


def test_one_of_several_is_enough_somewhere() -> None:
    either = checks.somewhere("one is", [checks.below("a", "b"), checks.below("b", "a")])
    assert outcome(either, [1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 2.0, 1.9]) == "holds"
    assert outcome(either, [1.0], [2.0]) == "cannot be decided"
    same = [2.0, 2.0, 2.0, 2.0]
    assert outcome(either, [2.001, 1.999, 2.0, 2.0], same) == "contradicted"


def test_printed_numbers() -> None:
    told = {"a": [{"curve": [0.0], "epsilon": 5.934}], "b": [{"curve": [0.0], "epsilon": None}]}
    printed = figure_of(checks.prints("a", "epsilon", 5.93), checks.prints("b", "epsilon", 1.0))
    assert [f.outcome for f in printed.verdict(told)[1]] == ["holds", "contradicted"]


def test_every_figure_has_words_of_its_paper_and_every_entry_a_figure() -> None:
    for figure in FIGURES:
        assert figure.effect is not DEFAULT, figure.name
    for key in EFFECTS:
        assert any(figure.name.startswith(key) for figure in FIGURES), key


def test_the_verdicts_of_the_page_are_recomputed_with_another_tool() -> None:
    """Every "A below B" of the saved runs again, by SciPy's paired t test."""
    store, counted = Store(RESULTS), 0
    for figure in FIGURES:
        latest = last(figure, store)
        if latest is None or latest.seeds < 2:
            continue
        for found in latest.findings:
            a, _, b = found.says.partition(" below ")
            if a not in latest.results or b not in latest.results:
                continue
            x, y = ([figure.number(r) for r in latest.results[c]] for c in (a, b))
            effect = figure.effect.share * abs(np.mean(y)) or 0.0
            effect = figure.effect.units or effect
            if np.ptp(np.subtract(x, y)) == 0.0:
                continue  # no spread: SciPy's interval is not defined
            interval = ttest_rel(x, y).confidence_interval(0.95)
            expected = (
                "holds" if interval.high < 0
                else "contradicted" if interval.low > -effect else "cannot be decided"
            )  # fmt: skip
            assert found.outcome == expected, (figure.name, found)
            counted += 1
        some, every = [f.holds for f in latest.findings], {f.outcome for f in latest.findings}
        verdict = (
            "cannot be decided" if figure.obstacle else "holds" if all(some)
            else "holds in part" if any(some)
            else "contradicted" if "contradicted" in every else "cannot be decided"
        )  # fmt: skip
        assert latest.verdict == verdict, figure.name
    assert counted > 80


def test_what_is_left_names_seeds_and_their_cost(tmp_path: Path) -> None:
    figure, store = figure_of(checks.below("a", "b")), Store(tmp_path)
    # Differences -1, .5, -.5: mean -1/3, deviation .764: (1.96 x .764 / .333)^2 = 20.2
    values = {"a": [0.0, 1.5, 0.5], "b": [1.0, 1.0, 1.0]}
    for label, run in figure.runs("full").items():
        for seed in (100, 101, 102):
            store.make(run, seed, lambda run, seed, x=label: {"curve": [values[x][seed - 100]]})
            store._seconds[identity(run)] = 1800.0
    (row,) = left([figure], store)[2:]
    assert row == (
        "| Fig. 0 | 1 | 3 of 21 | 18 | `python -m benchmarks.reproduce toy --seeds 21` |"
    )
    nothing = left([replace(figure, obstacle="no data")], store)
    assert nothing == ["Nothing is left that 100 seeds would decide."]
    # Another form of the figure, of which one curve has runs: the other costs as much.
    changed = replace(figure, curves={"a": figure.curves["a"], "b": Run("federation", {})})
    (row,) = left([replace(changed, instead=figure)], store)[2:]
    command = "`python -m benchmarks.reproduce toy --seeds 8`"
    assert row == f"| Fig. 0 | all, in its present form | 0 of 8 | 6.5 | {command} |"  # 5 + 8 runs


def test_an_earlier_form_is_shown_until_the_present_one_has_runs(tmp_path: Path) -> None:
    old, store = figure_of(checks.below("a", "b")), Store(tmp_path)
    new = replace(old, curves={"a": Run("federation", {}), "b": old.curves["b"]}, instead=old)

    def make(figure: Figure, count: int) -> None:
        for run in figure.runs("full").values():
            for seed in range(100, 100 + count):
                store.make(run, seed, lambda run, seed: {"curve": [float(seed)]})

    assert last(new, store) is None
    make(old, 5)
    found = last(new, store)
    assert found is not None
    assert (found.figure, found.seeds) == (old, 5)
    make(new, 3)  # fewer than the medium size has
    assert (found := last(new, store)) is not None
    assert found.figure is old
    make(new, 4)
    assert (found := last(new, store)) is not None
    assert (found.figure, found.seeds) == (new, 4)
