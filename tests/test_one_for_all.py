"""One setting for all: the network, the division of the data, the runs and their table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.suite.federation import MissingDataError, Parties
from benchmarks.suite.one_for_all import __main__ as command
from benchmarks.suite.one_for_all import cases
from benchmarks.suite.one_for_all.cases import CASES, Case, load, shares
from benchmarks.suite.one_for_all.fedavg import (
    DEFAULTS,
    _gradients,
    accuracy,
    fedavg,
    first_weights,
    inputs,
    logits,
    trained,
)
from benchmarks.suite.results import Store

SMALL = Case("digits", "dirichlet-0.5", 30)


def loss(weights: Any, X: Any, targets: Any, setting: Any) -> float:
    out, _ = logits(weights, X, setting["activation"])
    shifted = out - out.max(axis=1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-(targets * log).sum(axis=1).mean())


@pytest.mark.parametrize("width", [0, 5])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gradients_are_those_of_finite_differences(width: int, activation: str) -> None:
    rng = np.random.default_rng(0)
    setting = {**DEFAULTS, "width": width, "activation": activation, "clip": 1e9}
    weights = first_weights(4, 3, setting, 1)
    X, targets = rng.random((6, 4)), rng.dirichlet(np.ones(3), 6)
    for w, g in zip(weights, _gradients(weights, X, targets, setting), strict=True):
        for place in np.ndindex(w.shape):
            kept, step = w[place], 1e-6
            w[place] = kept + step
            above = loss(weights, X, targets, setting)
            w[place] = kept - step
            below = loss(weights, X, targets, setting)
            w[place] = kept
            assert g[place] == pytest.approx((above - below) / (2 * step), abs=1e-7)
    short = _gradients(weights, X, targets, {**setting, "clip": 1e-3})
    assert sum((g**2).sum() for g in short) == pytest.approx(1e-6)


def test_inputs_are_plain_centred_or_of_length_one() -> None:
    X = np.array([[0.0, 0.6, 0.8], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(inputs(X, "plain"), X)
    np.testing.assert_allclose(inputs(X, "centred")[0], [-1.0, 0.2, 0.6])
    np.testing.assert_allclose(np.linalg.norm(inputs(2 * X, "unit"), axis=1), [1.0, 0.0])


def test_fedavg_of_one_party_is_its_own_training() -> None:
    data, setting = load("digits"), {**DEFAULTS, "batch_size": 1300, "momentum": 0.0}
    X, y = data.X, data.y
    together = fedavg([(X, y)], 10, setting, rounds=3, seed=1, sample=5)
    alone = first_weights(64, 10, setting, 1)
    for epoch in range(3):  # one batch an epoch: the order of the examples does not matter
        alone = trained(alone, X, y, setting, 1, np.random.default_rng(epoch), epoch)
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_fedavg_learns_and_a_setting_that_diverges_scores_nothing() -> None:
    task = Parties(SMALL.federation(1), 0).tasks[0]
    good = {"learning_rate": 1.0, "momentum": 0.9, "weight_decay": 1e-6, "rate_decay": 1.0,
            "batch_size": 8}  # fmt: skip
    assert (task.expected(good) or 0.0) > 0.85
    weights = first_weights(64, 10, DEFAULTS, 0)
    weights[0][:] = np.nan
    assert accuracy(weights, load("digits").X, load("digits").y, DEFAULTS) == 0.0


@pytest.mark.parametrize("case", [c for c in CASES if c.data == "digits"], ids=lambda c: c.name)
def test_parties_share_all_examples_and_none_twice(case: Case) -> None:
    parts = shares(case, 3)
    assert len(parts) == case.parties
    whole = np.concatenate(parts)
    assert len(np.unique(whole)) == len(whole) == 1300
    assert min(map(len, parts)) >= 4


def test_a_dirichlet_law_of_a_half_is_more_uneven_than_one_of_five() -> None:
    y = load("digits").y

    def purity(split: Any) -> float:
        parts = shares(Case("digits", split, 30), 0)
        return float(np.mean([np.bincount(y[p], minlength=10).max() / len(p) for p in parts]))

    assert purity("iid") < purity("dirichlet-5") < purity("dirichlet-0.5")


def test_every_party_is_judged_by_the_same_model() -> None:
    parties = Parties(SMALL.federation(2), 0)
    unit = parties.space.to_unit(
        {"learning_rate": 0.3, "momentum": 0.9, "weight_decay": 1e-4, "rate_decay": 1.0,
         "batch_size": 16}
    )  # fmt: skip
    assert parties.loss(0, unit) == parties.loss(7, unit)


def test_a_setting_has_one_score_at_a_party_whoever_tries_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Parties(SMALL.federation(1), 0).tasks[:2]
    a = {"learning_rate": 0.3, "momentum": 0.5, "weight_decay": 1e-5, "rate_decay": 1.0,
         "batch_size": 4}  # fmt: skip
    b = {**a, "learning_rate": 0.01}

    def scores(order: list[Any]) -> dict[str, float]:
        monkeypatch.setattr(cases, "SCORES", {})
        rng = np.random.default_rng(1)
        found = {name: task.evaluate(p, rng=rng) for name, task, p in order}
        again = {name: task.evaluate(p, rng=rng) for name, task, p in reversed(order)}
        assert again == found
        assert len(cases.SCORES) == len(order)
        return found

    order = [("1a", first, a), ("1b", first, b), ("2a", second, a)]
    assert scores(order) == scores(order[::-1])
    assert len(set(scores(order).values())) > 1


def test_runs_are_saved_once_and_the_table_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        command, "CHOOSERS",
        (command.Chooser("ours", "dp-fts-de", 4, {}), command.Chooser("voting", "voting", 8, {}),
         command.Chooser("fed-pne", "fed-pne", 4, {"most-means": 8})),
    )  # fmt: skip
    monkeypatch.setattr(command, "CASES", (SMALL,))
    asked = ["run", "--seeds", "0", "--epsilon", "1", "8", "--results", str(tmp_path)]
    assert command.main(asked) == 0
    rows = Store(tmp_path).read(command.NAME)
    assert [(r["method"], r["asked_epsilon"]) for r in rows] == [
        ("random", None), ("ours", 1.0), ("ours", 8.0), ("voting", 1.0), ("voting", 8.0),
        ("fed-pne", 1.0), ("fed-pne", 8.0),
    ]  # fmt: skip
    assert all(0 <= r["accuracy"] <= 1 for r in rows)
    assert rows[2]["params"].keys() == rows[4]["params"].keys()
    assert all(r["development"] for r in rows)
    capsys.readouterr()
    assert command.main(asked) == 0
    assert capsys.readouterr().out == ""  # nothing is run again
    assert command.main(["page", "--results", str(tmp_path)]) == 2
    out = tmp_path / "page.md"
    assert command.main(["page", "--results", str(tmp_path), "--out", str(out)]) == 0
    assert f"| voting | 8 | {rows[3]['accuracy']:.3f} |" in out.read_text()  # no interval


def saved(method: str, evaluations: int, accuracy: float, seed: int) -> dict[str, Any]:
    row = command.record(SMALL, method, evaluations, 1.0, seed)
    return {**row, "accuracy": accuracy}


def test_where_voting_wins_is_said() -> None:
    rows = [saved("ours", 20, 0.5 + 0.01 * s, 7000 + s) for s in range(3)]
    behind = [saved("voting", 100, 0.52 + 0.01 * s, 7000 + s) for s in range(3)]
    ahead = [saved("voting", 100, 0.8 + 0.01 * s, 7000 + s) for s in range(3)]
    assert command.content([*rows, *behind])[-1].endswith("by more than both intervals: nowhere.")
    (line,) = command.content([*rows, *ahead])[-1:]
    assert line.endswith(f": {SMALL.name} at epsilon 1, `ours` (0.810 against 0.510).")
    # Student with two degrees of freedom: 4.303 * .01 / sqrt(3).
    page = "\n".join(command.content([*rows, *ahead]))
    assert "| voting | 100 | 0.810 ± 0.025 |" in page
    assert "**Mean over 1 cases**" in page
    assert "| ours | 20 | 0.510 (0) |" in page
    assert "| voting | 100 | 0.810 |" in page


def test_one_seed_has_no_interval_and_wins_nothing() -> None:
    page = command.content([saved("ours", 20, 0.5, 7000), saved("voting", 100, 0.9, 7000)])
    assert page[-1].endswith("nowhere.")
    assert "| voting | 100 | 0.900 |" in page


def test_methods_stand_in_one_order_whatever_was_run_first() -> None:
    rows = [saved(c.name, c.evaluations, 0.5, 7000) for c in reversed(command.CHOOSERS)]
    table = [line for line in command.content(rows) if line.startswith("| ")]
    shown = [tuple(line.split(" | ")[:2]) for line in table]
    order = [(f"| {c.name}", str(c.evaluations)) for c in command.CHOOSERS]
    assert [row for row in shown if row in order] == 2 * order


def test_means_are_over_cases_in_which_everything_was_run() -> None:
    other = Case("digits", "iid", 30).name
    rows = [saved("ours", 20, 0.5, 7000), saved("voting", 100, 0.4, 7000)]
    more = [{**r, "case": other, "accuracy": 0.9 - i / 10} for i, r in enumerate(rows)]
    page = command.content([*rows, *more])
    assert "| ours | 20 | 0.700 (2) |" in page
    assert "| voting | 100 | 0.600 |" in page
    assert "| ours | 20 | 0.500 (1) |" in command.content([*rows, *more[:1]])


def test_mnist_is_shared_by_its_writers() -> None:
    case = Case("mnist", "writers", 30)
    try:
        data = load("mnist")
    except MissingDataError:
        pytest.skip("needs mnist_with_writers.npz in FLWR_FBO_DATA")
    assert data.X.shape[1] == 196
    assert 0.0 <= data.X.min() < data.X.max() <= 1.0
    parts = shares(case, 0)
    assert len(parts) == 30
    assert all(len(np.unique(data.writer[rows])) == 1 for rows in parts)
    task = Parties(case.federation(1), 0).tasks[0]
    params = {"learning_rate": 0.3, "momentum": 0.9, "weight_decay": 1e-5, "rate_decay": 1.0,
              "batch_size": 16}  # fmt: skip
    assert task.evaluate(params, rng=np.random.default_rng(0)) > 0.2
    assert (task.expected(params) or 0.0) > 0.7
