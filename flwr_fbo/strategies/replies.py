"""Sending a round's messages and collecting what comes back, within a time of our own.

Flower's ``send_and_receive`` looks for replies every three seconds in a deployment and cannot
be told that enough have come. This one looks at once, then more and more rarely while nothing
comes, and stops at a deadline, or when as many have answered as suffice.

Two things that a node may do must not cost the others anything:

- A node that dies in the middle of an upload makes ``Grid.pull_messages`` wait for the rest
  until its session expires, some minutes later, whatever time-out one has in mind. Replies are
  therefore pulled in threads of their own. One that is stuck for longer than :data:`STUCK`
  is left to itself, and another goes on with the other messages.
- A reply that Flower cannot take apart makes ``pull_messages`` raise and takes with it all
  other replies of the same call. Replies are therefore pulled one by one.

**Late replies are dropped.** A round's vectors are computed for that round, and an agent that
counted late could count twice in the next. An agent that is left out counts as zero, which the
accounting of a private release allows for at no cost. Nothing is lost but time: an agent keeps
its evaluations, and repeats an answer that it paid for without paying again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

logger = logging.getLogger("flwr.fbo")

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
#: Between two passes over what is waited for, so many times as long as a pass computes is slept.
REST = 50.0
#: The same while replies come in: a simulation's engine goes through all messages that were not
#: fetched, for every node, again and again, which takes more than looking for them does.
REST_COMING = 5.0
#: Seconds that one reply may take to arrive before it is waited for in the background.
STUCK = 5.0


def exchange(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    share: float = 1.0,
    on_reply: Callable[[int], None] = lambda count: None,
) -> dict[int, Message]:
    """The replies that arrive in time, by the number of the message that they answer.

    It is over when ``share`` of the messages that could be sent have a reply. Errors that the
    SuperLink reports are replies too: they are told by the message that they answer, since
    they name a wrong sender. ``on_reply`` is told how many there are, whenever one arrives.
    """
    sent = {
        message_id: number
        for number, message_id in enumerate(grid.push_messages(messages))
        if message_id is not None
    }
    if not sent:
        return {}
    enough = math.ceil(share * len(sent) - 1e-9)
    collector = _Collector(grid, sent, max(1, enough))
    try:
        return collector.collect(time.monotonic() + timeout, on_reply)
    finally:
        collector.stop()


class _Collector:
    """Pulls the replies to some messages, in one thread after the other."""

    def __init__(self, grid: Grid, sent: dict[str, int], enough: int) -> None:
        self._grid, self._sent, self._enough = grid, sent, enough
        self._arrived: list[Message] = []
        self._count = 0  # of all that ever arrived
        self._news = threading.Event()  # a pass is over, or enough have answered
        self._lock = threading.Lock()
        self._open = dict.fromkeys(sent)  # ids without a reply, in the order to ask for them
        self._over = False
        self._worker: _Worker | None = None

    def collect(self, deadline: float, on_reply: Callable[[int], None]) -> dict[int, Message]:
        """Replies by number, until there are enough or it is too late."""
        replies: dict[int, Message] = {}
        while True:
            self._news.clear()
            with self._lock:
                arrived, self._arrived = self._arrived, []
            for reply in arrived:
                number = self._sent.get(reply.metadata.reply_to_message_id)
                if number is not None:
                    replies.setdefault(number, reply)
                    on_reply(len(replies))
            now = time.monotonic()
            if len(replies) >= self._enough or now >= deadline:
                return replies
            self._keep_pulling(now)
            self._news.wait(min(deadline - now, STUCK / 5))

    def stop(self) -> None:
        """Let threads that are stuck end when they can, and be forgotten."""
        with self._lock:
            self._over = True

    def _keep_pulling(self, now: float) -> None:
        """Have a thread at work that is not stuck."""
        with self._lock:
            worker = self._worker
            if worker is not None and now - worker.since > STUCK:
                logger.warning("a reply takes more than %g s to arrive; going on", STUCK)
                worker.abandoned, worker = True, None
            if worker is None:
                self._worker = worker = _Worker()
                thread = threading.Thread(target=self._pull, args=(worker,), daemon=True)
                thread.start()

    def _pull(self, worker: _Worker) -> None:
        pause = FIRST_PAUSE
        while waiting := self._waiting():
            started, computed = time.monotonic(), time.thread_time()
            for message_id in waiting:
                if not self._pull_one(message_id, worker):
                    return
            self._news.set()
            # A simulation's agents share this process's lock, and a SuperLink has others to
            # serve: little of the time is spent on asking, however many are waited for. Where
            # replies are coming in, the rest are expected soon.
            coming = len(self._waiting()) < len(waiting)
            times = REST_COMING if coming else REST
            rest = max(time.monotonic() - started, times * (time.thread_time() - computed))
            pause = FIRST_PAUSE if coming else min(1.5 * pause, LONGEST_PAUSE)
            time.sleep(min(max(pause, rest), LONGEST_PAUSE))
            worker.since = time.monotonic()

    def _waiting(self) -> list[str]:
        with self._lock:
            return [] if self._over else list(self._open)

    def _pull_one(self, message_id: str, worker: _Worker) -> bool:
        """Look for one reply; False if this thread is no longer wanted."""
        with self._lock:
            if self._over or worker.abandoned:
                return False
            if message_id not in self._open:
                return True
            worker.since = time.monotonic()
            del self._open[message_id]  # nobody else may pull it meanwhile
        found: list[Message] = []
        try:
            found = list(self._grid.pull_messages([message_id]))
        except Exception as error:  # a reply that cannot be read, or a SuperLink that is away
            logger.warning("a reply could not be pulled: %s", type(error).__name__)
        with self._lock:
            if not found:
                self._open[message_id] = None
            self._arrived += found
            self._count += len(found)
            if found and self._count >= self._enough:
                self._news.set()
            return not (worker.abandoned or self._over)


class _Worker:
    """A thread's state, as the others see it."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.abandoned = False
