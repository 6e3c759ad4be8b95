"""Flower servers, thin shells over the state machines of flwr_fbo.core."""

from __future__ import annotations

import importlib

from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.strategies.base import Callback, FBOStrategy, RoundReport, RunPlan
from flwr_fbo.tasks.task import Seeks

#: Strategies by name: "module:class".
STRATEGIES: dict[str, str] = {
    "dp-fts-de": "flwr_fbo.strategies.dp_fts_de:DPFTSDE",
    "fts": "flwr_fbo.strategies.fts:FTS",
    "local-ts": "flwr_fbo.strategies.fts:LocalTS",
    "random": "flwr_fbo.strategies.fts:RandomSearch",
    "fed-pne": "flwr_fbo.strategies.fed_pne:FedPNE",
    "ldp-ata": "flwr_fbo.strategies.ldp:LDPATA",
    "ldp-tgp": "flwr_fbo.strategies.ldp:LDPTGP",
    "ldp-moma": "flwr_fbo.strategies.ldp:LDPMoMA",
    "ata": "flwr_fbo.strategies.ldp:ATA",
    "tgp": "flwr_fbo.strategies.ldp:TGP",
    "moma": "flwr_fbo.strategies.ldp:MoMA",
    "gp-ucb": "flwr_fbo.strategies.ldp:GPUCB",
    "uniform": "flwr_fbo.strategies.ldp:Uniform",
    "hct": "flwr_fbo.strategies.fed_pne:HCT",
    "fed1-ucb": "flwr_fbo.strategies.fed_pne:Fed1UCB",
    "fn-ucb": "flwr_fbo.strategies.fed_pne:FNUCB",
    "kernel-ts": "flwr_fbo.strategies.fed_pne:KernelTS",
    "optuna-batch": "flwr_fbo.strategies.fed_pne:OptunaBatch",
}

#: Names that mean another method on tasks with one optimum for all agents.
GLOBAL: dict[str, str] = {"gp-ucb": "flwr_fbo.strategies.fed_pne:GlobalGPUCB"}


def strategy_class(name: str, seeks: Seeks = "own") -> type[FBOStrategy]:
    """The strategy of a name, for a task that seeks this kind of optimum."""
    try:
        unknown_keys([name], STRATEGIES)
    except SettingsError as error:
        raise SettingsError(str(error).replace("unknown setting", "unknown strategy")) from None
    where = GLOBAL.get(name, STRATEGIES[name]) if seeks == "global" else STRATEGIES[name]
    module, _, attribute = where.partition(":")
    return strategy_at(module, attribute)


def strategy_name(strategy: type[FBOStrategy]) -> str:
    """The name under which a strategy is known."""
    for name, where in [*STRATEGIES.items(), *GLOBAL.items()]:
        module, _, attribute = where.partition(":")
        if strategy.__module__ == module and strategy_at(module, attribute) is strategy:
            return name
    raise SettingsError(
        f"`strategy` must be one of {', '.join(STRATEGIES)}, or an object of one of their "
        f"classes, but is a {strategy.__qualname__}"
    )


def strategy_at(module: str, attribute: str) -> type[FBOStrategy]:
    """The strategy class of a module."""
    found: type[FBOStrategy] = getattr(importlib.import_module(module), attribute)
    return found


__all__ = [
    "STRATEGIES",
    "Callback",
    "FBOStrategy",
    "RoundReport",
    "RunPlan",
    "strategy_class",
    "strategy_name",
]
