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
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.runs.locations import run_directory
from flwr_fbo.runs.resume import continued_spec
from flwr_fbo.runs.spec import RunSpec, expand_settings
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.runs.summary import summary
from flwr_fbo.runs.trackers import tracker_named
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.registration import is_simulation
from flwr_fbo.strategies.result import TuningResult
from flwr_fbo.strategies.rounds import check_size, count_nodes, mistakes_logged
from flwr_fbo.tasks import Task

logger = logging.getLogger("flwr.fbo")

#: The prefix of this package's keys in the run-config of an app that has keys of its own.
PREFIX = "fbo."


class LogProgress(Callback):
    """A callback that writes one line per round to Flower's log."""

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """Log a closed round, with the mean best score of a simulation."""
        best = None if run.history is None else run.history.best_score
        logger.info("%s%s", "" if best is None else f"best {best:.4f}  ", round_text(report))


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
    with mistakes_logged():
        return _serve_run(given, grid, context, callbacks)


def _serve_run(
    given: Mapping[str, Any], grid: Grid, context: Context, callbacks: Sequence[Callback]
) -> TuningResult:
    """Check the keys of a run, serve the run, and log its summary."""
    spec = RunSpec.from_mapping(given)
    directory = RunDirectory(run_directory(spec.run.run_name or str(context.run_id)))
    if not directory.holds_a_run:  # before the lock, which makes the directory
        _check_agents(spec)
        if is_simulation(grid) and spec.run.agents:
            check_size(grid, spec.run.agents, spec.run.timeout)
    with directory.lock:
        if directory.holds_a_run:  # a run with this name continues
            spec = _continued_spec(directory, given)
            _check_agents(spec)
        stopper = _simulated_stopper(spec, grid, directory) if is_simulation(grid) else None
        result = serve(spec, grid, directory, [LogProgress(), *callbacks], stopper).result
    assert result is not None
    assert result.details is not None
    for line in summary(result.details, comparing="").splitlines():
        logger.info("%s", line)
    if result.details.best_score is None:
        logger.info("  each agent's own best is in its own journal, on its own machine")
    return result


def _check_agents(spec: RunSpec) -> None:
    """Raise SettingsError if the task's data cannot be divided; nothing has been computed yet."""
    if spec.run.agents:
        spec.task.check_agents(spec.run.agents, spec.run.seed)


def _simulated_stopper(spec: RunSpec, grid: Grid, directory: RunDirectory) -> Stopper:
    """Return the stopping rules of a simulation, which may read the journals of all agents."""
    agents = spec.run.agents or count_nodes(grid, spec.run.timeout)
    check_size(grid, agents, spec.run.timeout)
    run = directory.identity if directory.holds_a_run else None
    return Stopper(spec.run, RunHistory(directory.agents, agents, run))


def serve(
    spec: RunSpec,
    grid: Grid,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    stopper: Stopper | None = None,
) -> FBOStrategy:
    """Run the strategy of a run on a grid, and return the strategy with its result."""
    stopper = stopper or Stopper(spec.run)
    if spec.run.track != "none":
        # Only a simulation owns the journals of its agents.
        journals = None if stopper.history is None else directory.agents
        callbacks = [*callbacks, tracker_named(spec.run.track, directory.root, journals)]
    strategy = FBOStrategy.for_spec(spec, run_dir=directory.root, callbacks=callbacks)
    strategy.set_stopper(stopper, stopper.history)
    strategy.directory_given = directory
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
