"""LDP-BO on Flower: the server learns from rewards that are private before they leave."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Server
from flwr_fbo.methods.ldp.problem import problem_presets, range_presets
from flwr_fbo.methods.ldp.regret import cumulative_regret
from flwr_fbo.methods.ldp.server import RewardServer
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.strategies.base import FBOStrategy, RunPlan
from flwr_fbo.tasks import Partition, Task


class RewardStrategy(FBOStrategy):
    """A learner at the server; each play is sent to an agent drawn at random."""

    learner: ClassVar[str]
    settings_class = LDPSettings
    settings: LDPSettings
    #: Agents repeat answers that a crash lost, at no cost: rounds need not be stored one by one.
    #: If other agents are there after a crash than before it, the server's own figure of what
    #: they spent may miss up to a second's answers; the agents' books, which decide, miss none.
    checkpoint_seconds = 1.0

    @classmethod
    def presets_for(cls, task: Task, seed: int) -> Mapping[str, Any]:
        """What is known of the task's rewards: its problem, else the range of its scores."""
        problem = _problem(task, seed)
        if problem is not None:
            return problem_presets(problem)
        return {} if task.score_range is None else range_presets(*task.score_range)

    def build(self, plan: RunPlan) -> Server:
        """See :class:`FBOStrategy`."""
        problem = None if plan.task is None else _problem(plan.task, plan.seed)
        covariance = getattr(problem, "covariance", None)
        return RewardServer(
            plan.space, plan.agents, self.settings, self.learner, plan.seed, covariance
        )

    @property
    def completed(self) -> bool:
        """Whether all plays were made."""
        assert isinstance(self.server, RewardServer)
        return self.server.stopped == "done"

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """See :class:`FBOStrategy`."""
        assert isinstance(self.server, RewardServer)
        found = self.server.report()
        task, regret = self.run_plan.task, None
        if task is not None and histories:  # in a deployment the server has no data
            mine = copy.copy(task)
            mine.prepare(Partition(0, self.run_plan.agents, self.run_plan.seed))
            regret = cumulative_regret(self.server.played, mine)
        return {
            "cumulative_regret": None if regret is None else regret.tolist(),
            "recommended": {"params": found["recommendation"]},
            **{k: found[k] for k in ("plays", "stopped", "refused", "epsilon_per_answer")},
            "epsilon_per_agent_max": found["epsilon_per_agent_max"],
        }

    def privacy(self) -> dict[str, Any] | None:
        """See :class:`FBOStrategy`: the most that any agent's answers have cost it."""
        assert isinstance(self.server, RewardServer)
        found = self.server.report()
        if not found["private"]:
            return None
        return {
            "epsilon": found["epsilon_per_agent_max"],
            "delta": found["delta_per_agent_max"],
            "budget": self.server.epsilon_limit,
            "private": True,
            "exhausted": found["stopped"] == "budgets",
            "local": True,
        }


def _problem(task: Task, seed: int) -> Any:
    """What a task says of its rewards; some know it only once they have their data."""
    names = {name for cls in type(task).__mro__ for name in {*vars(cls), *_annotations(cls)}}
    if "problem" not in names:
        return None
    mine = copy.copy(task)
    mine.fetch()
    mine.prepare(Partition(0, 1, seed))
    return getattr(mine, "problem")  # noqa: B009 - only some tasks have one


def _annotations(cls: type) -> set[str]:
    return set(getattr(cls, "__annotations__", {}))


class LDPATA(RewardStrategy):
    """LDP-ATA-GP-UCB: truncated feature-wise, for private rewards."""

    learner = "ldp-ata"


class LDPTGP(RewardStrategy):
    """LDP-TGP-UCB: truncated rewards, for private rewards."""

    learner = "ldp-tgp"


class LDPMoMA(RewardStrategy):
    """LDP-MoMA-GP-UCB: medians of means over different agents, for private rewards."""

    learner = "ldp-moma"


class ATA(RewardStrategy):
    """ATA-GP-UCB for heavy tails, not private."""

    learner = "ata"


class TGP(RewardStrategy):
    """TGP-UCB for heavy tails, not private."""

    learner = "tgp"


class MoMA(RewardStrategy):
    """MoMA-GP-UCB for heavy tails, not private."""

    learner = "moma"


class GPUCB(RewardStrategy):
    """GP-UCB without truncation, private or not."""

    learner = "gp-ucb"


class Uniform(RewardStrategy):
    """Uniformly random plays, the floor of every comparison."""

    learner = "uniform"
