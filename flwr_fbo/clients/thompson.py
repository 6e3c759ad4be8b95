"""The client of FTS, DP-FTS-DE and the solitary baselines."""

from __future__ import annotations

from flwr_fbo.clients.base import FBOClient
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Agent, Setup
from flwr_fbo.core.thompson_agent import KIND, ThompsonAgent


class ThompsonClient(FBOClient):
    """A local Gaussian process agent behind Flower's NumPyClient."""

    kind = KIND

    def make_agent(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> Agent:
        """See :class:`FBOClient`."""
        return ThompsonAgent(setup, evaluator, records, seed)
