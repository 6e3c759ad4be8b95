"""DP-Fed-PNE: what the noise is, what it hides, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import stats

from flwr_fbo.core.evaluation import MemoryRecords
from flwr_fbo.methods.fed_pne import agent as fed_pne_agent
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.privacy import (
    PrivacyLimits,
    guarantees,
    mean_noise,
    private_means,
)
from flwr_fbo.methods.fed_pne.report import summarise
from flwr_fbo.methods.fed_pne.settings import FedPNESettings, MeanNoise
from flwr_fbo.privacy.calibration import gaussian_epsilon, gaussian_multiplier
from flwr_fbo.privacy.entropy import Words, seeded_entropy

from .fed_pne_harness import agent_of, fed_pne, listening, one_round  # isort: skip


OWN = PrivacyLimits(one_user=200.0)


class Frozen:
    """The same words every time: two calls add the same noise."""

    private = False

    def words(self, count: int) -> Words:
        return np.random.Generator(np.random.Philox(1)).integers(0, 2**64, count, dtype=np.uint64)


def tent(params: Mapping[str, Any], rng: np.random.Generator) -> float:
    return 0.7 - 0.5 * abs(params["x"] - 0.3) + rng.uniform(-0.1, 0.1)


@pytest.fixture(autouse=True)
def _warn_again() -> None:
    fed_pne_agent._log_outside_range.cache_clear()


def test_the_published_noise_and_where_it_ends() -> None:
    published = FedPNESettings(epsilon_per_reward=0.5, delta=1e-3, noise_on="reward")
    # sigma^2 = 2 ln(1.25 / .001) / .25 = 57.047
    assert mean_noise(published).sigma ** 2 == pytest.approx(57.047, abs=1e-3)
    beyond = mean_noise(FedPNESettings(epsilon_per_reward=4.0, delta=1e-3, noise_on="reward"))
    assert beyond.sigma == gaussian_multiplier(4.0, 1e-3)
    formula = math.sqrt(2 * math.log(1.25 / 1e-5)) / 20.0
    exact = mean_noise(FedPNESettings(epsilon_per_reward=20.0, noise_on="reward")).sigma
    assert gaussian_epsilon(formula, 1e-5) > 20.0  # the formula would break the promise
    assert exact > formula


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("pulls", [1, 7, 400])
def test_one_reward_moves_one_mean_by_one_over_t_and_no_more(power: int, pulls: int) -> None:
    counts = np.array([pulls, pulls])
    rewards = np.random.default_rng(3).random(2 * pulls)
    low, high = rewards.copy(), rewards.copy()
    low[0], high[0] = 0.0, 1.0
    noise = MeanNoise(sigma=2.5, power=power)
    a = private_means(noise, low, counts, Frozen())
    b = private_means(noise, high, counts, Frozen())
    assert b[1] == a[1]
    assert b[0] - a[0] == pytest.approx(1 / pulls, rel=1e-12)
    assert b[0] - a[0] <= 1 / pulls * (1 + 1e-12)


def test_all_rewards_of_a_user_move_a_mean_by_one() -> None:
    counts, noise = np.array([5, 9]), MeanNoise(sigma=3.0, power=0)
    a = private_means(noise, np.zeros(14), counts, Frozen())
    b = private_means(noise, np.ones(14), counts, Frozen())
    np.testing.assert_allclose(b - a, 1.0, rtol=1e-12)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_noise_has_the_stated_law(power: int) -> None:
    t, nodes, noise = 9, 4000, MeanNoise(sigma=1.7, power=power)
    rewards = np.full(t * nodes, 0.25)
    means = private_means(noise, rewards, np.full(nodes, t), seeded_entropy(8))
    deviation = 1.7 / t ** (power / 2)
    assert math.sqrt(float(noise.variance(np.array([t]))[0])) == pytest.approx(deviation)
    # Kolmogorov-Smirnov with a fixed seed: a correct law fails with probability 1e-4.
    assert stats.kstest((means - 0.25) / deviation, "norm").pvalue > 1e-4


def test_nodes_of_different_pulls_get_their_own_noise() -> None:
    pulls = np.tile([2, 50], 3000)
    rewards = np.zeros(pulls.sum())
    means = private_means(MeanNoise(1.0, 2), rewards, pulls, seeded_entropy(5))
    # A deviation from 3000 draws is off by 1/sqrt(6000) = 1.3 %; five of them are 6.5 %.
    assert means[0::2].std() == pytest.approx(1 / 2, rel=0.065)
    assert means[1::2].std() == pytest.approx(1 / 50, rel=0.065)


def test_rewards_outside_the_unit_interval_never_get_noise() -> None:
    with pytest.raises(ValueError, match=r"rewards must be in \[0, 1\]"):
        private_means(MeanNoise(1.0), np.array([1.2]), np.array([1]), seeded_entropy(0))


def test_noise_on_every_reward_is_one_number_for_their_sum() -> None:
    """Nine rewards with noise of 2 each have a sum with noise of 6: the same number is drawn."""
    rewards, pulls = np.random.default_rng(4).random(9 * 50), np.full(50, 9)
    each = private_means(MeanNoise(2.0, power=1), rewards, pulls, seeded_entropy(6))
    total = private_means(MeanNoise(6.0, power=2), rewards, pulls, seeded_entropy(6))
    np.testing.assert_array_equal(each, total)


@pytest.mark.parametrize("noise", ["mean", "reward"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_guarantee_for_one_reward(noise: Any, epsilon: float) -> None:
    chosen = FedPNESettings(epsilon_per_reward=epsilon, noise_on=noise)
    given_ = guarantees(chosen, np.array([1, 3, 12]))
    assert given_ is not None
    assert given_.one_reward_epsilon <= epsilon * (1 + 1e-6)
    if noise == "mean" or epsilon > 1:
        assert given_.one_reward_epsilon == pytest.approx(epsilon, rel=1e-6)
    named = given_.to_dict()
    assert set(named) == {"one reward", "one user"}
    assert named["one user"]["epsilon"] > named["one reward"]["epsilon"]


def test_the_guarantee_for_one_user_is_the_composition_of_all_nodes() -> None:
    chosen = FedPNESettings(epsilon=4.0, most_means=40)
    sigma = mean_noise(chosen).sigma
    ours = guarantees(chosen, np.full(25, 6))
    accountant = PLDAccountant()
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(sigma), 25))
    assert ours is not None
    assert ours.one_user_epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-4)
    spent = guarantees(chosen, np.full(40, 6))
    assert spent is not None
    assert spent.one_user_epsilon == pytest.approx(4.0, rel=1e-6)


def test_no_promise_without_epsilon() -> None:
    assert guarantees(FedPNESettings(), np.array([3])) is None
    assert fed_pne(10).guarantees() is None


@pytest.mark.parametrize("noise", ["mean", "reward"])
def test_an_audit_finds_no_more_than_was_promised(noise: Any) -> None:
    """Tell the rewards (0, .5) from (1, .5) by their mean, as well as it can be done."""
    epsilon, delta, trials = 1.0, 1e-2, 20_000
    chosen = FedPNESettings(epsilon_per_reward=epsilon, delta=delta, noise_on=noise)
    law, pulls = mean_noise(chosen), np.full(trials, 2)
    zero = private_means(law, np.tile([0.0, 0.5], trials), pulls, seeded_entropy(1))
    one = private_means(law, np.tile([1.0, 0.5], trials), pulls, seeded_entropy(2))
    found = 0.0
    for cut in np.quantile(zero, [0.5, 0.8, 0.95, 0.99]):
        # 99.9 % bounds (Clopper-Pearson): eight of them are wrong with probability below 1 %
        true, false = int((one > cut).sum()), int((zero > cut).sum())
        lower = stats.beta.ppf(0.001, true, trials - true + 1)
        upper = stats.beta.ppf(0.999, false + 1, trials - false)
        found = max(found, math.log(max(lower - delta, 1e-12) / upper))
    assert found <= epsilon
    if noise == "mean":  # and the audit is not blind: the noise is no larger than it must be
        assert found >= 0.5


def test_what_was_released_is_kept_and_never_drawn_again() -> None:
    server, records = fed_pne(10, epsilon_per_reward=1.0), MemoryRecords()
    request = server.requests([0])[0]
    agent = agent_of(server, tent, records=records, entropy=seeded_entropy(1))
    first = agent.answer(request).arrays["means"]
    again = agent.answer(request).arrays["means"]
    restarted = agent_of(server, tent, records=records, entropy=seeded_entropy(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, restarted.answer(request).arrays["means"])
    assert len(records.read(FedPNEAgent.KIND)) == 1
    assert restarted.guarantees() == agent.guarantees()
    assert records.read(FedPNEAgent.KIND)[0]["private"] is False


def test_noise_comes_from_the_operating_system_by_default() -> None:
    server = fed_pne(10, epsilon_per_reward=1.0)
    request = server.requests([0])[0]
    records = MemoryRecords()
    one = agent_of(server, tent, records=records, entropy=None).answer(request)
    two = agent_of(server, tent, entropy=None).answer(request)  # the same seeds and rewards
    assert np.all(one.arrays["means"] != two.arrays["means"])
    assert records.read(FedPNEAgent.KIND)[0]["private"] is True


def test_the_charge_is_stored_before_the_means_can_leave() -> None:
    class Full(MemoryRecords):
        def append(self, kind: str, record: Mapping[str, Any]) -> None:
            if kind == FedPNEAgent.KIND:
                raise OSError(28, "no space left")
            super().append(kind, record)

    server = fed_pne(10, epsilon_per_reward=1.0)
    with pytest.raises(OSError, match="no space"):
        agent_of(server, tent, records=Full()).answer(server.requests([0])[0])


def test_rewards_are_clipped_and_counted_by_the_agent_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = fed_pne(10, epsilon_per_reward=1e3, delta=1e-2)  # so little noise that clipping shows
    agent = agent_of(server, lambda p, r: 3.0 * (p["x"] > 0.5))
    request = server.requests([0])[0]
    with listening(caplog):
        reply = agent.answer(request)
    beyond = request.arrays["points"][:, 0] > 0.5
    np.testing.assert_allclose(reply.arrays["means"], beyond, atol=0.2)
    assert agent.clipped == int(request.arrays["pulls"][beyond].sum())
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert not reply.declined
    assert set(reply.arrays) == {"means"}


def test_an_agent_declines_before_its_own_limit_is_exceeded() -> None:
    server = fed_pne(10, epsilon_per_reward=1.0)
    agents = [agent_of(server, tent, n, limits=OWN) for n in range(10)]
    while not server.finished:
        one_round(server, agents)
    assert server.stopped == "budget"
    assert all(0 < a.guarantees().one_user_epsilon <= 200.0 for a in agents)
    assert summarise(server)["stopped"] == "budget"
    assert server.requests(range(10)) == {}
    again = fed_pne(10, epsilon_per_reward=1.0)
    again.load_state_dict(server.state_dict())
    assert again.finished


def test_an_agent_does_not_trust_the_servers_settings() -> None:
    limits = PrivacyLimits(one_reward=1.0, delta=1e-6)
    for values in ({}, {"epsilon_per_reward": 2.0}, {"epsilon_per_reward": 1.0, "delta": 0.5}):
        server = fed_pne(10, **values)
        agent = agent_of(server, tent, limits=limits)
        assert agent.answer(server.requests([0])[0]).declined == "budget"
        assert not agent.evaluator.history
    server = fed_pne(10, epsilon_per_reward=1.0, delta=1e-6)
    within = PrivacyLimits(one_reward=1.0 + 1e-6, delta=1e-6)
    assert not agent_of(server, tent, limits=within).answer(server.requests([0])[0]).declined
    with pytest.raises(ValueError, match="`one_user` must be > 0, but got 0"):
        PrivacyLimits(one_user=0)
    with pytest.raises(ValueError, match=r"`delta` must be in \(0, 1\), but got 1"):
        PrivacyLimits(delta=1)


def test_a_few_agents_without_budget_do_not_stop_the_rest() -> None:
    server = fed_pne(10, epsilon_per_reward=1.0)
    agents = [agent_of(server, tent, n, limits=OWN if n < 3 else None) for n in range(10)]
    while not server.finished:
        one_round(server, agents)
    assert server.stopped == ""
    assert server.results()[-1][1].replies == 7
    assert server.results()[-1][1].pulls.sum() > 0


def test_a_users_budget_ends_the_search_before_it_is_broken() -> None:
    server = fed_pne(100, epsilon=8.0, most_means=48)
    agents = [agent_of(server, tent, n) for n in range(100)]
    while not server.finished:
        one_round(server, agents)
    given_ = server.guarantees()
    assert given_ is not None
    assert given_.one_user_epsilon <= 8.0 * (1 + 1e-9)
    assert server.sent.max() <= 48
    assert agents[0].guarantees() == given_
    assert server.stopped == ""


def test_server_and_agents_agree_on_what_was_spent() -> None:
    server = fed_pne(10, epsilon_per_reward=2.0)
    agents = [agent_of(server, tent, n) for n in range(10)]
    while not server.finished:
        one_round(server, agents)
    assert agents[3].guarantees() == server.guarantees()
    assert summarise(server)["guarantees"]["one reward"]["epsilon"] == pytest.approx(2.0, rel=1e-6)


def test_an_answer_that_is_lost_on_its_way_is_counted() -> None:
    server = fed_pne(10, epsilon_per_reward=2.0)
    agent = agent_of(server, tent)
    agent.answer(server.requests([0])[0])
    server.close({})
    assert server.guarantees() == agent.guarantees()
    again = fed_pne(10, epsilon_per_reward=2.0)
    again.load_state_dict(server.state_dict())
    assert again.guarantees() == agent.guarantees()


def test_utility_returns_as_epsilon_grows() -> None:
    def distance(**values: Any) -> float:
        """Of the recommended point from the optimum, over two runs."""
        total = 0.0
        for seed in range(2):
            server = fed_pne(20, seed=seed, budget=300, **values)
            agents = [agent_of(server, tent, 100 * seed + n) for n in range(20)]
            while not server.finished:
                one_round(server, agents)
            total += abs(summarise(server)["recommended"]["params"]["x"] - 0.3) / 2
        return total

    assert distance(epsilon_per_reward=0.2) > distance(epsilon_per_reward=8.0)
    assert distance(epsilon_per_reward=8.0) < 0.05
    assert distance() < 0.02
