"""Garbage collection in a process that holds the records of many agents.

Python's collector visits all objects whenever enough new ones have come. A simulation holds
dozens for each agent and makes dozens more whenever an agent answers. Where evaluations cost next
to nothing, these visits took a third of a round's time, and found nothing.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

#: In a round of fewer agents, visits take no time worth saving.
MANY_AGENTS = 64
#: Rounds after which all objects are visited.
FULL_EVERY = 16


class RareVisits:
    """Lets the collector visit old objects rarely, in rounds of many agents.

    What a task leaves behind in a round is collected in this round as usual, or at its end. What
    is older and becomes garbage is collected at least every :data:`FULL_EVERY` rounds.

    Examples
    --------
    >>> visits = RareVisits()
    >>> with visits.in_round(agents=1000):
    ...     gc.get_freeze_count() > 0
    True
    >>> gc.get_freeze_count()
    0
    """

    def __init__(self) -> None:
        self._rounds = 0

    @contextlib.contextmanager
    def in_round(self, agents: int) -> Iterator[None]:
        """Let the collector visit only objects that are made in the block."""
        # Whoever has frozen objects before would not want to have them back.
        if agents < MANY_AGENTS or not gc.isenabled() or gc.get_freeze_count():
            yield
            return
        if self._rounds % FULL_EVERY == 0:
            gc.collect()
        self._rounds += 1
        gc.freeze()
        try:
            yield
        finally:
            gc.collect()  # else the next collection would visit all, for what this block has made
            gc.unfreeze()
