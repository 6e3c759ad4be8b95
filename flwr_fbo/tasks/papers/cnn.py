r"""A small convolutional network for 28 x 28 digits, in torch.

The network has two 5 x 5 convolutions of 16 and 32 channels, each with ReLU and 2 x 2 max pooling,
and one dense layer: 18,378 weights. Adam trains it with batches of 20. At step k the learning rate
is :math:`\eta / (1 + \text{decay} \cdot k)`. The loss is the mean cross-entropy plus L2 times the
squared weights; biases are not penalised. The paper prints none of this. Its three ranges are those
of a Keras optimiser with ``decay`` and of a Keras L2 regulariser, so this module follows the
conventions of Keras.

Every random number comes from the generator that the caller passes, so torch's global generator
does not change. Training uses one thread: the network is so small that a second thread costs ten
times what it saves when agents train side by side (measured on two busy cores).
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.data_task import Split

BATCH, CLASSES = 20, 10
#: Shapes of the weights: two convolutions (out, in, height, width) and the dense layer.
SHAPES = ((16, 1, 5, 5), (32, 16, 5, 5), (CLASSES, 32 * 4 * 4))


@dataclass(frozen=True)
class CnnTraining:
    """Settings of the training."""

    learning_rate: float
    decay: float
    l2: float
    epochs: int


def require_torch() -> Any:
    """Return the torch module, or raise an error that names the extra to install."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(
            "the task `emnist` trains a network with torch: pip install 'flwr-fbo[torch]'"
        ) from error


def cnn_accuracy(data: Split, training: CnnTraining, rng: np.random.Generator) -> float:
    """Return the validation accuracy of the network after training."""
    torch = require_torch()
    with _one_thread(torch):
        scores = _train_and_score(torch, data, training, rng)
    # NaN scores would still have an argmax, and count as an accuracy of about a tenth.
    if not bool(torch.isfinite(scores).all()):
        raise FloatingPointError(f"training diverged with {training}")
    return float(np.mean(scores.argmax(dim=1).numpy() == data.y_valid))


@contextlib.contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train_and_score(
    torch: Any, data: Split, training: CnnTraining, rng: np.random.Generator
) -> Any:
    """Return the class scores of the validation images after training: (n, 10)."""
    weights, biases = _initial_parameters(torch, rng)
    images, labels = _as_tensor(torch, data.x_train), torch.as_tensor(data.y_train)
    optimiser = torch.optim.Adam([*weights, *biases], lr=training.learning_rate)
    step = 0
    for _ in range(training.epochs):
        for batch in torch.as_tensor(rng.permutation(len(labels))).split(BATCH):
            # Keras's decay counts steps, not epochs.
            optimiser.param_groups[0]["lr"] = training.learning_rate / (1 + training.decay * step)
            scores = _class_scores(torch, images[batch], weights, biases)
            loss = torch.nn.functional.cross_entropy(scores, labels[batch])
            penalised = loss + training.l2 * sum((w * w).sum() for w in weights)
            optimiser.zero_grad()
            penalised.backward()
            optimiser.step()
            step += 1
    with torch.no_grad():
        return _class_scores(torch, _as_tensor(torch, data.x_valid), weights, biases)


def _initial_parameters(torch: Any, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Return weights by He's initialisation, and zero biases."""
    weights, biases = [], []
    for shape in SHAPES:
        # Drawn in numpy, so that the run's seed decides and not torch's global generator.
        drawn = rng.standard_normal(shape) * math.sqrt(2.0 / math.prod(shape[1:]))
        weights.append(torch.tensor(drawn.astype(np.float32), requires_grad=True))
        biases.append(torch.zeros(shape[0], requires_grad=True))
    return weights, biases


def _as_tensor(torch: Any, images: NDArray[Any]) -> Any:
    """Return images with a channel axis: (n, 28, 28) -> (n, 1, 28, 28)."""
    return torch.as_tensor(np.ascontiguousarray(images, dtype=np.float32)[:, None])


def _class_scores(torch: Any, images: Any, weights: list[Any], biases: list[Any]) -> Any:
    """Return unnormalised class scores: (n, 1, 28, 28) -> (n, 10)."""
    functional = torch.nn.functional
    value = images
    for kernel, bias in zip(weights[:2], biases[:2], strict=True):
        value = functional.max_pool2d(functional.relu(functional.conv2d(value, kernel, bias)), 2)
    return functional.linear(value.flatten(1), weights[2], biases[2])
