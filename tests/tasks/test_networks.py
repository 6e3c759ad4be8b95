"""The numpy networks: gradients against differences, the optimum against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from flwr_fbo.tasks.papers.networks import (
    Layers,
    Sgd,
    _activations,
    _softmax,
    _step,
    accuracy,
    fit_network,
    initial_layers,
    predict,
    standardise_by_training,
)


def loss(layers: Layers, X: np.ndarray, targets: np.ndarray) -> float:
    probabilities = _softmax(_activations(layers, X)[-1])
    return float(-np.mean(np.log((probabilities * targets).sum(axis=1))))


@pytest.mark.parametrize("hidden", [(), (5,), (6, 4)])
def test_a_step_follows_the_gradient(hidden: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    X, targets = rng.normal(0, 1, (7, 3)), np.eye(4)[rng.integers(4, size=7)]
    layers = initial_layers((3, *hidden, 4), np.dtype(float), rng)
    layers = [(W + rng.normal(0, 0.3, W.shape), b + rng.normal(0, 0.3, b.shape)) for W, b in layers]
    stepped = [(W.copy(), b.copy()) for W, b in layers]
    _step(stepped, X, targets, rate=1.0, shrink=1.0)
    for i, pair in enumerate(layers):
        for j, array in enumerate(pair):
            gradient = array - stepped[i][j]
            for place in np.ndindex(array.shape):
                kept, h = array[place], 1e-6
                array[place] = kept + h
                above = loss(layers, X, targets)
                array[place] = kept - h
                below = loss(layers, X, targets)
                array[place] = kept
                # Central differences: error O(h^2) ~ 1e-12 plus rounding 1e-16 / h = 1e-10.
                assert gradient[place] == pytest.approx((above - below) / (2 * h), abs=1e-7)


def test_long_training_finds_the_regularised_optimum_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(0, 1, (90, 4))
    y = (X @ rng.normal(0, 1, (4, 3)) + rng.normal(0, 1, (90, 3))).argmax(axis=1)
    l2 = 0.1
    layers = fit_network(X, y, 3, (), Sgd(90, 0.5, l2, epochs=3000), rng)
    # scikit-learn: sum of losses + |W|^2 / (2 C), so C = 1 / (n l2).
    oracle = LogisticRegression(C=1 / (90 * l2), tol=1e-10, max_iter=10_000).fit(X, y)
    assert pytest.approx(oracle.coef_, abs=1e-4) == layers[0][0].T
    assert np.array_equal(predict(layers, X), oracle.predict(X))


def test_by_hand_one_step_from_zero() -> None:
    """Two classes, one example x = 2 of class 0: the gradient is (p - t) x = (-1/2, 1/2) * 2."""
    layers = fit_network(
        np.array([[2.0]]), np.array([0]), 2, (), Sgd(1, 0.1, 0.5, 1), np.random.default_rng(0)
    )
    W, b = layers[0]
    assert pytest.approx(np.array([[0.1, -0.1]]) / (1 + 0.1 * 0.5)) == W
    assert b == pytest.approx([0.05, -0.05])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 600),
    st.floats(1e-6, 1.0),
    st.floats(1e-6, 10.0),
    st.integers(0, 2**31),
)
def test_softmax_regression_never_diverges_within_the_papers_ranges(
    size: int, rate: float, l2: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(0, 1, (60, 20)), rng.integers(0, 6, 60)
    layers = fit_network(X, y, 6, (), Sgd(size, rate, l2, 5), rng)
    assert 0.0 <= accuracy(layers, X, y) <= 1.0


def test_a_network_that_diverges_says_so() -> None:
    rng = np.random.default_rng(0)
    X, y = 1e30 * rng.normal(0, 1, (20, 3)), rng.integers(0, 2, 20)
    with pytest.raises(FloatingPointError, match="training diverged with learning rate 1, l2 0"):
        fit_network(X.astype(np.float32), y, 2, (4,), Sgd(5, 1.0, 0.0, 3), rng)


def test_a_hidden_layer_learns_what_a_plane_cannot() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    flat_, deep = ((), (32,))
    assert accuracy(fit_network(X, y, 2, flat_, Sgd(20, 0.1, 0.0, 50), rng), X, y) < 0.7
    assert accuracy(fit_network(X, y, 2, deep, Sgd(20, 0.3, 0.0, 200), rng), X, y) > 0.93


def test_standardised_on_the_training_half_only() -> None:
    train = np.array([[1.0, 7.0], [3.0, 7.0]])
    valid = np.array([[5.0, 8.0]])
    a, b = standardise_by_training(train, valid)
    assert a.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert b.tolist() == [[3.0, 1.0]]  # a feature without variance is only centred
