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
    """Each party tunes its own model; a trusted server releases noisy sums of what they know.

    The run is differentially private for every party as a whole as soon as ``epsilon`` is given.

    Parameters
    ----------
    space : Space | Mapping[str, Parameter] | None
        The search space.
    num_agents : int | None
        How many take part; the connected nodes where unset.
    num_rounds : int
        Rounds after the initial points, for Flower's own loop.
    timeout : float
        Seconds a round may take, for Flower's own loop.
    seed : int
        Seed of everything but privacy noise.
    run_dir : Path | str | None
        Directory of the run; below ~/.flwr-fbo where unset.
    round_quorum : float
        Share of the asked agents whose replies end a round.
    answer_within : float | None
        Seconds after which agents answer while an evaluation goes on; None waits.
    callbacks : Sequence[Callback]
        Watchers of the run.
    epsilon : float | None
        Privacy budget of the whole run (> 0).
    delta : float | None
        Its delta; N^-1.1 where unset (in (0, 1)).
    initial_points : int
        Points before the first round (>= 1).
    first_point : Literal["random", "middle"]
        The first of them: of the whole space, or of its middle half.
    acquisition : Literal["thompson", "improvement"]
        How its own model chooses: by a sampled function, or expected improvement.
    advice_use : Literal["query", "prior"]
        Follow the others with probability 1 - p_t, or take them as a prior mean.
    kernel : Literal["matern52", "matern32", "se"]
        Kernel of the agent's own model.
    lengthscale : float | None
        Its length scale in the unit cube; learned where unset (> 0).
    noise : float | None
        Its noise variance; learned where unset (> 0).
    refit_every : int
        Least observations between fits of the model's parameters; 0 is never (>= 0).
    standardise : bool
        Give an agent's scores mean 0 and spread 1 first.
    beta : float
        Width of the posterior that is sampled (> 0).
    beta_rule : Literal["constant", "theory"]
        `theory`: beta is the norm bound B of Theorem 1, and grows with what was seen.
    features : int
        M, length of the vectors that are shared (>= 1).
    feature_kernel : Literal["se", "matern52", "matern32"]
        Kernel that the shared random features stand for.
    feature_lengthscale : float | None
        Its length scale in the unit cube; of many scales where unset (> 0).
    feature_noise : float
        Lambda, noise variance in the shared posterior (> 0).
    message : Literal["sample", "mean"]
        Share a draw from the posterior of omega, or its mean.
    vector_bound : float | None
        An agent shortens what it shares of its model to this length (> 0).
    reward_low : float | None
        Least score there can be, where that is known.
    reward_high : float | None
        Largest score there can be.
    share_scale : bool
        Where both are known, vectors also say the mean and spread of an agent's scores.
    diagnostics : bool
        Send scores to the server, for research only: the run is then NOT PRIVATE.
    local_epsilon : float | None
        Budget of each agent against the server itself, over all it sends (> 0).
    local_delta : float
        Its delta (in (0, 1)).
    local_clip : float | None
        Bound on the vector before local noise; its longest where unset (> 0).
    local_answers : int
        Vectors that the local budget is to last for (>= 1).
    p_schedule : Literal["1-1/sqrt(t)", "1-1/t", "1-1/t^2", "always-own"]
        p_t, how soon agents trust only themselves.
    regions : int
        P, sub-regions for distributed exploration (>= 1).
    explore_home : bool
        Draw an agent's initial points from its sub-region only.
    weights : Literal["softmax-15", "softmax-9", "linear-1000", "square-40", "uniform"]
        Whose vectors count in a sub-region.
    weights_hold : int
        Rounds with the first weights (>= 0).
    weights_decay : int | None
        Further rounds until all agents count the same; 0 is never (>= 0).
    sampling_rate : float | None
        q, probability that a release counts an agent; planned from epsilon where unset, or 1 (in
        (0, 1]).
    noise_multiplier : float | None
        z, noise against sensitivity; planned from epsilon where unset (in [0.01, 1e+06]).
    clip : float | None
        S, bound on the joint vector; its longest in a private run where unset (> 0).
    sensitivity : Literal["exact", "paper"]
        Bound on one agent's effect: proven exact, or the paper's larger one.
    releases : str
        Rounds that release: all, early, a list such as 0,1,2,4, or auto: planned.
    accountant : Literal["pld", "rdp", "moments"]
        How epsilon is counted.
    sampling : Literal["poisson", "fixed-size"]
        `fixed-size`: exactly N q agents (App. B.2.4), counted for its own neighbours.
    advice : Literal["last", "average", "recent"]
        What agents are told: the last release, all by their noise, or the recent ones.
    robust : Literal["none", "trimmed-mean", "geometric-median"]
        Without privacy: an aggregate that liars cannot move far instead of the sum.
    robust_trim : float
        Weight that a trimmed mean leaves out at each end (in [0, 0.5)).
    noise_seed : int | None
        Seed the privacy noise, for research only: the run is then NOT PRIVATE (>= 0).

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
        callbacks: Sequence[Callback] = (),
        epsilon: float | None = None,
        delta: float | None = None,
        initial_points: int = 2,
        first_point: Literal["random", "middle"] = "middle",
        acquisition: Literal["thompson", "improvement"] = "improvement",
        advice_use: Literal["query", "prior"] = "prior",
        kernel: Literal["matern52", "matern32", "se"] = "matern52",
        lengthscale: float | None = None,
        noise: float | None = None,
        refit_every: int = 3,
        standardise: bool = True,
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
        accountant: Literal["pld", "rdp", "moments"] = "pld",
        sampling: Literal["poisson", "fixed-size"] = "poisson",
        advice: Literal["last", "average", "recent"] = "recent",
        robust: Literal["none", "trimmed-mean", "geometric-median"] = "none",
        robust_trim: float = 0.2,
        noise_seed: int | None = None,
    ) -> None: ...
