"""What all commands share: settings from ``--set``, exit codes, errors in one line."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import typer

from flwr_fbo.core.settings import SettingsError

#: Exit codes: the run failed; the command was wrong (as typer's own); Ctrl-C (as shells').
FAILED, USAGE, INTERRUPTED = 1, 2, 130


def assignments(pairs: list[str]) -> dict[str, str]:
    """What ``--set key=value`` says, over and over."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise SettingsError(f"--set takes key=value, but got {pair!r}")
        found[key.strip()] = value.strip()
    return found


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
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
        how = f"; {error}" if str(error) else ""
        typer.echo(f"flwr-fbo: stopped after {time.monotonic() - started:.0f} s{how}", err=True)
        raise typer.Exit(INTERRUPTED) from error
    except BrokenPipeError as error:  # whoever was reading has read enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        raise typer.Exit(0) from error
    except (RuntimeError, OSError, ArithmeticError) as error:
        from flwr_fbo.runs.files import RunDirectoryError

        told = "" if isinstance(error, RunDirectoryError) else "the run failed: "
        typer.echo(f"flwr-fbo: {told}{error}", err=True)
        raise typer.Exit(FAILED) from error


@contextlib.contextmanager
def stdout_kept(clean: bool) -> Iterator[Any]:
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
