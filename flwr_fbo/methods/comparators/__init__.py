"""Other methods that seek one optimum for all, in the harness of Fed-PNE.

:data:`COMPARATORS` names them; nothing heavy is imported until one is loaded.
"""

from __future__ import annotations

import importlib
from typing import Any

#: name -> module, server, agent. Settings are the server's ``settings_class``.
COMPARATORS: dict[str, tuple[str, str, str]] = {
    "hct": ("hct", "HCTServer", "FedPNEAgent"),
    "fed1-ucb": ("fed1_ucb", "Fed1UCBServer", "FedPNEAgent"),
    "fn-ucb": ("fn_ucb", "FNUCBServer", "FNUCBAgent"),
    "kernel-ts": ("kernel_bandits", "KernelTSServer", "FedPNEAgent"),
    "gp-ucb": ("kernel_bandits", "GPUCBServer", "FedPNEAgent"),
    "optuna-batch": ("optuna_batch", "OptunaBatchServer", "FedPNEAgent"),
}


def load(name: str) -> tuple[Any, Any]:
    """The server's and the agent's class of a comparator."""
    if name not in COMPARATORS:
        raise ValueError(f"a comparator must be one of {', '.join(COMPARATORS)}, got {name!r}")
    module, server, agent = COMPARATORS[name]
    found = importlib.import_module(f"{__name__}.{module}")
    if agent == "FedPNEAgent":
        from flwr_fbo.methods.fed_pne.agent import FedPNEAgent

        return getattr(found, server), FedPNEAgent
    return getattr(found, server), getattr(found, agent)
