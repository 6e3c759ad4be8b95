"""Voting: every party votes for the best of a public list of settings (the method of DP-Hype)."""

from flwr_fbo.methods.method import Method

METHODS = (
    Method(
        name="voting",
        summary="One setting for all parties: votes on a public list, in one private sum.",
        settings="flwr_fbo.methods.voting.settings:VotingSettings",
        server="flwr_fbo.methods.voting.server:VotingServer",
        agent="flwr_fbo.methods.voting.agent:make_agent",
        agent_kind="voting",
        summand="flwr_fbo.methods.voting.secure:summand",
        strategy="flwr_fbo.strategies.voting:Voting",
        paper_settings={
            "budget": 100,
            "votes": 5,
            "design": "grid",
            "neighbours": "replaced",
            "delta": 1e-5,
        },
        bibtex="""@inproceedings{liebenow2026dphype,
  title     = {{DP-Hype}: Federated Differentially Private Hyperparameter Search},
  author    = {Liebenow, Johannes and Peinemann, Thorsten and Mohammadi, Esfandiar},
  booktitle = {Proceedings on Privacy Enhancing Technologies},
  year      = {2026}
}""",
    ),
)
