"""Finalists: the points, the parties' scores of them, their release, and what is recommended."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluation, Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.dp_fts_de.audited_run import AuditedRun
from flwr_fbo.methods.dp_fts_de.final_rounds import FinalRounds
from flwr_fbo.methods.dp_fts_de.finalists import best_finalist, choose_finalists
from flwr_fbo.methods.dp_fts_de.secure import summand
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.released_model import (
    DESIGN,
    MIDDLE,
    ReleasedModel,
    best_together,
    combined,
    middle_first,
    mixed_kernel,
)
from flwr_fbo.methods.thompson.score_vector import score_vector, scores_at
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.calibration import epsilon_of
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.privacy.ledger import MemoryLedger

from .thompson_harness import SQUARE, Party, restored, run

MIXED = Space({"a": Float(0, 1), "b": Int(1, 9), "kind": Categorical(["u", "v", "w"])})


def server_of(agents: int = 6, rounds: int = 8, **given: Any) -> DPFTSDEServer:
    chosen = {"features": 40, "finalists": 4, "noise_seed": None, **given}
    return DPFTSDEServer(SQUARE, agents, DPFTSDESettings(**chosen), rounds, 3)


def parties_of(server: DPFTSDEServer) -> list[Party]:
    return [Party(server.setup(), seed=n) for n in range(server.agents)]


# ------------------------------------------------------------------ the rounds and their price


@pytest.mark.parametrize(("count", "parallel"), [(4, 1), (5, 2), (6, 3)])
def test_the_last_rounds_have_every_finalist_once(count: int, parallel: int) -> None:
    finals = FinalRounds(count, parallel, end=9)
    rounds = [t for t in range(12) if t in finals]
    assert rounds[-1] == 9
    shown = [first + k for t in rounds for first, n in [finals.of_round(t)] for k in range(n)]
    assert shown == list(range(count))
    assert all(finals.of_round(t)[1] <= parallel for t in rounds)


def test_the_scores_are_one_more_release_of_the_plan() -> None:
    settings = DPFTSDESettings(epsilon=2.0, finalists=4)
    plan = settings.release_plan(30, 20)
    assert plan.rounds[-1] == 20
    assert max(plan.rounds[:-1]) < 17  # before the first round of the finalists
    server = DPFTSDEServer(SQUARE, 30, settings, 20)
    assert server.noise_multiplier is not None
    assert server.delta is not None
    rates = [plan.sampling_rate] * len(plan.rounds)
    assert epsilon_of(server.noise_multiplier, server.delta, rates) <= 2.0
    fewer = epsilon_of(server.noise_multiplier, server.delta, rates[1:])
    assert fewer < 2.0 - 0.1  # the release of the scores is paid for, and not given away


def test_too_many_finalists_for_the_rounds_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"`finalists` must be at most 3, .* but got 4"):
        server_of(rounds=3)


def test_more_rounds_make_no_second_final_round() -> None:
    settings = DPFTSDESettings(epsilon=2.0, finalists=4)
    fixed = settings.settings_for_more_rounds(20, 30)
    more = DPFTSDESettings.from_mapping({**settings.to_mapping(), **fixed})
    before, after = settings.release_plan(30, 20), more.release_plan(30, 40)
    assert (after.rounds, after.sampling_rate) == (before.rounds, before.sampling_rate)
    assert settings.finals(20) == more.finals(40)
    open_run = DPFTSDESettings(finalists=4)
    assert open_run.settings_for_more_rounds(20, 30) == {"final-round": 20}


# ------------------------------------------------------------------ what a party sends


def test_a_vector_of_scores_is_centred_and_has_exactly_the_norm() -> None:
    vector = score_vector(np.array([3.0, 1.0, 2.0]), 6, 2.5)
    np.testing.assert_allclose(vector, [2.5 / math.sqrt(2), -2.5 / math.sqrt(2), 0, 0, 0, 0])
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.standard_normal(5) * 10.0 ** rng.integers(-8, 8)
        scores[rng.random(5) < 0.3] = -np.inf
        scores[rng.random(5) < 0.3] = np.nan
        vector = score_vector(scores, 9, 2.0)
        assert np.linalg.norm(vector) == pytest.approx(2.0) or not vector.any()
        assert not vector[5:].any()
        assert abs(vector.sum()) < 1e-9


def test_a_failure_is_worse_than_any_score_and_what_is_missing_says_nothing() -> None:
    vector = score_vector(np.array([0.5, -np.inf, 0.7, np.nan]), 4, 1.0)
    assert vector[1] < vector[0] < vector[2]
    assert vector[3] == 0.0
    assert score_vector(np.array([0.5, -np.inf, 0.5]), 3, 1.0)[1] < 0.0


@pytest.mark.parametrize("scores", [[np.nan] * 3, [-np.inf] * 3, [0.2] * 3, [0.0, np.nan, 0.0]])
def test_scores_that_compare_nothing_are_the_zero_vector(scores: list[float]) -> None:
    assert not score_vector(np.array(scores), 5, 1.0).any()


def test_scores_are_those_of_the_last_evaluation_at_the_point() -> None:
    def made(unit: list[float], score: float | None) -> Evaluation:
        return Evaluation(0, 0, {}, unit, score)

    history = [made([0.1, 0.2], 1.0), made([0.3, 0.3], 5.0), made([0.1, 0.2], 2.0)]
    history.append(made([0.9, 0.9], None))
    points = np.array([[0.1, 0.2], [0.9, 0.9], [0.5, 0.5]])
    np.testing.assert_array_equal(scores_at(points, history), [2.0, -np.inf, np.nan])


def test_one_party_moves_the_sum_by_no_more_than_the_sensitivity() -> None:
    """Also one that sends a vector far too long: the server clips it (lemma 27)."""
    server = server_of(epsilon=1.0)
    aggregation, end = server.aggregation, server.last_round
    mechanism, rng = aggregation.mechanism(end), np.random.default_rng(1)
    norm = server.settings.max_norm
    honest = {n: score_vector(rng.standard_normal(4), 40, norm) for n in range(6)}
    honest[5] = 1e3 * rng.standard_normal(40)
    whole = aggregation.weighted_sum(honest, end, mechanism).exact
    for n in honest:
        rest = {m: v for m, v in honest.items() if m != n}
        moved = whole - aggregation.weighted_sum(rest, end, mechanism).exact
        assert np.linalg.norm(moved) * mechanism._lattice.step <= mechanism.sensitivity


# ------------------------------------------------------------------ a run


def test_all_parties_evaluate_all_finalists_and_the_best_is_recommended() -> None:
    server = server_of()

    def exact(params: Any, rng: np.random.Generator) -> float:
        return -((float(params["x"]) - 0.3) ** 2) - (float(params["y"]) - 0.7) ** 2

    parties = [Party(server.setup(), exact, seed=n) for n in range(server.agents)]
    run(server, parties)
    assert server.finalists is not None
    for party in parties:
        made = party.evaluations()
        assert len(made) == server.evaluations_per_agent() == 2 + 8
        shown = [e["unit"] for e in made if e["source"] == "finalist"]
        np.testing.assert_allclose(shown, server.finalists)
        assert [e["round"] for e in made][-4:] == [5, 6, 7, 8]
    found = server.recommend(server.released.releases)
    assert found is not None
    near = ((server.finalists - [0.3, 0.7]) ** 2).sum(axis=1)
    np.testing.assert_allclose(found["unit"], server.finalists[np.argmin(near)])
    assert found["clear"]
    assert [f["score"] for f in found["finalists"]] == sorted(
        (f["score"] for f in found["finalists"]), reverse=True
    )


def test_a_private_run_keeps_its_budget_and_agents_never_see_scores_as_a_function() -> None:
    server = server_of(agents=12, epsilon=4.0)
    run(server, parties_of(server))
    assert server.budget is not None
    assert server.budget.spent <= 4.0
    events = server.budget.ledger.events
    assert [e.round for e in events] == list(server.release_plan.rounds)
    assert {e.noise_multiplier for e in events} == {server.noise_multiplier}
    # With more rounds, the release of the scores is no part of the shared function.
    last = server.released.releases[-1]
    assert last.round == 8
    server._weights = None
    shared = server._probability_and_weights(0)[1]
    server.released._releases.pop()
    server._weights = None
    np.testing.assert_array_equal(shared, server._probability_and_weights(0)[1])


def test_a_run_restored_in_a_round_of_finalists_goes_on_the_same() -> None:
    server = server_of(epsilon=2.0)
    parties = parties_of(server)
    while server.round < 7:
        requests = server.requests(range(6))
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
    other = restored(server, lambda: server_of(epsilon=2.0))
    for n, request in server.requests(range(6)).items():
        again = other.requests(range(6))[n]
        np.testing.assert_array_equal(again.arrays["finalists"], request.arrays["finalists"])
        assert (again.values, again.expects) == (request.values, request.expects)
        assert parties[n].answer(request).arrays.keys() == parties[n].answer(again).arrays.keys()


def test_a_crash_between_charge_and_release_leaves_the_maximum_of_the_function() -> None:
    server = server_of(epsilon=2.0)
    parties = parties_of(server)
    while server.round < 8:
        requests = server.requests(range(6))
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
    assert server.budget is not None
    charged = MemoryLedger()
    budget = PrivacyBudget(2.0, server.budget.delta, charged, server.budget.name)
    for event in [*server.budget.ledger.events, server.aggregation.event(8)]:
        budget.charge(event)
    late = restored(server, lambda: server_of(epsilon=2.0))
    late.budget = budget
    answers = {n: parties[n].answer(r) for n, r in late.requests(range(6)).items()}
    late.close(answers)
    assert late.exhausted
    assert late.finished
    found = late.recommend(late.released.releases)
    assert found is not None
    assert "finalists" not in found


def test_an_agent_that_was_away_sends_the_scores_it_has() -> None:
    server = server_of()
    parties = parties_of(server)
    while not server.finished:
        requests = server.requests(range(6))
        if server.round == 6:
            del requests[2]
        answers = {n: parties[n].answer(r) for n, r in requests.items()}
        server.close(answers)
    vector = answers[2].arrays["omega"]
    assert vector[1] == 0.0
    assert np.linalg.norm(vector) == pytest.approx(server.settings.max_norm)


def test_a_secure_sum_adds_up_the_same_vectors() -> None:
    server = server_of(agents=6, epsilon=2.0, aggregation="secure")
    assert server.secure_plan is not None
    assert server.secure_plan.allowance == len(server.release_plan.rounds)
    records, finalists = MemoryRecords(), np.array([[0.3, 0.7], [0.9, 0.1]])

    def evaluator() -> Evaluator:
        return Evaluator(SQUARE, lambda p, rng: -abs(p["x"] - 0.3), records, (0, 0))

    for play, unit in enumerate(finalists):
        evaluator()(unit, round=7 + play, source="finalist")
    weights = server.aggregation.weights(8)[:, 0]
    length, norm = 40, server.settings.max_norm
    request = Request(
        "secure-masked", 8, {"bound": server.aggregation.bound, "length": length},
        {"weights": weights, "finalists": finalists},
    )  # fmt: skip
    sent = summand(server.setup(), evaluator(), records, (0, 1), request)
    expected = weights[0] * norm * np.array([1, -1]) / math.sqrt(2)
    np.testing.assert_allclose(sent[:2], expected)
    assert not sent[2:].any()


def test_the_sum_of_the_final_round_is_opened_with_the_finalists() -> None:
    server = server_of(agents=6, epsilon=2.0, aggregation="secure")
    parties, opened = parties_of(server), {}
    while not server.finished:
        requests = server.requests(range(6))
        assert all(not r.expects for r in requests.values())  # nothing leaves but masked
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
        if server._sum is not None:
            opened[server.round - 1] = server._sum._own(0)[1].keys()
            server._sum = None  # abandoned before anything was charged
            assert server.budget is not None
            server.budget.charge(server.aggregation.event(server.round - 1))
    assert opened[8] == {"weights", "finalists"}
    assert all("finalists" not in names for t, names in opened.items() if t != 8)


def test_an_audit_attacks_the_release_of_the_scores_too() -> None:
    settings = DPFTSDESettings(epsilon=3.0, finalists=4, sampling_rate=1.0)
    audited = AuditedRun(settings, 12, 10, seeded_entropy(5))
    assert audited.rounds == settings.release_plan(12, 10).rounds
    assert audited.rounds[-1] == 10
    seen = audited.trials(3).present
    assert seen.shape[1] == len(audited.rounds)
    assert (np.abs(seen).max(axis=2) > 0).all()  # every release was made


# ------------------------------------------------------------------ what is recommended


def test_with_little_noise_the_scores_decide_and_with_much_the_releases_before() -> None:
    points = np.array([[0.1, 0.1], [0.5, 0.5], [0.9, 0.9]])
    scores, expected = np.array([-0.3, 0.0, 0.3]), np.array([2.0, 1.0, 0.0])
    sure = best_finalist(SQUARE, points, scores, 0.01, expected, 3)
    assert sure.unit == [0.9, 0.9]
    assert sure.clear
    drowned = best_finalist(SQUARE, points, scores, 50.0, expected, 3)
    assert drowned.unit == [0.1, 0.1]
    assert not drowned.clear


def test_noise_alone_is_clear_in_one_run_of_twenty() -> None:
    rng, points = np.random.default_rng(2), np.random.default_rng(3).random((8, 2))
    flat = np.zeros(8)
    clear = sum(
        best_finalist(SQUARE, points, rng.normal(0, 0.4, 8), 0.4, flat, 2).clear
        for _ in range(2000)
    )
    # Binomial with 2000 and .05: mean 100, deviation 9.7.
    assert abs(clear - 100) < 5 * 9.8


# ------------------------------------------------------------------ the model of the releases


def model_of(
    space: Space, weights: Any, deviation: float, features: RandomFeatures, evaluations: int = 20
) -> ReleasedModel:
    return ReleasedModel(space, features, weights, deviation, evaluations, 0.3, 30)


def features_of(space: Space, count: int = 60) -> RandomFeatures:
    rng = np.random.default_rng(4)
    return RandomFeatures.draw(kernel_named("se", 0.5), count, space.embedding_dimension, rng)


@pytest.mark.parametrize("space", [SQUARE, MIXED])
def test_pure_noise_leaves_the_middle_of_the_ranges(space: Space) -> None:
    features = features_of(space)
    model = model_of(space, np.zeros(60), 1e3, features)
    np.testing.assert_allclose(model.mean, model.prior_mean, atol=1e-2 * MIDDLE)
    best = model.points[np.argmax(model.mean)]
    numeric = [not isinstance(p, Categorical) for p in space.parameters.values()]
    assert np.abs(best[numeric] - 0.5).max() < 0.15


def test_the_bowl_has_mean_zero_and_spread_one() -> None:
    units = np.random.default_rng(0).random((200_000, 2))
    bowl = middle_first(SQUARE, units)
    assert abs(float(bowl.mean())) < 0.02
    assert float(bowl.std()) == pytest.approx(1.0, abs=0.02)
    only = Space({"kind": Categorical(["u", "v"])})
    assert not middle_first(only, np.array([[0.2], [0.8]])).any()


@pytest.mark.parametrize("count", [60, 700])  # fewer and more features than the design has points
def test_the_posterior_is_that_of_a_direct_computation(count: int) -> None:
    features, rng = features_of(MIXED, count), np.random.default_rng(6)
    model = model_of(MIXED, rng.normal(0, 0.05, count), 0.05, features)
    (direct_mean, weight) = (np.zeros(len(model.points)), 0.0)
    phi = features(MIXED.embed(model.points))
    share = 20 / len(phi)
    L = np.linalg.solve(share * phi.T @ phi + 0.3 * np.eye(count), share * phi.T)
    tau2 = 0.05**2 + 0.5**2 / (30 * count)
    logs, means = [], []
    for additive, size in itertools.product((1.0, 0.7, 0.3), (0.0025, 0.01, 0.04, 0.16, 0.5, 1.0)):
        K = size * mixed_kernel(MIXED, model.points, additive)
        S = L @ K @ L.T + tau2 * np.eye(count)
        rest = model.weights - L @ model.prior_mean
        solved = np.linalg.solve(S, rest)
        logs.append(-0.5 * (np.linalg.slogdet(S)[1] + rest @ solved))
        means.append(model.prior_mean + K @ L.T @ solved)
    likely = np.exp(np.array(logs) - max(logs))
    likely[likely / likely.sum() < 1e-3] = 0.0
    weight = likely.sum()
    direct_mean = np.tensordot(likely / weight, np.stack(means), 1)
    np.testing.assert_allclose(model.mean, direct_mean, atol=1e-6)


def test_draws_have_the_mean_of_the_posterior() -> None:
    features, rng = features_of(SQUARE), np.random.default_rng(7)
    model = model_of(SQUARE, rng.normal(0, 0.1, 60), 0.1, features)
    drawn = model.sample(4000, rng)
    # Values are of the order of the prior's spread, at most 1: five standard errors of the mean.
    assert np.abs(drawn.mean(axis=1) - model.mean).max() < 5 * drawn.std() / math.sqrt(4000) + 0.02


def test_a_strong_release_is_followed() -> None:
    features = features_of(SQUARE)
    x = np.random.default_rng(8).random((400, 2))
    y = 3.0 * np.exp(-((x - [0.2, 0.85]) ** 2).sum(axis=1) / 0.08)
    phi = features(x)
    share = 20 / 400
    weights = np.linalg.solve(share * phi.T @ phi + 0.3 * np.eye(60), share * phi.T @ y)
    model = model_of(SQUARE, weights, 0.01, features)
    assert np.abs(model.points[np.argmax(model.mean)] - [0.2, 0.85]).max() < 0.1
    chosen = choose_finalists(model, 4, np.random.default_rng(0), np.array([0.21, 0.84]))
    assert chosen.shape == (4, 2)
    np.testing.assert_array_equal(chosen[1], [0.21, 0.84])
    np.testing.assert_array_equal(chosen[0], model.points[np.argmax(model.mean)])


def test_rows_are_chosen_together_and_not_one_by_one() -> None:
    functions = np.array([[5.0, 0.0], [4.9, 0.0], [0.0, 2.0]])
    assert best_together(functions, 2, 0) == [0, 2]
    assert sorted(best_together(functions, 9, 0)) == [0, 1, 2]


def test_a_small_finite_space_is_its_own_design() -> None:
    space = Space({"kind": Categorical(["u", "v", "w"])})
    model = model_of(space, np.zeros(60), 1.0, features_of(space))
    assert len(model.points) == 3
    assert choose_finalists(model, 5, np.random.default_rng(0)).shape == (5, 1)
    assert len(model_of(SQUARE, np.zeros(60), 1.0, features_of(SQUARE)).points) == DESIGN


def test_releases_of_growing_signal_are_combined_without_bias() -> None:
    v, rng = np.array([1.0, -2.0, 0.5]), np.random.default_rng(9)
    signals, noise = [0.2, 0.5], [0.3, 0.6]
    share = np.array(signals) / signals[-1]
    found = []
    for _ in range(3000):
        seen = [a * v + s * rng.standard_normal(3) for a, s in zip(share, noise, strict=True)]
        mean, deviation = combined(seen, noise, signals)
        found.append(mean)
    # By hand: precisions .4^2/.3^2 + 1/.6^2 = 4.556.
    assert deviation == pytest.approx(1 / math.sqrt(0.16 / 0.09 + 1 / 0.36))
    assert np.abs(np.mean(found, axis=0) - v).max() < 5 * deviation / math.sqrt(3000)
    assert np.std(found, axis=0) == pytest.approx(deviation, rel=0.1)
    last, exact = combined([v, 2 * v], [0.0, 0.0], signals)
    np.testing.assert_array_equal(last, 2 * v)
    assert exact == 0.0


def test_a_request_for_scores_changes_nothing_when_it_is_asked_twice() -> None:
    server = server_of()
    parties = parties_of(server)
    while server.round < 8:
        requests = server.requests(range(6))
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
    state = copy.deepcopy(server.state_dict())
    request = server.requests(range(6))[0]
    first, calls = parties[0].answer(request), parties[0].calls
    second: Reply = parties[0].answer(request)
    assert parties[0].calls == calls
    np.testing.assert_array_equal(first.arrays["omega"], second.arrays["omega"])
    np.testing.assert_array_equal(state["finalists"], server.state_dict()["finalists"])


def test_in_many_dimensions_noise_is_not_followed_to_its_peak() -> None:
    """The maximum of pure noise lies at the ends of many ranges."""
    wide = Space({f"x{i}": Float(0, 1) for i in range(11)})
    settings = DPFTSDESettings(epsilon=0.25)
    server = DPFTSDEServer(wide, 24, settings, 10, 3, entropy=seeded_entropy(4))
    run(server, [Party(server.setup(), lambda p, rng: 0.0, seed=n) for n in range(24)])
    releases = server.released.releases
    found, peak = server.recommend(releases), server._maximum(releases)
    assert found is not None
    assert peak is not None
    assert np.abs(np.array(found["unit"]) - 0.5).max() < np.abs(np.array(peak["unit"]) - 0.5).max()
    assert np.abs(np.array(found["unit"]) - 0.5).mean() < 0.2  # .25 for a random point
    assert not found["clear"]
