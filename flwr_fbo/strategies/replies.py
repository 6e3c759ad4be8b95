"""Send messages and collect the replies until a deadline, or until enough have come.

Flower's ``send_and_receive`` looks for replies every three seconds in a deployment, and waits for
all of them. :func:`send_and_collect` looks at once, then more and more rarely while no reply comes.
It ends at a deadline, or when a given share of the messages has replies.

Two faults of a node must not delay the others:

- A node that dies in the middle of an upload makes ``Grid.pull_messages`` wait until the node's
  session expires, some minutes later, whatever timeout is set. Replies are therefore pulled in a
  thread. A thread that waits longer than :data:`STUCK` for one reply is abandoned, and another
  thread pulls the other replies.
- A reply that Flower cannot decode makes ``pull_messages`` raise, and all other replies of the
  same call are lost. Replies are therefore pulled one by one.

**Late replies are dropped.** The vectors of a round are computed for that round, and an agent whose
late reply counted could count twice in the next round. An agent without a reply counts as zero,
which the accounting of a private release allows at no cost. Only time is lost: the agent keeps its
evaluations, and repeats a reply without repeating an evaluation.
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

#: Seconds between two passes over the open messages, from the shortest to the longest pause.
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
#: The least pause after a pass, in multiples of the CPU time that the pass took.
REST = 50.0
#: The same multiple while replies come in. It is smaller, because a simulation's engine keeps
#: searching all replies that were not pulled, for every node, which costs more than pulling them.
REST_COMING = 5.0
#: Seconds that one reply may take to arrive before another thread pulls the others.
STUCK = 5.0


def send_and_collect(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    share: float = 1.0,
    on_reply: Callable[[int], None] = lambda count: None,
) -> dict[int, Message]:
    """Return the replies that arrive in time, by the number of the message that they answer.

    Parameters
    ----------
    grid
        Flower's grid.
    messages
        The messages to send.
    timeout
        The most seconds to wait.
    share
        The share of the sent messages whose replies end the waiting.
    on_reply
        Called with the number of replies whenever a reply arrives.

    Notes
    -----
    An error that the SuperLink reports is a reply too. Such an error names a wrong sender, so all
    replies are matched by the message that they answer.
    """
    sent = {
        message_id: number
        for number, message_id in enumerate(grid.push_messages(messages))
        if message_id is not None
    }
    if not sent:
        return {}
    collector = _Collector(grid, sent, enough_of(len(sent), share))
    try:
        return collector.collect(time.monotonic() + timeout, on_reply)
    finally:
        collector.stop()


def enough_of(sent: int, share: float) -> int:
    """Return how many replies are a share of the messages that were sent, at least one."""
    # In floating point 0.07 of 100 is 7.000000000000001, which must not round up to 8.
    return max(1, math.ceil(share * sent - 1e-9))


class _Collector:
    """The collection of replies to some messages; one thread at a time pulls them."""

    def __init__(self, grid: Grid, sent: dict[str, int], enough: int) -> None:
        self._grid, self._sent, self._enough = grid, sent, enough
        self._arrived: list[Message] = []
        self._count = 0  # of all replies that arrived so far
        self._progress = threading.Event()  # set after a pass, and when there are enough replies
        self._lock = threading.Lock()
        self._open = dict.fromkeys(sent)  # messages without a reply, in the order to pull them
        self._stopped = False
        self._puller: _Puller | None = None

    def collect(self, deadline: float, on_reply: Callable[[int], None]) -> dict[int, Message]:
        """Return the replies by number, when there are enough of them or at the deadline."""
        replies: dict[int, Message] = {}
        swept = False
        while True:
            self._progress.clear()
            with self._lock:
                arrived, self._arrived = self._arrived, []
            for reply in arrived:
                number = self._sent.get(reply.metadata.reply_to_message_id)
                if number is not None:
                    replies.setdefault(number, reply)
                    on_reply(len(replies))
            now = time.monotonic()
            if len(replies) >= self._enough or swept:
                return replies
            if now >= deadline:
                self._sweep()
                swept = True
                continue
            self._keep_pulling(now)
            self._progress.wait(min(deadline - now, STUCK / 5))

    def _sweep(self) -> None:
        """Pull the reply to every open message once more, at the deadline."""
        # The thread rests between two passes, and longer while few replies come. Without a last
        # pass, whether a reply counts would depend on when other nodes replied.
        sweeper = _Puller()
        with self._lock:
            if self._puller is not None:
                self._puller.abandoned = True
            self._puller = sweeper

        def pull_all() -> None:
            for message_id in self._waiting():
                if not self._pull_one(message_id, sweeper):
                    return

        thread = threading.Thread(target=pull_all, daemon=True)
        thread.start()
        thread.join(STUCK)

    def stop(self) -> None:
        """Let the thread end, a stuck one as soon as it can."""
        with self._lock:
            self._stopped = True

    def _keep_pulling(self, now: float) -> None:
        """Start a thread unless one is at work; a stuck thread is abandoned."""
        with self._lock:
            puller = self._puller
            if puller is not None and now - puller.since > STUCK:
                logger.warning(
                    "a reply takes more than %g s to arrive; the server goes on without it", STUCK
                )
                puller.abandoned, puller = True, None
            if puller is None:
                self._puller = puller = _Puller()
                thread = threading.Thread(target=self._pull, args=(puller,), daemon=True)
                thread.start()

    def _pull(self, puller: _Puller) -> None:
        """Pull replies in passes over the open messages, until none is open."""
        pause = FIRST_PAUSE
        while waiting := self._waiting():
            started, computed = time.monotonic(), time.thread_time()
            for message_id in waiting:
                if not self._pull_one(message_id, puller):
                    return
            self._progress.set()
            # The agents of a simulation need this process's interpreter, and a SuperLink has
            # other runs to serve, so the thread rests in proportion to what a pass computes.
            # While replies come in, the others are expected soon, and the rest is shorter.
            coming = len(self._waiting()) < len(waiting)
            times = REST_COMING if coming else REST
            rest = max(time.monotonic() - started, times * (time.thread_time() - computed))
            pause = FIRST_PAUSE if coming else min(1.5 * pause, LONGEST_PAUSE)
            time.sleep(min(max(pause, rest), LONGEST_PAUSE))
            puller.since = time.monotonic()

    def _waiting(self) -> list[str]:
        """Return the messages to pull replies for; none after the end."""
        with self._lock:
            return [] if self._stopped else list(self._open)

    def _pull_one(self, message_id: str, puller: _Puller) -> bool:
        """Look for one reply; return whether the thread should go on."""
        with self._lock:
            if self._stopped or puller.abandoned:
                return False
            if message_id not in self._open:
                return True
            puller.since = time.monotonic()
            # Closed meanwhile, so that the thread after a stuck one does not pull it too.
            del self._open[message_id]
        pulled: list[Message] = []
        try:
            pulled = list(self._grid.pull_messages([message_id]))
        except Exception as error:  # the reply cannot be decoded, or the SuperLink is not there
            logger.warning("a reply could not be pulled: %s", type(error).__name__)
        with self._lock:
            if not pulled:
                self._open[message_id] = None
            self._arrived += pulled
            self._count += len(pulled)
            if pulled and self._count >= self._enough:
                self._progress.set()
            return not (puller.abandoned or self._stopped)


class _Puller:
    """The state of a thread that pulls replies.

    Attributes
    ----------
    since
        When the thread began with the current reply or pause.
    abandoned
        Whether another thread has taken its place.
    """

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.abandoned = False
