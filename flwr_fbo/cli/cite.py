"""The command ``flwr-fbo cite``, which prints how to cite the software and a strategy's paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flwr_fbo.cli.common import user_errors


def cite(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[STRATEGY|RUN]", help="A strategy, or the directory of a run that used one."
        ),
    ] = "",
) -> None:
    """Print BibTeX entries: of this software, and of the paper behind a strategy.

    Example: flwr-fbo cite dp-fts-de
    """
    with user_errors():
        from flwr_fbo.core.settings import unknown_keys
        from flwr_fbo.methods.citation import citation
        from flwr_fbo.methods.registry import method_names
        from flwr_fbo.runs.files.directory import RunDirectory

        strategy = name
        if name and name not in method_names():
            if not Path(name).is_dir():
                unknown_keys([name], method_names(), "strategy or run")
            strategy = str(RunDirectory(name).read_json("config.json").get("strategy", ""))
        print(citation(strategy))
