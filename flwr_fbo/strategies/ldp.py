"""LDP-BO as a Flower strategy: rewards are private before they leave an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.registry import find_method
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.explicit import StrategyOptions, explicit

#: The learners that have a private form, registered as ``ldp-NAME``.
PRIVATE_LEARNERS = ("tgp", "ata", "moma")
LEARNERS = (*PRIVATE_LEARNERS, "gp-ucb", "uniform")


class LDPBO(FBOStrategy):
    """All parties seek one setting that is good for all, and no party trusts the server.

    A learner at the server sends each play to one agent. The agent makes its reward private and
    replies with that number. Without ``epsilon`` the rewards are not private.

    Parameters
    ----------
    learner : Literal["tgp", "ata", "moma", "gp-ucb", "uniform"]
        How the server learns.
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
        Plays in the whole run, each one reward of one agent (T) (>= 1).
    epsilon : float | None
        Privacy budget of one agent for the whole run, against everybody; unset: none, or as
        `epsilon-per-answer` says (> 0).
    delta : float | None
        Delta of an agent's whole run where `mechanism` is gaussian; unset: min(1e-5, 1/(10 N))
        (in (0, 1)).
    epsilon_per_answer : float | None
        Epsilon of one reply; unset: `epsilon` divided by the number of replies of an agent (> 0).
    mechanism : Literal["laplace", "gaussian"]
        Noise of an answer: laplace is epsilon-LDP, gaussian is (epsilon, delta)-LDP.
    delta_per_answer : float | None
        Delta of one reply; unset: `delta` divided by the number of replies of an agent (in (0, 1)).
    bound : float
        Bound on the absolute mean of a reward (B) (> 0).
    noise_bound : float
        Bound on the absolute noise of a reward (R) (> 0).
    reward_offset : float
        Number that is subtracted from every reward before the reward is clipped.
    norm : float | None
        Bound on the function's RKHS norm in the confidence widths; unset: `bound` (> 0).
    second_moment : float | None
        Bound on a reward's second moment before privacy noise (v); unset: from the bounds (> 0).
    noise_variance : float | None
        Variance of a reward's own noise, before privacy noise (c); unset: from `noise-bound` (> 0).
    kernel : Literal["se", "matern12", "matern32", "matern52"]
        Kernel of the mean reward, where the task states no covariance of its own.
    lengthscale : float
        Length scale of `kernel` in the unit cube (> 0).
    constants : Literal["practical", "orders", "theory"]
        Constants of the learners: those that work in practice, the theorems' orders with factors of
        1, or the theorems'.
    exploration : float | None
        Factor on the confidence width; unset: as `constants` says (> 0).
    regularisation : float | None
        Regularisation of the regression (lambda); unset: as `constants` says (> 0).
    failure : float
        Probability that a confidence bound may fail (the theorems' delta) (in (0, 1)).
    epoch : int | None
        Plays in one epoch of MoMA (k); unset: as `constants` says (>= 1).
    embedding : Literal["exact", "nystrom"]
        Features of finite arms in ATA and MoMA: exact, or a Nystrom sample.
    accuracy : float
        Accuracy of the Nystrom sample (the theorems' epsilon) (in (0, 1)).
    features : int
        Random features that stand for the kernel on a space that is not finite (>= 1).

    Examples
    --------
    >>> from flwr_fbo import Float
    >>> space = {"C": Float(1e-3, 1e3, log=True)}
    >>> LDPBO(learner="tgp", space=space, budget=500, epsilon=2.0).method.name
    'ldp-tgp'
    """

    method_name = "ldp-tgp"

    @explicit
    def __init__(
        self,
        *,
        learner: Literal["tgp", "ata", "moma", "gp-ucb", "uniform"] = "tgp",
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
        epsilon_per_answer: float | None = None,
        mechanism: Literal["laplace", "gaussian"] = "laplace",
        delta_per_answer: float | None = None,
        bound: float = 1.0,
        noise_bound: float = 1.0,
        reward_offset: float = 0.0,
        norm: float | None = None,
        second_moment: float | None = None,
        noise_variance: float | None = None,
        kernel: Literal["se", "matern12", "matern32", "matern52"] = "matern52",
        lengthscale: float = 0.2,
        constants: Literal["practical", "orders", "theory"] = "practical",
        exploration: float | None = None,
        regularisation: float | None = None,
        failure: float = 0.1,
        epoch: int | None = None,
        embedding: Literal["exact", "nystrom"] = "exact",
        accuracy: float = 0.5,
        features: int = 200,
    ) -> None: ...

    def _configure(self, options: dict[str, Any], stated: dict[str, Any]) -> None:
        """Choose the method by the learner, and by whether rewards are private."""
        learner = stated.pop("learner", "tgp")
        if learner not in LEARNERS:
            known = ", ".join(LEARNERS)
            raise SettingsError(f"`learner` must be one of {known}, but got {learner!r}")
        given = {"epsilon", "epsilon-per-answer"} & {k for k, v in stated.items() if v is not None}
        private = bool(given) and learner in PRIVATE_LEARNERS
        method = find_method(f"ldp-{learner}" if private else learner)
        settings = method.settings_class.from_mapping(stated)
        self._initialise(method, settings, StrategyOptions.of(options), stated)
