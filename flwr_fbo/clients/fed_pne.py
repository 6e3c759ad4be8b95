"""The clients of Fed-PNE and its comparators: they pull nodes and return means."""

from __future__ import annotations

from flwr_fbo.clients.owner_limits import pull_limits
from flwr_fbo.clients.tuning_client import FBOClient
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Agent, Setup
from flwr_fbo.methods.comparators.fn_ucb import KIND as FN_UCB
from flwr_fbo.methods.comparators.fn_ucb import FNUCBAgent
from flwr_fbo.methods.fed_pne import FedPNEAgent
from flwr_fbo.methods.fed_pne.server import KIND


class FedPNEClient(FBOClient):
    """An agent that pulls nodes."""

    kind = KIND

    def make_agent(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> Agent:
        """See :class:`FBOClient`."""
        limits = pull_limits(self._partition.config)
        return FedPNEAgent(setup, evaluator, records, seed, limits=limits)


class FNUCBClient(FBOClient):
    """An agent of FN-UCB, with a network of its own."""

    kind = FN_UCB

    def make_agent(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> Agent:
        """See :class:`FBOClient`."""
        return FNUCBAgent(setup, evaluator, records, seed)
