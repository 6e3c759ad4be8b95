"""A limit on the time of a call, for code that does not look at a clock itself."""

from __future__ import annotations

import contextlib
import faulthandler
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
    here = threading.current_thread() is threading.main_thread()
    if seconds is None or not here or not hasattr(signal, "setitimer"):
        yield
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
