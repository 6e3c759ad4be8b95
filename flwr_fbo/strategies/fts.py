"""FTS on Flower, and the solitary baselines it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.protocol import Server
from flwr_fbo.methods.fts.server import FTSServer, FTSSettings
from flwr_fbo.methods.thompson.recommendation import recommend
from flwr_fbo.methods.thompson.sampler import ThompsonSettings
from flwr_fbo.methods.thompson.server import RandomSearchServer, ThompsonServer
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.strategies.base import FBOStrategy, Release, RunPlan

#: The papers' own model and messages on real data (FTS D.2.2, DP-FTS-DE B.2.1): raw scores,
#: and features so narrow that little is shared between neighbouring points.
PAPER_AGENT: dict[str, Any] = {
    "initial-points": 10,
    "first-point": "random",
    "acquisition": "thompson",
    "advice-use": "query",
    "message": "sample",
    "vector-bound": None,
    "share-scale": False,
    "kernel": "se",
    "refit-every": 5,
    "standardise": False,
    "features": 100,
    "feature-kernel": "se",
    "feature-lengthscale": 0.01,
    "feature-noise": 1e-6,
}


class ThompsonStrategy(FBOStrategy):
    """A strategy whose agents are Thompson samplers: initial points, then one step a round."""

    settings: ThompsonSettings
    asynchronous = True

    def evaluations_per_agent(self) -> int | None:
        """See :class:`FBOStrategy`."""
        return self.settings.initial_points + self.run_plan.rounds

    def lengthened(self, planned: int, agents: int) -> dict[str, Any]:
        """See :class:`FBOStrategy`: agents just take more steps."""
        return {}

    def _recommended(self, weights: Array, deviation: float, releases: int) -> dict[str, Any]:
        """Where a function (P, M) over the shared features is largest."""
        server = self.server
        assert isinstance(server, ThompsonServer)
        arrays = server.setup().arrays
        features = RandomFeatures(arrays["frequencies"], arrays["phases"])
        functions = weights[:, : features.count]  # and not the scale of the scores
        found = recommend(server.space, features, server.regions, functions, deviation, releases)
        return found.to_dict()

    def best(self) -> float | None:
        """See :class:`FBOStrategy`."""
        assert isinstance(self.server, ThompsonServer)
        told = [best for count, best in self.server.diagnostics.values() if count]
        return float(np.mean(told)) if told else None

    def privacy(self) -> dict[str, Any] | None:
        """What the agents' own budgets bound, if they have any."""
        s = self.settings
        if s.local_epsilon is None:
            return None
        return {
            "epsilon": s.local_epsilon,
            "delta": s.local_delta,
            "budget": s.local_epsilon,
            "private": not s.diagnostics,
            "exhausted": False,
            "local": True,
        }


class FTS(ThompsonStrategy):
    """Federated Thompson sampling: agents follow one another's sampled functions."""

    settings_class = FTSSettings
    settings: FTSSettings
    paper_settings: ClassVar[dict[str, Any]] = {
        **PAPER_AGENT,
        "initial-points": 3,
        "p-schedule": "1-1/t^2",
    }

    def build(self, plan: RunPlan) -> Server:
        """See :class:`FBOStrategy`."""
        return FTSServer(plan.space, plan.agents, self.settings, plan.rounds, plan.seed)

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """See :class:`FBOStrategy`: of the mean of the agents' last vectors."""
        assert isinstance(self.server, FTSServer)
        last = list(self.server.messages.values())
        if not last:
            return None
        return self._recommended(np.mean(last, axis=0)[None, :], 0.0, len(last))

    def evaluations_per_agent(self) -> int | None:
        """See :class:`FBOStrategy`; helpers and targets differ."""
        return None if self.settings.targets else super().evaluations_per_agent()


class LocalTS(ThompsonStrategy):
    """Thompson sampling without communication: what an agent achieves alone."""

    settings_class = ThompsonSettings
    settings: ThompsonSettings
    paper_settings: ClassVar[dict[str, Any]] = PAPER_AGENT

    def build(self, plan: RunPlan) -> Server:
        """See :class:`FBOStrategy`."""
        return ThompsonServer(plan.space, plan.agents, self.settings, plan.rounds, plan.seed)


class RandomSearch(ThompsonStrategy):
    """Uniformly random points, the floor of every comparison."""

    settings_class = ThompsonSettings
    settings: ThompsonSettings
    paper_settings: ClassVar[dict[str, Any]] = PAPER_AGENT

    def build(self, plan: RunPlan) -> Server:
        """See :class:`FBOStrategy`."""
        return RandomSearchServer(plan.space, plan.agents, self.settings, plan.rounds, plan.seed)
