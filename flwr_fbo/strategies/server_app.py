"""The ServerApp: serves one run of any method, under ``flwr run`` or any other grid."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flwr_fbo.core.settings import kebab
from flwr_fbo.runs.callbacks import Callback, RoundReport, RunView, describe
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.locations import run_directory
from flwr_fbo.runs.resume import continued
from flwr_fbo.runs.spec import RunSpec, expanded
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.runs.summary import params_text
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.result import TuningResult
from flwr_fbo.tasks import Task

logger = logging.getLogger("flwr.fbo")

#: Where the run-config of somebody else's app holds settings of this package.
PREFIX = "fbo."


class LogProgress(Callback):
    """Writes one line a round to Flower's log."""

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """Log the closed round."""
        logger.info("%s", describe(report))


def server_app(
    task: Task | type[Task] | str,
    strategy: FBOStrategy | str = "dp-fts-de",
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> ServerApp:
    """Make the ServerApp of a run, for an app of one's own.

    Parameters
    ----------
    task
        What is tuned; its name, or the object itself.
    strategy
        A strategy such as ``DPFTSDE(epsilon=5)``, or the name of one.
    callbacks
        Watchers of the run.
    settings
        Settings of the run, the strategy and the task, by their Python names. What the app's
        run-config says under ``fbo.`` comes on top: ``fbo.rounds = 40``.

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
        serve_run(given_within(context, task, strategy, settings), grid, context, callbacks)

    return app


def given_within(
    context: Context,
    task: Task | type[Task] | str,
    strategy: FBOStrategy | str,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what an app's code says, and on top of it what its run-config says under ``fbo.``."""
    configured = {
        key.removeprefix(PREFIX): value
        for key, value in context.run_config.items()
        if key.startswith(PREFIX) and value != ""
    }
    coded = {"task": task, "strategy": strategy, **{kebab(k): v for k, v in settings.items()}}
    return {**coded, **expanded(configured)}


def serve_run(
    given: Mapping[str, Any], grid: Grid, context: Context, callbacks: Sequence[Callback] = ()
) -> TuningResult:
    """Serve the run that these keys describe, from its beginning or from where it stopped."""
    spec = RunSpec.from_mapping(given)
    root = run_directory(spec.run.run_name or str(context.run_id))
    directory = RunDirectory(root)
    if directory.holds_a_run:  # the run of this name continues
        spec = _continued(directory, given)
    result = serve(spec, grid, directory, [LogProgress(), *callbacks]).result
    assert result is not None
    if result.recommended is not None and result.details is not None:
        sure = (result.details.recommendation or {}).get("clear", True)
        doubt = "" if sure else " (no clearer than noise)"
        logger.info("recommended to all: %s%s", params_text(result.recommended), doubt)
    logger.info("each agent's own best is in its own journal, on its own machine")
    return result


def serve(
    spec: RunSpec,
    grid: Grid,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    stopper: Stopper | None = None,
) -> FBOStrategy:
    """Run the strategy of a described run on a grid, and return the strategy."""
    strategy = FBOStrategy.for_spec(spec, run_dir=directory.root, callbacks=callbacks)
    stopper = stopper or Stopper(spec.run)
    strategy.watch(stopper, stopper.history)
    strategy.start(grid)
    return strategy


def _continued(directory: RunDirectory, given: Mapping[str, Any]) -> RunSpec:
    """Return the run of the directory with what the run-config changes, as far as it may."""
    said = {key: value for key, value in given.items() if not isinstance(value, str) or value}
    if not said.get("agents"):  # as many as there are: that was settled at the start
        said.pop("agents", None)
    task = None if isinstance(given.get("task", ""), str) else given["task"]
    return continued(directory, said, task)


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve the run that the run-config describes."""
    serve_run(dict(context.run_config), grid, context)
