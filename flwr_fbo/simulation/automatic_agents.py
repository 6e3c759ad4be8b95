"""Agents that are asked in this process until their evaluations turn out to be slow.

Most tasks that people try first take milliseconds, and a training takes minutes. Nobody should have
to know which engine suits which. So the evaluations of a run are measured as they are made: the
first agents are asked one after another in this process. Once the evaluations have taken longer
than a pool of processes takes to start, and each takes longer than a dispatch to a process, the
pool makes all others. Nothing is evaluated twice for the measurement.

The pool is preferred to Ray, although Ray's workers would be as fast while they evaluate. The pool
needs no messages, no further package and no seconds to start; a task from a notebook is forked
and not pickled; an evaluation that ends its process is noticed at once. The engine ``ray`` remains
for those who want Flower's own, and where processes cannot be forked.

At that moment each agent gets a journal of its own, as the agents of a process share one journal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from flwr_fbo.clients.evaluation_job import EvaluationMeter
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.simulation.in_process_agents import InProcessAgents
from flwr_fbo.simulation.process_agents import ProcessAgents

logger = logging.getLogger("flwr.fbo")

#: Seconds of an evaluation from which a process should make it: some ten times the cost of passing
#: a request to a process and its reply back, and of reading the agent's journal there.
WORTH_A_DISPATCH = 0.01
#: Seconds of an evaluation below which a run never needs the pool.
FREE = WORTH_A_DISPATCH / 5
#: Seconds that the pool takes to start, beside what each worker loads before its first evaluation.
START_SECONDS = 0.5
#: Seconds of a single evaluation that cannot be the loading of libraries or data alone.
LONG = 30.0
#: How many agents are asked one at a time before the others are asked together.
PROBED = 3


class AutomaticAgents:
    """All agents of a simulation, asked in this process or in a pool, whichever is faster.

    Parameters
    ----------
    inline : InProcessAgents
        The agents in this process, which share a journal.
    meter : EvaluationMeter
        Measures the evaluations of these agents.
    make_pool : callable
        Returns the agents in a pool of processes. Called before the first evaluation.
    say : callable
        Takes one line: what was chosen, and why.
    """

    def __init__(
        self,
        inline: InProcessAgents,
        meter: EvaluationMeter,
        make_pool: Callable[[], ProcessAgents],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._inline, self._meter, self._say = inline, meter, say
        self._make_pool = make_pool
        self._pool: ProcessAgents | None = None
        self._rounds = 0  # that were begun
        self._probed, self._loading = 0, 0.0
        self._switched = self._said = False

    @property
    def nodes(self) -> Sequence[int]:
        """Return the number of each agent's node, by agent."""
        return self._inline.nodes

    @property
    def share_a_journal(self) -> bool:
        """Return whether all agents share a journal, as they do until the pool answers for them."""
        return not self._switched

    def check(self, setup: Setup) -> None:
        """Raise an error for a setup with which these agents cannot work."""
        self._inline.check(setup)

    def answer(
        self,
        setup: Setup,
        requests: Mapping[int, Request],
        seconds: float,
        on_reply: Callable[[int], None],
    ) -> dict[int, Reply]:
        """Return the replies by agent, without those whose turn did not come in time."""
        started, left = time.monotonic(), dict(requests)
        replies: dict[int, Reply] = {}
        # Before the first evaluation: processes must not inherit what libraries start there.
        # A method that asks one agent at a time has nothing for a pool to do.
        if not self._rounds and len(requests) > 1:
            self._pool = self._make_pool()
        self._rounds += 1
        self._weigh(setup)
        while self._pool and not self._switched and self._probed < PROBED and left:
            agent = next(iter(left))
            began, measured = time.monotonic(), self._meter.seconds
            rest = seconds - (began - started)
            replies |= self._inline.answer(setup, {agent: left.pop(agent)}, rest, _ignore)
            self._note_probe(time.monotonic() - began - (self._meter.seconds - measured))
            on_reply(len(replies))
            self._weigh(setup)
        if left:
            agents = self._pool if self._pool and self._switched else self._inline
            rest, before = seconds - (time.monotonic() - started), len(replies)
            replies |= agents.answer(setup, left, rest, lambda count: on_reply(before + count))
        self._settle()
        return {agent: replies[agent] for agent in requests if agent in replies}

    def _note_probe(self, beside: float) -> None:
        """Take in the seconds that an agent took beside its evaluations, to load data and more."""
        self._probed += 1
        self._loading = max(self._loading, beside)

    def _weigh(self, setup: Setup) -> None:
        """Use the pool from now on, if evaluations are slow and were as long as its start."""
        meter = self._meter
        if self._pool is None or self._switched:
            return
        slow = meter.typical >= WORTH_A_DISPATCH if meter.count > 1 else meter.seconds >= LONG
        if not slow or meter.seconds < START_SECONDS + self._loading:
            return
        self._switched = self._said = True
        for damage in self._inline.split_journal(setup):
            logger.warning("damaged file: %s", damage)
        each = meter.typical if meter.count > 1 else meter.seconds
        self._say(
            f"Evaluations take {_time_text(each)} each: {self._pool.processes} processes make them "
            "(engine processes)"
        )

    def _settle(self) -> None:
        """After a round in this process: say so once, and end a pool that is never needed."""
        if self._switched or not self._meter.count:
            return
        if not self._said:
            self._said = True
            self._say(
                f"Evaluations take {_time_text(self._meter.typical)} each: this process makes them "
                "(engine inline)"
            )
        if self._pool is not None and self._probed >= PROBED and self._meter.typical < FREE:
            self.close()

    def update(self, history: RunHistory) -> None:
        """Add the evaluations that were made since the last call to a history."""
        if self._switched and self._pool is not None:
            self._pool.update(history)  # which reads what this process has written before, too
        else:
            self._inline.update(history)

    def close(self) -> None:
        """End the processes."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _ignore(count: int) -> None:
    """Take in the number of replies of a single agent."""


def _time_text(seconds: float) -> str:
    """Return a time for people.

    Examples
    --------
    >>> _time_text(0.00012), _time_text(0.25), _time_text(0.9999), _time_text(75.0)
    ('0.12 ms', '250 ms', '1 s', '75 s')
    """
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
