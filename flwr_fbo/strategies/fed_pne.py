"""Fed-PNE and DP-Fed-PNE as a Flower strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.space import Space
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.explicit import explicit


class FedPNE(FBOStrategy):
    """All parties seek one setting that is good for all, in few rounds.

    Parameters
    ----------
    space : Space | Mapping[str, Parameter] | None
        The search space.
    num_agents : int | None
        Number of agents; where unset, of connected nodes.
    num_rounds : int
        Rounds after the initial points, for Flower's own loop.
    timeout : float
        Seconds that a round may take, for Flower's own loop.
    seed : int
        Seed of everything but privacy noise.
    run_dir : Path | str | None
        Directory of the run; below ~/.flwr-fbo where unset.
    round_quorum : float
        Share of the asked agents whose replies end a round.
    answer_within : float | None
        Seconds after which an agent replies although its evaluation still runs; None waits.
    node_ids : Sequence[int]
        The node of each agent by its number, in a deployment.
    callbacks : Sequence[Callback]
        Objects that watch the run.
    budget : int
        Evaluations that each agent makes in the whole run (T) (>= 1).
    epsilon : float | None
        Privacy budget of one agent for the whole run, against everybody; unset: none (> 0).
    delta : float | None
        Delta of the epsilon that is set; unset: min(1e-5, 1/(10 N)) for N agents (in (0, 1)).
    smoothness : float
        How much the reward varies over the whole space (nu_1) (> 0).
    decay : float
        Factor by which the reward's variation shrinks with every depth of the tree (rho)
        (in (0, 1)).
    searches : int
        Number of searches, with decays decay^(1/i); they share the rounds and the budget (>= 1).
    constants : Literal["experiments", "theory"]
        Constants c and c_1: 0.1 and 1 (App. E.1.5), or 2 and (2M)^(1/8) (Lemma B.2).
    confidence_scale : float | None
        Factor on the confidence widths (c); unset: as `constants` says (> 0).
    confidence_inner : float | None
        Factor inside the logarithm of the confidence widths (c_1); unset: as `constants` says
        (> 0).
    failure : float | None
        Probability that a confidence bound may fail (the paper's delta); unset: 1 / agents
        (in (0, 1]).
    arity : int
        Most children that a tree node can have (k) (>= 2).
    dimension_order : Literal["random", "round-robin"]
        Dimension that a tree node is split along: a random one, or each in turn.
    pull : Literal["centre", "uniform"]
        Where a tree node is evaluated: at its centre, or at a new random point each time.
    depth_reading : Literal["node", "literal"]
        Depth h in the thresholds: the nodes' depth, or one more as in the pseudo-code.
    last_phase : Literal["best-first", "in-order", "even"]
        How the last phase is cut to the budget: children of the best nodes first, nodes in their
        order, or fewer pulls of every node.
    phase_quorum : float
        Share of the agents that must reply in a phase; with fewer the phase is asked again
        (in (0, 1]).
    idle_rounds : int
        Rounds in a row without a new reply after which the run ends (>= 1).
    pulls_per_message : int | None
        Most evaluations that an agent makes for one message; unset: all of the phase (>= 1).
    parallel : int
        Number of evaluations of a phase that an agent makes at once, each in a process
        (in [1, 256]).
    reward_low : float
        Score that counts as reward 0.
    reward_high : float
        Score that counts as reward 1.
    epsilon_per_reward : float | None
        Epsilon of one evaluation, as in the paper; unset: as `epsilon` says (> 0).
    noise_on : Literal["mean", "reward"]
        What noise is added to: the mean of each tree node, or every reward (the paper).
    most_means : int
        Most means that an agent may send in the whole run with `epsilon`; more need more noise
        (> 0).
    aggregation : Literal["local", "secure"]
        Who adds the noise of `epsilon`: each agent to its own means, or all in secure sums.
    secure_threshold : float
        Least share of the agents that must answer; with fewer, a secure sum is abandoned
        (in (0.5, 1]).
    secure_colluding : int
        Number of agents that may collude with the server in a secure sum (>= 0).

    Examples
    --------
    >>> from flwr_fbo import Float
    >>> strategy = FedPNE(space={"C": Float(1e-3, 1e3, log=True)}, budget=200, num_agents=10)
    >>> strategy.settings.budget
    200
    """

    method_name = "fed-pne"

    @explicit
    def __init__(
        self,
        *,
        space: Space | Mapping[str, Parameter] | None = None,
        num_agents: int | None = None,
        num_rounds: int = 20,
        timeout: float = 3600.0,
        seed: int = 0,
        run_dir: Path | str | None = None,
        round_quorum: float = 1.0,
        answer_within: float | None = None,
        node_ids: Sequence[int] = (),
        callbacks: Sequence[Callback] = (),
        budget: int = 1000,
        epsilon: float | None = None,
        delta: float | None = None,
        smoothness: float = 1.0,
        decay: float = 0.5,
        searches: int = 1,
        constants: Literal["experiments", "theory"] = "experiments",
        confidence_scale: float | None = None,
        confidence_inner: float | None = None,
        failure: float | None = None,
        arity: int = 2,
        dimension_order: Literal["random", "round-robin"] = "random",
        pull: Literal["centre", "uniform"] = "centre",
        depth_reading: Literal["node", "literal"] = "node",
        last_phase: Literal["best-first", "in-order", "even"] = "best-first",
        phase_quorum: float = 0.5,
        idle_rounds: int = 20,
        pulls_per_message: int | None = None,
        parallel: int = 1,
        reward_low: float = 0.0,
        reward_high: float = 1.0,
        epsilon_per_reward: float | None = None,
        noise_on: Literal["mean", "reward"] = "mean",
        most_means: int = 64,
        aggregation: Literal["local", "secure"] = "local",
        secure_threshold: float = 0.6666666666666666,
        secure_colluding: int = 1,
    ) -> None: ...
