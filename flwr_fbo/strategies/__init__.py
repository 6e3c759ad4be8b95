"""Flower servers, thin shells over the state machines of flwr_fbo.core."""

from __future__ import annotations

import importlib

from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.strategies.base import Callback, FBOStrategy, RoundReport, RunPlan

#: Strategies by name: "module:class".
STRATEGIES: dict[str, str] = {
    "dp-fts-de": "flwr_fbo.strategies.dp_fts_de:DPFTSDE",
    "fts": "flwr_fbo.strategies.fts:FTS",
    "local-ts": "flwr_fbo.strategies.fts:LocalTS",
    "random": "flwr_fbo.strategies.fts:RandomSearch",
}


def strategy_class(name: str) -> type[FBOStrategy]:
    """The strategy of a name."""
    try:
        unknown_keys([name], STRATEGIES)
    except SettingsError as error:
        raise SettingsError(str(error).replace("unknown setting", "unknown strategy")) from None
    module, _, attribute = STRATEGIES[name].partition(":")
    found: type[FBOStrategy] = getattr(importlib.import_module(module), attribute)
    return found


__all__ = [
    "STRATEGIES",
    "Callback",
    "FBOStrategy",
    "RoundReport",
    "RunPlan",
    "strategy_class",
]
