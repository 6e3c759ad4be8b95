"""DP-FTS-DE on Flower."""

from __future__ import annotations

from typing import Any, ClassVar

from flwr_fbo.core.dp_fts_de import DPFTSDEServer, DPFTSDESettings
from flwr_fbo.core.protocol import Server
from flwr_fbo.strategies.base import FBOStrategy, RunPlan
from flwr_fbo.strategies.fts import PAPER_AGENT


class DPFTSDE(FBOStrategy):
    """Federated Thompson sampling with user-level privacy and distributed exploration."""

    settings_class = DPFTSDESettings
    settings: DPFTSDESettings
    paper_settings: ClassVar[dict[str, Any]] = {
        **PAPER_AGENT,
        "p-schedule": "1-1/t",
        "regions": 4,
        "weights": "softmax-15",
        "weights-hold": 10,
        "weights-decay": 30,
        "clip": 22.0,
        "sensitivity": "paper",
        "releases": "all",
        "accountant": "moments",
    }

    def build(self, plan: RunPlan) -> Server:
        """See :class:`FBOStrategy`."""
        return DPFTSDEServer(plan.space, plan.agents, self.settings, plan.rounds, plan.seed)

    def privacy(self) -> dict[str, Any] | None:
        """See :class:`FBOStrategy`."""
        server = self.server
        assert isinstance(server, DPFTSDEServer)
        if server.budget is None:
            return None
        return {
            "epsilon": server.budget.spent,
            "delta": server.delta,
            "budget": self.settings.epsilon,
            "private": server.private,
            "exhausted": server.exhausted,
        }
