"""Calls at the same time, each in a child process (a fork) of its own.

A time limit is a signal, which reaches only the main thread of a process, and some code ends the
process that it runs in. So calls at the same time need processes, and not threads. A child has a
process group of its own, so Ctrl-C reaches only its parent, which then ends all its children. On
Linux a child also ends when its parent does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import selectors
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from flwr_fbo.core.forks import ending_forked_processes

#: Most calls that a setting may ask for at the same time; each is a process.
MOST_PARALLEL = 256
#: Seconds between two looks at children that say nothing.
PAUSE = 0.2
#: Linux's name for the signal that a process gets when its parent ends (PR_SET_PDEATHSIG).
_PARENT_DEATH_SIGNAL = 1

#: Takes in the number of a call, the JSON value that it returned (None without one), and why there
#: is none: how the child ended, or an empty text where its time was up.
OnEnd = Callable[[int, Any, str], None]


def can_fork() -> bool:
    """Return whether processes can fork on this system."""
    return hasattr(os, "fork")


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_in_children(
    calls: Sequence[Callable[[], Any]],
    on_end: OnEnd,
    most_seconds: float | None = None,
    at_once: int | None = None,
) -> None:
    """Make calls at the same time, each in a child process, and pass on each that ends.

    Where this function raises an error, such as KeyboardInterrupt, no child is left.

    Parameters
    ----------
    calls
        The calls. What they return must be a JSON value.
    on_end
        Called in this process for each call, in the order in which the calls end.
    most_seconds
        Seconds after which a child is killed that has not ended; None is no limit.
    at_once
        The most children at the same time; None is as many as there are calls.
    """
    running: list[_Child] = []
    waiting = deque(enumerate(calls))
    with selectors.DefaultSelector() as selector:
        try:
            while running or waiting:
                while waiting and (at_once is None or len(running) < at_once):
                    with signals_later():  # or a child would be started that nobody ends
                        running.append(_Child(*waiting.popleft()))
                    selector.register(running[-1].pipe, selectors.EVENT_READ)
                selector.select(PAUSE)
                for child in running[:]:
                    ended = child.has_ended()
                    late = most_seconds is not None and child.seconds >= most_seconds
                    if ended or late:
                        selector.unregister(child.pipe)
                        running.remove(child)
                        on_end(child.number, *child.result(late=not ended))
        finally:
            with signals_later():
                for child in running:
                    child.kill()


@contextlib.contextmanager
def signals_later() -> Iterator[None]:
    """Let the handlers of Ctrl-C and SIGTERM, which may raise errors, run after the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    came: list[int] = []
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    ours = [number for number, handler in handlers.items() if callable(handler)]
    for number in ours:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, handlers[number])
        for one in came:
            signal.raise_signal(one)


class _Child:
    """A child process that makes one call, and writes what it returns into a pipe."""

    def __init__(self, number: int, call: Callable[[], Any]) -> None:
        self.number = number
        self._said, self._code = b"", 0
        self._started = time.monotonic()
        flush_output()  # or the child would print again what is not printed yet
        self.pipe, writing = os.pipe()
        parent = os.getpid()
        try:
            with warnings.catch_warnings():  # Python 3.12 warns where there are threads
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pid = os.fork()
        except BaseException:
            os.close(self.pipe)
            os.close(writing)
            raise
        if self._pid == 0:
            os.close(self.pipe)
            _answer(call, writing, parent)
        os.close(writing)
        os.set_blocking(self.pipe, False)
        with contextlib.suppress(OSError):  # the child does the same: one of the two is first
            os.setpgid(self._pid, self._pid)

    @property
    def seconds(self) -> float:
        """Return for how many seconds the child has run."""
        return time.monotonic() - self._started

    def has_ended(self) -> bool:
        """Return whether the call has ended, after reading what the child has written."""
        # Another process that the call started may keep the pipe open: the line's end and the
        # child's own end count, and not only the pipe's.
        gone = self._is_gone()
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.pipe, 1 << 16):
                self._said += chunk
            gone = True
        return gone or self._said.endswith(b"\n")

    def _is_gone(self) -> bool:
        """Return whether the child has ended."""
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._pid, options) is not None
        except ChildProcessError:  # a parent that ignores SIGCHLD is not told how children end
            return True

    def result(self, late: bool) -> tuple[Any, str]:
        """Return what the call returned and "", or None and how the child ended."""
        whole = self._said.endswith(b"\n")
        self.kill(wait=whole)
        if whole:
            return json.loads(self._said), ""
        if late:
            return None, ""
        code = self._code
        return None, f"by signal {-code}" if code < 0 else f"with exit code {code}"

    def kill(self, wait: bool = False) -> None:
        """End the child and all processes of its group; with ``wait``, let it end by itself."""
        if not wait:
            for end in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    end(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self.pipe)


def _answer(call: Callable[[], Any], pipe: int, parent: int) -> None:
    """Make a call in the child, write its answer into a pipe, and end this process."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        end_with(parent)
        # Handlers of this process are its parent's: Flower, Ray and our own command set some.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        with ending_forked_processes():  # the call may fork, too
            answer = json.dumps(call()).encode() + b"\n"
        flush_output()
        with os.fdopen(pipe, "wb") as file:
            file.write(answer)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def end_with(parent: int) -> None:
    """Let the system end this process when its parent ends, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def flush_output() -> None:
    """Print what waits to be printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, or closed
            stream.flush()


def seed_libraries(seed: int) -> None:
    """Seed the global generators of Python, numpy and, where it is loaded, torch.

    Children have a copy of their parent's generators, so all would draw the same numbers.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the generator that a task's libraries use
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
