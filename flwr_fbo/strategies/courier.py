"""Sending a round's messages and collecting what comes back, within a time of our own.

Flower's ``send_and_receive`` looks for replies every three seconds in a deployment and cannot
be told that enough have come. This one looks more and more rarely, starting at once, and stops
at a deadline or when all have answered.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.serverapp import Grid

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0


def exchange(grid: Grid, messages: Sequence[Message], timeout: float) -> dict[int, Message]:
    """The replies that arrive in time, by the number of the message that they answer."""
    sent = {
        message_id: number
        for number, message_id in enumerate(grid.push_messages(messages))
        if message_id is not None
    }
    replies: dict[int, Message] = {}
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while len(replies) < len(sent):
        waiting = [message_id for message_id, n in sent.items() if n not in replies]
        for reply in grid.pull_messages(waiting):
            number = sent.get(reply.metadata.reply_to_message_id)
            if number is not None and number not in replies:
                replies[number] = reply
        if len(replies) == len(sent) or time.monotonic() >= deadline:
            break
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(1.5 * pause, LONGEST_PAUSE)
    return replies
