"""A simulated run from settings to result: the run itself, its comparisons, its files."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from flwr_fbo.engine import Engine, number_of_agents, run
from flwr_fbo.progress import PrintProgress, summary
from flwr_fbo.results import RESULT_SCHEMA, Outcome, outcome, read_evaluations
from flwr_fbo.rundir import RunDirectory
from flwr_fbo.spec import RunSpec
from flwr_fbo.strategies import FBOStrategy, strategy_class


def simulate_run(
    given: Mapping[str, Any],
    engine: Engine,
    folder: Path,
    compare: Sequence[str] = (),
    progress: TextIO | None = None,
) -> tuple[dict[str, Any], str]:
    """Run a federation and those it is compared with: the result, and its summary for people.

    All settings are read before anything runs.
    """
    spec = RunSpec.from_mapping(given)
    rivals = {name: _rival(given, name) for name in compare}
    directory = RunDirectory(folder).create(_with_agents(spec))
    result, found = _one(spec, engine, directory, progress)
    others: dict[str, Outcome] = {}
    for name, rival in rivals.items():
        if progress is not None:
            print(f"for comparison: {name}", file=progress, flush=True)
        its = RunDirectory(folder / "compare" / name).create(_with_agents(rival))
        other, others[name] = _one(rival, "inline", its, None)
        result.setdefault("compared", {})[name] = other
    RunDirectory(folder).write_json("result.json", result)
    return result, summary(result, found, others, spec.task.metric)


def resume_run(
    folder: Path, engine: Engine, progress: TextIO | None = None
) -> tuple[dict[str, Any], str]:
    """Go on with a run that was interrupted, from its last closed round.

    Evaluations that agents have in their journals are not made again, and the ledger goes on.
    """
    directory = RunDirectory(folder)
    spec = RunSpec.from_mapping(directory.read_json("config.json"))
    result, found = _one(spec, engine, directory, progress)
    return result, summary(result, found, {}, spec.task.metric)


def _with_agents(spec: RunSpec) -> dict[str, Any]:
    """All settings of a run, with the number of agents that it really has."""
    return {**spec.to_mapping(), "agents": number_of_agents(spec)}


def _one(
    spec: RunSpec, engine: Engine, directory: RunDirectory, progress: TextIO | None
) -> tuple[dict[str, Any], Outcome]:
    agents = number_of_agents(spec)
    callbacks = [] if progress is None else [PrintProgress(directory.agents, progress)]
    started = time.perf_counter()
    run(spec, directory, engine, callbacks)
    seconds = time.perf_counter() - started
    histories = read_evaluations(directory.agents, agents)
    closed = spec.strategy.server.round
    found = outcome(histories, max(0, closed - 1))
    reports = spec.strategy.reports
    expected = spec.strategy.evaluations_per_agent()
    whole = expected is None or all(a["evaluations"] == expected for a in found.agents)
    scored = any(best is not None for best in found.best)
    lost = sum(r.missing + r.refused + sum(r.declined.values()) for r in reports)
    result = {
        "schema": RESULT_SCHEMA,
        "task": spec.task.name,
        "strategy": spec.run.strategy,
        "agents": agents,
        "rounds": spec.run.rounds,
        "seed": spec.run.seed,
        "evaluations": found.evaluations,
        "best": found.best,
        "regret": found.regret,
        **_privacy(spec.strategy),
        "notice": spec.strategy.notice(),
        "failures": found.failed_evaluations + lost,
        "complete": spec.strategy.completed and whole and scored,
        "seconds": seconds,
        "run_dir": str(directory.root),
        "agents_best": found.agents,
        **spec.strategy.findings(histories),
    }
    for name, text in spec.strategy.files().items():
        (directory.root / name).write_text(text)
    directory.write_json("result.json", result)
    return result, found


def _privacy(strategy: FBOStrategy) -> dict[str, Any]:
    last = strategy.privacy()
    if last is None:
        return {"epsilon": None, "delta": None, "private": False, "local": False}
    return {key: last[key] for key in ("epsilon", "delta", "private", "local")}


def _rival(given: Mapping[str, Any], name: str) -> RunSpec:
    """The same run under another strategy; settings that it does not have are left out."""
    mine = strategy_class(str(given["strategy"])).settings_class.keys()
    its = strategy_class(name).settings_class.keys()
    kept = {key: value for key, value in given.items() if key not in mine or key in its}
    return RunSpec.from_mapping({**kept, "strategy": name})
