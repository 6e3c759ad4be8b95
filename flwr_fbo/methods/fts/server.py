r"""The server of FTS: it sends the vector of one agent to another agent.

Notation (FTS Algorithm 1)

==================  ====================================  ==========
paper               here                                  shape
==================  ====================================  ==========
``A``               a target; by default every agent      int
``A_n, n <= N``     the agents whose vectors are sent
``omega_n``         ``server.messages[n]``                (M,)
``t_n``             ``history``                           int
``P_N``             ``preferences[target]``               (N,)
``p_t``             ``p_schedule``                        scalar
==================  ====================================  ==========

In the paper, a target holds the vectors of all other agents, and draws one of them with
probability 1 - p_t. Here the server makes both draws for the target, and sends only the vector
that is used: the queries have the same distribution, and N times less is sent. A straggler, an
agent whose vector did not arrive, has weight zero. Raw data are not sent; there is no privacy
beyond that.
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
    """Settings of FTS, which sends vectors on unchanged, and so hides raw data and nothing else."""

    p_schedule: ScheduleName = setting(
        "1-1/t", "p_t, probability that an agent follows its own model in round t"
    )
    messages: Literal["renewed", "once"] = setting(
        "renewed",
        "renewed: a new vector of each agent in every round; once: one before the start, used once",
    )
    targets: int = setting(
        0,
        "number of agents, the targets, that are sent vectors of other agents; 0 is all",
        at_least(0),
    )
    history: int = setting(
        0,
        "evaluations before the start of each agent that is no target; 0 is `initial-points`",
        at_least(0),
    )
    history_design: Literal["thompson", "random"] = setting(
        "thompson", "how an agent that is no target chooses its evaluations before the start"
    )


class FTSServer(ThompsonServer):
    """The server of Algorithm 1, for one target, several, or all agents at once (App. D.2.1).

    Parameters
    ----------
    space : Space
        The search space.
    agents : int
        N, the number of agents.
    settings : FTSSettings
        The settings of the run.
    rounds : int
        T, the number of rounds after the exploring round.
    seed : int
        The seed of the server's draws.
    preferences : Array, optional
        P_N of each agent in its row, (N, N), not normalised; uniform by default.
    p_schedule : Callable, optional
        p_t by round, instead of the schedule of the settings.
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
        self._preferences = given * (1.0 - np.eye(agents))  # no agent follows its own vector
        self.messages: dict[int, Array] = {}
        self._used: dict[int, set[int]] = {n: set() for n in self.targets}

    def _expects(self) -> dict[str, tuple[int, ...]]:
        # Vectors of the last round would not be used.
        renewed = self.settings.messages == "renewed" and self.round < self.last_round
        return {"omega": (self.settings.vector_length,)} if self.round == 0 or renewed else {}

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the requests of the round; where no vector is expected, only targets are asked."""
        only_targets = self.round > 0 and not self._expects()
        asked = [n for n in present if n in self.targets or not only_targets]
        return super().requests(asked)

    def _first_request(self, agent: int, expects: Mapping[str, tuple[int, ...]]) -> Request:
        if agent in self.targets or not self.settings.history:
            return super()._first_request(agent, expects)
        # t_n evaluations before the start (App. D.2.1)
        if self.settings.history_design == "random":
            values = {"count": self.settings.history, "home": -1}
            return Request("explore", self.round, values, {}, expects)
        values = {"count": self.settings.history}
        return Request("history", self.round, values, {}, expects)

    def _probability_and_weights(self, agent: int) -> tuple[float, Array | None]:
        # The draw of line 2 is made here, so the agent is sent the probability 0 or 1.
        sender = self._sender(agent)
        return (1.0, None) if sender is None else (0.0, self.messages[sender][None, :])

    def _sender(self, agent: int) -> int | None:
        """Return the agent whose vector another agent follows; None is its own model."""
        # Lines 2 and 3: r ~ U(0, 1), and the own model if r <= p_t.
        rng = self._rng(1, self.round, agent)
        p = own_probability(self._p_schedule, self.round, first_as_second=True)
        if agent not in self.targets or rng.random() <= p:
            return None
        # Line 6: A_n drawn from P_N.
        weights = self._distribution(agent)
        if not weights.any():
            return None  # no vector is left
        return int(rng.choice(self.agents, p=weights / weights.sum()))

    def _distribution(self, agent: int) -> Array:
        """Return P_N before normalisation, zero for stragglers and for used vectors: (N,)."""
        available = np.zeros(self.agents)
        available[list(self.messages)] = 1.0
        if self.settings.messages == "once":
            available[list(self._used[agent])] = 0.0
        return np.asarray(available * self._preferences[agent])

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Mark the vectors that were used, and take in the new vectors of the round."""
        if self.round > 0 and self.settings.messages == "once":
            for agent in self.targets:
                # The sender is drawn again from the same key. A target without a reply has made
                # no evaluation, so its vector can still be used.
                sender = self._sender(agent) if agent in replies else None
                if sender is not None:
                    self._used[agent].add(sender)
        super().close(replies)

    def _receive(self, vectors: Mapping[int, Array]) -> None:
        self.messages = dict(vectors)

    def state_dict(self) -> dict[str, Any]:
        """Return the round, the last vectors with their senders, and the used vectors."""
        agents = sorted(self.messages)
        stacked = np.stack([self.messages[n] for n in agents]) if agents else None
        used = {str(n): sorted(u) for n, u in self._used.items() if u}
        return {**super().state_dict(), "senders": agents, "messages": stacked, "used": used}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        vectors = () if state["messages"] is None else np.asarray(state["messages"])
        self.messages = dict(zip(map(int, state["senders"]), vectors, strict=True))
        self._used = {n: set(state["used"].get(str(n), ())) for n in self.targets}

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """Return where the mean of the agents' last vectors is largest."""
        last = list(self.messages.values())
        if not last:
            return None
        return self._recommendation(np.mean(last, axis=0)[None, :], 0.0, len(last))

    def evaluations_per_agent(self) -> int | None:
        """Return the evaluations of each agent; None where only some agents are targets."""
        return None if self.settings.targets else super().evaluations_per_agent()
