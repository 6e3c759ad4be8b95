"""Journals that one process writes alone: those of agents who live in a simulation's process.

The file is that of any journal (:mod:`flwr_fbo.runs.files.journal`), with the same checksums, head
and promise: a record is in the file when :meth:`SoleJournal.append` returns, and records of work
that took long are flushed. But the lock of the run keeps all others away. So a journal is read and
compared once, its file stays open for a whole answer, no lock of its own is needed, and the records
of evaluations, which the evaluator keeps, are not kept twice. A record that an evaluation begins
gets no line in the head: the record that follows names both.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from flwr_fbo.runs.files.checks import Chain
from flwr_fbo.runs.files.journal import (
    ENCODER,
    RECOMPUTABLE,
    ROOM,
    WORTH_A_FLUSH,
    Journal,
    append_lines,
    open_to_append,
)
from flwr_fbo.runs.files.journal_check import Head, JournalError, JournalOwner, open_head


class SoleJournal(Journal):
    """The records of an agent in a journal that only this process writes.

    Parameters
    ----------
    path
        The file.
    owner
        The run and the agent of the journal.
    unkept
        The kinds of records that can be forgotten once :meth:`forget` is called.
    begun
        The kind of the records after which another record follows at once.
    """

    def __init__(
        self, path: Path, owner: JournalOwner, unkept: Collection[str], begun: str
    ) -> None:
        super().__init__(path, owner)
        self._unkept, self._begun = frozenset(unkept), begun
        self._file: int | None = None
        self._head_file: int | None = None
        self._size = len(self._text)

    @property
    def chain(self) -> Chain:
        """Return how far the journal has come."""
        return self._reader.chain

    @property
    def size(self) -> int:
        """Return the bytes of the file."""
        return self._size

    def forget(self) -> None:
        """Drop the text, and the records that others keep."""
        self._text = bytearray()
        for kind in self._unkept:
            self._records.pop(kind, None)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the files open that records are appended to."""
        try:
            yield
        finally:
            for descriptor in (self._file, self._head_file):
                if descriptor is not None:
                    os.close(descriptor)
            self._file = self._head_file = None

    def reserve(self) -> None:
        """Raise JournalError unless the disk has room for more records."""
        check_room(self.path.parent)

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store a record; a record that cannot be stored leaves nothing in the file."""
        self._check_process()
        text = ENCODER.encode({"kind": kind, **record}).encode()
        chain = self._reader.chain.copy()
        lines = (b"" if chain.lines else chain.add(self._header())) + chain.add(text)
        flush = kind not in RECOMPUTABLE and record.get("seconds", math.inf) > WORTH_A_FLUSH
        self._write(lines, flush)
        self._reader.chain = chain
        if kind not in self._unkept:
            # Read back from its line, so that a later process reads the same values.
            stored = json.loads(text)
            self._records.setdefault(stored.pop("kind"), []).append(stored)
        if kind != self._begun:
            self._write_head(flush)

    def _write(self, lines: bytes, flush: bool) -> None:
        """Append lines to the file; take back what was written after an error."""
        try:
            if self._file is None:
                self._file = open_to_append(self.path)
            append_lines(self._file, lines, flush)
            self._size += len(lines)
        except OSError as error:
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from error

    def _store_head(self, head: Head) -> None:
        if self._head_file is None:
            self._head_file = open_head(self.path)
        os.pwrite(self._head_file, head.text(), 0)


def check_room(folder: Path) -> None:
    """Raise JournalError unless the disk of a folder has room for records of an evaluation."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        raise JournalError(f"{folder} cannot be used: {error.strerror}") from error
    if disk.f_bavail * disk.f_frsize < ROOM:
        raise JournalError(f"{folder} cannot be written: no space is left on the device")
