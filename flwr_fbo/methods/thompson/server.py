"""The rounds of FTS, DP-FTS-DE, local Thompson sampling and random search, at the server."""

from __future__ import annotations

import math
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
from flwr_fbo.privacy.local import LocalGaussian
from flwr_fbo.privacy.statement import NEVER_COVERED, PrivacyStatement, versions
from flwr_fbo.search.regions import Regions, split_space


class ThompsonServer(MethodServer):
    """Rounds 0 to T: each agent explores in round 0, and evaluates one point in each later round.

    With the setting ``parallel`` = k, an agent evaluates k points at once in each later round.

    A subclass says which shared function an agent is sent (:meth:`_probability_and_weights`),
    which rounds ask for vectors (:meth:`_expects`) and what is done with the vectors
    (:meth:`_receive`). This class by itself is local Thompson sampling: agents are sent no shared
    function, and no vector is asked for.

    Parameters
    ----------
    space : Space
        The search space.
    agents : int
        N, the number of agents.
    settings : ThompsonSettings
        The settings of the agents.
    rounds : int
        T, the number of rounds after the exploring round.
    seed : int
        The seed of the server's public choices; privacy noise never depends on the seed.
    regions : int
        P, the number of sub-regions.
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
        #: Evaluations and best score (2,) that agents sent in the last round, with diagnostics.
        self.diagnostics: dict[int, Array] = {}
        self._setup = thompson_setup(space, settings, self.regions, self._rng(0))

    @classmethod
    def for_run(cls, run: RunParameters, settings: Any, **options: Any) -> Self:
        """Make the server of one run."""
        return cls(run.space, run.agents, settings, run.rounds, run.seed)

    def _rng(self, *purpose: int) -> np.random.Generator:
        # For public choices: random features, samples without privacy, whose vector goes where.
        # Privacy noise takes its entropy elsewhere. The second number keeps these generators
        # apart from those of agents with the same seed.
        return np.random.default_rng([self._seed, 2**31, *purpose])

    @property
    def finished(self) -> bool:
        """Return whether all rounds are closed."""
        return self.round > self.last_round

    @property
    def exploring(self) -> bool:
        """Return whether the agents still evaluate their initial points."""
        return self.round == 0

    def setup(self) -> Setup:
        """Return the settings, random features and sub-regions, which every agent needs."""
        return self._setup

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request to explore or to take a step, for each agent that is present."""
        expects = self._all_expected()
        if self.round == 0:
            return {n: self._first_request(n, expects) for n in present}
        requests, asked = {}, dict[tuple[float, int], Request]()
        for n in present:
            probability, weights = self._probability_and_weights(n)
            content = probability, id(weights)  # agents who are asked the same share a request
            if content not in asked:
                arrays = {} if weights is None else {"advice": weights}
                values = {"own-probability": probability, **self._learned_values(weights)}
                asked[content] = Request("step", self.round, values, arrays, expects)
            requests[n] = asked[content]
        return requests

    def _first_request(self, agent: int, expects: Mapping[str, tuple[int, ...]]) -> Request:
        values = {"count": self.settings.initial_points, "home": self._home(agent)}
        return Request("explore", self.round, values, {}, expects)

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Take in the vectors of the round, and go on to the next round."""
        self.diagnostics = {
            n: r.arrays["diagnostics"] for n, r in replies.items() if "diagnostics" in r.arrays
        }
        if self._expects():
            vectors = {n: r.arrays["omega"] for n, r in replies.items() if not r.declined}
            self._receive(vectors)
        self.round += 1

    def _all_expected(self) -> dict[str, tuple[int, ...]]:
        return self._expects() | ({"diagnostics": (2,)} if self.settings.diagnostics else {})

    def _home(self, agent: int) -> int:
        """Return the sub-region in which an agent explores; -1 is the whole space."""
        return -1

    def _probability_and_weights(self, agent: int) -> tuple[float, Array | None]:
        """Return p_t for an agent, and the weights (P, M) of the function that it is sent."""
        return 1.0, None

    def _learned_values(self, weights: Array | None) -> dict[str, float]:
        """Return what a request says about the shared function of these weights, beside them."""
        return {}

    def _expects(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the arrays that replies of this round must hold."""
        return {}

    def _receive(self, vectors: Mapping[int, Array]) -> None:
        """Take in the vectors (M,) of the agents that replied."""

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the next round."""
        return {"round": self.round}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that :meth:`state_dict` returned."""
        self.round = int(state["round"])

    # -- what a run reports ------------------------------------------------------------------

    def evaluations_per_agent(self) -> int | None:
        """Return the initial points and ``parallel`` evaluations for each further round."""
        return self.settings.evaluations_after(self.last_round)

    def best(self) -> float | None:
        """Return the mean best score of a run with diagnostics; None in any other run."""
        known = [best for count, best in self.diagnostics.values() if count]
        return float(np.mean(known)) if known else None

    def statement(self) -> PrivacyStatement:
        """Return what the agents' own local budgets guarantee, where they have any."""
        s = self.settings
        if s.local_epsilon is None:
            return super().statement()
        return PrivacyStatement(
            method=self.name,
            agents=self.agents,
            relation="any two vectors of a party, in every reply",
            trust="local",
            mechanism="each party adds Gaussian noise to its own vectors, before they leave",
            epsilon=s.local_epsilon,
            delta=s.local_delta,
            budget=s.local_epsilon,
            notice="NOT PRIVATE: agents send their scores" if s.diagnostics else "",
            not_covered=NEVER_COVERED,
            versions=versions(),
        )

    def _local_deviation(self) -> float:
        """Return the noise that the agents' own mechanisms leave in a mean of their vectors."""
        s = self.settings
        if s.local_epsilon is None:
            return 0.0
        clip = s.local_clip or s.max_norm
        mechanism = LocalGaussian.for_budget(clip, s.local_epsilon, s.local_delta, s.local_answers)
        return 2.0 * clip * mechanism.noise_multiplier / math.sqrt(self.agents)

    def _recommendation(
        self,
        weights: Array,
        deviation: float,
        releases: int,
        candidates: Array | None = None,
        chosen: int | None = None,
    ) -> dict[str, Any]:
        """Return the recommendation from an average of ``releases`` vectors, (P, M) or more.

        The recommended point is the maximum, or the ``chosen`` one of the candidates (G, D).
        """
        arrays = self.setup().arrays
        features = RandomFeatures(arrays["frequencies"], arrays["phases"])
        functions = weights[:, : features.count]  # without the scale of the scores
        deviation = math.hypot(deviation, self._local_deviation())
        found = recommend(
            self.space,
            features,
            self.regions,
            functions,
            deviation,
            releases,
            candidates=candidates,
            chosen=chosen,
        )
        return found.to_dict()
