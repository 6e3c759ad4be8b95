"""The journal of an agent: one line per record, only appended, by one process at a time.

The first line is the header, which names the run and the agent. Every line ends with a checksum
that covers the line before (:class:`~flwr_fbo.runs.files.checks.Chain`)::

    {"kind":"journal","layout":3,"run":"...","agent":3,"check":"..."}
    {"kind":"evaluation","round":0,"score":0.5,...,"check":"..."}

A line counts when it is complete. A torn last line, left by a crash in the middle of a write, is
dropped when the journal is opened. A line that does not fit its checksum is refused, and so is the
journal of another agent or run.

The *head* beside the journal (``agent-0000.jsonl.head``) names the last line, so that lines that
are missing at the end are noticed too. It is written after every line. Records are flushed to the
disk before :meth:`Journal.append` returns. Records of work that took less time than the flush are
an exception: they survive the end of the process, but not a power cut. So a journal without its
last *flushed* line was damaged, and is refused. A journal that lost only lines that were never
flushed is used, and :attr:`Journal.lost` says how many lines are missing.

The process that answers a message holds the lock of the journal (:func:`exclusive`). The lock
belongs to the operating system and ends with the process, even by a crash. The lock keeps apart two
nodes with the same partition, and the process of a message whose node died from the process of the
next message. A process that a task forks from it can append nothing.

A process answers messages of many agents, and many processes answer the messages of one agent.
:func:`cached_journal` does not parse again the lines that this process has parsed or written
before. The process keeps the *text* of a journal beside the records, and compares the text with the
file byte by byte at every message. Lines that another process appended are read, and a file that
was cut, rolled back or replaced is read from the start. Times, sizes and inodes play no part.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

from flwr_fbo.core.forks import ForkError, Process
from flwr_fbo.runs.files.checks import LAYOUT
from flwr_fbo.runs.files.journal_check import (
    ADVICE,
    HEADER,
    Head,
    JournalBusyError,
    JournalError,
    JournalOwner,
    JournalReader,
    head_path,
)

logger = logging.getLogger("flwr.fbo")

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
ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def journal_path(folder: Path, agent: int) -> Path:
    """Return the file that holds the records of an agent."""
    return folder / f"agent-{agent:04d}.jsonl"


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
    owner
        The run and the agent of the journal; None accepts any journal.
    reading
        Whether the journal is only read. The file is then left as it is, and another process may
        write it meanwhile: a line that is not complete yet does not count yet.
    """

    def __init__(
        self, path: Path | str, owner: JournalOwner | None = None, *, reading: bool = False
    ) -> None:
        self.path, self.owner = Path(path), owner
        self._reading, self._process = reading, Process()
        self._forget()
        if not self.refresh() and not reading:
            self.path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def lines(self) -> int:
        """Return the number of lines, the header among them."""
        return self._reader.chain.lines

    @property
    def lost(self) -> int:
        """Return how many lines are missing at the end that were never flushed."""
        return self._reader.lost

    def refresh(self) -> bool:
        """Read what the file holds now; return whether the file exists."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            data = None
        if data is None or data[: len(self._text)] != self._text:
            self._forget()
            data = None if data is None else self.path.read_bytes()
        self._parse(b"" if data is None else data[len(self._text) : data.rfind(b"\n") + 1])
        if not self._compared:
            self._compare()
        # The next record must begin on a line of its own.
        if data is not None and len(data) > len(self._text) and not self._reading:
            self._check_process()
            os.truncate(self.path, len(self._text))
        return data is not None

    def _forget(self) -> None:
        """Drop all records, before the file is read from the start."""
        self._records: dict[str, list[dict[str, Any]]] = {}
        self._text = bytearray()  # the lines that the records were read from
        self._reader = JournalReader(self.path, self.owner)
        self._head, self._compared = self._reader.head, False

    def _parse(self, complete: bytes) -> None:
        """Add the records of complete lines; on a damaged line, drop all records and raise."""
        try:
            for text in self._reader.take(complete):
                record = json.loads(text)
                self._records.setdefault(record.pop("kind"), []).append(record)
        except JournalError:
            self._forget()
            raise
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            self._forget()
            raise JournalError(f"{self.path}: a line is not a record. {ADVICE}") from None
        self._text += complete

    def _compare(self) -> None:
        """Compare the journal with its head, once after it was read from the start."""
        try:
            self._reader.compare()
        except JournalError:
            self._forget()
            raise
        self._compared = True
        if self.lost and not self._reading:
            logger.warning(
                "%s lost its last %s records, which were not flushed to the disk (a power cut, or "
                "damage); the agent goes on without them", self.path, self.lost,
            )  # fmt: skip

    def reserve(self) -> None:
        """Raise JournalError unless the disk has room for more records."""
        with self._appending() as descriptor:
            append_lines(descriptor, _SPACES, keep=False)

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store a record; a record that cannot be stored leaves nothing in the file."""
        text = ENCODER.encode({"kind": kind, **record}).encode()
        chain = self._reader.chain.copy()
        lines = (b"" if chain.lines else chain.add(self._header())) + chain.add(text)
        flush = kind not in RECOMPUTABLE and record.get("seconds", math.inf) > WORTH_A_FLUSH
        with self._appending() as descriptor:
            append_lines(descriptor, lines, flush)
        # The record is read back from its line, so that a later process reads the same values.
        self._parse(lines)
        self._write_head(flush)

    def _header(self) -> bytes:
        """Return the text of the first line."""
        owner = {} if self.owner is None else vars(self.owner)
        return ENCODER.encode({"kind": HEADER, "layout": LAYOUT, **owner}).encode()

    def _write_head(self, flushed: bool) -> None:
        """Name the last line in the head."""
        now, before = (self.lines, self._reader.chain.last), self._head
        self._head = Head(*now, *(now if flushed else (before.flushed_lines, before.flushed)))
        try:
            self._store_head(self._head)
        except OSError as error:
            # The record itself is stored. An older head names fewer lines, which is no fault.
            logger.warning("%s cannot be written: %s", head_path(self.path), error.strerror)

    def _store_head(self, head: Head) -> None:
        head.write(self.path)

    def _check_process(self) -> None:
        """Raise JournalError in a process that was forked from the one that opened the journal."""
        try:
            self._process.check(self.path)
        except ForkError as error:
            raise JournalError(str(error)) from None

    @contextlib.contextmanager
    def _appending(self) -> Iterator[int]:
        """Open the file to append to it."""
        if self._reading:
            raise JournalError(f"{self.path} was opened for reading only")
        self._check_process()
        try:
            descriptor = open_to_append(self.path)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from error

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return all records of a kind, oldest first."""
        return list(self._records.get(kind, []))


def open_to_append(path: Path) -> int:
    """Open a file to append to it, and return the descriptor."""
    return os.open(path, _APPENDING, 0o600)


def append_lines(descriptor: int, lines: bytes, flush: bool = False, keep: bool = True) -> None:
    """Append lines to an open file; after an error, or if not kept, the file is as before."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        _write_all(descriptor, lines)
        if flush:
            os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, end)
        raise
    if not keep:
        os.ftruncate(descriptor, end)


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


def _forget_after_fork() -> None:
    """Drop the journals that the parent process keeps, as only the parent may write them."""
    global _cache
    _cache = _JournalCache()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def cached_journal(path: Path, owner: JournalOwner | None = None) -> Journal:
    """Return the journal as its file is now, while the caller holds the journal's lock."""
    journal = _cache.take(path)
    if journal is None or (owner is not None and journal.owner != owner):
        journal = Journal(path, owner)
    else:
        journal.refresh()
    _cache.put(path, journal)
    return journal
