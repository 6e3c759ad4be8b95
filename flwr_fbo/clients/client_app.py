"""The ClientApp of a run: the agents of any method, under ``flwr run`` or any other grid."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flwr_fbo.clients.doors import answer_with, decline
from flwr_fbo.clients.tuning_client import EvaluationOptions
from flwr_fbo.core.evaluation import ends_the_process
from flwr_fbo.core.settings import kebab
from flwr_fbo.runs.spec import expand_settings, task_of
from flwr_fbo.tasks import Task

#: The prefix of this package's keys in the run-config of an app that has keys of its own.
PREFIX = "fbo."


@dataclass(frozen=True)
class FoundTask:
    """What an app tunes, as its task finder returns it.

    Parameters
    ----------
    task
        The task.
    journals
        The folder of journals; None is the default folder.
    options
        How evaluations are made.
    """

    task: Task
    journals: Path | None = None
    options: EvaluationOptions = field(default_factory=EvaluationOptions)


#: A function from a message's context to what is tuned.
TaskFinder: TypeAlias = Callable[[Context], FoundTask]


class AgentApp(ClientApp):
    """A ClientApp with one handler, which answers tuning messages.

    Flower's simulation pickles the app for every message. An AgentApp is pickled once, as its
    task finder, and unpickled once by every worker of the simulation.

    Parameters
    ----------
    find_task
        Returns what is tuned for the context of a message.
    """

    def __init__(self, find_task: TaskFinder) -> None:
        super().__init__()
        self._find_task = find_task

        @self.train("fbo")
        def tune(message: Message, context: Context) -> Message:
            try:
                found = find_task(context)
            except (Exception, SystemExit) as error:  # of the run-config, or the task's import
                if ends_the_process(error):
                    raise
                return decline(message, error)
            return answer_with(message, context, found.task, found.journals, found.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._parcel,)

    @cached_property
    def _parcel(self) -> bytes:
        """Return the task finder as bytes, pickled once."""
        return _pickled(self._find_task)


def _pickled(value: Any) -> bytes:
    """Return a value as bytes, by Ray's pickle where Ray is in use."""
    # Ray's pickle can pickle the functions of a notebook.
    tool: Any = sys.modules.get("ray.cloudpickle", pickle)
    return bytes(tool.dumps(value))


@lru_cache(maxsize=8)
def _unpickled(pickled: bytes) -> AgentApp:
    """Return the app of a pickled task finder, the same object for the same bytes."""
    return AgentApp(pickle.loads(pickled))


@dataclass(frozen=True)
class _ConfiguredTask:
    """A task finder for an app's code, on top of which the run-config may set keys."""

    task: Task | type[Task] | str
    settings: Mapping[str, Any]

    def __call__(self, context: Context) -> FoundTask:
        # A task object was made with its settings, so no key can change them.
        if isinstance(self.task, Task):
            return FoundTask(self.task)
        configured = {
            key.removeprefix(PREFIX): value
            for key, value in context.run_config.items()
            if key.startswith(PREFIX) and value != ""
        }
        given = {"task": self.task, **{kebab(k): v for k, v in self.settings.items()}}
        return FoundTask(task_of({**given, **expand_settings(configured)}))


@dataclass(frozen=True)
class _SimulatedTask:
    """A task finder for a simulation, whose journals are in the run's directory."""

    found: FoundTask

    def __call__(self, context: Context) -> FoundTask:
        return self.found


def client_app(task: Task | type[Task] | str, **settings: Any) -> ClientApp:
    """Return the ClientApp of a run, for an app that only tunes.

    Parameters
    ----------
    task : Task, type or str
        What is tuned: a task, a function with ``@task``, or the name of either.
    **settings
        Settings of the task, by their Python names. A key of the app's run-config that begins
        with ``fbo.`` replaces a setting. The method and its settings belong to the server.

    Returns
    -------
    flwr.clientapp.ClientApp
        An app that answers tuning messages.

    Examples
    --------
    >>> from flwr_fbo import Float, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> app = client_app(hill)
    """
    return AgentApp(_ConfiguredTask(task, settings))


def simulated_client_app(
    task: Task, journals: Path, options: EvaluationOptions | None = None
) -> ClientApp:
    """Return the ClientApp of a simulation, whose agents keep their journals in a folder."""
    return AgentApp(_SimulatedTask(FoundTask(task, journals, options or EvaluationOptions())))


def _task_of_run_config(context: Context) -> FoundTask:
    """Return the task that a run-config describes, as a task finder."""
    # The types keep 1, 1.0 and True apart, which are equal as keys of the cache.
    return FoundTask(_cached_task(tuple((k, type(v), v) for k, v in context.run_config.items())))


@lru_cache(maxsize=8)
def _cached_task(items: tuple[tuple[str, type, Any], ...]) -> Task:
    """Return the task of a run-config's items, made once per process."""
    return task_of({key: value for key, _, value in items})


#: The app that ``pyproject.toml`` names for ``flwr run``.
app = AgentApp(_task_of_run_config)
