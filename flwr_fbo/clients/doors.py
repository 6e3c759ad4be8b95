"""The two ways into an app: a handler for tuning messages, or a ``client_fn``.

Both lead to the same place, the :class:`~flwr_fbo.clients.tuning_client.TuningClient`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
from flwr_fbo.clients.tuning_client import TuningClient
from flwr_fbo.tasks import Task

ClientFn = Callable[[Context], Client]


def answer(
    message: Message,
    context: Context,
    tuned: Task | type[Task] | str,
    journals: Path | None = None,
) -> Message:
    """Answer a tuning message, in a handler of the app's own.

    Parameters
    ----------
    message, context
        What Flower gives the handler.
    tuned
        What is tuned: a :class:`~flwr_fbo.Task`, a function with :func:`~flwr_fbo.task`, or the
        name of either.
    journals
        The folder of the agents' journals; below ``FLWR_FBO_HOME`` by default.

    Examples
    --------
    One more handler beside the app's own ``@app.train()``::

        @app.train("fbo")
        def tune(message: Message, context: Context) -> Message:
            return flwr_fbo.answer(message, context, tuned)
    """
    client = TuningClient(context, tuned, journals)
    result = client.fit(*wire.fit_arguments(message.content))
    return Message(wire.reply_content(result), reply_to=message)


def with_tuning(client_fn: ClientFn, tuned: Task | type[Task] | str) -> ClientFn:
    """Return a ``client_fn`` that answers tuning messages and passes all others on.

    Parameters
    ----------
    client_fn
        The app's own function, which makes the clients that train and evaluate.
    tuned
        What is tuned.

    Examples
    --------
    An app whose clients train already::

        app = ClientApp(client_fn=with_tuning(client_fn, tuned))
    """

    def with_both(context: Context) -> Client:
        return _TuningBeside(context, client_fn, tuned)

    return with_both


class _TuningBeside(Client):
    """A client that answers tuning messages itself and leaves all others to the app's client."""

    def __init__(
        self, context: Context, client_fn: ClientFn, tuned: Task | type[Task] | str
    ) -> None:
        self._context, self._client_fn, self._tuned = context, client_fn, tuned

    @property
    def _tuning(self) -> Client:
        return TuningClient(self._context, self._tuned).to_client()

    @property
    def _own(self) -> Client:
        return self._client_fn(self._context).to_client()

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Answer the question whether this client takes part in tuning; pass on any other."""
        client = self._tuning if wire.is_tuning_message(ins.config) else self._own
        return client.get_properties(ins)

    def fit(self, ins: FitIns) -> FitRes:
        """Answer a tuning message; pass a training message on."""
        client = self._tuning if wire.is_tuning_message(ins.config) else self._own
        return client.fit(ins)

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        """Pass on to the app's client."""
        return self._own.evaluate(ins)

    def get_parameters(self, ins: GetParametersIns) -> GetParametersRes:
        """Pass on to the app's client."""
        return self._own.get_parameters(ins)
