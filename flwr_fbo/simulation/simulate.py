"""The simulation of a run from settings to result: the run, its baselines and its files."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from flwr_fbo.clients.background import has_worker, wait_for_workers
from flwr_fbo.core.settings import SettingsError, kebab, unknown_keys
from flwr_fbo.methods.registry import find_method
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.privacy.ledger import LedgerError
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.comparison import Saving, folder_of
from flwr_fbo.runs.comparison import compare as compare_runs
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal import journal_path
from flwr_fbo.runs.history import RunHistory, ended_a_run
from flwr_fbo.runs.progress import progress_views
from flwr_fbo.runs.result import Result, replace_result
from flwr_fbo.runs.resume import baselines_of, continued_spec, why_finished
from flwr_fbo.runs.spec import (
    SETTINGS,
    STOPPING,
    ConfiguredStrategy,
    RunSpec,
    expand_settings,
    settings_to_store,
)
from flwr_fbo.runs.stopping import Stopper, finishing_on_interrupt
from flwr_fbo.runs.summary import summary
from flwr_fbo.simulation.engine import Engine, check_engine, number_of_agents, run
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.tasks import Task

#: Seconds of evaluations in a run from which its baselines use the engine of the run.
WORTH_AN_ENGINE = 60.0


def simulate(
    task: Task | type[Task] | str,
    agents: int = 0,
    strategy: FBOStrategy | str = "dp-fts-de",
    rounds: int = 20,
    *,
    seed: int = 0,
    engine: Engine = "auto",
    compare: Sequence[str | FBOStrategy] = (),
    run_dir: Path | str | None = None,
    progress: TextIO | None = None,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Result:
    """Simulate a federation that tunes a task, and return the result.

    Parameters
    ----------
    task : Task, type or str
        What is tuned: a task, a function with ``@task``, or the name of either.
    agents : int
        The number of agents; 0 is as many as the task's data have parties.
    strategy : FBOStrategy or str
        A strategy such as ``DPFTSDE(epsilon=5)``, or the name of a strategy.
    rounds : int
        The rounds after the initial points. Each agent makes one evaluation in a round, or as many
        as the setting ``parallel`` says.
    seed : int
        The seed of everything but privacy noise.
    engine : str
        ``"inline"`` asks the agents one after another in this process, ``"processes"`` in a pool
        of processes on all processors, and ``"ray"`` is Flower's simulation engine. ``"auto"``
        measures the first evaluations, and uses processes where evaluations are slow.
    compare : sequence of str or FBOStrategy
        Strategies to compare with, at equal numbers of evaluations: ``"alone"`` (the same agent
        without the others), ``"tpe"`` (Optuna), ``"random"`` or any other. Settings follow the
        name, as in ``"dp-fts-de epsilon=2"``, or a strategy object holds them.
    run_dir : Path or str, optional
        The directory of the run; where unset, a new one below ``flwr-fbo-runs``.
    progress : file, optional
        A stream that shows the progress, such as ``sys.stderr``.
    callbacks : sequence of Callback
        Objects that watch the run.
    **settings
        All other settings of the run, the strategy and the task, by their Python names. A
        misspelt name raises SettingsError with the nearest known name.

    Returns
    -------
    Result
        The scores, the recommended setting and the privacy of the run, and where its files are.

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
    engine: Engine = "auto",
    progress: TextIO | None = None,
    callbacks: Sequence[Callback] = (),
    **changes: Any,
) -> Result:
    """Continue a run from its last closed round, and return the result.

    Evaluations in the agents' journals are not repeated, and the ledger continues. A private run
    makes no release beyond the planned ones.

    Parameters
    ----------
    run_dir : Path or str
        The directory of the run.
    task : Task or type, optional
        The run's task, if it cannot be imported, such as a task made in a notebook.
    engine, progress, callbacks
        As for :func:`simulate`.
    **changes
        Settings that change: more ``rounds``, another ``patience``, ``target_score``,
        ``max_evaluations`` or ``max_seconds`` (None drops the rule), ``timeout``, ``data_dir``.

    Returns
    -------
    Result
        The result of the whole run, with the rounds before it was continued.

    Examples
    --------
    Continue a finished run for 5 rounds in all:

    >>> import tempfile
    >>> from flwr_fbo import Float, resume, simulate, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> result = simulate(hill, agents=2, strategy="random", rounds=3, run_dir=folder)
    >>> resume(folder, task=hill, rounds=5).rounds
    5
    """
    check_engine(engine)
    directory = RunDirectory(run_dir)
    changed = {kebab(name): value for name, value in changes.items()}
    directory.read_json("config.json")  # raises before a lock is made where there is no run
    with directory.lock:
        return _resume(directory, task, changed, engine, progress, callbacks)


def _resume(
    directory: RunDirectory,
    task: Task | type[Task] | None,
    changed: Mapping[str, Any],
    engine: Engine,
    progress: TextIO | None,
    callbacks: Sequence[Callback],
) -> Result:
    """Continue the run in a directory whose lock this process holds."""
    finished = why_finished(directory, changed)
    spec = continued_spec(directory, changed, task)
    baselines = baselines_of(directory, task)
    if finished:
        _print_line(progress, finished)
        result = Result.read(directory.root)
        if set(result.compared) == set(baselines):
            return result
    else:
        ended = ended_a_run(directory.agents)
        if ended:
            text = f"an evaluation ended the last process, or ended with that process: {ended}"
            how = "" if engine == "ray" else "; evaluations are now made in child processes"
            _print_line(progress, text + how)
        if "rounds" in changed and getattr(spec.settings, "private", False):
            _print_line(progress, "more rounds make no further release, and cost no privacy")
        result = _run_to_result(spec, engine, directory, progress, callbacks)
    return _compared(result, spec, engine, directory, baselines, progress)


def simulate_run(
    given: Mapping[str, Any],
    engine: Engine,
    folder: Path | None,
    compare: Sequence[str | FBOStrategy] = (),
    progress: TextIO | None = None,
    columns: int | None = None,
) -> tuple[dict[str, Any], str]:
    """Simulate a run by kebab-case keys; return the result as JSON values, and its summary.

    The summary fits into a terminal of so many columns; None breaks no line.
    """
    result = _simulate(given, engine, folder, compare, progress)
    return result.to_dict(), summary(result, columns)


def _simulate(
    given: Mapping[str, Any],
    engine: Engine,
    folder: Path | str | None,
    compare: Sequence[str | FBOStrategy] = (),
    progress: TextIO | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a federation and its baselines, after a check of all settings."""
    check_engine(engine)
    spec = RunSpec.from_mapping(given)
    if isinstance(compare, str):  # which would be a baseline for each letter
        raise SettingsError(
            "`compare` must be a list of names or strategies, such as ['alone', 'tpe'], but got "
            f"{compare!r}"
        )
    if compare and spec.run.answer_within is not None:
        raise SettingsError(
            "`answer-within` must be left unset in a run that is compared with others, but got "
            f"{spec.run.answer_within:g}: its agents make fewer evaluations than there are rounds"
        )
    baselines = dict(_baseline(spec, given, other) for other in compare)
    # Before anything is written: what the data cannot be divided into must leave nothing behind.
    spec.task.check_agents(number_of_agents(spec), spec.run.seed)
    root = _new_directory(spec) if folder is None else Path(folder)
    directory = RunDirectory(root)
    with _no_empty_run(root), directory.lock:
        directory.create(_with_agents(spec), spec.task.space)
        # Stored before the run, so that resume can end an interrupted comparison.
        if baselines:
            directory.write_json("compare.json", {n: _with_agents(b) for n, b in baselines.items()})
        result = _run_to_result(spec, engine, directory, progress, callbacks)
        return _compared(result, spec, engine, directory, baselines, progress)


@contextlib.contextmanager
def _no_empty_run(root: Path) -> Iterator[None]:
    """Remove a new run's directory where a mistake in the settings ended it before any evaluation.

    Without this, the corrected command would be refused: its directory would hold a run already.
    """
    existed = root.exists()
    try:
        yield
    except LedgerError:  # a disk's fault and no mistake: the run can be resumed
        raise
    except (ValueError, ImportError):
        if not existed and not any((root / "agents").glob("*.jsonl")):
            shutil.rmtree(root, ignore_errors=True)
        raise


def _compared(
    result: Result,
    spec: RunSpec,
    engine: Engine,
    directory: RunDirectory,
    baselines: Mapping[str, RunSpec],
    progress: TextIO | None,
) -> Result:
    """Return a result with the results of its baselines, which run after a complete run."""
    if not result.complete:
        baselines = {}
    rounds = spec.run.rounds
    # A run that a rule ended early is compared at the rounds that it made.
    if spec.method.server_class.counts_rounds:
        rounds = min(rounds, max(0, len(result.history.evaluations) - 1))
    ours = RunHistory(directory.agents, number_of_agents(spec)).refresh().evaluations
    # Short evaluations are made here, as Ray takes seconds to start.
    seconds = sum(e.seconds for history in ours for e in history)
    if engine == "ray" and seconds < WORTH_AN_ENGINE:
        engine = "inline"
    others: dict[str, Result] = {}
    savings: dict[str, Saving] = {}
    for number, (name, baseline) in enumerate(baselines.items(), start=1):
        _print_line(progress, f"Comparing with {name} ({number} of {len(baselines)}) ...")
        folder = RunDirectory(directory.root / "compare" / folder_of(name))
        equal = _equal_rounds(spec, rounds, baseline)
        other = _baseline_result(name, baseline, equal, engine, folder, progress)
        if other.stopped_early:  # a baseline has no stopping rules, so this was Ctrl-C
            raise KeyboardInterrupt(f"flwr-fbo resume {directory.root} ends the comparison")
        others[name] = other
        journals = RunHistory(folder.agents, number_of_agents(baseline), folder.identity)
        saving = compare_runs(ours, journals.refresh().evaluations)
        if saving is not None:
            savings[name] = saving
    result = dataclasses.replace(result, compared=others, savings=savings)
    replace_result(directory, result)
    return result


def _equal_rounds(spec: RunSpec, rounds: int, baseline: RunSpec) -> int:
    """Return the rounds in which a baseline makes as many evaluations, or up to a round more."""
    made = _initial_points(spec) + rounds * _parallel(spec)
    return max(0, math.ceil((made - _initial_points(baseline)) / _parallel(baseline)))


def _parallel(spec: RunSpec) -> int:
    """Return the evaluations of each agent in a round; 1 where they are no setting."""
    return int(getattr(spec.settings, "parallel", 1))


def _initial_points(spec: RunSpec) -> int:
    """Return the evaluations that each agent makes before round 1; 0 where they are no setting."""
    return int(getattr(spec.settings, "initial_points", 0))


def _baseline_result(
    name: str,
    baseline: RunSpec,
    rounds: int,
    engine: Engine,
    directory: RunDirectory,
    progress: TextIO | None,
) -> Result:
    """Run or continue a baseline for this many rounds, without stopping rules."""
    if directory.holds_a_run:
        longer = continued_spec(directory, {"rounds": rounds}, baseline.task)
        return _run_to_result(longer, engine, directory, progress, baseline=name)
    free: dict[str, Any] = dict.fromkeys(STOPPING)
    run = dataclasses.replace(baseline.run, rounds=rounds, track="none", **free)
    equal = dataclasses.replace(baseline, run=run)
    directory.create(_with_agents(equal), baseline.task.space)
    return _run_to_result(equal, engine, directory, progress, baseline=name)


def _print_line(stream: TextIO | None, text: str) -> None:
    """Print a line at once, if there is a stream."""
    if stream is not None:
        print(text, file=stream, flush=True)


def _with_agents(spec: RunSpec) -> dict[str, Any]:
    """Return all settings of a run, with the number of agents in place of 0."""
    return {**spec.to_mapping(), "agents": number_of_agents(spec)}


def _new_directory(spec: RunSpec) -> Path:
    """Return a directory that does not exist, named after the time, the task and the strategy."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in spec.run.task)
    base = Path("flwr-fbo-runs") / f"{stamp}-{name}-{spec.run.strategy}"
    number = 1
    while (path := base if number == 1 else Path(f"{base}-{number}")).exists():
        number += 1
    return path


def _run_to_result(
    spec: RunSpec,
    engine: Engine,
    directory: RunDirectory,
    progress: TextIO | None,
    callbacks: Sequence[Callback] = (),
    baseline: str = "",
) -> Result:
    """Run one federation to its end and return its result."""
    agents = number_of_agents(spec)
    if not baseline:
        _print_line(progress, f"Registering {agents} agent{'s' if agents > 1 else ''} ...")
    # A simulation owns the journals of its agents, which stopping rules and progress read.
    history = RunHistory(directory.agents, agents, directory.identity).refresh()
    stopper = Stopper(spec.run, history)
    views = progress_views(progress, baseline)
    with views as watchers:
        lines = watchers[0].lines if watchers else None
        with finishing_on_interrupt(stopper, lines):
            strategy = _run_and_wait(
                spec, directory, engine, [*watchers, *callbacks], stopper,
                None if baseline else lines,
            )  # fmt: skip
    result = strategy.result
    assert result is not None
    assert result.details is not None
    return result.details


def _run_and_wait(
    spec: RunSpec,
    directory: RunDirectory,
    engine: Engine,
    callbacks: Sequence[Callback],
    stopper: Stopper,
    progress: TextIO | None,
) -> FBOStrategy:
    """Run a federation, and wait for evaluations that still run after the last round.

    A simulation leaves no process behind. Ctrl-C during the wait, or a second Ctrl-C before it,
    ends the evaluations.
    """

    def say(text: str) -> None:
        _print_line(progress, text)

    if spec.run.answer_within is None:
        return run(spec, directory, engine, callbacks, stopper, say)
    journals = [journal_path(directory.agents, n) for n in range(number_of_agents(spec))]
    try:
        strategy = run(spec, directory, engine, callbacks, stopper, say)
    except BaseException:  # also Ctrl-C: no worker may outlive the simulation
        wait_for_workers(journals, lambda: True)
        raise
    before, left = stopper.interrupted, sum(map(has_worker, journals))
    if left and progress is not None:
        print(f"waiting for the evaluations of {left} agents; Ctrl-C ends them", file=progress)
    wait_for_workers(journals, lambda: stopper.interrupted and not before)
    strategy.finish()  # the result again, now with the evaluations that ended meanwhile
    return strategy


def _baseline(
    spec: RunSpec, given: Mapping[str, Any], other: str | FBOStrategy
) -> tuple[str, RunSpec]:
    """Return a baseline's name with its settings, and its run.

    A baseline is the same run under another method, with the settings that both methods have.
    ``alone`` has all settings of the run's agent.
    """
    name, own = _name_and_settings(other)
    strategy = given.get("strategy", spec.run.strategy)
    stated = dict(strategy.stated) if isinstance(strategy, ConfiguredStrategy) else {}
    mine = type(spec.settings).keys()
    theirs = find_method(name, spec.task.seeks).settings_class.keys()
    unknown_keys(own, theirs, f"setting of {name}")
    kept = {**given, **stated, "strategy": name}
    # Methods differ in their default, but a comparison is at equal numbers of evaluations.
    if isinstance(spec.settings, ThompsonSettings):
        kept["initial-points"] = spec.settings.initial_points
        if name == "alone":  # it sends nothing, so local privacy has nothing to protect
            agent = settings_to_store(spec.settings)
            kept |= {k: v for k, v in agent.items() if k in theirs and not k.startswith("local-")}
            kept = {k: v for k, v in kept.items() if not k.startswith("local-")}
    kept = {k: v for k, v in kept.items() if k not in mine or k in theirs}
    label = " ".join([name, *(f"{key}={value}" for key, value in own.items())])
    return label, RunSpec.from_mapping({**kept, **own})


def _name_and_settings(other: str | FBOStrategy) -> tuple[str, dict[str, Any]]:
    """Return the name of a baseline's strategy, and the settings that were given for it alone."""
    if isinstance(other, FBOStrategy):
        return other.method.name, dict(other.stated)
    name, _, pairs = other.strip().partition(" ")
    return name, expand_settings({SETTINGS: pairs})
