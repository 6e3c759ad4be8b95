"""Local mechanisms: distributions, bounds, lasting budgets, and the ratio that defines LDP."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.budget import BudgetExceeded
from flwr_fbo.privacy.calibration import gaussian_multiplier
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import seeded_entropy, system_entropy
from flwr_fbo.privacy.ledger import LedgerError
from flwr_fbo.privacy.local import GaussianReward, LaplaceReward, LocalBudget, LocalGaussian


def answers(mechanism, value: float, count: int, seed: int) -> np.ndarray:
    entropy = seeded_entropy(seed)
    return np.array([mechanism.release(value, entropy) for _ in range(count)])


# ------------------------------------------------------------------ rewards


@pytest.mark.parametrize("reward", [-0.4, 1.9, 50.0, -math.inf])
def test_ctl_clips_and_adds_laplace_noise_of_the_stated_scale(reward):
    """Curator 1: scale 2(B + R)/eps. Kolmogorov-Smirnov at one in 10^4."""
    mechanism = LaplaceReward(bound=2.0, epsilon=0.8)
    assert mechanism.scale == pytest.approx(5.0)
    seen = answers(mechanism, reward, 3000, 4)
    law = stats.laplace(min(2.0, max(-2.0, reward)), 5.0)
    assert stats.kstest(seen, law.cdf).pvalue > 1e-4


def test_answers_on_extreme_rewards_differ_by_at_most_epsilon_in_log_probability():
    """The definition of LDP, on intervals that cover the line. The tails attain the bound."""
    mechanism, n = LaplaceReward(bound=1.0, epsilon=1.0), 20_000
    low, high = answers(mechanism, -1.0, n, 1), answers(mechanism, 1.0, n, 2)
    edges = np.array([-np.inf, -4, -2, -1, 0, 1, 2, 4, np.inf])
    counts = [np.histogram(part, edges)[0] for part in (low, high)]
    ratio = np.log(counts[0] / counts[1])
    error = 4.5 * np.sqrt(1 / counts[0] + 1 / counts[1])  # sd of a log ratio of counts
    assert np.all(np.abs(ratio) <= 1.0 + error)
    assert ratio[0] == pytest.approx(1.0, abs=error[0])


def test_gaussian_reward_is_calibrated_over_its_range():
    mechanism = GaussianReward(bound=0.5, epsilon=1.0, delta=1e-5)
    assert mechanism.mechanism.deviation == pytest.approx(gaussian_multiplier(1.0, 1e-5))  # range 1
    seen = answers(mechanism, 9.0, 4000, 3)
    assert stats.kstest(seen, stats.norm(0.5, mechanism.mechanism.deviation).cdf).pvalue > 1e-4
    accountant = make_accountant("pld")
    accountant.compose(mechanism.event())
    assert accountant.epsilon(1e-5) == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize("bad", [math.nan, "1", None, True])
def test_rewards_that_are_no_numbers_are_refused(bad):
    for mechanism in (LaplaceReward(1.0, 1.0), GaussianReward(1.0, 1.0, 1e-5)):
        with pytest.raises(PrivacyError, match="a reward must be a number"):
            mechanism.release(bad, system_entropy())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LaplaceReward(0.0, 1.0), "`bound` must be a finite number > 0, but got 0.0"),
        (lambda: LaplaceReward(1.0, -1.0), "`epsilon` must be a finite number > 0, but got -1.0"),
        (lambda: LaplaceReward(1.0, 1e5), r"`epsilon` must be in \[1e-9, 1e4\]"),
        (lambda: GaussianReward(1.0, 1.0, 0.0), r"`delta` must be in \(0, 1\), but got 0.0"),
        (lambda: LocalGaussian(math.inf, 1.0), "`clip` must be a finite number > 0, but got inf"),
        (lambda: LocalGaussian(1.0, 0.0), "`noise_multiplier` must be a finite number > 0"),
    ],
)
def test_bad_mechanisms(make, message):
    with pytest.raises(PrivacyError, match=message):
        make()


# ------------------------------------------------------------------ vectors


def test_local_gaussian_protects_any_two_vectors():
    mechanism = LocalGaussian(clip=2.0, noise_multiplier=0.7)
    entropy = seeded_entropy(2)
    vector = np.array([30.0, 40.0, 0.0])
    seen = np.stack([mechanism.release(vector, entropy) for _ in range(3000)])
    deviation = 0.7 * 4.0  # two vectors of norm 2 lie up to 4 apart
    assert np.abs(seen.mean(axis=0) - [1.2, 1.6, 0.0]).max() < 4.5 * deviation / math.sqrt(3000)
    assert seen.std() == pytest.approx(deviation, rel=4.5 / math.sqrt(2 * seen.size))
    with pytest.raises(PrivacyError, match=r"shape \(m,\), but got \(1, 3\)"):
        mechanism.release(vector[None], entropy)


def test_local_gaussian_for_a_budget_makes_exactly_that_many_answers(tmp_path):
    mechanism = LocalGaussian.for_budget(clip=1.0, epsilon=3.0, delta=1e-4, answers=5)
    with LocalBudget.open(tmp_path / "agent", "agent-1", 3.0, 1e-4) as budget:
        for t in range(5):
            budget.answer(mechanism, np.ones(4), system_entropy(), t)
        assert 2.95 < budget.spent <= 3.0
        with pytest.raises(BudgetExceeded):
            budget.answer(mechanism, np.ones(4), system_entropy(), 5)


# ------------------------------------------------------------------ budgets


class Explosive:
    """A mechanism whose release fails the test."""

    def event(self, round: int = 0):
        return LaplaceReward(1.0, 0.6).event(round)

    def release(self, value, entropy):
        raise AssertionError("an answer was made that had not been paid for")


def test_a_budget_lasts_over_runs_and_refuses(tmp_path):
    """k answers cost k epsilon, over all runs together."""
    path, mechanism = tmp_path / "agents" / "3.ledger", LaplaceReward(1.0, 0.25)
    with LocalBudget.open(path, "agent-3", epsilon=1.0) as budget:
        for t in range(3):
            assert isinstance(budget.answer(mechanism, 0.5, system_entropy(), t), float)
        assert budget.spent == 0.75
    with LocalBudget.open(path, "agent-3", epsilon=1.0) as budget:
        assert (budget.spent, budget.remaining) == (0.75, 0.25)
        with pytest.raises(BudgetExceeded):
            budget.answer(Explosive(), 0.5, system_entropy())
        assert budget.spent == 0.75
        budget.answer(mechanism, 0.5, system_entropy())
        assert budget.would_exceed(mechanism)
        assert budget.remaining == 0.0


def test_a_budget_file_belongs_to_one_agent(tmp_path):
    LocalBudget.open(tmp_path / "a", "agent-1", 1.0).close()
    with pytest.raises(LedgerError, match="differ in owner"):
        LocalBudget.open(tmp_path / "a", "agent-2", 1.0)
    with pytest.raises(PrivacyError, match="`epsilon` must be a finite number > 0"):
        LocalBudget.open(tmp_path / "b", "agent-2", 0.0)


def test_a_file_torn_at_its_creation_is_created_again(tmp_path):
    (tmp_path / "a").write_bytes(b'{"header": {"ow')
    with LocalBudget.open(tmp_path / "a", "agent-1", 1.0) as budget:
        assert budget.spent == 0.0
