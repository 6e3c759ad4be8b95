"""Agents that reply with what they know while an evaluation is still running.

A reply of FTS or DP-FTS-DE is a vector that stands for all evaluations of an agent. The reply
need not wait for the evaluation that was just requested. An :class:`AsynchronousAgent` has that
evaluation made in the *background*. After a set number of seconds the agent replies with the
evaluations that are recorded by then. An agent evaluates for one request at a time: while the
background is busy, the agent begins nothing else and leaves out the requests of the rounds that
pass. A finished evaluation is recorded once, under the round in which it was begun, and counts
in every later reply.

An early reply is a vector of the same kind as a late one, so its privacy costs the same. An
agent without any evaluation declines: a draw from its prior would only add noise to the shared
function, and an agent without a vector has weight zero (a straggler, FTS Section 3.1).

Background work must outlive the message that begins it, or say that it does not. On Flower the
background is a process (:mod:`flwr_fbo.clients.background`). :class:`ThreadWork` is a thread, for
code that calls agents without Flower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from flwr_fbo.core.protocol import Reply, Request

#: The word with which an agent declines while its first evaluation is still running.
UNDER_WAY = "under-way"


class TwoStepAgent(Protocol):
    """An agent that evaluates and replies in two separate steps."""

    @property
    def has_evaluations(self) -> bool:
        """Return whether the agent has made any evaluation, failed ones included."""

    def has_work(self, request: Request) -> bool:
        """Return whether :meth:`work` would make any evaluation."""

    def work(self, request: Request) -> None:
        """Make the evaluations of a request that are not recorded yet."""

    def share(self, request: Request) -> Reply:
        """Return the arrays that a request expects, from the evaluations made so far."""


class BackgroundWork(Protocol):
    """The place where an agent's evaluations are made, for one request at a time."""

    def busy(self) -> bool:
        """Return whether a request is being worked on."""

    def begin(self, request: Request) -> None:
        """Start the work of a request; only while no other request is worked on."""

    def wait(self, seconds: float) -> None:
        """Wait until no request is worked on, for at most this number of seconds."""

    def unfinished(self) -> Request | None:
        """Return the last request that was begun, which may be unfinished if nothing is busy."""

    def last_error(self) -> str:
        """Return the class of the error that ended the last work, or ``""`` without an error."""


class AsynchronousAgent:
    """An agent that evaluates in the background and replies after a limited time.

    Parameters
    ----------
    make : Callable
        Returns a new agent with the present records.
    work : BackgroundWork
        The place where evaluations are made.
    answer_within : float
        Seconds to wait for an evaluation before the reply.
    """

    def __init__(
        self, make: Callable[[], TwoStepAgent], work: BackgroundWork, answer_within: float
    ) -> None:
        self._make, self._work, self._answer_within = make, work, answer_within

    def answer(self, request: Request) -> Reply:
        """Continue or begin the evaluations, wait for a limited time, and return the reply."""
        error = self._continue_work(request)
        if error:
            return Reply(declined=error)
        agent = self._make()
        # A draw from the prior would only add noise to what other agents receive.
        if request.expects and not agent.has_evaluations:
            return Reply(declined=UNDER_WAY)
        return agent.share(request)

    def _continue_work(self, request: Request) -> str:
        """Begin work if none is running, wait, and return the class of any error."""
        error = ""
        if not self._work.busy():
            work = self._next_work(request)
            if work is None:
                return ""
            # Work that failed before is tried again, and the server is sent the old error, as
            # the new attempt may still be running when the reply is due.
            error = self._work.last_error()
            self._work.begin(work)
        self._work.wait(self._answer_within)
        return error if self._work.busy() else self._work.last_error()

    def _next_work(self, request: Request) -> Request | None:
        """Return the request to work on, an unfinished one first; None if all is recorded."""
        agent = self._make()
        waiting = (r for r in (self._work.unfinished(), request) if r is not None)
        return next((r for r in waiting if agent.has_work(r)), None)


class ThreadWork:
    """Background work in a thread of this process; work is lost when the process ends.

    Parameters
    ----------
    make : Callable
        Returns the agent that evaluates: another object than the agent that replies, with the
        same records.
    """

    def __init__(self, make: Callable[[], TwoStepAgent]) -> None:
        self._make = make
        self._thread: threading.Thread | None = None
        self._last: Request | None = None
        self._error = ""

    def busy(self) -> bool:
        """Return whether the thread is working on a request."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, request: Request) -> None:
        """Start a thread for a request; raise RuntimeError while another one is working."""
        if self.busy():
            raise RuntimeError("an agent works on one request at a time, but one is not finished")
        self._last, self._error = request, ""
        # A daemon: the process may end without waiting for the evaluation.
        self._thread = threading.Thread(target=self._work, args=(request,), daemon=True)
        self._thread.start()

    def _work(self, request: Request) -> None:
        try:
            self._make().work(request)
        except Exception as error:  # a reply may name the class of an error, and never its text
            self._error = type(error).__name__

    def wait(self, seconds: float) -> None:
        """Wait until the thread has ended, for at most this number of seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    def unfinished(self) -> Request | None:
        """Return the last request that was begun."""
        return self._last

    def last_error(self) -> str:
        """Return the class of the error that ended the last work, or ``""`` without an error."""
        return self._error
