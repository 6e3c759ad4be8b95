"""Limits that share an alarm hold as limits with an alarm each."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from flwr_fbo.core.time_limit import OutOfTimeError, one_alarm, time_limit

NEVER = 60.0


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.fixture(params=[True, False], ids=["shared", "own"])
def block(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return one_alarm if request.param else contextlib.nullcontext


def test_a_call_that_takes_too_long_is_ended(block: Callable[[], Any]) -> None:
    with block():
        for _ in range(2):
            with pytest.raises(OutOfTimeError), time_limit(0.05):
                spin(NEVER)


def test_each_call_has_the_whole_time(block: Callable[[], Any]) -> None:
    """The alarm of the first call rings in the middle of a later one, which goes on."""
    with block():
        for _ in range(6):
            with time_limit(0.5):
                spin(0.15)


def test_a_shorter_limit_holds_after_a_longer_one(block: Callable[[], Any]) -> None:
    with block():
        with time_limit(NEVER):
            pass
        with pytest.raises(OutOfTimeError), time_limit(0.05):
            spin(NEVER)


def test_nothing_is_ended_between_two_limits(block: Callable[[], Any]) -> None:
    with block():
        with time_limit(0.05):
            pass
        spin(0.2)
        with pytest.raises(OutOfTimeError), time_limit(0.05):
            spin(NEVER)


def test_code_that_uses_the_alarm_itself_does_not_end_the_limits(block: Callable[[], Any]) -> None:
    with block():
        with time_limit(NEVER):
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        with pytest.raises(OutOfTimeError), time_limit(0.05):
            spin(NEVER)
        with time_limit(NEVER):
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        with pytest.raises(OutOfTimeError), time_limit(0.05):
            spin(NEVER)


def test_a_forked_process_has_its_limit(block: Callable[[], Any]) -> None:
    with block():
        with time_limit(NEVER):
            pass
        child = os.fork()
        if not child:
            try:
                with time_limit(0.05):
                    spin(NEVER)
            except OutOfTimeError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_the_alarm_of_somebody_else_rings_at_its_time(block: Callable[[], Any]) -> None:
    rang: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rang.append(time.monotonic()))
    try:
        started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with block(), time_limit(NEVER):
            pass
        while not rang:
            spin(0.01)
        assert rang[0] - started >= 0.29
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
