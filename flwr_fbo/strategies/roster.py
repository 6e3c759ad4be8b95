"""The roster of a run: the agents by number, and the nodes that speak for them now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Roster:
    """The names of agents, in the order of their numbers, and the nodes that speak for them.

    An agent is known by the name that it gives at registration (the number of its partition). So
    an agent keeps its number, its sub-region and its history when it comes back from another node
    or in a resumed run.

    Parameters
    ----------
    size
        The number of agents in the run.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.names: list[str] = []
        self._node_of: dict[int, int] = {}
        self._agent_of: dict[int, int] = {}

    def admit(self, claims: dict[int, str]) -> list[str]:
        """Register nodes as the agents that they claim to be; return why each other is refused.

        New names get the next numbers in natural order, so that the agents of a simulation have
        the numbers of their partitions.
        """
        refusals = []
        for node, name in sorted(claims.items(), key=lambda item: _natural(item[1])):
            if name not in self.names:
                # Weights and noise are made for this number of agents, so no place can be added.
                if len(self.names) == self.size:
                    refusals.append(
                        f"node {node} is refused: the run is for {self.size} agents, and all "
                        "are registered"
                    )
                    continue
                self.names.append(name)
            agent = self.names.index(name)
            # Two nodes with the same partition would write to the same journal.
            if agent in self._node_of:
                refusals.append(
                    f"node {node} is refused: another node already speaks for agent {name}"
                )
                continue
            self._node_of[agent], self._agent_of[node] = node, agent
        return refusals

    def forget_absent(self, online: Iterable[int]) -> None:
        """Forget the nodes that are gone; their agents may come back from other nodes."""
        present = set(online)
        for node in set(self._agent_of) - present:
            del self._node_of[self._agent_of.pop(node)]

    def drop(self, node: int) -> None:
        """Forget a node, so that it must register again."""
        agent = self._agent_of.pop(node, None)
        if agent is not None:
            del self._node_of[agent]

    def known(self, node: int) -> bool:
        """Return whether a node speaks for an agent."""
        return node in self._agent_of

    def agent(self, node: int) -> int:
        """Return the number of the agent that a node speaks for; -1 for an unknown node."""
        return self._agent_of.get(node, -1)

    @property
    def present(self) -> list[int]:
        """Return the numbers of the agents that a node speaks for."""
        return sorted(self._node_of)

    def node(self, agent: int) -> int:
        """Return the node that speaks for an agent."""
        return self._node_of[agent]

    def state_dict(self) -> dict[str, Any]:
        """Return the names of the agents; nodes have other numbers in a resumed run."""
        return {"names": list(self.names)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the same agents, none of them registered yet."""
        self.names = list(state["names"])
        self._node_of, self._agent_of = {}, {}


def _natural(name: str) -> tuple[bool, int, str]:
    """Return the key that sorts numbers by value, before all other names."""
    number = name.isascii() and name.isdigit()  # "²".isdigit() is true, but int("²") fails
    return (not number, int(name) if number else 0, name)
