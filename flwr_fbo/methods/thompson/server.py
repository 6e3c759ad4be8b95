"""What the servers of FTS, DP-FTS-DE and the solitary baselines have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.method import MethodServer, RunParameters
from flwr_fbo.methods.thompson.agent import thompson_setup
from flwr_fbo.methods.thompson.recommendation import recommend
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.search.regions import Regions, split_space


class ThompsonServer(MethodServer):
    """Rounds 0 to T: every agent explores in round 0 and takes one step a round after it.

    A subclass says what advice goes out (:meth:`_advice`) and what is made of the vectors that
    come back (:meth:`_absorb`). This class alone is local Thompson sampling: no advice, and no
    vector is asked for.
    """

    counts_rounds = True
    repeats_silent_rounds = True

    def __init__(
        self,
        space: Space,
        agents: int,
        settings: ThompsonSettings,
        rounds: int,
        seed: int = 0,
        regions: int = 1,
    ) -> None:
        if agents < 1:
            raise SettingsError(f"`agents` must be >= 1, but got {agents!r}")
        if rounds < 0:
            raise SettingsError(f"`rounds` must be >= 0, but got {rounds!r}")
        self.space, self.agents, self.settings = space, agents, settings
        self.rounds: int | None = rounds + 1  # the exploring round counts too
        self.last_round = rounds
        self.round = 0
        self.regions: Regions = split_space(space, regions)
        self._seed = seed
        #: What agents said of themselves in the last round of a run with diagnostics: (n, 2).
        self.diagnostics: dict[int, Array] = {}
        self._setup = thompson_setup(space, settings, self.regions, self._rng(0))

    @classmethod
    def for_run(cls, run: RunParameters, settings: Any, **options: Any) -> Self:
        """Make the server of one run."""
        return cls(run.space, run.agents, settings, run.rounds, run.seed)

    def _rng(self, *purpose: int) -> np.random.Generator:
        # Public choices only (features, whose message goes where), never privacy noise.
        return np.random.default_rng([self._seed, 2**31, *purpose])

    @property
    def finished(self) -> bool:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        return self.round > self.last_round

    @property
    def exploring(self) -> bool:
        """Say whether the agents still evaluate their initial points."""
        return self.round == 0

    def setup(self) -> Setup:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        return self._setup

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        expects = self._asked_for()
        if self.round == 0:
            return {n: self._first_request(n, expects) for n in present}
        requests = {}
        for n in present:
            probability, advice = self._advice(n)
            arrays = {} if advice is None else {"advice": advice}
            values = {"own-probability": probability}
            requests[n] = Request("step", self.round, values, arrays, expects)
        return requests

    def _first_request(self, agent: int, expects: Mapping[str, tuple[int, ...]]) -> Request:
        values = {"count": self.settings.initial_points, "home": self._home(agent)}
        return Request("explore", self.round, values, {}, expects)

    def close(self, replies: Mapping[int, Reply]) -> None:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        self.diagnostics = {
            n: r.arrays["diagnostics"] for n, r in replies.items() if "diagnostics" in r.arrays
        }
        if self._expects():
            vectors = {n: r.arrays["omega"] for n, r in replies.items() if not r.declined}
            self._absorb(vectors)
        self.round += 1

    def _asked_for(self) -> dict[str, tuple[int, ...]]:
        return self._expects() | ({"diagnostics": (2,)} if self.settings.diagnostics else {})

    def _home(self, agent: int) -> int:
        """The sub-region an agent explores first; -1 is the whole space."""
        return -1

    def _advice(self, agent: int) -> tuple[float, Array | None]:
        """With which probability an agent should trust itself, and what others say."""
        return 1.0, None

    def _expects(self) -> dict[str, tuple[int, ...]]:
        """Which arrays the round's replies must hold."""
        return {}

    def _absorb(self, vectors: Mapping[int, Array]) -> None:
        """Make something of the vectors (M,) that came back."""

    def state_dict(self) -> dict[str, Any]:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        return {"round": self.round}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.core.protocol.Server`."""
        self.round = int(state["round"])

    # -- what a run reports ------------------------------------------------------------------

    def evaluations_per_agent(self) -> int | None:
        """Return the initial points and one evaluation for each further round."""
        return self.settings.initial_points + self.last_round

    def best(self) -> float | None:
        """Return the mean best score of a run with diagnostics; None in any other run."""
        known = [best for count, best in self.diagnostics.values() if count]
        return float(np.mean(known)) if known else None

    def privacy(self) -> dict[str, Any] | None:
        """Return what the agents' own local budgets bound, where they have any."""
        s = self.settings
        if s.local_epsilon is None:
            return None
        return {
            "epsilon": s.local_epsilon,
            "delta": s.local_delta,
            "budget": s.local_epsilon,
            "private": not s.diagnostics,
            "exhausted": False,
            "local": True,
        }

    def _recommended(self, weights: Array, deviation: float, releases: int) -> dict[str, Any]:
        """Return where a function (P, M) over the shared features is largest."""
        arrays = self.setup().arrays
        features = RandomFeatures(arrays["frequencies"], arrays["phases"])
        functions = weights[:, : features.count]  # and not the scale of the scores
        found = recommend(self.space, features, self.regions, functions, deviation, releases)
        return found.to_dict()
