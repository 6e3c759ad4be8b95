"""Writers' digits: every writer tunes its own convolutional network (needs torch).

DP-FTS-DE App. B.2.1 takes the first 50 writers of TensorFlow Federated's EMNIST, with its division
into train and test, and pixels in [0, 1]. It searches learning rate, learning rate decay and L2,
each in [1e-7, 0.02]. The score is one minus the paper's validation error. The paper prints neither
the network nor the optimiser; :mod:`flwr_fbo.tasks.papers.cnn` says what stands for them.

``data = "writers"`` takes MNIST digits of 50 NIST writers instead. These digits are a surrogate
with a smaller file, and the name of the task says that they are not EMNIST.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.data_task import Split
from flwr_fbo.tasks.papers.cnn import CnnTraining, cnn_accuracy, require_torch
from flwr_fbo.tasks.papers.data.emnist import load_digits_by_writer, load_emnist
from flwr_fbo.tasks.papers.data.generated import digit_images
from flwr_fbo.tasks.papers.data.sources import EMNIST, WRITERS, Source
from flwr_fbo.tasks.papers.data.tables import Parties
from flwr_fbo.tasks.papers.paper_task import DP_FTS_DE_SETTINGS, PaperTask, ScaleSettings
from flwr_fbo.tasks.task import Params, Partition, number

WRITER_COUNT, LOW, HIGH = 50, 1e-7, 0.02


@dataclass(frozen=True)
class EmnistSettings(ScaleSettings):
    """Settings of the EMNIST task."""

    data: Literal["emnist", "writers"] = setting(
        "emnist", "EMNIST, or MNIST digits by writer as a surrogate"
    )
    epochs: int = setting(10, "passes over a writer's training images", at_least(1))


class EmnistTask(PaperTask):
    """Learning rate, decay and L2 of a convolutional network on one writer's digits."""

    parties = WRITER_COUNT
    default_agents = WRITER_COUNT
    settings: EmnistSettings
    settings_class: ClassVar[type[Settings]] = EmnistSettings
    other_sources: ClassVar[Mapping[str, Source]] = {"data=writers": WRITERS}
    paper_settings: ClassVar[Mapping[str, Any]] = DP_FTS_DE_SETTINGS

    @property
    def source(self) -> Source | None:  # type: ignore[override]
        """Return EMNIST, or the source of the surrogate."""
        return WRITERS if self.settings.data == "writers" else EMNIST

    @property
    def name(self) -> str:
        """Return the name of the task for people, marked if the data are not EMNIST."""
        if self.settings.data == "writers" and not self.settings.generated:
            return "emnist (MNIST digits by writer)"
        return super().name

    @property
    def space(self) -> Space:
        """Return the paper's ranges, on the scale of the settings."""
        # The order is that of the fields of CnnTraining, see `score`.
        names = ("learning-rate", "learning-rate-decay", "l2")
        return Space({name: Float(LOW, HIGH, self.settings.log) for name in names})

    def load_share(self, party: int, partition: Partition) -> None:
        """Load the digits of one writer."""
        directory = self.data_directory(partition)
        load = load_digits_by_writer if self.settings.data == "writers" else load_emnist
        self._divide(load(directory).of(party))

    def generate_share(self, party: int, partition: Partition) -> None:
        """Generate the digits of one writer, every tenth of them for validation."""
        # A writer of EMNIST has about a hundred digits, a tenth of them in the test split.
        rng = partition.rng(1)
        n = int(rng.integers(90, 130))
        X, y = digit_images(n, partition.shared_rng(1), rng)
        extra = {"test": np.arange(n) % 10 == 9}
        self._divide(Parties(1.0 - X, y, np.full(n, party), extra))

    def _divide(self, writer: Parties) -> None:
        require_torch()
        # EMNIST's background is 1. The convolutions pad with 0, which must be background too.
        ink, test = 1.0 - writer.X, writer.extra["test"]
        self.data = Split(ink[~test], writer.y[~test], ink[test], writer.y[test])

    def score(self, params: Params) -> float:
        """Return the validation accuracy of the network."""
        rate, decay, l2 = (number(params, name) for name in self.space.names)
        training = CnnTraining(rate, decay, l2, self.settings.epochs)
        return cnn_accuracy(self.data, training, self.training_rng())
