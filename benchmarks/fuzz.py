"""Feed the decoders what nobody would send: no crash but the declared errors, no hoarding.

    python benchmarks/fuzz.py TARGET [--runs 200000] [--seconds 300]
    python benchmarks/fuzz.py --list

Coverage-guided with atheris (`pip install atheris`, libFuzzer for Python), starting from valid
inputs. Targets: replies and instructions of the wire, search spaces, the ledger, journals,
checkpoints, run-configs and the job files of asynchronous agents. An exception that is not the
target's own, or more than 1 GiB of memory, ends the run with the input that caused it.
`tests/flower/test_fuzz.py` runs the same targets on mutated seeds in the suite.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_fbo import wire
from flwr_fbo.clients.background import JobError, JobRecord
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space, SpaceError
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.ledger import Ledger, LedgerError
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.atomic import write_arrays
from flwr_fbo.runs.files.checkpoint import Checkpoint
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal import Journal, JournalError
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.in_process_grid import InProcessGrid

HEADER = {"run": 1}
REQUEST = Request("step", 3, expects={"omega": (4,)})
SPACE = Space({"x": Float(0.0, 1.0), "n": Int(1, 9), "k": Categorical(("a", "b"))})


@cache
def scratch() -> Path:
    shared = Path("/dev/shm")
    folder = tempfile.mkdtemp(dir=shared if shared.is_dir() else None)
    InProcessGrid(None, 1)  # type: ignore[arg-type]  # sets the identity that messages need
    return Path(folder)


def _file(name: str, data: bytes) -> Path:
    path = scratch() / f"{os.getpid()}-{name}"
    path.write_bytes(data)
    return path


def _object(data: bytes) -> dict[str, Any]:
    """Bytes as a flat mapping, where they are JSON; a deep one would only test json."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def reply(data: bytes) -> None:
    """The first line is the metrics, the rest an array."""
    scratch()
    head, _, rest = data.partition(b"\n")
    metrics = {
        k: v for k, v in _object(head).items() if isinstance(v, (int, float, str))
        and not (isinstance(v, int) and not isinstance(v, bool) and abs(v) >= 2**63)
    }  # fmt: skip
    array = FlowerArray(dtype="", shape=(), stype="numpy.ndarray", data=rest)
    content = RecordDict(
        {
            wire.REPLY_PARAMETERS: ArrayRecord({"0": array}),
            wire.REPLY_EXAMPLES: MetricRecord({"num_examples": 1}),
            wire.REPLY_METRICS: ConfigRecord(metrics),
            wire.REPLY_STATUS: ConfigRecord({"code": 0, "message": ""}),
        }
    )
    for decode in (lambda m: wire.decode_reply(m, REQUEST), wire.decode_registration):
        try:
            decode(Message(content, 2, "train"))
        except wire.WireError:
            continue


def instruction(data: bytes) -> None:
    head, _, rest = data.partition(b"\n")
    parameters = [np.frombuffer(rest[: len(rest) // 8 * 8])] if rest else []
    try:
        wire.decode_instruction(parameters, _object(head))
    except wire.WireError:
        return


def space(data: bytes) -> None:
    try:
        Space.from_json(data.decode(errors="replace"))
    except SpaceError:
        return


def ledger(data: bytes) -> None:
    try:
        Ledger.resume(_file("ledger", data), HEADER).close()
    except LedgerError:
        return


def journal(data: bytes) -> None:
    path = _file("journal", data)
    try:
        Journal(path).append("evaluation", {"x": 1})
        assert Journal(path).read("evaluation")[-1] == {"x": 1}
    except JournalError:
        return


def checkpoint(data: bytes) -> None:
    try:
        Checkpoint(_file("checkpoint", data)).load()
    except RunDirectoryError:
        return


def job(data: bytes) -> None:
    """Bytes are a job's JSON, or else the whole file."""
    path = _file("job", data)
    if data.startswith(b"{"):
        write_arrays(path, {"state": np.frombuffer(data, dtype=np.uint8)})
    try:
        found = JobRecord.load(path)
    except JobError:
        return
    if found is not None:
        found.save(path)
        assert JobRecord.load(path) is not None


def config(data: bytes) -> None:
    path = _file("config.json", data)
    try:
        found = RunDirectory(path.parent).read_json(path.name)
        if isinstance(found, dict):  # a task of one's own would be imported: built-in ones only
            RunSpec.from_mapping({**found, "task": "synthetic", "points": 10})
    except (RunDirectoryError, SettingsError, SpaceError):
        return


def _valid_reply() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(4.0))
    return (
        json.dumps({"schema": 1, "round": 3, "declined": ""}).encode() + b"\n" + stream.getvalue()
    )


def _valid_instruction() -> bytes:
    content = wire.encode_request(Request("step", 3, {"p": 0.5}, {"a": np.ones(2)}), "digest")
    settings = dict(content.config_records[wire.CONFIG])
    return json.dumps(settings).encode() + b"\n" + np.ones(2).tobytes()


def _valid_setup() -> bytes:
    settings = {"schema": 1, "kind": "setup", "setup": "d", "round": -1, "agent-kind": "thompson",
                "space": SPACE.to_json(), "arrays": "a", "value.count": 3}  # fmt: skip
    return json.dumps(settings).encode() + b"\n" + np.ones(2).tobytes()


def _valid_ledger() -> bytes:
    path = scratch() / f"{os.getpid()}-valid-ledger"
    path.unlink(missing_ok=True)
    with Ledger.create(path, HEADER) as book:
        for t in range(2):
            book.charge(GaussianRelease(1.0, 0.5, t))
    return path.read_bytes()


def _valid_journal() -> bytes:
    path = _file("valid-journal", b"")
    book = Journal(path)
    for t in range(3):
        book.append("evaluation", {"round": t, "score": 0.5})
    return path.read_bytes()


def _valid_checkpoint() -> bytes:
    store = Checkpoint(scratch() / f"{os.getpid()}-valid.npz")
    store.save({"roster": {"names": ["0"]}, "server": {"round": 2, "released": np.eye(2)}})
    return store.path.read_bytes()


def _valid_job() -> bytes:
    state = {"setup": "d", "trouble": "", "request": {**vars(REQUEST), "expects": {"omega": [4]}}}
    return json.dumps(state).encode()


def _valid_config() -> bytes:
    return json.dumps(
        RunSpec.from_mapping({"task": "synthetic", "epsilon": 3.0}).to_mapping()
    ).encode()


Target = tuple[Callable[[bytes], None], list[Callable[[], bytes]]]
TARGETS: dict[str, Target] = {
    "reply": (reply, [_valid_reply]),
    "instruction": (instruction, [_valid_instruction, _valid_setup]),
    "space": (space, [lambda: SPACE.to_json().encode()]),
    "ledger": (ledger, [_valid_ledger]),
    "journal": (journal, [_valid_journal]),
    "checkpoint": (checkpoint, [_valid_checkpoint]),
    "config": (config, [_valid_config]),
    "job": (job, [_valid_job, _valid_checkpoint]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", choices=list(TARGETS))
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list or arguments.target is None:
        print("\n".join(TARGETS))
        return
    import atheris

    decode, seeds = TARGETS[arguments.target]
    corpus = Path(tempfile.mkdtemp())
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed())
    atheris.instrument_imports  # noqa: B018 - fails here, and not later, with another atheris
    for module in ("wire", "journal", "rundir", "privacy.ledger", "privacy.events", "core.space",
                   "core.settings", "spec", "clients.workshop"):  # fmt: skip
        _instrument(atheris, f"flwr_fbo.{module}")
    options = [f"-runs={arguments.runs}", f"-max_total_time={arguments.seconds}",
               "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-print_final_stats=1"]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], decode)
    atheris.Fuzz()


def _instrument(atheris: Any, module: str) -> None:
    """Have every function of a module that is already imported tell which lines it reached."""
    for owner in [sys.modules[module], *vars(sys.modules[module]).values()]:
        if owner is not sys.modules[module] and not isinstance(owner, type):
            continue
        if getattr(owner, "__module__", module) != module:
            continue
        for value in vars(owner).values():
            function = getattr(value, "__func__", value)
            if getattr(function, "__module__", None) == module and hasattr(function, "__code__"):
                atheris.instrument_func(function)


if __name__ == "__main__":
    main()
