"""The client of LDP-BO: it answers with one private number and nothing else."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from flwr_fbo.clients.owner_limits import DEFAULT_DELTA, number, reward_budget
from flwr_fbo.clients.tuning_client import FBOClient
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Agent, Setup
from flwr_fbo.methods.ldp.agent import RewardAgent
from flwr_fbo.methods.ldp.server import KIND


class RewardClient(FBOClient):
    """An agent that makes its reward private where it is born."""

    kind = KIND

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """See :class:`FBOClient`; the owner's books are closed with the message."""
        with contextlib.ExitStack() as self._stack:
            return super().fit(parameters, config)

    def make_agent(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> Agent:
        """See :class:`FBOClient`."""
        node, owner = self._partition.config, f"agent {self._partition.index}"
        gaussian = setup.values.get("mechanism") == "gaussian"
        delta = (number(node, "delta-limit") or DEFAULT_DELTA) if gaussian else 0.0
        budget = reward_budget(node, owner, delta, self._stack)
        limit = number(node, "epsilon-limit")
        return RewardAgent(setup, evaluator, records, seed, limit=limit, budget=budget)
