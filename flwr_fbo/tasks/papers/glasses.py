"""Eating or not, from Google Glass: every participant tunes its own regression.

FTS Sec. 5.2 and App. D.2.2 search batch sizes in [20, 60], L2 in [1e-6, 1] and learning rates in
[0.01, 0.1]. 100 random windows are for validation, the others for training. Inputs are
standardised, and the score is one minus the paper's validation error. The paper does not print
the number of epochs: here 5, which is about 200 to 450 steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.tasks.data_task import Split
from flwr_fbo.tasks.papers.data.generated import glasses_participant
from flwr_fbo.tasks.papers.data.gleam import PARTICIPANTS, load_gleam
from flwr_fbo.tasks.papers.data.sources import GLEAM, Source
from flwr_fbo.tasks.papers.networks import standardise_by_training
from flwr_fbo.tasks.papers.paper_task import PaperTask, ScaleSettings
from flwr_fbo.tasks.papers.regression import regression_accuracy, regression_space
from flwr_fbo.tasks.task import Params, Partition

VALIDATION = 100  # windows


@dataclass(frozen=True)
class GlassesSettings(ScaleSettings):
    """Settings of the glasses task."""

    epochs: int = setting(5, "passes over the training part", at_least(1))


class GlassesTask(PaperTask):
    """Batch size, L2 and learning rate of a regression on one of 38 participants."""

    parties = PARTICIPANTS
    default_agents = PARTICIPANTS
    settings: GlassesSettings
    settings_class: ClassVar[type[Settings]] = GlassesSettings
    source: ClassVar[Source | None] = GLEAM

    @property
    def space(self) -> Space:
        """Return the paper's ranges, on the scale of the settings."""
        return regression_space("fts", self.settings.log)

    def load_share(self, party: int, partition: Partition) -> None:
        """Load the windows of one participant."""
        table = load_gleam(self.data_directory(partition)).of(party)
        self._divide(table.X, table.y, partition)

    def generate_share(self, party: int, partition: Partition) -> None:
        """Generate the windows of one participant."""
        X, y = glasses_participant(partition.shared_rng(1), partition.rng(1))
        self._divide(X, y, partition)

    def _divide(self, X: NDArray[Any], y: NDArray[Any], partition: Partition) -> None:
        # Windows do not overlap, so a random division leaks no samples.
        shuffled = partition.rng(0).permutation(len(y))
        valid, train = shuffled[:VALIDATION], shuffled[VALIDATION:]
        x_train, x_valid = standardise_by_training(X[train], X[valid])
        self.data = Split(x_train, y[train], x_valid, y[valid])

    def score(self, params: Params) -> float:
        """Return the validation accuracy of the regression."""
        epochs = self.settings.epochs
        # Two classes: eating or not.
        return regression_accuracy(self.data, 2, params, epochs, self.training_rng())
