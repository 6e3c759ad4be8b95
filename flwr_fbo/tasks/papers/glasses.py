"""Eating or not, from Google glasses: every participant tunes its own regression.

FTS Sec. 5.2 and App. D.2.2: batch size [20, 60], L2 [1e-6, 1], learning rate [0.01, 0.1]; 100
random windows validate, the others train; inputs are standardised; the score is one minus the
paper's validation error. The number of epochs is not printed: 5, about 200 to 450 steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.tasks.papers.activity import RANGES, regression_accuracy, regression_space, sgd_of
from flwr_fbo.tasks.papers.data.generated import glasses_participant
from flwr_fbo.tasks.papers.data.gleam import PARTICIPANTS, gleam
from flwr_fbo.tasks.papers.data.sources import GLEAM, Source
from flwr_fbo.tasks.papers.data_task import DataSettings, DataTask
from flwr_fbo.tasks.papers.networks import standardised
from flwr_fbo.tasks.papers.svm import Halves
from flwr_fbo.tasks.task import Params, Partition

VALIDATION = 100  # windows


@dataclass(frozen=True)
class GlassesSettings(DataSettings):
    """Settings of the glasses task."""

    scale: Literal["log", "linear"] = setting("log", "scale of the ranges; the paper: linear")
    epochs: int = setting(5, "passes over the training part", at_least(1))


class GlassesTask(DataTask):
    """Batch size, L2 and learning rate of a regression on one of 38 participants."""

    metric = "accuracy"
    score_range = (0.0, 1.0)
    parties = PARTICIPANTS
    default_agents = PARTICIPANTS
    settings: GlassesSettings
    settings_class: ClassVar[type[Settings]] = GlassesSettings
    source: ClassVar[Source | None] = GLEAM
    paper_task_settings: ClassVar[Mapping[str, Any]] = {"scale": "linear"}

    @property
    def space(self) -> Space:
        """The paper's ranges, on the scale that the settings say."""
        return regression_space(*RANGES["fts"], log=self.settings.scale == "log")

    def load_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        table = gleam(self.data_directory(partition)).of(party)
        self._divide(table.X, table.y, partition)

    def generate_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        X, y = glasses_participant(partition.shared_rng(1), partition.rng(1))
        self._divide(X, y, partition)

    def _divide(self, X: NDArray[Any], y: NDArray[Any], partition: Partition) -> None:
        shuffled = partition.rng(0).permutation(len(y))
        valid, train = shuffled[:VALIDATION], shuffled[VALIDATION:]
        x_train, x_valid = standardised(X[train], X[valid])
        self.data = Halves(x_train, y[train], x_valid, y[valid])
        self._training = partition

    def score(self, params: Params) -> float:
        """See :class:`DataTask`."""
        sgd = sgd_of(params, self.settings.epochs)
        return regression_accuracy(self.data, 2, sgd, self._training.rng(2))
