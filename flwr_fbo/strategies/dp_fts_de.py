"""DP-FTS-DE as a Flower strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.space import Space
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.explicit import explicit


class DPFTSDE(FBOStrategy):
    """Each party tunes its own model; a trusted server releases noisy sums of the parties' vectors.

    With ``epsilon`` the run is differentially private for every party, over the whole run.

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
    epsilon : float | None
        Privacy budget: the epsilon that all releases together may cost (> 0).
    delta : float | None
        Delta of the run's epsilon; where unset, as `delta-rule` says (in (0, 1)).
    initial_points : int
        Number of points that each agent evaluates before round 1 (>= 1).
    first_point : Literal["random", "middle"]
        An agent's first point: random is anywhere, middle is in the middle half of each range.
    spread_points : int
        Number of first evaluations that an agent without a shared function spreads over the space
        (>= 0).
    acquisition : Literal["thompson", "improvement"]
        How an agent chooses by its own model: a sampled function, or expected improvement.
    advice_use : Literal["query", "prior"]
        Use of the shared function: follow with probability 1 - p_t (query), or as a prior mean.
    kernel : Literal["matern52", "matern32", "se"]
        Kernel of the agent's own model.
    lengthscale : float | None
        Length scale of the agent's own kernel, in the unit cube; learned where unset (> 0).
    noise : float | None
        Noise variance of the agent's own model; learned where unset (> 0).
    refit_every : int
        Least number of new scores between fits of an agent's hyperparameters; 0 never fits (>= 0).
    standardise : bool
        Scale an agent's scores to mean 0 and spread 1.
    cut_low_scores : bool
        Count scores far below an agent's median as a floor, before they are scaled.
    pick : Literal["score", "mean"]
        Setting that an agent returns as its best: by its scores, or by the mean of its model.
    beta : float
        Factor on the spread of the functions that Thompson sampling draws (> 0).
    beta_rule : Literal["constant", "theory"]
        Factor on the spread of sampled functions: `beta`, or that of Theorem 1 with B = `beta`.
    features : int
        M, number of random features, and length of the vectors that agents share; where unset, 400
        in a space with 3 or 4 parameters (>= 1).
    feature_kernel : Literal["se", "matern52", "matern32"]
        Kernel that the shared random features approximate.
    feature_lengthscale : float | None
        Length scale of the random features, in the unit cube; where unset, a mix of many, or 1 in
        runs with 5 parameters and more and large noise (> 0).
    feature_noise : float
        Lambda, noise variance in the posterior of omega, from which shared vectors come; where
        unset, 0.1 in a space with 3 or 4 parameters (> 0).
    message : Literal["sample", "mean"]
        What an agent shares: a draw from the posterior of omega, or the posterior's mean.
    vector_bound : float | None
        Largest norm of the M weights that an agent shares; a longer vector is shortened (> 0).
    reward_low : float | None
        Lowest possible score, where known.
    reward_high : float | None
        Highest possible score, where known.
    share_scale : bool
        Share mean and spread of scores too, if `reward-low` and `reward-high` are set.
    learn_failures : bool
        Learn where evaluations fail, and avoid these places; the shared vector holds them too.
    pruning : Literal["none", "median", "halving"]
        Rule that stops a poor evaluation early, where the task reports scores of its steps: the
        median rule, successive halving, or none.
    pruning_startup : int
        Number of finished evaluations before `pruning` stops any (>= 1).
    parallel : int
        Number of evaluations that each agent makes at once, in each round and for its initial
        points; each evaluation has a process of its own (in [1, 256]).
    diagnostics : bool
        Send scores to the server, for research only: the run is then NOT PRIVATE.
    local_epsilon : float | None
        Privacy budget for all that an agent sends, also against the server; the agent adds noise
        (> 0).
    local_delta : float
        Delta of `local-epsilon` (in (0, 1)).
    local_clip : float | None
        Norm to which vectors are clipped before local noise; the largest possible where unset
        (> 0).
    local_answers : int
        Number of vectors that `local-epsilon` pays for (>= 1).
    p_schedule : Literal["1-1/sqrt(t)", "1-1/t", "1-1/t^2", "always-own"]
        p_t, probability that an agent follows its own model in round t, with `advice-use=query`.
    regions : int
        P, number of sub-regions for distributed exploration (>= 1).
    explore_home : bool
        Draw an agent's initial points from its home sub-region, not from the whole space.
    weights : Literal["softmax-15", "softmax-9", "linear-1000", "square-40", "uniform"]
        Scheme of the weights that agents' vectors have in each sub-region.
    weights_hold : int
        Number of rounds in which the weights keep their first values (>= 0).
    weights_decay : int | None
        Rounds after `weights-hold` until all agents have equal weights; 0 is never (>= 0).
    sampling_rate : float | None
        q, probability that a release counts an agent; planned from epsilon where unset, or 1
        (in (0, 1]).
    noise_multiplier : float | None
        z, noise over sensitivity; computed from epsilon where unset (in [0.01, 1e+06]).
    clip : float | None
        S, norm to which joint vectors are clipped; largest possible in private runs where unset
        (> 0).
    sensitivity : Literal["exact", "paper"]
        Bound on one agent's effect on the sum: the exact bound, or the paper's larger one.
    releases : str
        Rounds that release: all, early, a list such as 0,1,2,4, or auto (planned from epsilon).
    delta_rule : Literal["strict", "paper"]
        Delta where unset, for N agents: min(1e-5, 1/(10 N)), or the paper's N^-1.1.
    accountant : Literal["pld", "rdp", "moments"]
        Accountant that computes the epsilon of the releases.
    sampling : Literal["poisson", "fixed-size"]
        Fixed-size counts exactly N q agents in a release, under its own neighbouring relation.
    aggregation : Literal["central", "secure"]
        Who adds the noise: a trusted server, or the agents in secure sums, whose total is all that
        the server sees.
    secure_threshold : float
        Least share of the agents that must answer; with fewer, a secure sum is abandoned
        (in (0.5, 1]).
    secure_colluding : int
        Number of agents that may collude with the server in a secure sum (>= 0).
    advice : Literal["last", "average", "recent"]
        Releases in the shared function: the last, all by inverse noise variance, or recent ones.
    robust : Literal["none", "trimmed-mean", "geometric-median"]
        For runs without privacy: a mean that a dishonest minority cannot move far.
    robust_trim : float
        Share of the weight that a trimmed mean leaves out at each end (in [0, 0.5)).
    finalists : int
        Number of settings that all agents evaluate in the last rounds, to recommend one to all; 0
        recommends from the shared function alone (>= 0).
    finalists_from : Literal["function", "list"]
        Where finalists come from: the shared function, or, for many parameters, a public list of
        settings of which each agent evaluates a part before.
    final_round : int | None
        Round in which agents share their scores of the finalists; the last where unset (>= 1).
    noise_seed : int | None
        Seed of the privacy noise, for research only: the run is then NOT PRIVATE (>= 0).

    Examples
    --------
    >>> from flwr_fbo import Float
    >>> strategy = DPFTSDE(space={"C": Float(1e-3, 1e3, log=True)}, epsilon=5.0, num_agents=30)
    >>> strategy.settings.epsilon
    5.0
    """

    method_name = "dp-fts-de"

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
        epsilon: float | None = None,
        delta: float | None = None,
        initial_points: int = 2,
        first_point: Literal["random", "middle"] = "middle",
        spread_points: int = 5,
        acquisition: Literal["thompson", "improvement"] = "improvement",
        advice_use: Literal["query", "prior"] = "prior",
        kernel: Literal["matern52", "matern32", "se"] = "matern52",
        lengthscale: float | None = None,
        noise: float | None = None,
        refit_every: int = 3,
        standardise: bool = True,
        cut_low_scores: bool = True,
        pick: Literal["score", "mean"] = "score",
        beta: float = 1.0,
        beta_rule: Literal["constant", "theory"] = "constant",
        features: int = 200,
        feature_kernel: Literal["se", "matern52", "matern32"] = "se",
        feature_lengthscale: float | None = None,
        feature_noise: float = 0.3,
        message: Literal["sample", "mean"] = "mean",
        vector_bound: float | None = 2.0,
        reward_low: float | None = None,
        reward_high: float | None = None,
        share_scale: bool = True,
        learn_failures: bool = True,
        pruning: Literal["none", "median", "halving"] = "median",
        pruning_startup: int = 4,
        parallel: int = 1,
        diagnostics: bool = False,
        local_epsilon: float | None = None,
        local_delta: float = 1e-05,
        local_clip: float | None = None,
        local_answers: int = 10,
        p_schedule: Literal["1-1/sqrt(t)", "1-1/t", "1-1/t^2", "always-own"] = "1-1/t",
        regions: int = 1,
        explore_home: bool = True,
        weights: Literal[
            "softmax-15", "softmax-9", "linear-1000", "square-40", "uniform"
        ] = "softmax-15",
        weights_hold: int = 10,
        weights_decay: int | None = 30,
        sampling_rate: float | None = None,
        noise_multiplier: float | None = None,
        clip: float | None = None,
        sensitivity: Literal["exact", "paper"] = "exact",
        releases: str = "auto",
        delta_rule: Literal["strict", "paper"] = "strict",
        accountant: Literal["pld", "rdp", "moments"] = "pld",
        sampling: Literal["poisson", "fixed-size"] = "poisson",
        aggregation: Literal["central", "secure"] = "central",
        secure_threshold: float = 0.6666666666666666,
        secure_colluding: int = 1,
        advice: Literal["last", "average", "recent"] = "recent",
        robust: Literal["none", "trimmed-mean", "geometric-median"] = "none",
        robust_trim: float = 0.2,
        finalists: int = 0,
        finalists_from: Literal["function", "list"] = "function",
        final_round: int | None = None,
        noise_seed: int | None = None,
    ) -> None: ...
