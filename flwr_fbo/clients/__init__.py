"""Flower clients, thin shells over the agents of flwr_fbo.core."""

from __future__ import annotations

import importlib

from flwr_fbo.clients.tuning_client import FBOClient
from flwr_fbo.strategies import GLOBAL
from flwr_fbo.tasks.task import Seeks

_THOMPSON = "flwr_fbo.clients.thompson:ThompsonClient"
_PULLS = "flwr_fbo.clients.fed_pne:FedPNEClient"
_REWARDS = "flwr_fbo.clients.ldp:RewardClient"

#: Clients by strategy: "module:class".
CLIENTS: dict[str, str] = {
    "dp-fts-de": _THOMPSON,
    "fts": _THOMPSON,
    "local-ts": _THOMPSON,
    "random": _THOMPSON,
    "fed-pne": _PULLS,
    "hct": _PULLS,
    "fed1-ucb": _PULLS,
    "kernel-ts": _PULLS,
    "optuna-batch": _PULLS,
    "fn-ucb": "flwr_fbo.clients.fed_pne:FNUCBClient",
    "ldp-ata": _REWARDS,
    "ldp-tgp": _REWARDS,
    "ldp-moma": _REWARDS,
    "ata": _REWARDS,
    "tgp": _REWARDS,
    "moma": _REWARDS,
    "gp-ucb": _REWARDS,
    "uniform": _REWARDS,
}


def client_class(strategy: str, seeks: Seeks = "own") -> type[FBOClient]:
    """The client that works with a strategy, for a task that seeks this kind of optimum."""
    where = _PULLS if seeks == "global" and strategy in GLOBAL else CLIENTS[strategy]
    module, _, attribute = where.partition(":")
    found: type[FBOClient] = getattr(importlib.import_module(module), attribute)
    return found
