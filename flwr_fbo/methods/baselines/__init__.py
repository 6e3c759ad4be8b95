"""Baselines without communication: local Thompson sampling and random search."""

from flwr_fbo.methods.method import Method
from flwr_fbo.methods.thompson import PAPER_AGENT

METHODS = (
    Method(
        name="local-ts",
        summary="Thompson sampling without communication: what an agent achieves alone.",
        settings="flwr_fbo.methods.thompson.settings:ThompsonSettings",
        server="flwr_fbo.methods.thompson.server:ThompsonServer",
        agent="flwr_fbo.methods.thompson.agent:make_agent",
        agent_kind="thompson",
        strategy="flwr_fbo.strategies.baselines:LocalTS",
        paper_settings=PAPER_AGENT,
        answers_early=True,
    ),
    Method(
        name="random",
        summary="Uniformly random points, the floor of every comparison.",
        settings="flwr_fbo.methods.thompson.settings:ThompsonSettings",
        server="flwr_fbo.methods.baselines.random_search:RandomSearchServer",
        agent="flwr_fbo.methods.thompson.agent:make_agent",
        agent_kind="thompson",
        strategy="flwr_fbo.strategies.baselines:RandomSearch",
        paper_settings=PAPER_AGENT,
        answers_early=True,
    ),
)
