r"""Softmax regression and small ReLU networks, trained by mini-batch SGD in numpy.

Notation

==================  ==============================================  =================
symbol              here                                            shape
==================  ==============================================  =================
``x, y``            ``X``, ``labels``                               (n, d), (n,)
``W_l, b_l``        ``layers``, a list of weights and biases        (d_l, d_l+1), (d_l+1,)
``eta``             ``learning_rate``                               scalar
``lambda``          ``l2``, weight of :math:`\|W\|^2 / 2`           scalar
==================  ==============================================  =================

A network with only the last layer is softmax regression: the papers' "logistic regression" for
several classes. The loss is the mean cross-entropy of a batch plus lambda/2 times the squared
weights. Biases are not penalised.

A decision: the papers search eta up to 1 and lambda up to 10, and do not say how a step is made.
An explicit step multiplies the weights by 1 - eta lambda. The weights then explode wherever
eta lambda > 2, which is about half of DP-FTS-DE's box on its linear scale. The step of the penalty
is therefore implicit, W <- (W - eta g) / (1 + eta lambda): the minimiser is the same, and the
weights do not explode.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.data_task import Split

Floats: TypeAlias = NDArray[Any]  # float32 or float64, as the examples are
Layers: TypeAlias = list[tuple[Floats, Floats]]


@dataclass(frozen=True)
class Sgd:
    """Settings of the training by stochastic gradient descent."""

    batch_size: int
    learning_rate: float
    l2: float
    epochs: int


def trained_accuracy(
    data: Split, classes: int, hidden: tuple[int, ...], sgd: Sgd, rng: np.random.Generator
) -> float:
    """Return the validation accuracy of a network with these hidden layers, after training."""
    layers = fit_network(data.x_train, data.y_train, classes, hidden, sgd, rng)
    return accuracy(layers, data.x_valid, data.y_valid)


def fit_network(
    X: Floats,
    labels: NDArray[Any],
    classes: int,
    hidden: tuple[int, ...],
    sgd: Sgd,
    rng: np.random.Generator,
) -> Layers:
    """Return a network trained on all examples, in a new random order each epoch."""
    layers = initial_layers((X.shape[1], *hidden, classes), X.dtype, rng)
    targets = np.eye(classes, dtype=X.dtype)[labels]  # (n, classes)
    n, size = len(X), min(sgd.batch_size, len(X))
    shrink = 1.0 / (1.0 + sgd.learning_rate * sgd.l2)  # the implicit step of the penalty
    with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported below
        for _ in range(sgd.epochs):
            order = rng.permutation(n)
            for start in range(0, n, size):
                batch = order[start : start + size]
                _step(layers, X[batch], targets[batch], sgd.learning_rate, shrink)
    if not all(np.isfinite(W).all() and np.isfinite(b).all() for W, b in layers):
        raise FloatingPointError(
            f"training diverged with learning rate {sgd.learning_rate:g}, l2 {sgd.l2:g} and "
            f"batches of {size}"
        )
    return layers


def initial_layers(widths: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> Layers:
    """Return He's initialisation for hidden layers; the last layer and biases are zero."""
    layers: Layers = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        last = i == len(widths) - 2
        spread = 0.0 if last else np.sqrt(2.0 / fan_in)
        weights = rng.standard_normal((fan_in, fan_out)) * spread
        layers.append((weights.astype(dtype), np.zeros(fan_out, dtype=dtype)))
    return layers


def _step(layers: Layers, X: Floats, targets: Floats, rate: float, shrink: float) -> None:
    """Make one step of gradient descent on a batch, in place."""
    activations = _activations(layers, X)
    delta = _softmax(activations[-1])  # (batch, classes)
    delta -= targets
    delta *= rate / len(X)  # the step is scaled here, where the matrix is smallest
    for i in range(len(layers) - 1, -1, -1):
        weights, bias = layers[i]
        below = None
        if i > 0:  # backpropagate through the weights as they were before this step
            below = (delta @ weights.T) * (activations[i] > 0)
        weights -= activations[i].T @ delta
        weights *= shrink
        bias -= delta.sum(axis=0)
        if below is not None:
            delta = below


def _activations(layers: Layers, X: Floats) -> list[Floats]:
    """Return the input of every layer, and the output of the last layer before the softmax."""
    values = [X]
    for i, (weights, bias) in enumerate(layers):
        value = values[-1] @ weights
        value += bias
        if i < len(layers) - 1:
            np.maximum(value, 0.0, out=value)
        values.append(value)
    return values


def _softmax(scores: Floats) -> Floats:
    # The largest score of a row is subtracted, so that exp cannot overflow.
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights)


def predict(layers: Layers, X: Floats) -> NDArray[np.int64]:
    """Return the likeliest class of each example; of equals, the first."""
    return np.asarray(_activations(layers, X)[-1].argmax(axis=1))


def accuracy(layers: Layers, X: Floats, labels: NDArray[Any]) -> float:
    """Return the share of examples that are classified correctly: one minus the papers' error."""
    return float(np.mean(predict(layers, X) == labels))


def standardise_by_training(train: Floats, valid: Floats) -> tuple[Floats, Floats]:
    """Return both parts, centred and scaled by the means and deviations of the training part.

    A feature that does not vary in the training part is only centred.
    """
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 1e-12, deviation, 1.0).astype(train.dtype)
    return (train - mean) / deviation, (valid - mean) / deviation
