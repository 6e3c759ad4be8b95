"""What the papers' tasks on data sets have in common: ranges on a log scale or a linear one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from flwr_fbo.core.settings import Settings, setting
from flwr_fbo.tasks.data_task import DataSettings, DataTask

#: Strategy settings for landmine, activity and EMNIST in DP-FTS-DE Sec. 5.2. The rest of that
#: paper's settings, and those of FTS, are in the presets of the strategies.
DP_FTS_DE_SETTINGS: Mapping[str, Any] = {"regions": 4, "clip": 22.0, "features": 100}


@dataclass(frozen=True)
class ScaleSettings(DataSettings):
    """Settings of a task whose ranges the papers search on a linear scale."""

    scale: Literal["log", "linear"] = setting("log", "scale of the ranges; the papers: linear")

    @property
    def log(self) -> bool:
        """Return whether the ranges are searched on a log scale."""
        return self.scale == "log"


class PaperTask(DataTask):
    """A task that scores a trained model between 0 and 1, in ranges that a paper prints."""

    metric = "accuracy"
    score_range = (0.0, 1.0)
    settings: ScaleSettings
    settings_class: ClassVar[type[Settings]] = ScaleSettings
    paper_task_settings: ClassVar[Mapping[str, Any]] = {"scale": "linear"}
