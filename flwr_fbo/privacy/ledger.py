r"""The ledger: a file that holds the event of every release before the release is sent.

The file is text, only ever appended to, with one JSON object a line. The first line is the
header, which identifies the run. Every further line is one charge::

    {"header": {...}, "hash": "..."}
    {"event": {...}, "index": 0, "hash": "..."}

Every hash covers its line and the hash of the line before. A line that was changed, moved or
removed from the middle therefore does not match, and the ledger is refused. The hashes are keyed
by a secret in a file beside the ledger (``ledger.jsonl.key``), which also says how many lines there
are and what the last hash is. So lines that are missing at the end are noticed too, and so is a
line written by somebody who can write the ledger but not read the key. Who can write both files
can forge both, or put back an older copy of both: keep the directory where only the server
writes. A run's checkpoint and releases name the ledger's state as well.

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
import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from flwr_fbo.core.forks import ForkError, Process
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
    """A ledger in a file, opened with :meth:`create`, :meth:`resume` or :meth:`open`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self._descriptor: int | None = descriptor
        self._events: tuple[Event, ...] = ()
        self._hash = ""  # of the last line
        self._chain: list[str] = []  # the hashes of all lines
        self._seal = Seal(path.with_name(path.name + ".key"))
        self._process = Process()

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> Self:
        """Create the ledger of the run that the header describes. The file must not exist."""
        where = Path(path)
        content = _plain(header)
        _make_directory(where.parent)
        if where.exists():
            raise LedgerError(f"{where}: a ledger exists already; resume it instead")
        seal = Seal.new(where.with_name(where.name + ".key"))
        try:
            seal.save()  # before the ledger: a ledger without its key could not be resumed
        except OSError as error:
            raise LedgerError(f"{seal.path}: the key could not be written: {error}") from error
        try:
            # O_EXCL: two runs that share a file would each see half of what was spent.
            descriptor = os.open(where, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise LedgerError(f"{where}: a ledger exists already; resume it instead") from None
        ledger = cls(where, descriptor)
        ledger._seal = seal
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
            ledger._seal = Seal.load(where.with_name(where.name + ".key"))
            ledger._read(_plain(header))
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def open(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> Self:
        """Open the ledger of a run, or create it where there is none."""
        where = Path(path)
        if where.exists() and b"\n" not in where.read_bytes():
            # A crash while the file was made: nothing was ever charged to it. If something was,
            # the key beside it says so, and making the ledger anew is refused.
            where.unlink()
        return (cls.resume if where.exists() else cls.create)(where, header)

    @property
    def events(self) -> tuple[Event, ...]:
        """Return every event charged so far, in order."""
        return self._events

    def charge(self, event: Event) -> None:
        """Write the event and force the line to the disk. Only then may the release be sent."""
        self._append({"event": to_dict(event), "index": len(self._events)})
        self._events = (*self._events, event)

    @property
    def state(self) -> dict[str, Any]:
        """Return how far the ledger has come, for a checkpoint to name: lines and last hash."""
        return {"lines": len(self._chain), "hash": self._hash}

    def require(self, state: Mapping[str, Any]) -> None:
        """Raise unless the ledger holds at least the lines that a checkpoint names."""
        Seal(self.path, lines=int(state["lines"]), hash=str(state["hash"])).check(
            self.path, self._chain
        )

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
        try:
            self._process.check(self.path)
        except ForkError as error:
            raise LedgerError(str(error)) from None
        line, chain = _line(body, self._hash, self._seal.key)
        try:
            _write(self._descriptor, line)
            os.fsync(self._descriptor)
            self._chain.append(chain)
            self._seal.mark(len(self._chain), chain)
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
        # Before the repair, which writes the seal anew: the charge of a torn line had not returned.
        self._seal.check(self.path, self._chain)
        if torn:
            self._repair(len(whole), torn)

    def _accept(self, number: int, line: bytes, expected: dict[str, Any]) -> None:
        """Add the event of one complete line, or refuse the whole ledger."""
        try:
            body = json.loads(line)
            # Writing the body again must give the same bytes, the hash among them.
            again, chain = _line(
                {k: v for k, v in body.items() if k != "hash"}, self._hash, self._seal.key
            )
        except (ValueError, AttributeError, RecursionError):
            raise LedgerError(f"{self.path}: line {number + 1} is damaged") from None
        if again != line:
            raise LedgerError(
                f"{self.path}: line {number + 1} was changed, or the line before it was: "
                "the hash does not match, so what was spent is unknown"
            )
        self._hash = chain
        self._chain.append(chain)
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


@dataclass
class Seal:
    """What lies beside a ledger: the key of its hashes, and how far the ledger had come.

    The file is written after every charge. A ledger that lost lines, or whose lines somebody
    wrote who does not have the key, does not fit it any more. Who can write both files can
    forge both.
    """

    path: Path
    key: bytes = b""
    lines: int = 0
    hash: str = ""

    @classmethod
    def new(cls, path: Path) -> Seal:
        """Make a seal with a new key; refuse to replace that of a ledger which held charges."""
        if path.exists() and cls.load(path).lines > 1:
            raise LedgerError(
                f"{path}: this is the key of a ledger with charges, but the ledger is gone; what "
                "was spent is unknown. Restore the ledger from a backup"
            )
        return cls(path, secrets.token_bytes(32))

    @classmethod
    def load(cls, path: Path) -> Seal:
        """Read the seal of a ledger."""
        try:
            content = json.loads(path.read_text())
            key, lines = bytes.fromhex(content["key"]), content["lines"]
            if len(key) != 32 or type(lines) is not int or lines < 0:
                raise ValueError("its key or its count is damaged")
            return cls(path, key, lines, str(content["hash"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise LedgerError(
                f"{path}: the key of the ledger cannot be read ({error}), so the ledger cannot be "
                "trusted; restore both from a backup"
            ) from None

    def mark(self, lines: int, last: str) -> None:
        """Note how far the ledger has come."""
        self.lines, self.hash = lines, last
        self.save()

    def save(self) -> None:
        """Write the seal whole or not at all, readable by its owner only."""
        content = {"key": self.key.hex(), "lines": self.lines, "hash": self.hash}
        temporary = self.path.with_name(self.path.name + ".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(descriptor, json.dumps(content).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(self.path)

    def check(self, ledger: Path, chain: Sequence[str]) -> None:
        """Raise unless the ledger holds at least the lines that the seal knows of."""
        if len(chain) < self.lines or (self.lines and chain[self.lines - 1] != self.hash):
            held, known = max(len(chain) - 1, 0), max(self.lines - 1, 0)
            raise LedgerError(
                f"{ledger}: the ledger holds {held} charges, but {known} were made: charges are "
                "missing, so what was spent is unknown. Restore the ledger from a backup"
            )


def _line(body: dict[str, Any], before: str, key: bytes) -> tuple[bytes, str]:
    """Return a line of the file and its keyed hash, which covers the hash of the line before."""
    text = _dump(body)
    chain = hmac.new(key, (before + text).encode(), hashlib.sha256).hexdigest()
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


def _make_directory(path: Path) -> None:
    """Make a directory and all above it, and force their entries to the disk."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync_directory(made.parent)


def _sync_directory(path: Path) -> None:
    """Force the directory entry of a new file to the disk, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
