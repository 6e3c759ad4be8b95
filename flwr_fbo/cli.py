"""The command line: ``flwr-fbo run TASK`` and its companions."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
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

#: Exit codes: the run failed; the command was wrong (as typer's own); Ctrl-C (as shells').
FAILED, USAGE, INTERRUPTED = 1, 2, 130


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
    with _user_errors(), _stdout_kept(as_json) as stdout:
        from flwr_fbo.simulation import simulate_run

        given |= _assignments(settings or [])
        others = [name for name in compare.split(",") if name]
        result, text = simulate_run(given, engine.value, run_dir, others, sys.stderr)
        print(json.dumps(result) if as_json else text, file=stdout, flush=True)
        if not result["complete"]:
            raise typer.Exit(_exit_code(result["stopped_early"]))


@app.command()
def resume(
    run_dir: Annotated[Path, typer.Argument(help="Directory of the run.")],
    engine: Annotated[
        EngineName, typer.Option(help="Flower's simulation engine, or this process.")
    ] = EngineName.RAY,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Go on with a run that was interrupted: nothing that was paid for is paid for again."""
    with _user_errors(), _stdout_kept(as_json) as stdout:
        from flwr_fbo.progress import summary
        from flwr_fbo.simulation import resume as resume_run

        result = resume_run(run_dir, engine=engine.value, progress=sys.stderr)
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

    Example: flwr-fbo report flwr-fbo-runs/* --out compared.html
    """
    with _user_errors():
        from flwr_fbo.report import write_report

        print(write_report(runs, out))


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the app and of its directory.")],
) -> None:
    """Write a Flower app around a task of your own; `flwr run .` in it works at once.

    Example: flwr-fbo new tuning
    """
    with _user_errors():
        from flwr_fbo.scaffold import new_app

        root = new_app(name, Path())
        print(f"{root} is made. Next:\n\n    cd {root}\n    flwr run . --stream\n")


@app.command()
def privacy(
    agents: Annotated[int, typer.Option(help="How many take part.")],
    rounds: Annotated[int, typer.Option(help="Rounds after the initial points.")],
    epsilon: Annotated[float | None, typer.Option(help="Budget; the noise is planned.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="z; with --sampling-rate.")] = None,
    sampling_rate: Annotated[float | None, typer.Option(help="q; 1 with --epsilon.")] = None,
    delta: Annotated[float | None, typer.Option(help="N^-1.1 where unset.")] = None,
    features: Annotated[int, typer.Option(help="M, for the noise against the signal.")] = 100,
    regions: Annotated[int, typer.Option(help="P, for the same.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plan a private run: its noise, its epsilon by round, and what else it could cost.

    With --epsilon the releases are those of `flwr-fbo run`; with --noise-multiplier and
    --sampling-rate there is one a round, as in the paper.

    Example: flwr-fbo privacy --agents 200 --rounds 40 --noise-multiplier 1 --sampling-rate 0.25
    """
    with _user_errors():
        from flwr_fbo.core.dp_fts_de import DPFTSDESettings
        from flwr_fbo.privacy.plan import plan

        schedule = None
        if epsilon is not None:
            releases = DPFTSDESettings(epsilon=epsilon).release_rounds(rounds)
            schedule = [t in releases for t in range(rounds)]
        made = plan(
            agents,
            rounds,
            epsilon=epsilon,
            noise_multiplier=noise_multiplier,
            sampling_rate=sampling_rate,
            delta=delta,
            schedule=schedule,
            features=features,
            regions=regions,
        )
        print(json.dumps(made.to_dict()) if as_json else made.to_text())


@app.command()
def audit(
    agents: Annotated[int, typer.Option(help="How many take part.")] = 16,
    epsilon: Annotated[float | None, typer.Option(help="Budget of the run.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="z, instead of it.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of the run.")] = 10,
    trials: Annotated[int, typer.Option(help="Attacks on each of two inputs.")] = 4000,
    confidence: Annotated[float, typer.Option(help="Of the bounds.")] = 0.99,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting of dp-fts-de.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Attack the server's release step, and see whether it tells more than is claimed.

    Exits with 1 when the claim does not stand.

    Example: flwr-fbo audit --noise-multiplier 1 --set sampling-rate=0.5
    """
    with _user_errors():
        from flwr_fbo.audit import audit_server
        from flwr_fbo.core.dp_fts_de import DPFTSDESettings

        given: dict[str, Any] = {"features": 4, "regions": 2, **_assignments(settings or [])}
        if epsilon is not None:
            given["epsilon"] = epsilon
        if noise_multiplier is not None or epsilon is None:
            given["noise-multiplier"] = 1.0 if noise_multiplier is None else noise_multiplier
        chosen = DPFTSDESettings.from_mapping(given)
        result = audit_server(chosen, agents, rounds, trials=trials, confidence=confidence)
        print(json.dumps(result.to_dict()) if as_json else result.to_text())
        if not result.passed:
            raise typer.Exit(FAILED)


@app.command()
def tasks(
    data_dir: Annotated[str, typer.Option(help="Where the data sets may lie.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the built-in tasks: what is tuned, on which data, and whether the data are here."""
    with _user_errors():
        from flwr_fbo.tasks import catalogue

        rows = catalogue(data_dir)
        if as_json:
            print(json.dumps(rows))
            return
        for row in rows:
            here = "data present" if row["present"] else "data missing"
            made = ", can be generated" if row["generated"] else ""
            print(f"{row['name']:<12} {row['metric']:<12} {here}{made}")
            print(f"{'':<12} tunes {', '.join(row['space']['parameters'])}; {row['data']}")


@app.command()
def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the strategies and every setting that each of them knows."""
    from dataclasses import asdict

    from flwr_fbo.core.settings import describe
    from flwr_fbo.strategies import STRATEGIES, strategy_class

    found = {name: strategy_class(name) for name in STRATEGIES}
    if as_json:
        listed = {
            name: {
                "help": _first_line(cls.__doc__),
                "settings": [asdict(d) for d in describe(cls.settings_class)],
            }
            for name, cls in found.items()
        }
        print(json.dumps(listed))
        return
    for name, cls in found.items():
        print(f"{name}: {_first_line(cls.__doc__)}")
        for d in describe(cls.settings_class):
            rule = f" {d.rule}" if d.rule else ""
            default = "unset" if d.default is None else d.default
            print(f"    {d.key:<20} {d.help}  [{d.type}{rule}; {default}]")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def reproduce(context: typer.Context) -> None:
    """Run the papers' figures again: NAME ..., --list, --quick, --seeds N (needs the sources)."""
    import subprocess

    with _user_errors():
        root = Path(__file__).parents[1]
        if not (root / "benchmarks" / "reproduce" / "__main__.py").exists():
            raise SettingsError(
                "`reproduce` needs the source tree: clone the repository, and run it from there"
            )
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "benchmarks.reproduce", *(context.args or ["--list"])]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False
        )
        raise typer.Exit(done.returncode)


def _exit_code(stopped_early: str) -> int:
    return INTERRUPTED if stopped_early == "interrupted" else FAILED


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]


def _assignments(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise SettingsError(f"--set takes key=value, but got {pair!r}")
        found[key.strip()] = value.strip()
    return found


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    """A user's mistake is one line on stderr; a run that failed is one line and exit code 1."""
    started = time.monotonic()
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except (ValueError, ImportError) as error:
        typer.echo(f"flwr-fbo: {error}", err=True)
        raise typer.Exit(USAGE) from error
    except KeyboardInterrupt as error:
        typer.echo(f"flwr-fbo: stopped after {time.monotonic() - started:.0f} s", err=True)
        raise typer.Exit(INTERRUPTED) from error
    except BrokenPipeError as error:  # whoever was reading has read enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        raise typer.Exit(0) from error
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
