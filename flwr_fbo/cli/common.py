"""The parts that all commands share: settings from ``--set``, exit codes, errors in one line."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any, TextIO

import typer

from flwr_fbo.core.settings import SettingsError

#: Exit codes: a run failed; the command has a mistake (as in typer); Ctrl-C (as in shells).
FAILED, USAGE, INTERRUPTED = 1, 2, 130


def assignments(pairs: list[str]) -> dict[str, str]:
    """Return the settings of all options ``--set key=value``; a later one replaces an earlier."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise SettingsError(f"--set must be key=value, but got {pair!r}")
        settings[key.strip()] = value.strip()
    return settings


def baselines(options: list[str]) -> list[str]:
    """Return the baselines of all options ``--compare``: each a name, with settings or without."""
    found: list[str] = []
    for option in options:
        # A setting may hold commas, such as releases=0,1,2: then the option is one baseline.
        found += [option] if "=" in option else option.split(",")
    return list(dict.fromkeys(name.strip() for name in found if name.strip()))


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Print an error as one line on stderr, and exit with the code for its kind."""
    started = time.monotonic()
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except SystemExit as error:  # a task's module that calls sys.exit while it is imported
        typer.echo(f"flwr-fbo: the run failed: the task called sys.exit({error.code!r})", err=True)
        raise typer.Exit(FAILED) from error
    except (ValueError, ImportError) as error:
        typer.echo(f"flwr-fbo: {error}", err=True)
        raise typer.Exit(USAGE) from error
    except KeyboardInterrupt as error:
        how = f"; {error}" if str(error) else ""
        typer.echo(f"flwr-fbo: stopped after {time.monotonic() - started:.0f} s{how}", err=True)
        raise typer.Exit(INTERRUPTED) from error
    except BrokenPipeError as error:  # the reader of a pipe has closed it, as `head` does
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        raise typer.Exit(0) from error
    except (RuntimeError, OSError, ArithmeticError) as error:
        from flwr_fbo.runs.files import RunDirectoryError, WrongRunDirectoryError

        if isinstance(error, WrongRunDirectoryError):
            typer.echo(f"flwr-fbo: {error}", err=True)
            raise typer.Exit(USAGE) from error
        what = "" if isinstance(error, RunDirectoryError) else "the run failed: "
        typer.echo(f"flwr-fbo: {what}{error}", err=True)
        raise typer.Exit(FAILED) from error


def terminal_columns(stream: TextIO) -> int | None:
    """Return how many columns the terminal of a stream has; None where it is not a terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def in_terminal(line: str, indent: int) -> str:
    """Return a line for stdout: broken to the width of a terminal, the further lines indented."""
    columns = terminal_columns(sys.stdout)
    # Elsewhere, and in a terminal without room, a line stays whole.
    if columns is None or columns < indent + 30:
        return line
    lines = textwrap.wrap(
        line, columns - 1, subsequent_indent=" " * indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines)


@contextlib.contextmanager
def clean_stdout(clean: bool) -> Iterator[Any]:
    """Yield stdout; with ``clean``, everything that is printed elsewhere goes to stderr."""
    if not clean:
        yield sys.stdout
        return
    # By descriptor, as Ray and libraries in C print without Python's sys.stdout.
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
