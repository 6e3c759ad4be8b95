"""The command ``flwr-fbo reproduce``, which computes the papers' figures from the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import typer

from flwr_fbo.cli.common import user_errors
from flwr_fbo.core.settings import SettingsError


def reproduce(context: typer.Context) -> None:
    """Compute the papers' figures again; this command needs a clone of the repository.

    NAME ... are the figures; --list lists all figures. --quick computes small versions, and
    --seeds N sets the number of repetitions. --why measures why some figures differ from those of
    the papers. --charts DIR saves a chart of each figure.

    Example: flwr-fbo reproduce fed-pne-2a --quick
    """
    with user_errors():
        root = _source_tree()
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "benchmarks.reproduce", *(context.args or ["--list"])]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False
        )
        raise typer.Exit(done.returncode)


def _source_tree() -> Path:
    """Return the source tree that this package is in, or else the one around the directory.

    A package that was installed without ``-e`` does not lie in the source tree, although the
    command may be given inside of one.
    """
    places = [Path(__file__).parents[2], Path.cwd(), *Path.cwd().parents]
    for place in places:
        if (place / "benchmarks" / "reproduce" / "__main__.py").exists():
            return place
    raise SettingsError(
        "`flwr-fbo reproduce` must be given inside a clone of the repository, which has the folder "
        f"benchmarks/reproduce, but neither {Path.cwd()} nor a directory above it has one"
    )
