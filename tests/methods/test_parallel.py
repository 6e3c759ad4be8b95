"""Agents that make k evaluations at once: k different proposals, one vector, the same journal."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluator, evaluations_of
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.space import Categorical, Float, Space
from flwr_fbo.methods.baselines.random_search import RandomSearchServer
from flwr_fbo.methods.baselines.tpe import TPEAgent, TPEServer, TPESettings
from flwr_fbo.methods.dp_fts_de import METHODS as DP_FTS_DE
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.server import KIND as FED_PNE
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.methods.fts.server import FTSServer, FTSSettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.voting.agent import VotingAgent

from .thompson_harness import SQUARE, CrashingRecords, JsonRecords, Party, bump, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes must fork")

SMALL: dict[str, Any] = {"features": 20, "initial_points": 3}


def dp_fts_de(k: int = 3, rounds: int = 3, agents: int = 2, **settings: Any) -> Any:
    (method,) = DP_FTS_DE
    made = method.settings_class(**{**SMALL, "parallel": k, **settings})
    return method.make_server(RunParameters(SQUARE, agents, rounds), made)


def local_ts(k: int = 3, rounds: int = 3) -> ThompsonServer:
    return ThompsonServer(SQUARE, 2, ThompsonSettings(**SMALL, parallel=k), rounds)


def fts(k: int = 3, rounds: int = 3) -> FTSServer:
    return FTSServer(SQUARE, 2, FTSSettings(**SMALL, parallel=k, history=4), rounds)


def random(k: int = 3, rounds: int = 3) -> RandomSearchServer:
    return RandomSearchServer(SQUARE, 2, ThompsonSettings(**SMALL, parallel=k), rounds)


def parties_of(server: Any, function: Any = bump) -> list[Party]:
    return [Party(server.setup(), function, seed=n) for n in range(server.agents)]


def content(party: Party) -> list[dict[str, Any]]:
    """The journal, without how long things took and without what waited for its turn."""
    rows = [
        {"kind": kind, **row}
        for kind in (Evaluator.KIND, Evaluator.BEGUN, "fit")
        for row in party.records.read(kind)
    ]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


MAKERS = [dp_fts_de, local_ts, fts, random]


@pytest.mark.parametrize("make", MAKERS)
def test_rounds_have_k_different_proposals_and_one_vector(make: Any) -> None:
    server = make()
    parties = parties_of(server)
    run(server, parties)
    assert server.evaluations_per_agent() == 3 + 3 * 3
    for party in parties:
        made = party.evaluations()
        assert [(e["round"], e["play"]) for e in made] == [
            *((0, p) for p in range(3)), *((r, p) for r in (1, 2, 3) for p in range(3))
        ]  # fmt: skip
        points = np.array([e["unit"] for e in made])
        for r in (1, 2, 3):
            mine = points[3 * r : 3 * r + 3]
            apart = np.abs(mine[:, None] - mine).max(axis=2)[np.triu_indices(3, 1)]
            assert apart.min() > 1e-3


@pytest.mark.parametrize("make", MAKERS)
def test_a_run_is_repeatable(make: Any) -> None:
    runs = []
    for _ in range(2):
        server = make()
        parties = parties_of(server)
        run(server, parties)
        runs.append([content(party) for party in parties])
    assert runs[0] == runs[1]


def test_the_vector_has_the_length_of_one_evaluation_a_round() -> None:
    one, four = dp_fts_de(1), dp_fts_de(4)
    assert one.setup().arrays["frequencies"].shape == four.setup().arrays["frequencies"].shape
    for server in (one, four):
        parties = parties_of(server)
        requests = server.requests(range(2))
        replies = {n: parties[n].answer(request) for n, request in requests.items()}
        assert all(reply.arrays["omega"].shape == (20,) for reply in replies.values())


@pytest.mark.parametrize("settings", [{"epsilon": 5.0}, {"noise_multiplier": 1.0}])
def test_the_noise_depends_on_rounds_and_not_on_k(settings: dict[str, float]) -> None:
    """The unit of privacy is a party's vector, one in a round, whatever it stands for."""
    one, four = (dp_fts_de(k, agents=50, releases="all", **settings) for k in (1, 4))
    assert one.noise_multiplier == four.noise_multiplier
    assert one.aggregation.bound == four.aggregation.bound
    assert one.statement().epsilon == four.statement().epsilon


@pytest.mark.parametrize("advice", ["query", "prior"])
def test_one_of_k_follows_the_shared_function_at_the_most(advice: str) -> None:
    server = dp_fts_de(4, advice_use=advice)
    party = parties_of(server)[0]
    party.answer(server.requests([0])[0])
    weights = np.random.default_rng(1).standard_normal((1, 20))
    party.answer(Request("step", 1, {"own-probability": 0.0}, {"advice": weights}))
    made = [e for e in party.evaluations() if e["round"] == 1]
    sources = [e["source"] for e in made]
    assert sources == (["advice", "own", "own", "own"] if advice == "query" else ["own"] * 4)
    assert len({tuple(e["unit"]) for e in made}) == 4


def test_a_small_space_is_tried_whole_before_anything_is_tried_twice() -> None:
    space = Space({"kind": Categorical(["a", "b", "c", "d", "e", "f"])})
    setup = ThompsonServer(space, 1, ThompsonSettings(**SMALL, parallel=6), 1).setup()
    party = Party(setup, lambda params, rng: float(ord(params["kind"])))
    party.answer(Request("explore", 0, {"count": 1, "home": -1}))
    party.answer(Request("step", 1, {"own-probability": 1.0}))
    made = {e["params"]["kind"] for e in party.evaluations() if e["round"] == 1}
    assert made == set("abcdef")


@pytest.mark.parametrize("left", range(1, 12))
def test_a_run_that_is_interrupted_anywhere_goes_on_as_if_it_had_not_been(left: int) -> None:
    whole = dp_fts_de(agents=1)
    (expected,) = parties_of(whole)
    run(whole, [expected])

    server = dp_fts_de(agents=1)
    party = Party(server.setup())
    party.records = CrashingRecords(left)
    party.agent = party.build()
    while not server.finished:
        request = server.requests([0])[0]
        try:
            reply = party.answer(request)
        except KeyboardInterrupt:
            party.agent = party.build()
            reply = party.answer(request)
        server.close({0: reply})

    def evaluations(of: Party) -> list[dict[str, Any]]:
        return [{k: v for k, v in e.items() if k != "seconds"} for e in of.evaluations()]

    assert evaluations(party) == evaluations(expected)


def test_a_restart_replays_to_the_same_next_proposals() -> None:
    server = dp_fts_de(agents=1)
    party = Party(server.setup())
    party.records = JsonRecords()
    party.agent = party.build()
    for r in range(3):
        party.answer(server.requests([0])[0])
        server.close({})
        fresh = party.build()
        proposals = [
            [agent.sampler.ask(r + 1, play=p).unit.tolist() for p in range(3)]
            for agent in (party.agent, fresh)
        ]
        assert proposals[0] == proposals[1]


def test_a_party_tries_what_it_knows_first_and_each_once() -> None:
    server = local_ts(2)
    party = Party(server.setup())
    evaluator = Evaluator(SQUARE, bump, party.records, (0, 0))
    known = [([0.1 * n, 0.5], None) for n in range(1, 6)]
    evaluator.warm_start = lambda: known
    from flwr_fbo.methods.thompson.agent import ThompsonAgent

    agent = ThompsonAgent(server.setup(), evaluator, party.records, (0, 1))
    agent.answer(Request("explore", 0, {"count": 3, "home": -1}))
    agent.answer(Request("step", 1, {"own-probability": 1.0}))
    agent.answer(Request("step", 2, {"own-probability": 1.0}))
    units = [e["unit"] for e in party.evaluations()]
    assert units[:5] == [unit for unit, _ in known]
    assert [e["source"] for e in party.evaluations()][5:] == ["own", "own"]


def test_a_history_before_the_start_is_made_at_once_too() -> None:
    server = FTSServer(
        SQUARE,
        2,
        FTSSettings(**SMALL, parallel=3, history=7, targets=1, history_design="thompson"),
        1,
    )
    party = parties_of(server)[1]
    party.answer(Request("history", 0, {"count": 7}))
    made = party.evaluations()
    assert [e["source"] for e in made] == ["initial"] * 3 + ["own"] * 4
    assert len({tuple(e["unit"]) for e in made}) == 7


def test_tpe_is_told_what_is_under_way() -> None:
    pytest.importorskip("optuna")
    settings = TPESettings(initial_points=3, parallel=3, startup_trials=2)
    server = TPEServer(SQUARE, 1, settings, 2)
    runs = []
    for _ in range(2):
        records = JsonRecords()
        evaluator = Evaluator(SQUARE, bump, records, (0, 0))
        agent = TPEAgent(server.setup(), evaluator, (0, 1))
        for round, count in ((0, 3), (1, 3), (2, 3)):
            agent.answer(Request("evaluate", round, {"count": count}))
        runs.append([e["unit"] for e in records.read(Evaluator.KIND)])
    assert runs[0] == runs[1]
    assert len({tuple(unit) for unit in runs[0]}) == 9 == server.evaluations_per_agent()


@pytest.mark.parametrize("share", [None, 2])
def test_fed_pne_pulls_k_at_once_with_the_same_means(share: int | None) -> None:
    from flwr_fbo.core.protocol import Setup

    space = Space({"x": Float(0, 1)})
    points = np.array([[0.2], [0.7]])
    request = Request(
        "pull", 0, {"phase": 0}, {"points": points, "pulls": np.array([3.0, 2.0])},
        {"means": (2,)},
    )  # fmt: skip
    means = []
    for k in (1, 2):
        settings = FedPNESettings(budget=10, parallel=k, pulls_per_message=share)
        records = JsonRecords()

        def noisy(params: Any, rng: np.random.Generator) -> float:
            return float(params["x"] + 0.01 * rng.standard_normal())

        evaluator = Evaluator(space, noisy, records, (0, 0))
        agent = FedPNEAgent(Setup(FED_PNE, space, settings.to_mapping()), evaluator, records, (1,))
        replies = [agent.answer(request) for _ in range(3)]
        assert [r.declined for r in replies[:2]] == (["unfinished"] * 2 if share else [""] * 2)
        means.append(replies[-1].arrays["means"].tolist())
        made = evaluations_of(records.read(Evaluator.KIND))
        assert [e.play for e in made] == list(range(5))
    assert means[0] == means[1]


def test_voting_evaluates_its_list_k_at_once_with_the_same_votes() -> None:
    from flwr_fbo.methods.voting.server import VotingServer
    from flwr_fbo.methods.voting.settings import VotingSettings

    votes = []
    for k in (1, 3):
        settings = VotingSettings(budget=12, batch=5, votes=2, parallel=k)
        server = VotingServer(SQUARE, 1, settings)
        records = JsonRecords()
        evaluator = Evaluator(SQUARE, bump, records, (0, 0))
        agent = VotingAgent(server.setup(), evaluator, records, (1,))
        while not server.finished:
            (request,) = server.requests([0]).values()
            reply = agent.answer(request)
            server.close({0: reply})
        votes.append(reply.arrays["votes"].tolist())
        assert [(e["round"], e["play"]) for e in records.read(Evaluator.KIND)] == [
            divmod(n, 5) for n in range(12)
        ]
    assert votes[0] == votes[1]
    assert sum(votes[0]) == 2
