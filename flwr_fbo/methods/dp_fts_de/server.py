r"""The server of DP-FTS-DE: releases that everybody may see, and what they cost.

Notation (DP-FTS-DE Algorithm 1)

=====================  =======================================  ==========
paper                  here                                     shape
=====================  =======================================  ==========
``N``, ``P``, ``M``    ``agents``, ``regions``, ``features``    int
``q``                  ``server.release_plan.sampling_rate``    scalar
``z``                  ``server.noise_multiplier``              scalar
``S``                  ``settings.clip``                        scalar
lines 5-11             ``server.aggregation``
``omega_t^joint``      ``server.released.latest``               (P, M)
``1 - p_t``            ``1 - own_probability(p_schedule, t)``   scalar
=====================  =======================================  ==========

P = 1 is DP-FTS. No noise and q = 1 is FTS-DE. The release of round t is used in the rounds after
t, so the last round has no release: T releases in the paper's schedule, as the paper's figures
count. A round without a release costs nothing: agents go on with the last release, which is
post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.dp_fts_de.aggregation import Aggregation
from flwr_fbo.methods.dp_fts_de.final_rounds import SCORE_ROUNDS
from flwr_fbo.methods.dp_fts_de.finalists import best_finalist, choose_finalists, recommended_of
from flwr_fbo.methods.dp_fts_de.public_list import (
    expected_scores,
    first_of,
    good_score,
    list_length,
)
from flwr_fbo.methods.dp_fts_de.secure import open_sum, secure_plan
from flwr_fbo.methods.dp_fts_de.settings import HALF_LIFE, DPFTSDESettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.secure_sum import MORE_COLLUDING, PLAN, SecureSum
from flwr_fbo.methods.summing_server import SummingServer
from flwr_fbo.methods.thompson.agent import thompson_setup
from flwr_fbo.methods.thompson.released_model import ReleasedModel, combined
from flwr_fbo.methods.thompson.schedules import OwnProbability, own_probability
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.learned_scale import learn_lengthscale, weight_deviations
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.calibration import (
    epsilon_of,
    gaussian_epsilon,
    noise_multiplier_for,
)
from flwr_fbo.privacy.entropy import Entropy, seeded_entropy, system_entropy
from flwr_fbo.privacy.events import Event
from flwr_fbo.privacy.ledger import Ledger, MemoryLedger
from flwr_fbo.privacy.mechanisms import Integers
from flwr_fbo.privacy.release_plan import expected_signal
from flwr_fbo.privacy.releases import Release, ReleaseMemory
from flwr_fbo.privacy.secure.noise_share import charged_delta
from flwr_fbo.privacy.statement import DELTAS, NEVER_COVERED, PrivacyStatement, versions
from flwr_fbo.search.listed import listed_settings
from flwr_fbo.search.regions import home_regions

#: Key of the generator that draws from the posterior of which the finalists are the best points.
FINALISTS = 3
#: Key of the generator of the public list of settings.
LIST = 4
#: From this many parameters on, the posterior mean recommends. In development runs it was ahead in
#: two federations with 11 parameters, and in one with 5 the maximum of the function was.
POSTERIOR_FROM = 8
#: The noise where nothing is released: far above any signal.
UNKNOWN = 1e3
#: Agents are not sent a shared function with more noise than this many times its expected signal.
DROWNED = 2.0
#: The same in spaces of at most so many parameters, where the noise has few peaks.
FEW_PARAMETERS, DROWNED_IN_FEW = 2, 4.0
#: Agents are not sent a shared function with noise of fewer scores than this for each parameter.
SCORES_PER_PARAMETER = 6
#: The length scale of all features where the noise is large and parameters are many: a mix of many
#: length scales gives such noise more peaks, and what so many parameters have in common is smooth.
LONG_LENGTHSCALE = 1.0
#: "Many" parameters, and "large": the deviation of a release's noise at any point of the space,
#: where an agent's scores have the deviation 1.
MANY_PARAMETERS, LARGE_NOISE = 5, 0.02
#: The length scale is learned with about so many random points, in so many designs at least and
#: at most.
RANDOM_POINTS, FEWEST_DESIGNS, MOST_DESIGNS = 640, 16, 64


def empty_memory(settings: DPFTSDESettings) -> ReleaseMemory:
    """Return a memory without releases, with the half-life that the settings ask for."""
    return ReleaseMemory(HALF_LIFE if settings.advice == "recent" else math.inf)


def shared_weights(settings: DPFTSDESettings, released: ReleaseMemory) -> Array | None:
    """Return the weights (P, M) that agents are sent; None before the first release."""
    return released.latest if settings.advice == "last" else released.average()


def most_noise(dimension: int) -> float:
    """Return how many times its signal the noise of a shared function may be."""
    return DROWNED_IN_FEW if dimension <= FEW_PARAMETERS else DROWNED


def is_drowned(settings: DPFTSDESettings, released: ReleaseMemory, dimension: int) -> bool:
    """Return whether the shared function is so noisy that agents do better alone.

    The expected signal and the noise are public numbers: no release is looked at. The papers'
    agents, which follow a shared function by chance, are sent every release.
    """
    if not len(released) or settings.advice_use != "prior":
        return False
    evaluations = settings.evaluations_after(released.releases[-1].round)
    return released.deviation() > most_noise(dimension) * expected_signal(evaluations)


def is_withheld(
    settings: DPFTSDESettings, released: ReleaseMemory, dimension: int, agents: int
) -> bool:
    """Return whether agents are not sent the shared function: it is drowned, or of few scores.

    Noise beside few scores in many parameters costs an agent more than it learns: its own first
    points, spread over the space, tell it more. Without noise even few scores help.
    """
    if is_drowned(settings, released, dimension):
        return True
    if not len(released) or settings.advice_use != "prior" or released.deviation() == 0.0:
        return False
    evaluations = settings.evaluations_after(released.releases[-1].round)
    return agents * evaluations < SCORES_PER_PARAMETER * dimension


def learns_lengthscale(settings: DPFTSDESettings, regions: int) -> bool:
    """Return whether the first release can say how narrow the parties' objectives are.

    It can if features have many length scales, and if it is a mean of vectors of random points.
    """
    return (
        settings.feature_lengthscale is None
        and settings.feature_kernel == "se"
        and settings.advice_use == "prior"
        and settings.advice != "last"  # which forgets the first release
        and settings.message == "mean"
        and regions == 1
    )


class DPFTSDEServer(SummingServer, ThompsonServer):
    """The server of Algorithm 1, with noise that is paid for from a budget before each release.

    Parameters
    ----------
    space : Space
        The search space.
    agents : int
        N, the number of agents, on which weights, noise and delta depend.
    settings : DPFTSDESettings
        The settings of the run.
    rounds : int
        T, the number of rounds after the exploring round.
    seed : int
        The seed of the server's public choices; the noise does not depend on the seed.
    budget : PrivacyBudget, optional
        The budget of a private run. By default the charges are kept in memory only, and are lost
        with the process.
    entropy : Entropy, optional
        The source of noise and samples, by default the operating system's. Any other source makes
        the run NOT PRIVATE, as :attr:`private` then says.
    p_schedule : Callable, optional
        p_t by round, instead of the schedule of the settings.
    """

    settings: DPFTSDESettings

    def __init__(
        self,
        space: Space,
        agents: int,
        settings: DPFTSDESettings,
        rounds: int,
        seed: int = 0,
        budget: PrivacyBudget | None = None,
        entropy: Entropy | None = None,
        p_schedule: OwnProbability | None = None,
    ) -> None:
        super().__init__(space, agents, settings, rounds, seed, settings.regions)
        self._p_schedule = p_schedule or settings.p_schedule
        #: The rounds that release, and q.
        self.release_plan = settings.release_plan(agents, rounds)
        self.delta: float | None = None
        self.noise_multiplier: float | None = None
        seeded = None if settings.noise_seed is None else seeded_entropy(settings.noise_seed)
        self._entropy = entropy or seeded or system_entropy()
        if settings.private:
            self._plan_privacy(budget)
        elif budget is not None:
            raise SettingsError(
                "a `budget` needs `epsilon` or `noise-multiplier`, but both are unset"
            )
        rate = self.release_plan.sampling_rate
        self.aggregation = Aggregation(
            settings, agents, self.regions.count, rate, self.noise_multiplier
        )
        self._long_features = self._wants_long_features()
        if self._long_features:
            long = replace(settings, feature_lengthscale=LONG_LENGTHSCALE)
            self._setup = thompson_setup(space, long, self.regions, self._rng(0))
        self.released = empty_memory(self.settings)
        #: The rounds of the finalists, and the finalists (K, D) from the first of them on.
        self.finals = settings.finals(rounds)
        self.finalists: Array | None = None
        #: The public list of settings (G, D) from which finalists are chosen; None without one.
        self.listed = self._public_list()
        if self.finals is not None:
            # A reader of the releases must know which of them hold scores and not weights.
            scored = [self.finals.end]
            if self.listed is not None:
                scored = list(range(self.finals.end + 1))
            final = {SCORE_ROUNDS: np.array(scored, dtype=np.float64)}
            self._setup = replace(self._setup, arrays={**self._setup.arrays, **final})
        #: What agents are sent, once it is computed: the weights (P, M), or None before a release.
        self._weights: tuple[Array | None] | None = None
        #: The length scale that the first release shows, once it is computed.
        self._lengthscale: tuple[float | None] | None = None
        self.exhausted = False
        if settings.secure:
            self.secure_plan = secure_plan(self.aggregation, len(self.release_plan.rounds))
            arrays = {**self._setup.arrays, PLAN: self.secure_plan.to_array()}
            self._setup = replace(self._setup, arrays=arrays)

    @classmethod
    def for_run(cls, run: RunParameters, settings: DPFTSDESettings, **options: Any) -> Self:
        """Make the server of one run, with the run's ledger file, continued if the file exists."""
        if settings.private and run.quorum < 1:
            # The data of an agent decide how long the agent computes. In a round that ends at a
            # deadline, this time decides only whether the agent itself counts, which is the
            # neighbouring input. With a quorum, this time also decides which other agents are in
            # time, and one agent would change the sum by more than its own contribution.
            raise SettingsError(
                f"`round-quorum` must be 1 in a private run, but got {run.quorum:g}: one "
                "agent's speed would decide which others count; use `timeout`"
            )
        server = cls(run.space, run.agents, settings, run.rounds, run.seed)
        if settings.private and run.ledger is not None:
            server._open_ledger(run.ledger, run.run)
        return server

    def _public_list(self) -> Array | None:
        """Return the public list of settings (G, D); None where finalists come from a function."""
        if self.finals is None or self.settings.finalists_from != "list":
            return None
        noise = self.aggregation.deviation(self.finals.start - 1) if self.settings.private else 0.0
        noise = self._score_deviation(noise)
        count = list_length(self.agents, self._listed_evaluations, noise, self.finals.count)
        # A vector holds as many scores as it has numbers.
        count = min(count, self.settings.features)
        return listed_settings(self.space, count, "spread", self._rng(LIST))

    @property
    def _listed_evaluations(self) -> int:
        """Return how many settings of the public list each agent evaluates."""
        assert self.finals is not None
        return self.settings.evaluations_after(self.finals.start - 1)

    def _score_deviation(self, deviation: float) -> float:
        """Return a release's noise, in the scale of agents' vectors of norm 1."""
        noise = math.hypot(deviation, self._local_deviation())
        return noise / math.sqrt(self.regions.count) / self._score_norm

    @property
    def _score_norm(self) -> float:
        """Return the norm of a vector of scores in the sum."""
        return min(self.settings.max_norm, self.aggregation.bound or math.inf)

    def _wants_long_features(self) -> bool:
        """Return whether all features have one long length scale, which follows from the plan."""
        s = self.settings
        told = s.feature_lengthscale is not None
        if told or s.advice_use != "prior" or self.space.dimension < MANY_PARAMETERS:
            return False
        noise = self._local_deviation()
        if s.private and self.release_plan.rounds:
            first = self.release_plan.rounds[0]
            noise = math.hypot(noise, self.aggregation.deviation(first))
        return noise >= LARGE_NOISE

    def _open_ledger(self, path: Path, run: str) -> None:
        """Charge all releases from now on to the ledger in this file."""
        s = self.settings
        assert self.delta is not None
        header = {
            "strategy": "dp-fts-de",
            "agents": self.agents,
            "releases": list(self.release_plan.rounds),
            "delta": self.delta,
            "epsilon": s.epsilon,
            "accountant": s.account,
            "run": run,
        }
        self._ledger = Ledger.open(path, header)
        self.budget = PrivacyBudget(
            s.epsilon or math.inf, self._charged_delta, self._ledger, s.account
        )

    @property
    def private(self) -> bool:
        """Return whether the run is private: its noise is secret, and only vectors are sent."""
        return self.settings.private and self._entropy.private and not self.settings.diagnostics

    def _plan_privacy(self, budget: PrivacyBudget | None) -> None:
        """Set delta, the noise for all planned releases, and the budget."""
        s = self.settings
        self.delta = s.delta_for(self.agents)
        rates = [self.release_plan.sampling_rate] * len(self.release_plan.rounds)
        self.noise_multiplier = s.noise_multiplier
        if s.noise_multiplier is None and s.epsilon is not None and rates:
            # The least z with which all planned releases together cost at most epsilon.
            self.noise_multiplier = noise_multiplier_for(
                s.epsilon, self._charged_delta, rates, s.account, self.agents
            )
        self.budget = budget or PrivacyBudget(
            s.epsilon or math.inf, self._charged_delta, MemoryLedger(), s.account
        )

    @property
    def _charged_delta(self) -> float:
        """Return the delta to account with; in a secure sum a part of delta pays for rounding."""
        assert self.delta is not None
        return charged_delta(self.delta) if self.settings.secure else self.delta

    def _home(self, agent: int) -> int:
        if not self.settings.explore_home:
            return -1
        return int(self._homes[agent])

    @cached_property
    def _homes(self) -> Indices:
        """Return the home sub-regions of all agents: (N,)."""
        return home_regions(self.agents, self.regions.count)

    def _probability_and_weights(self, agent: int) -> tuple[float, Array | None]:
        # Line 12: the same for all agents, so that it is computed once.
        if self._weights is None:
            functions = empty_memory(self.settings)
            for r in self._functions(self.released.releases):
                functions.add(r.vector, r.deviation, r.round)
            withheld = self._is_withheld(functions)
            self._weights = (None if withheld else shared_weights(self.settings, functions),)
        return own_probability(self._p_schedule, self.round), self._weights[0]

    def _is_withheld(self, released: ReleaseMemory) -> bool:
        return is_withheld(self.settings, released, self.space.dimension, self.agents)

    def _learned_values(self, weights: Array | None) -> dict[str, float]:
        learned = self._learned_lengthscale()
        return {} if learned is None else {"lengthscale": learned}

    def _learned_lengthscale(self) -> float | None:
        """Return the length scale that the first release shows; None unless clearly narrow.

        It follows from a release, so that it costs nothing, and a restored server computes it
        again.
        """
        if self._lengthscale is None and len(self.released):
            first, memory = self.released.releases[0], empty_memory(self.settings)
            memory.add(first.vector, first.deviation, first.round)
            mixed = learns_lengthscale(self.settings, self.regions.count)
            known = mixed and not self._long_features and first.round == 0 and self.listed is None
            if not known or self._is_withheld(memory):
                self._lengthscale = (None,)
            else:
                self._lengthscale = (self._lengthscale_of(first),)
        return None if self._lengthscale is None else self._lengthscale[0]

    def _lengthscale_of(self, first: Release) -> float | None:
        """Return the length scale that a release of the initial points shows."""
        s, features = self.settings, self._features
        n = s.initial_points
        designs = min(MOST_DESIGNS, max(FEWEST_DESIGNS, RANDOM_POINTS // n))
        # The same points for every reader of the releases.
        points = self.space.embed(self.space.sample(designs * n, np.random.default_rng(0)))
        return learn_lengthscale(
            features,
            points.reshape(designs, n, -1),
            first.vector[0, : features.count],
            math.hypot(first.deviation, self._local_deviation()),
            s.feature_noise,
            self.agents,
            self.space.dimension,
        )

    @cached_property
    def _features(self) -> RandomFeatures:
        """Return the random features of the run."""
        arrays = self.setup().arrays
        return RandomFeatures(arrays["frequencies"], arrays["phases"])

    # -- rounds ------------------------------------------------------------------------------

    def _round_requests(self, present: Sequence[int]) -> dict[int, Request]:
        if self.finals is None or self.round > self.finals.end:
            return ThompsonServer.requests(self, present)
        if self.round not in self.finals:
            if self.listed is None:
                return ThompsonServer.requests(self, present)
            return self._list_requests(self.listed, present)
        if self.finalists is None:  # public, and stored with the state
            self.finalists = self._choose_finalists(self.finals.count)
        first, count = self.finals.of_round(self.round)
        values = {"first": first, "count": count}
        arrays = {"finalists": self.finalists}
        request = Request("final", self.round, values, arrays, self._all_expected())
        return dict.fromkeys(present, request)

    def _list_requests(self, listed: Array, present: Sequence[int]) -> dict[int, Request]:
        """Return the requests to evaluate the agents' own parts of the public list."""
        settings, round = self.settings, self.round
        before = settings.evaluations_after(round - 1) if round else 0
        count = settings.evaluations_after(round) - before
        arrays, expects, asked = {"finalists": listed}, self._all_expected(), dict[int, Request]()
        length = len(listed)
        firsts = {n: (first_of(n, self.agents, length) + before) % length for n in present}
        for first in set(firsts.values()):
            values = {"first": first, "count": count}
            asked[first] = Request("listed", round, values, arrays, expects)
        return {n: asked[first] for n, first in firsts.items()}

    def _choose_finalists(self, count: int) -> Array:
        """Return the finalists, from the releases so far: (K, D)."""
        released = self.released.releases
        if self.listed is None:
            model, best = self._released_model(released), self._released_maximum(released)
            return choose_finalists(model, count, self._rng(FINALISTS), best)
        order = np.argsort(-self._expected_of_list(released), kind="stable")
        return np.asarray(self.listed[np.resize(order, count)])

    def _expected_of_list(self, released: Sequence[Release]) -> Array:
        """Return what releases say of the settings of the public list: (G,)."""
        assert self.listed is not None
        scores, noise = self._scores_of_list(released)
        evaluations = self._listed_evaluations
        return expected_scores(self.space, self.listed, scores, noise, self.agents, evaluations)

    def _scores_of_list(self, released: Sequence[Release]) -> tuple[Array, float]:
        """Return the scores of the public list (G,) with their noise, for vectors of norm 1."""
        assert self.listed is not None
        made = [r for r in released if not self._is_final(r.round)]
        if not made:
            return np.zeros(len(self.listed)), UNKNOWN
        scores = made[-1].vector.mean(axis=0)[: len(self.listed)] / self._score_norm
        return scores, self._score_deviation(made[-1].deviation)

    def _is_final(self, round: int) -> bool:
        """Return whether the release of a round is that of the scores of the finalists."""
        return self.finals is not None and round == self.finals.end

    def _functions(self, released: Sequence[Release]) -> list[Release]:
        """Return the releases of weights, without those of scores."""
        return [r for r in released if self.listed is None and not self._is_final(r.round)]

    def _released_model(self, released: Sequence[Release]) -> ReleasedModel:
        """Return what the releases of weights say about the mean objective."""
        s, arrays = self.settings, self.setup().arrays
        features = RandomFeatures(arrays["frequencies"], arrays["phases"])
        functions = self._functions(released)
        weights, deviation = np.zeros(features.count), UNKNOWN
        known = [s.evaluations_after(r.round) for r in functions]
        if functions:
            # The sub-regions' functions are means of the same vectors with other weights.
            rows = [r.vector[:, : features.count].mean(axis=0) for r in functions]
            noise = [r.deviation / math.sqrt(len(r.vector)) for r in functions]
            weights, deviation = combined(rows, noise, [expected_signal(n) for n in known])
        deviation = math.hypot(deviation, self._local_deviation())
        scores = known[-1] if known else s.initial_points
        return ReleasedModel(
            self.space, features, weights, deviation, scores, s.feature_noise, self.agents
        )

    # -- secure sums -------------------------------------------------------------------------

    def _close_round(self, replies: Mapping[int, Reply]) -> None:
        round, due = self.round, self._sum_is_due()
        ThompsonServer.close(self, replies)
        if due and self.secure_plan is not None:
            finalists = self.finalists if self._is_final(round) else self.listed
            self._sum = open_sum(
                self.secure_plan, self.aggregation, self._bound_to, round, finalists
            )

    def _sum_is_due(self) -> bool:
        """Return whether this round releases, or makes up for a sum that was abandoned uncharged.

        A crash charges a release twice; then a later release is left out.
        """
        if self.secure_plan is None or self.budget is None:
            return False
        if self.round >= self.last_round and not self._is_final(self.round):
            return False
        planned = sum(t <= self.round for t in self.release_plan.rounds)
        if planned <= self.charges:
            return False
        self.exhausted = self.budget.would_exceed(self.aggregation.event(self.round))
        return not self.exhausted

    def _sum_event(self, opened: SecureSum) -> Event:
        return self.aggregation.event(opened.terms.release)

    def _take_sum(self, opened: SecureSum, total: Integers) -> None:
        released = opened.noise.lattice.values(total).reshape(self.regions.count, -1)
        deviation = opened.noise.deviation(opened.survivors)
        self._remember(released, deviation, opened.terms.release)

    # -- central sums ------------------------------------------------------------------------

    def _expects(self) -> dict[str, tuple[int, ...]]:
        if self.settings.secure:
            return {}
        due = self.round in self.release_plan.rounds and not self.exhausted
        return {"omega": (self.settings.vector_length,)} if due else {}

    def _receive(self, vectors: Mapping[int, Array]) -> None:
        if self.budget is None:
            # Without privacy the sample need not be secret, and a repeated run is the same.
            entropy = seeded_entropy(int(self._rng(2, self.round).integers(2**62)))
            chosen = self.aggregation.selected(vectors, entropy)
            self._remember(self.aggregation.without_noise(chosen, self.round), 0.0, self.round)
            return
        event = self.aggregation.event(self.round)
        if self.budget.would_exceed(event):
            self.exhausted = True  # agents go on with the last release, which costs nothing
            return
        self.budget.charge(event)  # line 13, on disk before anything is drawn
        deviation = self.aggregation.deviation(self.round)
        released = self.aggregation.draw_release(vectors, self.round, self._entropy)
        self._remember(released, deviation, self.round)

    def _remember(self, vector: Array, deviation: float, round: int) -> None:
        self._weights = None
        learned = self._learned_lengthscale()
        if learned is not None and not self._is_final(round):
            # Agents that know the length scale send weights over their prior deviations.
            vector, count = vector.copy(), self.settings.features
            dimension = self.space.dimension
            vector[:, :count] *= weight_deviations(self._features, learned, dimension)
        if self.settings.advice == "last" and not self._is_final(round):
            self.released = empty_memory(self.settings)  # older releases are not used again
        self.released.add(vector, deviation, round)

    def state_dict(self) -> dict[str, Any]:
        """Return the round, the releases, and whether the budget is exhausted."""
        # The ledger is a file of its own, and the state of the noise's source is never stored.
        state = {
            **super().state_dict(),
            "released": self.released.to_dict(),
            "exhausted": self.exhausted,
        }
        if self.finalists is not None:
            state["finalists"] = self.finalists
        # The checkpoint names the ledger's lines, so that a ledger which lost some is noticed.
        return state if self._ledger is None else {**state, "ledger": self._ledger.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.released, self._weights = ReleaseMemory.from_dict(state["released"]), None
        self._lengthscale = None
        self.exhausted = bool(state["exhausted"])
        self.finalists = state.get("finalists")
        if self._ledger is not None and "ledger" in state:
            self._ledger.require(state["ledger"])

    # -- what a run reports ------------------------------------------------------------------

    def notice(self) -> str:
        """Return why the run is not private, or nothing where the run is private."""
        s = self.settings
        if not s.private:
            return "" if s.local_epsilon else "NOT PRIVATE: no epsilon was given"
        if s.diagnostics:
            return "NOT PRIVATE: agents send their scores"
        return "NOT PRIVATE: the noise is seeded" if s.noise_seed is not None else ""

    def release(self) -> Release | None:
        """Return the last release; None before the first."""
        return self.released.releases[-1] if len(self.released) else None

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """Return the best finalist; without finalists what the releases of weights say, or None.

        In few dimensions that is the maximum of the average of all releases, and in many, where
        the maximum is a peak of the noise, the point of the largest posterior mean.
        """
        final = [r for r in released if self._is_final(r.round)]
        if final and self.finalists is not None:
            return self._best_finalist(final[0], released)
        if self.listed is not None:
            return self._best_of_list(self.listed, released)
        if self.space.dimension < POSTERIOR_FROM or not self._functions(released):
            return self._maximum(released)
        model = self._released_model(released)
        return self._maximum(released, model.points, int(np.argmax(model.mean)))

    def _maximum(
        self,
        released: Sequence[Release],
        candidates: Array | None = None,
        chosen: int | None = None,
    ) -> dict[str, Any] | None:
        """Return where the average of all releases of weights is largest, or None without any.

        With candidates (G, D), the ``chosen`` one of them is described instead. The average is by
        inverse variance.
        """
        every = ReleaseMemory()
        for r in self._functions(released):
            every.add(r.vector, r.deviation, r.round)
        weights = every.average()
        if weights is None:
            return None
        return self._recommendation(weights, every.deviation(), len(every), candidates, chosen)

    def _released_maximum(self, released: Sequence[Release]) -> Array | None:
        """Return the point of :meth:`_maximum`: (D,)."""
        found = self._maximum(released)
        return None if found is None else np.array(found["unit"])

    def _best_finalist(self, final: Release, released: Sequence[Release]) -> dict[str, Any]:
        """Return the finalist to recommend, from the release of the scores."""
        assert self.finalists is not None
        # Rows are means of the same vectors, which have the same norm where no clip is shorter.
        scores = final.vector.mean(axis=0)[: len(self.finalists)] / self._score_norm
        deviation = self._score_deviation(final.deviation)
        if self.listed is None:
            expected = self._released_model(released).mean_at(self.finalists)
        else:
            # A secure sum of the list may come late, after the finalists were chosen without it.
            apart = np.abs(self.finalists[:, None, :] - self.listed).max(axis=2)  # (K, G)
            expected = self._expected_of_list(released)[apart.argmin(axis=1)]
        found = best_finalist(
            self.space, self.finalists, scores, deviation, expected, len(released)
        )
        return found.to_dict()

    def _best_of_list(self, listed: Array, released: Sequence[Release]) -> dict[str, Any] | None:
        """Return the setting of the public list to recommend where finalists have no scores yet."""
        if not released:
            return None
        scores, noise = self._scores_of_list(released)
        best = int(np.argmax(self._expected_of_list(released)))
        return recommended_of(self.space, listed, scores, noise, best, len(released)).to_dict()

    def statement(self) -> PrivacyStatement:
        """Return what the whole planned schedule guarantees, and what it has spent so far."""
        if self.budget is None or self.delta is None:
            return super().statement()
        planned, at, mu = self._planned
        spent = self.budget.spent
        fixed = self.settings.sampling == "fixed-size"
        return PrivacyStatement(
            method=self.name,
            agents=self.agents,
            relation=(
                "a party's vectors replaced by any others"
                if fixed
                else "a party's vectors replaced by zero, as if it had not replied"
            ),
            trust="secure-sum" if self.settings.secure else "central",
            mechanism=(
                f"{self._releases_text()} of a sum with Gaussian noise of "
                f"multiplier {self.noise_multiplier or 0.0:.4g}, sampling rate "
                f"{self.release_plan.sampling_rate:g}, accountant {self.settings.account}"
                + self._local_text()
                + ("; the parties make the noise" if self.settings.secure else "")
            ),
            # A budget stops what it does not pay for; a release that a crash repeated was charged
            # twice.
            epsilon=max(spent, min(planned, self.settings.epsilon or math.inf)),
            delta=self.delta,
            spent=spent,
            mu=mu,
            epsilon_at=at,
            budget=self.settings.epsilon,
            exhausted=self.exhausted,
            notice=self.notice(),
            not_covered=(
                MORE_COLLUDING
                if self.settings.secure
                else "the server itself, which sees the parties' vectors",
                *NEVER_COVERED,
            ),
            versions=versions(),
            secure_sum=self._sum_facts,
        )

    def _releases_text(self) -> str:
        count = len(self.release_plan.rounds)
        return "1 release" if count == 1 else f"{count} releases"

    def _local_text(self) -> str:
        """Return what the parties' own noise guarantees in addition, where they add any."""
        s = self.settings
        if s.local_epsilon is None:
            return ""
        return (
            f"; in addition, each party's own vectors have epsilon {s.local_epsilon:g} at delta "
            f"{s.local_delta:g} against the server too"
        )

    def warnings(self) -> list[str]:
        """Return what the owner of a run should know before it begins."""
        return [*self._warning_of_rounds_left_out(), *self._warning_of_noise()]

    def _warning_of_rounds_left_out(self) -> list[str]:
        """Return a warning where ``releases`` names rounds that make no release."""
        finals = self.finals
        end = self.last_round if finals is None else finals.start
        late = self.settings.left_out(end)
        if not late:
            return []
        named = ", ".join(map(str, late))
        return [
            f"`releases` names rounds that are left out: {named}. A round releases only if agents "
            f"use the release later, and here the last such round is {end - 1}"
        ]

    def _warning_of_noise(self) -> list[str]:
        """Return a warning where the noise drowns what agents can say, to the end or for long."""
        plan, z = self.release_plan, self.noise_multiplier
        if z is None or not plan.rounds or self.delta is None or self.aggregation.bound is None:
            return []
        if self.listed is not None:
            return self._warning_of_noise_in_list(len(self.listed))
        functions = [t for t in plan.rounds if not self._is_final(t)]
        if not functions:
            return []
        noise = z * self.aggregation.bound / (self.agents * plan.sampling_rate)
        if self.secure_plan is not None:
            noise *= self.secure_plan.excess
        signal = expected_signal(self.settings.evaluations_after(functions[-1]))
        if noise <= signal:
            return self._warning_of_late_releases(functions)
        # The noise falls with N, and with z, which falls as epsilon grows.
        needed = math.ceil(self.agents * noise / signal)
        reached = z * signal / noise / math.sqrt(len(plan.rounds))
        epsilon = gaussian_epsilon(reached, self.delta) if plan.sampling_rate == 1.0 else None
        or_epsilon = "" if epsilon is None else f", or about epsilon {epsilon:.2g},"
        return [
            f"the noise of a release ({noise:.2g}) is larger than the expected signal of "
            f"{self.agents} agents ({signal:.2g}): sharing is not expected to help. "
            f"About {needed} agents{or_epsilon} would be enough"
        ]

    def _warning_of_noise_in_list(self, length: int) -> list[str]:
        """Return a warning where the noise drowns the scores of the public list."""
        assert self.finals is not None
        excess = 1.0 if self.secure_plan is None else self.secure_plan.excess
        noise = self._score_deviation(excess * self.aggregation.deviation(self.finals.start - 1))
        signal = good_score(self._listed_evaluations, length)
        if noise <= signal:
            return []
        return [
            f"the noise in the scores of the public list ({noise:.2g}) is larger than the expected "
            f"score of a good setting ({signal:.2g}): the finalists are little better than others "
            f"of the list. About {math.ceil(self.agents * noise / signal)} agents would be enough"
        ]

    def _warning_of_late_releases(self, functions: Sequence[int]) -> list[str]:
        """Return a warning where agents work alone for more than half of the planned rounds."""
        memory, alone = empty_memory(self.settings), self.last_round
        excess = 1.0 if self.secure_plan is None else self.secure_plan.excess
        drowned = True
        for round in functions:
            memory.add(np.zeros((1, 1)), excess * self.aggregation.deviation(round), round)
            if not self._is_withheld(memory):
                alone = round
                break
            drowned = is_drowned(self.settings, memory, self.space.dimension)
        if 2 * alone <= self.last_round:
            return []
        told = f"agents work alone up to round {alone} of {self.last_round}: no release before has "
        if not drowned:
            return [
                f"{told}{SCORES_PER_PARAMETER} scores of all agents together for each of the "
                f"{self.space.dimension} parameters. More agents or fewer parameters would do"
            ]
        limit = most_noise(self.space.dimension)
        return [
            f"{told}less noise than {limit:g} times what {self.agents} agents are expected to tell "
            "one another by then. More agents, a larger epsilon or earlier releases would do"
        ]

    @cached_property
    def _planned(self) -> tuple[float, dict[str, float], float | None]:
        """Epsilon of the planned schedule at the run's delta and at others, and its mu."""
        s, plan, z = self.settings, self.release_plan, self.noise_multiplier
        if z is None or not plan.rounds or self.delta is None:
            return 0.0, {}, None
        rates = [plan.sampling_rate] * len(plan.rounds)

        def at(delta: float) -> float:
            return epsilon_of(z, charged(delta), rates, s.account, self.agents)

        charged = charged_delta if s.secure else float
        plain = plan.sampling_rate == 1.0 and s.sampling == "poisson"
        mu = math.sqrt(len(plan.rounds)) / z if plain else None
        return at(self.delta), {f"{delta:g}": at(delta) for delta in DELTAS}, mu
