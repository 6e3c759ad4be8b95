"""Fed-PNE on Flower, and the methods it is compared with: one optimum for all agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Server
from flwr_fbo.core.settings import Settings
from flwr_fbo.methods.comparators import load
from flwr_fbo.methods.comparators.base import ComparatorSettings, PullServer
from flwr_fbo.methods.comparators.fn_ucb import FNUCBServer
from flwr_fbo.methods.fed_pne.regret import cumulative_regret, result, tree, tree_text
from flwr_fbo.methods.fed_pne.server import FedPNEServer
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.strategies.base import FBOStrategy, RunPlan
from flwr_fbo.tasks import Task


def regret_per_agent(histories: Sequence[Sequence[Evaluation]]) -> float | None:
    """Cumulative regret of all of an agent's evaluations, mean over agents; None if unknown."""
    sums = [float(cumulative_regret(h)[-1]) for h in histories if len(h)]
    return float(np.mean(sums)) if sums and np.all(np.isfinite(sums)) else None


class GlobalStrategy(FBOStrategy):
    """A strategy that seeks one optimum for all agents with a budget of evaluations each."""

    @classmethod
    def presets_for(cls, task: Task, seed: int) -> Mapping[str, Any]:
        """Scores are scaled from the task's own range, where it has one."""
        if task.score_range is None:
            return {}
        low, high = task.score_range
        return {"reward-low": low, "reward-high": high}

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """See :class:`FBOStrategy`."""
        return {"cumulative_regret_per_agent": regret_per_agent(histories)}


class FedPNE(GlobalStrategy):
    """Phased node elimination: one optimum for everyone, in a handful of rounds."""

    settings_class = FedPNESettings
    settings: FedPNESettings
    paper_settings: ClassVar[Mapping[str, Any]] = {"last-phase": "in-order", "noise-on": "reward"}

    def build(self, plan: RunPlan) -> Server:
        """See :class:`FBOStrategy`."""
        return FedPNEServer(plan.space, plan.agents, self.settings, plan.seed)

    @property
    def completed(self) -> bool:
        """Whether the budget was spent, and not given up for want of agents that answer."""
        server = self.server
        assert isinstance(server, FedPNEServer)
        return server.finished and not server.stopped

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """See :class:`FBOStrategy`."""
        assert isinstance(self.server, FedPNEServer)
        return {**super().findings(histories), **result(self.server), "tree": tree(self.server)}

    def files(self) -> dict[str, str]:
        """See :class:`FBOStrategy`: the tree that was explored, as picture and text."""
        assert isinstance(self.server, FedPNEServer)
        from flwr_fbo.report.tree import tree_svg

        picture = tree_svg(tree(self.server), self.settings.arity)
        return {"tree.svg": picture, "tree.txt": tree_text(self.server) + "\n"}

    def privacy(self) -> dict[str, Any] | None:
        """See :class:`FBOStrategy`: the guarantee that the settings name, against everybody."""
        assert isinstance(self.server, FedPNEServer)
        found = self.server.guarantees()
        if found is None:
            return None
        named = found.to_dict()[f"one {self.settings.protects}"]
        return {
            "epsilon": named["epsilon"],
            "delta": named["delta"],
            "budget": self.settings.epsilon,
            "private": True,
            "exhausted": self.server.stopped == "budget",
            "local": True,
        }


class Comparator(GlobalStrategy):
    """A published method on the same objectives, for comparison."""

    method: ClassVar[str]
    settings: ComparatorSettings

    def build(self, plan: RunPlan) -> Server:
        """See :class:`FBOStrategy`."""
        server_type, _ = load(self.method)
        server: Server = server_type(plan.space, plan.agents, self.settings, plan.seed)
        return server

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """See :class:`FBOStrategy`."""
        server = self.server
        assert isinstance(server, (PullServer, FNUCBServer))
        point = server.recommend()
        return {
            **super().findings(histories),
            "rounds": server.round,
            "numbers_sent_per_agent": float(np.mean(server.sent)),
            "recommended": {"params": self.run_plan.space.from_unit(point)},
        }


def _comparator(name: str, doc: str) -> type[Comparator]:
    server_type, _ = load(name)
    settings: type[Settings] = server_type.settings_class
    body = {"method": name, "settings_class": settings, "__doc__": doc}
    return type(f"Comparator_{name.replace('-', '_')}", (Comparator,), body)


HCT = _comparator("hct", "High-confidence tree on the global objective, through PyXAB.")
Fed1UCB = _comparator("fed1-ucb", "Fed1-UCB over a mesh of arms.")
FNUCB = _comparator("fn-ucb", "Federated neural UCB with a small network.")
KernelTS = _comparator("kernel-ts", "Thompson sampling of a Gaussian process, global objective.")
GlobalGPUCB = _comparator("gp-ucb", "GP-UCB on the global objective.")
OptunaBatch = _comparator("optuna-batch", "Batches of Optuna's TPE on the global objective.")
