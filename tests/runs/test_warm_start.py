"""What a party knows already: taken in before its first evaluation, and never sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from flwr_fbo import Float, Partition, simulate, task
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.space import Space, SpaceError
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.agent import WARM_START, ThompsonAgent
from flwr_fbo.runs.files.simulation_store import SimulationStore
from flwr_fbo.tasks.warm_start import known_points

SPACE = Space({"x": Float(0.0, 1.0)})
SETTINGS = DPFTSDESettings(epsilon=8.0, spread_points=0)  # the model proposes early
SERVER = DPFTSDEServer(SPACE, agents=2, settings=SETTINGS, rounds=4)


def height(params: Any, rng: Any = None) -> float:
    return 1.0 - (float(params["x"]) - 0.3) ** 2


def agent_of(known: Any, records: Any = None) -> tuple[ThompsonAgent, Evaluator, Any]:
    records = records or MemoryRecords()
    evaluator = Evaluator(SPACE, height, records)
    evaluator.warm_start = lambda: known
    return ThompsonAgent(SERVER.setup(), evaluator, records, (1,)), evaluator, records


def explore(agent: ThompsonAgent, count: int = 2) -> np.ndarray:
    expects = {"omega": (SERVER.settings.vector_length,)}
    request = Request("explore", 0, {"count": count, "home": -1}, {}, expects)
    return agent.answer(request).arrays["omega"]


def step(agent: ThompsonAgent, round: int) -> None:
    agent.answer(Request("step", round, {"own-probability": 1.0}))


def test_known_scores_teach_the_model_and_cost_no_evaluation() -> None:
    known = [([0.1], 0.96), ([0.3], 1.0), ([0.6], 0.91)]
    agent, evaluator, records = agent_of(known)
    explore(agent)
    assert agent.sampler.best() == (pytest.approx(np.array([0.3])), 1.0)
    assert len(agent.sampler.own_model.scores) == 5
    assert len(evaluator.history) == 2
    assert records.read(WARM_START) == [{"points": [[[0.1], 0.96], [[0.3], 1.0], [[0.6], 0.91]]}]


def test_known_scores_count_in_what_is_shared_within_the_same_bound() -> None:
    with_known, without = (explore(agent_of(known)[0]) for known in ([([0.3], 1.0)] * 9, []))
    assert not np.array_equal(with_known, without)
    assert np.linalg.norm(with_known) <= SERVER.settings.max_norm


def test_settings_without_scores_are_evaluated_first() -> None:
    agent, evaluator, _ = agent_of([([0.9], None), ([0.3], 1.0), ([0.8], None), ([0.7], None)])
    explore(agent)
    step(agent, 1)
    step(agent, 2)
    assert [e.unit for e in evaluator.history[:3]] == [[0.9], [0.8], [0.7]]
    assert [e.source for e in evaluator.history[:3]] == ["warm-start"] * 3
    assert evaluator.history[3].source == "own"


def test_an_agent_made_again_knows_what_it_knew() -> None:
    first, _, records = agent_of([([0.9], None), ([0.3], 1.0)])
    explore(first, 1)
    # The study has grown meanwhile; the run goes on with what it began with.
    again, _, _ = agent_of([([0.1], 5.0)], records)
    for agent in (first, again):
        assert agent.sampler.best()[1] == 1.0  # type: ignore[index]
    assert np.array_equal(explore(first, 1), explore(again, 1))


def test_a_run_that_began_without_stays_without() -> None:
    first, _, records = agent_of([])
    explore(first)
    again, _, _ = agent_of([([0.3], 5.0)], records)
    assert again.sampler.best()[1] < 5.0  # type: ignore[index]
    assert records.read(WARM_START) == []


def test_each_party_of_a_run_starts_from_its_own(tmp_path: Path) -> None:
    def of_party(partition: Partition) -> Any:
        return [({"x": 0.3}, 1.0), {"x": 0.5 + 0.1 * partition.index}]

    tuned = task(space=SPACE, score_range=(0.0, 1.0), warm_start=of_party)(height)
    result = simulate(tuned, agents=3, rounds=2, epsilon=8.0, run_dir=tmp_path / "r")
    firsts = [row for row in result.to_records() if (row["round"], row["play"]) == (0, 0)]
    assert [row["params_x"] for row in firsts] == pytest.approx([0.5, 0.6, 0.7])
    assert [row["source"] for row in firsts] == ["warm-start"] * 3
    assert result.history.evaluations == [2, 3, 4]  # what was known is no evaluation
    plain = task(space=SPACE, score_range=(0.0, 1.0))(height)
    other = simulate(plain, agents=3, rounds=2, epsilon=8.0, run_dir=tmp_path / "s")
    assert result.epsilon == other.epsilon
    store = SimulationStore(tmp_path / "r" / "agents", None, reading=True)
    stored = store.records(1).read(WARM_START)
    assert stored[0]["points"][0] == [[0.3], 1.0]
    servers = [p for p in (tmp_path / "r").iterdir() if p.suffix in (".json", ".jsonl", ".csv")]
    assert len(servers) > 4
    assert not any(WARM_START in path.read_text() for path in servers)


def test_an_earlier_study_is_a_warm_start() -> None:
    study = optuna.create_study(direction="minimize")
    range_of_study = {"x": optuna.distributions.FloatDistribution(0.0, 2.0)}
    failed = optuna.trial.TrialState.FAIL
    for given in ({"value": 0.75}, {"state": failed}):
        params = {"x": 0.25}
        study.add_trial(optuna.create_trial(params=params, distributions=range_of_study, **given))
    outside = {"x": 1.5}  # not in the space of the run
    study.add_trial(optuna.create_trial(params=outside, distributions=range_of_study, value=0.1))
    study.add_trial(optuna.create_trial(params={}, distributions={}, value=0.2))
    assert known_points(SPACE, study, Partition(0, 1)) == [([0.25], -0.75)]


def test_what_is_outside_the_space_is_refused() -> None:
    with pytest.raises(SpaceError, match="parameter 'x'"):
        known_points(SPACE, [{"x": 2.0}], Partition(0, 1))
    with pytest.raises(SpaceError, match="must be finite or None, but got nan"):
        known_points(SPACE, [({"x": 0.5}, float("nan"))], Partition(0, 1))
