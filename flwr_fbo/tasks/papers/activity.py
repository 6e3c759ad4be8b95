"""Activity recognition with a phone: every subject tunes its own softmax regression.

DP-FTS-DE App. B.2.1 searches batch sizes in [128, 512], L2 in [1e-6, 10] and learning rates in
[1e-6, 1]. FTS Sec. 5.2 searches [20, 60], [1e-6, 1] and [0.01, 0.1] on the same data
(``ranges = "fts"``). Half of a subject's windows are for training, half for validation. Inputs
are standardised on the training half, and the score is one minus the papers' validation error. A
subject has about 170 training windows, so most batch sizes of DP-FTS-DE's range mean full batches.

Two decisions. Windows overlap by half, so the papers' random division shows samples of the
validation half to the training half. Here whole chains of windows go to one side;
``split = "random"`` is the papers' division. The papers do not print the number of epochs: here
20, after which a good learning rate has converged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Indices
from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.tasks.data_task import Split, random_halves
from flwr_fbo.tasks.papers.data.generated import activity_subject
from flwr_fbo.tasks.papers.data.har import ACTIVITIES, SUBJECTS, load_har
from flwr_fbo.tasks.papers.data.sources import HAR, Source
from flwr_fbo.tasks.papers.data.tables import Parties
from flwr_fbo.tasks.papers.networks import standardise_by_training
from flwr_fbo.tasks.papers.paper_task import DP_FTS_DE_SETTINGS, PaperTask, ScaleSettings
from flwr_fbo.tasks.papers.regression import regression_accuracy, regression_space
from flwr_fbo.tasks.task import Params, Partition


@dataclass(frozen=True)
class ActivitySettings(ScaleSettings):
    """Settings of the activity task."""

    ranges: Literal["dp-fts-de", "fts"] = setting("dp-fts-de", "paper whose ranges are searched")
    split: Literal["chains", "random"] = setting(
        "chains", "division by whole chains of overlapping windows, or the papers' random halves"
    )
    epochs: int = setting(20, "passes over the training half", at_least(1))


class ActivityTask(PaperTask):
    """Batch size, L2 and learning rate of a softmax regression on one of 30 subjects."""

    parties = SUBJECTS
    settings: ActivitySettings
    settings_class: ClassVar[type[Settings]] = ActivitySettings
    source: ClassVar[Source | None] = HAR
    paper_settings: ClassVar[Mapping[str, Any]] = DP_FTS_DE_SETTINGS
    paper_task_settings: ClassVar[Mapping[str, Any]] = {"scale": "linear", "split": "random"}

    @property
    def space(self) -> Space:
        """Return the ranges of one of the papers, on the scale of the settings."""
        return regression_space(self.settings.ranges, self.settings.log)

    def load_share(self, party: int, partition: Partition) -> None:
        """Load the windows of one subject."""
        self._divide(load_har(self.data_directory(partition)).of(party), partition)

    def generate_share(self, party: int, partition: Partition) -> None:
        """Generate the windows of one subject."""
        self._divide(activity_subject(partition.shared_rng(1), partition.rng(1)), partition)

    def _divide(self, subject: Parties, partition: Partition) -> None:
        rng = partition.rng(0)
        if self.settings.split == "chains":
            train, valid = chain_halves(subject.y, subject.extra["chain"], rng)
        else:
            train, valid = random_halves(len(subject.y), rng)
        # The validation half must not influence how the inputs are scaled.
        x_train, x_valid = standardise_by_training(subject.X[train], subject.X[valid])
        self.data = Split(x_train, subject.y[train], x_valid, subject.y[valid])

    def score(self, params: Params) -> float:
        """Return the validation accuracy of the regression."""
        epochs = self.settings.epochs
        return regression_accuracy(self.data, ACTIVITIES, params, epochs, self.training_rng())


def chain_halves(
    labels: NDArray[Any], chain: NDArray[Any], rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return the rows for training and for validation: about half of every class, whole chains.

    The chains of a class are dealt from the longest to the shortest, equal ones in random order.
    """
    side = np.zeros(len(labels), dtype=np.int64)  # 0 training, 1 validation
    total = np.zeros(2)
    for label in np.unique(labels):
        of_class = np.zeros(2)
        numbers, sizes = np.unique(chain[labels == label], return_counts=True)
        # Long chains first: the short ones at the end even out the sizes of the two sides.
        shuffled = rng.permutation(len(numbers))
        for i in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
            # The side with fewer rows of this class takes the chain; of equals, the smaller side.
            smaller = min((0, 1), key=lambda s: (of_class[s], total[s], s))
            side[(chain == numbers[i]) & (labels == label)] = smaller
            of_class[smaller] += sizes[i]
            total[smaller] += sizes[i]
    return np.flatnonzero(side == 0), np.flatnonzero(side == 1)
