"""Activity recognition with a phone: every subject tunes its own softmax regression.

DP-FTS-DE App. B.2.1: batch size [128, 512], L2 [1e-6, 10], learning rate [1e-6, 1]. FTS Sec. 5.2
gives [20, 60], [1e-6, 1] and [0.01, 0.1] for the same data: ``ranges = "fts"``. Half of a
subject's windows train, half validate; inputs are standardised on the training half; the score
is one minus the papers' validation error. A subject has about 170 training windows, so most
batch sizes of DP-FTS-DE's range mean full batches.

Two decisions. Windows overlap by half, so the papers' random division shows the validation half
to the training half; here whole chains of windows go to one side (``split = "random"`` is the
papers'). The number of epochs is not printed: 20, after which a good learning rate has
converged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Indices
from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Int, Space
from flwr_fbo.tasks.papers.data.generated import activity_subject
from flwr_fbo.tasks.papers.data.har import ACTIVITIES, SUBJECTS, har
from flwr_fbo.tasks.papers.data.sources import HAR, Source
from flwr_fbo.tasks.papers.data.tables import Parties
from flwr_fbo.tasks.papers.data_task import DataSettings, DataTask, random_halves
from flwr_fbo.tasks.papers.networks import Sgd, accuracy, fit, standardised
from flwr_fbo.tasks.papers.svm import Halves
from flwr_fbo.tasks.task import Params, Partition

#: Batch size, L2 and learning rate.
RANGES = {
    "dp-fts-de": ((128, 512), (1e-6, 10.0), (1e-6, 1.0)),
    "fts": ((20, 60), (1e-6, 1.0), (0.01, 0.1)),
}


@dataclass(frozen=True)
class ActivitySettings(DataSettings):
    """Settings of the activity task."""

    scale: Literal["log", "linear"] = setting("log", "scale of the ranges; the papers: linear")
    ranges: Literal["dp-fts-de", "fts"] = setting("dp-fts-de", "whose ranges are searched")
    split: Literal["chains", "random"] = setting(
        "chains", "whole chains of overlapping windows, or the papers' random halves"
    )
    epochs: int = setting(20, "passes over the training half", at_least(1))


class ActivityTask(DataTask):
    """Batch size, L2 and learning rate of a softmax regression on one of 30 subjects."""

    metric = "accuracy"
    score_range = (0.0, 1.0)
    parties = SUBJECTS
    settings: ActivitySettings
    settings_class: ClassVar[type[Settings]] = ActivitySettings
    source: ClassVar[Source | None] = HAR
    #: DP-FTS-DE Sec. 5.2; the rest of its settings, and FTS's own, are the strategies' presets.
    paper_settings: ClassVar[Mapping[str, Any]] = {"regions": 4, "clip": 22.0, "features": 100}
    paper_task_settings: ClassVar[Mapping[str, Any]] = {"scale": "linear", "split": "random"}

    @property
    def space(self) -> Space:
        """The ranges of one of the papers, on the scale that the settings say."""
        return regression_space(*RANGES[self.settings.ranges], log=self.settings.scale == "log")

    def load_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        self._divide(har(self.data_directory(partition)).of(party), partition)

    def generate_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        self._divide(activity_subject(partition.shared_rng(1), partition.rng(1)), partition)

    def _divide(self, subject: Parties, partition: Partition) -> None:
        rng = partition.rng(0)
        if self.settings.split == "chains":
            train, valid = chain_halves(subject.y, subject.extra["chain"], rng)
        else:
            train, valid = random_halves(len(subject.y), rng)
        x_train, x_valid = standardised(subject.X[train], subject.X[valid])
        self.data = Halves(x_train, subject.y[train], x_valid, subject.y[valid])
        self._training = partition

    def score(self, params: Params) -> float:
        """See :class:`DataTask`."""
        sgd = sgd_of(params, self.settings.epochs)
        return regression_accuracy(self.data, ACTIVITIES, sgd, self._training.rng(2))


def regression_space(
    batch_size: tuple[int, int], l2: tuple[float, float], rate: tuple[float, float], log: bool
) -> Space:
    """The space that activity and glasses search."""
    return Space(
        {
            "batch-size": Int(*batch_size, log),
            "l2": Float(*l2, log),
            "learning-rate": Float(*rate, log),
        }
    )


def sgd_of(params: Params, epochs: int) -> Sgd:
    """The training that parameter values stand for."""
    size, l2, rate = (params[name] for name in ("batch-size", "l2", "learning-rate"))
    assert isinstance(size, int)
    assert isinstance(l2, float)
    assert isinstance(rate, float)
    return Sgd(size, rate, l2, epochs)


def regression_accuracy(data: Halves, classes: int, sgd: Sgd, rng: np.random.Generator) -> float:
    """Train a softmax regression and score it on the validation half."""
    layers = fit(data.x_train, data.y_train, classes, (), sgd, rng)
    return accuracy(layers, data.x_valid, data.y_valid)


def chain_halves(
    labels: NDArray[Any], chain: NDArray[Any], rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Rows for training and for validation: about half of every class, in whole chains.

    Of each class the chains are taken from the longest to the shortest (equals in random
    order), each for the side that has fewer rows of the class so far, or else fewer rows.
    """
    side = np.zeros(len(labels), dtype=np.int64)
    total = np.zeros(2)
    for label in np.unique(labels):
        of_class = np.zeros(2)
        numbers, sizes = np.unique(chain[labels == label], return_counts=True)
        shuffled = rng.permutation(len(numbers))
        for i in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
            smaller = min((0, 1), key=lambda s: (of_class[s], total[s], s))
            side[(chain == numbers[i]) & (labels == label)] = smaller
            of_class[smaller] += sizes[i]
            total[smaller] += sizes[i]
    return np.flatnonzero(side == 0), np.flatnonzero(side == 1)
