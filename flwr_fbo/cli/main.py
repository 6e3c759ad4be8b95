"""The command ``flwr-fbo``: it runs, resumes and reports, and joins the other commands."""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_fbo.cli.cite import cite
from flwr_fbo.cli.common import (
    FAILED,
    INTERRUPTED,
    assignments,
    baselines,
    clean_stdout,
    terminal_columns,
    user_errors,
)
from flwr_fbo.cli.doctor import doctor
from flwr_fbo.cli.export import export
from flwr_fbo.cli.lists import data, strategies, tasks
from flwr_fbo.cli.privacy import audit, privacy
from flwr_fbo.cli.reproduce import reproduce
from flwr_fbo.cli.track import TrackerName, track

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class EngineName(StrEnum):
    """The engines of a simulation."""

    AUTO = "auto"
    INLINE = "inline"
    PROCESSES = "processes"
    RAY = "ray"


#: What the option ``--engine`` says of the engines.
ENGINE_HELP = (
    "inline: this process asks the agents one after another. processes: a pool of processes on all "
    "processors asks them. auto: inline, and processes once evaluations turn out to be slow. ray: "
    "Flower's simulation engine."
)


def _version(asked: bool) -> None:
    """Print the version and exit, if the option asks for the version."""
    if asked:
        from flwr_fbo import __version__

        print(f"flwr-fbo {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Federated Bayesian optimisation with differential privacy, on Flower.

    Begin with: flwr-fbo run digits --agents 30 --epsilon 5 --compare alone,random

    In Flower's words, an agent is a ClientApp on a SuperNode, and a strategy is a
    Strategy of the ServerApp. In Optuna's words, an evaluation is a trial, an agent's
    evaluations are a study with the direction maximize, and the parameters are a search
    space.

    Exit codes: 0 after success, 1 when a run or a check failed, 2 for a mistake in the
    command, 130 after Ctrl-C.
    """


def run(
    task: Annotated[
        str, typer.Argument(help="A built-in task, or module:attribute of a task of your own.")
    ],
    strategy: Annotated[
        str, typer.Option(help="A strategy that `flwr-fbo strategies` lists.")
    ] = "dp-fts-de",
    agents: Annotated[
        int,
        typer.Option(
            help="Number of agents (Flower: SuperNodes); 0 is as many as the data have parties."
        ),
    ] = 0,
    rounds: Annotated[
        int,
        typer.Option(
            help="Evaluations (Optuna: trials) that each agent makes after its initial points."
        ),
    ] = 20,
    seed: Annotated[int, typer.Option(help="Seed of everything but privacy noise.")] = 0,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Privacy budget: epsilon of the whole run; where unset, not private."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory with the task's data set, as downloaded.")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(help="Number of evaluations, for strategies such as fed-pne and ldp-ata."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, as key=value; may be repeated."),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help=ENGINE_HELP)] = EngineName.AUTO,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help="Baselines: names, comma-separated, such as alone,tpe,random; or one name with "
            'settings, such as "dp-fts-de epsilon=2"; may be repeated. alone is the same agent '
            "without the others, tpe is Optuna's. Each makes as many evaluations as the run."
        ),
    ] = None,
    track: Annotated[
        TrackerName | None, typer.Option(help="Tracker that rounds and scores are logged to.")
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of the run; where unset, a new one below flwr-fbo-runs."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Simulate a federation that tunes TASK, and print scores, gains and privacy.

    TASK is one that `flwr-fbo tasks` lists, or module:attribute of your own, importable from
    this directory. `flwr-fbo strategies NAME` lists the settings that --set takes.

    Example: flwr-fbo run digits --agents 30 --epsilon 5 --compare alone,random
    """
    # An option that was not given is left out, so that a preset or the method's default applies.
    given: dict[str, Any] = {"task": task, "strategy": strategy, "agents": agents}
    given |= {"rounds": rounds, "seed": seed}
    if epsilon is not None:
        given["epsilon"] = epsilon
    if budget is not None:
        given["budget"] = budget
    if data_dir is not None:
        given["data-dir"] = str(data_dir)
    if track is not None:
        given["track"] = track.value
    with user_errors(), clean_stdout(as_json) as stdout:
        # Imported here, so that `--help` and mistakes need not wait for Flower.
        from flwr_fbo.simulation.simulate import simulate_run

        given |= assignments(settings or [])
        others = baselines(compare or [])
        columns = terminal_columns(stdout)
        result, text = simulate_run(given, engine.value, run_dir, others, sys.stderr, columns)
        print(json.dumps(result) if as_json else text, file=stdout, flush=True)
        if not result["complete"]:
            raise typer.Exit(_exit_code(result["stopped_early"]))


def resume(
    run_dir: Annotated[Path, typer.Argument(help="Directory of the run.")],
    rounds: Annotated[
        int | None,
        typer.Option(
            help="New number of rounds in all; the added rounds of a private run release nothing."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A new value of patience, target-score, max-evaluations, max-seconds, timeout, "
            "track or data-dir, as key=value; `none` drops a stopping rule; may be repeated.",
        ),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help=ENGINE_HELP)] = EngineName.AUTO,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Continue an interrupted run from its last round, without repeating an evaluation.

    RUN_DIR is the directory of the run, which the run prints at its end. To continue a finished
    run, pass --rounds, or change the stopping rule that ended the run with --set.

    Example: flwr-fbo resume flwr-fbo-runs/spring --rounds 60 --set patience=none
    """
    with user_errors(), clean_stdout(as_json) as stdout:
        from flwr_fbo.runs.summary import summary
        from flwr_fbo.simulation.simulate import resume as resume_run

        given = assignments(settings or [])
        changes: dict[str, Any] = {} if rounds is None else {"rounds": rounds}
        changes |= {k.replace("-", "_"): None if v == "none" else v for k, v in given.items()}
        result = resume_run(run_dir, engine=engine.value, progress=sys.stderr, **changes)
        text = result.to_json() if as_json else summary(result, terminal_columns(stdout))
        print(text, file=stdout, flush=True)
        if not result.complete:
            raise typer.Exit(_exit_code(result.stopped_early))


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Directories of runs; several runs are compared.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file; where unset, report.html in the run's directory, or compared.html in "
            "that of the first of several runs."
        ),
    ] = None,
) -> None:
    """Write a report of runs as one HTML file, which opens without a network.

    RUNS are directories of runs; several runs are compared.

    Example: flwr-fbo report flwr-fbo-runs/* --out compared.html
    """
    with user_errors():
        from flwr_fbo.report import write_report

        print(write_report(runs, out))


def new(
    name: Annotated[str, typer.Argument(help="Name of the app and of its directory.")],
    publisher: Annotated[
        str, typer.Option(help="Account at Flower Hub; where unset, the name of the app.")
    ] = "",
) -> None:
    """Write a new Flower app with a task of your own, which `flwr run .` runs at once.

    NAME is the name of the app and of its directory, which is made in the current directory.

    Example: flwr-fbo new tuning
    """
    with user_errors():
        from flwr_fbo.cli.new_app import new_app

        root = new_app(name, Path(), publisher)
        print(f"The app is in {root}. Next:\n\n    cd {root}\n    flwr run . --stream\n")


def help_of(command: Callable[..., None]) -> str:
    """Return a command's docstring with each paragraph on one line, for a terminal of any width."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _exit_code(stopped_early: str) -> int:
    """Return the exit code of a run that is not complete."""
    return INTERRUPTED if stopped_early == "interrupted" else FAILED


app.callback(help=help_of(_root))(_root)
for command in (
    run,
    resume,
    report,
    new,
    privacy,
    audit,
    tasks,
    data,
    strategies,
    doctor,
    cite,
    export,
    track,
):
    app.command(help=help_of(command))(command)
app.command(
    help=help_of(reproduce),
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(reproduce)


def main() -> None:
    """Run the ``flwr-fbo`` command."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    # As with `python -m`, a task can be imported from the current directory.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        app()
    except SystemExit as done:
        # Another Ctrl-C would kill the process while it closes its files.
        if done.code == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
