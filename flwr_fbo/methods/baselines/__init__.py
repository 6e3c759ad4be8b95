"""Baselines without communication: the agent alone, Optuna's TPE, and random search."""

from flwr_fbo.methods.method import Method
from flwr_fbo.methods.thompson import PAPER_AGENT

METHODS = (
    Method(
        name="alone",
        summary="The agent of dp-fts-de without the others: what the federation adds to.",
        settings="flwr_fbo.methods.baselines.alone:AloneSettings",
        server="flwr_fbo.methods.thompson.server:ThompsonServer",
        agent="flwr_fbo.methods.thompson.agent:make_agent",
        together="flwr_fbo.methods.thompson.agent:ThompsonAgents",
        agent_kind="thompson",
        presets="flwr_fbo.methods.method:score_range_presets",
        paper_settings=PAPER_AGENT,
        answers_early=True,
    ),
    Method(
        name="tpe",
        summary="Optuna's TPE for each party by itself; needs the extra flwr-fbo[optuna].",
        settings="flwr_fbo.methods.baselines.tpe:TPESettings",
        server="flwr_fbo.methods.baselines.tpe:TPEServer",
        agent="flwr_fbo.methods.baselines.tpe:make_agent",
        agent_kind="tpe",
    ),
    Method(
        name="local-ts",
        summary="Thompson sampling without communication: what an agent achieves alone.",
        settings="flwr_fbo.methods.thompson.settings:ThompsonSettings",
        server="flwr_fbo.methods.thompson.server:ThompsonServer",
        agent="flwr_fbo.methods.thompson.agent:make_agent",
        together="flwr_fbo.methods.thompson.agent:ThompsonAgents",
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
        together="flwr_fbo.methods.thompson.agent:ThompsonAgents",
        agent_kind="thompson",
        strategy="flwr_fbo.strategies.baselines:RandomSearch",
        paper_settings=PAPER_AGENT,
        answers_early=True,
    ),
)
