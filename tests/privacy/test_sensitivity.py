"""The sensitivity is attained, never exceeded, and never above the paper's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.mechanisms import clip_rows
from flwr_fbo.privacy.sensitivity import joint_sensitivity


def softmax_weights(regions: int, agents: int, temperature: float, a: float = 15.0):
    own = np.arange(agents) % regions == np.arange(regions)[:, None]  # (P, N)
    raw = np.exp((a * own + 1.0 - a) / temperature)
    return raw / raw.sum(axis=1, keepdims=True)


def test_by_hand():
    weights = np.array([[0.6, 0.4], [0.2, 0.8]])  # columns of norms sqrt(.4) and sqrt(.8)
    assert joint_sensitivity(weights, 2.0) == pytest.approx(math.sqrt(0.8) * 2.0 / math.sqrt(2.0))
    assert joint_sensitivity(weights, 2.0, "paper") == pytest.approx(1.6)


def test_the_gain_over_the_paper_is_sqrt_p_while_agents_count_for_one_region():
    weights = softmax_weights(4, 20, temperature=1.0)
    ratio = joint_sensitivity(weights, 11.0, "paper") / joint_sensitivity(weights, 11.0)
    assert ratio == pytest.approx(2.0, rel=1e-6)


def test_uniform_weights_leave_no_gain():
    weights = np.full((3, 7), 1 / 7)
    assert joint_sensitivity(weights, 1.0) == pytest.approx(
        joint_sensitivity(weights, 1.0, "paper")
    )


@given(st.integers(1, 5), st.integers(1, 8), st.floats(0.1, 100.0), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_no_message_moves_the_joint_vector_further_and_one_attains_it(regions, agents, clip, seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(agents), regions)  # (P, N)
    bound = joint_sensitivity(weights, clip)
    messages = clip_rows(rng.normal(size=(agents, 6)) * 10 * clip, clip / math.sqrt(regions))
    joint = np.einsum("pn,nm->npm", weights, messages).reshape(agents, -1)  # (N, P M)
    norms = np.linalg.norm(joint, axis=1)  # what the sum moves by when that message is zero
    assert norms.max() <= bound * (1 + 1e-12)
    assert norms.max() == pytest.approx(bound, rel=1e-9)  # all messages are at the clip here
    assert bound <= joint_sensitivity(weights, clip, "paper") * (1 + 1e-12)


@pytest.mark.parametrize(
    ("weights", "clip", "rule", "message"),
    [
        (np.ones(3), 1.0, "exact", r"shape \(regions, agents\), but got \(3,\)"),
        (np.full((1, 2), np.nan), 1.0, "exact", "`weights` must be finite"),
        (np.ones((1, 2)), 0.0, "exact", "`clip` must be a finite number > 0, but got 0.0"),
        (np.ones((1, 2)), 1.0, "mine", "`rule` must be exact or paper, but got 'mine'"),
    ],
)
def test_bad_input(weights, clip, rule, message):
    with pytest.raises(PrivacyError, match=message):
        joint_sensitivity(weights, clip, rule)
