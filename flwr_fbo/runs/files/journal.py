"""The journal of an agent: one line per record, only appended, by one process at a time.

A line counts when it is complete. A torn last line, left by a crash in the middle of a write, is
dropped when the journal is opened. Records are flushed to the disk before :meth:`Journal.append`
returns. Records of work that took less time than the flush are an exception: they survive the end
of the process, but not a power cut.

The process that answers a message holds the lock of the journal (:func:`exclusive`). The lock
belongs to the operating system and ends with the process, even by a crash. The lock keeps apart two
nodes with the same partition, and the process of a message whose node died from the process of the
next message.

A process answers messages of many agents, and many processes answer the messages of one agent.
:func:`cached_journal` does not parse again the lines that this process has parsed or written
before. The process keeps the *text* of a journal beside the records, and compares the text with the
file byte by byte at every message. Lines that another process appended are read, and a file that
was cut, rolled back or replaced is read from the start. Times, sizes and inodes play no part.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

#: Records of work that took longer than this number of seconds are flushed to the disk.
WORTH_A_FLUSH = 0.05
#: Kinds of records that can be computed again from the other records.
RECOMPUTABLE = frozenset({"fit"})
#: Bytes that must be free on the disk before an evaluation starts.
ROOM = 1 << 14
_SPACES = b" " * ROOM
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
#: The most journals that a process keeps between messages, and the most lines in all of them.
MOST_KEPT, MOST_LINES = 512, 30_000
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def journal_path(folder: Path, agent: int) -> Path:
    """Return the file that holds the records of an agent."""
    return folder / f"agent-{agent:04d}.jsonl"


class JournalError(RuntimeError):
    """An error for a journal that cannot be written, or that no crash can have damaged so."""


class JournalBusyError(JournalError):
    """An error for a journal whose lock another process holds."""


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a journal; raise JournalBusyError while another process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        take_lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, path: Path) -> None:
    """Lock an open journal until the descriptor and all inherited copies of it are closed."""
    try:
        import fcntl
    except ImportError:  # Windows has no fcntl: there, owners must keep their agents apart
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalBusyError(
            f"{path}: another process is at work with this journal; every node must have a "
            "`partition-id` of its own, and at most one message is answered at a time"
        ) from None


class Journal:
    """The :class:`~flwr_fbo.core.evaluation.Records` of an agent in a JSON-lines file.

    Parameters
    ----------
    path
        The file.
    reading
        Whether the journal is only read. The file is then left as it is, and another process may
        write it meanwhile: a line that is not complete yet does not count yet.
    """

    def __init__(self, path: Path | str, *, reading: bool = False) -> None:
        self.path = Path(path)
        self._reading = reading
        self._records: dict[str, list[dict[str, Any]]] = {}
        self._text = bytearray()  # the lines that the records were read from
        self.lines = 0
        if not self.refresh() and not reading:
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def refresh(self) -> bool:
        """Read what the file holds now; return whether the file exists."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            self._forget()
            return False
        if data[: len(self._text)] != self._text:
            self._forget()
        complete = data[len(self._text) : data.rfind(b"\n") + 1]
        self._parse(complete)
        torn = len(data) - len(self._text)
        # The next record must begin on a line of its own.
        if torn and not self._reading:
            os.truncate(self.path, len(self._text))
        return True

    def _forget(self) -> None:
        """Drop all records, before the file is read from the start."""
        self._records, self._text, self.lines = {}, bytearray(), 0

    def _parse(self, complete: bytes) -> None:
        """Add the records of complete lines; on a damaged line, drop all records and raise."""
        before = self.lines
        for number, line in enumerate(complete.split(b"\n")[:-1], start=before + 1):
            try:
                record = json.loads(line)
                self._records.setdefault(record.pop("kind"), []).append(record)
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
                self._forget()
                raise JournalError(f"{self.path}: line {number} is not a record") from None
            self.lines = number
        self._text += complete

    def reserve(self) -> None:
        """Raise JournalError unless the disk has room for more records."""
        with self._appending(keep=False) as descriptor:
            _write_all(descriptor, _SPACES)

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store a record; a record that cannot be stored leaves nothing in the file."""
        line = _ENCODER.encode({"kind": kind, **record}).encode() + b"\n"
        with self._appending() as descriptor:
            _write_all(descriptor, line)
            if kind not in RECOMPUTABLE and record.get("seconds", math.inf) > WORTH_A_FLUSH:
                os.fsync(descriptor)
        # The record is read back from its line, so that a later process reads the same values.
        self._parse(line)

    @contextlib.contextmanager
    def _appending(self, keep: bool = True) -> Iterator[int]:
        """Open the file to append; take back what was written after an error or if not kept."""
        if self._reading:
            raise JournalError(f"{self.path} was opened for reading only")
        try:
            descriptor = os.open(self.path, _APPENDING, 0o600)
            try:
                end = os.lseek(descriptor, 0, os.SEEK_END)
                try:
                    yield descriptor
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.ftruncate(descriptor, end)
                    raise
                if not keep:
                    os.ftruncate(descriptor, end)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from error

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return all records of a kind, oldest first."""
        return list(self._records.get(kind, []))


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; a single call of the system may write a part of them only."""
    rest = memoryview(data)
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]


class _JournalCache:
    """The journals that this process keeps, those of agents that were asked last at the end."""

    def __init__(self) -> None:
        self._journals: OrderedDict[Path, Journal] = OrderedDict()
        self._lines: dict[Path, int] = {}
        self._total = 0
        self._lock = RLock()  # of the cache: threads may use different journals at a time

    def take(self, path: Path) -> Journal | None:
        """Return a journal and drop it from the cache; None where the cache does not hold it."""
        with self._lock:
            self._total -= self._lines.pop(path, 0)
            return self._journals.pop(path, None)

    def put(self, path: Path, journal: Journal) -> None:
        """Store a journal, and drop the oldest journals if there are too many lines."""
        with self._lock:
            self._journals[path], self._lines[path] = journal, journal.lines
            self._total += journal.lines
            while len(self._journals) > MOST_KEPT or self._total > MOST_LINES:
                self.take(next(iter(self._journals)))


_cache = _JournalCache()


def cached_journal(path: Path) -> Journal:
    """Return the journal as its file is now, while the caller holds the journal's lock."""
    journal = _cache.take(path)
    if journal is None:
        journal = Journal(path)
    else:
        journal.refresh()
    _cache.put(path, journal)
    return journal
