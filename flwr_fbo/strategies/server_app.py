"""The ServerApp of a run: it serves any method, under ``flwr run`` or any other grid."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flwr_fbo.core.settings import kebab
from flwr_fbo.runs.callbacks import Callback, RoundReport, RunView, round_text
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.locations import run_directory
from flwr_fbo.runs.resume import continued_spec
from flwr_fbo.runs.spec import RunSpec, expand_settings
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.runs.summary import params_text
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.result import TuningResult
from flwr_fbo.tasks import Task

logger = logging.getLogger("flwr.fbo")

#: The prefix of this package's keys in the run-config of an app that has keys of its own.
PREFIX = "fbo."


class LogProgress(Callback):
    """A callback that writes one line per round to Flower's log."""

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """Log a closed round."""
        logger.info("%s", round_text(report))


def server_app(
    task: Task | type[Task] | str,
    strategy: FBOStrategy | str = "dp-fts-de",
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> ServerApp:
    """Return the ServerApp of a run, for an app of your own.

    Parameters
    ----------
    task : Task, type or str
        What is tuned: a task, a function with ``@task``, or the name of either.
    strategy : FBOStrategy or str
        A strategy such as ``DPFTSDE(epsilon=5)``, or the name of a strategy.
    callbacks : sequence of Callback
        Objects that watch the run.
    **settings
        Settings of the run, the strategy and the task, by their Python names. A key of the app's
        run-config that begins with ``fbo.`` replaces a setting, such as ``fbo.rounds = 40``.

    Returns
    -------
    flwr.serverapp.ServerApp
        An app that serves one run.

    Examples
    --------
    >>> from flwr_fbo import Float, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> app = server_app(hill, "dp-fts-de", epsilon=5.0, rounds=10)
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve_run(keys_of_run(context, task, strategy, settings), grid, context, callbacks)

    return app


def keys_of_run(
    context: Context,
    task: Task | type[Task] | str,
    strategy: FBOStrategy | str,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the keys of an app's code, replaced by those of its run-config under ``fbo.``."""
    configured = {
        key.removeprefix(PREFIX): value
        for key, value in context.run_config.items()
        if key.startswith(PREFIX) and value != ""
    }
    given = {"task": task, "strategy": strategy, **{kebab(k): v for k, v in settings.items()}}
    return {**given, **expand_settings(configured)}


def serve_run(
    given: Mapping[str, Any], grid: Grid, context: Context, callbacks: Sequence[Callback] = ()
) -> TuningResult:
    """Serve the run that these keys describe, from the start or from its last checkpoint."""
    spec = RunSpec.from_mapping(given)
    directory = RunDirectory(run_directory(spec.run.run_name or str(context.run_id)))
    if directory.holds_a_run:  # a run with this name continues
        spec = _continued_spec(directory, given)
    result = serve(spec, grid, directory, [LogProgress(), *callbacks]).result
    assert result is not None
    if result.recommended is not None and result.details is not None:
        clear = (result.details.recommendation or {}).get("clear", True)
        doubt = "" if clear else " (no clearer than noise)"
        logger.info("recommended to all: %s%s", params_text(result.recommended), doubt)
    logger.info("privacy: %s", result.privacy)
    logger.info("results: %s", result.run_dir)
    logger.info("each agent's own best is in its own journal, on its own machine")
    return result


def serve(
    spec: RunSpec,
    grid: Grid,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    stopper: Stopper | None = None,
) -> FBOStrategy:
    """Run the strategy of a run on a grid, and return the strategy with its result."""
    strategy = FBOStrategy.for_spec(spec, run_dir=directory.root, callbacks=callbacks)
    stopper = stopper or Stopper(spec.run)
    strategy.set_stopper(stopper, stopper.history)
    strategy.start(grid)
    return strategy


def _continued_spec(directory: RunDirectory, given: Mapping[str, Any]) -> RunSpec:
    """Return the run of a directory with the changes of the run-config."""
    changes = {key: value for key, value in given.items() if not isinstance(value, str) or value}
    # 0 agents stand for the connected nodes, which were counted when the run started.
    if not changes.get("agents"):
        changes.pop("agents", None)
    task = None if isinstance(given.get("task", ""), str) else given["task"]
    return continued_spec(directory, changes, task)


#: The app that ``pyproject.toml`` names for ``flwr run``.
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve the run that the run-config describes."""
    serve_run(dict(context.run_config), grid, context)
