"""The softmax regression that the tasks activity and glasses tune, and its search space."""

from __future__ import annotations

import numpy as np

from flwr_fbo.core.space import Float, Int, Space
from flwr_fbo.tasks.data_task import Split
from flwr_fbo.tasks.papers.networks import Sgd, trained_accuracy
from flwr_fbo.tasks.task import Params, number

#: Ranges of batch size, L2 and learning rate, by the paper that prints them.
RANGES = {
    "dp-fts-de": ((128, 512), (1e-6, 10.0), (1e-6, 1.0)),
    "fts": ((20, 60), (1e-6, 1.0), (0.01, 0.1)),
}


def regression_space(ranges: str, log: bool) -> Space:
    """Return the space of batch size, L2 and learning rate."""
    batch_size, l2, rate = RANGES[ranges]
    return Space(
        {
            "batch-size": Int(*batch_size, log),
            "l2": Float(*l2, log),
            "learning-rate": Float(*rate, log),
        }
    )


def regression_accuracy(
    data: Split, classes: int, params: Params, epochs: int, rng: np.random.Generator
) -> float:
    """Return the validation accuracy of a regression trained with these parameter values."""
    sgd = Sgd(
        batch_size=int(number(params, "batch-size")),
        learning_rate=number(params, "learning-rate"),
        l2=number(params, "l2"),
        epochs=epochs,
    )
    # A network without hidden layers is a softmax regression.
    return trained_accuracy(data, classes, (), sgd, rng)
