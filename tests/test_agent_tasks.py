"""The federations of the agent's benchmark: what fails, what judges, and the table's intervals."""

from __future__ import annotations

import importlib.util
import math
import os
import sys

import numpy as np
import pytest

from benchmarks import agent, agent_tasks
from benchmarks.federations import Problem
from flwr_fbo.tasks.task import Partition


@pytest.mark.parametrize(
    ("task", "share"), [(agent_tasks.CornerTask, 0.16), (agent_tasks.HillsTask, 1 / 12)]
)
def test_the_stated_share_of_the_space_fails(task, share):
    made = task()
    made.prepare(Partition(3, 5, 7))
    units = made.space.sample(4000, np.random.default_rng(0))
    failed = np.isnan(made.expected_of(units))
    assert failed.mean() == pytest.approx(share, abs=5 * math.sqrt(share / 4000))
    with pytest.raises(MemoryError):
        made.evaluate(made.space.from_unit(units[failed][0]), rng=np.random.default_rng(0))
    assert made.regret(units[failed][0]) == made.regret(None) == 1.0
    regrets = [made.regret(unit) for unit in units[~failed][:500]]
    assert np.median(regrets) == pytest.approx(1.0, abs=0.25)
    assert min(regrets) > -0.01


@pytest.mark.parametrize("task", [agent_tasks.HartmannTask, agent_tasks.PipelineTask])
def test_scores_are_the_partys_own_and_repeatable(task):
    pytest.importorskip("sklearn")
    one, again, other = task(), task(), task()
    for made, party in ((one, 0), (again, 0), (other, 1)):
        made.random, made.local = 5, 2
        made.prepare(Partition(party, 2, 3))
    params = one.space.from_unit(np.full(one.space.dimension, 0.4))
    scores = [t.evaluate(params, rng=np.random.default_rng(0)) for t in (one, again, other)]
    assert scores[0] == scores[1] != scores[2]


@pytest.mark.skipif(
    "FLWR_FBO_DATA" not in os.environ or importlib.util.find_spec("onnxruntime") is None,
    reason="needs FLWR_FBO_DATA with yahpo, and onnxruntime",
)
@pytest.mark.parametrize("task", [agent_tasks.LCBenchTask, agent_tasks.RpartTask])
def test_surrogates_give_scores_that_depend_on_every_parameter_and_on_the_party(task):
    parties = [task(), task()]
    for n, made in enumerate(parties):
        made.party = n
        made._prepare(np.random.default_rng(0))
    space = parties[0].space
    units = space.sample(50, np.random.default_rng(1))
    first, second = (made.expected_of(units) for made in parties)
    assert np.all((first > 0) & (first < 1))
    assert not np.allclose(first, second)
    for d in range(space.dimension):
        moved = units.copy()
        moved[:, d] = space.sample(50, np.random.default_rng(2))[:, d]
        assert not np.allclose(parties[0].expected_of(moved), first)


def test_a_method_of_ours_and_tpe_are_judged_alike():
    pytest.importorskip("optuna")
    problem = Problem(agent_tasks.CornerTask(), 2, 5)
    for regret, failed in (
        agent.run(problem, "alone", {}, 5, 4),
        agent.tpe(problem, 5, 4),
    ):
        assert regret.shape == (2, 4)
        assert failed.shape == (2,)
        assert np.all(regret > -0.01)


def test_differences_are_paired_by_party_and_have_students_interval():
    mine = {1: np.array([[0.0, 0.1], [0.2, 0.1]]), 2: np.array([[0.2, 0.1], [0.4, 0.1]])}
    other = {1: np.array([[0.3, 0.1], [0.3, 0.1]]), 2: np.array([[0.5, 0.1], [0.5, 0.1]])}
    # by party: .3 and .1 in the first column; t_.975(1) = 12.706, error .1
    assert agent._gains(other, mine) == ["+0.200 ± 1.271", "+0.000 ± 0.000"]


def test_the_commands_of_the_page(tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    monkeypatch.setattr(agent, "RESULTS", tmp_path)
    less = ["--seeds", "1", "--first", "3", "--methods", "Optuna", "random"]
    for command in (["run", "corner", "hills", *less], ["table"]):
        monkeypatch.setattr(sys, "argv", ["benchmarks.agent", *command])
        agent.main()
    printed = capsys.readouterr().out
    assert printed.count("random search") == 4  # a line of each run, and a row of each table
    assert "| failed |" in printed
    agent.store("corner", range(3, 4), ["Optuna", "random"])
    assert not capsys.readouterr().out  # what is saved is not run again
