"""Bayesian optimisation under local differential privacy, and under heavy-tailed rewards.

Zhou and Tan, "Local Differential Privacy for Bayesian Optimization" (AAAI 2021). The modules
in the order of reading: ``settings``, ``rewards`` (bounds and moments), ``curator`` (CTL),
``posterior``, ``domain``, ``learner``, ``tgp``, ``nystrom``, ``ata``, ``moma``, ``learners``;
then the two state machines, ``server`` and ``agent``, and ``regret``.
"""

from flwr_fbo.methods.ldp.agent import RewardAgent
from flwr_fbo.methods.ldp.learners import LEARNERS, make_learner
from flwr_fbo.methods.ldp.problem import problem_presets, range_presets
from flwr_fbo.methods.ldp.regret import cumulative_regret
from flwr_fbo.methods.ldp.server import RewardServer
from flwr_fbo.methods.ldp.settings import LDPSettings

__all__ = [
    "LEARNERS",
    "LDPSettings",
    "RewardAgent",
    "RewardServer",
    "cumulative_regret",
    "make_learner",
    "problem_presets",
    "range_presets",
]
