"""The lock of a run directory: one process at a time runs, continues or changes a run.

The lock is a lock of the operating system on the file ``run.lock``. It ends with the process that
holds it, even by a crash, so nobody has to remove the file. The text of the file says who holds the
lock, for the message to everybody else.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import weakref
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from flwr_fbo.runs.files import RunDirectoryError

#: The name of the lock in a run directory.
LOCK = "run.lock"


class RunLock:
    """The lock of one run directory, which may be taken again by who has it.

    Parameters
    ----------
    root
        The directory of the run.

    Examples
    --------
    >>> import tempfile
    >>> lock, other = (RunLock(Path(tempfile.gettempdir())) for _ in range(2))
    >>> with lock, lock:
    ...     other.__enter__()
    Traceback (most recent call last):
    ...
    flwr_fbo.runs.files.RunDirectoryError: ...
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._descriptor: int | None = None
        self._entered = 0
        _locks.add(self)

    def __enter__(self) -> Self:
        if self._descriptor is None:
            self._descriptor = _take(self.root)
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered and self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            self._release()

    @property
    def held(self) -> bool:
        """Return whether this object holds the lock."""
        return self._descriptor is not None

    def __del__(self) -> None:
        # A strategy in Flower's own loop may be dropped before its run has ended.
        self._release()

    def _release(self) -> None:
        """Close the file, which ends the lock."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


#: The locks of this process, which a process forked from it must not keep.
_locks: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Close the copies of the parent's locks: a child would hold them beyond the parent's end."""
    for lock in list(_locks):
        lock._release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def _take(root: Path) -> int:
    """Return the descriptor of the lock; raise RunDirectoryError where another process has it."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        _lock_file(descriptor)
    except OSError:
        os.close(descriptor)
        raise RunDirectoryError(
            f"{root} is in use: {_holder(path)} runs or changes this run. One process at a time "
            "may do so; wait until it has ended, or end it, and try again"
        ) from None
    with contextlib.suppress(OSError):  # the text is for people; the lock itself is taken
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(_self()).encode() + b"\n")
    return descriptor


def _lock_file(descriptor: int) -> None:
    """Lock an open file; raise OSError where another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows has no fcntl
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _self() -> dict[str, Any]:
    """Return who this process is."""
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().isoformat(timespec="seconds"),
        "command": " ".join(sys.argv)[:200],
    }


def _holder(path: Path) -> str:
    """Return who holds a lock, as far as its file says so."""
    try:
        found = json.loads(path.read_text())
        return (
            f"process {found['process']} on {found['host']} "
            f"(since {found['since']}: {found['command']})"
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
