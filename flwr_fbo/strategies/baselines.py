"""The baselines without communication as Flower strategies."""

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
        callbacks: Sequence[Callback] = (),
        initial_points: int = 5,
        first_point: Literal["random", "middle"] = "random",
        acquisition: Literal["thompson", "improvement"] = "thompson",
        advice_use: Literal["query", "prior"] = "query",
        kernel: Literal["matern52", "matern32", "se"] = "matern52",
        lengthscale: float | None = None,
        noise: float | None = None,
        refit_every: int = 5,
        standardise: bool = True,
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
        diagnostics: bool = False,
        local_epsilon: float | None = None,
        local_delta: float = 1e-05,
        local_clip: float | None = None,
        local_answers: int = 10,
    ) -> None: ...


class RandomSearch(FBOStrategy):
    """Each party tries random points: the floor of every comparison.

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
        callbacks: Sequence[Callback] = (),
        initial_points: int = 5,
        first_point: Literal["random", "middle"] = "random",
        acquisition: Literal["thompson", "improvement"] = "thompson",
        advice_use: Literal["query", "prior"] = "query",
        kernel: Literal["matern52", "matern32", "se"] = "matern52",
        lengthscale: float | None = None,
        noise: float | None = None,
        refit_every: int = 5,
        standardise: bool = True,
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
        diagnostics: bool = False,
        local_epsilon: float | None = None,
        local_delta: float = 1e-05,
        local_clip: float | None = None,
        local_answers: int = 10,
    ) -> None: ...
