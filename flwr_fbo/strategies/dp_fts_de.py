"""DP-FTS-DE on Flower."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from flwr_fbo.core.protocol import Server
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer, DPFTSDESettings
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.calibration import default_delta
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.privacy.releases import Release, ReleaseMemory
from flwr_fbo.strategies.base import RunPlan, logger
from flwr_fbo.strategies.fts import PAPER_AGENT, ThompsonStrategy
from flwr_fbo.tasks import Task


class DPFTSDE(ThompsonStrategy):
    """Federated Thompson sampling with user-level privacy and distributed exploration."""

    settings_class = DPFTSDESettings
    settings: DPFTSDESettings
    paper_settings: ClassVar[dict[str, Any]] = {
        **PAPER_AGENT,
        "p-schedule": "1-1/t",
        "regions": 4,
        "weights": "softmax-15",
        "weights-hold": 10,
        "weights-decay": 30,
        "clip": 22.0,
        "sensitivity": "paper",
        "advice": "last",
        "releases": "all",
        "accountant": "moments",
    }

    _ledger: Ledger | None = None

    @classmethod
    def presets_for(cls, task: Task, seed: int) -> Mapping[str, Any]:
        """The range of the scores, where the task says it, lets agents share their scale."""
        if task.score_range is None:
            return {}
        low, high = task.score_range
        return {"reward-low": low, "reward-high": high}

    def build(self, plan: RunPlan) -> Server:
        """See :class:`FBOStrategy`."""
        if self.settings.private and plan.quorum < 1:
            # An agent's data decide how long it computes. In a round that ends by its deadline
            # that decides only whether *it* counts, which is the neighbouring input. With a
            # quorum it also decides how many others still make it, and one agent would change
            # the sum by more than its own contribution.
            raise SettingsError(
                f"`round-quorum` must be 1 in a private run, but got {plan.quorum:g}: one "
                "agent's speed would decide which others count; use `timeout`"
            )
        budget = self._budget(plan)
        return DPFTSDEServer(plan.space, plan.agents, self.settings, plan.rounds, plan.seed, budget)

    def _budget(self, plan: RunPlan) -> PrivacyBudget | None:
        """The budget whose ledger is the plan's file, continued if the file is there."""
        s = self.settings
        if not s.private or plan.ledger is None:
            return None
        delta = s.delta or default_delta(plan.agents)
        header = {
            "strategy": "dp-fts-de",
            "agents": plan.agents,
            "releases": list(s.release_plan(plan.agents, plan.rounds).rounds),
            "delta": delta,
            "epsilon": s.epsilon,
            "accountant": s.account,
        }
        self.close()
        if plan.ledger.exists() and b"\n" not in plan.ledger.read_bytes():
            plan.ledger.unlink()  # torn while it was made: nothing was ever charged to it
        make = Ledger.resume if plan.ledger.exists() else Ledger.create
        self._ledger = make(plan.ledger, header)
        return PrivacyBudget(s.epsilon or math.inf, delta, self._ledger, s.account)

    def lengthened(self, planned: int, agents: int) -> dict[str, Any]:
        """See :class:`FBOStrategy`: the noise is that of the releases that were planned."""
        if not self.settings.private:
            return {}
        made = self.settings.release_plan(agents, planned)
        if not made.rounds:  # without any, nothing was charged
            return {}
        return {
            "releases": ",".join(map(str, made.rounds)),
            "sampling-rate": made.sampling_rate,
        }

    def close(self) -> None:
        """See :class:`FBOStrategy`."""
        if self._ledger is not None:
            self._ledger.close()

    def summary(self) -> None:
        """See :class:`FBOStrategy`."""
        super().summary()
        if self.notice():
            logger.warning("this run is %s", self.notice())

    def notice(self) -> str:
        """See :class:`FBOStrategy`."""
        s = self.settings
        if not s.private:
            return "" if s.local_epsilon else "NOT PRIVATE: no epsilon was given"
        if s.diagnostics:
            return "NOT PRIVATE: agents send their scores"
        return "NOT PRIVATE: its noise is seeded" if s.noise_seed is not None else ""

    def release(self) -> Release | None:
        """See :class:`FBOStrategy`."""
        assert isinstance(self.server, DPFTSDEServer)
        known = self.server.released.releases
        return known[-1] if known else None

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """See :class:`FBOStrategy`: of the average of all releases, by inverse variance."""
        memory = ReleaseMemory()
        for r in released:
            memory.add(r.vector, r.deviation, r.round)
        weights = memory.average()
        if weights is None:
            return None
        return self._recommended(weights, memory.deviation(), len(memory))

    def privacy(self) -> dict[str, Any] | None:
        """See :class:`FBOStrategy`."""
        server = self.server
        assert isinstance(server, DPFTSDEServer)
        if server.budget is None:
            return super().privacy()
        return {
            "epsilon": server.budget.spent,
            "delta": server.delta,
            "budget": self.settings.epsilon,
            "private": server.private,
            "exhausted": server.exhausted,
            "local": False,
        }
