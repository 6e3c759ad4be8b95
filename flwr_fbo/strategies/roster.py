"""Which node is which agent: agents keep their number, nodes come and go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class RosterError(RuntimeError):
    """Two nodes claim to be the same agent, or there are more agents than were planned for."""


class Roster:
    """Names of agents, in the order of their numbers, and the nodes that speak for them now.

    An agent is known by the name it gives at registration (its partition, unless its owner
    says otherwise), so that it keeps its number, its sub-region and its history when it comes
    back as another node or in a resumed run.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.names: list[str] = []
        self._node_of: dict[int, int] = {}
        self._agent_of: dict[int, int] = {}

    def admit(self, claims: dict[int, str]) -> list[str]:
        """Take in nodes with the names they claim; returns complaints, one a refused node.

        New names get the next numbers in natural order, so that a simulation numbers its agents
        as their partitions.
        """
        complaints = []
        for node, name in sorted(claims.items(), key=lambda item: _natural(item[1])):
            if name not in self.names:
                if len(self.names) == self.size:
                    complaints.append(f"node {node}: all {self.size} agents are taken")
                    continue
                self.names.append(name)
            agent = self.names.index(name)
            if agent in self._node_of:
                complaints.append(f"node {node}: another node already speaks for agent {name}")
                continue
            self._node_of[agent], self._agent_of[node] = node, agent
        return complaints

    def forget_absent(self, online: Iterable[int]) -> None:
        """Nodes that are gone speak for nobody; their agents may come back as other nodes."""
        present = set(online)
        for node in set(self._agent_of) - present:
            del self._node_of[self._agent_of.pop(node)]

    def drop(self, node: int) -> None:
        """The node must register again."""
        agent = self._agent_of.pop(node, None)
        if agent is not None:
            del self._node_of[agent]

    def known(self, node: int) -> bool:
        """Whether a node speaks for an agent."""
        return node in self._agent_of

    def agent(self, node: int) -> int:
        """The number of the agent that a node speaks for; -1 if it speaks for none."""
        return self._agent_of.get(node, -1)

    @property
    def present(self) -> list[int]:
        """The numbers of the agents that a node speaks for."""
        return sorted(self._node_of)

    def node(self, agent: int) -> int:
        """The node that speaks for an agent."""
        return self._node_of[agent]

    def state_dict(self) -> dict[str, Any]:
        """The names; nodes are another run's business."""
        return {"names": list(self.names)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the same agents, none of them present yet."""
        self.names = list(state["names"])
        self._node_of, self._agent_of = {}, {}


def _natural(name: str) -> tuple[bool, int, str]:
    number = name.isascii() and name.isdigit()  # "²".isdigit() is true, and int("²") fails
    return (not number, int(name) if number else 0, name)
