"""A simulation's agents compute together, and do what each does alone: points, vectors, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from flwr_fbo import Float, resume, simulate, task
from flwr_fbo.clients.tuning_client import EvaluationOptions
from flwr_fbo.core.protocol import Request
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson import together
from flwr_fbo.methods.thompson.agent import ThompsonAgent, ThompsonAgents, thompson_setup
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.search.regions import split_space
from flwr_fbo.simulation.in_process_agents import InProcessAgents

AGENTS, ROUNDS = 12, 5
RNG = np.random.default_rng(0)
#: Without noise, so that a run that is resumed releases the same.
SHARING: dict[str, Any] = {"strategy": "dp-fts-de", "features": 80}


@task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
def hill(params: Any, rng: np.random.Generator, partition: Any) -> float:
    top = 0.3 + 0.1 * np.sin(partition.index)
    noise = 10.0 ** -(partition.index % 5) * rng.standard_normal()
    return float(1.0 - (params["x"] - top) ** 2 - (params["y"] - 0.6) ** 2 + 0.1 * noise)


@task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
def often_failing(params: Any, rng: np.random.Generator, partition: Any) -> float:
    if partition.index % 3 == 0 and params["x"] > 0.6:
        raise ValueError("no model")
    return float(params["x"] - (params["y"] - 0.6) ** 2)


def run(folder: Path, tuned: Any = hill, **given: Any) -> Any:
    return simulate(
        tuned, agents=AGENTS, rounds=ROUNDS, seed=3, run_dir=folder, engine="inline", **given
    )


def evaluations(folder: Path) -> list[list[dict[str, Any]]]:
    return [
        [{**vars(e), "seconds": 0.0} for e in history]
        for history in read_evaluations(folder / "agents", AGENTS, RunDirectory(folder).identity)
    ]


def released(folder: Path) -> list[list[float]]:
    paths = sorted((folder / "releases").glob("round-*.npz"))
    return [np.load(path)["vector"].tolist() for path in paths]


def points_prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of agents that are given points, each time that points are prepared."""
    seen: list[int] = []
    prepare = together.argmax_together

    def spy(surfaces: Any, rngs: Any, *rest: Any) -> Any:
        seen.append(len(rngs))
        return prepare(surfaces, rngs, *rest)

    monkeypatch.setattr(together, "argmax_together", spy)
    return seen


@pytest.mark.parametrize("most", [1, 5])
@pytest.mark.parametrize("tuned", [hill, often_failing])
def test_a_run_is_the_same_to_the_last_bit_however_many_compute_together(
    most: int, tuned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = points_prepared(monkeypatch)
    run(tmp_path / "all", tuned, **SHARING)
    assert sum(seen) > 2 * AGENTS
    assert max(seen) > 5
    monkeypatch.setattr(together, "MOST_AGENTS", most)
    seen.clear()
    run(tmp_path / "some", tuned, **SHARING)
    assert max(seen, default=1) <= most  # groups of one compute when they are asked
    assert evaluations(tmp_path / "all") == evaluations(tmp_path / "some")
    assert released(tmp_path / "all") == released(tmp_path / "some")
    assert len(released(tmp_path / "all")) > 2


@pytest.mark.parametrize("strategy", ["fts", "alone", "local-ts", "random"])
def test_other_strategies_with_these_agents_are_unchanged_too(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "together", strategy=strategy)
    monkeypatch.setattr(together, "MOST_AGENTS", 1)
    run(tmp_path / "alone", strategy=strategy)
    assert evaluations(tmp_path / "together") == evaluations(tmp_path / "alone")


class Interrupt(Callback):
    """End the process after a round, as far as a test can."""

    def on_round(self, strategy: Any, report: Any) -> None:
        if report.round == 3:
            raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_with_the_same_points_in_other_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole", **SHARING)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", callbacks=[Interrupt()], **SHARING)
    monkeypatch.setattr(together, "MOST_AGENTS", 3)
    resume(tmp_path / "parts", task=hill)
    assert evaluations(tmp_path / "whole") == evaluations(tmp_path / "parts")


def test_an_evaluation_that_is_interrupted_amid_a_group_is_made_at_its_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole", **SHARING)
    work = ThompsonAgent.work
    worked: list[int] = []

    def interrupted(self: Any, request: Any) -> None:
        worked.append(request.round)
        if worked.count(3) == 7:  # the seventh agent of the round
            worked.append(-1)
            raise KeyboardInterrupt
        work(self, request)

    with mock.patch.object(ThompsonAgent, "work", interrupted), pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", **SHARING)
    resume(tmp_path / "parts", task=hill)
    assert evaluations(tmp_path / "whole") == evaluations(tmp_path / "parts")


def test_an_agent_that_cannot_be_made_declines_alone(tmp_path: Path) -> None:
    make = ThompsonAgent.__init__

    def broken(self: Any, setup: Any, evaluator: Any, records: Any, seed: Any) -> None:
        if seed[-2] == 4:  # partition 4
            raise ValueError("no agent")
        make(self, setup, evaluator, records, seed)

    run(tmp_path / "whole", strategy="alone")
    with mock.patch.object(ThompsonAgent, "__init__", broken):
        run(tmp_path / "broken", strategy="alone")
    whole, found = evaluations(tmp_path / "whole"), evaluations(tmp_path / "broken")
    assert not found[4]
    assert found[:4] + found[5:] == whole[:4] + whole[5:]


def test_an_error_in_a_reply_declines_that_agent_and_no_other(tmp_path: Path) -> None:
    share, replies = ThompsonAgents.reply, []

    def broken(self: Any, agent: Any, request: Any) -> Any:
        if agent.sampler._seed[-2] == 2:
            raise ValueError("no vector")
        replies.append(request.round)
        return share(self, agent, request)

    with mock.patch.object(ThompsonAgents, "reply", broken):
        result = run(tmp_path / "run", **SHARING)
    assert result.rounds == ROUNDS
    assert all(replies.count(round) == AGENTS - 1 for round in set(replies))
    # Its evaluations are recorded and count as the others' do.
    assert len({len(history) for history in evaluations(tmp_path / "run")}) == 1


def test_an_agent_with_local_privacy_is_asked_as_behind_a_message(tmp_path: Path) -> None:
    given = {"strategy": "dp-fts-de", "local_epsilon": 50.0}
    with mock.patch.object(ThompsonAgents, "work", side_effect=AssertionError("in two steps")):
        result = run(tmp_path / "run", **given)
    assert result.rounds == ROUNDS
    assert all(len(history) == ROUNDS + 2 for history in evaluations(tmp_path / "run"))


def test_agents_whose_turn_does_not_come_are_asked_again_and_have_lost_nothing(
    tmp_path: Path,
) -> None:
    answer, rounds = InProcessAgents.answer, []

    def hurried(self: Any, setup: Any, requests: Any, seconds: float, on_reply: Any) -> Any:
        rounds.append(len(requests))
        return answer(self, setup, requests, 0.0 if len(rounds) == 4 else seconds, on_reply)

    run(tmp_path / "whole", strategy="alone")
    with mock.patch.object(InProcessAgents, "answer", hurried):
        run(tmp_path / "run", strategy="alone")
    assert len(rounds) == ROUNDS + 2  # a round without any reply is asked again
    assert evaluations(tmp_path / "run") == evaluations(tmp_path / "whole")


def test_agents_are_made_and_left_when_the_time_ends_amid_a_group(tmp_path: Path) -> None:
    task_ = hill
    directory = RunDirectory(tmp_path / "run").create({}, task_.space)
    client = InProcessAgents(task_, directory.agents, AGENTS, EvaluationOptions())
    settings = DPFTSDESettings(features=30)
    setup = thompson_setup(task_.space, settings, split_space(task_.space, 1), RNG)
    explore = Request("explore", 0, {"count": 6, "home": -1}, {}, {"omega": (30,)})
    asked = dict.fromkeys(range(AGENTS), explore)
    assert len(client.answer(setup, asked, 60.0, lambda count: None)) == AGENTS
    step = Request("step", 1, {"own-probability": 1.0}, {}, {"omega": (30,)})
    asked = dict.fromkeys(range(AGENTS), step)
    turn: list[int] = []

    def clock() -> float:
        turn.append(1)
        return float(len(turn))

    with mock.patch("flwr_fbo.simulation.in_process_agents.time.monotonic", clock):
        replied = client.answer(setup, asked, 6.5, lambda count: None)
    assert 0 < len(replied) < AGENTS
    again = client.answer(setup, asked, 60.0, lambda count: None)
    assert len(again) == AGENTS
    assert all(np.array_equal(again[n].arrays["omega"], r.arrays["omega"])
               for n, r in replied.items())  # fmt: skip
