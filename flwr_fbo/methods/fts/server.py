r"""The server of FTS: one agent's vector at a time, relayed to one other.

Notation (FTS Algorithm 1)

==================  ====================================  ==========
paper               here                                  shape
==================  ====================================  ==========
``A``               a target; all agents unless said      int
``A_n, n <= N``     the agents whose vectors are used
``omega_n``         ``server.messages[n]``                (M,)
``t_n``             ``history``                           int
``P_N``             ``preferences[target]``               (N,)
``p_t``             ``p_schedule``                        scalar
==================  ====================================  ==========

In the paper a target holds the messages of all others and draws one of them when its coin says
so. Here the server tosses the coin and draws from P_N on the target's behalf and sends only the
vector that is used: the same distribution of queries with N times less to send. A straggler,
whose vector is not there, has weight zero. There is no privacy beyond not sending raw data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.core.settings import SettingsError, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.methods.thompson.schedules import OwnProbability, ScheduleName, own_probability
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.privacy.releases import Release


@dataclass(frozen=True)
class FTSSettings(ThompsonSettings):
    """FTS: vectors are relayed as they are, so it hides raw data and nothing else."""

    p_schedule: ScheduleName = setting("1-1/t", "p_t, how soon agents trust only themselves")
    messages: Literal["renewed", "once"] = setting(
        "renewed", "new vectors every round, or one of each agent before the start, used once"
    )
    targets: int = setting(
        0, "how many agents optimise; the others only help. 0 is all", at_least(0)
    )
    history: int = setting(
        0, "observations a helper makes before the start; 0 is initial-points", at_least(0)
    )
    history_design: Literal["thompson", "random"] = setting("thompson", "how a helper chooses them")


class FTSServer(ThompsonServer):
    """Algorithm 1 for one target, several, or all agents at the same time (App. D.2.1).

    ``preferences`` (N, N) are the rows P_N of each agent; uniform where not given.
    """

    settings: FTSSettings

    def __init__(
        self,
        space: Space,
        agents: int,
        settings: FTSSettings,
        rounds: int,
        seed: int = 0,
        preferences: Array | None = None,
        p_schedule: OwnProbability | None = None,
    ) -> None:
        super().__init__(space, agents, settings, rounds, seed)
        if settings.targets > agents:
            raise SettingsError(
                f"`targets` must be <= the number of agents, but got {settings.targets} > {agents}"
            )
        self._p_schedule = p_schedule or settings.p_schedule
        self.targets = range(settings.targets or agents)
        given = np.ones((agents, agents)) if preferences is None else np.asarray(preferences)
        valid = given.shape == (agents, agents) and np.all((given >= 0) & np.isfinite(given))
        if not valid:
            raise SettingsError(
                f"`preferences` must be finite, >= 0 and ({agents}, {agents}), but got "
                f"{given.tolist() if given.size < 20 else given.shape}"
            )
        self._preferences = given * (1.0 - np.eye(agents))  # nobody advises itself
        self.messages: dict[int, Array] = {}
        self._used: dict[int, set[int]] = {n: set() for n in self.targets}

    def _expects(self) -> dict[str, tuple[int, ...]]:
        renewed = self.settings.messages == "renewed" and self.round < self.last_round
        return {"omega": (self.settings.vector_length,)} if self.round == 0 or renewed else {}

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        helpers_rest = self.round > 0 and not self._expects()
        asked = [n for n in present if n in self.targets or not helpers_rest]
        return super().requests(asked)

    def _first_request(self, agent: int, expects: Mapping[str, tuple[int, ...]]) -> Request:
        if agent in self.targets or not self.settings.history:
            return super()._first_request(agent, expects)
        if self.settings.history_design == "random":
            values = {"count": self.settings.history, "home": -1}
            return Request("explore", self.round, values, {}, expects)
        values = {"count": self.settings.history}
        return Request("history", self.round, values, {}, expects)

    def _advice(self, agent: int) -> tuple[float, Array | None]:
        adviser = self._adviser(agent)
        return (1.0, None) if adviser is None else (0.0, self.messages[adviser][None, :])

    def _adviser(self, agent: int) -> int | None:
        """Lines 2-6: whose vector the agent follows this round; None is its own model."""
        rng = self._rng(1, self.round, agent)
        p = own_probability(self._p_schedule, self.round, first_as_second=True)
        if agent not in self.targets or rng.random() <= p:
            return None
        weights = self._distribution(agent)
        if not weights.any():
            return None  # nobody's vector is left
        return int(rng.choice(self.agents, p=weights / weights.sum()))

    def _distribution(self, agent: int) -> Array:
        """P_N before normalisation: zero for stragglers and for vectors that were used up."""
        available = np.zeros(self.agents)
        available[list(self.messages)] = 1.0
        if self.settings.messages == "once":
            available[list(self._used[agent])] = 0.0
        return np.asarray(available * self._preferences[agent])

    def close(self, replies: Mapping[int, Reply]) -> None:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        if self.round > 0 and self.settings.messages == "once":
            for agent in self.targets:
                adviser = self._adviser(agent) if agent in replies else None
                if adviser is not None:
                    self._used[agent].add(adviser)
        super().close(replies)

    def _absorb(self, vectors: Mapping[int, Array]) -> None:
        self.messages = dict(vectors)

    def state_dict(self) -> dict[str, Any]:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        agents = sorted(self.messages)
        stacked = np.stack([self.messages[n] for n in agents]) if agents else None
        used = {str(n): sorted(u) for n, u in self._used.items() if u}
        return {**super().state_dict(), "senders": agents, "messages": stacked, "used": used}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        super().load_state_dict(state)
        vectors = () if state["messages"] is None else np.asarray(state["messages"])
        self.messages = dict(zip(map(int, state["senders"]), vectors, strict=True))
        self._used = {n: set(state["used"].get(str(n), ())) for n in self.targets}

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """Return where the mean of the agents' last vectors is largest."""
        last = list(self.messages.values())
        if not last:
            return None
        return self._recommended(np.mean(last, axis=0)[None, :], 0.0, len(last))

    def evaluations_per_agent(self) -> int | None:
        """Return None where helpers and targets make different numbers of evaluations."""
        return None if self.settings.targets else super().evaluations_per_agent()
