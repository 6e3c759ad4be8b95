"""An agent's memory on disk: one line a record, only ever appended, by one process at a time.

A line is complete or it does not count: a torn last line, left by a crash in the middle of a
write, is dropped when the journal is opened. Records are flushed to the disk before
:meth:`Journal.append` returns, except those that say they took less time than the flush would:
they survive the process, not a power cut.

Whoever answers a message holds the journal's lock while it does (:func:`exclusive`). The lock
is the operating system's and ends with the process, however that ends. It keeps apart what must
never meet: two nodes that were given the same partition, and the process of a message whose
node died and the one that came after it.

A process answers many messages, of many agents, and an agent's messages are answered by many
processes. :func:`current` spares the parsing of lines that this process has parsed or written
before: it keeps a journal's *text* beside its records, and compares it with the file each time,
byte by byte. What was appended by others is read, and a file that was cut, rolled back or
replaced is read anew. Nothing depends on times, sizes or inodes.
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

#: Records of work that took longer (seconds) than this are worth an fsync each.
WORTH_A_FLUSH = 0.05
#: Kinds of records that can be computed again from the others.
RECOMPUTABLE = frozenset({"fit"})
#: Bytes that must be free before work is paid for whose result must be written.
ROOM = 1 << 14
_SPACES = b" " * ROOM
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
#: Journals that a process keeps between messages, and the lines of all of them together.
MOST_KEPT, MOST_LINES = 512, 30_000
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def journal_path(folder: Path, agent: int) -> Path:
    """The file that holds an agent's records."""
    return folder / f"agent-{agent:04d}.jsonl"


class JournalError(RuntimeError):
    """A journal is damaged in a way that no crash of ours leaves behind, or cannot be written."""


class JournalBusyError(JournalError):
    """Another process holds the journal."""


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a journal; :class:`JournalBusyError` if another process does."""
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
    """Lock an open journal until the descriptor and all that inherited it are closed."""
    try:
        import fcntl
    except ImportError:  # not on Windows, where two agents are kept apart by their owner
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalBusyError(
            f"{path}: another process is at work with this journal; every node must have a "
            "`partition-id` of its own, and at most one message is answered at a time"
        ) from None


class Journal:
    """Records (see :class:`flwr_fbo.core.evaluation.Records`) in a JSON-lines file.

    With ``reading`` the file is left as it is, and whoever writes it need not stop: a line that
    is being written just now does not count yet.
    """

    def __init__(self, path: Path | str, *, reading: bool = False) -> None:
        self.path = Path(path)
        self._reading = reading
        self._records: dict[str, list[dict[str, Any]]] = {}
        self._text = bytearray()  # all lines that the records were read from
        self.lines = 0
        if not self.refresh() and not reading:
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def refresh(self) -> bool:
        """Take in what the file holds now, whoever wrote it; False if there is none."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            self._forget()
            return False
        if data[: len(self._text)] != self._text:
            self._forget()
        whole = data[len(self._text) : data.rfind(b"\n") + 1]
        self._parse(whole)
        torn = len(data) - len(self._text)
        if torn and not self._reading:
            os.truncate(self.path, len(self._text))
        return True

    def _forget(self) -> None:
        self._records, self._text, self.lines = {}, bytearray(), 0

    def _parse(self, whole: bytes) -> None:
        """Add lines that end in a newline to what is known; all of them, or nothing is known."""
        before = self.lines
        for number, line in enumerate(whole.split(b"\n")[:-1], start=before + 1):
            try:
                record = json.loads(line)
                self._records.setdefault(record.pop("kind"), []).append(record)
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
                self._forget()
                raise JournalError(f"{self.path}: line {number} is not a record") from None
            self.lines = number
        self._text += whole

    def reserve(self) -> None:
        """Raise unless there is room for more records: to be asked before work is paid for."""
        with self._appending() as file:
            file.write(_SPACES)
            raise _Undo

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.core.evaluation.Records`; a line that fails leaves no trace."""
        line = _ENCODER.encode({"kind": kind, **record}).encode() + b"\n"
        with self._appending() as file:
            file.write(line)
            if kind not in RECOMPUTABLE and record.get("seconds", math.inf) > WORTH_A_FLUSH:
                os.fsync(file.descriptor)
        self._parse(line)  # what is known is what a later process will read

    @contextlib.contextmanager
    def _appending(self) -> Iterator[_Whole]:
        if self._reading:
            raise JournalError(f"{self.path} was opened for reading only")
        try:
            descriptor = os.open(self.path, _APPENDING, 0o600)
            try:
                end = os.lseek(descriptor, 0, os.SEEK_END)
                try:
                    yield _Whole(descriptor)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.ftruncate(descriptor, end)
                    raise
            finally:
                os.close(descriptor)
        except _Undo:
            pass
        except OSError as error:
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from error

    def read(self, kind: str) -> list[dict[str, Any]]:
        """See :class:`flwr_fbo.core.evaluation.Records`."""
        return list(self._records.get(kind, []))


class _Kept:
    """The journals that this process keeps, those of agents that were asked last at the end."""

    def __init__(self) -> None:
        self._journals: OrderedDict[Path, Journal] = OrderedDict()
        self._lines: dict[Path, int] = {}
        self._total = 0
        self._lock = RLock()  # of this object: threads may hold different journals

    def take(self, path: Path) -> Journal | None:
        """The journal of a path; it is kept no longer, until it is put back."""
        with self._lock:
            self._total -= self._lines.pop(path, 0)
            return self._journals.pop(path, None)

    def put(self, path: Path, journal: Journal) -> None:
        """Keep a journal; others go if that is too much."""
        with self._lock:
            self._journals[path], self._lines[path] = journal, journal.lines
            self._total += journal.lines
            while len(self._journals) > MOST_KEPT or self._total > MOST_LINES:
                self.take(next(iter(self._journals)))


_kept = _Kept()


def current(path: Path) -> Journal:
    """The journal as its file is now; for whoever holds its lock."""
    journal = _kept.take(path)
    if journal is None:
        journal = Journal(path)
    else:
        journal.refresh()
    _kept.put(path, journal)
    return journal


class _Undo(Exception):  # noqa: N818 - not an error
    """Take back what was written."""


class _Whole:
    """An open file whose writes are whole or raise."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while len(rest):
            rest = rest[os.write(self.descriptor, rest) :]
