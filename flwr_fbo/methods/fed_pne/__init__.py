"""Fed-PNE and DP-Fed-PNE (Li, Song, Honorio and Lin, "Federated X-armed bandit").

One optimum for all agents, found in a handful of rounds and without a Gaussian process: a tree
of boxes is searched from the top, every agent sends one mean a box, and boxes that cannot hold
the optimum are eliminated.
"""

from flwr_fbo.methods.method import Method

METHODS = (
    Method(
        name="fed-pne",
        summary="Phased node elimination: one optimum for everyone, in a handful of rounds.",
        settings="flwr_fbo.methods.fed_pne.settings:FedPNESettings",
        server="flwr_fbo.methods.fed_pne.server:FedPNEServer",
        agent="flwr_fbo.methods.fed_pne.agent:make_agent",
        agent_kind="fed-pne",
        strategy="flwr_fbo.strategies.fed_pne:FedPNE",
        presets="flwr_fbo.methods.method:score_range_presets",
        paper_settings={"last-phase": "in-order", "noise-on": "reward"},
        bibtex="""@inproceedings{li2024fedpne,
  title     = {Federated {X}-Armed Bandit},
  author    = {Li, Wenjie and Song, Qifan and Honorio, Jean and Lin, Guang},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume    = {38},
  year      = {2024}
}""",
    ),
)
