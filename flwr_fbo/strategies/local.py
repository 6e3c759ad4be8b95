"""Agents in the server's own process, which a simulation asks without messages.

A message of Flower costs more than the work of a cheap agent. So a grid of a simulation may offer
its agents as :class:`LocalAgents`: a round then passes requests and replies as they are. The checks
of a reply, the declining words and the records are those of the messages
(:mod:`flwr_fbo.strategies.replies`, :class:`~flwr_fbo.clients.tuning_client.TuningClient`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from flwr.serverapp import Grid

from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.runs.history import RunHistory


class LocalAgents(Protocol):
    """The agents of a simulation that live in this process."""

    @property
    def nodes(self) -> Sequence[int]:
        """Return the number of each agent's node, by agent."""

    @property
    def share_a_journal(self) -> bool:
        """Return whether the records of all agents are in one journal."""

    def check(self, setup: Setup) -> None:
        """Raise an error for a setup with which these agents cannot work."""

    def answer(
        self,
        setup: Setup,
        requests: Mapping[int, Request],
        seconds: float,
        on_reply: Callable[[int], None],
    ) -> dict[int, Reply]:
        """Return the replies by agent, without those whose turn did not come in time."""

    def update(self, history: RunHistory) -> None:
        """Add the evaluations that were made since the last call to a history."""


def local_agents(grid: Grid) -> LocalAgents | None:
    """Return the agents that a grid holds in this process; None where messages reach them."""
    found: LocalAgents | None = getattr(grid, "local_agents", None)
    return found
