"""Digits: divided once and for all, differing between agents, with something to tune."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks import Partition, load
from flwr_fbo.tasks.digits import DigitsTask, divide_by_class

GOOD = {"C": 10.0, "gamma": 0.1}


def prepared(index: int, count: int = 30, seed: int = 0) -> DigitsTask:
    task = load("digits")
    assert isinstance(task, DigitsTask)
    task.prepare(Partition(index, count, seed))
    return task


def test_every_image_belongs_to_exactly_one_agent() -> None:
    shares = [prepared(i).data for i in range(30)]
    assert sum(len(s.y_train) + len(s.y_valid) for s in shares) == 1797
    assert all(abs(len(s.y_train) - len(s.y_valid)) <= 1 for s in shares)


def test_division_uses_every_row_once_and_differs_by_class() -> None:
    labels = np.repeat(np.arange(10), 180)
    shares = divide_by_class(labels, 30, 1.0, np.random.default_rng(1))
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(1800))
    counts = np.array([np.bincount(labels[rows], minlength=10) for rows in shares])  # (30, 10)
    # Dirichlet(1) over 30 agents: the sd of a share is about its mean (6 of 180 images).
    assert 4.0 < counts.std() < 8.0


def test_the_same_seed_gives_the_same_data_and_score_in_another_process_image() -> None:
    first, again = prepared(3), pickle.loads(pickle.dumps(prepared(3)))
    assert np.array_equal(first.data.x_train, again.data.x_train)
    rng = np.random.default_rng(0)
    assert first.evaluate(GOOD, rng=rng) == again.evaluate(GOOD, rng=rng)
    assert not np.array_equal(first.data.x_train, prepared(3, seed=1).data.x_train)


def test_an_unprepared_task_holds_no_data_and_copies_do_not_share_scores() -> None:
    task = load("digits")
    assert len(pickle.dumps(task)) < 1000
    one, two = copy.copy(task), copy.copy(task)
    one.prepare(Partition(0, 30))
    two.prepare(Partition(1, 30))
    rng = np.random.default_rng(0)
    scores = [agent.evaluate(GOOD, rng=rng) for agent in (one, two)]
    assert scores == [prepared(0).evaluate(GOOD, rng=rng), prepared(1).evaluate(GOOD, rng=rng)]
    assert not np.array_equal(one.data.x_train[:5], two.data.x_train[:5])  # type: ignore[attr-defined]


def test_there_is_something_to_tune() -> None:
    """Good parameters beat bad ones for everyone, and not everyone has the same best gamma."""
    agents = [prepared(i) for i in range(0, 30, 3)]
    gammas = np.geomspace(1e-3, 1.0, 7)
    rng = np.random.default_rng(0)
    scores = np.array(
        [[a.evaluate({"C": 10.0, "gamma": float(g)}, rng=rng) for g in gammas] for a in agents]
    )
    bad = np.array([a.evaluate({"C": 0.001, "gamma": 10.0}, rng=rng) for a in agents])
    assert (scores.max(1) > bad + 0.2).all()
    assert len(set(scores.argmax(1).tolist())) > 1
    assert 0.7 < scores.max(1).mean() < 1.0


def test_too_many_agents_are_refused_with_the_rule() -> None:
    with pytest.raises(SettingsError, match="1797 images cannot be divided among 900 agents"):
        prepared(0, count=900)


def test_hopeless_numbers_of_agents_are_refused_without_a_division(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flwr_fbo.tasks.digits._draw_owners", None)
    for count in (180, 250, 5000):
        with pytest.raises(SettingsError, match=f"among {count} agents.*must be at most 179"):
            load("digits").check_agents(count)


def refusal(call: Callable[[], object]) -> str:
    """The text with which settings are refused, empty if they are not."""
    try:
        call()
    except SettingsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(3))
def test_the_check_refuses_what_an_agent_could_not_prepare(seed: int) -> None:
    """Of 100 agents some seeds have a division and some have none: the check tells which."""
    for count in (1, 30, 70, 100, 179):
        text = refusal(lambda: load("digits").check_agents(count, seed))  # noqa: B023
        assert text == refusal(lambda: prepared(count - 1, count, seed))  # noqa: B023
        assert not text or (count > 70 and f"cannot be divided among {count} agents" in text)


def test_a_small_class_mix_leaves_too_little_for_some_of_60_agents() -> None:
    load("digits").check_agents(60, 1)
    with pytest.raises(SettingsError, match=r"with class-mix 0\.05: .* larger class-mix"):
        load("digits", {"class-mix": 0.05}).check_agents(60, 1)


def test_generated_digits_are_refused() -> None:
    with pytest.raises(SettingsError, match="`generated` must be false for `digits`"):
        load("digits", {"generated": True}).prepare(Partition(0, 30))
