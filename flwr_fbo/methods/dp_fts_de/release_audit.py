"""The audit of one release of the real server, the fast mode of ``flwr-fbo audit``.

The attack of :mod:`flwr_fbo.privacy.audit` is made on :meth:`Aggregation.draw_release
<flwr_fbo.methods.dp_fts_de.aggregation.Aggregation.draw_release>`. A run calls the same method,
with the same weights, clip, sampling, lattice and noise. The audit of all releases of a run, with
its ledger, is in :mod:`flwr_fbo.methods.dp_fts_de.schedule_audit`.
"""

from __future__ import annotations

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.privacy.audit import AuditResult, Claim, ReleaseStep, audit
from flwr_fbo.privacy.entropy import Entropy

#: A space for audited servers; what a release reveals does not depend on the space.
SPACE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def check_settings(settings: DPFTSDESettings) -> None:
    """Raise ValueError for settings without a claim that an audit could test."""
    if not settings.private:
        raise ValueError("`epsilon` or `noise-multiplier` must be set, but both are unset")
    if settings.sampling != "poisson":
        raise ValueError(f"`sampling` must be poisson in an audit, but got {settings.sampling!r}")
    if settings.noise_seed is not None:
        raise ValueError(
            "`noise-seed` must be unset in an audit, but is set: a run with seeded noise is NOT "
            "PRIVATE"
        )
    if settings.diagnostics:
        raise ValueError(
            "`diagnostics` must be false in an audit, but is true: a run whose agents send their "
            "scores is NOT PRIVATE"
        )


def release_step(server: DPFTSDEServer) -> ReleaseStep:
    """Return the server's release step in the audit's form: messages (N, M) to (P M,)."""

    def release(messages: Array, entropy: Entropy) -> Array:
        vectors = dict(enumerate(messages))
        return np.ravel(server.aggregation.draw_release(vectors, server.round, entropy))

    return release


def audit_release(
    settings: DPFTSDESettings,
    agents: int,
    rounds: int = 10,
    round: int = 0,
    trials: int = 4000,
    confidence: float = 0.99,
    entropy: Entropy | None = None,
) -> AuditResult:
    """Attack one release of a run with these settings, and return what the attack shows.

    Parameters
    ----------
    settings : DPFTSDESettings
        The settings of a private run with Poisson sampling.
    agents, rounds : int
        N and T.
    round : int
        The round whose release is attacked.
    trials : int
        The number of attacks on each of two neighbouring inputs.
    confidence : float
        The confidence of the bound on epsilon.
    entropy : Entropy, optional
        The source of noise and samples; by default the operating system's.
    """
    check_settings(settings)
    server = DPFTSDEServer(SPACE, agents, settings, rounds)
    server.round = round
    bound, weights = server.aggregation.bound, server.aggregation.weights(round)  # (P, N)
    assert bound is not None
    assert server.noise_multiplier is not None
    assert server.delta is not None
    claim = Claim(
        noise_multiplier=server.noise_multiplier,
        sampling_rate=server.release_plan.sampling_rate,
        delta=server.delta,
        agents=agents,
        dimension=settings.vector_length,
        clip=bound,
        # The agent with the largest weights changes the sum the most.
        canary=int(np.argmax(np.linalg.norm(weights, axis=0))),
    )
    step = release_step(server)
    return audit(step, claim, trials=trials, confidence=confidence, entropy=entropy)
