"""The roster of a run: the agents by number, who owns each of them, and their nodes.

**Who may speak for an agent.** At its first registration an agent is bound to two things: to the
node that registers it, and to a secret of its owner, of which the roster keeps a hash. Later only a
claim from the same node or with the same secret is accepted. Anybody else is refused, whether or
not the owner is connected at the moment.

The ServerApp never sees the key of a node: Flower's Grid gives the numbers of nodes, and nothing
else. With node authentication (``--enable-supernode-auth``) this is enough, because the SuperLink
gives a node its number when its key is registered, takes messages of that number only under
signatures of that key, and keeps both in its database. So the same node is the same key. Without
node authentication a SuperNode has another number whenever it is started, which nobody can choose.
There the secret is what the owner returns with.

**One node is one agent.** A node whose agent has taken part cannot claim a second agent.

**Places.** The number of places never changes, because weights and noise are made for it. An agent
that has never taken part can lose its place, so that nodes that register and go away do not fill
the run: the place is free when the agent's node has been away for :data:`UNUSED_SECONDS`.

**The first claim** of an agent's name decides who its owner is, unless the operator of the server
says beforehand which node each agent has (``node_ids``).
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from flwr_fbo.wire import Claim

#: Seconds that the node of an agent that never took part may be away before its place is free.
UNUSED_SECONDS = 120.0


class ClaimError(Exception):
    """An error for a node that claims an agent in vain; the text is for the server's log."""


@dataclass
class Place:
    """The place of one agent.

    Parameters
    ----------
    name
        The name of the agent, which is the number of its partition.
    owner
        The hash of the owner's secret.
    node
        The node that registered the agent last.
    used
        Whether the agent has taken part: the method has received a reply of it.
    """

    name: str
    owner: str
    node: int
    used: bool = False


#: The fields of a place, in their order.
_COLUMNS = tuple(field.name for field in fields(Place))


class Roster:
    """The agents of a run, in the order of their numbers, and the nodes that speak for them.

    An agent is known by the name that it gives at registration (the number of its partition). So
    an agent keeps its number, its sub-region and its history when it comes back from another node
    or in a resumed run.

    Parameters
    ----------
    size
        The number of agents in the run.
    node_ids
        The node of each agent by its number, where the server's operator has fixed them. Then an
        agent's name must be its number.
    """

    def __init__(self, size: int, node_ids: Sequence[int] = ()) -> None:
        self.size = size
        self._fixed = tuple(node_ids)
        self._clear()

    def _clear(self) -> None:
        """Begin without agents."""
        self._places: list[Place | None] = [None] * self.size
        self._number_of: dict[str, int] = {}
        self._home_of: dict[int, int] = {}  # the agent that a node registered last
        self._node_of: dict[int, int] = {}
        self._agent_of: dict[int, int] = {}
        self._away_since: dict[int, float] = {}  # of agents that never took part
        self._free_from = 0  # no place before this number is free
        self._present: list[int] | None = []  # None where it must be sorted again

    @property
    def names(self) -> list[str]:
        """Return the names of the agents that have a place, in the order of their numbers."""
        return [place.name for place in self._places if place is not None]

    # -- registration --------------------------------------------------------------------------

    def admit(self, claims: dict[int, Claim]) -> list[str]:
        """Register nodes as the agents that they claim to be; return why each other is refused.

        An agent whose name is a number gets that number if it is free, and else the first free
        number.
        """
        refusals = []
        for node, claim in sorted(claims.items(), key=lambda item: _natural(item[1].name)):
            try:
                self._admit(node, claim)
            except ClaimError as error:
                refusals.append(f"node {node} is refused: {error}")
        return refusals

    def _admit(self, node: int, claim: Claim) -> None:
        """Register one node as the agent that it claims to be; raise ClaimError if it may not."""
        self._check_fixed(node, claim)
        agent = self._number_of.get(claim.name)
        home = self._home_of.get(node)
        if home is not None and home != agent:
            self._leave(home, agent, node, claim)
        elif agent is not None:
            self._check_owner(agent, node, claim)
        if agent is None:
            agent = self._new_place(node, claim)
        self._bind(agent, node, claim)

    def seat_all(self, nodes: Sequence[int]) -> None:
        """Give each agent its place and its node, in a simulation within the server's process.

        Nobody from outside can make a claim there, so that nobody needs a secret.
        """
        for agent, node in enumerate(nodes):
            if self._places[agent] is None:
                self._places[agent], self._number_of[str(agent)] = (
                    Place(str(agent), "", node),
                    agent,
                )
            self._home_of.pop(self._place(agent).node, None)
            self._place(agent).node = node
        self._home_of |= {node: agent for agent, node in enumerate(nodes)}
        self._node_of = dict(enumerate(nodes))
        self._agent_of = {node: agent for agent, node in enumerate(nodes)}
        self._present = None

    def owned(self, agent: int) -> bool:
        """Return whether an owner with a secret has registered the agent."""
        place = self._places[agent]
        return place is not None and bool(place.owner)

    def _leave(self, home: int, agent: int | None, node: int, claim: Claim) -> None:
        """Free the place of a node that claims another agent; raise ClaimError if it may not."""
        if self._place(home).used:
            raise ClaimError(
                f"it is the node of agent {self._place(home).name}, and a node cannot be two agents"
            )
        if agent is not None:
            self._check_owner(agent, node, claim)
        self._free(home)  # an owner who started the node with a wrong number corrects it

    def _bind(self, agent: int, node: int, claim: Claim) -> None:
        """Note that a node speaks for an agent, and with which secret its owner can return."""
        place = self._place(agent)
        self._home_of.pop(place.node, None)
        place.node, place.owner = node, _hash(claim.secret)
        self._home_of[node] = agent
        self._node_of[agent], self._agent_of[node] = node, agent
        self._away_since.pop(agent, None)
        self._present = None

    def _place(self, agent: int) -> Place:
        """Return the place of an agent that has one."""
        place = self._places[agent]
        assert place is not None
        return place

    def _check_fixed(self, node: int, claim: Claim) -> None:
        """Raise ClaimError where the operator has fixed another node for the claimed agent."""
        if not self._fixed:
            return
        number = _number(claim.name)
        if number is None or number >= len(self._fixed):
            raise ClaimError(f"`node-ids` has no node for agent {claim.name}")
        if self._fixed[number] != node:
            raise ClaimError(f"the node of agent {claim.name} is {self._fixed[number]}")

    def _check_owner(self, agent: int, node: int, claim: Claim) -> None:
        """Raise ClaimError unless the node may speak for an agent that has a place."""
        place = self._place(agent)
        # In a simulation, agents in the server's own process have no secret, and so no owner yet.
        same_owner = not place.owner or hmac.compare_digest(place.owner, _hash(claim.secret))
        if place.node != node and not same_owner:
            raise ClaimError(
                f"agent {place.name} is another owner's: this node is not the one that registered "
                "the agent, and does not have its owner's secret"
            )
        # Two nodes with the same partition would write to the same journal.
        if self._node_of.get(agent, node) != node:
            raise ClaimError(f"another node already speaks for agent {place.name}")

    def _new_place(self, node: int, claim: Claim) -> int:
        """Return the number of a new agent's place; raise ClaimError if all places are taken."""
        number = _number(claim.name)
        agent = self._first_free()
        if agent is None:
            raise ClaimError(
                f"the run is for {self.size} agents, and all of them have their places"
            )
        if number is not None and number < self.size and self._places[number] is None:
            agent = number
        self._places[agent] = Place(claim.name, _hash(claim.secret), node)
        self._number_of[claim.name] = agent
        return agent

    def _first_free(self) -> int | None:
        """Return the first free place; None where all are taken."""
        while self._free_from < self.size and self._places[self._free_from] is not None:
            self._free_from += 1
        return self._free_from if self._free_from < self.size else None

    def _free(self, agent: int) -> None:
        """Free the place of an agent that never took part."""
        place, self._places[agent] = self._place(agent), None
        self._free_from, self._present = min(self._free_from, agent), None
        del self._number_of[place.name]
        self._home_of.pop(place.node, None)
        self._away_since.pop(agent, None)
        node = self._node_of.pop(agent, None)
        if node is not None:
            del self._agent_of[node]

    def forget_absent(self, online: Iterable[int]) -> None:
        """Forget the nodes that are gone; their owners may come back from other nodes."""
        present = set(online)
        for node in self._agent_of.keys() - present:
            self.drop(node)
        now = time.monotonic()
        for agent, place in enumerate(self._places):
            if place is None or place.used or place.node in present:
                self._away_since.pop(agent, None)
            elif now - self._away_since.setdefault(agent, now) >= UNUSED_SECONDS:
                self._free(agent)

    def drop(self, node: int) -> None:
        """Forget a node, so that it must register again."""
        agent = self._agent_of.pop(node, None)
        if agent is not None:
            del self._node_of[agent]
            self._present = None

    def note_use(self, agent: int) -> None:
        """Note that an agent has taken part, so that its place is its own for the whole run."""
        place = self._places[agent]
        if place is not None:
            place.used = True

    def renew_owner(self, name: str, secret: str) -> bool:
        """Give an agent's place to the owner of a secret; return whether that is another owner.

        Only for a simulation, whose agents all belong to the one who runs it.
        """
        agent = self._number_of.get(name)
        if agent is None:
            return False
        place = self._place(agent)
        before, place.owner = place.owner, _hash(secret)
        return before != place.owner

    # -- who is who ----------------------------------------------------------------------------

    def known(self, node: int) -> bool:
        """Return whether a node speaks for an agent."""
        return node in self._agent_of

    def agent(self, node: int) -> int:
        """Return the number of the agent that a node speaks for; -1 for an unknown node."""
        return self._agent_of.get(node, -1)

    @property
    def present(self) -> list[int]:
        """Return the numbers of the agents that a node speaks for; nobody may change the list."""
        if self._present is None:
            self._present = sorted(self._node_of)
        return self._present

    def node(self, agent: int) -> int:
        """Return the node that speaks for an agent."""
        return self._node_of[agent]

    # -- resumed runs --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the places, without the owners' secrets: only their hashes are known here."""
        # By column: a run may have many agents, and its checkpoint is written often.
        places = {n: vars(place) for n, place in enumerate(self._places) if place is not None}
        columns = {key: [place[key] for place in places.values()] for key in _COLUMNS}
        return {"agents": list(places), **columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the same agents and owners, none of them registered yet."""
        self._clear()
        columns = (state[key] for key in _COLUMNS)
        for agent, *stored in zip(state["agents"], *columns, strict=True):
            place = Place(*stored)
            self._places[agent] = place
            self._number_of[place.name] = agent
            self._home_of[place.node] = agent


def _hash(secret: str) -> str:
    """Return the hash of an owner's secret."""
    # The secret has 256 random bits, so that nothing slower than one hash is needed.
    return hashlib.sha256(secret.encode()).hexdigest()


def _number(name: str) -> int | None:
    """Return the number that a name is; None for any other name."""
    # "²".isdigit() is true, but int("²") fails
    return int(name) if name.isascii() and name.isdigit() else None


def _natural(name: str) -> tuple[bool, int, str]:
    """Return the key that sorts numbers by value, before all other names."""
    number = _number(name)
    return (number is None, number or 0, name)
