"""The ledger never undercounts: killed at every system call, torn, changed, or another run's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.events import (
    Event,
    FixedSizeRelease,
    GaussianRelease,
    LaplaceRelease,
    from_dict,
    to_dict,
)
from flwr_fbo.privacy.ledger import Ledger, LedgerError, LedgerLike, MemoryLedger
from tests.command import forked_python

HEADER = {"run": "a7", "agents": 200, "delta": 0.003, "regions": [2, 3]}
EVENTS: list[Event] = [
    GaussianRelease(1.25, 0.25, 0),
    FixedSizeRelease(1.0, 200, 50, 1),
    LaplaceRelease(0.1, 2),
]


def written(path: Path, events: list[Event] = EVENTS) -> bytes:
    with Ledger.create(path, HEADER) as ledger:
        for event in events:
            ledger.charge(event)
    return path.read_bytes()


# ------------------------------------------------------------------ events


@pytest.mark.parametrize("event", EVENTS)
def test_events_survive_json(event):
    assert from_dict(json.loads(json.dumps(to_dict(event)))) == event


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianRelease(0.0), "`noise_multiplier` must be a finite number > 0"),
        (lambda: GaussianRelease(1.0, 0.0), r"`sampling_rate` must be in \(0, 1\], but got 0.0"),
        (lambda: GaussianRelease(1.0, 1.0, -1), "`round` must be an integer >= 0, but got -1"),
        (lambda: FixedSizeRelease(1.0, 5, 6), r"sample_size=6, population=5"),
        (lambda: LaplaceRelease(-2.0), "`epsilon` must be a finite number > 0, but got -2.0"),
        (lambda: from_dict({"kind": "magic"}), "`kind` must be one of gaussian, fixed-size"),
        (lambda: from_dict({"kind": "laplace"}), "an event needs"),
        (lambda: from_dict([]), "`kind` must be one of"),  # type: ignore[arg-type]
    ],
)
def test_bad_events(make, message):
    with pytest.raises(PrivacyError, match=message):
        make()


# ------------------------------------------------------------------ every ledger


@pytest.fixture(params=["file", "memory"])
def either_ledger(request, tmp_path) -> LedgerLike:
    return (
        Ledger.create(tmp_path / "l", HEADER) if request.param == "file" else MemoryLedger(HEADER)
    )


def test_a_ledger_keeps_its_header_and_events(either_ledger):
    assert either_ledger.header == HEADER
    assert either_ledger.events == ()
    for event in EVENTS:
        either_ledger.charge(event)
    assert either_ledger.events == tuple(EVENTS)


# ------------------------------------------------------------------ the file


def test_resume_continues(tmp_path):
    path = tmp_path / "runs" / "ledger.jsonl"
    written(path)
    with Ledger.resume(path, HEADER) as ledger:
        assert ledger.events == tuple(EVENTS)
        ledger.charge(EVENTS[0])
    with Ledger.resume(path, HEADER) as ledger:
        assert ledger.events == (*EVENTS, EVENTS[0])
    assert len(path.read_text().splitlines()) == 5


def test_the_charge_is_on_disk_when_it_returns(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.create(path, HEADER) as ledger:
        for count, event in enumerate(EVENTS, 1):
            ledger.charge(event)
            assert path.read_bytes().count(b"\n") == count + 1


def test_a_charge_is_forced_to_the_disk_before_it_returns(tmp_path, monkeypatch):
    """A machine that loses its power keeps what was forced to the disk, and nothing else."""
    path, calls = tmp_path / "ledger", []

    def watched(name: str) -> None:
        real = getattr(os, name)

        def call(descriptor: int, *rest: object) -> object:
            calls.append((os.fstat(descriptor).st_ino, name))
            return real(descriptor, *rest)

        monkeypatch.setattr(os, name, call)

    with Ledger.create(path, HEADER) as ledger:
        watched("write")
        watched("fsync")
        for event in EVENTS:
            calls.clear()
            ledger.charge(event)
            mine = [name for inode, name in calls if inode == path.stat().st_ino]
            assert mine == ["write", "fsync"]


def test_only_its_owner_reads_it(tmp_path):
    written(tmp_path / "ledger")
    assert (tmp_path / "ledger").stat().st_mode & 0o077 == 0


def test_create_never_overwrites(tmp_path):
    before = written(tmp_path / "ledger")
    with pytest.raises(LedgerError, match="a ledger exists already"):
        Ledger.create(tmp_path / "ledger", HEADER)
    assert (tmp_path / "ledger").read_bytes() == before


def test_two_processes_cannot_spend_from_one_ledger(tmp_path):
    pytest.importorskip("fcntl")
    with (
        Ledger.create(tmp_path / "ledger", HEADER),
        pytest.raises(LedgerError, match="another pro"),
    ):
        Ledger.resume(tmp_path / "ledger", HEADER)
    Ledger.resume(tmp_path / "ledger", HEADER).close()


def test_a_ledger_of_another_run_is_refused(tmp_path):
    written(tmp_path / "ledger")
    with pytest.raises(LedgerError, match="ledger of another run; they differ in agents, seed"):
        Ledger.resume(tmp_path / "ledger", {**HEADER, "agents": 30, "seed": 1})


def test_missing_closed_and_unwritable(tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger to resume"):
        Ledger.resume(tmp_path / "ledger", HEADER)
    with pytest.raises(LedgerError, match="`header` must be JSON"):
        Ledger.create(tmp_path / "ledger", {"x": object()})
    ledger = Ledger.create(tmp_path / "ledger", HEADER)
    ledger.close()
    with pytest.raises(LedgerError, match="the ledger is closed"):
        ledger.charge(EVENTS[0])


def test_a_failed_write_stops_all_further_charges(tmp_path, monkeypatch):
    """After a failed fsync it is unknown what is on the disk, until the file is read again."""
    ledger = Ledger.create(tmp_path / "ledger", HEADER)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("flwr_fbo.privacy.ledger.os.fsync", full)
        with pytest.raises(LedgerError, match=r"could not be written.*No space left"):
            ledger.charge(EVENTS[0])
    assert ledger.events == ()
    with pytest.raises(LedgerError, match="the ledger is closed"):
        ledger.charge(EVENTS[0])
    with Ledger.resume(tmp_path / "ledger", HEADER) as again:
        assert again.events == (EVENTS[0],)  # it did reach the file: overcounted by one


# ------------------------------------------------------------------ damage


def key_of(path: Path) -> dict:
    return json.loads(path.with_name(path.name + ".key").read_text())


def before_last_charge(path: Path, key: dict, data: bytes) -> None:
    """Put the key file back to what it is while the last line is written."""
    lines = data.splitlines()
    earlier = {**key, "lines": len(lines) - 1, "hash": json.loads(lines[-2])["hash"]}
    path.with_name(path.name + ".key").write_text(json.dumps(earlier))


def test_a_ledger_that_lost_lines_is_refused_at_every_cut(tmp_path):
    """Once a charge has returned, no shorter ledger passes: not by a byte."""
    path = tmp_path / "ledger"
    data = written(path, EVENTS)
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(LedgerError):
            Ledger.resume(path, HEADER)
    path.write_bytes(data)
    assert Ledger.resume(path, HEADER).events == tuple(EVENTS)


def test_a_lost_ledger_or_key_is_refused(tmp_path):
    path = tmp_path / "ledger"
    data = written(path, EVENTS)
    path.unlink()
    with pytest.raises(LedgerError, match="the ledger is gone"):
        Ledger.create(path, HEADER)
    path.write_bytes(data)
    path.with_name("ledger.key").unlink()
    with pytest.raises(LedgerError, match="the key of the ledger cannot be read"):
        Ledger.resume(path, HEADER)


@pytest.mark.parametrize(
    "damage", ["", "{}", "[]", '{"key": "00", "lines": 4, "hash": ""}', "\x00"]
)
def test_a_damaged_key_is_refused(tmp_path, damage):
    path = tmp_path / "ledger"
    written(path, EVENTS)
    path.with_name("ledger.key").write_text(damage)
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger.resume(path, HEADER)


def test_lines_by_somebody_without_the_key_are_noticed(tmp_path):
    path, forged = tmp_path / "ledger", tmp_path / "forged"
    written(path, EVENTS)
    path.write_bytes(written(forged, EVENTS[:1]))
    with pytest.raises(LedgerError, match="was changed"):
        Ledger.resume(path, HEADER)


def test_only_its_owner_reads_the_key(tmp_path):
    path = tmp_path / "ledger"
    written(path, EVENTS)
    assert path.with_name("ledger.key").stat().st_mode & 0o777 == 0o600


def test_a_torn_last_line_at_every_byte(tmp_path):
    """Wherever a crash cuts the last line, earlier charges count and the ledger continues."""
    path = tmp_path / "ledger"
    data = written(path, EVENTS)
    whole = key_of(path)
    start = data[:-1].rfind(b"\n") + 1  # of the last line
    counted = []
    for end in range(start, len(data)):
        path.write_bytes(data[:end])
        before_last_charge(path, whole, data)
        with Ledger.resume(path, HEADER) as ledger:
            assert ledger.events[:2] == tuple(EVENTS[:2])
            assert ledger.events[2:] in ((), (EVENTS[2],))
            counted.append(len(ledger.events) == 3)
            ledger.charge(EVENTS[0])
        with Ledger.resume(path, HEADER) as ledger:  # mended: whole again
            assert ledger.events[-1] == EVENTS[0]
    assert counted == sorted(counted)  # counted from the byte on that completes the event
    assert not counted[0]
    assert counted[-1]


def test_a_torn_header_says_that_nothing_was_charged(tmp_path):
    path = tmp_path / "ledger"
    data = written(path, [])
    for end in (0, 1, len(data) - 1):
        path.write_bytes(data[:end])
        with pytest.raises(LedgerError, match="nothing was ever charged here"):
            Ledger.resume(path, HEADER)


@given(st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_changed_byte_before_the_last_line_is_noticed(tmp_path, data):
    path = tmp_path / "ledger"
    path.unlink(missing_ok=True)
    path.with_name("ledger.key").unlink(missing_ok=True)
    content = bytearray(written(path))
    last = content[:-1].rfind(b"\n") + 1
    where = data.draw(st.integers(0, last - 1))
    content[where] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        Ledger.resume(path, HEADER)


@pytest.mark.parametrize("order", [[0, 2, 3], [0, 2, 1, 3], [0, 1, 1, 2, 3], [1, 2, 3]])
def test_lines_taken_out_moved_or_repeated_are_noticed(tmp_path, order):
    path = tmp_path / "ledger"
    lines = written(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(LedgerError, match=r"line [123]"):
        Ledger.resume(path, HEADER)


def test_a_refusal_names_the_line_and_leaves_the_file_unchanged(tmp_path):
    path = tmp_path / "ledger"
    damaged = written(path).replace(b"0.25", b"0.05")
    path.write_bytes(damaged)
    with pytest.raises(LedgerError, match="line 2 was changed"):
        Ledger.resume(path, HEADER)
    assert path.read_bytes() == damaged
    path.write_bytes(b"not a ledger\n")
    with pytest.raises(LedgerError, match="line 1 is damaged"):
        Ledger.resume(path, HEADER)


# ------------------------------------------------------------------ crashes

VICTIM = """
import os, sys
from flwr_fbo.privacy import ledger as module
from flwr_fbo.privacy.events import GaussianRelease

path, sent, fatal, keep = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

class Dying:
    '''The os module, whose fatal-th call kills the process: before it, or half way through.'''
    calls = 0
    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in {'open', 'write', 'fsync', 'ftruncate', 'read', 'lseek', 'close'}:
            return real
        def call(*args, **kwargs):
            Dying.calls += 1
            if Dying.calls == fatal:
                if name == 'write':
                    os.write(args[0], args[1][: int(keep * len(args[1]))])
                elif keep == 1.0:
                    real(*args, **kwargs)
                os._exit(9)
            return real(*args, **kwargs)
        return call

module.os = Dying()
exists = os.path.exists(path)
ledger = (module.Ledger.resume if exists else module.Ledger.create)(path, {'run': 1})
for t in range(len(ledger.events), 3):
    ledger.charge(GaussianRelease(1.0, 0.5, t))
    with open(sent, 'a') as out:  # the release leaves
        out.write('x')
print(Dying.calls)
"""


def run_until_killed(path: Path, sent: Path, fatal: int, keep: float) -> int:
    return forked_python(VICTIM, str(path), str(sent), str(fatal), str(keep)).returncode


def releases(sent: Path) -> int:
    return len(sent.read_text()) if sent.exists() else 0


@pytest.mark.parametrize("keep", [0.0, 0.6, 1.0])
def test_a_crash_at_any_system_call_never_undercounts(tmp_path, keep):
    """The process is killed before, within and after each call. The ledger then holds every
    release and at most one more, and can be resumed."""
    killed = 0
    for fatal in range(1, 80):
        path, sent = tmp_path / f"ledger{fatal}", tmp_path / f"sent{fatal}"
        code = run_until_killed(path, sent, fatal, keep)
        if code == 0:
            break
        assert code == 9
        killed += 1
        if not path.exists() or b"\n" not in path.read_bytes():
            assert releases(sent) == 0
            with pytest.raises(LedgerError, match=r"nothing was ever charged|no ledger to resume"):
                Ledger.resume(path, {"run": 1})
            continue
        with Ledger.resume(path, {"run": 1}) as ledger:
            assert releases(sent) <= len(ledger.events) <= releases(sent) + 1
    assert killed >= 8  # create: open, write, fsync, ...; three charges: write and fsync each


def test_a_crash_during_the_repair_never_undercounts(tmp_path):
    for fatal in range(1, 12):
        path, sent = tmp_path / f"ledger{fatal}", tmp_path / f"sent{fatal}"
        with Ledger.create(path, {"run": 1}) as ledger:
            ledger.charge(GaussianRelease(1.0, 0.5, 0))
            ledger.charge(GaussianRelease(1.0, 0.5, 1))
        data = path.read_bytes()
        path.write_bytes(data[:-9])  # torn, but its event can be read
        before_last_charge(path, key_of(path), data)
        sent.write_text("x")  # only the first charge had returned
        run_until_killed(path, sent, fatal, 0.5)  # a second crash
        with Ledger.resume(path, {"run": 1}) as ledger:
            assert releases(sent) <= len(ledger.events) <= releases(sent) + 2


def test_a_key_that_counts_fewer_than_no_lines_is_refused(tmp_path: Path) -> None:
    """Found by fuzzing: the count was used as an index."""
    path = tmp_path / "ledger"
    Ledger.create(path, HEADER).close()
    key = path.with_name("ledger.key")
    key.write_text(json.dumps({**json.loads(key.read_text()), "lines": -13}))
    with pytest.raises(LedgerError, match="the key of the ledger cannot be read"):
        Ledger.resume(path, HEADER)
