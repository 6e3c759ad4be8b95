"""MNIST: every client tunes a network with 64 hidden units on 500 images.

Fed-PNE App. E.5: batch size [1, 100], learning rate [1e-6, 1], weight decay [1e-6, 0.5]; each
client draws 500 training images and 100 test images at random; the score is the accuracy on the
latter. The paper trains "till convergence": here 10 epochs, which is 50 to 5,000 steps. The
network is small enough for numpy, which trains it faster than torch does at batches this small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Int, Space
from flwr_fbo.tasks.papers.data.generated import digit_images
from flwr_fbo.tasks.papers.data.mnist import mnist
from flwr_fbo.tasks.papers.data.sources import MNIST, Source
from flwr_fbo.tasks.papers.data_task import DataSettings, DataTask
from flwr_fbo.tasks.papers.networks import Sgd, accuracy, fit
from flwr_fbo.tasks.papers.svm import Halves
from flwr_fbo.tasks.task import Params, Partition, Seeks

TRAIN, TEST, HIDDEN, CLASSES = 500, 100, 64, 10


@dataclass(frozen=True)
class MnistSettings(DataSettings):
    """Settings of the MNIST task."""

    scale: Literal["log", "linear"] = setting("log", "scale of the ranges; the paper: linear")
    epochs: int = setting(10, "passes over the training images", at_least(1))


class MnistTask(DataTask):
    """Batch size, learning rate and weight decay of a two-layer network."""

    metric = "accuracy"
    seeks: ClassVar[Seeks] = "global"
    score_range = (0.0, 1.0)
    default_agents = 10
    settings: MnistSettings
    settings_class: ClassVar[type[Settings]] = MnistSettings
    source: ClassVar[Source | None] = MNIST
    paper_task_settings: ClassVar[Mapping[str, Any]] = {"scale": "linear"}

    @property
    def space(self) -> Space:
        """The paper's ranges, on the scale that the settings say."""
        log = self.settings.scale == "log"
        return Space(
            {
                "batch-size": Int(1, 100, log),
                "learning-rate": Float(1e-6, 1.0, log),
                "weight-decay": Float(1e-6, 0.5, log),
            }
        )

    def load_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        arrays, rng = mnist(self.data_directory(partition)), partition.rng(0)
        train = rng.choice(len(arrays["x_train"]), TRAIN, replace=False)
        test = rng.choice(len(arrays["x_test"]), TEST, replace=False)
        self.data = Halves(
            flat(arrays["x_train"][train]),
            arrays["y_train"][train],
            flat(arrays["x_test"][test]),
            arrays["y_test"][test],
        )
        self._training = partition

    def generate_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        X, y = digit_images(TRAIN + TEST, partition.shared_rng(1), partition.rng(1))
        images = X.reshape(len(X), -1)
        self.data = Halves(images[:TRAIN], y[:TRAIN], images[TRAIN:], y[TRAIN:])
        self._training = partition

    def score(self, params: Params) -> float:
        """See :class:`DataTask`."""
        size, rate, decay = (
            params[name] for name in ("batch-size", "learning-rate", "weight-decay")
        )
        assert isinstance(size, int)
        assert isinstance(rate, float)
        assert isinstance(decay, float)
        sgd = Sgd(size, rate, decay, self.settings.epochs)
        data, rng = self.data, self._training.rng(2)
        layers = fit(data.x_train, data.y_train, CLASSES, (HIDDEN,), sgd, rng)
        return accuracy(layers, data.x_valid, data.y_valid)


def flat(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Images as rows with values in [0, 1]."""
    return np.asarray(images.reshape(len(images), -1) / np.float32(255.0), dtype=np.float32)
