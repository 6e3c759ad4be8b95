"""What the methods are for, in small: regret, epsilon, heavy tails, confidence.

Functions, noise and learners are seeded, so nothing here can fail by chance; the margins say
how far from the measured figures the assertions are. ``benchmarks/ldp_bo.py`` has full sizes.
"""

import numpy as np
import pytest

from flwr_fbo.methods.ldp.settings import LDPSettings

from .support import GRID, arms, learner_class, objective, play, private_rewards

SEEDS = range(6)


def shares_of_uniform(name, plays, epsilon_per_answer=None, degrees=None, seeds=SEEDS, **values):
    """Regret on each function, as a share of what uniform play costs: (seeds,)."""
    shares = []
    for seed in seeds:
        means, norm = objective(seed)
        given = {"bound": float(np.abs(means).max()), "norm": norm, "budget": plays}
        settings = LDPSettings(epsilon_per_answer=epsilon_per_answer, **(given | values))
        rng = np.random.default_rng([21, seed])
        learner = learner_class(name)(arms(), settings, seed)

        def pay(arm, count, means=means, settings=settings, rng=rng):
            if degrees is None:
                return private_rewards(means, arm, count, settings, rng)
            return means[arm] + rng.standard_t(degrees, count)

        gaps = means.max() - means[play(learner, pay, plays)]
        shares.append(gaps.sum() / (plays * (means.max() - means.mean())))
    return np.array(shares)


def share_of_uniform(*args, **values):
    return float(shares_of_uniform(*args, **values).mean())


@pytest.mark.parametrize("name", ["ldp-ata", "ldp-tgp", "ldp-moma"])
def test_under_privacy_regret_is_a_fraction_of_uniform_play(name):
    assert share_of_uniform("uniform", 1500, 2.0) == pytest.approx(1.0, abs=0.1)
    assert share_of_uniform(name, 1500, 2.0) < 0.4


@pytest.mark.parametrize("name", ["ldp-ata", "ldp-tgp", "ldp-moma"])
def test_regret_falls_as_epsilon_grows(name):
    shares = [share_of_uniform(name, 1000, epsilon) for epsilon in (0.25, 1.0, 4.0)]
    assert shares[0] > shares[1] > shares[2]


def test_gp_ucb_without_truncation_is_worse_under_very_heavy_tails():
    # Student-t with 1.1 degrees of freedom; all assume c = 3. Over three disjoint sets of 40
    # functions GP-UCB's share was .52, .41, .44; TGP's .22, .23, .21, each better by more than
    # 3.5 standard errors of the paired difference. ATA (.29, .24, .43) and MoMA (.43, .25, .41)
    # were better each time, but not always by two. With 3 degrees of freedom there is no
    # difference to be seen (docs/evidence/ldp-bo.md).
    given = {"degrees": 1.1, "seeds": range(40), "noise_variance": 3.0, "second_moment": 20.0}
    plain = shares_of_uniform("gp-ucb", 500, **given)
    gain = plain - shares_of_uniform("tgp", 500, **given)
    assert gain.mean() > 2.0 * gain.std(ddof=1) / np.sqrt(len(gain))
    for name in ("ata", "moma"):
        assert shares_of_uniform(name, 500, **given).mean() < plain.mean()


@pytest.mark.parametrize("name", ["ldp-ata", "ldp-tgp", "ldp-moma"])
def test_confidence_bounds_hold_under_theory_constants(name):
    # The theorems promise |f - mu| <= beta sigma at all arms and steps with probability 0.9;
    # their constants are so generous that no violation is seen at all.
    for seed in SEEDS:
        means, norm = objective(seed)
        settings = LDPSettings(
            budget=600,
            epsilon_per_answer=1.0,
            constants="theory",
            bound=float(np.abs(means).max()),
            norm=norm,
            epoch=20 if name == "ldp-moma" else None,
        )
        rng = np.random.default_rng([22, seed])
        learner = learner_class(name)(arms(), settings, seed)
        for _ in range(600 // learner.plays):
            middle, width = learner.confidence()
            assert np.all(np.abs(means - middle) <= width)
            points = learner.suggest()
            arm = int(learner.domain.keys(points[:1])[0])
            learner.update(points, private_rewards(means, arm, len(points), settings, rng))


def test_the_first_play_is_drawn_at_random():
    # All arms look alike before the first reward; the tie must not always fall on arm 0.
    learners = [learner_class("tgp")(arms(), LDPSettings(), seed) for seed in range(9)]
    first = {float(learner.suggest()[0, 0]) for learner in learners}
    assert len(first) > 3
    assert first <= set(GRID[:, 0])


@pytest.mark.parametrize("name", ["ldp-ata", "ldp-tgp", "ldp-moma"])
def test_the_cost_of_a_play_does_not_grow_with_their_number(name):
    # Counted, not timed: everything that is kept has the same size at play 2,000 as at 200,
    # except for the rewards that ATA keeps, which are bounded (see test_algorithms).
    means, _ = objective(0)
    settings = LDPSettings(budget=2000, epsilon_per_answer=1.0, bound=4.0)
    rng = np.random.default_rng(0)
    learner = learner_class(name)(arms(), settings, 0)
    sizes = []
    for plays in (200, 1800):
        play(learner, lambda a, n: private_rewards(means, a, n, settings, rng), plays)
        state = learner.state_dict()
        sizes.append(sum(v.size for k, v in state.items() if hasattr(v, "size")))
    assert sizes[1] <= sizes[0] + 100
