"""``flwr-fbo reproduce``: the papers' figures again, from the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import typer

from flwr_fbo.cli.common import user_errors
from flwr_fbo.core.settings import SettingsError


def reproduce(context: typer.Context) -> None:
    """Run the papers' figures again: NAME ..., --list, --quick, --seeds N (needs the sources).

    --why measures why some come out otherwise than the papers'.
    --charts DIR saves a chart of each.

    Example: flwr-fbo reproduce fed-pne-2a --quick
    """
    with user_errors():
        root = Path(__file__).parents[2]
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
