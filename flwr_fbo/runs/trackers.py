"""Callbacks that log rounds to a tracker: TensorBoard, Weights & Biases, MLflow.

Pass a tracker to ``simulate(..., callbacks=[...])`` or to ``server_app(..., callbacks=[...])``. A
tracker logs the server's view of a round: replies, lost replies, epsilon, seconds. Scores belong to
the agents. A tracker logs scores only if ``journals`` is the folder of the agents' journals
(``RUN/agents``), which only a simulation has.
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
    """A callback that turns rounds into named numbers, which subclasses store.

    Parameters
    ----------
    journals
        The folder of the agents' journals; without this folder, no scores are logged.
    """

    def __init__(self, journals: Path | str | None = None) -> None:
        self._journals = None if journals is None else Path(journals)

    @abstractmethod
    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Store the numbers of a round."""

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """Log the numbers of a closed round."""
        numbers: dict[str, float] = {
            "replies": report.replied,
            "lost": report.lost,
            "seconds": report.seconds,
        }
        if report.privacy is not None:
            numbers["epsilon"] = report.privacy.spent or 0.0
        self.log(numbers | self._scores(run), report.round)

    def _scores(self, run: RunView) -> dict[str, float]:
        """Return numbers about the agents' scores; none without a folder of journals."""
        if self._journals is None:
            return {}
        agents = run.parameters.agents
        # A ServerApp under `flwr run` has no history, but its simulation has journals.
        history = run.history or RunHistory(self._journals, agents).refresh()
        numbers = {"evaluations": history.made / agents}
        if history.best_scores:
            low, median, high = np.quantile(history.best_scores, [0.25, 0.5, 0.75])
            numbers |= {"best": float(np.mean(history.best_scores)), "best/median": float(median)}
            numbers |= {"best/quarter": float(low), "best/three-quarters": float(high)}
        return numbers


class TensorBoard(Tracker):
    """A tracker that writes event files for TensorBoard; needs ``flwr-fbo[tensorboard]``.

    Parameters
    ----------
    folder
        The folder of the event files.
    journals
        The folder of the agents' journals; without this folder, no scores are logged.
    """

    def __init__(self, folder: Path | str, journals: Path | str | None = None) -> None:
        super().__init__(journals)
        self._writer = _package("tensorboardX", "tensorboard").SummaryWriter(str(folder))

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Write the numbers of a round to the event file."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def on_end(self, run: RunView) -> None:
        """Close the event file."""
        self._writer.close()


class WandB(Tracker):
    """A tracker that logs to Weights & Biases; needs ``flwr-fbo[wandb]``.

    Parameters
    ----------
    journals
        The folder of the agents' journals; without this folder, no scores are logged.
    mode
        The mode of ``wandb.init``. The default, ``"offline"``, keeps the run on this machine.
    **arguments
        Other arguments of ``wandb.init``.
    """

    def __init__(
        self, journals: Path | str | None = None, mode: str = "offline", **arguments: Any
    ) -> None:
        super().__init__(journals)
        self._mode, self._arguments = mode, arguments
        self._wandb = _package("wandb", "wandb")
        self._run: Any = None

    def on_start(self, run: RunView) -> None:
        """Start a run of Weights & Biases with the settings of the method."""
        config = run.settings.to_mapping()
        self._run = self._wandb.init(mode=self._mode, config=config, **self._arguments)

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Log the numbers of a round."""
        self._run.log(dict(numbers), step=round)

    def on_end(self, run: RunView) -> None:
        """Finish the run of Weights & Biases."""
        self._run.finish()


class MLflow(Tracker):
    """A tracker that logs to MLflow; needs ``flwr-fbo[mlflow]``.

    MLflow's own setting ``MLFLOW_TRACKING_URI`` names the place of the run; the default is
    ``mlflow.db`` in the current directory.

    Parameters
    ----------
    journals
        The folder of the agents' journals; without this folder, no scores are logged.
    **arguments
        Arguments of ``mlflow.start_run``.
    """

    def __init__(self, journals: Path | str | None = None, **arguments: Any) -> None:
        super().__init__(journals)
        self._arguments = arguments
        self._mlflow = _package("mlflow", "mlflow")

    def on_start(self, run: RunView) -> None:
        """Start a run of MLflow with the settings of the method."""
        self._mlflow.start_run(**self._arguments)
        self._mlflow.log_params(run.settings.to_mapping())

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Log the numbers of a round."""
        self._mlflow.log_metrics(dict(numbers), step=round)

    def on_end(self, run: RunView) -> None:
        """End the run of MLflow."""
        self._mlflow.end_run()


def _package(name: str, extra: str) -> Any:
    """Return the package of a tracker; raise SettingsError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingsError(
            f"a tracker for {name} needs the package {name}, which cannot be imported ({error}); "
            f"install flwr-fbo[{extra}]"
        ) from error
