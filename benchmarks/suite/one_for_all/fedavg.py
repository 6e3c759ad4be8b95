"""A small network in numpy: trained by one party, or by many parties with FedAvg.

The network has one hidden layer, or none where ``width`` is 0. A setting holds any of the
hyperparameters of :data:`DEFAULTS`; the others have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array, Indices

DEFAULTS: Mapping[str, Any] = {
    "learning_rate": 0.1,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "rate_decay": 1.0,  # factor on the learning rate after every epoch
    "batch_size": 16,
    "width": 0,
    "activation": "relu",
    "start": 1.0,  # scale of the first weights
    "inputs": "plain",
    "smoothing": 0.0,  # of the labels
    "clip": 10.0,  # largest norm of a gradient
}
Weights = list[Array]


def first_weights(features: int, classes: int, setting: Mapping[str, Any], seed: int) -> Weights:
    """Return the weights before training: matrix and offset of each layer."""
    rng, width = np.random.default_rng(seed), int(setting["width"])
    sizes = [features, width, classes] if width else [features, classes]
    weights: Weights = []
    for a, b in pairwise(sizes):
        weights += [setting["start"] * rng.standard_normal((a, b)) / np.sqrt(a), np.zeros(b)]
    return weights


def inputs(X: Array, kind: str) -> Array:
    """Return features in [0, 1] as the network sees them: plain, centred, or of length 1."""
    if kind == "centred":
        return 2.0 * X - 1.0
    if kind == "unit":
        return np.asarray(X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9))
    return X


def logits(weights: Weights, X: Array, activation: str) -> tuple[Array, Array]:
    """Return the outputs of the last layer and the inputs to it."""
    if len(weights) == 2:
        return X @ weights[0] + weights[1], X
    hidden = X @ weights[0] + weights[1]
    hidden = np.maximum(hidden, 0.0) if activation == "relu" else np.tanh(hidden)
    return hidden @ weights[2] + weights[3], hidden


def accuracy(weights: Weights, X: Array, y: Indices, setting: Mapping[str, Any]) -> float:
    """Return the share of examples that are classified correctly; 0 after divergence."""
    out, _ = logits(weights, inputs(X, setting["inputs"]), setting["activation"])
    return float((out.argmax(axis=1) == y).mean()) if np.isfinite(out).all() else 0.0


def trained(
    weights: Weights,
    X: Array,
    y: Indices,
    setting: Mapping[str, Any],
    epochs: int,
    rng: np.random.Generator,
    first_epoch: int = 0,
) -> Weights:
    """Return the weights after some epochs of stochastic gradient descent."""
    X, weights = inputs(X, setting["inputs"]), [w.copy() for w in weights]
    speed = [np.zeros_like(w) for w in weights]
    size, targets = int(setting["batch_size"]), _targets(y, weights[-1].size, setting)
    with np.errstate(all="ignore"):  # a learning rate that is too large diverges
        for epoch in range(first_epoch, first_epoch + epochs):
            rate = setting["learning_rate"] * setting["rate_decay"] ** epoch
            order = rng.permutation(len(X))
            for start in range(0, len(X), size):
                rows = order[start : start + size]
                gradients = _gradients(weights, X[rows], targets[rows], setting)
                for w, v, g in zip(weights, speed, gradients, strict=True):
                    v *= setting["momentum"]
                    v += g + setting["weight_decay"] * w
                    w -= rate * v
    return weights


def _targets(y: Indices, classes: int, setting: Mapping[str, Any]) -> Array:
    smooth = float(setting["smoothing"])
    return np.eye(classes)[y] * (1.0 - smooth) + smooth / classes


def _gradients(weights: Weights, X: Array, targets: Array, setting: Mapping[str, Any]) -> Weights:
    """Return the gradients of the cross entropy, shortened to the largest norm."""
    out, last = logits(weights, X, setting["activation"])
    out = np.exp(out - out.max(axis=1, keepdims=True))
    error = (out / out.sum(axis=1, keepdims=True) - targets) / len(X)
    gradients = [last.T @ error, error.sum(axis=0)]
    if len(weights) == 4:
        slope = (last > 0) if setting["activation"] == "relu" else 1.0 - last**2
        below = (error @ weights[2].T) * slope
        gradients = [X.T @ below, below.sum(axis=0), *gradients]
    norm = np.sqrt(sum(float((g**2).sum()) for g in gradients))
    if norm > setting["clip"]:
        gradients = [g * (setting["clip"] / norm) for g in gradients]
    return gradients


def fedavg(
    shares: Sequence[tuple[Array, Indices]],
    classes: int,
    setting: Mapping[str, Any],
    rounds: int,
    seed: int,
    sample: int,
) -> Weights:
    """Return the weights after FedAvg: each round a sample of parties trains for one epoch."""
    rng = np.random.default_rng([seed, 5])
    weights = first_weights(shares[0][0].shape[1], classes, setting, seed)
    for round in range(rounds):
        chosen = rng.choice(len(shares), size=min(sample, len(shares)), replace=False)
        total = float(sum(len(shares[n][1]) for n in chosen))
        mean = [np.zeros_like(w) for w in weights]
        for n in chosen:
            X, y = shares[n]
            theirs = trained(weights, X, y, setting, 1, rng, first_epoch=round)
            for m, w in zip(mean, theirs, strict=True):
                m += len(y) / total * w
        weights = mean
        if not all(np.isfinite(w).all() for w in weights):
            break
    return weights
