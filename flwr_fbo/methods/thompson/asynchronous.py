"""Agents that answer with what they know while an evaluation goes on.

A reply of FTS or DP-FTS-DE is a vector that stands for all of an agent's evaluations. It does
not have to wait for the one that was just asked for. An :class:`AsynchronousAgent` has that one
made in the *background* and, after a set patience, shares what its records hold by then. While the
background is busy nothing else is begun: an agent makes one piece of work at a time and leaves
out the rounds that go by meanwhile. What is finished is recorded under the round in which it
was begun, once, and counts in every reply after that.

What leaves the agent is the same kind of vector as ever, so its privacy costs the same. An
agent that has evaluated nothing yet declines: a draw from its prior would be noise to everybody
else, and a straggler without a vector has weight zero (FTS Algorithm 1).

Work in the background must outlive the message that begins it, or say that it does not. On Flower it is a process
(:mod:`flwr_fbo.clients.background`); :class:`ThreadWork` serves those who call agents by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from flwr_fbo.core.protocol import Reply, Request

#: The word with which an agent declines that has evaluated nothing yet.
UNDER_WAY = "under-way"


class DividedAgent(Protocol):
    """An agent whose evaluations and replies can be apart."""

    @property
    def ignorant(self) -> bool:
        """Whether nothing was evaluated yet."""

    def due(self, request: Request) -> bool:
        """Whether :meth:`work` would evaluate anything."""

    def work(self, request: Request) -> None:
        """Evaluate what is asked for and is not recorded yet."""

    def share(self, request: Request) -> Reply:
        """What is expected, of what is known now."""


class BackgroundWork(Protocol):
    """Where an agent's evaluations are made, one request at a time."""

    def busy(self) -> bool:
        """Whether a request is being worked on."""

    def begin(self, request: Request) -> None:
        """Start to work on a request; only while nothing else is under way."""

    def wait(self, seconds: float) -> None:
        """Return when nothing is under way any more, or after so many seconds."""

    def unfinished(self) -> Request | None:
        """The last request that was begun, if it may be unfinished though nobody is at work."""

    def trouble(self) -> str:
        """The class of the error that ended the last piece of work; empty where none did."""


class AsynchronousAgent:
    """An agent around work in the background. ``make`` gives an agent as the records have it now."""

    def __init__(
        self, make: Callable[[], DividedAgent], work: BackgroundWork, patience: float
    ) -> None:
        self._make, self._work, self._patience = make, work, patience

    def answer(self, request: Request) -> Reply:
        """See :class:`flwr_fbo.core.protocol.Agent`."""
        trouble = self._go_on(request)
        if trouble:
            return Reply(declined=trouble)
        agent = self._make()
        if agent.ignorant and request.expects:
            return Reply(declined=UNDER_WAY)
        return agent.share(request)

    def _go_on(self, request: Request) -> str:
        """See to it that work is under way, and give it time; what is wrong with it, if it is."""
        trouble = ""
        if not self._work.busy():
            work = self._next(request)
            if work is None:
                return ""
            trouble = self._work.trouble()  # is tried again, but the server shall hear of it
            self._work.begin(work)
        self._work.wait(self._patience)
        return trouble if self._work.busy() else self._work.trouble()

    def _next(self, request: Request) -> Request | None:
        """What a worker left when it died, or else what is asked for; None if all is done."""
        agent = self._make()
        open_ones = (r for r in (self._work.unfinished(), request) if r is not None)
        return next((r for r in open_ones if agent.due(r)), None)


class ThreadWork:
    """A thread of this process. What is under way when the process ends is lost.

    ``make`` gives the agent that works: another object than the one that answers, with the
    same records.
    """

    def __init__(self, make: Callable[[], DividedAgent]) -> None:
        self._make = make
        self._thread: threading.Thread | None = None
        self._last: Request | None = None
        self._trouble = ""

    def busy(self) -> bool:
        """See :class:`BackgroundWork`."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, request: Request) -> None:
        """See :class:`BackgroundWork`."""
        if self.busy():
            raise RuntimeError("an agent works on one request at a time")
        self._last, self._trouble = request, ""
        self._thread = threading.Thread(target=self._work, args=(request,), daemon=True)
        self._thread.start()

    def _work(self, request: Request) -> None:
        try:
            self._make().work(request)
        except Exception as error:  # told by its class, as a client's errors are
            self._trouble = type(error).__name__

    def wait(self, seconds: float) -> None:
        """See :class:`BackgroundWork`."""
        if self._thread is not None:
            self._thread.join(seconds)

    def unfinished(self) -> Request | None:
        """See :class:`BackgroundWork`."""
        return self._last

    def trouble(self) -> str:
        """See :class:`BackgroundWork`."""
        return self._trouble
