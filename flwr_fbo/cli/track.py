"""The command ``flwr-fbo track``, which logs a directory of a run to a tracker."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flwr_fbo.cli.common import user_errors


class TrackerName(StrEnum):
    """The trackers."""

    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    MLFLOW = "mlflow"


def track(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of the run, on this machine.")
    ],
    to: Annotated[TrackerName, typer.Option(help="The tracker.")],
) -> None:
    """Log the run in a directory to a tracker: the rounds, and each agent's evaluations.

    On the machine of the server, the directory holds the rounds only. On the machine of a party,
    it holds the party's own evaluations only. A simulation has both.

    Example: flwr-fbo track ~/.flwr-fbo/runs/spring --to tensorboard
    """
    with user_errors():
        from flwr_fbo.runs.trackers import track_directory

        parts = track_directory(run_dir, to.value)
        where = {
            TrackerName.TENSORBOARD: f": tensorboard --logdir {run_dir}/tensorboard",
            TrackerName.WANDB: f" in {run_dir}/wandb, unless WANDB_MODE is online",
            TrackerName.MLFLOW: ", where MLFLOW_TRACKING_URI says",
        }
        print(f"logged {', '.join(parts)}{where[to]}")
