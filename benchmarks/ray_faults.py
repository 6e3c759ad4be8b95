"""The part of faults.py that disturbs simulations with Ray.

The *simulation* is killed at the steps of the server, and at the steps of an agent while its worker
is at that step. The run is resumed, with Ray again or with the engine `inline`, and what must hold
is checked as in faults.py. Besides, the workers of a simulation that was killed must have ended
after half a minute. Ray's own helpers may take a minute, and are ended here.

A *worker* of Ray is killed at the steps of an agent, and the simulation goes on: Ray starts another
worker, which answers the same message. What must hold is that of a pool (worker_faults.py).

Ray takes many seconds to start, so a step is tried at one of its calls.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import faults
import worker_faults
from fault_kit import SIMULATION, Case, Step
from faults import ROUNDS, Selection

EVALUATION, WRITE, APPEND = worker_faults.EVALUATION, worker_faults.WRITE, worker_faults.APPEND
CLIENT = "flwr_fbo.clients.tuning_client:TuningClient"
_KILLS = {step.name: step for step in faults.KILLS}
#: Of a server whose agents are asked by messages: only once in a run.
ONCE = [
    _KILLS["after the ledger is made"],
    Step(
        "after agents are registered",
        "flwr_fbo.strategies.registration:Registration._claims", "after",
    ),
]  # fmt: skip
#: In every round.
ROUND = [
    Step("before agents are asked", f"{ROUNDS}.messages", "before"),
    Step("while agents are at work", "flwr_fbo.strategies.replies:_Collector.collect", "before"),
    Step("after all agents have answered", f"{ROUNDS}._read", "before"),
    Step("after replies, before the round is closed", f"{ROUNDS}._read", "after"),
    _KILLS["before a checkpoint"],
    _KILLS["in the middle of a checkpoint"],
    _KILLS["before a checkpoint's rename"],
    _KILLS["after a checkpoint"],
    _KILLS["before the table of rounds is written"],
]
#: In every round that releases.
RELEASE = [
    _KILLS["before a charge"],
    _KILLS["in the middle of a charge's line"],
    _KILLS["after a charge, before its noise"],
    _KILLS["after the noise is drawn"],
]
#: Of the agent that answers a message.
AGENT = [
    Step("before an evaluation", EVALUATION, "before"),
    Step("after an evaluation", EVALUATION, "after"),
    Step("in the middle of a record", WRITE, "half"),
    Step("after an agent's record", APPEND, "after"),
    _KILLS["before an agent's reply"],
]
#: Of the worker that has a message.
WORKER = [
    Step("before a worker's job", f"{CLIENT}.fit", "before"),
    *AGENT,
    Step("after a worker's job", f"{CLIENT}.fit", "after"),
]
SERVER = [*ONCE, *ROUND, *RELEASE]
_DISKS = {step.name: step for step in faults.DISKS}
#: Of the server's disk.
DISKS = [_DISKS["disk full: charge"], _DISKS["disk full: checkpoint"]]


def ray(selection: Selection) -> list[Case]:
    """Kill simulations with Ray, which are resumed, and workers of simulations that go on."""
    if find_spec("ray") is None:
        return []
    first, second = replace(selection, calls=(1,)), replace(selection, calls=(2,))
    if selection.quick:
        return _simulations("dp-fts-de", RELEASE[2:3], first)
    return [
        *_simulations("dp-fts-de", ONCE, first),
        *_simulations("dp-fts-de", [*ROUND, *RELEASE, *DISKS], second),
        *_simulations("fts-de", [ROUND[1], ROUND[3], ROUND[7]], first),
        *_simulations("fts-de", AGENT, second, in_worker=True),
        *_workers("local-ts", WORKER, second),
        *_workers("fts, local budgets", WORKER, second),
    ]


def _simulations(
    name: str, steps: list[Step], selection: Selection, in_worker: bool = False
) -> list[Case]:
    """Kill the simulation, and resume the run."""
    return faults.try_steps(
        "ray", name, steps, selection,
        lambda case, expected: faults.try_case(case, "ray", expected, SIMULATION, in_worker),
    )  # fmt: skip


def _workers(name: str, steps: list[Step], selection: Selection) -> list[Case]:
    """Kill a worker of Ray; the run goes on."""
    return faults.try_steps(
        "ray", name, steps, selection,
        lambda case, expected: worker_faults.try_worker(case, expected, "ray"),
    )  # fmt: skip
