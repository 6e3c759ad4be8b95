"""Published methods that seek one optimum for all, run on the same objectives as Fed-PNE.

RGPE and TAF (``rgpe``, ``taf``) are here too. They have no server: an agent that joins late uses
them with what the other agents publish. They are therefore not registered as methods of a run.
"""

from flwr_fbo.methods.method import Method


def _method(
    name: str, module: str, server: str, settings: str, summary: str, **other: str
) -> Method:
    agent = {"agent": "flwr_fbo.methods.fed_pne.agent:make_agent", "agent_kind": "fed-pne", **other}
    return Method(
        name=name,
        summary=summary,
        settings=f"flwr_fbo.methods.comparators.{module}:{settings}",
        server=f"flwr_fbo.methods.comparators.{module}:{server}",
        seeks="global" if name == "gp-ucb" else "any",
        presets="flwr_fbo.methods.method:score_range_presets",
        **agent,  # type: ignore[arg-type]
    )


METHODS = (
    _method(
        "hct", "hct", "HCTServer", "HCTSettings",
        "High-confidence tree on the global objective, through PyXAB.",
    ),
    _method(
        "fed1-ucb", "fed1_ucb", "Fed1UCBServer", "Fed1UCBSettings",
        "Fed1-UCB over a mesh of arms.",
    ),
    _method(
        "fn-ucb", "fn_ucb", "FNUCBServer", "FNUCBSettings",
        "Federated neural UCB with a small network.",
        agent="flwr_fbo.methods.comparators.fn_ucb:make_agent", agent_kind="fn-ucb",
    ),
    _method(
        "kernel-ts", "kernel_bandits", "KernelTSServer", "KernelTSSettings",
        "Thompson sampling of a Gaussian process, global objective.",
    ),
    _method(
        "gp-ucb", "kernel_bandits", "GPUCBServer", "GPUCBSettings",
        "GP-UCB on the global objective.",
    ),
    _method(
        "optuna-batch", "optuna_batch", "OptunaBatchServer", "OptunaSettings",
        "Batches of Optuna's TPE on the global objective.",
    ),
)  # fmt: skip
