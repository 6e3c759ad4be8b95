"""Voting as a Flower strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.space import Space
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.explicit import explicit


class Voting(FBOStrategy):
    """All parties evaluate one public list of settings, and one private vote decides.

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
        Length of the public list of settings; every agent evaluates all of them (>= 2).
    epsilon : float | None
        Privacy budget: the epsilon of the one sum of votes; unset: no noise (> 0).
    delta : float | None
        Delta of the run's epsilon; unset: min(1e-5, 1/(10 N)) for N agents (in (0, 1)).
    votes : int
        k, number of its best settings that an agent votes for (>= 1).
    design : Literal["spread", "grid"]
        The list of settings: quasi-random points of the space, or a full grid.
    batch : int
        Evaluations that an agent makes for one message (>= 1).
    parallel : int
        Number of evaluations of a message that an agent makes at once, each in a process
        (in [1, 256]).
    neighbours : Literal["absent", "replaced"]
        What epsilon hides: whether a party voted (as in dp-fts-de), or how it voted (the paper).
    aggregation : Literal["central", "secure"]
        Who adds the noise: a trusted server, or the agents in secure sums, whose total is all that
        the server sees.
    secure_threshold : float
        Least share of the agents that must answer; with fewer, a secure sum is abandoned
        (in (0.5, 1]).
    secure_colluding : int
        Number of agents that may collude with the server in a secure sum (>= 0).
    noise_seed : int | None
        Seed of the privacy noise, for research only: the run is then NOT PRIVATE (>= 0).

    Examples
    --------
    >>> from flwr_fbo import Float
    >>> strategy = Voting(space={"C": Float(1e-3, 1e3, log=True)}, budget=20, epsilon=1.0)
    >>> strategy.settings.votes
    5
    """

    method_name = "voting"

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
        budget: int = 100,
        epsilon: float | None = None,
        delta: float | None = None,
        votes: int = 5,
        design: Literal["spread", "grid"] = "spread",
        batch: int = 5,
        parallel: int = 1,
        neighbours: Literal["absent", "replaced"] = "absent",
        aggregation: Literal["central", "secure"] = "central",
        secure_threshold: float = 0.6666666666666666,
        secure_colluding: int = 1,
        noise_seed: int | None = None,
    ) -> None: ...
