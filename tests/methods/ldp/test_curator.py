"""Local differential privacy of what leaves an agent, as a run's settings set it up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flwr_fbo.methods.ldp.curator import curator
from flwr_fbo.methods.ldp.rewards import RewardModel
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.privacy.mechanisms import Lattice


def curator_of(**values):
    return curator(LDPSettings(**values).to_mapping())


def answers(mechanism, reward, count, seed):
    entropy = seeded_entropy(seed)
    return np.array([mechanism.release(reward, entropy) for _ in range(count)])


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_answers_have_the_law_of_curator_1(epsilon):
    # y + Laplace(2 (B + R) / epsilon); Kolmogorov-Smirnov at a level of 1e-4, fixed seed
    mechanism = curator_of(bound=2.0, noise_bound=1.0, epsilon_per_answer=epsilon)
    law = stats.laplace(loc=1.25, scale=6.0 / epsilon)
    assert stats.kstest(answers(mechanism, 1.25, 2000, 7), law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("rewards", [(-1.0, 1.0), (-7.0, 0.3), (1e300, -1e300)])
def test_no_answer_is_e_to_the_epsilon_times_likelier_for_another_reward(epsilon, rewards):
    # The exact probability of answers: round(s X) = k has mass (T(|k| - 1/2) - T(|k| + 1/2)) / 2
    # with T(x) = exp(-x / s), shifted by the clipped reward in lattice units.
    mechanism = curator_of(bound=0.75, noise_bound=0.25, epsilon_per_answer=epsilon)
    lattice = Lattice(mechanism.scale)
    centres = [int(lattice.quantise(np.clip(np.array([r]), -1, 1))[0]) for r in rewards]
    seen = np.unique(np.r_[np.linspace(-8, 8, 2001) * lattice.units, centres].round())

    def log_mass(k):
        away = -np.abs(k) / lattice.units + np.log(np.sinh(0.5 / lattice.units))
        return np.where(k == 0, np.log(-np.expm1(-0.5 / lattice.units)), away)

    ratio = np.abs(log_mass(seen - centres[0]) - log_mass(seen - centres[1]))
    assert ratio.max() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_measured_ratio_of_outputs_is_at_most_e_to_the_epsilon(epsilon):
    # Ten bins of equal mass; with n = 8000 draws and p >= .02 a bin's log ratio has a standard
    # error of at most sqrt(2 / (n p)) = .11: four of them, over ten bins, fixed seed.
    mechanism = curator_of(bound=0.5, noise_bound=0.5, epsilon_per_answer=epsilon)
    low, high = (answers(mechanism, r, 8000, seed) for seed, r in enumerate((-1.0, 1.0)))
    edges = np.quantile(np.r_[low, high], np.linspace(0, 1, 11))
    counts = [np.histogram(sample, edges)[0] + 1.0 for sample in (low, high)]
    ratios = np.abs(np.log(counts[0] / counts[1]))
    assert ratios.max() <= epsilon + 0.44
    assert ratios.max() >= 0.6 * epsilon  # and the noise is not more than it must be


@given(st.floats(allow_nan=False, width=64), st.floats(0.1, 50.0), st.integers(0, 2**32))
def test_beyond_the_bounds_a_reward_is_its_bound(reward, bound, seed):
    # With the same noise the answer is that of the clipped reward: the guarantee holds even
    # where |y| <= B + R does not, and for rewards that are infinite.
    mechanism = curator_of(bound=bound, noise_bound=1.0, epsilon_per_answer=1.0)
    clip = bound + 1.0
    pair = [
        mechanism.release(r, seeded_entropy(seed)) for r in (reward, min(clip, max(-clip, reward)))
    ]
    assert pair[0] == pair[1]


def test_the_learner_expects_the_noise_that_the_agents_add():
    # v = B^2 + R^2 + 8 (B + R)^2 / eps^2 and c = R^2 + 8 (B + R)^2 / eps^2, by hand: 8 * 9 / 4
    model = RewardModel.of(LDPSettings(bound=2.0, noise_bound=1.0, epsilon_per_answer=2.0))
    assert model.second_moment == pytest.approx(4 + 1 + 18)
    assert model.noise_variance == pytest.approx(1 + 18)
    settings = LDPSettings(
        bound=2.0,
        noise_bound=1.0,
        epsilon_per_answer=2.0,
        mechanism="gaussian",
        delta_per_answer=1e-6,
    )
    drawn = answers(curator(settings.to_mapping()), 0.0, 4000, 3)
    model = RewardModel.of(settings)
    # the variance of 4000 normal draws is within 10% (4.5 sd)
    assert drawn.var() == pytest.approx(model.noise_variance - 1.0, rel=0.1)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_rewards_exceed_tgps_level_at_play_t_with_probability_at_most_one_in_t(mechanism):
    settings = LDPSettings(epsilon_per_answer=1.0, mechanism=mechanism, delta_per_answer=1e-6)
    model = RewardModel.of(settings)
    drawn = np.abs(answers(curator(settings.to_mapping()), 2.0, 4000, 5))
    for t in (2, 10, 50):
        # one-sided binomial slack of four standard errors
        slack = 4 * math.sqrt(1 / t / 4000)
        assert np.mean(drawn > model.level(t)) <= 1 / t + slack


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"bound": 0.0}, "`bound` must be a finite number > 0, but got 0.0"),
        ({"noise-bound": math.inf}, "`noise-bound` must be a finite number > 0, but got inf"),
        (
            {"epsilon-per-answer": -1.0},
            "`epsilon-per-answer` must be a finite number > 0, but got -1.0",
        ),
        ({"epsilon-per-answer": 1e9}, "`epsilon` must be in"),
        ({"mechanism": "none"}, "`mechanism` must be laplace or gaussian, but got 'none'"),
        (
            {"mechanism": "gaussian", "delta-per-answer": 0.0},
            r"`delta-per-answer` must be in \(0, 1\), but got 0.0",
        ),
    ],
)
def test_an_agent_trusts_no_setup_that_would_not_protect_it(change, rule):
    values = {**LDPSettings(epsilon_per_answer=1.0).to_mapping(), **change}
    with pytest.raises(PrivacyError, match=rule):
        curator(values)
