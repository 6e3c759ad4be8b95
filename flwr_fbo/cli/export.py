"""The command ``flwr-fbo export``, which writes a run's evaluations to Optuna's storage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flwr_fbo.cli.common import user_errors


def export(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of the run, with its folder `agents`.")
    ],
    storage: Annotated[str, typer.Option(help="Optuna's storage, such as sqlite:///study.db.")],
    name: Annotated[
        str,
        typer.Option(help="First part of the studies' names; where unset, the directory's name."),
    ] = "",
    task: Annotated[
        str,
        typer.Option(help="The run's task, for a directory without space.json, as parties have."),
    ] = "",
) -> None:
    """Write the evaluations of a run to Optuna's storage, one study for each agent.

    A run that went on is exported into the same studies: only new evaluations are added.
    Needs flwr-fbo[optuna].

    Example: flwr-fbo export flwr-fbo-runs/spring --storage sqlite:///study.db
    """
    with user_errors():
        import optuna

        from flwr_fbo.optuna.export import ExportedStudy, export_run
        from flwr_fbo.optuna.storages import without_password
        from flwr_fbo.tasks import load

        def show(study: ExportedStudy) -> None:
            print(
                f"{study.name}: {study.trials} trials, {study.added} of them new", file=sys.stderr
            )

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        space = load(task).space if task else None
        studies = export_run(run_dir, storage, name=name or None, space=space, progress=show)
        trials, added = (sum(getattr(s, what) for s in studies) for what in ("trials", "added"))
        print(
            f"{trials} evaluations of {len(studies)} agents are in {without_password(storage)}, "
            f"{added} of them new"
        )
