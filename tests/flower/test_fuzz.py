"""The decoders under damaged, mixed and arbitrary bytes: only their own errors come out."""

from __future__ import annotations

import importlib.util
import io
import sys
import tracemalloc
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.clients.background import JobError, JobRecord
from flwr_fbo.core.space import Space, SpaceError
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.checkpoint import Checkpoint

PATH = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flwr_fbo_fuzz", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fuzz = _load()
SEEDS = {name: [make() for make in seeds] for name, (_, seeds) in fuzz.TARGETS.items()}

#: Cut a piece out, or put one in its place: (from, to, what).
EDITS = st.lists(
    st.tuples(st.integers(0, 2000), st.integers(0, 40), st.binary(max_size=20)), max_size=4
)


@pytest.mark.parametrize("name", list(fuzz.TARGETS))
def test_valid_inputs_are_valid(name: str) -> None:
    for seed in SEEDS[name]:
        fuzz.TARGETS[name][0](seed)


@pytest.mark.parametrize("name", list(fuzz.TARGETS))
@settings(max_examples=150)
@given(which=st.integers(0, 9), edits=EDITS)
def test_damaged_inputs_raise_the_declared_errors(
    name: str, which: int, edits: list[tuple[int, int, bytes]]
) -> None:
    data = SEEDS[name][which % len(SEEDS[name])]
    for start, length, new in edits:
        start %= len(data) + 1
        data = data[:start] + new + data[start + length :]
    fuzz.TARGETS[name][0](data)


def test_mutations_raise_the_declared_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """A small part of the measurement in docs/evidence/reliability.md, with a seed of its own."""
    assert fuzz.mutate_all(list(fuzz.TARGETS), inputs=2500, seed=4) == 0
    assert "| **all** | **2,5" in capsys.readouterr().out


def test_a_failure_of_a_decoder_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> None:
        raise KeyError("not the target's own")

    monkeypatch.setitem(fuzz.TARGETS, "broken", (broken, [lambda: b"valid"]))
    assert fuzz.mutate_all(["broken"], inputs=7, seed=0) == 7


@pytest.mark.parametrize("name", list(fuzz.TARGETS))
@settings(max_examples=50)
@given(data=st.one_of(st.binary(max_size=400), st.text(max_size=200).map(str.encode)))
def test_arbitrary_inputs_raise_the_declared_errors(name: str, data: bytes) -> None:
    fuzz.TARGETS[name][0](data)


TEXTS = ["space", "config", "journal", "ledger", "instruction", "records", "rounds", "result",
         "statement", "key", "state", "head", "settings"]  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 100_000, b"-1e999"])
def test_deep_and_long_json_raises_the_declared_errors(name: str, data: bytes) -> None:
    fuzz.TARGETS[name][0](data)
    fuzz.TARGETS[name][0](data + b"\n")


JOB = '{"setup": "d", "trouble": "", "request": {"kind": "s", "round": %s, "values": {"p": %s}, '
JOB += '"arrays": {"a": %s}, "expects": {"omega": %s}}}'


@pytest.mark.parametrize(
    "parts",
    [
        ("Infinity", "1", "[1.0]", "[4]"),
        ("3", "NaN", "[1.0]", "[4]"),
        ("3", "[1]", "[1.0]", "[4]"),
        ("3", "1", '["x"]', "[4]"),
        ("3", "1", "[[1.0], [1.0, 2.0]]", "[4]"),
        ("3", "1", "[1.0]", "4"),
        ("null", "1", "[1.0]", "[4]"),
    ],
)
def test_a_job_of_wrong_values_is_none(tmp_path: Path, parts: tuple[str, ...]) -> None:
    fuzz.TARGETS["job"][0]((JOB % parts).encode())
    with pytest.raises(JobError):
        JobRecord.load(_job_file(tmp_path, JOB % parts))
    JobRecord.load(_job_file(tmp_path, JOB % ("3", "1", "[1.0]", "[4]")))


def _job_file(folder: Path, text: str) -> Path:
    path = folder / "a.job"
    with path.open("wb") as file:
        np.savez(file, state=np.frombuffer(text.encode(), dtype=np.uint8))
    return path


@pytest.mark.parametrize("points", ['{"a": 1}', '"many"', '[["a"]]', "[[1], [1, 2]]", "[1e400]"])
def test_points_that_are_none_are_refused(points: str) -> None:
    """Found by the fuzzer."""
    text = '{"parameters": {"x": {"type": "float", "low": 0, "high": 1}}, "points": %s}'
    with pytest.raises(SpaceError):
        Space.from_json(text % points)


def _npz(header: dict[str, object], body: bytes, compression: int) -> bytes:
    member, archive = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(member, header)  # type: ignore[arg-type]
    with zipfile.ZipFile(archive, "w", compression) as file:
        file.writestr("state.npy", member.getvalue() + body)
    return archive.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        # A header that claims 8 GB, and 100 MB of zeros in 100 kB.
        _npz({"descr": "<f8", "fortran_order": False, "shape": (10**9,)}, b"", zipfile.ZIP_STORED),
        _npz(
            {"descr": "|u1", "fortran_order": False, "shape": (10**8,)},
            bytes(10**8),
            zipfile.ZIP_DEFLATED,
        ),
        _npz({"descr": "|O", "fortran_order": False, "shape": (1,)}, bytes(8), zipfile.ZIP_STORED),
    ],
    ids=["header", "zeros", "objects"],  # the bytes hold the time: names of their own
)
def test_a_checkpoint_cannot_ask_for_more_memory_than_it_is_long(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(RunDirectoryError, match="is not a checkpoint"):
            Checkpoint(path).load()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10**7
