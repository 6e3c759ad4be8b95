r"""The ledger: a file that holds the event of every release before the release is sent.

The file is text, only ever appended to, with one JSON object a line. The first line is the
header, which identifies the run. Every further line is one charge::

    {"header": {...}, "hash": "..."}
    {"event": {...}, "index": 0, "hash": "..."}

Every hash covers its line and the hash of the line before. A line that was changed, moved or
removed from the middle therefore does not match, and the ledger is refused. The hashes have no
key: they reveal accidents and partial changes, not a writer who computes all hashes anew. Lines
removed from the end are not noticed either. Keep the directory where only the server writes.

:meth:`Ledger.charge` returns once the line is on the disk (``fsync``). A release is charged
first, and only then drawn and sent. A crash between the two counts a release that was never
sent; no crash loses the charge of a release that was sent.

A crash in the middle of a write leaves a last line without its line end. The charge of that line
had not returned, so nothing was released for it. The line is counted all the same if its event
can be read, and dropped if not; then the file is repaired. After any other damage the ledger is
refused, because a run must not spend when what was spent is unknown.
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
    """A ledger cannot be trusted or written; the message names the file and the reason."""


class LedgerLike(Protocol):
    """What a :class:`Ledger` and a :class:`MemoryLedger` have in common."""

    header: dict[str, Any]

    @property
    def events(self) -> tuple[Event, ...]:
        """Return every event charged so far, in order."""

    def charge(self, event: Event) -> None:
        """Store an event. The event is permanent when the call returns."""


class MemoryLedger:
    """A ledger in memory, for tests and benchmarks. Its events end with the process."""

    def __init__(self, header: Mapping[str, Any] | None = None) -> None:
        self.header = dict(header or {})
        self._events: tuple[Event, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """Return every event charged so far, in order."""
        return self._events

    def charge(self, event: Event) -> None:
        """Store an event in memory."""
        self._events = (*self._events, event)


class Ledger:
    """A ledger in a file, opened with :meth:`create` or :meth:`resume`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self._descriptor: int | None = descriptor
        self._events: tuple[Event, ...] = ()
        self._hash = ""  # of the last line

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> Self:
        """Create the ledger of the run that the header describes. The file must not exist."""
        where = Path(path)
        content = _plain(header)
        where.parent.mkdir(parents=True, exist_ok=True)
        try:
            # O_EXCL: two runs that share a file would each see half of what was spent.
            descriptor = os.open(where, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise LedgerError(f"{where}: a ledger exists already; resume it instead") from None
        ledger = cls(where, descriptor)
        _lock(descriptor, where)
        ledger.header = content
        ledger._append({"header": content})
        _sync_directory(where.parent)
        return ledger

    @classmethod
    def resume(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> Self:
        """Open the ledger of an earlier process of the same run; refuse another run's ledger."""
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
        """Return every event charged so far, in order."""
        return self._events

    def charge(self, event: Event) -> None:
        """Write the event and force the line to the disk. Only then may the release be sent."""
        self._append({"event": to_dict(event), "index": len(self._events)})
        self._events = (*self._events, event)

    def close(self) -> None:
        """Close the file. Further charges raise :class:`LedgerError`."""
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
        """Write a line at the end of the file and wait until the line is on the disk."""
        if self._descriptor is None:
            raise LedgerError(f"{self.path}: the ledger is closed")
        line, chain = _line(body, self._hash)
        try:
            _write(self._descriptor, line)
            os.fsync(self._descriptor)
        except OSError as error:
            # How much reached the disk is unknown, so only a new `resume` may go on.
            self.close()
            raise LedgerError(f"{self.path}: the charge could not be written: {error}") from error
        self._hash = chain

    def _read(self, expected: dict[str, Any]) -> None:
        """Read and check the whole file, and repair a torn last line."""
        assert self._descriptor is not None
        data = _read_all(self._descriptor)
        # Every write ends with a line end, so only bytes after the last one can be torn.
        whole, torn = data[: data.rfind(b"\n") + 1], data[data.rfind(b"\n") + 1 :]
        lines = whole.splitlines(keepends=True)
        if not lines:
            raise LedgerError(
                f"{self.path}: the header is incomplete, so nothing was ever charged here; "
                "remove the file and start the run again"
            )
        for number, line in enumerate(lines):
            self._accept(number, line, expected)
        if torn:
            self._repair(len(whole), torn)

    def _accept(self, number: int, line: bytes, expected: dict[str, Any]) -> None:
        """Add the event of one complete line, or refuse the whole ledger."""
        try:
            body = json.loads(line)
            # Writing the body again must give the same bytes, the hash among them.
            again, chain = _line({k: v for k, v in body.items() if k != "hash"}, self._hash)
        except (ValueError, AttributeError, RecursionError):
            raise LedgerError(f"{self.path}: line {number + 1} is damaged") from None
        if again != line:
            raise LedgerError(
                f"{self.path}: line {number + 1} was changed, or the line before it was: "
                "the hash does not match, so what was spent is unknown"
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
        """Take the header of the file, which must equal the expected one."""
        if not isinstance(header, dict):
            raise LedgerError(f"{self.path}: the first line is not a ledger's header")
        differ = sorted(k for k in {*header, *expected} if header.get(k) != expected.get(k))
        if differ:
            raise LedgerError(
                f"{self.path}: this is the ledger of another run; "
                f"they differ in {', '.join(map(str, differ))}"
            )
        self.header = header

    def _repair(self, end: int, torn: bytes) -> None:
        """Cut off a torn last line, and charge its event again if the event can be read."""
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, end)
        os.fsync(self._descriptor)
        event = _torn_event(torn)
        if event is not None:
            self.charge(event)


def _line(body: dict[str, Any], before: str) -> tuple[bytes, str]:
    """Return a line of the file and its hash, which covers the hash of the line before."""
    text = _dump(body)
    chain = hashlib.sha256((before + text).encode()).hexdigest()
    return f"{text[:-1]}, {json.dumps('hash')}: {json.dumps(chain)}}}\n".encode(), chain


def _dump(body: Mapping[str, Any]) -> str:
    # The event stays the first key of its line, where `_torn_event` looks for it.
    return json.dumps(body, allow_nan=False)


def _plain(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header as JSON reads it back, to compare with the header of a file."""
    try:
        return dict(json.loads(_dump(dict(header))))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"`header` must be JSON, but is not: {error}") from None


def _torn_event(torn: bytes) -> Event | None:
    """Return the event of an incomplete line, or None where the event is incomplete too."""
    text, opening = torn.decode(errors="replace"), '{"event": '
    if not text.startswith(opening):
        return None
    try:
        return from_dict(json.JSONDecoder().raw_decode(text, len(opening))[0])
    except (ValueError, TypeError, RecursionError):
        return None


def _write(descriptor: int, data: bytes) -> None:
    """Write all bytes, in as many calls as the system needs."""
    while data:
        data = data[os.write(descriptor, data) :]


def _read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _lock(descriptor: int, path: Path) -> None:
    """Lock the file against a second process, where the system has file locks."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise LedgerError(f"{path}: another process is using this ledger") from None


def _sync_directory(path: Path) -> None:
    """Force the directory entry of a new file to the disk, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
