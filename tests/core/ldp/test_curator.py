"""Local differential privacy of what leaves an agent."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flwr_fbo.core.ldp.curator import Curator, gaussian_multiplier
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import seeded_entropy, system_entropy
from flwr_fbo.privacy.mechanisms import Lattice


def answers(curator, reward, count):
    return np.array([curator(reward) for _ in range(count)])


def test_noise_comes_from_the_operating_system_unless_said_otherwise():
    curator = Curator(1.0, 1.0)
    assert curator.private
    assert repr(curator.entropy) == repr(system_entropy())
    assert not Curator(1.0, 1.0, entropy=seeded_entropy(1)).private
    assert len(set(answers(curator, 0.5, 20))) == 20


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_answers_have_the_law_of_curator_1(epsilon):
    # y + Laplace(2 (B + R) / epsilon); Kolmogorov-Smirnov at a level of 1e-4, fixed seed
    curator = Curator(3.0, epsilon, entropy=seeded_entropy(7))
    law = stats.laplace(loc=1.25, scale=6.0 / epsilon)
    assert stats.kstest(answers(curator, 1.25, 2000), law.cdf).pvalue > 1e-4


def test_the_gaussian_mechanism_has_its_law():
    curator = Curator(3.0, 0.5, "gaussian", 1e-5, seeded_entropy(8))
    law = stats.norm(-1.0, 6.0 * gaussian_multiplier(0.5, 1e-5))
    assert stats.kstest(answers(curator, -1.0, 2000), law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("rewards", [(-1.0, 1.0), (-7.0, 0.3), (1e300, -1e300)])
def test_no_answer_is_e_to_the_epsilon_times_likelier_for_another_reward(epsilon, rewards):
    # The exact probability of every answer that is looked at: round(s X) = k has mass
    # T(|k| - 1/2) - T(|k| + 1/2) over 2, and what is not noise is the quantised clipped reward.
    curator = Curator(1.0, epsilon)
    lattice = Lattice(curator.scale)
    centres = [int(lattice.quantise(np.clip(np.array([r]), -1, 1))[0]) for r in rewards]
    answers_ = np.unique(np.r_[np.linspace(-8, 8, 2001) * lattice.units, centres].round())

    def log_mass(k):
        # T(x) = exp(-x / s) on |k| > 0: exp(-|k| / s) sinh(1/(2s)); 1 - exp(-1/(2s)) at 0
        away = -np.abs(k) / lattice.units + np.log(np.sinh(0.5 / lattice.units))
        return np.where(k == 0, np.log(-np.expm1(-0.5 / lattice.units)), away)

    ratio = np.abs(log_mass(answers_ - centres[0]) - log_mass(answers_ - centres[1]))
    assert ratio.max() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_measured_ratio_of_outputs_is_at_most_e_to_the_epsilon(epsilon):
    # Ten bins of equal mass; with n = 8000 draws and p >= .02 a bin's log ratio has a standard
    # error of at most sqrt(2 / (n p)) = .11: four of them, over ten bins, fixed seed.
    low = answers(Curator(1.0, epsilon, entropy=seeded_entropy(1)), -1.0, 8000)
    high = answers(Curator(1.0, epsilon, entropy=seeded_entropy(2)), 1.0, 8000)
    edges = np.quantile(np.r_[low, high], np.linspace(0, 1, 11))
    counts = [np.histogram(sample, edges)[0] + 1.0 for sample in (low, high)]
    ratios = np.abs(np.log(counts[0] / counts[1]))
    assert ratios.max() <= epsilon + 0.44
    assert ratios.max() >= 0.6 * epsilon  # and the noise is not more than it must be


@given(st.floats(allow_nan=False, width=64), st.floats(0.1, 50.0), st.integers(0, 2**32))
def test_beyond_the_bounds_a_reward_is_its_bound(reward, clip, seed):
    # With the same noise the answer is that of the clipped reward: whatever a reward is, even
    # where |y| <= B + R fails or it is infinite, the guarantee holds.
    pair = [Curator(clip, 1.0, entropy=seeded_entropy(seed)) for _ in range(2)]
    assert pair[0](reward) == pair[1](min(clip, max(-clip, reward)))


def test_all_answers_lie_on_one_lattice_whatever_the_reward():
    # Low bits must not tell rewards apart.
    one, other = (Curator(1.0, 1.0, entropy=seeded_entropy(n)) for n in (3, 4))
    step = 2.0 ** (1 - 28)  # scale = 2: 2^-28 of the power of two in it
    for curator, reward in ((one, 0.1), (other, 1.0 / 3.0)):
        ratios = answers(curator, reward, 200) / step
        assert np.array_equal(ratios, np.round(ratios))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-3)])
def test_the_gaussian_multiplier_against_arbitrary_precision(epsilon, delta):
    import mpmath as mp

    def spent(z):
        return mp.ncdf(0.5 / z - epsilon * z) - mp.exp(epsilon) * mp.ncdf(-0.5 / z - epsilon * z)

    z = gaussian_multiplier(epsilon, delta)
    with mp.workdps(40):
        assert spent(mp.mpf(z)) <= delta
        assert spent(mp.mpf(z) * (1 - mp.mpf("1e-6"))) > delta


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"clip": 0.0, "epsilon": 1.0}, "`clip` must be a finite number > 0, but got 0.0"),
        ({"clip": math.inf, "epsilon": 1.0}, "`clip` must be"),
        ({"clip": 1.0, "epsilon": -1.0}, "`epsilon` must be a finite number > 0, but got -1.0"),
        ({"clip": 1.0, "epsilon": 1e9}, "`epsilon` must be <= 1e\\+06"),
        ({"clip": 1.0, "epsilon": 1.0, "mechanism": "none"}, "laplace or gaussian, but got 'none'"),
        ({"clip": 1.0, "epsilon": 1.0, "mechanism": "gaussian"}, "`delta` must be in \\(0, 1\\)"),
    ],
)
def test_parameters_that_protect_nobody_are_refused(values, rule):
    with pytest.raises(PrivacyError, match=rule):
        Curator(**values)


def test_nan_is_no_reward():
    with pytest.raises(PrivacyError, match="must be a number, but is NaN"):
        Curator(1.0, 1.0)(math.nan)
