"""Where a run under ``flwr run`` keeps its files, and what its app's run-config says.

Server and agents must agree on both; agents load no more of the server than this.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context

from flwr_fbo.core.settings import kebab
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.strategies import FBOStrategy
from flwr_fbo.tasks import Task

#: Where the run-config of somebody else's app holds settings of this package.
PREFIX = "fbo."


def home() -> Path:
    """Where runs are kept that nobody gave a directory: ``FLWR_FBO_HOME`` or the user's own."""
    given = os.environ.get("FLWR_FBO_HOME")
    return Path(given) if given else Path.home() / ".flwr-fbo"


def root_of(spec: RunSpec, context: Context) -> Path:
    """The directory of a run, the same for server and agents of one machine."""
    return home() / "runs" / (spec.run.run_name or str(context.run_id))


def agents_of(root: Path) -> Path:
    """The folder of the agents' journals in the directory of a run."""
    return root / "agents"


def given_within(
    context: Context,
    task: Task | type[Task] | str,
    strategy: FBOStrategy | str,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """What the app's code says, and on top of it what its run-config says under ``fbo.``."""
    configured = {
        key.removeprefix(PREFIX): value
        for key, value in context.run_config.items()
        if key.startswith(PREFIX) and value != ""
    }
    coded = {"task": task, "strategy": strategy, **{kebab(k): v for k, v in settings.items()}}
    return {**coded, **configured}
