"""Finalists from a public list: which agent evaluates what, the two releases, and what they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Space
from flwr_fbo.methods.dp_fts_de.audited_run import AuditedRun
from flwr_fbo.methods.dp_fts_de.final_rounds import SCORE_ROUNDS, score_rounds
from flwr_fbo.methods.dp_fts_de.finalists import recommended_of
from flwr_fbo.methods.dp_fts_de.plan import forecast_of, planned_settings
from flwr_fbo.methods.dp_fts_de.public_list import (
    expected_scores,
    first_of,
    good_score,
    list_length,
)
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.released_model import (
    ADDITIVE,
    MIDDLE,
    SIZES,
    middle_first,
    mixed_kernel,
)
from flwr_fbo.privacy.entropy import seeded_entropy

from .thompson_harness import SQUARE, Party, restored, run

WIDE = Space({**{f"x{i}": Float(0, 1) for i in range(9)}, "kind": Categorical(["u", "v"])})


def server_of(space: Space = SQUARE, agents: int = 8, rounds: int = 8, **given: Any) -> Any:
    chosen = {"features": 60, "finalists": 4, "finalists_from": "list", **given}
    return DPFTSDEServer(space, agents, DPFTSDESettings(**chosen), rounds, 3)


def parties_of(server: Any, function: Any = None) -> list[Party]:
    more = () if function is None else (function,)
    return [Party(server.setup(), *more, seed=n) for n in range(server.agents)]


# ------------------------------------------------------------------ the list and its parts


def test_the_list_is_short_where_the_noise_is_large() -> None:
    lengths = [list_length(50, 12, noise, 8) for noise in (0.0, 0.02, 0.04, 0.06, 0.5, 5.0)]
    # By hand: 50 * 12 / 6; .75 sqrt(12) / noise; 5 for each of 8 finalists.
    assert lengths == [100, 100, 64, 43, 40, 40]
    assert list_length(3, 12, 0.0, 8) == 16  # two for each finalist, where agents are few


@pytest.mark.parametrize(("agents", "parallel"), [(5, 1), (8, 2), (40, 1)])
def test_every_setting_is_evaluated_by_nearly_as_many_agents(agents: int, parallel: int) -> None:
    server = server_of(agents=agents, rounds=9, parallel=parallel)
    assert server.listed is not None
    run(server, parties := parties_of(server))
    start, length = server.finals.start, len(server.listed)
    counts = np.zeros(length)
    for party in parties:
        made = [e for e in party.evaluations() if e["round"] < start]
        assert {e["source"] for e in made} == {"list"}
        mine = np.array([e["unit"] for e in made])
        assert len(mine) == server.settings.evaluations_after(start - 1)
        apart = np.abs(mine[:, None, :] - server.listed).max(axis=2)
        assert (apart.min(axis=1) == 0.0).all()
        numbers = apart.argmin(axis=1)
        assert len(set(numbers)) == min(len(numbers), length)  # no setting twice
        np.add.at(counts, numbers, 1)
        shown = [e["unit"] for e in party.evaluations() if e["source"] == "finalist"]
        np.testing.assert_array_equal(shown, server.finalists)
    assert counts.max() - counts.min() <= max(2, agents / length + 1)
    assert server.evaluations_per_agent() == len(parties[0].evaluations())


def test_parts_begin_at_equal_distances() -> None:
    assert [first_of(n, 4, 10) for n in range(4)] == [0, 2, 5, 7]
    assert {first_of(n, 1000, 40) for n in range(1000)} == set(range(40))


# ------------------------------------------------------------------ the two releases


@pytest.mark.parametrize("given", [{}, {"epsilon": 2.0}, {"noise_multiplier": 1.0}])
def test_the_scores_of_the_list_and_of_the_finalists_are_the_only_releases(given: Any) -> None:
    server = server_of(agents=12, **given)
    assert server.release_plan.rounds == (4, 8)
    expects = {}
    parties = parties_of(server)
    while not server.finished:
        requests = server.requests(range(12))
        expects[server.round] = set().union(*(r.expects for r in requests.values()))
        assert all("advice" not in r.arrays for r in requests.values())
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
    assert [t for t, names in expects.items() if names] == [4, 8]
    assert [r.round for r in server.released.releases] == [4, 8]
    if server.budget is not None:
        assert [e.round for e in server.budget.ledger.events] == [4, 8]
        assert server.budget.spent <= given.get("epsilon", math.inf)
    # A reader of the releases is told that none is a function.
    assert score_rounds(server.setup().arrays) >= {4, 8}
    assert server.setup().arrays[SCORE_ROUNDS].dtype == np.float64


def test_one_party_sends_a_vector_of_the_bound_and_zeros_for_the_rest_of_the_list() -> None:
    server = server_of(agents=12, epsilon=2.0)
    parties = parties_of(server)
    while server.round < 4:
        requests = server.requests(range(12))
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
    sent = parties[7].answer(server.requests(range(12))[7]).arrays["omega"]
    assert sent.shape == (60,)
    assert np.linalg.norm(sent) == pytest.approx(server.settings.max_norm)
    mine = {tuple(e["unit"]) for e in parties[7].evaluations()}
    for value, unit in zip(sent, server.listed, strict=False):
        assert tuple(unit) in mine or value == 0.0
    assert not sent[len(server.listed) :].any()


def test_a_secure_sum_is_opened_with_the_list_and_then_with_the_finalists() -> None:
    server = server_of(agents=6, epsilon=2.0, aggregation="secure")
    assert server.secure_plan.allowance == 2
    parties, opened = parties_of(server), {}
    while not server.finished:
        requests = server.requests(range(6))
        assert all(not r.expects for r in requests.values())
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
        if server._sum is not None:
            opened[server.round - 1] = server._sum._own(0)[1]["finalists"]
            server._sum = None
            server.budget.charge(server.aggregation.event(server.round - 1))
    assert sorted(opened) == [4, 8]
    np.testing.assert_array_equal(opened[4], server.listed)
    np.testing.assert_array_equal(opened[8], server.finalists)


def test_an_audit_attacks_both_releases() -> None:
    settings = DPFTSDESettings(epsilon=3.0, finalists=4, finalists_from="list", sampling_rate=1.0)
    audited = AuditedRun(settings, 12, 10, seeded_entropy(5))
    assert audited.rounds == (6, 10)
    seen = audited.trials(3).present
    assert (np.abs(seen).max(axis=2) > 0).all()


# ------------------------------------------------------------------ what is recommended


def test_a_lonely_good_setting_is_found_among_ten_parameters() -> None:
    """Only one setting of the list is good: no smooth function shows it."""
    server = server_of(WIDE, agents=60, rounds=14, finalists=6, features=200)
    good = WIDE.from_unit(server.listed[17])

    def lonely(params: Any, rng: np.random.Generator) -> float:
        return float(params == good) + 0.2 * float(rng.standard_normal())

    run(server, parties_of(server, lonely))
    found = server.recommend(server.released.releases)
    assert found["params"] == good
    assert found["clear"]
    assert len(found["finalists"]) == 6


def test_without_the_scores_of_finalists_the_best_of_the_list_is_recommended() -> None:
    server = server_of(agents=30, rounds=10, epsilon=20.0)
    parties = parties_of(server)
    assert server.recommend([]) is None
    while server.round < server.finals.end:
        requests = server.requests(range(30))
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
    found = server.recommend(server.released.releases)
    assert "finalists" not in found
    np.testing.assert_array_equal(found["unit"], server.finalists[0])
    assert np.hypot(found["unit"][0] - 0.3, found["unit"][1] - 0.7) < 0.4


def test_without_any_release_the_finalists_are_near_the_middle() -> None:
    server = server_of(WIDE, agents=4, rounds=12, features=200)
    server.round = server.finals.start
    server.requests(range(4))
    units = server.listed
    best = np.argsort(-middle_first(WIDE, units), kind="stable")[:4]
    np.testing.assert_array_equal(server.finalists, units[best])


def test_expected_scores_of_much_noise_are_the_prior_and_of_none_the_scores() -> None:
    rng = np.random.default_rng(0)
    listed = rng.random((30, WIDE.dimension))
    truth = rng.standard_normal(30)
    signal = math.sqrt(12) / 30
    drowned = expected_scores(WIDE, listed, signal * truth + 50.0, 1e3, 50, 12)
    np.testing.assert_allclose(drowned, MIDDLE * middle_first(WIDE, listed), atol=0.02)
    clear = expected_scores(WIDE, listed, signal * truth, 0.0, 10**9, 12)
    np.testing.assert_allclose(clear, truth, atol=1e-3)


def test_expected_scores_are_the_posterior_mean() -> None:
    """The mean of truths drawn from the prior, weighted by how likely each makes the scores."""
    rng = np.random.default_rng(1)
    listed = rng.random((2, 2))
    scores, deviation, agents, evaluations = np.array([0.5, -0.3]), 0.3, 10, 4
    found = expected_scores(SQUARE, listed, scores, deviation, agents, evaluations)
    total, weights = np.zeros(2), 0.0
    signal, variance = math.sqrt(4) / 2, 0.09 + 1 / 20
    for additive in ADDITIVE:
        factor = np.linalg.cholesky(0.5 * (mixed_kernel(SQUARE, listed, additive) + np.eye(2)))
        for size in SIZES:
            f = MIDDLE * middle_first(SQUARE, listed) + math.sqrt(size) * (
                rng.standard_normal((20_000, 2)) @ factor.T
            )
            likely = np.exp(-0.5 * ((scores - signal * f) ** 2).sum(axis=1) / variance)
            total += likely @ f
            weights += likely.sum()
    # 360,000 draws; the spread of f is at most about 1.
    np.testing.assert_allclose(found, total / weights, atol=5 / math.sqrt(100_000))


def test_noise_alone_is_clear_in_one_run_of_twenty() -> None:
    rng, points, flat = np.random.default_rng(2), np.random.default_rng(3).random((40, 2)), 0
    for _ in range(2000):
        noise = rng.normal(0, 0.4, 40)
        flat += recommended_of(SQUARE, points, noise, 0.4, int(np.argmax(noise)), 1).clear
    # Binomial with 2000 and .05: mean 100, deviation 9.7.
    assert abs(flat - 100) < 5 * 9.8


def test_scores_of_the_list_that_come_late_are_those_of_the_finalists() -> None:
    """An abandoned secure sum is made up for when the finalists are chosen already."""
    server = server_of(agents=400)
    server.finalists = server.listed[[2, 5, 0, 7]]
    late, final = np.zeros((1, 60)), np.zeros((1, 60))
    late[0, 7] = server.settings.max_norm / 20
    server.released.add(late, 0.001, 6)
    server.released.add(final, 50.0, 8)  # scores of the finalists that say nothing
    found = server.recommend(server.released.releases)
    np.testing.assert_array_equal(found["unit"], server.listed[7])


def test_a_restored_server_asks_for_the_same() -> None:
    server = server_of(epsilon=2.0)
    parties = parties_of(server)
    for _ in range(8):
        other = restored(server, lambda: server_of(epsilon=2.0))
        for n, request in server.requests(range(8)).items():
            again = other.requests(range(8))[n]
            assert (again.kind, again.values) == (request.kind, request.values)
            np.testing.assert_array_equal(again.arrays["finalists"], request.arrays["finalists"])
        requests = server.requests(range(8))
        server.close({n: parties[n].answer(r) for n, r in requests.items()})


# ------------------------------------------------------------------ settings


def test_more_rounds_keep_the_list_and_its_releases() -> None:
    settings = DPFTSDESettings(epsilon=2.0, finalists=4, finalists_from="list")
    fixed = settings.settings_for_more_rounds(20, 30)
    assert fixed == {"final-round": 20}
    more = DPFTSDESettings.from_mapping({**settings.to_mapping(), **fixed})
    assert more.release_plan(30, 40) == settings.release_plan(30, 20)
    server = DPFTSDEServer(SQUARE, 30, more, 40, 3)
    before = DPFTSDEServer(SQUARE, 30, settings, 20, 3)
    np.testing.assert_array_equal(server.listed, before.listed)
    server.round = 21  # agents go on by themselves
    asked = server.requests([0])[0]
    assert (asked.kind, asked.arrays) == ("step", {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"finalists": 0}, "needs finalists, but `finalists` is 0"),
        ({"releases": "early"}, "`releases` must be auto with .* but got 'early'"),
        ({"robust": "trimmed-mean"}, "`robust` must be none with .* but got 'trimmed-mean'"),
    ],
)
def test_settings_that_a_list_cannot_have_are_refused(given: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        DPFTSDESettings(**{"finalists": 4, "finalists_from": "list", **given})


def test_noise_that_drowns_the_list_is_warned_of() -> None:
    few = server_of(agents=5, epsilon=0.5).warnings()
    assert len(few) == 1
    assert "the noise in the scores of the public list" in few[0]
    assert server_of(agents=200, epsilon=4.0).warnings() == []


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": 1.0},
        {"epsilon": 8.0, "regions": 4, "weights-hold": 0, "weights-decay": 1},
        {"epsilon": 2.0, "aggregation": "secure"},
        {"epsilon": 3.0, "clip": 0.5},
        {"noise-multiplier": 2.0, "sampling-rate": 0.5},
    ],
)
def test_a_plan_says_how_the_noise_stands_to_a_good_score(given: dict[str, Any]) -> None:
    stated = {"finalists": 8, "finalists-from": "list", "features": 60, **given}
    settings = planned_settings(stated)
    plan = forecast_of(settings, 50, 20)
    server: Any = DPFTSDEServer(SQUARE, 50, settings, 20, 3)
    excess = 1.0 if server.secure_plan is None else server.secure_plan.excess
    noise = server._score_deviation(excess * server.aggregation.deviation(server.finals.start - 1))
    good = good_score(server._listed_evaluations, len(server.listed))
    assert plan.noise_to_signal == pytest.approx(noise / good, rel=1e-6)
    text = plan.to_text()
    assert f"(list of {len(server.listed)})" in text
    assert (plan.noise_to_signal > 1) == ("more than a good setting's score" in text)
    assert max(map(len, text.splitlines())) <= 80
    # More agents have a longer list, or less noise in the same; there are always two releases.
    others = {next(iter(row.items())): row["noise_to_signal"] for row in plan.alternatives}
    assert others["agents", 25] > plan.noise_to_signal >= 0.99 * others["agents", 100]
    assert not [name for name, _ in others if name in ("releases", "rounds")]
