"""Rounds of a private run that last their whole timeout, because an agent is late.

An evaluation can outlast its round. Its agent then declines the next requests at once, and replies
again when the evaluation is done. What the agent knows at a request so depends on *when* it is
asked. If a round ended with its last reply, the time that one agent takes would decide what a late
agent knows, and the sensitivity counts nothing of that.

So a round lasts its whole timeout if an agent was late in the round before. The round in which an
agent becomes late lasts its whole timeout anyway, because a reply is missing. From then on the late
agent is asked at multiples of the timeout until its evaluation is done, whatever other agents do.
An agent that is never late knows the same at each request, whenever it is asked.

A late agent whose node is gone holds no round: nobody can ask it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flwr_fbo.core.protocol import Reply
from flwr_fbo.methods.thompson.asynchronous import UNDER_WAY

#: The declining words of an agent whose evaluation still runs.
AT_WORK = frozenset({UNDER_WAY, "JournalBusyError"})


class HeldRounds:
    """The late agents of the last round, and how long the next round must last.

    Parameters
    ----------
    timeout
        The timeout of a round; None where rounds may end with their last reply.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._late: frozenset[int] = frozenset()

    def late(self, present: Collection[int]) -> list[int]:
        """Return the agents that were late in the last round and are connected."""
        return sorted(self._late.intersection(present))

    def seconds(self, present: Collection[int]) -> float | None:
        """Return how long the next round must last; None where it ends with its last reply."""
        return self._timeout if self.late(present) else None

    def note(
        self, asked: Collection[int], came: Collection[int], replies: Mapping[int, Reply]
    ) -> None:
        """Take in a closed round: who was asked, who sent anything, and the replies."""
        at_work = {agent for agent, reply in replies.items() if reply.declined in AT_WORK}
        self._late = frozenset(set(asked) - set(came) | at_work)
