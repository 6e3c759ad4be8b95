"""Fed-PNE's server and agents together: results, resuming, dropouts, bad replies, the tree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.evaluation import MemoryRecords
from flwr_fbo.core.protocol import Reply, ReplyError, Request, checked_reply
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.fed_pne import agent as fed_pne_agent
from flwr_fbo.methods.fed_pne.report import summarise, tree_rows, tree_text
from flwr_fbo.methods.fed_pne.server import FedPNEServer
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.tasks.papers.garland import DoubleSineTask, GarlandTask

from .fed_pne_harness import agent_of, agents_of, fed_pne, listening, one_round, play  # isort: skip


def tent(params: Mapping[str, Any], rng: np.random.Generator) -> float:
    return 0.9 - abs(params["x"] - 0.3) + rng.uniform(-0.1, 0.1)


@pytest.fixture(autouse=True)
def _warn_again() -> None:
    fed_pne_agent._log_outside_range.cache_clear()


@pytest.mark.parametrize(
    # An independent reading's mean over ten runs, at ten agents, and three deviations of ours.
    ("task", "published", "spread"),
    [(GarlandTask, 151.5, 25.0), (DoubleSineTask, 81.7, 15.0)],
)
def test_regret_of_the_papers_functions(task: Any, published: float, spread: float) -> None:
    server = fed_pne(10)
    assert play(server, agents_of(server, task)) <= published + spread
    assert server.round == 6
    assert 30 <= server.sent[0] <= 40


def test_the_result_says_what_was_found() -> None:
    server = fed_pne(8)
    agents = [agent_of(server, tent, n) for n in range(8)]
    while not server.finished:
        one_round(server, agents)
    found = summarise(server)
    best = found["recommended"]
    assert abs(best["params"]["x"] - 0.3) <= 0.02
    assert best["interval"][0] <= 0.9 - abs(best["params"]["x"] - 0.3) <= best["interval"][1]
    assert best["low"][0] <= best["unit"][0] < best["high"][0]
    assert found["pulls_per_agent"] == 1000
    assert all(len(agent.evaluator.history) == 1000 for agent in agents)
    assert found["rounds"] == found["phases"] == server.round
    assert found["numbers_sent_per_agent"] == sum(len(o.means) for _, o in server.results())
    assert found["guarantees"] is None
    json.dumps(found)


def test_means_are_means_of_what_the_agent_saw() -> None:
    server = fed_pne(3)
    agent = agent_of(server, tent)
    request = server.requests([0])[0]
    means = checked_reply(request, agent.answer(request)).arrays["means"]
    history = agent.evaluator.history
    np.testing.assert_allclose(means, [e.score for e in history])  # one pull each
    np.testing.assert_allclose([e.unit for e in history], request.arrays["points"])
    one_round(server, [agent, agent, agent])
    while request.arrays["pulls"].max() == 1:
        one_round(server, [agent_of(server, tent, n) for n in range(3)])
        request = server.requests([0])[0]
    agent = agent_of(server, tent)
    pulls = request.arrays["pulls"].astype(int)
    means = agent.answer(request).arrays["means"]
    scores = np.split(np.array([e.score for e in agent.evaluator.history]), np.cumsum(pulls)[:-1])
    np.testing.assert_allclose(means, [s.mean() for s in scores])


def test_a_range_scales_rewards_and_results() -> None:
    server = fed_pne(10, budget=200, reward_low=100.0, reward_high=300.0)
    agents = [agent_of(server, lambda p, r: 100 + 200 * tent(p, r), n) for n in range(10)]
    plain = fed_pne(10, budget=200)
    play_plain = [agent_of(plain, tent, n) for n in range(10)]
    while not server.finished:
        one_round(server, agents)
        one_round(plain, play_plain)
    scaled, unit = summarise(server)["recommended"], summarise(plain)["recommended"]
    assert scaled["params"] == unit["params"]
    assert scaled["mean"] == pytest.approx(100 + 200 * unit["mean"])


def test_uniform_pulls_stay_in_their_nodes_and_are_drawn_once() -> None:
    server = fed_pne(5, pull="uniform")
    records = MemoryRecords()
    request = server.requests([0])[0]
    agent = agent_of(server, tent, records=records)
    first = agent.answer(request).arrays["means"]
    for evaluation, low, high in zip(
        agent.evaluator.history, request.arrays["low"], request.arrays["high"], strict=True
    ):
        assert low[0] <= evaluation.unit[0] < high[0]
    again = agent_of(server, tent, records=records)
    np.testing.assert_array_equal(again.answer(request).arrays["means"], first)


class Crash(KeyboardInterrupt):
    """An interrupted evaluation, which is no failure: nothing catches it."""


def test_a_crash_costs_no_evaluation() -> None:
    server, records, calls = fed_pne(10), MemoryRecords(), []

    def crashing(params: Mapping[str, Any], rng: np.random.Generator) -> float:
        calls.append(params)
        if len(calls) == 6:
            raise Crash
        return tent(params, rng)

    request = server.requests([0])[0]
    total = int(request.arrays["pulls"].sum())
    assert total > 6
    with pytest.raises(Crash):
        agent_of(server, crashing, records=records).answer(request)
    means = agent_of(server, crashing, records=records).answer(request).arrays["means"]
    assert len(calls) == total + 1  # only the one that crashed was made twice
    undisturbed = agent_of(server, tent).answer(request).arrays["means"]
    np.testing.assert_array_equal(means, undisturbed)


def test_a_failed_evaluation_counts_as_the_low_end() -> None:
    def failing(params: Mapping[str, Any], rng: np.random.Generator) -> float:
        if params["x"] > 0.5:
            raise MemoryError
        return 0.7

    server = fed_pne(10)
    request = server.requests([0])[0]
    means = agent_of(server, failing).answer(request).arrays["means"]
    expected = np.where(request.arrays["points"][:, 0] > 0.5, 0.0, 0.7)
    np.testing.assert_allclose(means, expected)


def test_server_state_survives_in_the_middle_of_a_phase() -> None:
    whole = fed_pne(10, seed=4, searches=2)
    agents = [agent_of(whole, tent, n) for n in range(10)]
    one_round(whole, agents)
    one_round(whole, agents, present=[2, 5])  # below the quorum of 5: the phase stays open
    resumed = fed_pne(10, seed=4, searches=2)
    resumed.load_state_dict(whole.state_dict())
    while not whole.finished:
        ours, theirs = whole.requests(range(10)), resumed.requests(range(10))
        assert ours.keys() == theirs.keys()
        for n in ours:
            assert ours[n].values == theirs[n].values
            for name, array in ours[n].arrays.items():
                np.testing.assert_array_equal(array, theirs[n].arrays[name])
        replies = {n: agents[n].answer(request) for n, request in ours.items()}
        whole.close(replies)
        resumed.close(replies)
    assert summarise(whole) == summarise(resumed)
    assert tree_rows(whole) == tree_rows(resumed)


def test_asking_twice_changes_nothing() -> None:
    server = fed_pne(10)
    first, second = server.requests(range(10)), server.requests(range(10))
    np.testing.assert_array_equal(first[3].arrays["points"], second[3].arrays["points"])
    assert server.round == 0


def test_below_the_quorum_a_phase_is_repeated_and_nobody_pays_twice() -> None:
    server = fed_pne(10, phase_quorum=0.75)  # 8 of 10
    agents = [agent_of(server, tent, n) for n in range(10)]
    one_round(server, agents, present=range(5))
    assert (server.round, server.phase) == (1, 0)
    assert sorted(server.requests(range(10))) == [5, 6, 7, 8, 9]
    one_round(server, agents, present=[5, 6])
    assert (server.round, server.phase) == (2, 0)
    server.close({})
    one_round(server, agents, present=[0, 1, 9])
    assert (server.round, server.phase) == (4, 1)
    assert server.results()[0][1].replies == 8
    spent = [len(agent.evaluator.history) for agent in agents]
    assert spent == [8] * 7 + [0, 0, 8]


def test_an_absent_agent_misses_a_phase_and_goes_on() -> None:
    server = fed_pne(4)
    agents = [agent_of(server, tent, n) for n in range(4)]
    one_round(server, agents)
    one_round(server, agents, present=[0, 1, 2])
    second = server.results()[1][1]
    assert second.replies == 3
    while not server.finished:
        one_round(server, agents)
    spent = [len(agent.evaluator.history) for agent in agents]
    assert spent[:3] == [1000] * 3
    assert spent[3] == 1000 - int(second.pulls.sum())
    assert [e.round for e in agents[3].evaluator.history][-1] == server.phase - 1


def test_work_may_be_spread_over_messages() -> None:
    server = fed_pne(6, budget=300, pulls_per_message=40)
    plain = fed_pne(6, budget=300)
    agents = [agent_of(server, tent, n) for n in range(6)]
    others = [agent_of(plain, tent, n) for n in range(6)]
    most = 0
    while not server.finished:
        before = len(agents[0].evaluator.history)
        one_round(server, agents)
        most = max(most, len(agents[0].evaluator.history) - before)
    while not plain.finished:
        one_round(plain, others)
    assert most == 40
    assert server.round > plain.round
    assert summarise(server)["recommended"] == summarise(plain)["recommended"]


def test_several_searches_share_budget_and_rounds() -> None:
    server = fed_pne(20, searches=3)
    assert [s.confidence.decay for s in server.searches] == [0.5, 0.5**0.5, 0.5 ** (1 / 3)]
    agents = [agent_of(server, tent, n) for n in range(20)]
    while not server.finished:
        one_round(server, agents)
    assert [s.used for s in server.searches] == [334, 333, 333]
    assert all(len(a.evaluator.history) == 1000 for a in agents)
    assert server.round == max(s.phase for s in server.searches)
    assert abs(summarise(server)["recommended"]["params"]["x"] - 0.3) <= 0.03


def test_mixed_spaces() -> None:
    space = Space(
        {"x": Float(1e-3, 10.0, log=True), "n": Int(1, 9), "c": Categorical(["a", "b", "c"])}
    )

    def objective(params: Mapping[str, Any], rng: np.random.Generator) -> float:
        wrong = 0.4 * (params["c"] != "b") + 0.04 * abs(params["n"] - 7)
        return 0.95 - wrong - 0.1 * abs(np.log10(params["x"]))

    server = fed_pne(200, space, budget=2000, decay=0.8)
    agents = [agent_of(server, objective, n) for n in range(3)]
    while not server.finished:  # all agents are the same here: three stand for all
        asked = server.requests(range(200))
        answers = [agent.answer(asked[0]) for agent in agents] if asked else []
        server.close({n: answers[n % 3] for n in asked})
    best = summarise(server)["recommended"]["params"]
    assert best["c"] == "b"
    assert abs(best["n"] - 7) <= 1
    assert 0.2 <= best["x"] <= 5.0


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ({0: Reply({"means": np.zeros(7)})}, "shape"),
        ({0: Reply({"means": np.zeros(8), "more": np.zeros(1)})}, "the arrays of a reply must be"),
        ({0: Reply({"means": np.full(8, np.nan)})}, "finite"),
        ({12: Reply({"means": np.zeros(8)})}, "agent 12 answers phase 0 without being asked"),
    ],
)
def test_answers_to_something_else_are_refused_and_nothing_is_lost(
    replies: dict[int, Reply], message: str
) -> None:
    server = fed_pne(10)
    good = {n: Reply({"means": np.full(8, 0.1)}) for n in range(1, 6)}
    before = json.dumps(server.state_dict(), default=np.ndarray.tolist)
    with pytest.raises(ReplyError, match=message):
        server.close({**good, **replies})
    assert json.dumps(server.state_dict(), default=np.ndarray.tolist) == before
    server.close(good)
    assert server.phase == 1


def test_a_second_answer_to_the_same_phase_is_refused() -> None:
    server = fed_pne(10)
    server.close({0: Reply({"means": np.zeros(8)})})
    with pytest.raises(ReplyError, match="agent 0"):
        server.close({0: Reply({"means": np.zeros(8)})})


def test_agents_that_decline_are_absent() -> None:
    server = fed_pne(2)
    server.close({0: Reply(declined="MemoryError"), 1: Reply(declined="MemoryError")})
    assert (server.round, server.phase, server.finished) == (1, 0, False)
    assert sorted(server.requests([0, 1])) == [0, 1]


def test_a_run_that_nobody_answers_ends() -> None:
    server = fed_pne(4, idle_rounds=3)
    agents = [agent_of(server, tent, n) for n in range(4)]
    one_round(server, agents)
    server.close({})
    server.close({0: Reply(declined="MemoryError")})
    one_round(server, agents, present=[2])  # below the quorum, but an answer
    for _ in range(3):
        assert not server.finished
        server.close({})
    assert (server.stopped, server.finished) == ("stalled", True)
    assert summarise(server)["recommended"] is not None
    with pytest.raises(ReplyError, match="agent 0 answers phase 1 without being asked"):
        server.close({0: Reply({"means": np.zeros(8)})})


def test_agents_refuse_more_pulls_than_the_budget_and_pulls_of_nothing() -> None:
    server = fed_pne(10, budget=100)
    agent, asked = agent_of(server, tent), server.requests([0])[0]
    points = asked.arrays["points"]

    def request(pulls: list[float]) -> Request:
        arrays = {"points": points, "pulls": np.array(pulls)}
        return Request("pull", 0, {"phase": 0}, arrays, asked.expects)

    assert agent.answer(request([13.0] * 8)).declined == "budget"
    assert not agent.evaluator.history
    with pytest.raises(ValueError, match="at least once"):
        agent.answer(request([0.0] * 8))


def test_scores_outside_the_range_are_used_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = fed_pne(10)
    agents = [agent_of(server, lambda p, r: 5 + tent(p, r), n) for n in range(10)]
    with listening(caplog):
        while not server.finished:
            one_round(server, agents)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "[0, 1]" in caplog.text
    assert summarise(server)["recommended"]["mean"] > 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 5}, "`budget` must be enough for one phase"),
        ({"phase_quorum": 0.0}, r"`phase-quorum` must be in \(0, 1\]"),
        ({"epsilon": -1.0}, "`epsilon` must be > 0"),
        ({"epsilon": 1.0, "noise_on": "reward"}, "`noise-on` must be mean"),
        ({"epsilon": 1.0, "most_means": 1}, "`most-means` must be enough"),
    ],
)
def test_bad_settings_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        fed_pne(10, **values)


def test_no_agents_at_all() -> None:
    with pytest.raises(ValueError, match="`agents` must be >= 1, but got 0"):
        fed_pne(0)


def test_the_tree_as_data_and_text() -> None:
    server = fed_pne(10)
    assert summarise(server)["recommended"] is None
    assert tree_rows(server) == []
    agents = [agent_of(server, tent, n) for n in range(10)]
    while not server.finished:
        one_round(server, agents)
    rows = tree_rows(server)
    assert json.loads(json.dumps(rows)) == rows
    assert len(rows) == server.sent[0]
    lines = tree_text(server).splitlines()
    assert len(lines) == server.phase
    assert all("#" in line for line in lines)


@pytest.mark.parametrize("smoothness", [0.01, 0.2, 4.0, 32.0])
@pytest.mark.parametrize("agents", [1, 10])
@pytest.mark.parametrize("epsilon", [None, 0.2])
def test_the_remedy_for_a_small_budget_helps(
    smoothness: float, agents: int, epsilon: float | None
) -> None:
    """Larger where two nodes are pulled too often, smaller where too many are pulled once."""
    refusals = 0
    while refusals < 15:
        settings = FedPNESettings(budget=20, smoothness=smoothness, epsilon_per_reward=epsilon)
        try:
            FedPNEServer(Space({"x": Float(0.0, 1.0)}), agents, settings, 0)
        except SettingsError as error:
            refusals += 1
            smoothness *= 0.5 if "a smaller `smoothness`" in str(error) else 2.0
        else:
            break
    assert refusals < 15
