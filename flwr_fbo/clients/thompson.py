"""The client of FTS, DP-FTS-DE and the solitary baselines."""

from __future__ import annotations

from flwr_fbo.clients.base import FBOClient
from flwr_fbo.clients.limits import number
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.local_privacy import LocallyPrivateAgent
from flwr_fbo.core.protocol import Agent, Setup
from flwr_fbo.core.thompson import ThompsonSettings
from flwr_fbo.core.thompson_agent import KIND, ThompsonAgent


class ThompsonClient(FBOClient):
    """A local Gaussian process agent behind Flower's NumPyClient."""

    kind = KIND

    def make_agent(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> Agent:
        """See :class:`FBOClient`."""
        agent = ThompsonAgent(setup, evaluator, records, seed)
        asked = setup.values.get("local-epsilon")
        limits = [v for v in (asked, number(self._partition.config, "epsilon-limit")) if v]
        if not limits:
            return agent
        stricter = {**setup.values, "local-epsilon": float(min(limits))}
        settings = ThompsonSettings.from_mapping(stricter)
        owner = f"agent {self._partition.index}"
        return LocallyPrivateAgent(agent, settings, records, self.privacy_ledger, owner)
