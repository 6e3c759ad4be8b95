"""Landmine: the papers' ranges and split, and scores from the real fields."""

from __future__ import annotations

import os

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks import Partition, load
from flwr_fbo.tasks.data_task import stratified_halves
from flwr_fbo.tasks.papers.data import DataError
from flwr_fbo.tasks.papers.landmine import LandmineTask
from flwr_fbo.tasks.papers.svm import auc

needs_data = pytest.mark.skipif(
    not os.environ.get("FLWR_FBO_DATA"), reason="FLWR_FBO_DATA does not name the real data"
)


def prepared(index: int, **settings: object) -> LandmineTask:
    task = load("landmine", {k.replace("_", "-"): v for k, v in settings.items()})
    assert isinstance(task, LandmineTask)
    task.prepare(Partition(index, 29, 0))
    return task


def test_ranges_are_those_printed() -> None:
    for scale in ("log", "linear"):
        space = load("landmine", {"scale": scale}).space
        assert (space.parameters["C"].low, space.parameters["C"].high) == (1e-4, 10.0)
        assert (space.parameters["gamma"].low, space.parameters["gamma"].high) == (0.01, 10.0)
        assert {p.log for p in space.parameters.values()} == {scale == "log"}
    assert LandmineTask.paper_task_settings == {"scale": "linear"}
    assert LandmineTask.paper_settings["regions"] == 4
    assert LandmineTask.paper_settings["clip"] == 22.0


@needs_data
def test_a_score_is_what_scikit_learn_says() -> None:
    task = prepared(5)
    params = {"C": 1.0, "gamma": 0.1}
    half = task.data
    machine = SVC(C=1.0, gamma=0.1).fit(half.x_train, half.y_train)
    expected = roc_auc_score(half.y_valid, machine.decision_function(half.x_valid))
    assert task.evaluate(params, rng=np.random.default_rng(0)) == pytest.approx(expected)


@needs_data
def test_halves_are_halves_of_every_class() -> None:
    for index in range(29):
        half = prepared(index).data
        assert abs(len(half.y_train) - len(half.y_valid)) <= 1
        assert abs(int(half.y_train.sum()) - int(half.y_valid.sum())) <= 1


@needs_data
def test_the_split_is_the_same_in_every_run() -> None:
    first, again = (load("landmine") for _ in range(2))
    first.prepare(Partition(3, 29, seed=0))
    again.prepare(Partition(3, 29, seed=99))
    np.testing.assert_array_equal(first.data.x_train, again.data.x_train)  # type: ignore[attr-defined]
    assert not np.array_equal(prepared(3).data.x_train, prepared(3, split_seed=1).data.x_train)


@needs_data
def test_a_grid_on_a_log_scale_beats_the_same_grid_on_the_papers_linear_scale() -> None:
    """The first 6 fields (the paper's targets); measured over all 29: .192 against .215."""
    line = np.linspace(0.0, 1.0, 6)
    best = {}
    for scale in ("log", "linear"):
        tasks = [prepared(i, scale=scale) for i in range(6)]
        units = [np.array([u, v]) for u in line for v in line]
        params = [tasks[0].space.from_unit(u) for u in units]
        rng = np.random.default_rng(0)
        best[scale] = np.mean([max(t.evaluate(p, rng=rng) for p in params) for t in tasks])
    assert best["log"] > best["linear"] > 0.6


def test_generated_data_look_like_the_real_and_say_what_they_are() -> None:
    tasks = [prepared(i, generated=True) for i in range(29)]
    sizes = [len(t.data.y_train) + len(t.data.y_valid) for t in tasks]
    positive = [float(np.concatenate([t.data.y_train, t.data.y_valid]).mean()) for t in tasks]
    assert tasks[0].name == "landmine (generated data)"
    assert min(sizes) >= 445
    assert max(sizes) <= 690
    assert min(positive) >= 0.028
    assert max(positive) <= 0.095
    rng = np.random.default_rng(0)
    scores = [t.evaluate({"C": 0.1, "gamma": 0.1}, rng=rng) for t in tasks]
    assert 0.6 < np.mean(scores) < 0.95


def test_agents_beyond_the_fields_are_refused_unless_asked_for() -> None:
    partition = Partition(30, 40)
    with pytest.raises(SettingsError, match=r"at most 29, but got 40"):
        load("landmine", {"generated": True}).prepare(partition)
    load("landmine", {"generated": True, "repeat-parties": True}).prepare(partition)


def test_missing_data_say_what_to_get_and_where_to_put_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("FLWR_FBO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"LandmineData\.mat.*--data-dir.*generated=true"):
        prepared(0)


def test_evaluations_are_kept_per_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    task = prepared(0, generated=True)
    calls: list[object] = []
    score = task.score
    monkeypatch.setattr(task, "score", lambda params: calls.append(params) or score(params))
    rng = np.random.default_rng(0)
    first = task.evaluate({"C": 0.1, "gamma": 0.1}, rng=rng)
    assert task.evaluate({"gamma": 0.1, "C": 0.1}, rng=rng) == first
    assert len(calls) == 1


def test_auc_by_hand_and_against_scikit_learn() -> None:
    # Positives score .8 and .4, negatives .5 and .4: of 4 pairs 2 won, 1 tied, 1 lost.
    positive = np.array([True, True, False, False])
    assert auc(positive, np.array([0.8, 0.4, 0.5, 0.4])) == pytest.approx(2.5 / 4)
    rng = np.random.default_rng(2)
    scores, truth = rng.integers(0, 20, 300) / 20.0, rng.random(300) < 0.1
    assert auc(truth, scores) == pytest.approx(roc_auc_score(truth, scores))
    with pytest.raises(ValueError, match="0 positive and 4 negative"):
        auc(np.zeros(4, dtype=bool), scores[:4])


def test_stratified_halves_partition_the_rows() -> None:
    labels = np.array([0] * 7 + [1] * 3 + [2] * 5)
    train, valid = stratified_halves(labels, np.random.default_rng(0))
    assert np.array_equal(np.sort(np.concatenate([train, valid])), np.arange(15))
    assert (len(train), len(valid)) == (8, 7)
    difference = np.bincount(labels[train]) - np.bincount(labels[valid])
    assert np.abs(difference).max() == 1
