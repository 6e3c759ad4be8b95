"""Landmine detection: every field tunes its own support vector machine.

FTS Sec. 5.2 and App. D.2.2, DP-FTS-DE App. B.2.1, Fed-PNE App. E.2: half of a field's
locations train, half validate, and the score is the AUC. The RBF parameter lies in [0.01, 10]
and the penalty in [1e-4, 10]; the papers search both on a linear scale. On a log scale the same
number of evaluations finds better machines, so that is the default. Two decisions where the
papers are silent: the halves are stratified (a field has as few as 13 mines), the same in every
run, and the AUC comes from the decision function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.model_selection import train_test_split

from flwr_fbo.core.settings import Settings, at_least, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.papers.data.generated import landmine_field
from flwr_fbo.tasks.papers.data.landmine import FIELDS, landmine
from flwr_fbo.tasks.papers.data.sources import LANDMINE, Source
from flwr_fbo.tasks.papers.data_task import DataSettings, DataTask
from flwr_fbo.tasks.papers.svm import Halves, svm_auc
from flwr_fbo.tasks.task import Params, Partition, Seeks


@dataclass(frozen=True)
class LandmineSettings(DataSettings):
    """Settings of the landmine task."""

    scale: Literal["log", "linear"] = setting("log", "scale of C and gamma; the papers: linear")
    split_seed: int = setting(0, "which half of a field is for validation", at_least(0))


class LandmineTask(DataTask):
    """C and gamma of an SVM on one of 29 fields."""

    metric = "auc"
    score_range = (0.0, 1.0)
    parties = FIELDS
    default_agents = FIELDS
    settings: LandmineSettings
    settings_class: ClassVar[type[Settings]] = LandmineSettings
    source: ClassVar[Source | None] = LANDMINE
    #: DP-FTS-DE Sec. 5.2; the rest of its settings, and FTS's own, are the strategies' presets.
    paper_settings: ClassVar[Mapping[str, Any]] = {"regions": 4, "clip": 22.0, "features": 100}
    paper_task_settings: ClassVar[Mapping[str, Any]] = {"scale": "linear"}

    @property
    def space(self) -> Space:
        """The papers' ranges, on the scale that the settings say."""
        log = self.settings.scale == "log"
        return Space({"C": Float(1e-4, 10.0, log), "gamma": Float(0.01, 10.0, log)})

    def load_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        field = landmine(self.data_directory(partition)).of(party)
        self._divide(field.X, field.y, partition)

    def generate_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        X, y = landmine_field(party, partition.shared_rng(1), partition.rng(1))
        self._divide(X, y, partition)

    def _divide(self, X: Any, y: Any, partition: Partition) -> None:
        # The split is part of the problem, so it does not follow the run's seed. Agents beyond
        # the 29 fields hold another split of a field.
        seed = self.settings.split_seed + partition.index // FIELDS
        train, valid = train_test_split(
            np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed
        )
        self.data = Halves(X[train], y[train], X[valid], y[valid])

    def score(self, params: Params) -> float:
        """See :class:`DataTask`."""
        return svm_auc(self.data, params)


class LandmineGlobalTask(LandmineTask):
    """One C and gamma for all 29 fields: what counts is the mean of their AUCs (Fed-PNE)."""

    seeks: ClassVar[Seeks] = "global"

    @property
    def name(self) -> str:
        """See :class:`Task`."""
        return super().name.replace("landmineglobal", "landmine-global")
