"""The requests and replies that a server and its agents exchange, in every method.

Every method of this package is a pair of restartable state machines that know nothing of Flower:

- A :class:`Server` makes the requests of a round (:meth:`Server.requests`) and takes in the
  replies (:meth:`Server.close`).
- An :class:`Agent` answers one :class:`Request` at a time. The agent evaluates through its
  :class:`~flwr_fbo.core.evaluation.Evaluator` and keeps its state in its records.

:mod:`flwr_fbo.wire` turns requests and replies into Flower messages and back. Strategies and
clients carry the messages. Both state machines also work without Flower::

    requests = server.requests(range(server.agents))
    server.close({n: agents[n].answer(r) for n, r in requests.items()})
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from flwr_fbo.core.arrays import Array, Words
from flwr_fbo.core.settings import Scalar, Settings
from flwr_fbo.core.space import Space

S = TypeVar("S", bound=Settings)
T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """The public facts that the server sends to every agent before the first request.

    Parameters
    ----------
    kind
        The kind of agent that answers.
    space
        The search space.
    values, arrays
        Further scalars and arrays that the agents of the method need.
    run
        The name of the run, under which an agent keeps its journal.
    identity
        The identity of the run, which its files hold. A later run of the same name has another.
    seed
        The seed of the agents' own choices, and of how a simulation divides its data.
    answer_within
        Seconds after which an agent replies although its evaluation still runs; None waits for
        the evaluation.
    equal_waits
        Whether every agent must wait equally long, as in a private run. Otherwise an agent that
        waits longer would delay the next requests, and so change what other agents know then.
    """

    kind: str
    space: Space
    values: Mapping[str, Scalar] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    run: str = ""
    seed: int = 0
    answer_within: float | None = None
    equal_waits: bool = False
    identity: str = ""

    @cached_property
    def digest(self) -> str:
        """Return a fingerprint of the setup; a request names the setup that it belongs to."""
        parts = [self.kind, self.space.to_dict(), dict(self.values), self.run, self.seed]
        parts += [self.answer_within, self.equal_waits, self.identity]
        text = json.dumps(parts, sort_keys=True)
        hashed = hashlib.sha256(text.encode())
        # Sorted names, and little-endian numbers: the same digest on every machine.
        for name in sorted(self.arrays):
            hashed.update(f"{name} {self.arrays[name].shape}".encode())
            hashed.update(np.ascontiguousarray(self.arrays[name], dtype="<f8").tobytes())
        return hashed.hexdigest()[:16]

    def read(self, settings: type[S]) -> S:
        """Return the values as settings of this class."""
        # Parsed once: every message makes a new agent, and agents share the setup object.
        if settings not in self._read:
            self._read[settings] = settings.from_mapping(self.values)
        values: S = self._read[settings]
        return values

    def derive(self, make: Callable[[Setup], T]) -> T:
        """Return what a function makes of the setup, made once for all agents that share it."""
        if make not in self._derived:
            self._derived[make] = make(self)
        value: T = self._derived[make]
        return value

    @cached_property
    def _derived(self) -> dict[Callable[[Setup], Any], Any]:
        """Return what was made of the setup already, by the function that made it."""
        return {}

    @cached_property
    def _read(self) -> dict[type[Settings], Any]:
        """Return the settings that were parsed already, by their class."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, from which :meth:`from_dict` makes an equal setup."""
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
            "equal_waits": self.equal_waits,
            "identity": self.identity,
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Setup:
        """Return the setup that :meth:`to_dict` described."""
        arrays = {
            name: np.array(numbers, dtype=np.float64).reshape(shape)
            for name, (shape, numbers) in description["arrays"].items()
        }
        space = Space.from_dict(description["space"])
        names = ("run", "seed", "answer_within", "equal_waits", "identity")
        rest = {name: description[name] for name in names}
        return cls(description["kind"], space, description["values"], arrays, **rest)


@dataclass(frozen=True)
class Request:
    """The question of the server to one agent in one round.

    Parameters
    ----------
    kind
        The kind of request, a word that the agents of the method understand.
    round
        The number of the round.
    values, arrays
        The content of the request.
    expects
        The names and shapes of the arrays in a good reply. Any other reply is refused before
        the server sees the reply.
    words, expects_words
        The same for arrays of 64-bit words, which carry keys and masked vectors.
    """

    kind: str
    round: int
    values: Mapping[str, Scalar] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    expects: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    words: Mapping[str, Words] = field(default_factory=dict)
    expects_words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """The answer of an agent: the expected arrays, or the reason why the agent declines.

    Parameters
    ----------
    arrays
        The arrays that the request expects.
    declined
        A fixed word such as ``"budget"``, or the class name of an error. The word must never
        carry data.
    words
        The expected arrays of 64-bit words.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    declined: str = ""
    words: Mapping[str, Words] = field(default_factory=dict)


class ReplyError(ValueError):
    """An error for a reply that breaks a rule of its request; the text quotes no data."""


def checked_reply(request: Request, reply: Reply) -> Reply:
    """Return the reply; raise ReplyError unless the arrays are finite and as expected."""
    if reply.declined:
        return reply
    _check_arrays(reply.arrays, request.expects, np.float64)
    _check_arrays(reply.words, request.expects_words, np.uint64)
    # One NaN would make the whole sum NaN, for all agents.
    for name, array in reply.arrays.items():
        if not np.isfinite(array).all():
            raise ReplyError(f"`{name}` in a reply must be finite, but some numbers are not")
    return reply


def _check_arrays(
    arrays: Mapping[str, np.ndarray], expects: Mapping[str, tuple[int, ...]], dtype: type
) -> None:
    """Raise ReplyError unless the arrays have the expected names, shapes and type."""
    if set(arrays) != set(expects):
        raise ReplyError(
            f"the arrays of a reply must be {sorted(expects)}, but got {sorted(arrays)}"
        )
    for name, shape in expects.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise ReplyError(
                f"`{name}` in a reply must be {np.dtype(dtype)} of shape {shape}, "
                f"but got {array.dtype} of shape {array.shape}"
            )


class Server(Protocol):
    """The server half of a method: a state machine that can be stored and restored."""

    #: The number of agents; agents are numbered from 0.
    agents: int
    #: The number of the open round, counted from 0.
    round: int
    #: The number of planned rounds; None where the scores decide how many there are.
    rounds: int | None

    @property
    def finished(self) -> bool:
        """Return whether no round is left."""

    def setup(self) -> Setup:
        """Return the setup that every agent receives before its first request."""

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request of the open round for each present agent that takes part.

        A second call for the same round changes nothing.
        """

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in the checked replies of the open round, by agent, and open the next round."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values and numpy arrays, for :meth:`load_state_dict`."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state, with the same requests as without the interruption."""


class Agent(Protocol):
    """The agent half of a method: a state machine that answers requests for one party."""

    def answer(self, request: Request) -> Reply:
        """Answer a request. A second answer for the same round repeats no evaluation."""
