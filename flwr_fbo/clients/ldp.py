"""The client of LDP-BO: it answers with one private number and nothing else."""

from __future__ import annotations

from flwr_fbo.clients.base import FBOClient
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.ldp.agent import RewardAgent
from flwr_fbo.core.ldp.server import KIND
from flwr_fbo.core.protocol import Agent, Setup


class RewardClient(FBOClient):
    """An agent that makes its reward private where it is born."""

    kind = KIND

    def make_agent(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> Agent:
        """See :class:`FBOClient`."""
        return RewardAgent(setup, evaluator, records, seed)
