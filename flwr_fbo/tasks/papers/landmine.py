"""Landmine detection: every field tunes its own support vector machine.

FTS Sec. 5.2 and App. D.2.2, DP-FTS-DE App. B.2.1, Fed-PNE App. E.2: half of a field's locations
are for training, half for validation, and the score is the AUC. The RBF parameter lies in
[0.01, 10] and the penalty in [1e-4, 10]. The papers search both on a linear scale. On a log scale
the same number of evaluations finds better machines, so the log scale is the default.

Two decisions where the papers are silent. The halves are stratified, because a field has as few
as 13 mines, and they are the same in every run. The AUC comes from the decision function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import train_test_split

from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.data_task import Split
from flwr_fbo.tasks.papers.data.generated import landmine_field
from flwr_fbo.tasks.papers.data.landmine import FIELDS, load_landmine
from flwr_fbo.tasks.papers.data.sources import LANDMINE, Source
from flwr_fbo.tasks.papers.paper_task import DP_FTS_DE_SETTINGS, PaperTask, ScaleSettings
from flwr_fbo.tasks.papers.svm import svm_auc
from flwr_fbo.tasks.task import Params, Partition, Seeks


@dataclass(frozen=True)
class LandmineSettings(ScaleSettings):
    """Settings of the landmine task."""

    split_seed: int = setting(
        0, "seed of the division of a field into training and validation half", at_least(0)
    )


class LandmineTask(PaperTask):
    """C and gamma of an SVM on one of 29 fields."""

    metric = "auc"
    parties = FIELDS
    default_agents = FIELDS
    settings: LandmineSettings
    settings_class: ClassVar[type[Settings]] = LandmineSettings
    source: ClassVar[Source | None] = LANDMINE
    paper_settings: ClassVar[Mapping[str, Any]] = DP_FTS_DE_SETTINGS

    @property
    def space(self) -> Space:
        """Return the papers' ranges, on the scale of the settings."""
        log = self.settings.log
        return Space({"C": Float(1e-4, 10.0, log), "gamma": Float(0.01, 10.0, log)})

    def load_share(self, party: int, partition: Partition) -> None:
        """Load the locations of one field."""
        field = load_landmine(self.data_directory(partition)).of(party)
        self._divide(field.X, field.y, partition)

    def generate_share(self, party: int, partition: Partition) -> None:
        """Generate the locations of one field."""
        X, y = landmine_field(party, partition.shared_rng(1), partition.rng(1))
        self._divide(X, y, partition)

    def _divide(self, X: Any, y: Any, partition: Partition) -> None:
        # The split is part of the problem, so it does not follow the run's seed. Agents beyond
        # the 29 fields hold another split of a field.
        seed = self.settings.split_seed + partition.index // FIELDS
        train, valid = train_test_split(
            np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed
        )
        self.data = Split(X[train], y[train], X[valid], y[valid])

    def score(self, params: Params) -> float:
        """Return the validation AUC of the SVM."""
        return svm_auc(self.data, params)


class LandmineGlobalTask(LandmineTask):
    """One C and gamma for all 29 fields, by the mean of their AUCs (Fed-PNE)."""

    label = "landmine-global"
    seeks: ClassVar[Seeks] = "global"
