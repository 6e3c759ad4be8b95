"""Simulate a run from settings to result: the run itself, its baselines, its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from flwr_fbo.clients.background import has_worker, wait_for_workers
from flwr_fbo.core.settings import SettingsError, kebab
from flwr_fbo.methods.registry import find_method
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal import journal_path
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.runs.progress import progress_views
from flwr_fbo.runs.result import Result
from flwr_fbo.runs.resume import baselines_of, continued_spec, why_finished
from flwr_fbo.runs.spec import STOPPING, ConfiguredStrategy, RunSpec
from flwr_fbo.runs.stopping import Stopper, finishing_on_interrupt
from flwr_fbo.runs.summary import summary
from flwr_fbo.simulation.engine import Engine, number_of_agents, run
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.tasks import Task


def simulate(
    task: Task | type[Task] | str,
    agents: int = 0,
    strategy: FBOStrategy | str = "dp-fts-de",
    rounds: int = 20,
    *,
    seed: int = 0,
    engine: Engine = "inline",
    compare: Sequence[str] = (),
    run_dir: Path | str | None = None,
    progress: TextIO | None = None,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Result:
    """Simulate a federation that tunes a task.

    Parameters
    ----------
    task
        What is tuned: a task, a function with ``@task``, or the name of either.
    agents
        How many agents take part; 0 is as many as the task's data hold.
    strategy
        A strategy such as ``DPFTSDE(epsilon=5)``, or the name of one.
    rounds
        Evaluations that each agent makes after its initial points.
    seed
        Seed of everything but privacy noise.
    engine
        ``"inline"`` calls agents one after another in this process; ``"ray"`` is Flower's
        simulation engine.
    compare
        Names of strategies to compare with, at equal evaluations.
    run_dir
        Directory of the run; a new one below ``flwr-fbo-runs`` where unset.
    progress
        A stream to report rounds to, such as ``sys.stderr``.
    callbacks
        Watchers of the run.
    settings
        All other settings of the run, the strategy and the task, by their Python names.

    Examples
    --------
    >>> from flwr_fbo import Float, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> result = simulate(hill, agents=3, strategy="random", rounds=5, run_dir=folder + "/run")
    >>> result.best_score > 0.5
    True
    """
    given = {"task": task, "strategy": strategy, "agents": agents, "rounds": rounds, "seed": seed}
    given |= {kebab(name): value for name, value in settings.items()}
    return _simulate(given, engine, run_dir, compare, progress, callbacks)


def resume(
    run_dir: Path | str,
    task: Task | type[Task] | None = None,
    *,
    engine: Engine = "inline",
    progress: TextIO | None = None,
    callbacks: Sequence[Callback] = (),
    **changes: Any,
) -> Result:
    """Continue a run that was interrupted, from its last closed round.

    Evaluations that agents have in their journals are not made again, and the ledger continues.
    A private run makes no release beyond those it was planned for.

    Parameters
    ----------
    run_dir
        Directory of the run.
    task
        The run's task, where it cannot be imported, such as one made in a notebook.
    engine, progress, callbacks
        As for :func:`simulate`.
    changes
        Settings that change: more ``rounds``, another ``patience``, ``target_score``,
        ``max_evaluations`` or ``max_seconds`` (None drops the rule), ``timeout``, ``data_dir``.

    Examples
    --------
    Continue a finished run for 60 rounds in all::

        result = flwr_fbo.resume("flwr-fbo-runs/spring", rounds=60)
    """
    directory = RunDirectory(run_dir)
    changed = {kebab(name): value for name, value in changes.items()}
    over = why_finished(directory, changed)
    spec = continued_spec(directory, changed, task)
    baselines = baselines_of(directory, task)
    if over:
        _say(progress, over)
        result = Result.read(run_dir)
        if set(result.compared) == set(baselines):
            return result
    else:
        if "rounds" in changed and getattr(spec.settings, "private", False):
            _say(progress, "no release is added to those planned: further rounds cost no privacy")
        result = _one(spec, engine, directory, progress, callbacks)
    return _compared(result, spec, directory, baselines, progress)


def simulate_run(
    given: Mapping[str, Any],
    engine: Engine,
    folder: Path | None,
    compare: Sequence[str] = (),
    progress: TextIO | None = None,
) -> tuple[dict[str, Any], str]:
    """Simulate a run by kebab-case keys; return the result's JSON and its summary for people."""
    result = _simulate(given, engine, folder, compare, progress)
    return result.to_dict(), summary(result)


def _simulate(
    given: Mapping[str, Any],
    engine: Engine,
    folder: Path | str | None,
    compare: Sequence[str] = (),
    progress: TextIO | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a federation and its baselines; all settings are checked before anything is run."""
    spec = RunSpec.from_mapping(given)
    if compare and spec.run.answer_within is not None:
        raise SettingsError(
            "`answer-within` must be left unset in a run that is compared with others, but got "
            f"{spec.run.answer_within:g}: its agents make fewer evaluations than there are rounds"
        )
    baselines = {name: _baseline(spec, given, name) for name in compare}
    root = _new_directory(spec) if folder is None else Path(folder)
    directory = RunDirectory(root).create(_with_agents(spec), spec.task.space)
    if baselines:
        directory.write_json("compare.json", {n: _with_agents(b) for n, b in baselines.items()})
    result = _one(spec, engine, directory, progress, callbacks)
    return _compared(result, spec, directory, baselines, progress)


def _compared(
    result: Result,
    spec: RunSpec,
    directory: RunDirectory,
    baselines: Mapping[str, RunSpec],
    progress: TextIO | None,
) -> Result:
    """Return the result with those of its baselines, which run once it is complete."""
    rounds = spec.run.rounds  # of what counts rounds, as many as the run really had
    if spec.method.server_class.counts_rounds:
        rounds = min(rounds, max(0, len(result.history.evaluations) - 1))
    others: dict[str, Result] = {}
    for name, baseline in baselines.items() if result.complete else ():
        _say(progress, f"for comparison: {name}")
        other = _baseline_result(baseline, rounds, RunDirectory(directory.root / "compare" / name))
        if other.stopped_early:  # it has no rules of its own: somebody pressed Ctrl-C
            raise KeyboardInterrupt(f"flwr-fbo resume {directory.root} ends the comparison")
        others[name] = other
    result = dataclasses.replace(result, compared=others)
    directory.write_json("result.json", result.to_dict())
    return result


def _baseline_result(baseline: RunSpec, rounds: int, directory: RunDirectory) -> Result:
    """Run a baseline for this many rounds and without rules for ending, or continue it."""
    if directory.holds_a_run:
        longer = continued_spec(directory, {"rounds": rounds}, baseline.task)
        return _one(longer, "inline", directory, None)
    free: dict[str, Any] = dict.fromkeys(STOPPING)
    run = dataclasses.replace(baseline.run, rounds=rounds, **free)
    equal = dataclasses.replace(baseline, run=run)
    directory.create(_with_agents(equal), baseline.task.space)
    return _one(equal, "inline", directory, None)


def _say(stream: TextIO | None, text: str) -> None:
    if stream is not None:
        print(text, file=stream, flush=True)


def _with_agents(spec: RunSpec) -> dict[str, Any]:
    """All settings of a run, with the number of agents that it really has."""
    return {**spec.to_mapping(), "agents": number_of_agents(spec)}


def _new_directory(spec: RunSpec) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in spec.run.task)
    base = Path("flwr-fbo-runs") / f"{stamp}-{name}-{spec.run.strategy}"
    number = 1
    while (path := base if number == 1 else Path(f"{base}-{number}")).exists():
        number += 1
    return path


def _one(
    spec: RunSpec,
    engine: Engine,
    directory: RunDirectory,
    progress: TextIO | None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run one federation to its end and return its result."""
    history = RunHistory(directory.agents, number_of_agents(spec)).refresh()
    stopper = Stopper(spec.run, history)
    with finishing_on_interrupt(stopper, progress), progress_views(progress) as watchers:
        strategy = _run(spec, directory, engine, [*watchers, *callbacks], stopper, progress)
    result = strategy.result
    assert result is not None
    assert result.details is not None
    return result.details


def _run(
    spec: RunSpec,
    directory: RunDirectory,
    engine: Engine,
    callbacks: Sequence[Callback],
    stopper: Stopper,
    progress: TextIO | None,
) -> FBOStrategy:
    """Run a federation, and wait for the evaluations that its agents still make in the end.

    A simulation leaves nothing behind. A Ctrl-C while it waits, or a second one before, ends
    the evaluations under way.
    """
    if spec.run.answer_within is None:
        return run(spec, directory, engine, callbacks, stopper)
    journals = [journal_path(directory.agents, n) for n in range(number_of_agents(spec))]
    try:
        strategy = run(spec, directory, engine, callbacks, stopper)
    except BaseException:
        wait_for_workers(journals, lambda: True)
        raise
    before, left = stopper.interrupted, sum(map(has_worker, journals))
    if left and progress is not None:
        print(f"waiting for the evaluations of {left} agents; Ctrl-C ends them", file=progress)
    wait_for_workers(journals, lambda: stopper.interrupted and not before)
    strategy.finish()  # with the evaluations that have ended meanwhile
    return strategy


def _baseline(spec: RunSpec, given: Mapping[str, Any], name: str) -> RunSpec:
    """Return the same run under another method; settings that it does not have are left out.

    Defaults differ between methods. How many points an agent begins with is the run's: a
    comparison is at equal evaluations.
    """
    strategy = given.get("strategy", spec.run.strategy)
    stated = dict(strategy.stated) if isinstance(strategy, ConfiguredStrategy) else {}
    mine = type(spec.settings).keys()
    its = find_method(name, spec.task.seeks).settings_class.keys()
    kept = {**given, **stated, "strategy": name}
    if isinstance(spec.settings, ThompsonSettings):
        kept["initial-points"] = spec.settings.initial_points
    return RunSpec.from_mapping({k: v for k, v in kept.items() if k not in mine or k in its})
