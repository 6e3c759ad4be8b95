"""The ClientApp: one agent of any strategy, under ``flwr run`` or any other grid."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from flwr_fbo import wire
from flwr_fbo.clients import client_class
from flwr_fbo.clients.tuning_client import Workplace
from flwr_fbo.runs.locations import agents_of, given_within, root_of
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.strategies import FBOStrategy
from flwr_fbo.tasks import Task


class AgentApp(ClientApp):
    """A ClientApp whose every message is answered by a client of its own.

    A simulation sends the app along with every message, by pickle. This one is packed once, as
    what it is made of, and unpacked once by every worker.
    """

    def __init__(self, make: Callable[[Context], NumPyClient]) -> None:
        super().__init__()
        self._make = make

        @self.train()
        def answer(message: Message, context: Context) -> Message:
            result = make(context).fit(*wire.arguments_of(message.content))
            return Message(wire.content_of(result), reply_to=message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self._parcel,)

    @cached_property
    def _parcel(self) -> bytes:
        return _pickled(self._make)


def _pickled(made: Any) -> bytes:
    """By Ray's pickle where there is Ray: it knows what to do with a notebook's functions."""
    tool: Any = sys.modules.get("ray.cloudpickle", pickle)
    return bytes(tool.dumps(made))


@lru_cache(maxsize=8)
def _unpacked(parcel: bytes) -> AgentApp:
    return AgentApp(pickle.loads(parcel))


@dataclass(frozen=True)
class _Configured:
    """The client of a run that the app's code and its run-config describe."""

    task: Task | type[Task] | str
    strategy: FBOStrategy | str
    settings: Mapping[str, Any]

    def __call__(self, context: Context) -> NumPyClient:
        given = given_within(context, self.task, self.strategy, self.settings)
        return _client(RunSpec.from_mapping(given), context)


@dataclass(frozen=True)
class _Simulated:
    """The client of a run that was read already."""

    workplace: Workplace
    strategy: str

    def __call__(self, context: Context) -> NumPyClient:
        kind = client_class(self.strategy, self.workplace.task.seeks)
        return kind(context, self.workplace)


def client_app(
    task: Task | type[Task] | str, strategy: FBOStrategy | str = "dp-fts-de", **settings: Any
) -> ClientApp:
    """The ClientApp of a run in an app of one's own; give it what :func:`server_app` is given."""
    return AgentApp(_Configured(task, strategy, settings))


def client_app_of(
    task: Task,
    journals: Path,
    strategy: str = "dp-fts-de",
    seed: int = 0,
    answer_within: float | None = None,
) -> ClientApp:
    """A ClientApp whose agents work on a task and keep their journals in a folder."""
    return AgentApp(_Simulated(Workplace(task, journals, seed, answer_within), strategy))


def _of_run_config(context: Context) -> NumPyClient:
    return _client(_spec(tuple((k, type(v), v) for k, v in context.run_config.items())), context)


@lru_cache(maxsize=8)
def _spec(items: tuple[tuple[str, type, Any], ...]) -> RunSpec:
    """The run that a run-config describes; the types keep 1, 1.0 and true apart."""
    return RunSpec.from_mapping({key: value for key, _, value in items})


def _client(spec: RunSpec, context: Context) -> NumPyClient:
    journals = agents_of(root_of(spec, context))
    workplace = Workplace(spec.task, journals, spec.run.seed, spec.run.answer_within)
    return client_class(spec.run.strategy, spec.task.seeks)(context, workplace)


app = AgentApp(_of_run_config)
