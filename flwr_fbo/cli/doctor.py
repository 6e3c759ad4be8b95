"""The command ``flwr-fbo doctor``: what will not work on this machine, and why."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Literal

import typer

from flwr_fbo.cli.common import FAILED, in_terminal, user_errors
from flwr_fbo.core.children import processors

#: Packages of extras: what does not work without each, and the extra that installs it.
OPTIONAL = {
    "ray": ("the engine ray, Flower's own for simulations, does not run", "simulation"),
    "optuna": (
        "the baseline tpe, `flwr-fbo export` and the sampler for Optuna do not run",
        "optuna",
    ),
    "torch": ("the networks of the tasks emnist and mnist do not run", "torch"),
}
#: Programs of Flower, and what needs each.
PROGRAMS = {
    "flwr": "`flwr run` needs it",
    "flower-superlink": "`flwr run` and the server of a deployment need it",
    "flower-supernode": "the parties of a deployment need it",
}
#: Free bytes below which a run may fill the disk.
ROOM = 200 * 2**20
#: Seconds by which a clock may differ: of a disk from ours, and of two machines of a deployment.
CLOCK = 2.0
#: Seconds that Flower may take to list the nodes of a SuperLink.
NODES_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """What one check found.

    ``state`` is ok, note (something optional is missing) or FAIL (runs will not work).
    """

    topic: str
    state: Literal["ok", "note", "FAIL"]
    text: str


def doctor(
    superlink: Annotated[
        str,
        typer.Option(
            help="Name of a SuperLink connection, as for `flwr run . NAME`, to list nodes."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Check this machine: versions, nodes, data, disk and clock, and say what will not work.

    Exits with 1 if runs will not work.

    Example: flwr-fbo doctor
    """
    with user_errors():
        found = [
            *_versions(), *_programs(), *_nodes(superlink), *_data(), *_disk(), *_clock(),
            *_entropy(),
        ]  # fmt: skip
        if as_json:
            print(json.dumps([asdict(finding) for finding in found]))
        else:
            for f in found:
                print(in_terminal(f"{f.state:<5} {f.topic:<9} {f.text}", 16))
        if any(f.state == "FAIL" for f in found):
            raise typer.Exit(FAILED)


def _versions() -> Iterator[Finding]:
    """Yield a finding for Python, for each package that is needed, and for those of extras."""
    from packaging.requirements import Requirement

    yield Finding("versions", "ok", f"Python {platform.python_version()}, {platform.platform()}")
    for line in requires("flwr-fbo") or []:
        need = Requirement(line)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(need.name)
        except PackageNotFoundError:
            yield Finding("versions", "FAIL", f"{need.name} is missing: pip install '{line}'")
            continue
        good = need.specifier.contains(installed, prereleases=True)
        wish = "" if good else f", but {need.name}{need.specifier} is needed"
        yield Finding("versions", "ok" if good else "FAIL", f"{need.name} {installed}{wish}")
    for name, (use, extra) in OPTIONAL.items():
        try:
            yield Finding("versions", "ok", f"{name} {version(name)}")
        except PackageNotFoundError:
            how = f"pip install 'flwr-fbo[{extra}]'"
            yield Finding("versions", "note", f"{name} is missing: {use}. To install it: {how}")


def _programs() -> Iterator[Finding]:
    """Yield a finding for each program of Flower, which `flwr run` starts by its name."""
    for program, use in PROGRAMS.items():
        if shutil.which(program):
            yield Finding("flower", "ok", f"{program} is on the PATH")
        else:
            yield Finding(
                "flower", "note", f"{program} is not on the PATH, and {use}: activate the "
                "environment, or add its bin folder to the PATH"
            )  # fmt: skip


def _nodes(superlink: str) -> Iterator[Finding]:
    """Yield how many nodes this machine can simulate, and those of a SuperLink if one is named."""
    cores = processors()
    yield Finding("nodes", "ok", f"{cores} processors: {cores} agents of a simulation at a time")
    if not superlink:
        return
    command = ["flwr", "supernode", "list", superlink, "--format", "json"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=NODES_SECONDS, check=False
        )
        nodes = json.loads(done.stdout).get("nodes", [])
        online = sum(str(node.get("status", "")).lower() == "online" for node in nodes)
        state: Literal["ok", "note"] = "ok" if online else "note"
        yield Finding(
            "nodes", state, f"{superlink}: {online} of {len(nodes)} SuperNodes are online"
        )
    except (OSError, ValueError, AttributeError, subprocess.TimeoutExpired) as error:
        why = str(error) if isinstance(error, OSError) else "no answer that can be read"
        text = f"{superlink}: its nodes cannot be listed ({why}). Try: {' '.join(command)}"
        yield Finding("nodes", "FAIL", text)


def _data() -> Iterator[Finding]:
    """Yield a finding for each built-in task whose data are not here."""
    from flwr_fbo.tasks.listing import catalogue

    rows = catalogue("")
    yield Finding(
        "data", "ok", "data are here for: " + ", ".join(r["name"] for r in rows if r["present"])
    )
    for row in rows:
        if row["problem"]:
            yield Finding("data", "note", f"{row['name']} cannot be imported: {row['problem']}")
    absent = [row["name"] for row in rows if not row["present"] and not row["problem"]]
    if absent:
        text = f"not here: {', '.join(absent)}; `flwr-fbo data` says how to get them"
        yield Finding("data", "note", text)


def _disk() -> Iterator[Finding]:
    """Yield whether runs can write where they keep their files, and how much room there is."""
    from flwr_fbo.runs.locations import home

    for what, place in (("this directory", Path.cwd()), ("the home of runs", home())):
        existing = next(p for p in (place, *place.parents) if p.exists())
        try:
            with tempfile.NamedTemporaryFile(dir=existing) as file:
                file.write(b"x")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            text = f"{what}, {place}, cannot be written: {error.strerror}"
            yield Finding("disk", "FAIL", text)
            continue
        free = shutil.disk_usage(existing).free
        state: Literal["ok", "FAIL"] = "ok" if free >= ROOM else "FAIL"
        few = "" if free >= ROOM else f", but {ROOM / 2**20:.0f} MiB are needed"
        yield Finding("disk", state, f"{what}, {place}: {free / 2**30:.1f} GiB free{few}")


def _clock() -> Iterator[Finding]:
    """Yield whether the clock agrees with the disk's, and whether it is set by the network."""
    with tempfile.NamedTemporaryFile(dir=Path.cwd() if os.access(".", os.W_OK) else None) as file:
        file.write(b"x")
        file.flush()
        skew = Path(file.name).stat().st_mtime - time.time()
    if abs(skew) > CLOCK:
        text = (
            f"the disk's clock differs by {skew:.0f} s: messages of a deployment may expire early"
        )
        yield Finding("clock", "note", text)
    if not shutil.which("timedatectl"):
        text = "it is not known whether the network sets the clock; clocks of parties must agree"
        yield Finding("clock", "ok", text)
        return
    command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    set_by_network = done.stdout.strip() == "yes"
    if set_by_network:
        yield Finding("clock", "ok", "the clock is set by the network")
        return
    text = (
        "the clock is not set by the network: messages of a deployment expire by the clock, so the "
        "clocks of all parties must agree within seconds"
    )
    yield Finding("clock", "note", text)


def _entropy() -> Iterator[Finding]:
    """Yield whether the operating system gives entropy, from which privacy noise is drawn."""
    try:
        os.urandom(32)
        yield Finding("entropy", "ok", "the operating system gives entropy for privacy noise")
    except NotImplementedError:
        yield Finding("entropy", "FAIL", "there is no entropy: private runs cannot draw noise")
