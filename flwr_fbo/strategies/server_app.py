"""The ServerApp: serves one run of any strategy, under ``flwr run`` or any other grid."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flwr_fbo.runs.conclude import conclude
from flwr_fbo.runs.directory import RoundTable, RunDirectory
from flwr_fbo.runs.locations import given_within, root_of
from flwr_fbo.runs.resume import continued
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.runs.summary import params_text
from flwr_fbo.strategies.base import Callback, FBOStrategy, RoundReport, RunPlan
from flwr_fbo.tasks import Task

logger = logging.getLogger("flwr.fbo")

#: How long the number of connected nodes must not change before all are taken to be there.
SETTLED = 2.0


class LogProgress(Callback):
    """One line a round in Flower's log."""

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        """See :class:`Callback`."""
        logger.info("%s", describe(report))


def describe(report: RoundReport) -> str:
    """A round in one line."""
    last = "" if report.rounds is None else f"/{report.rounds - 1}"
    parts = [f"round {report.round}{last}", f"replies {report.replied}/{report.asked}"]
    declined = sum(report.declined.values())
    for name, count in (
        ("declined", declined), ("missing", report.missing), ("refused", report.refused)
    ):  # fmt: skip
        if count:
            why = f" ({', '.join(sorted(report.declined))})" if name == "declined" else ""
            parts.append(f"{name} {count}{why}")
    if report.privacy is not None:
        budget = report.privacy["budget"]
        of = "" if budget is None else f" of {budget:g}"
        parts.append(f"epsilon {report.privacy['epsilon']:.3f}{of}")
        if not report.privacy["private"]:
            parts.append("NOT PRIVATE")
    parts.append(f"{report.seconds:.1f} s")
    return "  ".join(parts)


def serve(
    spec: RunSpec,
    grid: Grid,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    stop: Stopper | None = None,
) -> FBOStrategy:
    """Run a strategy on a grid, from its first round or from where the directory says it was."""
    plan = RunPlan(
        space=spec.task.space,
        agents=spec.run.agents or _count_nodes(grid, spec.run.timeout),
        rounds=spec.run.rounds,
        seed=spec.run.seed,
        timeout=spec.run.timeout,
        quorum=spec.run.round_quorum,
        ledger=directory.ledger,
        task=spec.task,
    )
    strategy = spec.strategy.plan(plan, directory.checkpoint)
    strategy.callbacks = [RoundTable(directory.rounds), directory.releases, *callbacks]
    strategy.stop = stop or Stopper(spec.run)
    strategy.start(grid)
    return strategy


def server_app(
    task: Task | type[Task] | str,
    strategy: FBOStrategy | str = "dp-fts-de",
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> ServerApp:
    """The ServerApp of a run in an app of one's own.

    ``settings`` are those of the run, the strategy and the task, by their Python names. What
    the app's run-config says under ``fbo.`` comes on top: ``fbo.rounds = 40``. The other keys
    of the run-config are the app's own business.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _serve_run(given_within(context, task, strategy, settings), grid, context, callbacks)

    return app


def server_app_of(
    spec: RunSpec,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    stop: Stopper | None = None,
) -> ServerApp:
    """A ServerApp that serves this run."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(spec, grid, directory, callbacks, stop)

    return app


def directory_of(spec: RunSpec, context: Context) -> RunDirectory:
    """The directory of a run under ``flwr run``, the same for server and agents of one machine."""
    return RunDirectory(root_of(spec, context))


def _count_nodes(grid: Grid, timeout: float) -> int:
    """How many nodes there are, once their number has settled."""
    deadline = time.monotonic() + timeout
    count, since = 0, time.monotonic()
    while time.monotonic() < deadline:
        now = len(list(grid.get_node_ids()))
        if now != count:
            count, since = now, time.monotonic()
        if count and time.monotonic() - since >= SETTLED:
            return count
        time.sleep(0.1)
    if count:
        return count
    raise TimeoutError(f"no node connected in {timeout:g} s")


def _serve_run(
    given: Mapping[str, Any], grid: Grid, context: Context, callbacks: Sequence[Callback] = ()
) -> None:
    spec = RunSpec.from_mapping(given)
    directory = directory_of(spec, context)
    known = (directory.root / "config.json").exists()
    if known:  # the run of this name goes on
        spec = _continued(directory, given)
    stopper, started = Stopper(spec.run), time.monotonic()
    logger.info("%s: %s", "the run goes on in" if known else "run directory", directory.root)
    if not known:
        agents = spec.run.agents or _count_nodes(grid, spec.run.timeout)
        spec = dataclasses.replace(spec, run=dataclasses.replace(spec.run, agents=agents))
        directory.create(spec.to_mapping(), spec.task.space)
    strategy = serve(spec, grid, directory, [LogProgress(), *callbacks], stopper)
    agents, seconds = strategy.run_plan.agents, time.monotonic() - started
    result = conclude(spec, directory, agents, [], seconds, stopper)
    recommended = result.findings.get("recommended")
    if recommended:
        doubt = "" if recommended.get("clear", True) else " (no clearer than noise)"
        logger.info("recommended to all: %s%s", params_text(recommended["params"]), doubt)
    logger.info("each agent's own best is in its own journal, on its own machine")


def _continued(directory: RunDirectory, given: Mapping[str, Any]) -> RunSpec:
    """What the run-config says, as far as a run that goes on allows for it."""
    said = {key: value for key, value in given.items() if not isinstance(value, str) or value}
    if not said.get("agents"):  # as many as there are: that was settled at the start
        said.pop("agents", None)
    task = None if isinstance(given.get("task", ""), str) else given["task"]
    return continued(directory, said, task)


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve the run that the run-config describes."""
    _serve_run(dict(context.run_config), grid, context)
