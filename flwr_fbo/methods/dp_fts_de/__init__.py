"""DP-FTS-DE: a trusted server releases noisy weighted sums of the agents' vectors."""

from flwr_fbo.methods.method import Method
from flwr_fbo.methods.thompson import PAPER_AGENT

METHODS = (
    Method(
        name="dp-fts-de",
        summary="Federated Thompson sampling with user-level privacy and distributed exploration.",
        settings="flwr_fbo.methods.dp_fts_de.settings:DPFTSDESettings",
        server="flwr_fbo.methods.dp_fts_de.server:DPFTSDEServer",
        agent="flwr_fbo.methods.thompson.agent:make_agent",
        together="flwr_fbo.methods.thompson.agent:ThompsonAgents",
        agent_kind="thompson",
        strategy="flwr_fbo.strategies.dp_fts_de:DPFTSDE",
        presets="flwr_fbo.methods.method:score_range_presets",
        space_presets="flwr_fbo.methods.dp_fts_de.settings:presets_in_space",
        paper_settings={
            **PAPER_AGENT,
            "p-schedule": "1-1/t",
            "regions": 4,
            "weights": "softmax-15",
            "weights-hold": 10,
            "weights-decay": 30,
            "clip": 22.0,
            "sensitivity": "paper",
            "advice": "last",
            "releases": "all",
            "accountant": "moments",
            "delta-rule": "paper",
        },
        bibtex="""@inproceedings{dai2021dpftsde,
  title     = {Differentially Private Federated {B}ayesian Optimization with Distributed
               Exploration},
  author    = {Dai, Zhongxiang and Low, Bryan Kian Hsiang and Jaillet, Patrick},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {34},
  year      = {2021}
}""",
        answers_early=True,
        summand="flwr_fbo.methods.dp_fts_de.secure:summand",
    ),
)
