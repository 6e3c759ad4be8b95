"""What ``start`` returns: Flower's result, and what tuning adds to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flwr.serverapp.strategy import Result as FlowerResult

from flwr_fbo.core.space import Value
from flwr_fbo.privacy.statement import PrivacyStatement
from flwr_fbo.runs.result import Result


@dataclass
class TuningResult(FlowerResult):
    """The result of a run, as a subclass of Flower's own.

    Parameters
    ----------
    recommended
        One setting for all agents, computed from what was released; None without any.
    privacy
        What the run guarantees; printed, it is one line of text.
    rounds
        How many rounds there were after the initial points.
    run_dir
        The directory with everything that the run wrote.
    details
        The whole content of ``result.json``.

    Notes
    -----
    ``train_metrics_clientapp`` of Flower's result holds for each round what the server knows of
    it: how many agents were asked and replied, and epsilon. Scores stay with the agents.
    """

    recommended: dict[str, Value] | None = None
    privacy: PrivacyStatement | None = None
    rounds: int = 0
    run_dir: Path | None = None
    details: Result | None = None
