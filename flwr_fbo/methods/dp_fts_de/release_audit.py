"""``flwr-fbo audit``: the audit of :mod:`flwr_fbo.privacy.audit`, aimed at the real server.

What is attacked is :meth:`DPFTSDEServer.draw_release`, the very method that a run calls, with
its weights, clip, sampling, lattice and noise.
"""

from __future__ import annotations

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.privacy.audit import AuditResult, Claim, ReleaseStep, audit
from flwr_fbo.privacy.entropy import Entropy


def release_of(server: DPFTSDEServer) -> ReleaseStep:
    """The server's release step as the audit calls it: messages (N, M) to a vector (P M,)."""

    def release(messages: Array, entropy: Entropy) -> Array:
        return np.ravel(server.draw_release(dict(enumerate(messages)), entropy))

    return release


def audit_server(
    settings: DPFTSDESettings,
    agents: int,
    rounds: int = 10,
    round: int = 0,
    trials: int = 4000,
    confidence: float = 0.99,
    entropy: Entropy | None = None,
) -> AuditResult:
    """Attack the release of one round of a run with these settings."""
    if settings.sampling != "poisson":
        raise ValueError("`sampling` must be poisson: the audit knows no other sampling")
    if not settings.private:
        raise ValueError("`epsilon` or `noise-multiplier` must be given: there is no claim to test")
    dimensions = {f"x{i}": Float(0.0, 1.0) for i in range(2)}
    server = DPFTSDEServer(Space(dimensions), agents, settings, rounds)
    server.round = round
    P = server.regions.count
    assert server.bound is not None
    assert server.noise_multiplier is not None
    assert server.delta is not None
    claim = Claim(
        noise_multiplier=server.noise_multiplier,
        sampling_rate=server.release_plan.sampling_rate,
        delta=server.delta,
        agents=agents,
        dimension=settings.vector_length,
        clip=server.bound,
        canary=int(np.argmax(np.linalg.norm(server.weights.at(round, agents, P), axis=0))),
    )
    return audit(release_of(server), claim, trials=trials, confidence=confidence, entropy=entropy)
