"""Writers' digits: every writer tunes its own convolutional network (needs torch).

DP-FTS-DE App. B.2.1: the first 50 writers of TensorFlow Federated's EMNIST, its own division
into train and test, pixels in [0, 1]; learning rate, learning rate decay and L2, each in
[1e-7, 0.02]; the score is one minus the paper's validation error. The paper prints neither the
network nor the optimiser: see :mod:`flwr_fbo.tasks.papers.cnn`.

``data = "writers"`` takes MNIST digits of 50 NIST writers instead, a surrogate that is smaller
to get and is named as what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.papers.cnn import CnnTraining, cnn_accuracy, require_torch
from flwr_fbo.tasks.papers.data.emnist import digits_by_writer, emnist
from flwr_fbo.tasks.papers.data.generated import digit_images
from flwr_fbo.tasks.papers.data.sources import EMNIST, WRITERS, Source
from flwr_fbo.tasks.papers.data.tables import Parties
from flwr_fbo.tasks.papers.data_task import DataSettings, DataTask
from flwr_fbo.tasks.papers.svm import Halves
from flwr_fbo.tasks.task import Params, Partition

WRITER_COUNT, LOW, HIGH = 50, 1e-7, 0.02


@dataclass(frozen=True)
class EmnistSettings(DataSettings):
    """Settings of the EMNIST task."""

    scale: Literal["log", "linear"] = setting("log", "scale of the ranges; the paper: linear")
    data: Literal["emnist", "writers"] = setting(
        "emnist", "EMNIST, or MNIST digits by writer as a surrogate"
    )
    epochs: int = setting(10, "passes over a writer's training images", at_least(1))


class EmnistTask(DataTask):
    """Learning rate, decay and L2 of a convolutional network on one writer's digits."""

    metric = "accuracy"
    score_range = (0.0, 1.0)
    parties = WRITER_COUNT
    default_agents = WRITER_COUNT
    settings: EmnistSettings
    settings_class: ClassVar[type[Settings]] = EmnistSettings
    #: DP-FTS-DE Sec. 5.2; the rest of its settings, and FTS's own, are the strategies' presets.
    paper_settings: ClassVar[Mapping[str, Any]] = {"regions": 4, "clip": 22.0, "features": 100}
    paper_task_settings: ClassVar[Mapping[str, Any]] = {"scale": "linear"}

    @property
    def source(self) -> Source | None:  # type: ignore[override]
        """EMNIST, or the surrogate's source."""
        return WRITERS if self.settings.data == "writers" else EMNIST

    @property
    def name(self) -> str:
        """The name shown to people, which says so where the data are not EMNIST."""
        if self.settings.data == "writers" and not self.settings.generated:
            return "emnist (MNIST digits by writer)"
        return super().name

    @property
    def space(self) -> Space:
        """The paper's ranges, on the scale that the settings say."""
        log = self.settings.scale == "log"
        names = ("learning-rate", "learning-rate-decay", "l2")
        return Space({name: Float(LOW, HIGH, log) for name in names})

    def load_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        directory = self.data_directory(partition)
        whole = digits_by_writer if self.settings.data == "writers" else emnist
        self._divide(whole(directory).of(party), partition)

    def generate_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        rng = partition.rng(1)
        n = int(rng.integers(90, 130))
        X, y = digit_images(n, partition.shared_rng(1), rng)
        extra = {"test": np.arange(n) % 10 == 9}
        self._divide(Parties(1.0 - X, y, np.full(n, party), extra), partition)

    def _divide(self, writer: Parties, partition: Partition) -> None:
        """Ink becomes 1 and background 0, so that the convolutions' zero padding is background."""
        require_torch()
        ink, test = 1.0 - writer.X, writer.extra["test"]
        self.data = Halves(ink[~test], writer.y[~test], ink[test], writer.y[test])
        self._training = partition

    def score(self, params: Params) -> float:
        """See :class:`DataTask`."""
        rate, decay, l2 = (float(params[name] or 0.0) for name in self.space.names)
        training = CnnTraining(rate, decay, l2, self.settings.epochs)
        return cnn_accuracy(self.data, training, self._training.rng(2))
