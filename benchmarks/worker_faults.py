"""The part of faults.py that kills workers: those of pools, and those of asynchronous agents.

**The pool of the engine `processes`.** A worker is killed at a step, and the simulation goes on:
another worker takes its place. These things must hold:

1. the run completes without being resumed, with as many evaluations as an undisturbed run;
2. no evaluation is recorded twice, and at most one that ended has no score: the one that the
   worker was killed in, which counts as failed, and before it quick ones of .05 s in all;
3. releases are charged as in faults.py;
4. where no evaluation failed and nothing is noisy, the evaluations are those of an undisturbed
   run; where one failed and agents share nothing, those of the other agents are.

Where the pool's *host* is killed, which forks the workers, the run ends with an error that names
`flwr-fbo resume`, and the resumed run is checked as in faults.py.

**Asynchronous agents.** Their worker is a process of its own, and this module is what it imports
to find its task: where the environment says so, it then breaks itself, once in a run. Nobody is
resumed: the run goes on. These things must hold, besides those of faults.py for the steps of
whoever starts workers:

1. the run completes, and what the dead worker was asked for is done after all;
2. no evaluation is recorded twice, and none is begun more than twice;
3. at most one evaluation that ended has no record, the one that the fault hit;
4. the other agents' evaluations are those of an undisturbed run, and so are the broken
   agent's up to the one that was made again (then it is a round behind).
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fault_kit
import faults
from fault_kit import AGENTS, HOST, ITSELF, Case, Step, are_too_many, essence, lost, notes
from faults import Selection, Undisturbed

from flwr_fbo.core.space import Float
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.tasks import task

#: Which worker breaks, where and when: JSON.
FAULT = "FLWR_FBO_WORKER_FAULT"
#: An agent whose worker is given time enough to finish: a run as if it had none.
ASYNCHRONOUS = "local-ts, asynchronous"
faults.STRATEGIES[ASYNCHRONOUS] = {
    "strategy": "local-ts", "answer-within": 60.0, "rounds": 2, "task": "worker_faults:hill",
}  # fmt: skip

EVALUATION = "flwr_fbo.core.evaluation:Evaluator._guarded"
WRITE = "flwr_fbo.runs.files.journal:_write_all"
APPEND = "flwr_fbo.runs.files.journal:Journal.append"
JOB = "flwr_fbo.clients.background:JobRecord.save"
WORK = "flwr_fbo.methods.thompson.agent:ThompsonAgent.work"
POOL = "flwr_fbo.simulation.process_agents:_Worker.answer"
#: Of a worker of a pool.
POOLED = [
    Step("before a worker's job", POOL, "before"),
    Step("before an evaluation", EVALUATION, "before"),
    Step("after an evaluation", EVALUATION, "after"),
    Step("in the middle of a record", WRITE, "half"),
    Step("after an agent's record", APPEND, "after"),
    Step("after a worker's job", POOL, "after"),
]
#: Of the process that asks for an evaluation; killed and resumed as in faults.py.
STARTING = [
    Step("before a worker's request is written", JOB, "before"),
    Step("after a worker's request is written", JOB, "after"),
    Step("in the middle of a worker's request", "flwr_fbo.runs.files.atomic:np.savez", "half"),
    Step("after a worker is started", "flwr_fbo.clients.background:_start_worker", "after"),
    Step("before an agent's reply", "flwr_fbo.clients.tuning_client:TuningClient._answer", "after"),
]
#: Of the worker of an asynchronous agent.
WORKING = [
    Step("before a worker's job", WORK, "before"),
    Step("before an evaluation", EVALUATION, "before"),
    Step("after an evaluation", EVALUATION, "after"),
    Step("in the middle of a record", WRITE, "half"),
    Step("after an agent's record", APPEND, "after"),
    Step("after a worker's job", WORK, "after"),
    Step("disk full: journal", WRITE, "full"),
]
STEPS = [*STARTING, *WORKING]
#: By the number of a case: how many workers go before the one that breaks, and at which call.
PLACES = {1: (0, 1), 2: (1, 2), 5: (AGENTS + 1, 1)}
#: Strategies of runs whose pools are disturbed.
POOL_STRATEGIES = ["local-ts", "dp-fts-de", "fts-de", "fts, local budgets", "fed-pne", "ldp-ata"]


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def hill(params: Any, partition: Any) -> float:
    """The same task, in a module that breaks the worker which imports it."""
    return fault_kit.climb(params, partition)


# -- the pool ----------------------------------------------------------------------------------


def pool_workers(selection: Selection) -> list[Case]:
    """Kill a worker of a pool; the run goes on."""
    return _of_pools("pool's worker", selection, try_worker)


def pool_hosts(selection: Selection) -> list[Case]:
    """Kill the process that forks the workers of a pool; the run is resumed."""
    return _of_pools(
        "pool's host", selection,
        lambda case, expected: faults.try_case(case, "processes", expected, HOST),
    )  # fmt: skip


def _of_pools(
    column: str, selection: Selection, try_one: Callable[[Case, Undisturbed], Case]
) -> list[Case]:
    """Disturb the pool of the engine `processes`."""
    cases: list[Case] = []
    for name in ["local-ts"] if selection.quick else POOL_STRATEGIES:
        cases += faults.try_steps(column, name, POOLED, selection, try_one)
    return cases


def try_worker(case: Case, expected: Undisturbed, engine: str = "processes") -> Case:
    """Kill a worker of an engine at a step, and check what became of the run."""
    with fault_kit.folder() as here:
        run, settings = here / "run", faults.settings_of(case.strategy)
        code, said = faults.broken(case, settings, engine, run, ITSELF, engine == "ray")
        if code != 0:
            case.faults.append(f"ended with {code}: {said}")
        elif case.reached:
            _check_pool(case, run, expected)
    return case


def _check_pool(case: Case, run: Path, expected: Undisturbed) -> None:
    result = json.loads((run / "result.json").read_text())
    histories = read_evaluations(run / "agents", AGENTS)
    if not result["complete"]:
        case.faults.append("the run is not complete")
    faults.check_books(case, result, run)
    without = lost(run, notes())
    case.lost = len(without)
    if are_too_many(without):
        case.faults.append(f"evaluations of {without} s were lost")
    failed = {agent for agent, history in enumerate(histories) if any(e.failed for e in history)}
    failures = sum(e.failed for history in histories for e in history)
    hit = case.step.where in (EVALUATION, WRITE, APPEND)  # a record may be that it begins
    if failures > hit:
        case.faults.append(f"{failures} evaluations failed")
    if not any((run / "agents").glob("*.privacy.jsonl")) and not failures:
        _compare(case, essence(run), expected, bool(fault_kit.charges(run)))
    if case.strategy == "local-ts":
        rest = [agent for agent in range(AGENTS) if agent not in failed]
        if any(essence(run)[agent] != expected[0][agent] for agent in rest):
            case.faults.append("other agents were disturbed")


def _compare(
    case: Case, found: list[list[tuple[Any, ...]]], expected: Undisturbed, noisy: bool
) -> None:
    """Compare a run in which no evaluation failed with an undisturbed one."""
    recorded, calls = sum(map(len, found)), expected[1]
    if recorded != calls:
        case.faults.append(f"{recorded} evaluations, {calls} in an undisturbed run")
    if not noisy and found != expected[0]:
        case.faults.append("the evaluations are not those of an undisturbed run")


# -- asynchronous agents -----------------------------------------------------------------------


def asynchronous(selection: Selection) -> list[Case]:
    """Kill who starts a worker, and the workers, in the first request and in later ones."""
    quick = selection.quick
    starting = [s for s in STARTING if s.when == "after"] if quick else STARTING
    working = [s for s in WORKING if s.when == "half"] if quick else WORKING
    return faults.try_steps(
        "asynchronous", ASYNCHRONOUS, starting, selection,
        lambda case, expected: faults.try_case(case, "inline", expected),
    ) + faults.try_steps("asynchronous", ASYNCHRONOUS, working, selection, _try_worker)  # fmt: skip


def _break_myself() -> None:
    """In a worker: install the fault, unless it is another worker's or has happened."""
    fault_kit.note("worker")
    said = fault_kit.notes()
    planned = json.loads(os.environ[FAULT])
    if "killed" in said or "failed" in said or said.count("worker") <= planned["skip"]:
        return
    step = Step(planned["name"], planned["where"], planned["when"])
    fault_kit.install(step, planned["number"])


def _try_worker(case: Case, expected: Undisturbed) -> Case:
    """Break the worker that follows the first so many, at the n-th call of the step."""
    skip, number = PLACES[case.number]
    with fault_kit.folder() as here:
        os.environ[FAULT] = json.dumps({**vars(case.step), "skip": skip, "number": number})
        try:
            run, settings = here / "run", faults.settings_of(ASYNCHRONOUS)
            code, said = fault_kit.in_child(lambda: faults.start(settings, "inline", run))
        finally:
            del os.environ[FAULT]
        case.reached = bool({"killed", "failed"}.intersection(notes()))
        if code != 0:
            case.faults.append(f"ended with {code}: {said}")
        elif case.reached:
            _check_worker(case, run, expected[0])
    return case


def _check_worker(case: Case, run: Path, expected: list[list[tuple[Any, ...]]]) -> None:
    result = json.loads((run / "result.json").read_text())
    if not result["complete"]:
        case.faults.append("the run is not complete")
    found, case.lost = essence(run), len(lost(run, notes()))
    if case.lost > 1:
        case.faults.append(f"{case.lost} evaluations ended without a record")
    disturbed = 0
    for agent, (mine, its) in enumerate(zip(found, expected, strict=True)):
        keys = [e[:2] for e in mine]
        begun = Counter((r["round"], r["play"]) for r in fault_kit.records(run, agent, "begun"))
        if len(set(keys)) != len(keys) or any(count > 2 for count in begun.values()):
            case.faults.append("an evaluation was made too often")
        if set(begun) != set(keys):
            case.faults.append("an evaluation that was begun has no record")
        if mine == its:
            continue
        disturbed += 1
        # A round was left out while the last one was made again; up to there all is the same.
        left_out = sorted({e[:2] for e in its} - set(keys))
        upto = [e for e in its if e[:2] < left_out[0]] if left_out else its
        if len(left_out) != 1 or mine[: len(upto)] != upto:
            case.faults.append(f"agent {agent} did other than to leave out a round")
    if disturbed > 1:
        case.faults.append("other agents were disturbed")


COLUMNS: dict[str, Callable[[Selection], list[Case]]] = {
    "asynchronous": asynchronous, "pool's worker": pool_workers, "pool's host": pool_hosts,
}  # fmt: skip

if FAULT in os.environ and getattr(sys.modules["__main__"].__spec__, "name", "") == (
    "flwr_fbo.clients.worker"
):
    _break_myself()
