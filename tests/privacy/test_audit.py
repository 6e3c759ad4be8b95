"""The audit passes correct steps and finds each fault that these tests plant."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.audit import AuditResult, Claim, ReleaseStep, audit, standard_release
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import Entropy, poisson_sample, seeded_entropy
from flwr_fbo.privacy.mechanisms import GaussianSum, clip_rows
from flwr_fbo.privacy.sensitivity import joint_sensitivity

CLIP, AGENTS, DIMENSION = 3.0, 12, 6
DELTA = 200**-1.1


def claim(z: float = 1.0, q: float = 1.0) -> Claim:
    return Claim(z, q, DELTA, AGENTS, DIMENSION, CLIP)


def run(release: ReleaseStep, said: Claim, seed: int = 0, **options) -> AuditResult:
    return audit(release, said, trials=1200, entropy=seeded_entropy(seed), **options)


def sampled_sum(messages: Array, q: float, entropy: Entropy, clip: bool = True) -> Array:
    chosen = messages[poisson_sample(len(messages), q, entropy)]
    if clip and len(chosen):
        chosen = clip_rows(chosen, CLIP)
    return np.asarray(chosen.sum(axis=0))


def gaussian(entropy: Entropy, size: int, deviation: float) -> Array:
    zero = np.zeros(size, dtype=np.int64)
    return GaussianSum(deviation, 1.0).release(zero, entropy)


# ------------------------------------------------------------------ correct steps


@pytest.mark.parametrize("q", [1.0, 0.25])
def test_the_standard_step_passes_and_the_bound_is_not_vacuous(q):
    result = run(standard_release(CLIP, 1.0, q), claim(q=q))
    assert result.passed
    assert 0.0 < result.epsilon_lower < result.epsilon_claimed
    if q == 1.0:  # the attack is the best there is, so what it finds comes close
        assert result.epsilon_lower > 0.4 * result.epsilon_claimed
        assert result.noise_multiplier_upper < 1.3


def test_true_claims_fail_no_more_often_than_the_confidence_allows():
    """At confidence .8 each of 12 audits fails with probability .2 at most, so 8 failures or more
    have a probability of 6 in 10^4 at most. (The six bounds are seldom all tight: much less.)"""
    results = [
        audit(
            standard_release(CLIP, 1.0, q),
            claim(q=q),
            trials=250,
            confidence=0.8,
            entropy=seeded_entropy(seed),
        )
        for seed in range(6)
        for q in (1.0, 0.3)
    ]
    assert sum(not result.passed for result in results) < 8


def joint_step(z: float, q: float, weights: Array, *, shared: bool = False) -> ReleaseStep:
    """Return the step of DP-FTS-DE for several sub-regions, divided by q as on the server."""
    regions = len(weights)
    mechanism = GaussianSum(joint_sensitivity(weights, CLIP * math.sqrt(regions)), z)

    def release(messages: Array, entropy: Entropy) -> Array:
        chosen = poisson_sample(len(messages), q, entropy)
        clipped = clip_rows(messages, CLIP) * chosen[:, None]
        joint = np.einsum("pn,nm->npm", weights, clipped).reshape(len(messages), -1)
        total = mechanism.quantise(joint).sum(axis=0)
        out = mechanism.release(total, entropy)
        if shared:  # the fault: one draw of noise for all sub-regions
            noise = (out - total * mechanism._lattice.step)[: messages.shape[1]]
            out = total * mechanism._lattice.step + np.tile(noise, regions)
        return out / q

    return release


def test_the_joint_vector_of_several_regions_needs_only_the_exact_sensitivity():
    """Agent 5 has the largest weights: the worst case. The exact bound passes, and is tight."""
    weights = np.full((3, AGENTS), 0.5 / AGENTS)
    weights[:, 5] = [0.5, 0.3, 0.1]
    said = dataclasses.replace(claim(), canary=5)
    result = run(joint_step(1.0, 1.0, weights), said)
    assert result.passed
    assert result.noise_multiplier_upper < 1.35
    assert not run(joint_step(1.0, 1.0, weights, shared=True), said).passed


# ------------------------------------------------------------------ planted faults


@pytest.mark.parametrize("q", [1.0, 0.25])
def test_noise_that_is_half_of_what_is_claimed_is_caught(q):
    result = run(standard_release(CLIP, 0.5, q), claim(z=1.0, q=q))
    assert not result.passed
    assert result.noise_multiplier_upper < 0.9


@pytest.mark.parametrize("q", [1.0, 0.25])
def test_a_missing_clip_is_caught(q):
    def release(messages: Array, entropy: Entropy) -> Array:
        total = sampled_sum(messages, q, entropy, clip=False)
        return total + gaussian(entropy, DIMENSION, CLIP)

    result = run(release, claim(q=q))
    assert not result.passed
    assert result.epsilon_lower > result.epsilon_claimed


@pytest.mark.parametrize("q", [1.0, 0.25])
def test_noise_that_is_used_for_two_releases_is_caught(q):
    kept: list[Array] = []

    def release(messages: Array, entropy: Entropy) -> Array:
        if kept:
            noise = kept.pop()
        else:
            noise = gaussian(entropy, DIMENSION, CLIP)
            kept.append(noise)
        return sampled_sum(messages, q, entropy) + noise

    result = run(release, claim(q=q))
    assert not result.passed
    assert result.epsilon_lower > result.epsilon_claimed


def test_one_draw_of_noise_for_all_coordinates_is_caught():
    def release(messages: Array, entropy: Entropy) -> Array:
        return sampled_sum(messages, 1.0, entropy) + gaussian(entropy, 1, CLIP)

    assert not run(release, claim()).passed


def test_a_sampling_rate_above_the_claimed_one_is_caught():
    assert not run(standard_release(CLIP, 0.6, 0.6), claim(z=0.6, q=0.15)).passed


# ------------------------------------------------------------------ results and input


def test_results_can_be_read_and_stored():
    result = run(standard_release(CLIP, 1.0, 1.0), claim(), releases=1)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["passed"] is True
    assert data["epsilon_lower"] == result.epsilon_lower
    assert "PASSED" in result.to_text()
    worse = run(standard_release(CLIP, 0.4, 1.0), claim())
    assert "FAILED: the step reveals more than is claimed" in worse.to_text()
    assert worse.to_dict()["passed"] is False


def test_bad_input():
    with pytest.raises(PrivacyError, match=r"`delta` must be in \(0, 1\), but got 0.0"):
        Claim(1.0, 1.0, 0.0, 10, 4, 1.0)
    with pytest.raises(PrivacyError, match="`noise_multiplier` must be a finite number > 0"):
        Claim(0.0, 1.0, DELTA, 10, 4, 1.0)
    with pytest.raises(PrivacyError, match=r"`0 <= canary < agents` must hold, but got \(12, 12\)"):
        dataclasses.replace(claim(), canary=AGENTS)
    with pytest.raises(PrivacyError, match="`trials` must be an integer >= 100, but got 5"):
        audit(standard_release(1.0, 1.0, 1.0), claim(), trials=5)
    with pytest.raises(PrivacyError, match=r"`confidence` must be in \(0, 1\), but got 1"):
        audit(standard_release(1.0, 1.0, 1.0), claim(), confidence=1)
