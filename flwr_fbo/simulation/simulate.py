"""A simulated run from settings to result: the run itself, its comparisons, its files."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from flwr_fbo.clients.background import busy, settle
from flwr_fbo.core.settings import SettingsError, kebab
from flwr_fbo.runs.conclude import conclude
from flwr_fbo.runs.directory import RunDirectory
from flwr_fbo.runs.journal import journal_path
from flwr_fbo.runs.progress import watching
from flwr_fbo.runs.result import Result, read_evaluations
from flwr_fbo.runs.resume import continued, rivals_of, why_over
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.stopping import STOPPING, Stopper, finishing_on_interrupt
from flwr_fbo.runs.summary import summary
from flwr_fbo.simulation.engine import Engine, number_of_agents, run
from flwr_fbo.strategies import Callback, FBOStrategy, strategy_class
from flwr_fbo.strategies.fts import ThompsonStrategy
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
    """Simulate a federation that tunes a task::

        result = simulate(tuned, agents=30, strategy=DPFTSDE(epsilon=5), rounds=40)

    ``settings`` are all others that ``flwr-fbo run --set`` takes, by their Python names. The
    ``inline`` engine calls agents one after another in this process; ``ray`` is Flower's
    simulation engine. ``progress`` is a stream to report rounds to, such as ``sys.stderr``.
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
    """Go on with a run that was interrupted, from its last closed round.

    Evaluations that agents have in their journals are not made again, and the ledger goes on.
    ``task`` is needed where the run's task cannot be imported, as one made in a notebook.
    ``changes`` are settings to go on with: more ``rounds``, another ``patience``,
    ``target_score``, ``max_evaluations``, ``max_seconds`` (None: without that rule), another
    ``timeout`` or ``data_dir``. A private run makes no release beyond those it was planned for.
    """
    directory = RunDirectory(run_dir)
    changed = {kebab(name): value for name, value in changes.items()}
    over = why_over(directory, changed)
    spec = continued(directory, changed, task)
    rivals = rivals_of(directory, task)
    if over:
        _say(progress, over)
        result = Result.read(run_dir)
        if set(result.compared) == set(rivals):
            return result
    else:
        if "rounds" in changed and getattr(spec.strategy.settings, "private", False):
            _say(progress, "no release is added to those planned: further rounds cost no privacy")
        result = _one(spec, engine, directory, progress, callbacks)
    return _compared(result, spec, directory, rivals, progress)


def simulate_run(
    given: Mapping[str, Any],
    engine: Engine,
    folder: Path | None,
    compare: Sequence[str] = (),
    progress: TextIO | None = None,
) -> tuple[dict[str, Any], str]:
    """:func:`simulate` by kebab-case keys: the result's JSON, and its summary for people."""
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
    """Run a federation and those it is compared with; all settings are read before anything."""
    spec = RunSpec.from_mapping(given)
    if compare and spec.run.answer_within is not None:
        raise SettingsError(
            "`answer-within` must be left unset in a run that is compared with others, but got "
            f"{spec.run.answer_within:g}: its agents make fewer evaluations than there are rounds"
        )
    rivals = {name: _rival(spec, given, name) for name in compare}
    root = _new_directory(spec) if folder is None else Path(folder)
    directory = RunDirectory(root).create(_with_agents(spec), spec.task.space)
    if rivals:
        directory.write_json("compare.json", {n: _with_agents(r) for n, r in rivals.items()})
    result = _one(spec, engine, directory, progress, callbacks)
    return _compared(result, spec, directory, rivals, progress)


def _compared(
    result: Result,
    spec: RunSpec,
    directory: RunDirectory,
    rivals: Mapping[str, RunSpec],
    progress: TextIO | None,
) -> Result:
    """The result beside those of the strategies that it is compared with, once it is complete."""
    rounds = spec.run.rounds  # of what counts rounds, as many as the run really had
    if isinstance(spec.strategy, ThompsonStrategy):
        rounds = min(rounds, max(0, len(result.evaluations) - 1))
    others: dict[str, Result] = {}
    for name, rival in rivals.items() if result.complete else ():
        _say(progress, f"for comparison: {name}")
        other = _rivals_result(rival, rounds, RunDirectory(directory.root / "compare" / name))
        if other.stopped_early:  # it has no rules of its own: somebody pressed Ctrl-C
            raise KeyboardInterrupt(f"flwr-fbo resume {directory.root} ends the comparison")
        others[name] = other
    result = dataclasses.replace(result, compared=others)
    directory.write_json("result.json", result.to_dict())
    return result


def _rivals_result(rival: RunSpec, rounds: int, directory: RunDirectory) -> Result:
    """The rival for so many rounds and without rules for ending; begun before, it goes on."""
    if (directory.root / "config.json").exists():
        longer = continued(directory, {"rounds": rounds}, rival.task)
        return _one(longer, "inline", directory, None)
    free: dict[str, Any] = dict.fromkeys(STOPPING)
    equal = dataclasses.replace(rival, run=dataclasses.replace(rival.run, rounds=rounds, **free))
    directory.create(_with_agents(equal), rival.task.space)
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
    stopper = Stopper(spec.run, directory.agents, number_of_agents(spec))
    started = time.perf_counter()
    with (
        finishing_on_interrupt(stopper, progress),
        watching(directory.agents, progress) as watchers,
    ):
        _run(spec, directory, engine, [*watchers, *callbacks], stopper, progress)
    seconds = time.perf_counter() - started
    agents = number_of_agents(spec)
    histories = read_evaluations(directory.agents, agents)
    return conclude(spec, directory, agents, histories, seconds, stopper)


def _run(
    spec: RunSpec,
    directory: RunDirectory,
    engine: Engine,
    callbacks: Sequence[Callback],
    stopper: Stopper,
    progress: TextIO | None,
) -> None:
    """The run, and what agents are still at when it is over: a simulation leaves nothing behind.

    A Ctrl-C while it waits, or a second one before, kills what is under way.
    """
    if spec.run.answer_within is None:
        run(spec, directory, engine, callbacks, stopper)
        return
    journals = [journal_path(directory.agents, n) for n in range(number_of_agents(spec))]
    try:
        run(spec, directory, engine, callbacks, stopper)
    except BaseException:
        settle(journals, lambda: True)
        raise
    before, left = stopper.interrupted, sum(map(busy, journals))
    if left and progress is not None:
        print(f"waiting for the evaluations of {left} agents; Ctrl-C ends them", file=progress)
    settle(journals, lambda: stopper.interrupted and not before)


def _rival(spec: RunSpec, given: Mapping[str, Any], name: str) -> RunSpec:
    """The same run under another strategy; settings that it does not have are left out.

    Defaults differ between strategies. How many points an agent begins with is the run's: at
    equal evaluations is what a comparison says.
    """
    strategy = given.get("strategy", spec.run.strategy)
    stated = {} if isinstance(strategy, str) else strategy.given
    mine = type(spec.strategy).settings_class.keys()
    its = strategy_class(name).settings_class.keys()
    kept = {**given, **stated, "strategy": name}
    if isinstance(spec.strategy, ThompsonStrategy):
        kept["initial-points"] = spec.strategy.settings.initial_points
    return RunSpec.from_mapping({k: v for k, v in kept.items() if k not in mine or k in its})
