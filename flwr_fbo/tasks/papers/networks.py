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

No layer but the last is softmax regression, the papers' "logistic regression" for several
classes. The loss is the mean cross-entropy of a batch plus lambda/2 times the squared weights
(biases go free).

Decision: the papers search eta up to 1 and lambda up to 10, and do not say how a step is made.
An explicit step multiplies the weights by 1 - eta lambda, which explodes wherever eta lambda
> 2: about half of DP-FTS-DE's box on its linear scale. The penalty's step is therefore made
implicitly, W <- (W - eta g) / (1 + eta lambda): the same minimiser, and no explosion.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[Any]  # float32 or float64, as the examples are
Layers: TypeAlias = list[tuple[Floats, Floats]]


@dataclass(frozen=True)
class Sgd:
    """How a network is trained."""

    batch_size: int
    learning_rate: float
    l2: float
    epochs: int


def fit(
    X: Floats,
    labels: NDArray[Any],
    classes: int,
    hidden: tuple[int, ...],
    sgd: Sgd,
    rng: np.random.Generator,
) -> Layers:
    """A network trained on all examples, in a fresh random order each epoch."""
    layers = initial((X.shape[1], *hidden, classes), X.dtype, rng)
    targets = np.eye(classes, dtype=X.dtype)[labels]  # (n, classes)
    n, size = len(X), min(sgd.batch_size, len(X))
    shrink = 1.0 / (1.0 + sgd.learning_rate * sgd.l2)
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
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


def initial(widths: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> Layers:
    """He's initialisation for hidden layers, zeros for the last one and for biases."""
    layers: Layers = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        last = i == len(widths) - 2
        spread = 0.0 if last else np.sqrt(2.0 / fan_in)
        weights = rng.standard_normal((fan_in, fan_out)) * spread
        layers.append((weights.astype(dtype), np.zeros(fan_out, dtype=dtype)))
    return layers


def _step(layers: Layers, X: Floats, targets: Floats, rate: float, shrink: float) -> None:
    """One step of gradient descent on a batch, in place."""
    activations = _activations(layers, X)
    delta = _softmax(activations[-1])  # (batch, classes)
    delta -= targets
    delta *= rate / len(X)  # the step is scaled here, where the matrix is smallest
    for i in range(len(layers) - 1, -1, -1):
        weights, bias = layers[i]
        below = None
        if i > 0:
            below = (delta @ weights.T) * (activations[i] > 0)
        weights -= activations[i].T @ delta
        weights *= shrink
        bias -= delta.sum(axis=0)
        if below is not None:
            delta = below


def _activations(layers: Layers, X: Floats) -> list[Floats]:
    """The input of every layer, and the last layer's output before the softmax."""
    found = [X]
    for i, (weights, bias) in enumerate(layers):
        value = found[-1] @ weights
        value += bias
        if i < len(layers) - 1:
            np.maximum(value, 0.0, out=value)
        found.append(value)
    return found


def _softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights)


def predicted(layers: Layers, X: Floats) -> NDArray[np.int64]:
    """The likeliest class of each example; of equals, the first."""
    return np.asarray(_activations(layers, X)[-1].argmax(axis=1))


def accuracy(layers: Layers, X: Floats, labels: NDArray[Any]) -> float:
    """The share of examples that are classified rightly: one minus the papers' error."""
    return float(np.mean(predicted(layers, X) == labels))


def standardised(train: Floats, valid: Floats) -> tuple[Floats, Floats]:
    """Both halves, less the training half's means and over its standard deviations.

    A feature that does not vary in the training half is only centred.
    """
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 1e-12, deviation, 1.0).astype(train.dtype)
    return (train - mean) / deviation, (valid - mean) / deviation
