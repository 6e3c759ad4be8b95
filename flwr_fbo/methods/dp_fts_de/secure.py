r"""The releases of DP-FTS-DE as secure sums: what the server opens, and what an agent adds.

The sum is that of :mod:`flwr_fbo.methods.dp_fts_de.aggregation`, with sampling rate 1. Each agent
clips and weights its own vector: :math:`(\varphi_n^{(i)} \hat\omega_n)_{i=1..P}`, and adds a share
of the noise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Request, Setup
from flwr_fbo.core.settings import Scalar
from flwr_fbo.methods.dp_fts_de.aggregation import Aggregation
from flwr_fbo.methods.secure_sum import SecurePlan, SecureSum, plan_sums
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.privacy.mechanisms import clip_rows
from flwr_fbo.privacy.secure.collector import new_nonce


def secure_plan(aggregation: Aggregation, releases: int) -> SecurePlan:
    """Return the plan of all secure sums of a run; raise SettingsError where none is possible."""
    s, z = aggregation.settings, aggregation.noise_multiplier
    share, colluding = s.secure_threshold, s.secure_colluding
    return plan_sums(aggregation.agents, share, colluding, 0.0 if z is None else z, releases)


def open_sum(
    plan: SecurePlan,
    aggregation: Aggregation,
    setup: str,
    round: int,
    finalists: Array | None = None,
) -> SecureSum:
    """Return a secure sum of the agents' vectors of a round, without any reply yet.

    With ``finalists``, the vectors hold the agents' scores of these points.
    """
    weights, bound = aggregation.weights(round), aggregation.bound
    assert bound is not None
    length = aggregation.regions * aggregation.settings.vector_length
    sensitivity = aggregation.mechanism(round).sensitivity
    terms = plan.terms(setup, round, new_nonce(), length, sensitivity)

    def own(n: int) -> tuple[Mapping[str, Scalar], Mapping[str, Array]]:
        shared = {} if finalists is None else {"finalists": finalists}
        return {"bound": bound}, {"weights": weights[:, n], **shared}

    return SecureSum(terms, own)


def summand(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], request: Request
) -> Array:
    """Return an agent's contribution to a sum, from the evaluations made so far: (P M,).

    An agent without any evaluation adds zeros, which are the neighbouring input.
    """
    weights, bound = request.arrays["weights"], float(request.values["bound"])
    length = int(request.values["length"])
    agent = ThompsonAgent(setup, evaluator, records, seed)
    if not agent.has_evaluations:
        return np.zeros(length)
    shape = (length // len(weights),)
    shared = {name: a for name, a in request.arrays.items() if name == "finalists"}
    reply = agent.share(Request("share", request.round, {}, shared, {"omega": shape}))
    clipped = clip_rows(reply.arrays["omega"], bound)[0]  # line 9
    return np.asarray((weights[:, None] * clipped[None, :]).ravel())
