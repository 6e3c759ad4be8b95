"""The server of FTS: whose vector is sent to whom, once or renewed; and the baselines."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from flwr_fbo.core.protocol import Reply
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.baselines.random_search import RandomSearchServer
from flwr_fbo.methods.fts.server import FTSServer, FTSSettings
from flwr_fbo.methods.thompson.schedules import own_probability
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.methods.thompson.settings import ThompsonSettings

from .thompson_harness import SQUARE, Party, restored, run

LINE = Space({"x": Float(0, 1)})
ALWAYS = lambda t: 0.0  # noqa: E731 - p_t: never one's own model


def make(agents=6, rounds=8, seed=0, preferences=None, p_schedule=None, **given):
    settings = FTSSettings(features=4, **given)
    return FTSServer(LINE, agents, settings, rounds, seed, preferences, p_schedule)


def vectors(agents, round=0):
    """Vectors whose first two numbers are their sender and round."""
    return {n: np.array([n, round, 0.5, -1.0]) for n in range(agents)}


def answers(server, missing=()):
    requests = server.requests([n for n in range(server.agents) if n not in missing])
    return {
        n: Reply({"omega": vectors(server.agents, server.round)[n]} if r.expects else {})
        for n, r in requests.items()
    }


def senders(server):
    """Return sender and round of the vector that each agent is sent."""
    found = {}
    for n, request in server.requests(range(server.agents)).items():
        if "advice" in request.arrays:
            assert request.arrays["advice"].shape == (1, 4)
            assert request.values["own-probability"] == 0.0
            found[n] = tuple(int(v) for v in request.arrays["advice"][0, :2])
        else:
            assert request.kind != "step" or request.values["own-probability"] == 1.0
    return found


# ------------------------------------------------------------------ each used once


def test_messages_of_before_the_start_are_each_used_once():
    server = make(agents=6, rounds=8, messages="once", p_schedule=ALWAYS)
    server.close(answers(server))
    used = {n: [] for n in range(6)}
    for t in range(1, 9):
        for n, (sender, when) in senders(server).items():
            assert when == 0
            used[n].append(sender)
        assert not any(r.expects for r in server.requests(range(6)).values())
        assert len(senders(server)) == (6 if t <= 5 else 0)  # five others, then nobody is left
        server.close(answers(server))
    for n, order in used.items():
        assert sorted(order) == [k for k in range(6) if k != n]
    orders = {tuple(np.subtract(s, n) % 6) for n, s in used.items()}
    assert len(orders) > 1  # each target draws for itself


def test_a_message_counts_as_used_only_if_its_target_answered():
    server = make(messages="once", p_schedule=ALWAYS)
    server.close(answers(server))
    before = senders(server)
    server.close(answers(server, missing=[2]))
    state = server.state_dict()["used"]
    assert "2" not in state
    assert state["1"] == [before[1][0]]


def test_stragglers_have_weight_zero():
    server = make(agents=5, messages="once", p_schedule=ALWAYS)
    server.close(answers(server, missing=[1, 3]))
    seen = set()
    for _ in range(1, 9):
        seen |= {sender for sender, _ in senders(server).values()}
        server.close(answers(server))
    assert seen == {0, 2, 4}


def test_an_answer_without_a_vector_is_a_straggler_too():
    server = make(agents=3, rounds=2, p_schedule=ALWAYS)
    good = answers(server)
    server.close({**good, 1: Reply(declined="MemoryError")})
    assert {sender for sender, _ in senders(server).values()} <= {0, 2}
    assert len(senders(server)) == 3


# ------------------------------------------------------------------ renewed every round


def test_in_the_general_setting_messages_are_the_last_rounds():
    server = make(agents=5, rounds=6, p_schedule=ALWAYS)
    for t in range(7):
        expects = {bool(r.expects) for r in server.requests(range(5)).values()}
        assert expects == {t < 6}  # nobody would use a vector of the last round
        if t:
            found = senders(server)
            assert len(found) == 5
            assert {when for _, when in found.values()} == {t - 1}
            assert all(sender != n for n, (sender, _) in found.items())
        server.close(answers(server))
    assert server.finished


def test_a_straggler_of_one_round_is_back_in_the_next():
    server = make(agents=2, rounds=3, p_schedule=ALWAYS)
    server.close(answers(server, missing=[1]))
    assert set(senders(server)) == {1}
    server.close(answers(server))
    assert set(senders(server)) == {0, 1}


# ------------------------------------------------------------------ probabilities


@pytest.mark.parametrize("name", ["1-1/sqrt(t)", "1-1/t", "1-1/t^2"])
def test_vectors_are_sent_with_probability_one_minus_p_and_p1_is_p2(name):
    agents, seeds = 40, 25
    for t in (1, 2, 3):
        count = 0
        for seed in range(seeds):
            server = FTSServer(LINE, agents, FTSSettings(features=4, p_schedule=name), 5, seed)
            server.load_state_dict(
                {"round": t, "senders": list(range(agents)), "used": {},
                 "messages": np.array(list(vectors(agents).values()))}
            )  # fmt: skip
            count += len(senders(server))
        p = own_probability(name, max(t, 2))
        sd = math.sqrt(p * (1 - p) * agents * seeds)
        assert abs(count - (1 - p) * agents * seeds) < 4 * sd


def test_preferences_are_the_distribution_of_senders():
    weights = np.zeros((4, 4))
    weights[0] = [9.0, 1.0, 3.0, 0.0]  # one's own entry never counts
    weights[1:] = 1.0
    rounds = 1200
    server = make(4, rounds, 0, weights, ALWAYS)
    counts, others = np.zeros(4), np.zeros(4)
    server.close(answers(server))
    for _ in range(rounds):
        found = senders(server)
        counts[found[0][0]] += 1
        others[found[2][0]] += 1
        server.close(answers(server))
    # (1, 3) / 4 and thirds; 4 standard deviations
    sd = math.sqrt(0.25 * 0.75 / rounds)
    np.testing.assert_allclose(counts / rounds, [0, 0.25, 0.75, 0], atol=4 * sd)
    sd = math.sqrt(2 / 9 / rounds)
    np.testing.assert_allclose(others / rounds, [1 / 3, 1 / 3, 0, 1 / 3], atol=4 * sd)
    assert counts[3] == counts[0] == others[2] == 0


def test_an_agent_without_preferences_follows_its_own_model():
    server = make(3, preferences=np.zeros((3, 3)), p_schedule=ALWAYS)
    server.close(answers(server))
    assert senders(server) == {}
    alone = make(agents=1, p_schedule=ALWAYS)
    alone.close(answers(alone))
    assert senders(alone) == {}


# ------------------------------------------------------------------ targets and histories


def test_only_targets_are_sent_vectors_and_the_others_rest_or_go_on_alone():
    once = make(6, targets=2, messages="once", p_schedule=ALWAYS)
    assert set(once.requests(range(6))) == set(range(6))
    once.close(answers(once))
    assert set(once.requests(range(6))) == {0, 1}
    renewed = make(6, 3, targets=2, p_schedule=ALWAYS)
    for t in range(4):
        requests = renewed.requests(range(6))
        assert set(requests) == ({0, 1} if t == 3 else set(range(6)))
        if t:
            assert set(senders(renewed)) == {0, 1}
            assert all(requests[n].kind == "step" for n in requests)
        renewed.close(answers(renewed))


@pytest.mark.parametrize("design", ["thompson", "random"])
def test_agents_that_are_no_targets_may_have_a_history(design):
    server = make(4, targets=1, history=50, history_design=design, initial_points=3)
    requests = server.requests(range(4))
    assert (requests[0].kind, requests[0].values["count"]) == ("explore", 3)
    kind = "history" if design == "thompson" else "explore"
    for n in (1, 2, 3):
        assert (requests[n].kind, requests[n].values["count"]) == (kind, 50)
        assert requests[n].expects == {"omega": (4,)}
    plain = make(4, targets=1, initial_points=3).requests(range(4))
    assert {(r.kind, r.values["count"]) for r in plain.values()} == {("explore", 3)}


def test_it_runs_with_agents_of_both_kinds():
    settings = FTSSettings(features=20, initial_points=2, targets=1, history=6, messages="once")
    server = FTSServer(SQUARE, 4, settings, 4)
    parties = [Party(server.setup(), seed=n) for n in range(4)]
    run(server, parties)
    assert [p.calls for p in parties] == [2 + 4, 6, 6, 6]
    assert {e["source"] for e in parties[0].evaluations()} <= {"initial", "own", "advice"}


# ------------------------------------------------------------------ restart


@pytest.mark.parametrize("messages", ["once", "renewed"])
def test_asking_twice_is_the_same_and_restored_it_goes_on_the_same(messages):
    server = make(5, 6, messages=messages)
    twin = make(5, 6, messages=messages)
    while not server.finished:
        assert senders(server) == senders(server) == senders(twin)
        given = answers(server)
        server.close(given)
        twin.close(given)
        twin = restored(twin, lambda: make(5, 6, messages=messages))
        text = {k: v for k, v in twin.state_dict().items() if k != "messages"}
        assert json.loads(json.dumps(text)) == text
    assert twin.finished


def test_used_messages_are_not_kept_where_they_do_not_matter():
    server = make(5, 6, p_schedule=ALWAYS)
    for _ in range(4):
        server.close(answers(server))
    assert server.state_dict()["used"] == {}


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "bad",
    [np.ones((2, 3)), -np.ones((3, 3)), np.full((3, 3), np.nan), np.full((3, 3), np.inf), [1.0]],
)
def test_preferences_that_are_no_distributions_are_refused(bad):
    with pytest.raises(SettingsError, match=r"`preferences` must be finite, >= 0 and \(3, 3\)"):
        make(3, preferences=bad)


def test_bad_settings_are_refused():
    with pytest.raises(SettingsError, match=r"`targets` must be <= .* agents, but got 9 > 6"):
        make(6, targets=9)
    with pytest.raises(SettingsError, match="`history` must be >= 0"):
        make(6, history=-1)
    with pytest.raises(SettingsError, match=r"`messages` must be renewed \| once"):
        make(6, messages="twice")


# ------------------------------------------------------------------ the baselines


@pytest.mark.parametrize("kind", [ThompsonServer, RandomSearchServer])
def test_the_baselines_send_nothing_and_expect_nothing(kind):
    server = kind(SQUARE, 3, ThompsonSettings(features=10, initial_points=2), 4)
    parties = [Party(server.setup(), seed=n) for n in range(3)]
    while not server.finished:
        requests = server.requests(range(3))
        for request in requests.values():
            assert not request.arrays
            assert not request.expects
        server.close({n: parties[n].answer(r) for n, r in requests.items()})
    assert [p.calls for p in parties] == [6, 6, 6]
    expected = "own" if kind is ThompsonServer else "initial"
    assert {e["source"] for e in parties[0].evaluations()[2:]} == {expected}
    units = [tuple(e["unit"]) for p in parties for e in p.evaluations()]
    assert len(set(units)) == len(units)


def test_random_search_is_uniform_over_the_space():
    server = RandomSearchServer(LINE, 1, ThompsonSettings(initial_points=1), 400)
    party = Party(server.setup(), lambda params, rng: 0.0)
    run(server, [party])
    x = np.sort([e["unit"][0] for e in party.evaluations()])
    # Kolmogorov and Smirnov's 0.1% level, 1.95 / sqrt(n)
    assert np.abs(x - (np.arange(401) + 0.5) / 401).max() < 1.95 / math.sqrt(401)


def test_thompson_sampling_alone_finds_the_top():
    server = ThompsonServer(SQUARE, 2, ThompsonSettings(features=10), 25)
    parties = [Party(server.setup(), seed=n) for n in range(2)]
    run(server, parties)
    for party in parties:
        best = max(party.evaluations(), key=lambda e: e["score"])
        # noise of 0.01 hides differences of the quadratic within a distance of 0.15
        assert np.linalg.norm(np.array(best["unit"]) - [0.3, 0.7]) < 0.2


def test_a_servers_choices_follow_its_seed():
    def frequencies(seed):
        server = ThompsonServer(LINE, 2, ThompsonSettings(features=5), 1, seed)
        return server.setup().arrays["frequencies"]

    assert np.array_equal(frequencies(1), frequencies(1))
    assert not np.array_equal(frequencies(1), frequencies(2))
