"""Flower's own processes on loopback, started and stopped by the tests that need them.

All limits of time are far above what a busy machine needs: they end a test that would never end.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
#: Whether a SuperLink has one port for everything. Before, `flwr run`, SuperNodes and ServerApps
#: each had a port of their own, and nothing was installed unless that was asked for.
ONE_PORT = find_spec("flwr.supercore.task_identity") is not None


#: Neither Ray's own ports nor those that a system gives to connections, which could take one that
#: was free a moment ago. Every process starts elsewhere, so that test workers do not meet.
PORTS = range(20_000, 32_000)
_numbers = itertools.count(os.getpid() * 1009)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that were not returned before."""
    candidates = (PORTS[number % len(PORTS)] for number in itertools.islice(_numbers, len(PORTS)))
    found = list(itertools.islice(filter(_is_free, candidates), count))
    assert len(found) == count, f"{count} ports of {PORTS} must be free, but got {found}"
    return found


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


#: Flower's command for a message, but for what it imports and never uses: Flower has it import the
#: SuperNode's command beside it, with its databases, which take half of the CPU time of a message.
CLIENT_APP = f"""#!{sys.executable}
import sys, types

sys.modules["flwr.supernode.cli.flower_supernode"] = types.ModuleType("left_out")
sys.modules["flwr.supernode.cli.flower_supernode"].flower_supernode = None

from flwr.supernode.cli import flwr_clientapp

flwr_clientapp()
"""


@dataclass
class Link:
    """A SuperLink's notes of nodes and runs, read from its database."""

    database: Path

    def execute(self, statement: str, *values: Any) -> list[Any]:
        connection = sqlite3.connect(self.database, timeout=60.0)
        try:
            with connection:
                return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    def online(self) -> set[int]:
        online = "SELECT node_id FROM node WHERE status = 'online' AND online_until > ?"
        return {node for (node,) in self.execute(online, time.time())}

    def forget(self, node: int) -> None:
        """Let the SuperLink notice now that a node is dead, and not after a minute."""
        self.execute("UPDATE node SET online_until = ? WHERE node_id = ?", time.time(), node)

    def ended(self, count: int) -> bool:
        """Return whether so many runs have ended, in whatever way."""
        primary = "SELECT count(*) FROM run JOIN task ON task_id = primary_task_id "
        ((ended,),) = self.execute(primary + "WHERE finished_at IS NOT NULL")
        return int(ended) >= count


@dataclass
class Flower:
    """A Flower home of its own, and the processes started in it."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: The address that SuperNodes connect to, where it is not that of `flwr run`.
    fleet: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    #: Whether the processes for messages import no more than they need (`CLIENT_APP`).
    quick: bool = False

    def __post_init__(self) -> None:
        (self.folder / "home").mkdir()
        (self.folder / "bin").mkdir()
        if self.quick:
            client_app = self.folder / "bin" / "flwr-clientapp"
            client_app.write_text(CLIENT_APP)
            client_app.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_FBO_HOME": str(self.folder / "fbo"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": os.pathsep.join([str(self.folder / "bin"), str(BIN), os.environ["PATH"]]),
            # Tasks of a test's own, and this checkout before any that is installed.
            "PYTHONPATH": f"{self.folder}{os.pathsep}{REPOSITORY}",
            "OMP_NUM_THREADS": "1",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            **self.variables,
        }

    def connect(self, name: str, port: int, options: str = "insecure = true") -> None:
        """Let `flwr run . NAME` find a SuperLink."""
        text = f'[superlink]\ndefault = "{name}"\n[superlink.{name}]\n'
        text += f'address = "127.0.0.1:{port}"\n{options}\n'
        (self.folder / "home" / "config.toml").write_text(text)

    def start(
        self, *command: str, port: int | None = None, wait: float = 600.0
    ) -> subprocess.Popen[bytes]:
        """Start a process; with a port, wait until it listens there."""
        program = command[0] if "/" in command[0] else str(BIN / command[0])
        name = f"{len(self.processes)}-{Path(program).name}.log"
        log = (self.folder / name).open("wb")
        process = subprocess.Popen(
            [program, *command[1:]],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self.environment,
            cwd=self.folder,
        )
        log.close()
        self.processes.append(process)
        deadline = time.monotonic() + wait
        while port is not None and not _listens(port):
            assert process.poll() is None, f"{command[0]} ended early: {self.logs()}"
            assert time.monotonic() < deadline, f"{command[0]} does not listen: {self.logs()}"
            time.sleep(0.2)
        return process

    @property
    def link(self) -> Link:
        """The notes of the SuperLink that :meth:`superlink` started, of the newest Flower."""
        return Link(self.folder / "superlink.db")

    def superlink(self, port: int) -> subprocess.Popen[bytes]:
        """A SuperLink on loopback without TLS, which `flwr run . dep` finds."""
        options = ["--disable-runtime-dependency-installation"]
        options += ["--host", "127.0.0.1", "--port", str(port)]
        options += ["--database", str(self.link.database)]
        if not ONE_PORT:
            fleet, io = free_ports(2)
            self.fleet = f"127.0.0.1:{fleet}"
            options = ["--control-api-address", f"127.0.0.1:{port}"]
            options += ["--fleet-api-address", self.fleet]
            options += ["--serverappio-api-address", f"127.0.0.1:{io}"]
        process = self.start("flower-superlink", "--insecure", *options, port=port)
        self.connect("dep", port)
        return process

    def supernode(
        self, link: int, port: int, config: str, *variables: str
    ) -> subprocess.Popen[bytes]:
        """A SuperNode of such a SuperLink, with a node-config and variables of its own."""
        own = ["--port", str(port)]
        if not ONE_PORT:
            own = ["--clientappio-api-address", f"127.0.0.1:{port}"]
        return self.start(
            "/usr/bin/env", *variables, str(BIN / "flower-supernode"), "--insecure",
            "--superlink", self.fleet or f"127.0.0.1:{link}", *own, "--node-config", config,
        )  # fmt: skip

    def command(self, *command: str, timeout: float = 900.0) -> str:
        """A command of Flower's (or a script) to its end; its output."""
        program = command[0] if "/" in command[0] else str(BIN / command[0])
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def shell(self, lines: str, timeout: float = 900.0) -> str:
        """Lines as somebody types them, until one fails; their output."""
        return self.command("/usr/bin/env", "bash", "-e", "-c", lines, timeout=timeout)

    def run(self, *arguments: str, timeout: float = 1800.0, app: Path = REPOSITORY) -> str:
        """`flwr run` to its end; its whole output."""
        done = subprocess.run(
            [str(BIN / "flwr"), "run", str(app), *arguments, "--stream"],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=timeout,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        return output

    def status(self, name: str) -> str:
        """How the last run ended: `flwr run` itself exits 0 also when the run failed."""
        listing = subprocess.run(
            [str(BIN / "flwr"), "list", name, "--format", "json"],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=600,
            check=True,
        )
        return str(json.loads(listing.stdout)["runs"][0]["status"])

    def run_directories(self) -> list[Path]:
        return sorted((self.folder / "fbo" / "runs").iterdir())

    def log(self, process: subprocess.Popen[bytes]) -> str:
        """What one of the processes has said."""
        (path,) = self.folder.glob(f"{self.processes.index(process)}-*.log")
        return path.read_text(errors="replace")

    def until(
        self, condition: Callable[[], bool], seconds: float = 900.0, every: float = 0.1
    ) -> None:
        """Wait for something that processes do; what they have said if it does not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(every)

    def until_finished(self, link: Link, runs: int = 1) -> None:
        """Wait until so many runs have ended, in whatever way."""
        # Flower's own commands start a process for each look, whose CPU time the run needs as well.
        self.until(lambda: link.ended(runs))

    def logs(self) -> str:
        return "\n".join(p.read_text(errors="replace")[-3000:] for p in self.folder.glob("*.log"))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)
        # A SuperLink that a test kills leaves its ServerApp behind, which waits for it for ever.
        deadline = time.monotonic() + 60.0
        while left := self.left():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline, f"the processes {left} do not end"
            time.sleep(0.05)

    def left(self) -> list[int]:
        """The living processes that were started with this Flower home, as far as Linux says."""
        mark, found = f"FLWR_HOME={self.folder / 'home'}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found


@contextlib.contextmanager
def flower(folder: Path, quick: bool = False) -> Iterator[Flower]:
    """Flower processes that end with the block."""
    running = Flower(folder, quick=quick)
    try:
        yield running
    finally:
        running.stop()


def _listens(port: int) -> bool:
    with contextlib.closing(socket.socket()) as s:
        return s.connect_ex(("127.0.0.1", port)) == 0
