"""The server's sum: the weighted sum of clipped vectors, exact where privacy needs it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.methods.dp_fts_de import aggregation
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.methods.thompson.schedules import WeightSchedule
from flwr_fbo.privacy.mechanisms import GaussianSum
from flwr_fbo.privacy.sensitivity import joint_sensitivity


def literally(weights, agents, vectors, bound):
    """Algorithm 1, lines 7 to 10 but for the division by q, one term after the other."""
    total = np.zeros((len(weights), vectors.shape[1]))
    for i in range(len(weights)):
        for n, vector in zip(agents, vectors, strict=True):
            norm = math.sqrt(sum(v * v for v in vector))
            clipped = vector if bound is None else vector / max(1.0, norm / bound)
            total[i] += weights[i, n] * clipped
    return total


@given(
    st.integers(1, 12), st.integers(1, 4), st.integers(1, 6), st.none() | st.floats(0.1, 5),
    st.integers(0, 30), st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_the_sum_is_the_algorithms(agents, regions, features, bound, t, seed):
    rng = np.random.default_rng(seed)
    weights = WeightSchedule(hold=3, decay=5).at(t, agents, regions)
    present = np.flatnonzero(rng.random(agents) < 0.7)
    vectors = rng.standard_normal((len(present), features)) * 3
    total = WeightedSum(weights, features, bound)
    total.add(present, vectors)
    expected = literally(weights, present, vectors, bound)
    np.testing.assert_allclose(total.plain, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("private", [False, True])
def test_blocks_make_no_difference(private, monkeypatch):
    rng = np.random.default_rng(0)
    weights, vectors = WeightSchedule().at(1, 20, 3), rng.standard_normal((20, 4))
    mechanism = GaussianSum(joint_sensitivity(weights, 3.0), 1.0) if private else None
    sums = []
    for block in (4096, 3, 1):
        monkeypatch.setattr(aggregation, "BLOCK", block)
        total = WeightedSum(weights, 4, math.sqrt(3), mechanism)
        total.add(np.arange(20), vectors)
        sums.append(total)
    for other in sums[1:]:
        assert np.array_equal(other.exact, sums[0].exact)
        np.testing.assert_allclose(other.plain, sums[0].plain, rtol=1e-12, atol=1e-15)
    assert sums[0].exact.any() == private


@given(st.integers(2, 9), st.integers(1, 4), st.floats(0.5, 20), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_one_agent_changes_the_exact_sum_by_at_most_the_sensitivity(agents, regions, clip, seed):
    rng = np.random.default_rng(seed)
    weights = WeightSchedule().at(int(rng.integers(0, 45)), agents, regions)
    sensitivity = joint_sensitivity(weights, clip)
    mechanism = GaussianSum(sensitivity, 1.0)
    vectors = rng.standard_normal((agents, 5)) * 10 ** rng.uniform(-2, 3)
    bound = clip / math.sqrt(regions)

    def exact(present):
        total = WeightedSum(weights, 5, bound, mechanism)
        total.add(np.array(present, dtype=np.int64), vectors[present])
        return total.exact

    everybody = exact(list(range(agents)))
    step = math.ldexp(1.0, math.frexp(mechanism.deviation)[1] - 1 - 28)
    for n in range(agents):
        difference = everybody - exact([k for k in range(agents) if k != n])
        squared = sum(int(u) ** 2 for u in difference.ravel())  # exact integers
        assert math.sqrt(squared) * step <= sensitivity
    # and it is the same sum up to the lattice: each of n terms is off by less than a step
    np.testing.assert_allclose(
        everybody * step,
        literally(weights, np.arange(agents), vectors, bound),
        rtol=1e-7,
        atol=2 * agents * step,
    )
