"""Agents of one process that are made before they are asked, so that they can compute together.

An agent that evaluates and replies in two steps (:class:`~flwr_fbo.methods.method.Together`) does
the first when it is asked. The replies of all are made when all of a group have evaluated. What an
agent records, and when, is the same as without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr_fbo.core.evaluation import ends_the_process
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.methods.method import Together
from flwr_fbo.methods.registry import method_of_agent
from flwr_fbo.methods.secure_sum import KINDS


@dataclass
class AgentsTogether:
    """The agents of a group that were made already, and those that have evaluated.

    Parameters
    ----------
    together
        What computes for agents of this kind.
    requests
        The requests of one round, by agent.
    """

    together: Together
    requests: Mapping[int, Request]
    made: dict[int, Agent] = field(default_factory=dict)
    worked: dict[int, Agent] = field(default_factory=dict)

    @classmethod
    def of(
        cls, setup: Setup, requests: Mapping[int, Request], make: Callable[[int, Request], Agent]
    ) -> AgentsTogether | None:
        """Make the agents of a group and prepare their work; None where each computes alone."""
        together = method_of_agent(setup.kind).agents_together()
        # An agent that replies early lives in another process, and legs of sums need no agent.
        early = setup.answer_within is not None
        if together is None or early or any(r.kind in KINDS for r in requests.values()):
            return None
        group = cls(together, requests)
        for number, request in requests.items():
            try:
                agent = make(number, request)
            except (Exception, SystemExit) as error:
                if ends_the_process(error):
                    raise
                continue  # the agent meets its error again when it is asked, and declines
            if together.can(agent, request):
                group.made[number] = agent
        together.prepare_work(list(group.made.values()), [requests[n] for n in group.made])
        return group

    def take(self, number: int) -> Agent | None:
        """Return an agent that was made, to be asked once; None for one that was not."""
        agent = self.made.pop(number, None)
        return None if agent is None else _FirstStep(self, number, agent)

    def replies(self, declining: Callable[[int, BaseException], Reply]) -> dict[int, Reply]:
        """Return the replies of the agents that have evaluated.

        ``declining`` returns the reply of an agent that could not make its own.
        """
        worked, self.worked = self.worked, {}
        requests = [self.requests[number] for number in worked]
        self.together.prepare_replies(list(worked.values()), requests)
        found = {}
        for (number, agent), request in zip(worked.items(), requests, strict=True):
            try:
                found[number] = self.together.reply(agent, request)
            except (Exception, SystemExit) as error:
                if ends_the_process(error):
                    raise
                found[number] = declining(number, error)
        return found


@dataclass(frozen=True)
class _FirstStep:
    """An agent of a group, which evaluates when it is asked and replies later."""

    group: AgentsTogether
    number: int
    agent: Agent

    def answer(self, request: Request) -> Reply:
        """Make the evaluations of a request, and return a reply without arrays."""
        self.group.together.work(self.agent, request)
        self.group.worked[self.number] = self.agent
        return Reply()
