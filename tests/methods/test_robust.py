"""Robust means, against values computed by hand, oracles, and dishonest agents."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.stats import trim_mean

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.dp_fts_de.robust import geometric_median, robust_mean, trimmed_mean
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings

SPACE = Space({"x": Float(0.0, 1.0)})


def test_a_trimmed_mean_by_hand() -> None:
    values = np.array([[3.0], [100.0], [1.0], [2.0]])
    equal = np.ones((1, 4))
    assert trimmed_mean(values, equal, 0.25) == pytest.approx(2.5)  # 2 and 3 are left
    assert trimmed_mean(values, equal, 0.0) == pytest.approx(26.5)
    # A fifth of the weight off each end: 1 and 100 keep .05 of .25 each.
    assert trimmed_mean(values, equal, 0.2) == pytest.approx((0.05 * 101 + 0.25 * 5) / 0.6)
    # Weights 1, 0, 2, 1 (of 4), a quarter off each end: half of the 1, then the 2.
    weights = np.array([[1.0, 0.0, 2.0, 1.0]])
    assert trimmed_mean(values, weights, 0.25) == pytest.approx((1 + 2) / 2)


def test_a_trimmed_mean_agrees_with_scipy() -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 7))
    ours = trimmed_mean(vectors, np.ones((1, 20)), 0.1)[0]
    np.testing.assert_allclose(ours, trim_mean(vectors, 0.1, axis=0))


def test_a_geometric_median_is_where_the_distances_are_least() -> None:
    rng = np.random.default_rng(1)
    vectors, weights = rng.normal(size=(15, 4)), rng.uniform(0.1, 1.0, 15)

    def cost(point: np.ndarray) -> float:
        return float(weights @ np.linalg.norm(vectors - point, axis=1))

    found = geometric_median(vectors, weights)
    oracle = minimize(cost, vectors.mean(axis=0), method="BFGS", options={"gtol": 1e-10})
    assert cost(found) <= oracle.fun + 1e-9


def test_a_geometric_median_may_be_a_data_point() -> None:
    vectors = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    np.testing.assert_allclose(geometric_median(vectors, np.ones(5)), [0.0, 0.0], atol=1e-7)
    one = np.full((3, 2), 7.0)
    np.testing.assert_allclose(geometric_median(one, np.ones(3)), [7.0, 7.0])


@given(
    honest=arrays(np.float64, (7, 3), elements=st.floats(-1, 1)),
    lies=arrays(np.float64, (2, 3), elements=st.floats(-1e6, 1e6)),
)
def test_few_dishonest_agents_leave_a_trimmed_mean_among_the_honest(
    honest: np.ndarray, lies: np.ndarray
) -> None:
    vectors = np.concatenate([honest, lies])
    (found,) = trimmed_mean(vectors, np.ones((1, 9)), 0.23)  # two of nine are .222
    assert np.all(found >= honest.min(axis=0) - 1e-9)
    assert np.all(found <= honest.max(axis=0) + 1e-9)


@pytest.mark.parametrize("size", [1e1, 1e3, 1e6])
def test_a_dishonest_minority_leaves_a_geometric_median_near_the_honest(size: float) -> None:
    honest = np.random.default_rng(2).normal(size=(6, 5))
    vectors = np.concatenate([honest, np.full((4, 5), size)])
    found = geometric_median(vectors, np.ones(10))
    # The classical bound with a dishonest share a: 2 (1 - a) / (1 - 2 a) times the honest radius.
    radius = np.linalg.norm(honest, axis=1).max()
    assert np.linalg.norm(found) <= 2 * 0.6 / 0.2 * radius


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`trim` must be in \[0, 0.5\), but got 0.5"):
        trimmed_mean(np.ones((2, 2)), np.ones((1, 2)), 0.5)
    with pytest.raises(ValueError, match="`robust` must be"):
        robust_mean(np.ones((2, 2)), np.ones((1, 2)), "none", 0.1)
    with pytest.raises(SettingsError, match="`robust` must be none in a private run"):
        DPFTSDESettings(epsilon=1.0, robust="trimmed-mean")


@pytest.mark.parametrize("robust", ["trimmed-mean", "geometric-median"])
def test_a_server_with_dishonest_agents_stays_with_the_honest(robust: str) -> None:
    settings = DPFTSDESettings(features=4, regions=1, weights="uniform", robust=robust)
    server = DPFTSDEServer(SPACE, 10, settings, 3)
    vectors = {n: np.full(4, 0.1) for n in range(8)} | {8: np.full(4, 1e9), 9: np.full(4, 1e9)}
    found = server.aggregation.without_noise(vectors, 0)
    np.testing.assert_allclose(found, np.full((1, 4), 0.1), atol=1e-6)
    assert server.aggregation.without_noise({}, 0).tolist() == [[0.0] * 4]


@cache
def private_server() -> DPFTSDEServer:
    settings = DPFTSDESettings(features=4, regions=2, noise_multiplier=1.0, clip=3.0)
    return DPFTSDEServer(SPACE, 6, settings, 3)


@given(
    others=arrays(np.float64, (5, 4), elements=st.floats(-10, 10)),
    message=arrays(np.float64, (4,), elements=st.floats(allow_nan=False, allow_infinity=False)),
    agent=st.integers(0, 5),
)
def test_no_agent_moves_a_private_sum_by_more_than_the_sensitivity(
    others: np.ndarray, message: np.ndarray, agent: int
) -> None:
    """The sum with any message of one agent, against the sum without the agent, in integers."""
    aggregation = private_server().aggregation
    mechanism = aggregation.mechanism(0)
    without = dict(zip([n for n in range(6) if n != agent], others, strict=True))
    base = aggregation.weighted_sum(without, 0, mechanism).exact
    moved = aggregation.weighted_sum({**without, agent: message}, 0, mechanism).exact - base
    distance = sum(int(d) ** 2 for d in moved.ravel())
    assert distance <= (mechanism.sensitivity / mechanism._lattice.step) ** 2
