"""A limit on the time of a call, for code that does not look at a clock itself."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

#: Seconds between two attempts to end a call that catches every exception.
AGAIN = 1.0
#: Seconds beyond the limit after which a process is ended that never lets Python run.
GRACE = 30.0
#: Seconds (30 years) beyond which a limit is as good as none; timers take no larger number.
LONGEST = 1e9


class OutOfTimeError(BaseException):
    """The call took longer than its limit.

    Not an ``Exception``, so that a call's own ``except Exception`` does not catch it.
    """


def _can_limit() -> bool:
    """Return whether a call of this thread can have a limit."""
    here = threading.current_thread() is threading.main_thread()
    return here and hasattr(signal, "setitimer")


class _Alarm:
    """One alarm for many limits, of which one holds at a time.

    To set an alarm and to restore the one before takes longer than a cheap evaluation. So the alarm
    goes on from one limit to the next: when it rings too early for the limit that holds by then, it
    is set again.
    """

    def __init__(self) -> None:
        #: When the limit ends that holds now; infinite between two limits.
        self.deadline = math.inf
        self._rings = math.inf

    def begin(self, seconds: float) -> None:
        """Begin a limit."""
        # The code of an evaluation may have used the alarm for itself.
        mine = signal.getsignal(signal.SIGALRM) == self._ring
        if not mine:
            signal.signal(signal.SIGALRM, self._ring)
        self.deadline = time.monotonic() + seconds
        if not mine or self._rings > self.deadline or not signal.getitimer(signal.ITIMER_REAL)[0]:
            self._set(seconds)

    def _set(self, seconds: float) -> None:
        """Let the alarm ring after some seconds, and again from then on."""
        self._rings = time.monotonic() + seconds
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), AGAIN)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """Raise OutOfTimeError if the limit is over; set the alarm again where one still holds."""
        if self.deadline == math.inf:
            self._rings = math.inf
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            return
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTimeError
        self._set(left)


#: The alarm that the limits of this process share; None where each has its own.
_alarm: _Alarm | None = None


@contextlib.contextmanager
def one_alarm() -> Iterator[None]:
    """Let all time limits in the block share an alarm, so that a limit costs next to nothing.

    Limits in the block must not be within one another.
    """
    global _alarm
    if _alarm is not None or not _can_limit():
        yield
        return
    _alarm = _Alarm()
    before = signal.getsignal(signal.SIGALRM)
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0.0)
    started = time.monotonic() if left else 0.0
    try:
        yield
    finally:
        _alarm = None
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        # Whoever had set an alarm before gets the alarm at its time.
        rest = max(left - (time.monotonic() - started), 1e-3) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, rest, interval)


@contextlib.contextmanager
def time_limit(seconds: float | None, *, may_end_process: bool = False) -> Iterator[None]:
    """Raise OutOfTimeError in the block if it takes longer than ``seconds``.

    The limit is a signal (SIGALRM), so it holds in the main thread of a process on Linux or macOS,
    and the error is raised as soon as Python runs: a long call into C code ends first. With
    ``may_end_process``, the whole process ends :data:`GRACE` seconds later, even in the middle of
    C code. Elsewhere there is no limit.

    Examples
    --------
    >>> with time_limit(60.0):
    ...     print("in time")
    in time
    """
    if seconds is None or not _can_limit():
        yield
        return
    if _alarm is not None and not may_end_process:
        _alarm.begin(min(seconds, LONGEST))
        try:
            yield
        finally:
            _alarm.deadline = math.inf
        return
    running = True

    def end(number: int, frame: FrameType | None) -> None:
        if running:
            raise OutOfTimeError

    before, started = signal.signal(signal.SIGALRM, end), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, min(seconds, LONGEST), AGAIN)
    if may_end_process:
        faulthandler.dump_traceback_later(min(seconds, LONGEST) + GRACE, exit=True, file=2)
    try:
        try:
            yield
        finally:
            running = False
    finally:
        # Whoever had set an alarm before gets the alarm at its time.
        rest = max(left - (time.monotonic() - started), 1e-3) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, rest, interval)
        if may_end_process:
            faulthandler.cancel_dump_traceback_later()
