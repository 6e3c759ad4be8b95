"""The ClientApp: one agent of any strategy, under ``flwr run`` or any other grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from flwr_fbo.clients import client_class
from flwr_fbo.clients.base import Workplace
from flwr_fbo.serverapp import directory_of, given_within
from flwr_fbo.spec import RunSpec
from flwr_fbo.strategies import FBOStrategy
from flwr_fbo.tasks import Task


def client_app(
    task: Task | type[Task] | str, strategy: FBOStrategy | str = "dp-fts-de", **settings: Any
) -> ClientApp:
    """The ClientApp of a run in an app of one's own; give it what :func:`server_app` is given."""

    def make(context: Context) -> NumPyClient:
        given = given_within(context, task, strategy, settings)
        return _client(RunSpec.from_mapping(given), context)

    return _app(make)


def client_app_of(
    task: Task,
    journals: Path,
    strategy: str = "dp-fts-de",
    seed: int = 0,
    answer_within: float | None = None,
) -> ClientApp:
    """A ClientApp whose agents work on a task and keep their journals in a folder."""
    workplace = Workplace(task, journals, seed, answer_within)
    return _app(lambda context: client_class(strategy, task.seeks)(context, workplace))


def _app(make: Callable[[Context], NumPyClient]) -> ClientApp:
    def client_fn(context: Context):  # type: ignore[no-untyped-def]  # Flower's own type is private
        return make(context).to_client()

    return ClientApp(client_fn)


def _client(spec: RunSpec, context: Context) -> NumPyClient:
    journals = directory_of(spec, context).agents
    workplace = Workplace(spec.task, journals, spec.run.seed, spec.run.answer_within)
    return client_class(spec.run.strategy, spec.task.seeks)(context, workplace)


app = _app(lambda context: _client(RunSpec.from_mapping(dict(context.run_config)), context))
