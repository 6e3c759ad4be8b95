"""The part of faults.py that is about asynchronous agents: their workers, and who starts them.

A worker is a process of its own, and this module is what it imports to find its task: where
the environment says so, it then breaks itself, once in a run. Nobody is resumed: the run goes
on. These things must hold, besides those of faults.py for the steps of whoever starts workers:

1. the run completes, and what the dead worker was asked for is done after all;
2. no evaluation is recorded twice, and none is begun more than twice;
3. at most one evaluation that ended has no record, the one that the fault hit;
4. the other agents' evaluations are those of an undisturbed run, and so are the broken
   agent's up to the one that was made again (then it is a round behind).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import faults
from faults import AGENTS, ASYNCHRONOUS, Case, Step

from flwr_fbo.core.space import Float
from flwr_fbo.simulation.simulate import simulate_run
from flwr_fbo.tasks import task

#: Which worker breaks, where and when: JSON.
FAULT = "FLWR_FBO_WORKER_FAULT"

#: Of the process that asks for an evaluation; killed and resumed as in faults.py.
STARTING = [
    Step("before a job is written", "flwr_fbo.clients.background:JobRecord.save", "before"),
    Step("a job written, no worker yet", "flwr_fbo.clients.background:JobRecord.save", "after"),
    Step("in the middle of a job", "flwr_fbo.runs.files.atomic:np.savez", "half"),
    Step("a worker started, no answer yet", "flwr_fbo.clients.background:_start_worker", "after"),
    Step(
        "answered beside a worker", "flwr_fbo.clients.tuning_client:TuningClient._answer", "after"
    ),
]
#: Of the worker.
WORKING = [
    Step("worker: before its work", "flwr_fbo.methods.thompson.agent:ThompsonAgent.work", "before"),
    Step("worker: before an evaluation", "flwr_fbo.core.evaluation:Evaluator._score", "before"),
    Step("worker: evaluated, not recorded", "flwr_fbo.core.evaluation:Evaluator._score", "after"),
    Step("worker: in the middle of a record", "flwr_fbo.runs.files.journal:_write_all", "half"),
    Step("worker: recorded", "flwr_fbo.runs.files.journal:Journal.append", "after"),
    Step("worker: after its work", "flwr_fbo.methods.thompson.agent:ThompsonAgent.work", "after"),
    Step("worker: disk full", "flwr_fbo.runs.files.journal:_write_all", "full"),
]
STEPS = [*STARTING, *WORKING]


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def hill(params: Any, partition: Any) -> float:
    """The same task, in a module that breaks the worker which imports it."""
    return faults.climb(params, partition)


def _break_myself() -> None:
    """In a worker: install the fault, unless it is another worker's or has happened."""
    faults.note("worker")
    said = faults.notes()
    planned = json.loads(os.environ[FAULT])
    if "killed" in said or "failed" in said or said.count("worker") <= planned["skip"]:
        return
    step = Step(planned["name"], planned["where"], planned["when"])
    faults.install(step, planned["number"])


def settings() -> dict[str, Any]:
    return {**faults.settings_of(ASYNCHRONOUS), "task": "worker_faults:hill"}


def _start(run: Path) -> None:
    logging.disable()
    simulate_run(settings(), "inline", run)


def try_worker(step: Step, skip: int, number: int, expected: list[list[tuple[Any, ...]]]) -> Case:
    """Break the worker that follows the first so many, at the n-th call of the step."""
    case = Case(step, ASYNCHRONOUS, number)
    with faults.folder() as here:
        plan = {**vars(step), "skip": skip, "number": number}
        os.environ[FAULT] = json.dumps(plan)
        try:
            code, said = faults.in_child(lambda: _start(here / "run"))
        finally:
            del os.environ[FAULT]
        case.reached = bool({"killed", "failed"} & set(faults.notes()))
        if code != 0:
            case.faults.append(f"ended with {code}: {said}")
        elif case.reached:
            _check(case, here / "run", expected)
    return case


def _check(case: Case, run: Path, expected: list[list[tuple[Any, ...]]]) -> None:
    result = json.loads((run / "result.json").read_text())
    if not result["complete"]:
        case.faults.append("the run is not complete")
    found = faults.essence(run)
    recorded = sum(map(len, found))
    ended = sum(word.startswith("end") for word in faults.notes())
    if not 0 <= ended - recorded <= 1:
        case.faults.append(f"{ended} evaluations ended, {recorded} are recorded")
    disturbed = 0
    for agent, (mine, its) in enumerate(zip(found, expected, strict=True)):
        keys = [e[:2] for e in mine]
        begun = Counter((r["round"], r["play"]) for r in faults.records(run, agent, "begun"))
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


def matrix(quick: bool, only: str) -> list[Case]:
    """Every step, in the first request (of several points) and in a later one."""
    numbers = (2,) if quick else (1, 2, 5)
    starting = [s for s in STARTING if "no worker yet" in s.name or not quick]
    expected = faults.undisturbed(ASYNCHRONOUS)
    cases = faults.matrix(numbers, only, [ASYNCHRONOUS], starting, expected)
    places = [(1, 1)] if quick else [(0, 1), (1, 2), (AGENTS + 1, 1)]
    for step in WORKING:
        if (only in step.name or only in ASYNCHRONOUS) and not (quick and step.when != "half"):
            cases += [try_worker(step, skip, number, expected[0]) for skip, number in places]
    return cases


if FAULT in os.environ and getattr(sys.modules["__main__"].__spec__, "name", "") == (
    "flwr_fbo.clients.worker"
):
    _break_myself()
