"""What the fault matrix is made of: a task that writes down its evaluations, and broken functions.

A *step* is a call of one function of the package at which a process dies or a write fails
(:func:`install`). Two files beside the run are the truth that its records are compared with: the
*notes*, to which the objective and the faults append one line each, and a mark that the fault has
happened, as a process that takes the place of the dead one must not die as well.

A process that is forked inherits its broken function. Workers of Ray and Flower's own processes
are started anew: they import this module to find their task, and it follows a *plan* then, a file
that the environment names (:func:`write_plan`).
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flwr_fbo.clients.background import has_worker
from flwr_fbo.core.evaluation_groups import GROUP_SECONDS
from flwr_fbo.core.space import Float
from flwr_fbo.runs.files.journal import Journal, journal_path
from flwr_fbo.runs.files.simulation_store import SimulationStore
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.locations import has_store
from flwr_fbo.tasks import task

AGENTS = 3
#: Where the objective and the faults write down what really happened.
NOTES = "FLWR_FBO_FAULT_NOTES"
#: The file that says which of the processes that are started anew breaks, and where.
PLAN = "FLWR_FBO_FAULT_PLAN"
#: The party whose messages a process of Flower's answers.
PARTY = "FLWR_FBO_FAULT_PARTY"
#: Programs that follow a plan: a worker of Ray, and two of Flower's processes.
RAY_WORKER, SERVER_APP, CLIENT_APP = "default_worker.py", "flwr-serverapp", "flwr-clientapp"
#: Seconds of an evaluation of the slow task, which are more than any group of evaluations takes.
SLOW = 1.2 * GROUP_SECONDS
#: Who is killed: the simulation, the host of its pool, or whoever reaches the step.
SIMULATION, HOST, ITSELF = "simulation", "host", "itself"


# -- the task ----------------------------------------------------------------------------------


def climb(params: Any, partition: Any, seconds: float = 0.0) -> float:
    """Return the height at a point, after so many seconds, and note that it was measured."""
    began = time.perf_counter()
    time.sleep(seconds)
    height = float(1.0 - (params["x"] - 0.3 - 0.05 * partition.index) ** 2)
    note(f"end {partition.index} {params['x']!r} {time.perf_counter() - began}")
    return height


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def hill(params: Any, partition: Any) -> float:
    return climb(params, partition)


@task(space={"x": Float(0.0, 1.0)}, metric="height")
def slow_hill(params: Any, partition: Any) -> float:
    return climb(params, partition, SLOW)


# -- what really happened ----------------------------------------------------------------------


def note(word: str) -> None:
    descriptor = os.open(Path(os.environ[NOTES]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{word}\n".encode())
    os.close(descriptor)


def notes() -> list[str]:
    return Path(os.environ[NOTES]).read_text().splitlines()


def is_first() -> bool:
    """Whether the fault of this case has not happened yet; it has happened after this call."""
    try:
        os.close(os.open(os.environ[NOTES] + ".mark", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Yield an empty folder, which holds the notes of a case and its plan."""
    with tempfile.TemporaryDirectory() as name:
        os.environ[NOTES] = str(Path(name) / "notes")
        os.environ[PLAN] = str(Path(name) / "plan")
        Path(os.environ[NOTES]).touch()
        yield Path(name)


def ends(said: list[str]) -> list[tuple[tuple[int, float], float]]:
    """The evaluations that ended: agent and point, and the seconds of each."""
    words = [word.split() for word in said if word.startswith("end")]
    return [((int(agent), float(x)), float(seconds)) for _, agent, x, seconds in words]


# -- faults ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A function of the protocol, and how to die there."""

    name: str
    where: str  # module:attribute path
    when: str  # before, after, half, full, read-only
    of: str = ""  # the name of the file that the first argument must be


@dataclass
class Case:
    """One fault in one strategy, and what did not hold."""

    step: Step
    strategy: str
    number: int
    #: The column of the table: the engine, or what was killed.
    column: str
    reached: bool = True
    lost: int = 0  # how many evaluations had ended and were not recorded
    faults: list[str] = field(default_factory=list)


def install(
    step: Step, number: int, victim: str = SIMULATION, simulation: int = 0, of_all: bool = False
) -> None:
    """Break the n-th call of a function that a process makes, once in a run.

    The simulation calls this before it forks the host of a pool, and the workers inherit it. A
    process that was started anew says which process the simulation is. With ``of_all`` the calls
    of all processes count together that install this fault, of which one at a time is at work.
    """
    owner, name = _place(step)
    simulation = simulation or os.getpid()
    pids = {SIMULATION: lambda: simulation, HOST: os.getppid, ITSELF: os.getpid}
    plain = getattr(owner, name)
    kept = owner.__dict__.get(name) if isinstance(owner, type) else None
    calls = [0]

    def faulty(*args: Any, **named: Any) -> Any:
        if args and isinstance(args[-1], bytes) and not args[-1].strip():
            return plain(*args, **named)  # a journal making sure of room
        if step.of and Path(args[0]).name != step.of:
            return plain(*args, **named)
        calls[0] += 1
        if of_all:
            note("call")
            calls[0] = notes().count("call")
        if calls[0] != number or not is_first():
            return plain(*args, **named)
        if step.when in ("full", "read-only"):
            _fail_to_write(step, plain, args)
        if step.when == "half":
            _half(plain, args)
        if step.when == "after":
            plain(*args, **named)
        _kill(pids[victim]())
        raise AssertionError("a process that was killed goes on")

    setattr(owner, name, staticmethod(faulty) if isinstance(kept, classmethod) else faulty)


def write_plan(
    step: Step, number: int, program: str, victim: str = ITSELF, party: int | None = None
) -> None:
    """Let a program break at a step once it imports its task; of a party's processes, its own."""
    plan = {
        "step": asdict(step), "number": number, "victim": victim, "simulation": os.getpid(),
        "program": program, "party": "" if party is None else str(party),
        "notes": os.environ[NOTES],
    }  # fmt: skip
    path = Path(os.environ[PLAN])
    path.with_suffix(".new").write_text(json.dumps(plan))
    path.with_suffix(".new").replace(path)


def follow_plan() -> None:
    """Break this process as the plan says, if it is one that the plan is for."""
    program, path = Path(sys.argv[0]).name, Path(os.environ[PLAN])
    if program not in (RAY_WORKER, SERVER_APP, CLIENT_APP):
        return
    count_releases()
    if not path.exists():
        return  # it is the simulation that breaks
    plan = json.loads(path.read_text())
    os.environ[NOTES] = plan["notes"]
    if plan["program"] == program and plan["party"] in ("", os.environ.get(PARTY)):
        install(
            Step(**plan["step"]), plan["number"], plan["victim"], plan["simulation"],
            of_all=program == CLIENT_APP,
        )  # fmt: skip


def _place(step: Step) -> tuple[Any, str]:
    """The module or class of a step's function, and the function's name."""
    module, _, path = step.where.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for attribute in owners:
        owner = getattr(owner, attribute)
    return owner, name


def _kill(pid: int) -> None:
    """Kill a process; where that is another one, this one waits until it ends with it."""
    note("killed")
    os.kill(pid, signal.SIGKILL)
    time.sleep(60.0)


def _fail_to_write(step: Step, plain: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Write half, and raise what a full or a read-only disk raises."""
    note("failed")
    if step.when == "full":
        with contextlib.suppress(Exception):
            _half(plain, args)
    code = errno.ENOSPC if step.when == "full" else errno.EROFS
    raise OSError(code, os.strerror(code))


def _half(plain: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Do half of a write."""
    *target, data = args
    if isinstance(data, bytes):
        plain(*target, data[: len(data) // 2])
    else:  # np.savez(file, ...)
        args[0].write(b"PK\x03\x04 half a checkpoint")
        args[0].flush()


def count_releases() -> None:
    """Note every noise that is drawn: the truth that ledgers must not be below."""
    from flwr_fbo.methods.ldp import agent
    from flwr_fbo.privacy import mechanisms

    draw, answer = mechanisms.GaussianSum.release, agent._reply

    def drawn(*args: Any, **named: Any) -> Any:
        note("release")
        return draw(*args, **named)

    def left(reward: float) -> Any:
        note(f"left {reward}")  # an answer that is given twice is one answer
        return answer(reward)

    mechanisms.GaussianSum.release = drawn  # type: ignore[method-assign]
    agent._reply = left


def in_child(work: Callable[[], None]) -> tuple[int, str]:
    """Run in a forked process: how it ended, and what it said when it failed.

    Waits for all processes that this process forks, too.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.close(reading)
            work()
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode()[:4000])
            code = 1
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as said:
        text = said.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), text


def say_nothing() -> None:
    """Let this process and those that it starts print nothing, as Ray tells of dead workers."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def idle(run: Path) -> None:
    """Wait until no worker is at work, as one may be that outlived what started it."""
    while any(has_worker(path) for path in (run / "agents").glob("agent-????.jsonl")):
        time.sleep(0.02)


# -- what is recorded --------------------------------------------------------------------------


def records(run: Path, agent: int, kind: str = "evaluation") -> list[dict[str, Any]]:
    if has_store(run / "agents"):
        return SimulationStore(run / "agents", None, reading=True).records(agent).read(kind)
    return Journal(journal_path(run / "agents", agent), reading=True).read(kind)


def essence(run: Path) -> list[list[tuple[Any, ...]]]:
    """The evaluations of each agent: round, play, point and score."""
    histories = read_evaluations(run / "agents", AGENTS)
    return [[(e.round, e.play, tuple(e.unit), e.score) for e in history] for history in histories]


def lost(run: Path, said: list[str]) -> list[float]:
    """The seconds of each evaluation that ended and has no score in the records."""
    histories = read_evaluations(run / "agents", AGENTS)
    scored = Counter(
        (agent, e.params["x"])
        for agent, history in enumerate(histories)
        for e in history
        if e.score is not None
    )
    left = []
    for point, seconds in ends(said):
        if scored[point]:
            scored[point] -= 1
        else:
            left.append(seconds)
    return left


def are_too_many(seconds: list[float], processes: int = 1) -> bool:
    """Whether a kill lost more evaluations than it may.

    It may lose the one under way in each process, and before it quick ones that are recorded
    together, and that took .05 s in all.
    """
    quick = sorted(seconds)[: max(0, len(seconds) - processes)]
    return sum(quick) > processes * GROUP_SECONDS


def charges(run: Path) -> int:
    """How many charges all ledgers of a run hold, and answers that journals charge for."""
    ledgers = [run / "ledger.jsonl", *(run / "agents").glob("*.privacy.jsonl")]
    answers = sum(len(records(run, agent, "ldp-answer")) for agent in range(AGENTS))
    return answers + sum(path.read_text().count('"event"') for path in ledgers if path.exists())


def drawn(said: list[str]) -> int:
    """How many releases were drawn, or left an agent."""
    return said.count("release") + len({word for word in said if word.startswith("left")})


# -- processes that are left -------------------------------------------------------------------


def started_with(words: str) -> list[int]:
    """The living processes whose environment holds these words, as far as Linux says."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if words.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def end_left(words: str, seconds: float = 30.0) -> int:
    """End the processes of Ray that are left, and return how many of them should have ended.

    A worker ends with its simulation. Ray's own helpers may notice only after a minute that it is
    gone.
    """
    deadline = time.monotonic() + seconds
    while (workers := _workers_of_ray(words)) and time.monotonic() < deadline:
        time.sleep(0.1)
    while left := started_with(words):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    return len(workers)


def _workers_of_ray(words: str) -> list[int]:
    """The workers, idle or not, among the processes whose environment holds these words."""
    found = []
    for pid in started_with(words):
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            found += [pid] * title.startswith((b"ray::ClientAppActor", b"ray::IDLE"))
    return found


if PLAN in os.environ:
    follow_plan()
