"""FTS: in some rounds, an agent follows a function that another agent sampled."""

from flwr_fbo.methods.method import Method
from flwr_fbo.methods.thompson import PAPER_AGENT

METHODS = (
    Method(
        name="fts",
        summary="Federated Thompson sampling: agents follow one another's sampled functions.",
        settings="flwr_fbo.methods.fts.server:FTSSettings",
        server="flwr_fbo.methods.fts.server:FTSServer",
        agent="flwr_fbo.methods.thompson.agent:make_agent",
        together="flwr_fbo.methods.thompson.agent:ThompsonAgents",
        agent_kind="thompson",
        strategy="flwr_fbo.strategies.fts:FTS",
        paper_settings={**PAPER_AGENT, "initial-points": 3, "p-schedule": "1-1/t^2"},
        bibtex="""@inproceedings{dai2020fts,
  title     = {Federated {B}ayesian Optimization via {T}hompson Sampling},
  author    = {Dai, Zhongxiang and Low, Bryan Kian Hsiang and Jaillet, Patrick},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {33},
  year      = {2020}
}""",
        answers_early=True,
    ),
)
