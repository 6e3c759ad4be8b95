"""The two ways in which an app receives tuning messages: a handler, or a ``client_fn``.

Both ways lead to the :class:`~flwr_fbo.clients.tuning_client.TuningClient`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.client import Client
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
)

from flwr_fbo import wire
from flwr_fbo.clients.tuning_client import EvaluationOptions, TuningClient
from flwr_fbo.core.evaluation import ends_the_process
from flwr_fbo.core.protocol import Reply
from flwr_fbo.tasks import Task

logger = logging.getLogger("flwr.fbo")

ClientFn = Callable[[Context], Client]


def answer(
    message: Message,
    context: Context,
    tuned: Task | type[Task] | str,
    journals: Path | None = None,
) -> Message:
    """Answer a tuning message, in a handler of an app.

    Parameters
    ----------
    message : flwr.app.Message
        The message that Flower passes to the handler.
    context : flwr.app.Context
        The context that Flower passes to the handler.
    tuned : Task, type or str
        What is tuned: a :class:`~flwr_fbo.Task`, a function with :func:`~flwr_fbo.task`, or the
        name of either.
    journals : Path, optional
        The folder of the agents' journals. The default is a folder below ``FLWR_FBO_HOME`` that is
        named after the run.

    Returns
    -------
    flwr.app.Message
        The reply, which the handler returns.

    Examples
    --------
    The handler stands beside the app's own ``@app.train()``. Here an in-process grid runs it:

    >>> import tempfile
    >>> from pathlib import Path
    >>> from flwr.clientapp import ClientApp
    >>> import flwr_fbo
    >>> from flwr_fbo.simulation.in_process_grid import InProcessGrid
    >>> folder = Path(tempfile.mkdtemp())
    >>> @flwr_fbo.task(space={"x": flwr_fbo.Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> app = ClientApp()
    >>> @app.train("fbo")
    ... def tune(message, context):
    ...     return flwr_fbo.answer(message, context, hill, folder / "agents")
    >>> strategy = flwr_fbo.RandomSearch(space=hill.space, num_agents=2, run_dir=folder)
    >>> strategy.start(InProcessGrid(app, nodes=2), num_rounds=3).rounds
    3
    """
    return answer_with(message, context, tuned, journals, EvaluationOptions())


def answer_with(
    message: Message,
    context: Context,
    tuned: Task | type[Task] | str,
    journals: Path | None,
    options: EvaluationOptions,
) -> Message:
    """Answer a tuning message as :func:`answer` does, with the options of a simulation."""
    try:
        arguments = wire.fit_arguments(message.content)
        result = TuningClient(context, tuned, journals, options).fit(*arguments)
    except (Exception, SystemExit) as error:
        if ends_the_process(error):
            raise
        return decline(message, error)
    return Message(wire.reply_content(result), reply_to=message)


def decline(message: Message, error: BaseException) -> Message:
    """Return a reply that declines a message no agent could read, with the class of the error."""
    # An error that is raised here would be sent by Flower with its text, which may quote data.
    logger.error("a tuning message could not be answered", exc_info=error)
    config = message.content.get(wire.CONFIG) if message.has_content() else None
    number, *shapes = wire.readable_part(config)
    result = wire.encode_reply(Reply(declined=type(error).__name__), number, None, *shapes)
    return Message(wire.reply_content(result), reply_to=message)


def with_tuning(client_fn: ClientFn, tuned: Task | type[Task] | str) -> ClientFn:
    """Return a ``client_fn`` whose clients answer tuning messages and pass on all others.

    Parameters
    ----------
    client_fn : callable
        The app's own function, which makes the clients that train and evaluate.
    tuned : Task, type or str
        What is tuned: a :class:`~flwr_fbo.Task`, a function with :func:`~flwr_fbo.task`, or the
        name of either.

    Returns
    -------
    callable
        The ``client_fn`` for the app's ClientApp.

    Examples
    --------
    >>> from flwr.client import NumPyClient
    >>> from flwr.clientapp import ClientApp
    >>> from flwr_fbo import Float, task, with_tuning
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> def client_fn(context):
    ...     return NumPyClient().to_client()  # the client of an app that trains
    >>> app = ClientApp(client_fn=with_tuning(client_fn, hill))
    """

    def client_fn_with_tuning(context: Context) -> Client:
        return _ClientWithTuning(context, client_fn, tuned)

    return client_fn_with_tuning


class _ClientWithTuning(Client):
    """A client that answers tuning messages, and passes all others to the app's client."""

    def __init__(
        self, context: Context, client_fn: ClientFn, tuned: Task | type[Task] | str
    ) -> None:
        self._context, self._client_fn, self._tuned = context, client_fn, tuned

    @property
    def _own(self) -> Client:
        """Return the client of the app's own function, which is made only for its own messages."""
        return self._client_fn(self._context).to_client()

    def _client_for(self, config: Mapping[str, Any]) -> Client:
        """Return the client that answers a message with this config."""
        if wire.is_tuning_message(config):
            return TuningClient(self._context, self._tuned).to_client()
        return self._own

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Answer the server's question about tuning, or pass another question on."""
        return self._client_for(ins.config).get_properties(ins)

    def fit(self, ins: FitIns) -> FitRes:
        """Answer a tuning message, or pass a training message on."""
        return self._client_for(ins.config).fit(ins)

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        """Pass the message to the app's client."""
        return self._own.evaluate(ins)

    def get_parameters(self, ins: GetParametersIns) -> GetParametersRes:
        """Pass the message to the app's client."""
        return self._own.get_parameters(ins)
