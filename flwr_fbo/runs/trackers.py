"""Rounds in the tracker that you use already: TensorBoard, Weights & Biases, MLflow.

A tracker is a :class:`flwr_fbo.Callback`; give it to ``simulate(..., callbacks=[...])`` or to
``server_app(..., callbacks=[...])``. It logs what the server knows of a round: replies, losses,
epsilon, seconds. Scores are the agents' own: they are logged only where ``journals`` names the
folder of their journals (``RUN/agents``), which only a simulator has.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.callbacks import Callback, RoundReport, RunView
from flwr_fbo.runs.history import RunHistory


class Tracker(Callback):
    """Turns rounds into named numbers; subclasses say where these go."""

    def __init__(self, journals: Path | str | None = None) -> None:
        self._journals = None if journals is None else Path(journals)

    @abstractmethod
    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Store the numbers of a round."""

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """See :class:`flwr_fbo.Callback`."""
        numbers: dict[str, float] = {
            "replies": report.replied,
            "lost": report.lost,
            "seconds": report.seconds,
        }
        if report.privacy is not None:
            numbers["epsilon"] = report.privacy.spent or 0.0
        self.log(numbers | self._scores(run), report.round)

    def _scores(self, run: RunView) -> dict[str, float]:
        """Return the agents' scores as numbers; nothing where journals were not named."""
        if self._journals is None:
            return {}
        agents = run.parameters.agents
        history = run.history or RunHistory(self._journals, agents).refresh()
        numbers = {"evaluations": history.made / agents}
        if history.best_scores:
            low, median, high = np.quantile(history.best_scores, [0.25, 0.5, 0.75])
            numbers |= {"best": float(np.mean(history.best_scores)), "best/median": float(median)}
            numbers |= {"best/quarter": float(low), "best/three-quarters": float(high)}
        return numbers


class TensorBoard(Tracker):
    """Event files for TensorBoard, below ``folder``; needs ``flwr-fbo[tensorboard]``."""

    def __init__(self, folder: Path | str, journals: Path | str | None = None) -> None:
        super().__init__(journals)
        self._writer = _package("tensorboardX", "tensorboard").SummaryWriter(str(folder))

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """See :class:`Tracker`."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def on_end(self, run: RunView) -> None:
        """See :class:`flwr_fbo.Callback`."""
        self._writer.close()


class WandB(Tracker):
    """A run of Weights & Biases; needs ``flwr-fbo[wandb]``.

    It is kept on this machine (``mode="offline"``) unless another mode is asked for. The other
    arguments are those of ``wandb.init``.
    """

    def __init__(
        self, journals: Path | str | None = None, mode: str = "offline", **arguments: Any
    ) -> None:
        super().__init__(journals)
        self._mode, self._arguments = mode, arguments
        self._wandb = _package("wandb", "wandb")
        self._run: Any = None

    def on_start(self, run: RunView) -> None:
        """See :class:`flwr_fbo.Callback`."""
        config = run.settings.to_mapping()
        self._run = self._wandb.init(mode=self._mode, config=config, **self._arguments)

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """See :class:`Tracker`."""
        self._run.log(dict(numbers), step=round)

    def on_end(self, run: RunView) -> None:
        """See :class:`flwr_fbo.Callback`."""
        self._run.finish()


class MLflow(Tracker):
    """A run of MLflow; needs ``flwr-fbo[mlflow]``.

    Where it is kept is MLflow's own setting, ``MLFLOW_TRACKING_URI``; without it, ``mlflow.db``
    in this directory. The arguments are those of ``mlflow.start_run``.
    """

    def __init__(self, journals: Path | str | None = None, **arguments: Any) -> None:
        super().__init__(journals)
        self._arguments = arguments
        self._mlflow = _package("mlflow", "mlflow")

    def on_start(self, run: RunView) -> None:
        """See :class:`flwr_fbo.Callback`."""
        self._mlflow.start_run(**self._arguments)
        self._mlflow.log_params(run.settings.to_mapping())

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """See :class:`Tracker`."""
        self._mlflow.log_metrics(dict(numbers), step=round)

    def on_end(self, run: RunView) -> None:
        """See :class:`flwr_fbo.Callback`."""
        self._mlflow.end_run()


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingsError(
            f"this tracker needs {name}; install flwr-fbo[{extra}] ({error})"
        ) from error
