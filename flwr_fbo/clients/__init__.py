"""Flower clients, thin shells over the agents of flwr_fbo.core."""

from __future__ import annotations

import importlib

from flwr_fbo.clients.base import FBOClient

_THOMPSON = "flwr_fbo.clients.thompson:ThompsonClient"

#: Clients by strategy: "module:class".
CLIENTS: dict[str, str] = {
    "dp-fts-de": _THOMPSON,
    "fts": _THOMPSON,
    "local-ts": _THOMPSON,
    "random": _THOMPSON,
}


def client_class(strategy: str) -> type[FBOClient]:
    """The client that works with a strategy."""
    module, _, attribute = CLIENTS[strategy].partition(":")
    found: type[FBOClient] = getattr(importlib.import_module(module), attribute)
    return found
