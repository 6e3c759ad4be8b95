"""The server of DP-FTS-DE: what it releases, what that costs, and when it stops."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import EARLY_RELEASES, DPFTSDESettings
from flwr_fbo.methods.thompson.schedules import WeightSchedule
from flwr_fbo.models.features import RandomFeatures, WeightPosterior
from flwr_fbo.models.learned_scale import weight_deviations
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.calibration import epsilon_of
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.privacy.events import FixedSizeRelease, GaussianRelease
from flwr_fbo.privacy.ledger import MemoryLedger
from flwr_fbo.privacy.release_plan import expected_signal
from flwr_fbo.privacy.releases import ReleaseMemory
from flwr_fbo.privacy.sensitivity import joint_sensitivity

from .thompson_harness import SQUARE, Party, restored, run

LINE = Space({"x": Float(0, 1)})


#: The papers' agent, which the defaults are not.
PAPER = {
    "acquisition": "thompson", "advice_use": "query", "message": "sample", "vector_bound": None,
    "first_point": "random", "advice": "last",
}  # fmt: skip


def make(agents=12, rounds=5, space=LINE, entropy=11, budget=None, seed=0, **given):
    given = {"features": 5, "regions": 2, "accountant": "rdp", **given}
    entropy = None if entropy is None else seeded_entropy(entropy)
    return DPFTSDEServer(space, agents, DPFTSDESettings(**given), rounds, seed, budget, entropy)


def vectors_of(agents, features, seed=1, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((agents, features))


def replies(vectors, present=None):
    present = range(len(vectors)) if present is None else present
    return {n: Reply({"omega": vectors[n]}) for n in present}


def releases_of(server, answers, count, round=0):
    """Releases of the same round, drawn again and again."""
    found = []
    for _ in range(count):
        empty = {"round": round, "released": ReleaseMemory().to_dict(), "exhausted": False}
        server.load_state_dict(empty)
        server.close(answers)
        found.append(server.released.latest)
    return np.array(found)


def clipped(vectors, bound):
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(1.0, norms / bound)


# ------------------------------------------------------------------ a release


@pytest.mark.parametrize("sensitivity", ["exact", "paper"])
@pytest.mark.parametrize(("q", "t"), [(1.0, 0), (0.4, 0), (0.4, 12)])
def test_releases_have_the_mean_and_variance_of_algorithm_1(sensitivity, q, t):
    agents, z, clip = 12, 0.8, 4.0
    server = make(
        agents, 20, sampling_rate=q, noise_multiplier=z, clip=clip, sensitivity=sensitivity,
        releases="all",
    )  # fmt: skip
    vectors = vectors_of(agents, 5, scale=2.0)  # many are longer than S / sqrt(P) = 2.83
    count = 2500
    found = releases_of(server, replies(vectors), count, round=t)
    assert found.shape == (count, 2, 5)

    weights = WeightSchedule("softmax-15", 10, 30).at(t, agents, 2)
    terms = weights[:, :, None] * clipped(vectors, clip / math.sqrt(2))[None]  # (P, N, M)
    mean = terms.sum(axis=1)
    # line 11 divides by q; what noise there is before that depends on the sensitivity
    bound = weights.max() * clip  # "paper": phi_max S
    if sensitivity == "exact":
        bound = np.linalg.norm(weights, axis=0).max() * clip / math.sqrt(2)
    assert bound == pytest.approx(joint_sensitivity(weights, clip, sensitivity))
    noise = (z * bound / q) ** 2
    variance = noise + (1 - q) / q * (terms**2).sum(axis=1)
    # 10 means: 4 standard errors. 10 variances: 5 standard errors of a variance, sqrt(2 / n)
    # relative for Gaussians, and sums of Bernoulli terms are less peaked.
    deviation = np.sqrt(variance)
    assert np.all(np.abs(found.mean(axis=0) - mean) < 4 * deviation / math.sqrt(count))
    np.testing.assert_allclose(found.var(axis=0), variance, rtol=5 * math.sqrt(2 / count))
    if q == 1.0:  # then all is noise: independent in all P M coordinates
        flat = (found - mean).reshape(count, -1) / math.sqrt(noise)
        np.testing.assert_allclose(np.cov(flat.T), np.eye(10), atol=5 * math.sqrt(2 / count))


def test_the_sample_is_poisson_with_rate_q():
    # Agent n sends the unit vector e_n, so a release with hardly any noise shows who was in it.
    agents, q, count = 10, 0.35, 1500
    server = make(
        agents, sampling_rate=q, noise_multiplier=0.01, clip=1.0, regions=1, features=agents
    )
    found = releases_of(server, replies(np.eye(agents)), count)[:, 0]  # (count, N)
    scaled = found * q * agents  # 1 or 0, and noise of deviation 0.01
    members = scaled > 0.5
    assert np.all(np.abs(scaled - members) < 0.07)
    sd = math.sqrt(q * (1 - q) / count)
    np.testing.assert_allclose(members.mean(axis=0), q, atol=4 * sd)
    # independently: the number taking part is binomial, not fixed, and pairs are uncorrelated
    sizes = members.sum(axis=1)
    assert sizes.var() == pytest.approx(agents * q * (1 - q), rel=5 * math.sqrt(2 / count))
    correlation = np.corrcoef(members.T) - np.eye(agents)
    assert np.abs(correlation).max() < 4.5 / math.sqrt(count)
    serial = np.corrcoef(members[:-1, 0], members[1:, 0])[0, 1]
    assert abs(serial) < 4 / math.sqrt(count)


def test_the_noise_is_for_the_largest_weights_where_homes_are_uneven():
    """Of 7 agents in 4 sub-regions one is alone at home: its weights have norm 1, and the mean of
    all norms is 4 / 7. 16,000 numbers of noise: five standard errors."""
    server = make(7, regions=4, noise_multiplier=0.9, clip=6.0)
    norms = np.linalg.norm(WeightSchedule().at(0, 7, 4), axis=0)
    assert norms.max() == pytest.approx(1.0, rel=1e-5)
    assert norms.mean() == pytest.approx(4 / 7, rel=1e-5)
    found = releases_of(server, {}, 800)
    assert found.std() == pytest.approx(0.9 * 6.0 / 2.0, rel=5 / math.sqrt(2 * found.size))
    assert server.release().deviation == pytest.approx(0.9 * 6.0 / 2.0, rel=1e-5)


@pytest.mark.parametrize("nobody", ["answered", "was selected"])
def test_an_empty_sample_releases_noise_and_nothing_else(nobody):
    if nobody == "answered":
        server, answers, q = make(noise_multiplier=1.0, clip=3.0), {}, 1.0
    else:
        q = 1e-6
        server = make(noise_multiplier=1.0, clip=3.0, sampling_rate=q)
        answers = replies(vectors_of(12, 5))
    found = releases_of(server, answers, 400).reshape(-1)
    bound = joint_sensitivity(WeightSchedule().at(0, 12, 2), 3.0)
    assert abs(found.mean()) < 4 * bound / q / math.sqrt(found.size)
    assert found.std() == pytest.approx(bound / q, rel=5 / math.sqrt(2 * found.size))


def test_denominators_stay_whatever_arrives():
    # a missing agent counts as zero: the others' weights do not grow, nor does q follow
    agents, vectors = 6, vectors_of(6, 5)
    server = make(agents, regions=1, weights="uniform")
    server.close(replies(vectors, [0, 3]))
    np.testing.assert_allclose(server.released.latest[0], (vectors[0] + vectors[3]) / 6, rtol=1e-12)
    server.close({n: Reply(declined="ValueError") for n in range(6)})
    assert np.array_equal(server.released.latest, np.zeros((1, 5)))


def test_without_noise_one_region_is_the_plain_mean():
    vectors = vectors_of(12, 5)
    server = make(regions=1)
    server.close(replies(vectors))
    assert server.private is False
    assert server.budget is None
    np.testing.assert_allclose(server.released.latest[0], vectors.mean(axis=0), rtol=1e-12)


def test_without_noise_it_is_fts_de_and_clips_only_where_set():
    vectors = vectors_of(12, 5, scale=5.0)
    server, bounded = make(weights_hold=0, weights_decay=3), make(clip=2.0)
    schedule = WeightSchedule("softmax-15", 0, 3)
    for t in range(5):
        server.close(replies(vectors))
        np.testing.assert_allclose(
            server.released.latest, schedule.at(t, 12, 2) @ vectors, rtol=1e-12
        )
    bounded.close(replies(vectors))
    expected = WeightSchedule().at(0, 12, 2) @ clipped(vectors, 2.0 / math.sqrt(2))
    np.testing.assert_allclose(bounded.released.latest, expected, rtol=1e-12)


def test_sampling_without_noise_is_unbiased_and_follows_the_seed():
    vectors = vectors_of(12, 5)
    first, second, other = (make(sampling_rate=0.5, regions=1, seed=s) for s in (3, 3, 4))
    for server in (first, second, other):
        server.close(replies(vectors))
    assert np.array_equal(first.released.latest, second.released.latest)
    assert not np.array_equal(first.released.latest, other.released.latest)
    found = []
    for seed in range(600):
        server = make(sampling_rate=0.5, regions=1, seed=seed)
        server.close(replies(vectors))
        found.append(server.released.latest[0])
    sd = np.sqrt((vectors**2).sum(axis=0)) / 12  # (1 - q) / q = 1
    assert np.all(np.abs(np.mean(found, axis=0) - vectors.mean(axis=0)) < 4 * sd / math.sqrt(600))


def test_a_sample_of_fixed_size_has_that_size_and_an_unbiased_mean():
    # N q = 3.5 rounds to 4: the division must be by 4 / 10 then, not by 0.35
    agents, count = 10, 1500
    server = make(
        agents, sampling="fixed-size", sampling_rate=0.35, noise_multiplier=0.01, clip=1.0,
        regions=1, features=agents,
    )  # fmt: skip
    found = releases_of(server, replies(np.eye(agents)), count)[:, 0]
    members = found * agents * 0.4 > 0.5
    assert set(members.sum(axis=1)) == {4}
    sd = math.sqrt(0.4 * 0.6 / count)
    np.testing.assert_allclose(members.mean(axis=0), 0.4, atol=4 * sd)
    np.testing.assert_allclose(found.mean(axis=0) * agents, 1.0, atol=4 * sd / 0.4)
    assert {type(e) for e in server.budget.ledger.events} == {FixedSizeRelease}
    assert server.budget.ledger.events[0] == FixedSizeRelease(0.01, 10, 4, 0)
    plain = make(agents, sampling="fixed-size", sampling_rate=0.35, regions=1, features=agents)
    plain.close(replies(np.eye(agents)))
    np.testing.assert_allclose(np.sort(plain.released.latest[0]), [0] * 6 + [0.25] * 4)


def test_a_planned_run_of_fixed_size_keeps_to_its_budget():
    server = make(40, 3, sampling="fixed-size", sampling_rate=0.5, epsilon=8.0, releases="0,2")
    while not server.finished:
        server.close(replies(vectors_of(40, 5)))
    assert not server.exhausted
    assert 0.9 * 8.0 < server.budget.spent <= 8.0
    assert server.budget.name == "fixed-size"


def test_noise_comes_from_the_operating_system_or_the_run_is_not_private():
    vectors = replies(vectors_of(12, 5))
    real, again = (make(noise_multiplier=1.0, entropy=None) for _ in range(2))
    seeded, same = (make(noise_multiplier=1.0, entropy=7) for _ in range(2))
    for server in (real, again, seeded, same):
        server.close(vectors)
    assert real.private
    assert not seeded.private
    assert not make(noise_multiplier=1.0, entropy=None, noise_seed=1).private
    assert not make(noise_multiplier=1.0, entropy=None, diagnostics=True).private
    assert not np.array_equal(real.released.latest, again.released.latest)
    assert np.array_equal(seeded.released.latest, same.released.latest)


def test_the_bound_is_s_over_root_p_and_the_largest_norm_of_private_runs_where_unset():
    assert make(clip=6.0, regions=4).aggregation.bound == 3.0
    samples = make(noise_multiplier=1.0, features=9, regions=4, vector_bound=None)
    assert samples.aggregation.bound == 3.0  # sqrt(M)
    assert make(noise_multiplier=1.0, features=9, regions=4).aggregation.bound == 2.0
    scaled = make(noise_multiplier=1.0, reward_low=0.0, reward_high=1.0)
    assert scaled.aggregation.bound == pytest.approx(np.hypot(2.0, 0.7 * np.sqrt(2)))
    assert make().aggregation.bound is None


# ------------------------------------------------------------------ the schedule of releases


@pytest.mark.parametrize(
    ("given", "rounds", "expected"),
    [
        ({"releases": "all"}, 4, (0, 1, 2, 3)),
        ({"releases": "early"}, 10, (0, 1, 2, 4, 8)),
        ({"releases": "early"}, 40, EARLY_RELEASES),
        ({"releases": "5, 2,2,0, 99"}, 6, (0, 2, 5)),
        ({}, 3, (0, 1, 2)),
        ({"noise_multiplier": 1.0}, 5, (0, 1, 2, 4)),
        ({"epsilon": 5.0, "releases": "early"}, 3, (0, 1, 2)),
        ({"epsilon": 1e-3}, 9, (0, 8)),  # too little for more than one or two
        ({"releases": "all"}, 0, ()),
    ],
)
def test_rounds_that_release(given, rounds, expected):
    server = make(rounds=rounds, **given)
    assert server.release_plan.rounds == expected
    asked = []
    while not server.finished:
        requests = server.requests(range(12))
        if requests[0].expects:
            assert requests[0].expects == {"omega": (5,)}
            asked.append(server.round)
        server.close(replies(vectors_of(12, 5)) if requests[0].expects else {})
    assert tuple(asked) == expected
    assert rounds not in asked  # nobody would use a release of the last round
    assert server.round == rounds + 1


def test_agents_go_on_with_the_last_release():
    server = make(rounds=5, releases="0,3")
    seen = []
    for t in range(6):
        requests = server.requests([0])
        seen.append(requests[0].arrays.get("advice"))
        server.close(replies(vectors_of(12, 5, seed=t)))
    assert seen[0] is None
    assert np.array_equal(seen[1], seen[2])
    assert np.array_equal(seen[1], seen[3])
    assert not np.array_equal(seen[3], seen[4])
    assert np.array_equal(seen[4], seen[5])


def test_agents_may_be_sent_the_average_of_the_releases_by_their_noise():
    server = make(rounds=4, noise_multiplier=0.3, releases="0,2,3", advice="average",
                  weights_hold=0, weights_decay=3)  # fmt: skip
    vectors, seen, precisions = vectors_of(12, 5), [], []
    for t in range(5):
        if t:
            sent = server.requests([0])[0].arrays["advice"]
            expected = np.average(seen, axis=0, weights=precisions)
            np.testing.assert_allclose(sent, expected, rtol=1e-12)
        server.close(replies(vectors))
        if t in (0, 2, 3):
            seen.append(server.released.latest)
            weights = WeightSchedule("softmax-15", 0, 3).at(t, 12, 2)
            precisions.append(joint_sensitivity(weights, math.sqrt(2 * 5)) ** -2)
    assert len(server.released) == 3
    assert precisions[0] < precisions[2]  # uniform weights need less noise


@pytest.mark.parametrize(("agents", "told"), [(6, False), (600, True)])
def test_a_release_that_noise_drowns_is_not_sent(agents, told):
    server = make(agents, rounds=9, epsilon=1.0, releases="0", regions=1)
    for t in range(4):
        requests = server.requests([0])
        assert ("advice" in requests[0].arrays) == (told and t > 0)
        server.close(replies(vectors_of(agents, 5, seed=t)))
    assert len(server.released) == 1  # made, charged and published all the same
    assert server.recommend(server.released.releases) is not None


@pytest.mark.parametrize(
    ("parameters", "epsilon", "rounds"),
    [
        (4, 50.0, [1, 2, 3]),  # 12 agents with 2 scores: 24 = 6 * 4
        (5, 50.0, [2, 3]),
        (6, 50.0, [2, 3]),  # 3 scores: 36 = 6 * 6
        (7, 50.0, [3]),
        (9, 50.0, []),  # 4 scores: 48 < 6 * 9
        (9, None, [1, 2, 3]),  # without noise few scores help
    ],
)
def test_a_noisy_release_of_few_scores_for_the_parameters_is_not_sent(parameters, epsilon, rounds):
    space = Space({f"x{d}": Float(0.0, 1.0) for d in range(parameters)})
    every = {} if epsilon is None else {"epsilon": epsilon, "releases": "0,1,2,3"}
    server = make(12, rounds=5, space=space, regions=1, **every)
    told = []
    for t in range(4):
        if "advice" in server.requests([0])[0].arrays:
            told.append(t)
        server.close(replies(vectors_of(12, 5, seed=t)))
    assert told == rounds
    assert len(server.released) == 4  # made, charged and published all the same


@pytest.mark.parametrize(("parameters", "until"), [(10, None), (20, 22)])
def test_long_work_alone_for_few_scores_is_said(parameters, until):
    # Five agents have 6 * 20 scores after 24 evaluations each, which are two and 22 rounds.
    space = Space({f"x{d}": Float(0.0, 1.0) for d in range(parameters)})
    server = make(5, 28, space, regions=1, epsilon=500.0, releases="all")
    if until is None:
        assert server.warnings() == []
    else:
        (text,) = server.warnings()
        assert f"agents work alone up to round {until} of 28" in text
        assert "6 scores of all agents together for each of the 20 parameters" in text


@pytest.mark.parametrize("settings", [{"epsilon": 1.0}, {"epsilon": 50.0, "parameters": 9}])
def test_the_paper_s_agents_are_sent_every_release(settings):
    parameters = settings.pop("parameters", 1)
    space = Space({f"x{d}": Float(0.0, 1.0) for d in range(parameters)})
    server = make(6, rounds=9, space=space, releases="0", advice_use="query", **settings)
    server.close(replies(vectors_of(6, 5)))
    assert "advice" in server.requests([0])[0].arrays


def test_more_evaluations_behind_a_release_outweigh_more_noise():
    # The signal of a release grows with the scores behind it: .14 after 2, .43 after 30.
    early = make(30, rounds=40, noise_multiplier=9.0, regions=1, releases="0")
    late = make(30, rounds=40, noise_multiplier=9.0, regions=1, releases="28")
    for server, rounds in ((early, 1), (late, 29)):
        for t in range(rounds):
            server.close(replies(vectors_of(30, 5, seed=t)))
    assert "advice" not in early.requests([0])[0].arrays
    assert "advice" in late.requests([0])[0].arrays


def test_drawing_a_release_remembers_nothing():
    server = make(noise_multiplier=1.0)
    before = server.state_dict()
    vectors = dict(enumerate(vectors_of(12, 5)))
    drawn = server.aggregation.draw_release(vectors, 0, seeded_entropy(5))
    assert drawn.shape == (2, 5)
    np.testing.assert_equal(server.state_dict(), before)
    assert server.budget.ledger.events == ()


def test_before_any_release_there_is_no_shared_function():
    server = make(rounds=3, releases="2")
    server.close({})
    request = server.requests([0])[0]
    assert "advice" not in request.arrays


# ------------------------------------------------------------------ the budget


@pytest.mark.parametrize("accountant", ["rdp", "moments", "pld"])
def test_a_planned_run_spends_its_budget_and_no_more(accountant):
    server = make(agents=40, rounds=4, epsilon=6.0, accountant=accountant, releases="0,2",
                  sampling_rate=0.5)  # fmt: skip
    assert server.delta == pytest.approx(1e-5)
    while not server.finished:
        server.close(replies(vectors_of(40, 5)))
    assert not server.exhausted
    assert len(server.budget.ledger.events) == 2
    assert 0.95 * 6.0 < server.budget.spent <= 6.0
    expected = epsilon_of(server.noise_multiplier, server.delta, [0.5, 0.5], accountant)
    assert server.budget.spent == pytest.approx(expected)


def test_every_release_is_charged_with_its_round_rate_and_noise():
    server = make(rounds=6, noise_multiplier=2.0, sampling_rate=0.25, releases="0,1,4", delta=1e-3)
    while not server.finished:
        server.close(replies(vectors_of(12, 5)))
    assert server.budget.ledger.events == tuple(GaussianRelease(2.0, 0.25, t) for t in (0, 1, 4))
    assert server.budget.epsilon == math.inf


def test_the_delta_that_is_set_is_planned_charged_and_stated():
    server = make(rounds=4, epsilon=3.0, delta=1e-3, releases="0,2")
    assert server.delta == server.budget.delta == server.statement().delta == 1e-3
    expected = epsilon_of(server.noise_multiplier, 1e-3, [1.0, 1.0], "rdp")
    assert 0.95 * 3.0 < expected <= 3.0


def limited(releases, z=1.0, q=1.0):
    """A budget for just so many releases."""
    epsilon = epsilon_of(z, 1e-2, [q] * releases, "rdp") * 1.0001
    return PrivacyBudget(epsilon, 1e-2, MemoryLedger(), "rdp")


def test_an_exhausted_budget_stops_releases_before_charging_and_agents_keep_the_last():
    budget = limited(2)
    server = make(rounds=5, noise_multiplier=1.0, releases="all", budget=budget, delta=1e-2)
    released = []
    for t in range(6):
        request = server.requests([0])[0]
        assert bool(request.expects) == (t < 3)  # the third is asked for, and then refused
        server.close(replies(vectors_of(12, 5)))
        released.append(server.released.latest)
    assert server.exhausted
    assert server.finished
    assert len(budget.ledger.events) == 2
    assert budget.spent <= budget.epsilon
    assert np.array_equal(released[1], released[2])
    assert np.array_equal(released[1], released[5])
    assert not np.array_equal(released[0], released[1])


def test_a_budget_that_was_spent_before_stays_spent():
    ledger = MemoryLedger()
    for t in range(2):
        ledger.charge(GaussianRelease(1.0, 1.0, t))
    spent = limited(2)
    budget = PrivacyBudget(spent.epsilon, 1e-2, ledger, "rdp")
    server = make(rounds=3, noise_multiplier=1.0, budget=budget, delta=1e-2)
    server.close(replies(vectors_of(12, 5)))
    assert server.exhausted
    assert server.released.latest is None


class Watched:
    """An entropy that notes when it is first drawn from."""

    private = False

    def __init__(self, log):
        self._inner, self._log = seeded_entropy(0), log

    def words(self, count):
        self._log.append("draw")
        return self._inner.words(count)


class WatchedLedger(MemoryLedger):
    def __init__(self, log, broken=False):
        super().__init__()
        self._log, self._broken = log, broken

    def charge(self, event):
        self._log.append("charge")
        if self._broken:
            raise OSError("disk full")
        super().charge(event)


def test_a_release_is_charged_before_anything_is_drawn():
    log: list[str] = []
    budget = PrivacyBudget(math.inf, 1e-2, WatchedLedger(log), "rdp")
    settings = DPFTSDESettings(features=5, regions=2, noise_multiplier=1.0, sampling_rate=0.5)
    server = DPFTSDEServer(LINE, 12, settings, 3, budget=budget, entropy=Watched(log))
    server.close(replies(vectors_of(12, 5)))
    assert log[0] == "charge"
    assert log.count("charge") == 1
    assert "draw" in log


def test_what_cannot_be_charged_is_not_released():
    log: list[str] = []
    budget = PrivacyBudget(math.inf, 1e-2, WatchedLedger(log, broken=True), "rdp")
    settings = DPFTSDESettings(features=5, regions=2, noise_multiplier=1.0)
    server = DPFTSDEServer(LINE, 12, settings, 3, budget=budget, entropy=Watched(log))
    with pytest.raises(OSError, match="disk full"):
        server.close(replies(vectors_of(12, 5)))
    assert log == ["charge"]
    assert server.released.latest is None
    assert server.round == 0


# ------------------------------------------------------------------ the state machine


def test_agents_start_at_home_and_follow_with_the_schedules_probability():
    server = make(agents=5, space=SQUARE, regions=4)
    first = server.requests(range(5))
    assert [first[n].values["home"] for n in range(5)] == [0, 1, 2, 3, 0]
    assert {r.kind for r in first.values()} == {"explore"}
    everywhere = make(agents=3, explore_home=False).requests(range(3))
    assert {r.values["home"] for r in everywhere.values()} == {-1}
    server.close(replies(vectors_of(5, 5)))
    for t in range(1, 4):
        request = server.requests([2])[2]
        assert (request.kind, request.round) == ("step", t)
        assert request.values["own-probability"] == pytest.approx(1 - 1 / t)
        server.close(replies(vectors_of(5, 5)))


def test_any_schedule_may_be_given():
    settings = DPFTSDESettings(features=5)
    server = DPFTSDEServer(LINE, 3, settings, 2, p_schedule=lambda t: 0.1 * t)
    server.close({})
    assert server.requests([0])[0].values["own-probability"] == pytest.approx(0.1)


# ------------------------------------------------------------------ the learned length scale

#: What the parties of a narrow federation have in common, and that of a wide one.
WAVES = {"narrow": 40.0, "wide": 3.0}


def common_vectors(server, wave, agents=40):
    """Vectors of agents that evaluated ten random points of one sine each."""
    arrays, rng = server.setup().arrays, np.random.default_rng(5)
    features = RandomFeatures(arrays["frequencies"], arrays["phases"])
    found = []
    for _ in range(agents):
        x = rng.random((10, 1))
        y = np.sin(wave * x[:, 0]) + 0.3 * rng.standard_normal(10)
        found.append(WeightPosterior.at(features, x, (y - y.mean()) / y.std(), 0.3).mean())
    return np.array(found)


def sinuous(wave, agents=40, **given):
    """A server after its first release, and the vectors of that release."""
    given = {"features": 200, "regions": 1, "initial_points": 10, "vector_bound": None, **given}
    server = make(agents, rounds=4, **given)
    vectors = common_vectors(server, wave, agents)
    server.close(replies(vectors))
    return server, vectors


@pytest.mark.parametrize("noise", [None, 0.02])
def test_the_first_release_says_how_narrow_objectives_are(noise):
    server, _ = sinuous(WAVES["narrow"], noise_multiplier=noise, vector_bound=4.0)
    # A sine of frequency w has the curvature of functions with the length scale 1 / w.
    learned = server.requests([0])[0].values["lengthscale"]
    assert 0.5 / 40.0 <= learned <= 3.0 / 40.0
    wide, _ = sinuous(WAVES["wide"], noise_multiplier=noise, vector_bound=4.0)
    assert "lengthscale" not in wide.requests([0])[0].values


def test_later_vectors_count_as_weights_over_their_prior_deviations():
    server, first = sinuous(WAVES["narrow"])
    learned = server.requests([0])[0].values["lengthscale"]
    arrays = server.setup().arrays
    features = RandomFeatures(arrays["frequencies"], arrays["phases"])
    np.testing.assert_allclose(server.released.latest[0], first.mean(axis=0), atol=1e-12)
    server.close(replies(first))
    expected = first.mean(axis=0) * weight_deviations(features, learned, 1)
    np.testing.assert_allclose(server.released.latest[0], expected, atol=1e-12)
    # What is learned comes from the first release alone.
    assert server.requests([0])[0].values["lengthscale"] == learned
    again = restored(server, lambda: make(40, rounds=4, features=200, regions=1, initial_points=10,
                                          vector_bound=None))  # fmt: skip
    assert again.requests([0])[0].values == server.requests([0])[0].values


@pytest.mark.parametrize(
    "given",
    [
        {"feature_lengthscale": 0.03},  # told: nothing to learn
        {"advice_use": "query"},  # the papers' agents
        {"message": "sample"},
        {"regions": 2},  # vectors of points of half of the space
        {"releases": "1,2"},  # no release of the initial points
    ],
)
def test_where_the_first_release_cannot_say_it_nothing_changes(given):
    server, vectors = sinuous(WAVES["narrow"], **given)
    for _ in range(2):
        assert "lengthscale" not in server.requests([0])[0].values
        server.close(replies(vectors))
    np.testing.assert_allclose(server.released.latest.mean(axis=0), vectors.mean(axis=0), atol=0.2)


def test_the_scores_of_finalists_are_released_as_they_are():
    server, vectors = sinuous(WAVES["narrow"], finalists=2)
    while not server.finished:
        request = server.requests([0])[0]
        server.close(replies(vectors) if request.expects else {})
    assert server.released.releases[-1].round == 4
    np.testing.assert_allclose(server.released.latest[0], vectors.mean(axis=0), atol=1e-12)


def test_an_agent_that_is_told_sends_a_vector_within_the_same_bound():
    server, _ = sinuous(WAVES["narrow"], vector_bound=1.0)
    party = Party(server.setup(), lambda params, rng: math.sin(40.0 * float(params["x"])))
    party.answer(Request("explore", 0, {"count": 10, "home": -1}))
    weights, expects = server.requests([0])[0].arrays["advice"], {"omega": (200,)}
    plain = Request("step", 1, {"own-probability": 0.0}, {"advice": weights}, expects)
    told = Request("step", 1, {**plain.values, "lengthscale": 0.025}, plain.arrays, expects)
    first = party.answer(plain).arrays["omega"]
    party.agent = party.build()
    second = party.answer(told).arrays["omega"]
    assert not np.array_equal(first, second)
    for vector in (first, second):
        assert np.linalg.norm(vector) <= 1.0 + 1e-12
    model = party.agent.sampler.own_model
    assert model.learned_lengthscale == 0.025
    assert model._prior_parameters().lengthscales == (0.025,)


@pytest.mark.parametrize("given", [{}, {"noise_multiplier": 1.0}, {"sampling_rate": 0.5}])
def test_asking_twice_is_the_same_and_restored_it_goes_on_the_same(given):
    server, twin = make(entropy=3, **given), make(entropy=3, **given)
    private = "noise_multiplier" in given
    while not server.finished:
        first, second = server.requests(range(12)), server.requests(range(12))
        other = twin.requests(range(12))
        for n in range(12):
            for same in (second, other):
                assert same[n].values == first[n].values
                assert same[n].expects == first[n].expects
                assert same[n].arrays.keys() == first[n].arrays.keys()
                for name, array in first[n].arrays.items():
                    assert np.array_equal(same[n].arrays[name], array)
        answers = replies(vectors_of(12, 5, seed=server.round))
        server.close(answers)
        if private:  # fresh noise could not be the same, so what was released is handed on
            twin = restored(server, lambda: make(entropy=99, **given))
        else:
            twin.close(answers)
            twin = restored(twin, lambda: make(entropy=99, **given))
    assert twin.finished


def test_the_state_holds_no_sample_and_no_source_of_noise():
    server = make(noise_multiplier=1.0)
    server.close(replies(vectors_of(12, 5)))
    state = server.state_dict()
    assert set(state) == {"round", "released", "exhausted"}
    assert set(state["released"]) == {"half_life", "vectors", "deviations", "rounds"}
    again = json.loads(json.dumps(state, default=np.ndarray.tolist))  # all else is plain JSON
    np.testing.assert_equal(again, state)


def test_it_runs_with_agents():
    server = make(agents=4, rounds=3, space=SQUARE, features=20, regions=4, noise_multiplier=0.1,
                  initial_points=3)  # fmt: skip
    parties = [Party(server.setup(), seed=n) for n in range(4)]
    run(server, parties)
    assert [p.calls for p in parties] == [6] * 4
    assert parties[0].evaluations()[3]["source"] == "own"  # with the shared function as prior mean


def test_the_papers_agent_follows_the_shared_function_first():
    server = make(agents=4, rounds=3, space=SQUARE, features=20, regions=4, noise_multiplier=1.0,
                  initial_points=3, **PAPER)  # fmt: skip
    parties = [Party(server.setup(), seed=n) for n in range(4)]
    run(server, parties)
    assert parties[0].evaluations()[3]["source"] == "advice"  # p_1 = 0


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sampling_rate": 0.0}, r"`sampling-rate` must be in \(0, 1\], but got 0.0"),
        ({"sampling_rate": 1.5}, "`sampling-rate` must be in"),
        ({"clip": 0.0}, "`clip` must be > 0, but got 0.0"),
        ({"regions": 0}, "`regions` must be >= 1, but got 0"),
        ({"noise_multiplier": 0.0}, r"`noise-multiplier` must be in \[0.01, 1e\+06\], but got 0.0"),
        ({"noise_multiplier": 0.001}, "`noise-multiplier` must be in"),
        ({"epsilon": -1.0}, "`epsilon` must be > 0"),
        ({"delta": 1.0}, r"`delta` must be in \(0, 1\), but got 1.0"),
        ({"accountant": "pure"}, r"`accountant` must be pld \| rdp \| moments, but got 'pure'"),
        ({"accountant": "fixed-size"}, "`accountant` must be"),
        ({"weights": "softmax"}, r"`weights` must be softmax-15 \|"),
        ({"releases": "sometimes"}, "`releases` must be all, early, auto or a list of rounds"),
        ({"releases": "0,,2"}, "but got '0,,2'"),
        ({"releases": "-1,2"}, "but got '-1,2'"),
        ({"p_schedule": "1/t"}, "`p-schedule` must be"),
    ],
)
def test_bad_settings_are_refused(given, says):
    with pytest.raises(SettingsError, match=says):
        DPFTSDESettings(**given)


def test_bad_federations_are_refused():
    with pytest.raises(SettingsError, match="`agents` must be >= 1, but got 0"):
        make(agents=0)
    with pytest.raises(SettingsError, match="`rounds` must be >= 0, but got -1"):
        make(rounds=-1)
    with pytest.raises(SettingsError, match="a `budget` needs `epsilon` or `noise-multiplier`"):
        make(budget=limited(1))
    with pytest.raises(PrivacyError, match="agents"):
        make(agents=1, epsilon=1.0, delta_rule="paper")


def test_one_agent_alone_needs_no_delta():
    server = make(agents=1, rounds=2, regions=1)
    assert server.delta is None
    server.close(replies(vectors_of(1, 5)))
    np.testing.assert_allclose(server.released.latest, vectors_of(1, 5))


def test_rounds_that_are_too_late_to_release_are_named():
    for given in ({"noise_multiplier": 0.01}, {}):  # also without privacy
        server = make(agents=40, rounds=5, releases="5,0,4,99", **given)
        assert server.release_plan.rounds == (0, 4)
        (warning,) = server.warnings()
        assert "left out: 5, 99." in warning
        assert "the last such round is 4" in warning
        assert make(agents=40, rounds=5, releases="0,4", **given).warnings() == []
    finals = make(agents=40, rounds=5, features=8, finalists=2, releases="0,3")
    assert finals.finals.start == 4
    assert finals.warnings() == []
    assert len(make(agents=40, rounds=5, features=8, finalists=2, releases="4").warnings()) == 1


def widths(server):
    """Length scales of a server's features: the width of each frequency is one over it."""
    frequencies = server.setup().arrays["frequencies"]
    return 1.0 / np.sqrt(np.square(frequencies).mean(axis=1))


def room(parameters):
    return Space({f"x{i}": Float(0, 1) for i in range(parameters)})


def test_features_are_long_where_parameters_are_many_and_noise_is_large():
    given = {"features": 400, "regions": 1, "space": room(5), "agents": 30, "accountant": "pld"}
    private = make(**given, epsilon=8.0)
    told = make(**given, epsilon=8.0, feature_lengthscale=1.0)
    for name, array in told.setup().arrays.items():
        np.testing.assert_array_equal(private.setup().arrays[name], array)
    assert private.setup().values["feature-lengthscale"] == 1.0  # agents see what was used
    assert private.settings.feature_lengthscale is None  # a resumed run decides likewise
    # Frequencies of the length scale 1 are standard normal: five of them have a mean square of 1.
    assert np.mean(widths(private) ** -2) == pytest.approx(1.0, abs=5.0 * math.sqrt(2 / (5 * 400)))


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": None},
        {"space": room(4)},
        {"agents": 3000},  # who drown the noise
        {"feature_lengthscale": 0.3},
        {"advice_use": "query"},
        {"noise_multiplier": 0.25, "epsilon": None},  # less than .02 at any point
    ],
)
def test_other_runs_keep_their_features(given):
    given = {"space": room(5), "agents": 30, "regions": 1, "features": 200, "epsilon": 8.0, **given}
    server = make(**given)
    given = {**given, "epsilon": None, "noise_multiplier": None, "agents": 30}
    np.testing.assert_array_equal(
        server.setup().arrays["frequencies"], make(**given).setup().arrays["frequencies"]
    )


def test_noise_of_the_agents_own_counts_too():
    server = make(space=room(5), agents=30, regions=1, features=200, local_epsilon=8.0)
    assert server.setup().values["feature-lengthscale"] == 1.0


@pytest.mark.parametrize(("parameters", "learned"), [(4, True), (5, False)])
def test_nothing_is_learned_about_features_of_one_length_scale(parameters, learned, monkeypatch):
    monkeypatch.setattr("flwr_fbo.methods.dp_fts_de.server.learn_lengthscale", lambda *given: 0.1)
    given = {"agents": 30, "regions": 1, "features": 200, "initial_points": 4, "clip": 1.0}
    server = make(space=room(parameters), **given, noise_multiplier=1.0, releases="0")
    server.close(replies(vectors_of(30, 200, scale=0.01)))
    assert server.requests([0])[0].arrays["advice"].shape == (1, 200)
    assert ("lengthscale" in server.requests([0])[0].values) == learned


@pytest.mark.parametrize(("parameters", "sent"), [(1, True), (2, True), (3, False)])
def test_more_noise_is_borne_where_parameters_are_few(parameters, sent):
    given = {"space": room(parameters), "regions": 1, "features": 200, "accountant": "pld"}
    server = make(agents=30, rounds=18, epsilon=1.0, **given)
    assert server.release_plan.rounds[0] == 0
    signal = expected_signal(server.settings.evaluations_after(0))
    assert 2.0 < server.aggregation.deviation(0) / signal < 4.0
    server.close(replies(vectors_of(30, 200, scale=0.01)))
    assert ("advice" in server.requests([0])[0].arrays) == sent
    loud = make(agents=10, rounds=18, epsilon=1.0, **given)  # more than four times
    loud.close(replies(vectors_of(10, 200, scale=0.01)))
    assert "advice" not in loud.requests([0])[0].arrays
