"""Bayesian optimisation under local differential privacy, and under heavy-tailed rewards.

Zhou and Tan, "Local Differential Privacy for Bayesian Optimization" (AAAI 2021). Read the modules
in this order: ``settings``, ``rewards`` (bounds and moments), ``curator`` (CTL), ``posterior``,
``domain``, ``learner``, ``tgp``, ``nystrom``, ``ata``, ``moma``, ``learners``; then the two state
machines, ``server`` and ``agent``, and ``regret``.
"""

from flwr_fbo.methods.method import Method

_BIBTEX = """@inproceedings{zhou2021ldpbo,
  title     = {Local Differential Privacy for {B}ayesian Optimization},
  author    = {Zhou, Xingyu and Tan, Jian},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume    = {35},
  year      = {2021}
}"""


def _method(name: str, learner: str, summary: str, private: bool | None = None) -> Method:
    """Return one registration; ``private`` is None for a method with or without privacy."""
    return Method(
        name=name,
        summary=summary,
        settings="flwr_fbo.methods.ldp.settings:LDPSettings",
        server="flwr_fbo.methods.ldp.server:RewardServer",
        agent="flwr_fbo.methods.ldp.agent:make_agent",
        agent_kind="ldp",
        strategy="flwr_fbo.strategies.ldp:LDPBO",
        options={
            "method": name,
            "learner": f"flwr_fbo.methods.ldp.{learner}",
            "private": private,
        },
        presets="flwr_fbo.methods.ldp.problem:presets_of_task",
        bibtex=_BIBTEX if private else "",
    )


METHODS = (
    _method("ldp-ata", "ata:ATA", "ATA-GP-UCB with truncated features, for private rewards.", True),
    _method("ldp-tgp", "tgp:TGP", "TGP-UCB with truncated rewards, for private rewards.", True),
    _method(
        "ldp-moma", "moma:MoMA", "MoMA-GP-UCB with medians of means, for private rewards.", True
    ),
    _method("ata", "ata:ATA", "ATA-GP-UCB for heavy tails, not private.", False),
    _method("tgp", "tgp:TGP", "TGP-UCB for heavy tails, not private.", False),
    _method("moma", "moma:MoMA", "MoMA-GP-UCB for heavy tails, not private.", False),
    _method("gp-ucb", "learner:GPUCB", "GP-UCB without truncation, private or not."),
    _method("uniform", "learner:Uniform", "Uniformly random plays, the weakest baseline."),
)
