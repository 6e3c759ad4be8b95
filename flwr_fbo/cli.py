"""The command line: ``flwr-fbo run TASK`` and its companions."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_fbo.core.settings import SettingsError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Federated Bayesian optimisation with real privacy, on Flower.",
)

#: Exit codes: the run failed; the command was wrong (as typer's own).
FAILED, USAGE = 1, 2


class EngineName(StrEnum):
    """How a federation is simulated."""

    RAY = "ray"
    INLINE = "inline"


@app.callback()
def _root() -> None:
    """Federated Bayesian optimisation with real privacy, on Flower."""


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

    Example: flwr-fbo run digits --agents 30 --epsilon 5 --compare local-ts,random
    """
    given: dict[str, Any] = {"task": task, "strategy": strategy, "agents": agents}
    given |= {"rounds": rounds, "seed": seed}
    if epsilon is not None:
        given["epsilon"] = epsilon
    with _user_errors(), _stdout_kept(as_json) as stdout:
        from flwr_fbo.simulation import simulate_run

        given |= _assignments(settings or [])
        others = [name for name in compare.split(",") if name]
        result, text = simulate_run(
            given, engine.value, run_dir or _new_directory(task, strategy), others, sys.stderr
        )
        print(json.dumps(result) if as_json else text, file=stdout, flush=True)
        if not result["complete"]:
            raise typer.Exit(FAILED)


def _assignments(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise SettingsError(f"--set takes key=value, but got {pair!r}")
        found[key.strip()] = value.strip()
    return found


def _new_directory(task: str, strategy: str) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in task)
    base = Path("flwr-fbo-runs") / f"{stamp}-{name}-{strategy}"
    number = 1
    while (path := base if number == 1 else Path(f"{base}-{number}")).exists():
        number += 1
    return path


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    """A user's mistake is one line on stderr; a run that failed is one line and exit code 1."""
    started = time.monotonic()
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except ValueError as error:
        typer.echo(f"flwr-fbo: {error}", err=True)
        raise typer.Exit(USAGE) from error
    except KeyboardInterrupt as error:
        typer.echo(f"flwr-fbo: stopped after {time.monotonic() - started:.0f} s", err=True)
        raise typer.Exit(130) from error
    except (RuntimeError, OSError, ArithmeticError) as error:
        typer.echo(f"flwr-fbo: the run failed: {error}", err=True)
        raise typer.Exit(FAILED) from error


@contextlib.contextmanager
def _stdout_kept(clean: bool) -> Iterator[Any]:
    """With ``clean``, whatever others print goes to stderr, and only the yielded file is stdout."""
    if not clean:
        yield sys.stdout
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(kept, "w", closefd=False) as stdout:
            yield stdout
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def main() -> None:
    """Entry point of the ``flwr-fbo`` command."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    app()
