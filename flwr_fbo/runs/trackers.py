"""Callbacks that log rounds to a tracker: TensorBoard, Weights & Biases, MLflow.

Pass a tracker to ``simulate(..., callbacks=[...])`` or to ``server_app(..., callbacks=[...])``, or
name it on the command line (``flwr-fbo run TASK --track tensorboard``). A tracker logs the server's
view of a round: replies, lost replies, epsilon, seconds. Scores belong to the agents. A tracker
logs scores only if ``journals`` is the folder of the agents' journals (``RUN/agents``), which only
a simulation has.

:func:`track_directory` logs what a directory of a run holds, on the machine of the server or of a
party. Each side has only its own files there, and so logs only what it may see.
"""

from __future__ import annotations

import importlib
import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.callbacks import Callback, RoundReport, RunView
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.history import RunHistory, cost_in_steps, histories_in

#: The names of the trackers.
TRACKERS = ("tensorboard", "wandb", "mlflow")


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

    def begin(self, config: Mapping[str, Any]) -> None:
        """Begin to log a run with these settings."""

    def finish(self) -> None:
        """End the log."""

    def on_start(self, run: RunView) -> None:
        """Begin to log a run with the settings of the method."""
        self.begin(run.settings.to_mapping())

    def on_end(self, run: RunView) -> None:
        """End the log."""
        self.finish()

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
        return numbers | cost_in_steps(history.evaluations)


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

    def finish(self) -> None:
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

    def begin(self, config: Mapping[str, Any]) -> None:
        """Start a run of Weights & Biases with these settings."""
        self._run = self._wandb.init(mode=self._mode, config=dict(config), **self._arguments)

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Log the numbers of a round."""
        self._run.log(dict(numbers), step=round)

    def finish(self) -> None:
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

    def begin(self, config: Mapping[str, Any]) -> None:
        """Start a run of MLflow with these settings."""
        self._mlflow.start_run(**self._arguments)
        self._mlflow.log_params(dict(config))

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Log the numbers of a round."""
        self._mlflow.log_metrics(dict(numbers), step=round)

    def finish(self) -> None:
        """End the run of MLflow."""
        self._mlflow.end_run()


def tracker_named(
    name: str, run_dir: Path, journals: Path | None = None, part: str = ""
) -> Tracker:
    """Return the tracker of a name, which keeps its files in the directory of the run.

    Parameters
    ----------
    name
        ``tensorboard``, ``wandb`` or ``mlflow``.
    run_dir
        The directory of the run. TensorBoard's events are in its folder ``tensorboard``, and the
        files of Weights & Biases in its folder ``wandb``. MLflow has a place of its own.
    journals
        The folder of the agents' journals; without this folder, no scores are logged.
    part
        The part of the run that is logged, such as ``agent-0003``.
    """
    called = f"{run_dir.absolute().name}-{part}" if part else run_dir.absolute().name
    if name == "tensorboard":
        return TensorBoard(run_dir / "tensorboard" / (part or "server"), journals)
    if name == "wandb":
        mode = os.environ.get("WANDB_MODE", "offline")
        return WandB(journals, mode, dir=str(run_dir), name=called, group=run_dir.absolute().name)
    if name == "mlflow":
        return MLflow(journals, run_name=called)
    raise SettingsError(f"a tracker must be {', '.join(TRACKERS)}, but got {name!r}")


def track_directory(run_dir: Path | str, name: str) -> list[str]:
    """Log what the directory of a run holds, and return the names of the parts that were logged.

    Parameters
    ----------
    run_dir
        The directory. The part ``server`` is the table of rounds, which the machine of the server
        has. Each journal is a part of its own: a party has its own, and a simulation all.
    name
        ``tensorboard``, ``wandb`` or ``mlflow``.
    """
    directory = RunDirectory(run_dir)
    # Who holds rounds.csv is the server, whose directory holds config.json.
    known = directory.holds_a_run
    rounds = RoundTable.read(directory.rounds, directory.identity) if known else []
    journals = histories_in(directory.agents)
    if not rounds and not journals:
        raise SettingsError(
            "`RUN` must hold rounds.csv or journals in a folder `agents`, "
            f"but {directory.root} holds neither"
        )
    config = directory.read_json("config.json") if known else {}
    parts = {"server": list(map(_round_numbers, rounds))} if rounds else {}
    parts |= {name: _evaluation_numbers(made) for name, made in journals.items()}
    for part, rows in parts.items():
        tracker = tracker_named(name, directory.root, part=part)
        tracker.begin({k: v for k, v in config.items() if v != ""})
        for step, numbers in rows:
            tracker.log(numbers, step)
        tracker.finish()
    return list(parts)


def _round_numbers(row: Mapping[str, str]) -> tuple[int, dict[str, float]]:
    """Return a round and its numbers, as :meth:`Tracker.on_round` logs them."""
    lost = sum(int(row[name]) for name in ("under-way", "declined", "missing", "refused"))
    numbers: dict[str, float] = {"replies": int(row["replied"]), "lost": lost}
    numbers["seconds"] = float(row["seconds"])
    if row["epsilon"]:
        numbers["epsilon"] = float(row["epsilon"])
    return int(row["round"]), numbers


def _evaluation_numbers(history: Sequence[Evaluation]) -> list[tuple[int, dict[str, float]]]:
    """Return the number of each evaluation of an agent, and what it showed."""
    rows, best = [], -math.inf
    for number, made in enumerate(history):
        numbers = {"seconds": float(made.seconds), "failed": float(made.failed)}
        if made.reports:
            numbers |= {"steps": float(made.steps), "pruned": float(made.pruned)}
        if made.score is not None:
            numbers["score"] = made.score
        if made.score is not None and made.finished:  # what was stopped is never the best
            best = max(best, made.score)
        if best > -math.inf:
            numbers["best"] = best
        rows.append((number, numbers))
    return rows


def _package(name: str, extra: str) -> Any:
    """Return the package of a tracker; raise SettingsError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingsError(
            f"a tracker for {name} needs the package {name}, which cannot be imported ({error}); "
            f"install flwr-fbo[{extra}]"
        ) from error
