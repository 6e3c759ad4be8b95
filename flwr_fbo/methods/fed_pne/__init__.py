"""Fed-PNE and DP-Fed-PNE (Li, Song, Honorio and Lin, "Federated X-armed bandit").

One optimum for all agents, found in a handful of rounds and without a Gaussian process: a tree of
boxes is searched from the top, every agent sends one mean a box, and boxes that cannot hold the
optimum are eliminated. :class:`FedPNEServer` and :class:`FedPNEAgent` are the two halves.
"""

from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.privacy import Guarantees, PrivacyLimits
from flwr_fbo.methods.fed_pne.report import cumulative_regret, result, tree, tree_svg, tree_text
from flwr_fbo.methods.fed_pne.server import FedPNEServer
from flwr_fbo.methods.fed_pne.settings import FedPNESettings

__all__ = [
    "FedPNEAgent",
    "FedPNEServer",
    "FedPNESettings",
    "Guarantees",
    "PrivacyLimits",
    "cumulative_regret",
    "result",
    "tree",
    "tree_svg",
    "tree_text",
]
