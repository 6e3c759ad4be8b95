r"""The ledger: every release is on disk before it leaves.

An append-only text file, one JSON object a line. The first line is the header (which run this
is), each further line one charge::

    {"header": {...}, "hash": "..."}
    {"event": {...}, "index": 0, "hash": "..."}

Every hash covers the line and the hash before it, so a line that was changed, moved, or taken
out of the middle is noticed. (Lines cut off the end, exactly at a line's end, cannot be: keep
the directory where only the server writes.)

:meth:`Ledger.charge` returns when the line is on the disk (``fsync``). The order of a release is
therefore: charge, then add noise and send. A crash between the two counts a release that never
left; no crash can lose one that did.

A last line without its line end is what a crash in the middle of a write leaves. Its charge had
not returned, so nothing was released for it; it is counted all the same if the event in it can
be read, dropped if not, and the file is mended. Anything else that is wrong makes the ledger
refuse: who cannot say what was spent must not go on spending.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.events import Event, from_dict, to_dict


class LedgerError(PrivacyError):
    """A ledger cannot be trusted or written; the message names the file and says why."""


class Book(Protocol):
    """What keeps charges: a :class:`Ledger`, or a :class:`MemoryLedger` in tests."""

    header: dict[str, Any]

    @property
    def events(self) -> tuple[Event, ...]:
        """All that was charged, in order."""

    def charge(self, event: Event) -> None:
        """Note an event; when this returns, it will never be forgotten."""


class MemoryLedger:
    """A ledger for tests and benchmarks, which forgets everything with its process."""

    def __init__(self, header: Mapping[str, Any] | None = None) -> None:
        self.header = dict(header or {})
        self._events: tuple[Event, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """See :class:`Book`."""
        return self._events

    def charge(self, event: Event) -> None:
        """See :class:`Book`."""
        self._events = (*self._events, event)


class Ledger:
    """A ledger in a file; make one with :meth:`create` or :meth:`resume`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self._descriptor: int | None = descriptor
        self._events: tuple[Event, ...] = ()
        self._hash = ""

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> Self:
        """A new ledger for the run that the header describes; the file must not exist."""
        where = Path(path)
        content = _plain(header)
        where.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(where, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise LedgerError(f"{where}: a ledger is there already; resume it instead") from None
        ledger = cls(where, descriptor)
        _lock(descriptor, where)
        ledger.header = content
        ledger._append({"header": content})
        _sync_directory(where.parent)
        return ledger

    @classmethod
    def resume(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> Self:
        """The ledger of this very run, continued; one of another run is refused."""
        where = Path(path)
        try:
            descriptor = os.open(where, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise LedgerError(f"{where}: there is no ledger to resume") from None
        ledger = cls(where, descriptor)
        try:
            _lock(descriptor, where)
            ledger._read(_plain(header))
        except BaseException:
            ledger.close()
            raise
        return ledger

    @property
    def events(self) -> tuple[Event, ...]:
        """See :class:`Book`."""
        return self._events

    def charge(self, event: Event) -> None:
        """Write the event and force it to the disk; only then may its release leave."""
        self._append({"event": to_dict(event), "index": len(self._events)})
        self._events = (*self._events, event)

    def close(self) -> None:
        """Let go of the file; further charges are refused."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, body: dict[str, Any]) -> None:
        if self._descriptor is None:
            raise LedgerError(f"{self.path}: the ledger is closed")
        line, chain = _line(body, self._hash)
        try:
            _write(self._descriptor, line)
            os.fsync(self._descriptor)
        except OSError as error:
            # What reached the disk is unknown: only reading it back can tell.
            self.close()
            raise LedgerError(f"{self.path}: the charge could not be written: {error}") from error
        self._hash = chain

    def _read(self, expected: dict[str, Any]) -> None:
        assert self._descriptor is not None
        data = _read_all(self._descriptor)
        whole, torn = data[: data.rfind(b"\n") + 1], data[data.rfind(b"\n") + 1 :]
        lines = whole.splitlines(keepends=True)
        if not lines:
            raise LedgerError(
                f"{self.path}: the header is incomplete, so nothing was ever charged here; "
                "remove the file and start the run anew"
            )
        for number, line in enumerate(lines):
            self._accept(number, line, expected)
        if torn:
            self._mend(len(whole), torn)

    def _accept(self, number: int, line: bytes, expected: dict[str, Any]) -> None:
        """Take in one complete line, or refuse the whole ledger."""
        try:
            body = json.loads(line)
            again, chain = _line({k: v for k, v in body.items() if k != "hash"}, self._hash)
        except (ValueError, AttributeError, RecursionError):
            raise LedgerError(f"{self.path}: line {number + 1} is damaged") from None
        if again != line:
            raise LedgerError(
                f"{self.path}: line {number + 1} was changed, or the line before it was; "
                "what was spent can no longer be told"
            )
        self._hash = chain
        if number == 0:
            self._match(body.get("header"), expected)
            return
        try:
            event = from_dict(body["event"])
        except (PrivacyError, KeyError, TypeError) as error:
            raise LedgerError(
                f"{self.path}: line {number + 1} holds no known event: {error}"
            ) from None
        if body.get("index") != len(self._events):
            raise LedgerError(f"{self.path}: line {number + 1} is out of order")
        self._events = (*self._events, event)

    def _match(self, header: Any, expected: dict[str, Any]) -> None:
        if not isinstance(header, dict):
            raise LedgerError(f"{self.path}: the first line is not a ledger's header")
        differ = sorted(k for k in {*header, *expected} if header.get(k) != expected.get(k))
        if differ:
            raise LedgerError(
                f"{self.path}: this is the ledger of another run; "
                f"they differ in {', '.join(map(str, differ))}"
            )
        self.header = header

    def _mend(self, end: int, torn: bytes) -> None:
        """Cut a torn last line off, and charge its event anew if it can be read."""
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, end)
        os.fsync(self._descriptor)
        event = _torn_event(torn)
        if event is not None:
            self.charge(event)


def _line(body: dict[str, Any], before: str) -> tuple[bytes, str]:
    """A line of the file and its hash, which covers the hash of the line before."""
    text = _dump(body)
    chain = hashlib.sha256((before + text).encode()).hexdigest()
    return f"{text[:-1]}, {json.dumps('hash')}: {json.dumps(chain)}}}\n".encode(), chain


def _dump(body: Mapping[str, Any]) -> str:
    return json.dumps(body, allow_nan=False)  # keys in order: the event is first in its line


def _plain(header: Mapping[str, Any]) -> dict[str, Any]:
    """The header as JSON reads it back, so that it can be compared."""
    try:
        return dict(json.loads(_dump(dict(header))))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"`header` must be JSON, but is not: {error}") from None


def _torn_event(torn: bytes) -> Event | None:
    """The event of an incomplete line, where as much of the line was written."""
    text, opening = torn.decode(errors="replace"), '{"event": '
    if not text.startswith(opening):
        return None
    try:
        return from_dict(json.JSONDecoder().raw_decode(text, len(opening))[0])
    except (ValueError, TypeError, RecursionError):
        return None


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _lock(descriptor: int, path: Path) -> None:
    """Keep a second process out, where the system can."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise LedgerError(f"{path}: another process is using this ledger") from None


def _sync_directory(path: Path) -> None:
    """Make the file's name as durable as its content; not every system can or need."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
