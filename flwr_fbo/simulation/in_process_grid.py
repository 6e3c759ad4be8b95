"""Flower's Grid without other processes: it calls the ClientApp for every message at once.

Tests, benchmarks and ``--engine inline`` use this grid; a message takes a fraction of a
millisecond.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from flwr_fbo.core.evaluation import ends_the_process
from flwr_fbo.flower_versions import Run, UserConfig, set_identity, set_sender
from flwr_fbo.strategies.local import LocalAgents

#: Flower's code for an exception in a ClientApp.
CLIENT_APP_RAISED = 2
#: The number of the server's own node; the agents' nodes have the numbers after it.
SERVER_NODE = 1

T = TypeVar("T")


def agents_nodes(agents: int) -> range:
    """Return the number of each agent's node, by agent."""
    return range(SERVER_NODE + 1, SERVER_NODE + 1 + agents)


class LateFirst:
    """The order in which agents are asked: those whose turn did not come come first the next time.

    Otherwise agents that use up the time of every round would keep the same others out for ever.

    Examples
    --------
    >>> late = LateFirst()
    >>> late.note(asked=[0, 1], left=[3, 2])
    >>> late.order(range(5), int)
    [3, 2, 0, 1, 4]
    """

    def __init__(self) -> None:
        self._waiting: dict[int, None] = {}  # the one that has waited longest first

    def order(self, items: Iterable[T], number: Callable[[T], int]) -> list[T]:
        """Return items in the order of their agents; ``number`` returns the agent of an item."""
        place = {agent: n for n, agent in enumerate(self._waiting)}
        return sorted(items, key=lambda item: place.get(number(item), len(place)))

    def note(self, asked: Iterable[int], left: Iterable[int]) -> None:
        """Take in which agents were asked, and which were left, the first of them first."""
        for agent in asked:
            self._waiting.pop(agent, None)
        self._waiting.update(dict.fromkeys(left))  # who waits already keeps the place


class InProcessGrid(Grid):
    """A grid of virtual nodes that reply at once, one after another.

    Each node has a context of its own, whose state lasts as long as the grid. A node that is
    removed from the set ``online`` receives no messages until it is added again.

    Parameters
    ----------
    client_app : flwr.clientapp.ClientApp
        The app that every node runs.
    nodes : int
        The number of nodes.
    run_config : mapping, optional
        The run-config in the contexts.
    run_id : int, optional
        The number of the run; where unset, a random one.
    in_time : bool
        Whether a message lives only for its TTL, which is the timeout of a round. No node is
        asked after that time: the nodes that are left have no reply in this round, and come
        first in the next one. Otherwise every message is answered, however long that takes.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> grid = InProcessGrid(ClientApp(), nodes=3)
    >>> list(grid.get_node_ids())
    [2, 3, 4]
    """

    def __init__(
        self,
        client_app: ClientApp,
        nodes: int,
        run_config: Mapping[str, Any] | None = None,
        run_id: int | None = None,
        in_time: bool = False,
    ) -> None:
        # As in Flower, each run has a number of its own, which names the directory of the run.
        run_id = secrets.randbits(62) + 1 if run_id is None else run_id
        self._client_app, self._in_time = client_app, in_time
        self.set_run(Run.create_empty(run_id))
        self._numbers = itertools.count(1)
        self._replies: dict[str, Message] = {}
        self.contexts = {
            node: Context(
                run_id=run_id,
                node_id=node,
                node_config=UserConfig({"partition-id": i, "num-partitions": nodes}),
                state=RecordDict(),
                run_config=UserConfig(dict(run_config or {})),
            )
            for i, node in enumerate(agents_nodes(nodes))
        }
        self.online = set(self.contexts)
        self._late = LateFirst()
        self.bytes_sent = 0
        self.bytes_received = 0

    def set_run(self, run: Run) -> None:
        """Set the run, and Flower's task identity, from which messages take their sender."""
        self._run = run
        set_sender(run.run_id, SERVER_NODE)

    @property
    def run(self) -> Run:
        """Return the run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message with this content for a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the numbers of the nodes that are online."""
        return sorted(self.online)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver each message to its node, store the replies, and return the messages' ids."""
        numbered = {str(next(self._numbers)): message for message in messages}
        for number, message in numbered.items():
            set_identity(message, number, self._run.run_id, SERVER_NODE)
        started = time.monotonic()
        for number, message in self._late.order(
            numbered.items(), lambda item: item[1].metadata.dst_node_id
        ):
            node = message.metadata.dst_node_id
            if node not in self.online:
                continue
            if self._in_time and time.monotonic() - started >= message.metadata.ttl:
                self._late.note([], [node])
                continue
            self._late.note([node], [])
            self.bytes_sent += payload(message)
            reply = self._call(message, self.contexts[node])
            self.bytes_received += payload(reply)
            self._replies[number] = reply
        return list(numbered)

    def _call(self, message: Message, context: Context) -> Message:
        """Return the app's reply; an exception becomes an error reply, as in Flower."""
        try:
            return self._client_app(message, context)
        except (Exception, SystemExit) as error:  # a task may call sys.exit
            if ends_the_process(error):
                raise
            return Message(Error(CLIENT_APP_RAISED, type(error).__name__), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the stored replies to these messages, each once."""
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Deliver the messages and return the replies."""
        return self.pull_messages(self.push_messages(messages))


class SimulatedGrid(InProcessGrid):
    """A grid without messages, whose strategy asks the agents of this process directly."""

    def __init__(self, agents: LocalAgents) -> None:
        super().__init__(ClientApp(), nodes=0)
        self.local_agents = agents
        self.online = set(agents.nodes)


def payload(message: Message) -> int:
    """Return the bytes of arrays and scalars in a message, without the headers of a transport."""
    if not message.has_content():
        return 0
    total = 0
    for record in message.content.values():
        for name, value in record.items():
            data = getattr(value, "data", value)
            total += len(name) + (len(data) if isinstance(data, (bytes, str)) else 8)
    return total
