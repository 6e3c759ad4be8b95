"""MNIST: every client tunes a network with 64 hidden units on 500 images.

Fed-PNE App. E.5 searches batch sizes in [1, 100], learning rates in [1e-6, 1] and weight decays in
[1e-6, 0.5]. Each client draws 500 training images and 100 test images at random, and the score is
the accuracy on the test images. The paper trains "till convergence": here for 10 epochs, which is
50 to 5,000 steps. numpy trains this network faster than torch does, because the network and its
batches are small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Int, Space
from flwr_fbo.tasks.data_task import Split
from flwr_fbo.tasks.papers.data.generated import digit_images
from flwr_fbo.tasks.papers.data.mnist import load_mnist
from flwr_fbo.tasks.papers.data.sources import MNIST, Source
from flwr_fbo.tasks.papers.networks import Sgd, trained_accuracy
from flwr_fbo.tasks.papers.paper_task import PaperTask, ScaleSettings
from flwr_fbo.tasks.task import Params, Partition, Seeks, number

TRAIN, TEST, HIDDEN, CLASSES = 500, 100, 64, 10


@dataclass(frozen=True)
class MnistSettings(ScaleSettings):
    """Settings of the MNIST task."""

    epochs: int = setting(10, "passes over the training images", at_least(1))


class MnistTask(PaperTask):
    """Batch size, learning rate and weight decay of a two-layer network."""

    seeks: ClassVar[Seeks] = "global"
    default_agents = 10
    settings: MnistSettings
    settings_class: ClassVar[type[Settings]] = MnistSettings
    source: ClassVar[Source | None] = MNIST

    @property
    def space(self) -> Space:
        """Return the paper's ranges, on the scale of the settings."""
        log = self.settings.log
        return Space(
            {
                "batch-size": Int(1, 100, log),
                "learning-rate": Float(1e-6, 1.0, log),
                "weight-decay": Float(1e-6, 0.5, log),
            }
        )

    def load_share(self, party: int, partition: Partition) -> None:
        """Draw the images of one client."""
        # Fed-PNE draws the images of every client anew, so clients may share images.
        arrays, rng = load_mnist(self.data_directory(partition)), partition.rng(0)
        train = rng.choice(len(arrays["x_train"]), TRAIN, replace=False)
        test = rng.choice(len(arrays["x_test"]), TEST, replace=False)
        self.data = Split(
            flatten_images(arrays["x_train"][train]),
            arrays["y_train"][train],
            flatten_images(arrays["x_test"][test]),
            arrays["y_test"][test],
        )

    def generate_share(self, party: int, partition: Partition) -> None:
        """Generate the images of one client."""
        X, y = digit_images(TRAIN + TEST, partition.shared_rng(1), partition.rng(1))
        images = X.reshape(len(X), -1)  # (n, 784)
        self.data = Split(images[:TRAIN], y[:TRAIN], images[TRAIN:], y[TRAIN:])

    def score(self, params: Params) -> float:
        """Return the accuracy on the test images."""
        sgd = Sgd(
            batch_size=int(number(params, "batch-size")),
            learning_rate=number(params, "learning-rate"),
            l2=number(params, "weight-decay"),
            epochs=self.settings.epochs,
        )
        return trained_accuracy(self.data, CLASSES, (HIDDEN,), sgd, self.training_rng())


def flatten_images(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images as rows with values in [0, 1]: (n, 28, 28) -> (n, 784)."""
    return np.asarray(images.reshape(len(images), -1) / np.float32(255.0), dtype=np.float32)
