"""The votes as one secure sum: what the server opens, and what an agent adds."""

from __future__ import annotations

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Request, Setup
from flwr_fbo.methods.secure_sum import SecurePlan, SecureSum
from flwr_fbo.methods.voting.agent import VotingAgent
from flwr_fbo.methods.voting.settings import VotingSettings
from flwr_fbo.privacy.secure.collector import new_nonce


def open_sum(
    plan: SecurePlan, settings: VotingSettings, setup: str, round: int, count: int
) -> SecureSum:
    """Return a secure sum of the agents' votes on ``count`` settings, without any reply yet."""
    terms = plan.terms(setup, round, new_nonce(), count, settings.sensitivity)
    return SecureSum(terms, lambda n: ({}, {}))


def summand(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], request: Request
) -> Array:
    """Return an agent's votes, from its recorded evaluations: (G,)."""
    return np.asarray(VotingAgent(setup, evaluator, records, seed).votes())
