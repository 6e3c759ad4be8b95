"""The command line: ``flwr-fbo run TASK`` and its companions."""

from __future__ import annotations

import json
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_fbo.cli.common import (
    FAILED,
    INTERRUPTED,
    assignments,
    stdout_kept,
    user_errors,
)
from flwr_fbo.cli.lists import data, strategies, tasks
from flwr_fbo.cli.privacy import audit, privacy
from flwr_fbo.cli.reproduce import reproduce

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class EngineName(StrEnum):
    """How a federation is simulated."""

    RAY = "ray"
    INLINE = "inline"


def _version(asked: bool) -> None:
    if asked:
        from flwr_fbo import __version__

        print(f"flwr-fbo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show it and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Federated Bayesian optimisation with real privacy, on Flower.

    Begin with: flwr-fbo run digits --agents 30 --epsilon 5

    Exit codes: 0 when what was asked was done, 1 when a run failed or is not
    complete, 2 for a mistake in the command, 130 after Ctrl-C.
    """


@app.command()
def run(
    task: Annotated[str, typer.Argument(help="A built-in task, or module:attribute of yours.")],
    strategy: Annotated[str, typer.Option(help="How agents work together.")] = "dp-fts-de",
    agents: Annotated[int, typer.Option(help="How many; 0 is as many as the data hold.")] = 0,
    rounds: Annotated[int, typer.Option(help="Evaluations after the initial points.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of everything but privacy noise.")] = 0,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget of the whole run; without it, none.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the task's data set lies, as downloaded.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Evaluations, for strategies that count them so.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, as key=value; may be repeated."),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="Flower's simulation engine, or this process.")
    ] = EngineName.RAY,
    compare: Annotated[
        str, typer.Option(help="Strategies to compare with at equal evaluations, comma-separated.")
    ] = "",
    run_dir: Annotated[
        Path | None, typer.Option(help="Directory of the run; a new one where unset.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate a federation that tunes TASK, and say what it gained.

    TASK is one that `flwr-fbo tasks` lists, or module:attribute of your own, importable from
    this directory. `flwr-fbo strategies` lists what --set takes.

    Example: flwr-fbo run digits --agents 30 --epsilon 5 --compare local-ts,random
    """
    given: dict[str, Any] = {"task": task, "strategy": strategy, "agents": agents}
    given |= {"rounds": rounds, "seed": seed}
    if epsilon is not None:
        given["epsilon"] = epsilon
    if budget is not None:
        given["budget"] = budget
    if data_dir is not None:
        given["data-dir"] = str(data_dir)
    with user_errors(), stdout_kept(as_json) as stdout:
        from flwr_fbo.simulation.simulate import simulate_run

        given |= assignments(settings or [])
        others = [name for name in compare.split(",") if name]
        result, text = simulate_run(given, engine.value, run_dir, others, sys.stderr)
        print(json.dumps(result) if as_json else text, file=stdout, flush=True)
        if not result["complete"]:
            raise typer.Exit(_exit_code(result["stopped_early"]))


@app.command()
def resume(
    run_dir: Annotated[Path, typer.Argument(help="Directory of the run.")],
    rounds: Annotated[
        int | None, typer.Option(help="Go on to so many; a private run releases no more for it.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="patience, target-score, max-evaluations, max-seconds (`none`: without), "
            "timeout or data-dir, as key=value; may be repeated.",
        ),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="Flower's simulation engine, or this process.")
    ] = EngineName.RAY,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Go on with a run that was interrupted: nothing that was paid for is paid for again.

    RUN_DIR is the directory of the run, as the run named it at its end. --rounds and --set also
    let a run go on that is over.

    Example: flwr-fbo resume flwr-fbo-runs/spring --rounds 60 --set patience=none
    """
    with user_errors(), stdout_kept(as_json) as stdout:
        from flwr_fbo.runs.summary import summary
        from flwr_fbo.simulation.simulate import resume as resume_run

        given = assignments(settings or [])
        changes: dict[str, Any] = {} if rounds is None else {"rounds": rounds}
        changes |= {k.replace("-", "_"): None if v == "none" else v for k, v in given.items()}
        result = resume_run(run_dir, engine=engine.value, progress=sys.stderr, **changes)
        print(result.to_json() if as_json else summary(result), file=stdout, flush=True)
        if not result.complete:
            raise typer.Exit(_exit_code(result.stopped_early))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs, to compare if several.")],
    out: Annotated[
        Path | None, typer.Option(help="The file; report.html in the first run's directory.")
    ] = None,
) -> None:
    """Write what runs did as one HTML file that needs nothing else to be read.

    RUNS are directories of runs; several are compared.

    Example: flwr-fbo report flwr-fbo-runs/* --out compared.html
    """
    with user_errors():
        from flwr_fbo.report import write_report

        print(write_report(runs, out))


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the app and of its directory.")],
) -> None:
    """Write a Flower app around a task of your own; `flwr run .` in it works at once.

    NAME is that of the app and of its directory, which is made here.

    Example: flwr-fbo new tuning
    """
    with user_errors():
        from flwr_fbo.cli.new_app import new_app

        root = new_app(name, Path())
        print(f"{root} is made. Next:\n\n    cd {root}\n    flwr run . --stream\n")


def _exit_code(stopped_early: str) -> int:
    return INTERRUPTED if stopped_early == "interrupted" else FAILED


for command in (privacy, audit, tasks, data, strategies):
    app.command()(command)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(reproduce)


def main() -> None:
    """Entry point of the ``flwr-fbo`` command."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    if "" not in sys.path:  # a task of one's own lies where one is, as for `python -m`
        sys.path.insert(0, "")
    try:
        app()
    except SystemExit as done:
        if done.code == INTERRUPTED:  # a further Ctrl-C would kill what is on its way out
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
