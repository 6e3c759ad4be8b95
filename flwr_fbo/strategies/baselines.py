"""The baselines in which parties share nothing, as Flower strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.space import Space
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.explicit import explicit


class LocalTS(FBOStrategy):
    """Each party tunes its own model alone, by Thompson sampling.

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
        M, number of random features, and length of the vectors that agents share (>= 1).
    feature_kernel : Literal["se", "matern52", "matern32"]
        Kernel that the shared random features approximate.
    feature_lengthscale : float | None
        Length scale of the random features, in the unit cube; a mix of many where unset (> 0).
    feature_noise : float
        Lambda, noise variance in the posterior of omega, from which shared vectors come (> 0).
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

    Examples
    --------
    >>> from flwr_fbo import Float
    >>> LocalTS(space={"C": Float(1e-3, 1e3, log=True)}, initial_points=3).method.name
    'local-ts'
    """

    method_name = "local-ts"

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
        initial_points: int = 5,
        first_point: Literal["random", "middle"] = "random",
        spread_points: int = 0,
        acquisition: Literal["thompson", "improvement"] = "thompson",
        advice_use: Literal["query", "prior"] = "query",
        kernel: Literal["matern52", "matern32", "se"] = "matern52",
        lengthscale: float | None = None,
        noise: float | None = None,
        refit_every: int = 5,
        standardise: bool = True,
        cut_low_scores: bool = False,
        pick: Literal["score", "mean"] = "score",
        beta: float = 1.0,
        beta_rule: Literal["constant", "theory"] = "constant",
        features: int = 100,
        feature_kernel: Literal["se", "matern52", "matern32"] = "se",
        feature_lengthscale: float | None = 0.2,
        feature_noise: float = 0.01,
        message: Literal["sample", "mean"] = "sample",
        vector_bound: float | None = None,
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
    ) -> None: ...


class RandomSearch(FBOStrategy):
    """Each party evaluates random points: the simplest baseline.

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
        M, number of random features, and length of the vectors that agents share (>= 1).
    feature_kernel : Literal["se", "matern52", "matern32"]
        Kernel that the shared random features approximate.
    feature_lengthscale : float | None
        Length scale of the random features, in the unit cube; a mix of many where unset (> 0).
    feature_noise : float
        Lambda, noise variance in the posterior of omega, from which shared vectors come (> 0).
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

    Examples
    --------
    >>> from flwr_fbo import Float
    >>> RandomSearch(space={"C": Float(1e-3, 1e3, log=True)}).method.name
    'random'
    """

    method_name = "random"

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
        initial_points: int = 5,
        first_point: Literal["random", "middle"] = "random",
        spread_points: int = 0,
        acquisition: Literal["thompson", "improvement"] = "thompson",
        advice_use: Literal["query", "prior"] = "query",
        kernel: Literal["matern52", "matern32", "se"] = "matern52",
        lengthscale: float | None = None,
        noise: float | None = None,
        refit_every: int = 5,
        standardise: bool = True,
        cut_low_scores: bool = False,
        pick: Literal["score", "mean"] = "score",
        beta: float = 1.0,
        beta_rule: Literal["constant", "theory"] = "constant",
        features: int = 100,
        feature_kernel: Literal["se", "matern52", "matern32"] = "se",
        feature_lengthscale: float | None = 0.2,
        feature_noise: float = 0.01,
        message: Literal["sample", "mean"] = "sample",
        vector_bound: float | None = None,
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
    ) -> None: ...
