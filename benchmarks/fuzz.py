"""Feed the decoders what nobody would send: no crash but the declared errors, no hoarding.

    python benchmarks/fuzz.py --mutate [--runs 1000000] [--seed 0]
    python benchmarks/fuzz.py TARGET [--runs 200000] [--seconds 300]
    python benchmarks/fuzz.py --list

With `--mutate`, valid inputs are changed at random (bytes, tokens, values of their JSON), for all
targets in turn. Without it, one target is fuzzed coverage-guided with atheris (`pip install
atheris`, libFuzzer for Python). Targets: replies and instructions of the wire, search spaces,
run-configs, the key `settings`, the job files of asynchronous agents, and every file of a run
directory that is read: ledger and its key, journals and their heads, the journal of all agents in
one process, checkpoint, releases, table of rounds, result and statement. For `records`,
`store-records`, `state`, `rounds`, `result` and `statement` the checksums around a changed content
are made right, so that the content itself is read. An
exception that is not the target's own, or more than 1 GiB of memory (with atheris), is a failure.
`tests/flower/test_fuzz.py` runs the same targets on mutated seeds in the suite.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_fbo import wire
from flwr_fbo.clients.background import JobError, JobRecord
from flwr_fbo.core.evaluation import Evaluator
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space, SpaceError
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.ledger import Ledger, LedgerError
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.arrangement import arrange
from flwr_fbo.runs.files.atomic import write_arrays
from flwr_fbo.runs.files.checkpoint import Checkpoint, RunStore
from flwr_fbo.runs.files.checks import LAYOUT, Chain, checksum, seal_object
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal import Journal, journal_path
from flwr_fbo.runs.files.journal_check import JournalError, head_path
from flwr_fbo.runs.files.releases import ReleaseFiles
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.files.simulation_store import SimulationStore
from flwr_fbo.runs.files.statement import read_statement
from flwr_fbo.runs.history import (
    best_of_agent,
    by_round,
    ended_a_run,
    histories_in,
    read_evaluations,
    read_journal,
)
from flwr_fbo.runs.locations import store_path
from flwr_fbo.runs.result import Result
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.simulation.simulate import simulate

HEADER = {"run": 1}
RUN = "0123456789abcdef"
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
    path = _file("ledger", data)
    path.with_name(path.name + ".key").write_bytes(_made("key", _valid_key))
    try:
        Ledger.resume(path, HEADER).close()
    except LedgerError:
        return


def journal(data: bytes) -> None:
    """Read, and append to what can be read; the same with the head that a journal had before."""
    path = _file("journal", data)
    head_path(path).unlink(missing_ok=True)
    try:
        Journal(path).append("evaluation", {"x": 1})
        assert Journal(path).read("evaluation")[-1] == {"x": 1}
    except JournalError:
        return


def head(data: bytes) -> None:
    """Read a good journal with these bytes as its head."""
    path = _file("journal-of-head", _made("headed", _valid_journal))
    head_path(path).write_bytes(data)
    try:
        Journal(path).append("evaluation", {"x": 1})
        assert Journal(path).read("evaluation")[-1] == {"x": 1}
    except JournalError:
        return


def records(data: bytes) -> None:
    """Lines of JSON, each sealed as a journal's line is, so that the records themselves are read.

    Whole folders of journals are read as a report does.
    """
    chain = Chain()
    texts = [b'{"kind":"journal","layout":%d,"run":"r","agent":0}' % LAYOUT, *data.split(b"\n")]
    folder = scratch() / f"{os.getpid()}-agents"
    folder.mkdir(exist_ok=True)
    path = journal_path(folder, 0)
    path.write_bytes(b"".join(chain.add(text) for text in texts))
    head_path(path).unlink(missing_ok=True)
    try:
        (found,) = read_evaluations(folder, 1, "r")
        best_of_agent(0, found)
        by_round([found], 3)
        Journal(path, reading=True)
    except JournalError:
        pass
    try:
        ended_a_run(folder)
        histories_in(folder)
        read_journal(path)
    except JournalError:
        return


def store(data: bytes) -> None:
    """The journal of all agents in one process: read it, and append to what can be read."""
    folder = scratch() / f"{os.getpid()}-store"
    folder.mkdir(exist_ok=True)
    path = store_path(folder)
    path.write_bytes(data)
    head_path(path).unlink(missing_ok=True)
    try:
        ended_a_run(folder)
        book = SimulationStore(folder, None)
        with book.group(5, [0, 1]):
            book.append(1, "fit", {"x": 1})
        book.close()
        found = SimulationStore(folder, None, reading=True)
        for agent in found.agents:
            found.records(agent)
        assert found.records(1).read("fit")[-1] == {"x": 1}
    except JournalError:
        return


def store_records(data: bytes) -> None:
    """Lines of JSON, each sealed as a line of that journal, and moved to a journal for each agent.

    They are read as a report does.
    """
    chain = Chain()
    header = b'{"kind":"journal","layout":%d,"run":"r","agent":"all"}' % LAYOUT
    folder = scratch() / f"{os.getpid()}-store-records"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lines = [chain.add(text) for text in [header, *data.split(b"\n")]]
    store_path(folder).write_bytes(b"".join(lines))
    try:
        found = read_evaluations(folder, 2, "r")
        best_of_agent(0, found[0])
        by_round(found, 3)
        assert arrange(folder, "r", shared=False) == []
        assert read_evaluations(folder, 2, "r") == found
    except JournalError:
        store_path(folder).write_bytes(b"".join(lines))
    try:
        ended_a_run(folder)
        histories_in(folder)
    except JournalError:
        return


def release(data: bytes) -> None:
    files = ReleaseFiles(scratch() / f"{os.getpid()}-releases", RUN)
    files.folder.mkdir(exist_ok=True)
    for path, read in ((files.path(1), lambda: files.at(1)), (files.features_path, files.features)):
        path.write_bytes(data)
        try:
            read()
        except RunDirectoryError:
            continue


def rounds(data: bytes) -> None:
    """The bytes are a table; then each line is a row that is sealed, so that the row is read."""
    path = _file("rounds.csv", data)
    _read_rounds(path)
    header = ",".join(RoundTable.COLUMNS)
    lines, last = [header], checksum(RUN, header)
    for line in data.decode(errors="replace").split("\n"):
        last = checksum(last, line)
        lines.append(f"{line},{last}")
    path.write_text("\n".join(lines) + "\n")
    _read_rounds(path)


def _read_rounds(path: Path) -> None:
    try:
        found = RoundTable.read(path, RUN)
    except RunDirectoryError:
        return
    for row in found:
        assert int(row["round"]) + int(row["missing"]) >= 0
        assert float(row["seconds"]) >= 0


def result(data: bytes) -> None:
    """The bytes are the file; then, where they are a JSON object, its content, sealed."""
    _read_json_file("result.json", data, lambda d: Result.read(d.root))


def statement(data: bytes) -> None:
    """The same for the privacy statement."""
    _read_json_file("privacy.json", data, read_statement)


def _read_json_file(name: str, data: bytes, read: Callable[[RunDirectory], Any]) -> None:
    directory = _directory()
    path = directory.root / name
    contents = [data]
    with contextlib.suppress(ValueError, RecursionError):
        plain = json.loads(data)
        if isinstance(plain, dict):
            plain.pop("file", None)
            contents.append(json.dumps(seal_object(plain, directory.identity, name)).encode())
    for content in contents:
        path.write_bytes(content)
        try:
            read(directory)
        except RunDirectoryError:
            continue
        finally:
            path.unlink()


def key(data: bytes) -> None:
    """The key of a ledger, which says how far the ledger had come."""
    path = _file("ledger-of-key", _made("ledger", _valid_ledger))
    path.with_name(path.name + ".key").write_bytes(data)
    try:
        Ledger.resume(path, HEADER).close()
    except LedgerError:
        return


def state(data: bytes) -> None:
    """JSON as the state of a checkpoint, with everything around it in order."""
    path = _file("state.npz", b"")
    content = np.frombuffer(data or b"0", dtype=np.uint8)
    write_arrays(path, {"state": content, "array0": np.ones((2, 2))})
    try:
        RunStore(Checkpoint(path), ReleaseFiles(path.parent / "none", RUN)).load()
    except RunDirectoryError:
        return


def settings(data: bytes) -> None:
    """The text of the key `settings`, with its quotes and pairs."""
    try:
        RunSpec.from_mapping({"task": "synthetic", "points": 10, "settings": data.decode("latin1")})
    except (SettingsError, SpaceError):
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
    """The bytes are `config.json`; then, where they are a JSON object, the keys of a run."""
    path = _file("config.json", data)
    with contextlib.suppress(RunDirectoryError):
        path.replace(scratch() / "config.json")
        RunDirectory(scratch()).read_json("config.json")
    try:
        # A task of one's own would be imported: built-in ones only.
        RunSpec.from_mapping({**_object(data), "task": "synthetic", "points": 10})
    except (SettingsError, SpaceError):
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
    for file in (path, path.with_name(path.name + ".key")):
        file.unlink(missing_ok=True)
    with Ledger.create(path, HEADER) as book:
        for t in range(2):
            book.charge(GaussianRelease(1.0, 0.5, t))
    return path.read_bytes()


def _valid_journal() -> bytes:
    path = _file("valid-journal", b"")
    head_path(path).unlink(missing_ok=True)
    book = Journal(path)
    for t in range(3):
        book.append("evaluation", {"round": t, "score": 0.5})
    return path.read_bytes()


def _valid_checkpoint() -> bytes:
    store = Checkpoint(scratch() / f"{os.getpid()}-valid.npz")
    store.save({"roster": {"names": ["0"]}, "server": {"round": 2, "released": np.eye(2)}})
    return store.path.read_bytes()


def _valid_head() -> bytes:
    _made("headed", _valid_journal)
    return head_path(scratch() / f"{os.getpid()}-valid-journal").read_bytes()


def _valid_records() -> bytes:
    path = scratch() / f"{os.getpid()}-agents" / "valid.jsonl"
    path.unlink(missing_ok=True)
    head_path(path).unlink(missing_ok=True)
    book = Journal(path)
    Evaluator(SPACE, lambda params, rng: 0.5, book)(np.array([0.2, 0.4, 0.6]), round=0)
    book.append("fit", {"observations": 3, "lengthscales": [0.2]})
    lines = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    return b"\n".join(json.dumps({**line, "check": 0}).encode() for line in lines).replace(
        b', "check": 0', b""
    )


def _valid_store() -> bytes:
    folder = scratch() / f"{os.getpid()}-valid-store"
    shutil.rmtree(folder, ignore_errors=True)
    book = SimulationStore(folder, "r")
    for round in range(2):
        with book.group(round, range(2)):
            for agent in range(2):
                own = Evaluator(SPACE, lambda params, rng: 0.5, book.records(agent))
                own(np.array([0.2, 0.4, 0.6]), round=round)
    Evaluator(SPACE, lambda params, rng: 0.5, book.records(0))(np.array([0.2, 0.4, 0.6]), round=2)
    book.close()
    return book.path.read_bytes()


def _valid_store_records() -> bytes:
    lines = [json.loads(line) for line in _valid_store().splitlines()[1:]]
    for line in lines:
        del line["check"]
    return b"\n".join(json.dumps(line, separators=(",", ":")).encode() for line in lines)


def _valid_release() -> bytes:
    files = ReleaseFiles(scratch() / f"{os.getpid()}-valid-releases", RUN)
    files.write(np.eye(2), 0.5, 1)
    return files.path(1).read_bytes()


def _valid_rounds() -> bytes:
    path = scratch() / f"{os.getpid()}-valid-rounds.csv"
    path.unlink(missing_ok=True)
    book = RoundTable(path, RUN)
    for t in range(2):
        book.append(RoundReport(t, 2, 3, 3, 0, {}, 0, 1.5))
    return path.read_bytes()


def _valid_rows() -> bytes:
    return b"0,3,3,0,0,0,0,,1.500\n1,3,3,0,0,0,0,0.5,1.500"


@cache
def _directory() -> RunDirectory:
    """A run directory that holds no more than a run must hold."""
    return RunDirectory(scratch() / f"{os.getpid()}-run").create({"rounds": 2})


@cache
def _finished() -> RunDirectory:
    """A finished run."""
    folder = scratch() / f"{os.getpid()}-finished"
    simulate("synthetic", agents=2, rounds=1, points=10, features=5, epsilon=3.0, run_dir=folder)
    return RunDirectory(folder)


def _valid_result() -> bytes:
    return (_finished().root / "result.json").read_bytes()


def _valid_statement() -> bytes:
    return (_finished().root / "privacy.json").read_bytes()


def _valid_key() -> bytes:
    _made("ledger", _valid_ledger)
    return (scratch() / f"{os.getpid()}-valid-ledger.key").read_bytes()


def _valid_state() -> bytes:
    return json.dumps(
        {"roster": {"names": ["0"]}, "format": LAYOUT, "run": RUN, "releases": {"1": "0123"},
         "server": {"round": 2, "released": {"half_life": None, "rounds": [1]},
                    "sums": {"\u0000array": "array0"}}}
    ).encode()  # fmt: skip


@cache
def _made(name: str, make: Callable[[], bytes]) -> bytes:
    """A valid input, made once."""
    return make()


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
    "ledger": (ledger, [lambda: _made("ledger", _valid_ledger)]),
    "journal": (journal, [_valid_journal]),
    "checkpoint": (checkpoint, [_valid_checkpoint]),
    "config": (config, [_valid_config]),
    "job": (job, [_valid_job, _valid_checkpoint]),
    "head": (head, [_valid_head]),
    "records": (records, [_valid_records]),
    "store": (store, [_valid_store]),
    "store-records": (store_records, [_valid_store_records]),
    "release": (release, [_valid_release]),
    "rounds": (rounds, [_valid_rounds, _valid_rows]),
    "result": (result, [_valid_result]),
    "statement": (statement, [_valid_statement]),
    "key": (key, [_valid_key]),
    "state": (state, [_valid_state]),
    "settings": (settings, [lambda: b"epsilon=5 regions=4 releases=0,1,2 data-dir='/a b'"]),
}


# -- without a fuzzer's package: mutations of valid inputs ---------------------------------------

#: Targets that make a whole run specification of each input; they get a quarter of the inputs.
SLOW = ("config", "settings")
#: Texts that decoders tend to trip over.
TOKENS = [b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"[]", b"{}", b'""', b"[[[[",
          b"\\ud800", b"\x00", b"\n", b"\r", b"\xff\xfe", b"9" * 400, b'"kind"', b"0.0", b"inf",
          "\u00b2".encode(), b"'", b'"', b",", b":", b"=", b" "]  # fmt: skip
#: Values that replace values of JSON.
VALUES: list[Any] = [None, True, False, 0, -1, 2**63, 10**400, 1.5, -0.0, "", "x", "\ud800",
                     [], {}, [None], [[]], [1, 2], {"a": 1}, "nan", "1e999"]  # fmt: skip


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A few changes of bytes, tokens or JSON values."""
    for _ in range(draw.randint(1, 4)):
        how = draw.randrange(6)
        start = draw.randrange(len(data) + 1)
        if how == 0 and data:
            place = start % len(data)
            data = data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
        elif how == 1:
            data = data[:start] + draw.choice(TOKENS) + data[start + draw.randint(0, 12) :]
        elif how == 2:
            data = data[:start] + data[start + draw.randint(1, 40) :]
        elif how == 3:
            end = min(len(data), start + draw.randint(1, 60))
            data = data[:end] + data[start:end] + data[end:]
        else:
            data = _json_mutated(data, draw)
    return data


def _json_mutated(data: bytes, draw: random.Random) -> bytes:
    """Another value, or none, at a random place of one of the lines that are JSON."""
    lines = data.split(b"\n")
    which = draw.randrange(len(lines))
    try:
        found = json.loads(lines[which] if len(lines) < 40 else data)
    except (ValueError, RecursionError):
        return data
    place: Any = found
    while isinstance(place, (dict, list)) and place:
        name = draw.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
        if not isinstance(place[name], (dict, list)) or not place[name] or draw.random() < 0.3:
            if draw.random() < 0.2:
                del place[name]
            else:
                place[name] = draw.choice(VALUES)
            break
        place = place[name]
    text = json.dumps(found).encode()
    return text if len(lines) >= 40 else b"\n".join([*lines[:which], text, *lines[which + 1 :]])


def mutate_all(names: list[str], inputs: int, seed: int) -> int:
    """Run mutated inputs through targets, print a table, and return how many failed."""
    shares = {name: 1 if name in SLOW else 4 for name in names}
    print("| decoder | inputs | errors of another kind | CPU s |\n| --- | ---: | ---: | ---: |")
    total = failures = 0
    for name in names:
        decode, seeds = TARGETS[name]
        valid, draw = [make() for make in seeds], random.Random(f"{seed} {name}")
        runs = -(-inputs * shares[name] // sum(shares.values()))
        started, failed = time.process_time(), 0
        for _ in range(runs):
            data = mutated(draw.choice(valid), draw)
            try:
                decode(data)
            except Exception as error:
                failed += 1
                if failed <= 3:
                    print(f"{name}: {error!r} for {data[:2000]!r}", file=sys.stderr, flush=True)
        total, failures = total + runs, failures + failed
        seconds = time.process_time() - started
        print(f"| {name} | {runs:,} | {failed} | {seconds:.0f} |", flush=True)
    print(f"| **all** | **{total:,}** | **{failures}** | |")
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", nargs="?", choices=list(TARGETS))
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--list", action="store_true")
    parser.add_argument(
        "--mutate", action="store_true", help="mutations of valid inputs, without atheris"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the mutations")
    arguments = parser.parse_args()
    if arguments.mutate:
        names = [arguments.target] if arguments.target else list(TARGETS)
        logging.disable()
        sys.exit(1 if mutate_all(names, arguments.runs, arguments.seed) else 0)
    if arguments.list or arguments.target is None:
        print("\n".join(TARGETS))
        return
    import atheris

    decode, seeds = TARGETS[arguments.target]
    corpus = Path(tempfile.mkdtemp())
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed())
    atheris.instrument_imports  # noqa: B018 - fails here, and not later, with another atheris
    for module in ("wire", "runs.files.journal", "runs.files.journal_check", "runs.files.checks",
                   "runs.files.checkpoint", "runs.files.rounds", "runs.files.releases",
                   "runs.files.directory", "privacy.ledger", "privacy.events", "core.space",
                   "core.settings", "runs.spec", "runs.result", "clients.background"):  # fmt: skip
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
