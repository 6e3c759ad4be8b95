"""Fed-PNE and DP-Fed-PNE (Li, Song, Honorio and Lin, "Federated X-armed bandit").

The method finds one optimum for all agents in a handful of rounds, without a Gaussian process.
The server searches a tree of boxes from the top. Every agent sends one mean reward for each box,
and boxes that cannot hold the optimum are eliminated.
"""

from flwr_fbo.methods.method import Method

METHODS = (
    Method(
        name="fed-pne",
        summary="Phased node elimination: one setting for all parties, in few rounds.",
        settings="flwr_fbo.methods.fed_pne.settings:FedPNESettings",
        server="flwr_fbo.methods.fed_pne.server:FedPNEServer",
        agent="flwr_fbo.methods.fed_pne.agent:make_agent",
        agent_kind="fed-pne",
        strategy="flwr_fbo.strategies.fed_pne:FedPNE",
        presets="flwr_fbo.methods.method:score_range_presets",
        summand="flwr_fbo.methods.fed_pne.secure:summand",
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
