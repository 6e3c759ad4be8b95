"""The agent of FTS and DP-FTS-DE: it evaluates points, records them, and replies with a vector.

Requests that the agent answers (see :mod:`flwr_fbo.core.protocol`):

==============  ================================  ============================
kind            values                            arrays
==============  ================================  ============================
``explore``     ``count``, ``home`` (or -1)       -
``history``     ``count``                         -
``step``        ``own-probability``,              ``advice`` (P, M), or none
                ``lengthscale`` (or none)
``final``       ``first``, ``count``              ``finalists`` (K, D)
``listed``      ``first``, ``count``              ``finalists`` (G, D)
==============  ================================  ============================

An agent with the setting ``parallel`` = k makes k evaluations at once: k in a step, and its initial
points k at a time. It proposes all k before it makes any: each proposal takes those before it as
under way. The reply is one vector for all evaluations, whatever k is.

A request ``final`` names the points to evaluate: ``count`` of the finalists, from number ``first``.
Where it expects ``omega``, the shared vector holds the scores of all finalists in place of weights
(:mod:`flwr_fbo.methods.thompson.score_vector`). A request ``listed`` is the same for a public list,
of which each agent evaluates a part; after the last setting of the list comes the first.

``advice`` holds the weights of the shared function. Any request may expect ``omega``, the shared
vector: (M,), or (M + 2,) where agents share the scale of their scores; then ``advice`` has two
more columns as well. Nothing else is ever sent, except ``diagnostics`` (2,) in runs that say that
they are not private.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation, Evaluator, Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.space import Space
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.thompson.local_privacy import with_local_privacy
from flwr_fbo.methods.thompson.sampler import Proposal, Source, ThompsonSampler
from flwr_fbo.methods.thompson.score_vector import score_vector, scores_at
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import SharedFunction, shared_function_of
from flwr_fbo.methods.thompson.together import prepare_points, prepare_vectors
from flwr_fbo.models.features import RandomFeatures, feature_lengthscales
from flwr_fbo.models.hyperparameters import Hyperparameters
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.pruning import Reports, gain_after, is_hopeless
from flwr_fbo.search.regions import Regions

KIND = "thompson"
#: Requests to evaluate settings that all agents are sent, and the source of such a point.
SETTINGS_OF_ALL: dict[str, Source] = {"final": "finalist", "listed": "list"}
#: Returns the proposal for a play, given the points (D,) that are under way.
Propose: TypeAlias = Callable[[int, Sequence[Array]], Proposal]
#: The round that keys the first draw of an agent's history before the start. The number is far
#: above the rounds of a federation, so that no draw of a round is repeated.
HISTORY = 1_000_000


def thompson_setup(
    space: Space, settings: ThompsonSettings, regions: Regions, rng: np.random.Generator
) -> Setup:
    """Return what the server sends every agent once: settings, random features, sub-regions."""
    mixed = feature_lengthscales(settings.features, space.dimension)
    kernel = kernel_named(settings.feature_kernel, settings.feature_lengthscale or mixed)
    # One draw for all agents: only vectors over the same features can be added up.
    features = RandomFeatures.draw(kernel, settings.features, space.embedding_dimension, rng)
    # A method's server may have more settings; agents get only those that concern them.
    agent_keys = ThompsonSettings.keys()
    values = {k: v for k, v in settings.to_mapping().items() if k in agent_keys}
    arrays = {
        "frequencies": features.frequencies,
        "phases": features.phases,
        "splits": np.array(regions.splits, dtype=np.float64),
    }
    return Setup(KIND, space, values, arrays)


def _regions_of(setup: Setup) -> Regions:
    return Regions(tuple(int(k) for k in setup.arrays["splits"]))


def _features_of(setup: Setup) -> RandomFeatures:
    return RandomFeatures(setup.arrays["frequencies"], setup.arrays["phases"])


#: The kind of the record that holds what the party knew when the run began.
WARM_START = "warm-start"


class ThompsonAgent:
    """The agent of one party. Its records are its state: evaluations, and fits that took time.

    Parameters
    ----------
    setup : Setup
        What the server sent: settings, random features and sub-regions.
    evaluator : Evaluator
        The party's own objective; evaluations that are recorded already are not made again.
    records : Records
        Where fits are recorded.
    seed : tuple of int
        The seed of the agent's draws.
    """

    def __init__(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> None:
        self._evaluator = evaluator
        self._regions, self._features = setup.derive(_regions_of), setup.derive(_features_of)
        #: The weights of the shared function in use, as the request held them.
        self._taken: Array | None = None
        settings = setup.read(ThompsonSettings)

        def on_fit(observations: int, found: Hyperparameters) -> None:
            records.append("fit", {"observations": observations, **vars(found)})

        self.sampler = ThompsonSampler(setup.space, settings, self._features, seed, on_fit)
        #: What finished evaluations reported, and their scores.
        self._finished: list[tuple[Reports, float]] = []
        #: What stopped evaluations reported. Both lists grow when a round's evaluations have ended,
        #: so that the rule does not depend on which of those at once ends first.
        self._stopped: list[Reports] = []
        known = _warm_start(evaluator, records)
        #: Known settings without a score (D,), which are evaluated first.
        self._to_try = [np.array(unit) for unit, score in known if score is None]
        for unit, score in known:
            if score is not None:
                self.sampler.tell(np.array(unit), score)
        # Replaying the records rebuilds the agent as it was, to the last bit.
        known_points = np.array([e.unit for e in evaluator.history], dtype=np.float64)
        for evaluation, point in zip(evaluator.history, known_points, strict=True):
            self._tell(evaluation, point)
        for record in records.read("fit"):
            self.sampler.remember_fit(record["observations"], record)

    def answer(self, request: Request) -> Reply:
        """Make the evaluations of a request that are not recorded yet, and return the reply."""
        self.work(request)
        return self.share(request)

    @property
    def has_evaluations(self) -> bool:
        """Return whether the agent has made any evaluation, failed ones included."""
        return bool(self._evaluator.history)

    def has_work(self, request: Request) -> bool:
        """Return whether :meth:`work` would make any evaluation."""
        plays = int(request.values.get("count", self._parallel))
        return any(self._evaluator.recorded(request.round, p) is None for p in range(plays))

    def seeks_one_point(self, request: Request) -> bool:
        """Return whether the next thing that :meth:`work` does is to ask for one new point."""
        if request.kind != "step" or self._parallel > 1 or not self.has_work(request):
            return False
        begun = self._evaluator.begun(request.round) is not None
        return not begun and self._next_to_try([]) is None

    @property
    def _parallel(self) -> int:
        """Return how many evaluations the agent makes at once."""
        return self.sampler.settings.parallel

    def work(self, request: Request) -> None:
        """Make the evaluations of a request that are not recorded yet."""
        self._take_shared_function(request)
        self._evaluator.is_hopeless = self._is_hopeless
        try:
            self._work(request)
        finally:
            del self._evaluator.is_hopeless  # an evaluator that is kept must not keep its agent

    def _work(self, request: Request) -> None:
        """Make the evaluations of a request by its kind."""
        if request.kind == "explore":
            self._explore(request)
        elif request.kind == "history":
            self._history(request)
        elif request.kind == "step":
            self._step(request)
        elif request.kind in SETTINGS_OF_ALL:
            self._settings_of_all(request)
        else:
            raise ValueError(
                "a request's `kind` must be explore, history, step, final or listed, but got "
                f"{request.kind!r}"
            )

    def share(self, request: Request) -> Reply:
        """Return the arrays that a request expects, from the evaluations made so far."""
        self._take_shared_function(request)
        arrays: dict[str, Array] = {}
        if "omega" in request.expects:
            arrays["omega"] = self._shared_vector(request)
        # A server can ask for anything: scores leave only in a run that says so in its setup.
        if "diagnostics" in request.expects and self.sampler.settings.diagnostics:
            arrays["diagnostics"] = self._diagnostics()
        return Reply(arrays)

    def _shared_vector(self, request: Request) -> Array:
        """Return the vector of weights, or that of the scores of the finalists of a request."""
        if "finalists" not in request.arrays:
            return self.sampler.message(request.round)
        settings = self.sampler.settings
        scores = scores_at(request.arrays["finalists"], self._evaluator.history)
        return score_vector(scores, settings.vector_length, settings.max_norm)

    def _diagnostics(self) -> Array:
        """Return the number of evaluations and the best score (0 before the first one): (2,)."""
        # Scores leave the agent here, so the run is not private.
        best = self.sampler.own_model.best_score()
        count = len(self._evaluator.history)
        return np.array([count, 0.0 if best is None else best], dtype=np.float64)

    def _explore(self, request: Request) -> None:
        """Evaluate random points of the home sub-region (DP-FTS-DE Algorithm 2, lines 1-2)."""
        count, home = int(request.values["count"]), int(request.values["home"])
        low: float | Array = 0.0 if home < 0 else self._regions.low[home]
        high: float | Array = 1.0 if home < 0 else self._regions.high[home]
        points = self.sampler.explore(count, low, high, request.round)

        def propose(play: int, pending: Sequence[Array]) -> Proposal:
            return Proposal(points[play], "initial")

        self._evaluate_all(request.round, range(count), propose)

    def _history(self, request: Request) -> None:
        """Make t_n evaluations by the agent's own model before the start (FTS App. D.2.1)."""
        count = int(request.values["count"])
        first = self.sampler.explore(self.sampler.settings.initial_points)[:count]

        def initial(play: int, pending: Sequence[Array]) -> Proposal:
            return Proposal(first[play], "initial")

        def modelled(play: int, pending: Sequence[Array]) -> Proposal:
            return Proposal(self.sampler.ask(HISTORY + play, pending=pending).unit, "own")

        # Known settings belong to rounds, and this history comes before them.
        self._evaluate_all(request.round, range(len(first)), initial, warm_start=False)
        self._evaluate_all(request.round, range(len(first), count), modelled, warm_start=False)

    def _step(self, request: Request) -> None:
        """Choose a point and evaluate it (DP-FTS-DE Algorithm 2, lines 4-9)."""
        probability = float(request.values["own-probability"])
        follows = False

        def propose(play: int, pending: Sequence[Array]) -> Proposal:
            # The shared function has one maximum: one of the k follows it at the most.
            nonlocal follows
            own = 1.0 if follows else probability
            proposal = self.sampler.ask(request.round, own, play=play, pending=pending)
            follows = follows or proposal.source == "advice"
            return proposal

        self._evaluate_all(request.round, range(self._parallel), propose)

    def _settings_of_all(self, request: Request) -> None:
        """Evaluate the finalists of a round, or the agent's part of the public list."""
        first, count = int(request.values["first"]), int(request.values["count"])
        settings, source = request.arrays["finalists"], SETTINGS_OF_ALL[request.kind]

        def propose(play: int, pending: Sequence[Array]) -> Proposal:
            return Proposal(settings[(first + play) % len(settings)], source)

        self._evaluate_all(request.round, range(count), propose, warm_start=False)

    def _evaluate_all(
        self, round: int, plays: Sequence[int], propose: Propose, *, warm_start: bool = True
    ) -> None:
        """Make the evaluations of a round that are not recorded, ``parallel`` at a time."""
        k = self._parallel
        # The same plays are together whenever this is called, also after a crash.
        for batch in (plays[first : first + k] for first in range(0, len(plays), k)):
            points = self._points(round, batch, propose, warm_start)
            if k == 1:
                made = [self._evaluator(u, round=round, play=p, source=s) for p, u, s in points]
            else:
                made = self._evaluator.at_once(points, round=round)
            for evaluation in made:
                self._tell(evaluation, np.array(evaluation.unit))

    def _points(
        self, round: int, plays: Sequence[int], propose: Propose, warm_start: bool
    ) -> list[tuple[int, Array, str]]:
        """Return the play, the point and the source of each evaluation that is not recorded."""
        points: list[tuple[int, Array, str]] = []
        new = [p for p in plays if self._evaluator.recorded(round, p) is None]
        begun = {p: found for p in new if (found := self._evaluator.begun(round, p)) is not None}
        for play in new:
            # What was begun goes on with its point, whatever would be proposed by now.
            unit, source = begun.get(play, (None, ""))
            if unit is None and warm_start:
                unit, source = self._next_to_try([s for _, _, s in points]), "warm-start"
            if unit is None:
                later = [u for p, (u, _) in begun.items() if p > play]
                proposal = propose(play, [*(u for _, u, _ in points), *later])
                unit, source = proposal.unit, proposal.source
            points.append((play, unit, source))
        return points

    def _next_to_try(self, under_way: Sequence[str]) -> Array | None:
        """Return the next known setting that has no score yet; None where none is left.

        ``under_way`` are the sources of the evaluations that are about to be made.
        """
        if not self._to_try:
            return None
        sources = [*(e.source for e in self._evaluator.history), *under_way]
        tried = sources.count("warm-start")
        return self._to_try[tried] if tried < len(self._to_try) else None

    def _take_shared_function(self, request: Request) -> None:
        """Use the shared function of a request; without one, the function before stays in use."""
        weights = request.arrays.get("advice")
        if weights is not None and weights is not self._taken:
            settings, learned = self.sampler.settings, _learned(request)
            self.use(weights, shared_function_of(weights, self._regions, settings, learned))

    def use(self, weights: Array, shared: SharedFunction) -> None:
        """Use a shared function, made from the weights of a request, from now on."""
        self.sampler.set_shared_function(shared)
        self._taken = weights

    def _tell(self, evaluation: Evaluation, point: Array) -> None:
        score = evaluation.score
        if evaluation.pruned and score is not None:
            # What it showed, and what others gained from there to their end.
            score += gain_after(evaluation.steps, self._finished)
            self._stopped.append(evaluation.reports)
        elif score is not None:
            self._finished.append((evaluation.reports, score))
        self.sampler.tell(point, score)

    def _is_hopeless(self, reports: Reports) -> bool:
        """Return whether an evaluation with these reports should stop."""
        rule, startup = self.sampler.settings.pruning, self.sampler.settings.pruning_startup
        finished = [reported for reported, _ in self._finished]
        return is_hopeless(rule, reports, finished, self._stopped, startup)


class ThompsonAgents:
    """Computes the points, the fits and the vectors of many agents at once."""

    def can(self, agent: Agent, request: Request) -> bool:
        """Return whether an agent evaluates and replies in two steps: one without local privacy."""
        return isinstance(agent, ThompsonAgent)

    def prepare_work(self, agents: Sequence[ThompsonAgent], requests: Sequence[Request]) -> None:
        """Compute the points of agents that seek one, of the round that the requests are of."""
        _share_functions(agents, requests)
        asking = [a.sampler for a, r in zip(agents, requests, strict=True) if a.seeks_one_point(r)]
        if asking:
            prepare_points(asking, requests[0].round)

    def work(self, agent: ThompsonAgent, request: Request) -> None:
        """Let an agent make the evaluations of a request that are not recorded yet."""
        agent.work(request)

    def prepare_replies(self, agents: Sequence[ThompsonAgent], requests: Sequence[Request]) -> None:
        """Compute the vectors of agents that send one."""
        sending = zip(agents, requests, strict=True)
        prepare_vectors([agent.sampler for agent, r in sending if "omega" in r.expects])

    def reply(self, agent: ThompsonAgent, request: Request) -> Reply:
        """Return the arrays that a request expects."""
        return agent.share(request)


def _share_functions(agents: Sequence[ThompsonAgent], requests: Sequence[Request]) -> None:
    """Give agents whose requests hold the same weights one shared function."""
    made: dict[tuple[int, ...], SharedFunction] = {}
    for agent, request in zip(agents, requests, strict=True):
        weights = request.arrays.get("advice")
        if weights is None:
            continue
        # Each request has its own view of the server's array: the same memory, the same weights.
        key = weights.__array_interface__["data"][0], *weights.shape, *weights.strides
        if key not in made:
            try:
                settings, learned = agent.sampler.settings, _learned(request)
                made[key] = shared_function_of(weights, agent._regions, settings, learned)
            except ValueError:
                continue  # the agent meets the error when it works, and declines
        agent.use(weights, made[key])


def _learned(request: Request) -> float | None:
    """Return the length scale that a request says the federation learned; None without one."""
    learned = request.values.get("lengthscale")
    return None if learned is None else float(learned)


def _warm_start(
    evaluator: Evaluator, records: Records
) -> Sequence[tuple[Sequence[float], float | None]]:
    """Return what the party knew when the run began: points, and their scores or None."""
    stored = records.read(WARM_START)
    if stored:
        return [(unit, score) for unit, score in stored[0]["points"]]
    if evaluator.history:
        return []  # a run that has begun stays as it is
    known = list(evaluator.warm_start())
    if known:
        # Recorded, because a study may have more trials at the next message.
        records.append(WARM_START, {"points": [[list(unit), score] for unit, score in known]})
    return known


def make_agent(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], owner: Owner
) -> Agent:
    """Make an agent whose vectors are made private where the run or the owner asks for it."""
    return with_local_privacy(ThompsonAgent(setup, evaluator, records, seed), setup, records, owner)
