"""The ClientApp: one agent of any method, under ``flwr run`` or any other grid."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flwr_fbo.clients.doors import answer
from flwr_fbo.core.settings import kebab
from flwr_fbo.runs.spec import expanded, task_of
from flwr_fbo.tasks import Task

#: Where the run-config of somebody else's app holds settings of this package.
PREFIX = "fbo."
#: From a message's context to the task that is tuned, and the folder of journals if it is given.
Chooser: TypeAlias = Callable[[Context], tuple[Task, Path | None]]


class AgentApp(ClientApp):
    """A ClientApp of one handler, which answers tuning messages.

    A simulation sends the app along with every message, by pickle. This one is packed once, as
    what it is made of, and unpacked once by every worker.
    """

    def __init__(self, choose: Chooser) -> None:
        super().__init__()
        self._choose = choose

        @self.train("fbo")
        def tune(message: Message, context: Context) -> Message:
            task, journals = choose(context)
            return answer(message, context, task, journals)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self._parcel,)

    @cached_property
    def _parcel(self) -> bytes:
        return _pickled(self._choose)


def _pickled(made: Any) -> bytes:
    """Pickle by Ray's pickle where there is Ray: it can pickle a notebook's functions."""
    tool: Any = sys.modules.get("ray.cloudpickle", pickle)
    return bytes(tool.dumps(made))


@lru_cache(maxsize=8)
def _unpacked(parcel: bytes) -> AgentApp:
    return AgentApp(pickle.loads(parcel))


@dataclass(frozen=True)
class _Configured:
    """The task that the app's code and its run-config describe."""

    task: Task | type[Task] | str
    settings: Mapping[str, Any]

    def __call__(self, context: Context) -> tuple[Task, Path | None]:
        if isinstance(self.task, Task):
            return self.task, None
        configured = {
            key.removeprefix(PREFIX): value
            for key, value in context.run_config.items()
            if key.startswith(PREFIX) and value != ""
        }
        coded = {"task": self.task, **{kebab(k): v for k, v in self.settings.items()}}
        return task_of({**coded, **expanded(configured)}), None


@dataclass(frozen=True)
class _Simulated:
    """The task of a simulation, and the folder of its journals."""

    task: Task
    journals: Path

    def __call__(self, context: Context) -> tuple[Task, Path | None]:
        return self.task, self.journals


def client_app(task: Task | type[Task] | str, **settings: Any) -> ClientApp:
    """Make the ClientApp of a run, for an app that only tunes.

    Parameters
    ----------
    task
        What is tuned; its name, or the object itself.
    settings
        Settings of the task, by their Python names. What the app's run-config says under
        ``fbo.`` comes on top. The method and its settings are the server's business.

    Examples
    --------
    >>> from flwr_fbo import Float, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> app = client_app(hill)
    """
    return AgentApp(_Configured(task, settings))


def client_app_of(task: Task, journals: Path) -> ClientApp:
    """Make a ClientApp whose agents work on a task and keep their journals in a folder."""
    return AgentApp(_Simulated(task, journals))


def _of_run_config(context: Context) -> tuple[Task, Path | None]:
    return _task(tuple((k, type(v), v) for k, v in context.run_config.items())), None


@lru_cache(maxsize=8)
def _task(items: tuple[tuple[str, type, Any], ...]) -> Task:
    """Return the task that a run-config describes; the types keep 1, 1.0 and true apart."""
    return task_of({key: value for key, _, value in items})


app = AgentApp(_of_run_config)
