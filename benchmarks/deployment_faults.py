"""The part of faults.py that disturbs a deployment: a SuperLink and three SuperNodes on loopback.

Flower's processes are started anew for every run and every message, and break themselves as a plan
says (fault_kit.py). One deployment serves all cases; each case is a run with a name of its own.

The *ServerApp* is killed at the steps of the server. The run is then started again under its name,
as an operator does, until it has a result. No round ends before its replies, so what must hold is
all of faults.py, and nothing may be lost, as no agent is killed. Where its disk is full instead,
`flwr log` must name the file.

The *ClientApp* of party 1 is killed at the steps of an agent, and the run goes on. These things
must hold:

1. the run completes without being started again;
2. no evaluation is recorded twice, and none that was recorded is made again;
3. at most one evaluation that ended has no score: the one that the process was killed in, which
   counts as failed if party 1 is asked again;
4. releases are charged as in faults.py;
5. party 1's evaluations are those of an undisturbed run, but for rounds that it missed, up to the
   evaluation that failed. Those of the other parties are, too, where nothing is noisy.

After such a case party 1 has another SuperNode, as after a kill that a watchdog noticed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import faults
import worker_faults
from fault_kit import (
    AGENTS,
    CLIENT_APP,
    NOTES,
    PARTY,
    PLAN,
    SERVER_APP,
    Case,
    Step,
    charges,
    essence,
    lost,
    notes,
    write_plan,
)
from faults import Selection, Undisturbed
from ray_faults import AGENT, DISKS, ONCE, RELEASE, ROUND, WORKER

from benchmarks.soak import processes_below
from flwr_fbo.runs.history import read_evaluations
from tests.flower.processes import REPOSITORY, Flower, flower, free_ports

#: The party whose processes are killed.
BROKEN = 1
#: Seconds of a round: where the server is killed it lasts until all have replied, and otherwise
#: the others do not wait long for the party whose process is gone.
PATIENT, IMPATIENT = 600.0, 60.0
#: Seconds after which a run that has not ended never will.
FOREVER = 900.0
#: How often an operator starts a run: on a busy machine a SuperLink may give up a ServerApp that it
#: has not heard of for a minute.
MOST_STARTS = 5
#: Strategies with few rounds, as every message starts a process.
DEPLOYED = {f"{name}, deployed": name for name in ("dp-fts-de", "fts-de")}
faults.STRATEGIES |= {
    deployed: {**faults.STRATEGIES[name], "rounds": 2} for deployed, name in DEPLOYED.items()
}
faults.STRATEGIES["local-ts, deployed"] = {"strategy": "local-ts", "rounds": 3}
faults.STRATEGIES["fts, local budgets, deployed"] = {
    **faults.STRATEGIES["fts, local budgets"], "rounds": 3,
}  # fmt: skip
#: Keys of the app's run-config; all other settings are in its key `settings`.
OF_THE_RUN = ("task", "strategy", "agents", "rounds", "seed")


@dataclass
class Deployment:
    """A SuperLink and a SuperNode for each party."""

    running: Flower
    link: int
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    runs: int = 0

    def start(self) -> None:
        """Start the SuperLink and all SuperNodes."""
        self.running.superlink(self.link)
        self.nodes = [self._start_node(party) for party in range(AGENTS)]

    def replace_node(self) -> None:
        """Stop the SuperNode of the party whose process was killed, and start another one."""
        self.nodes[BROKEN].terminate()
        self.nodes[BROKEN].wait(120)
        self.nodes[BROKEN] = self._start_node(BROKEN)

    def _start_node(self, party: int) -> subprocess.Popen[bytes]:
        (port,) = free_ports(1)
        config = f"partition-id={party} num-partitions={AGENTS}"
        return self.running.supernode(self.link, port, config, f"{PARTY}={party}")

    def plan(self, case: Case, program: str, party: int | None = None) -> Path:
        """Let a program break in the next run, and return the directory of that run."""
        self.runs += 1
        name = f"run-{self.runs}"
        os.environ[NOTES] = str(self.running.folder / f"{name}.notes")
        os.environ[PLAN] = self.running.variables[PLAN]
        Path(os.environ[NOTES]).touch()
        write_plan(case.step, case.number, program, party=party)
        return self.running.folder / "fbo" / "runs" / name

    def submit(self, case: Case, run: Path, timeout: float) -> str:
        """Start the run, or start it again under its name; return what Flower calls this start."""
        settings = {**faults.settings_of(case.strategy)}
        words = [f"{key}={_quoted(settings.pop(key))}" for key in OF_THE_RUN]
        others = " ".join(f"{key}={value}" for key, value in settings.items())
        words += [f"settings='{others}'", f"timeout={timeout}", f"run-name='{run.name}'"]
        app, config = str(REPOSITORY), " ".join(words)
        said = self.running.command("flwr", "run", app, "dep", "--run-config", config)
        (number,) = re.findall(r"run (\d{5,})", said)
        return str(number)

    def await_end(self, run: Path, or_broken: bool = False) -> bool:
        """Wait until a run has a result, or until a process broke; return whether that came."""
        deadline = time.monotonic() + FOREVER
        while time.monotonic() < deadline:
            if (run / "result.json").exists() or (or_broken and is_broken()):
                return True
            time.sleep(0.5)
        print(self.running.logs(), file=sys.stderr)
        return False

    def await_end_as_operator(self, case: Case, run: Path) -> bool:
        """Start a run under its name, again where it is gone, and return whether it ended."""
        for _ in range(MOST_STARTS):
            self.submit(case, run, PATIENT)
            gone_since = time.monotonic()
            # A run takes a while from its command to its process.
            while time.monotonic() - gone_since < 30.0:
                if (run / "result.json").exists():
                    return True
                if processes_below(self.running.processes[0].pid, SERVER_APP):
                    gone_since = time.monotonic()
                time.sleep(1.0)
        print(self.running.logs(), file=sys.stderr)
        return False

    def check_log(self, case: Case, run: Path, number: str) -> None:
        """Check that the log of a run names a file that could not be written."""
        said = self.running.command("flwr", "log", number, "dep", "--show")
        if not re.search(rf"/{run.name}/\S+ .{{0,20}}could not be written", said):
            case.faults.append("no error names the file that could not be written")


def is_broken() -> bool:
    """Return whether the fault of the case has happened."""
    return not {"killed", "failed"}.isdisjoint(notes())


def _quoted(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def deployment(selection: Selection) -> list[Case]:
    """Kill ServerApps, whose runs are started again, and ClientApps, whose runs go on."""
    if selection.quick:
        return []  # a single case takes more than half a minute
    folder = Path(tempfile.mkdtemp(prefix="deployment-faults-"))
    try:
        with flower(folder, quick=True) as running:
            running.variables = {
                PLAN: str(folder / "plan"),
                "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{REPOSITORY}",
            }
            deployed = Deployment(running, *free_ports(1))
            deployed.start()
            return _cases(deployed, selection)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cases(deployed: Deployment, selection: Selection) -> list[Case]:
    """Try all steps, each at one of its calls."""
    first, second, third = (replace(selection, calls=(call,)) for call in (1, 2, 3))
    cases: list[Case] = []

    def add(name: str, steps: list[Step], selected: Selection, try_one: _Trial) -> None:
        def tried(case: Case, expected: Undisturbed) -> Case:
            tried = try_one(deployed, case, expected)
            print(f"deployment, {name}, {case.step.name}", file=sys.stderr, flush=True)
            return tried

        cases.extend(faults.try_steps("deployment", name, steps, selected, tried))

    add("dp-fts-de, deployed", [*ONCE, *RELEASE, *DISKS], first, try_server)
    add("dp-fts-de, deployed", [*ROUND[:4], ROUND[5], *ROUND[7:]], second, try_server)
    add("fts-de, deployed", [ROUND[1], ROUND[3]], second, try_server)
    add("local-ts, deployed", WORKER, third, try_client)
    add("fts, local budgets, deployed", AGENT[-1:], third, try_client)
    return cases


#: Tries a case in a deployment.
_Trial = Callable[[Deployment, Case, Undisturbed], Case]


def try_server(deployed: Deployment, case: Case, expected: Undisturbed) -> Case:
    """Break the ServerApp, start the run again, and check what became of it."""
    run = deployed.plan(case, SERVER_APP)
    number = deployed.submit(case, run, PATIENT)
    ended = deployed.await_end(run, or_broken=True)
    case.reached = is_broken()
    if case.reached:
        if "failed" in notes():
            deployed.running.until_finished("dep")
            deployed.check_log(case, run, number)
        ended = deployed.await_end_as_operator(case, run)
    if not ended:
        case.faults.append("the run did not end")
    elif case.reached:
        # Nothing was killed that evaluates, so nothing may be lost.
        faults.check(case, _result(run), run, [], False, expected)
    return case


def try_client(deployed: Deployment, case: Case, expected: Undisturbed) -> Case:
    """Kill a ClientApp, and check what became of the run."""
    run = deployed.plan(case, CLIENT_APP, BROKEN)
    deployed.submit(case, run, IMPATIENT)
    ended = deployed.await_end(run)
    case.reached = is_broken()
    if not ended:
        case.faults.append("the run did not end")
    elif case.reached:
        check_client(case, _result(run), run, expected)
        deployed.replace_node()
    return case


def _result(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run / "result.json").read_text())
    return result


def check_client(case: Case, result: dict[str, Any], run: Path, expected: Undisturbed) -> None:
    """Check a run that went on after the process of a party's message was killed."""
    if not result["complete"]:
        case.faults.append("the run is not complete")
    faults.check_books(case, result, run)
    case.lost = len(lost(run, notes()))
    if case.lost > 1:
        case.faults.append(f"{case.lost} evaluations were lost or made again")
    histories = read_evaluations(run / "agents", AGENTS)
    failures = [sum(e.failed for e in history) for history in histories]
    hit = case.step.where in (worker_faults.EVALUATION, worker_faults.WRITE, worker_faults.APPEND)
    if failures[BROKEN] > hit or sum(failures) > failures[BROKEN]:
        case.faults.append(f"{failures} evaluations failed")
    if charges(run):  # agents know what noise was added to, so no two runs are the same
        return
    for party, (mine, its) in enumerate(zip(essence(run), expected[0], strict=True)):
        if not (_same_until_missed(mine, its) if party == BROKEN else mine == its):
            case.faults.append(f"party {party} did other than in an undisturbed run")


def _same_until_missed(mine: list[tuple[Any, ...]], its: list[tuple[Any, ...]]) -> bool:
    """Whether a party did the same until the first evaluation that failed or was left out."""
    scored = {e[:2]: e for e in mine if e[-1] is not None}
    until = next((n for n, e in enumerate(its) if e[:2] not in scored), len(its))
    return until > 0 and all(scored[e[:2]] == e for e in its[:until])
