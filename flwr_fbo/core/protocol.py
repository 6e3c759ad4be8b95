"""How a server and its agents talk, whatever the strategy and whatever carries the messages.

Every strategy of this package is a pair of restartable state machines that know nothing of
Flower:

- a :class:`Server` says what to ask each agent in the next round (:meth:`Server.requests`) and
  takes in what came back (:meth:`Server.close`);
- an :class:`Agent` answers one :class:`Request` at a time. It pays for evaluations through its
  :class:`~flwr_fbo.core.evaluation.Evaluator` and keeps what it must remember in its records.

``flwr_fbo.wire`` turns requests and replies into Flower messages and back; the strategies and
clients carry them. Both machines can be used by hand just as well::

    requests = server.requests(range(server.agents))
    server.close({n: agents[n].answer(r) for n, r in requests.items()})
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import Scalar, Settings
from flwr_fbo.core.space import Space

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Setup:
    """What every agent must know once, before its first request. Public: no data are in it.

    Parameters
    ----------
    kind
        Which agent answers.
    space
        The search space.
    values, arrays
        What the method's agents need besides.
    run
        The name of the run, under which an agent keeps its journal.
    seed
        The seed of the agents' own choices, and of how a simulation divides its data.
    answer_within
        Seconds after which agents answer while an evaluation goes on; None waits for it.
    """

    kind: str
    space: Space
    values: Mapping[str, Scalar] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    run: str = ""
    seed: int = 0
    answer_within: float | None = None

    @cached_property
    def digest(self) -> str:
        """Return a fingerprint: agents with another setup must be set up again."""
        parts = [self.kind, self.space.to_dict(), dict(self.values), self.run, self.seed]
        text = json.dumps([*parts, self.answer_within], sort_keys=True)
        hashed = hashlib.sha256(text.encode())
        for name in sorted(self.arrays):
            hashed.update(f"{name} {self.arrays[name].shape}".encode())
            hashed.update(np.ascontiguousarray(self.arrays[name], dtype="<f8").tobytes())
        return hashed.hexdigest()[:16]

    def read(self, settings: type[S]) -> S:
        """Return the values as settings; read once, as every message makes a new agent."""
        if settings not in self._read:
            self._read[settings] = settings.from_mapping(self.values)
        found: S = self._read[settings]
        return found

    @cached_property
    def _read(self) -> dict[type[Settings], Any]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description, from which :meth:`from_dict` makes an equal setup."""
        arrays = {name: [list(a.shape), a.ravel().tolist()] for name, a in self.arrays.items()}
        space = self.space.to_dict()
        return {
            "kind": self.kind,
            "space": space,
            "values": dict(self.values),
            "arrays": arrays,
            "run": self.run,
            "seed": self.seed,
            "answer_within": self.answer_within,
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Setup:
        """Return the setup that :meth:`to_dict` described."""
        arrays = {
            name: np.array(numbers, dtype=np.float64).reshape(shape)
            for name, (shape, numbers) in description["arrays"].items()
        }
        space = Space.from_dict(description["space"])
        rest = {name: description[name] for name in ("run", "seed", "answer_within")}
        return cls(description["kind"], space, description["values"], arrays, **rest)


@dataclass(frozen=True)
class Request:
    """What the server asks of one agent in one round.

    ``expects`` names the arrays of a good reply and their shapes; whatever carries the reply
    refuses anything else before the server sees it.
    """

    kind: str
    round: int
    values: Mapping[str, Scalar] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    expects: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """An agent's answer: the arrays that were expected, or the reason why there are none.

    ``declined`` is a fixed word such as ``"budget"`` or the class name of an error; it must
    never carry data.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    declined: str = ""


class ReplyError(ValueError):
    """A reply is not what its request expects; the message holds no data of the sender."""


def checked(request: Request, reply: Reply) -> Reply:
    """Return the reply; raise unless its arrays have the expected names and shapes, all finite."""
    if reply.declined:
        return reply
    if set(reply.arrays) != set(request.expects):
        raise ReplyError(f"arrays must be {sorted(request.expects)}, got {sorted(reply.arrays)}")
    for name, shape in request.expects.items():
        array = reply.arrays[name]
        if array.shape != shape or array.dtype != np.float64:
            raise ReplyError(
                f"`{name}` must be float64 of shape {shape}, got {array.dtype} of {array.shape}"
            )
        if not np.all(np.isfinite(array)):
            raise ReplyError(f"`{name}` must be finite")
    return reply


class Server(Protocol):
    """The server's half of a strategy: a state machine that can be stored and restored."""

    #: How many agents take part; they are numbered from 0.
    agents: int
    #: The round that :meth:`requests` speaks of, counted from 0.
    round: int
    #: How many rounds are planned; None where that depends on what is found.
    rounds: int | None

    @property
    def finished(self) -> bool:
        """Say whether there is nothing left to ask."""

    def setup(self) -> Setup:
        """Return what every agent must know before its first request."""

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request for each present agent that is asked. Asking twice changes nothing."""

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in the round's checked replies, absent agents left out, and go on."""

    def state_dict(self) -> dict[str, Any]:
        """Return all that :meth:`load_state_dict` needs: JSON values and numpy arrays."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state as if nothing had happened."""


class Agent(Protocol):
    """One party's half of a strategy."""

    def answer(self, request: Request) -> Reply:
        """Answer a request. Asking again for the same round pays for nothing twice."""
