"""The agent of FTS and DP-FTS-DE: it evaluates points, records them, and replies with a vector.

Requests that the agent answers (see :mod:`flwr_fbo.core.protocol`):

==============  ================================  ============================
kind            values                            arrays
==============  ================================  ============================
``explore``     ``count``, ``home`` (or -1)       -
``history``     ``count``                         -
``step``        ``own-probability``               ``advice`` (P, M), or none
==============  ================================  ============================

``advice`` holds the weights of the shared function. Any request may expect ``omega``, the shared
vector: (M,), or (M + 2,) where agents share the scale of their scores; then ``advice`` has two
more columns as well. Nothing else is ever sent, except ``diagnostics`` (2,) in runs that say that
they are not private.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation, Evaluator, Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.space import Space
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.thompson.local_privacy import with_local_privacy
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import shared_function_of
from flwr_fbo.models.features import RandomFeatures, feature_lengthscales
from flwr_fbo.models.hyperparameters import Hyperparameters
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.regions import Regions

KIND = "thompson"
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
        self._regions = Regions(tuple(int(k) for k in setup.arrays["splits"]))
        self._features = RandomFeatures(setup.arrays["frequencies"], setup.arrays["phases"])
        settings = setup.read(ThompsonSettings)

        def on_fit(observations: int, found: Hyperparameters) -> None:
            records.append("fit", {"observations": observations, **asdict(found)})

        self.sampler = ThompsonSampler(setup.space, settings, self._features, seed, on_fit)
        # Replaying the records rebuilds the agent as it was, to the last bit.
        for evaluation in evaluator.history:
            self._tell(evaluation)
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
        plays = int(request.values.get("count", 1))
        return any(self._evaluator.recorded(request.round, p) is None for p in range(plays))

    def work(self, request: Request) -> None:
        """Make the evaluations of a request that are not recorded yet."""
        self._take_shared_function(request)
        if request.kind == "explore":
            self._explore(request)
        elif request.kind == "history":
            self._history(request)
        elif request.kind == "step":
            self._step(request)
        else:
            raise ValueError(
                f"a request's `kind` must be explore, history or step, but got {request.kind!r}"
            )

    def share(self, request: Request) -> Reply:
        """Return the arrays that a request expects, from the evaluations made so far."""
        self._take_shared_function(request)
        arrays: dict[str, Array] = {}
        if "omega" in request.expects:
            arrays["omega"] = self.sampler.message(request.round)
        # A server can ask for anything: scores leave only in a run that says so in its setup.
        if "diagnostics" in request.expects and self.sampler.settings.diagnostics:
            arrays["diagnostics"] = self._diagnostics()
        return Reply(arrays)

    def _diagnostics(self) -> Array:
        """Return the number of evaluations and the best score (0 before the first one): (2,)."""
        # Scores leave the agent here, so the run is not private.
        best = self.sampler.best()
        count = len(self._evaluator.history)
        return np.array([count, 0.0 if best is None else best[1]], dtype=np.float64)

    def _explore(self, request: Request) -> None:
        """Evaluate random points of the home sub-region (DP-FTS-DE Algorithm 2, lines 1-2)."""
        count, home = int(request.values["count"]), int(request.values["home"])
        low: float | Array = 0.0 if home < 0 else self._regions.low[home]
        high: float | Array = 1.0 if home < 0 else self._regions.high[home]
        points = self.sampler.explore(count, low, high, request.round)
        for play, unit in enumerate(points):
            self._evaluate(unit, request.round, play, "initial")

    def _history(self, request: Request) -> None:
        """Make t_n evaluations by the agent's own model before the start (FTS App. D.2.1)."""
        count = int(request.values["count"])
        first = self.sampler.explore(self.sampler.settings.initial_points)[:count]
        for play in range(count):
            if self._evaluator.recorded(request.round, play) is None:
                modelled = play >= len(first)
                unit = self.sampler.ask(HISTORY + play).unit if modelled else first[play]
                self._evaluate(unit, request.round, play, "own" if modelled else "initial")

    def _step(self, request: Request) -> None:
        """Choose a point and evaluate it (DP-FTS-DE Algorithm 2, lines 4-9)."""
        if self._evaluator.recorded(request.round) is not None:
            return  # the request was delivered twice, or the agent crashed after evaluating
        probability = float(request.values["own-probability"])
        proposal = self.sampler.ask(request.round, probability)
        self._evaluate(proposal.unit, request.round, 0, proposal.source)

    def _take_shared_function(self, request: Request) -> None:
        """Use the shared function of a request; without one, the function before stays in use."""
        if "advice" in request.arrays:
            weights, settings = request.arrays["advice"], self.sampler.settings
            self.sampler.set_shared_function(shared_function_of(weights, self._regions, settings))

    def _evaluate(self, unit: Array, round: int, play: int, source: str) -> None:
        if self._evaluator.recorded(round, play) is None:
            self._tell(self._evaluator(unit, round=round, play=play, source=source))

    def _tell(self, evaluation: Evaluation) -> None:
        self.sampler.tell(np.array(evaluation.unit), evaluation.score)


def make_agent(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], owner: Owner
) -> Agent:
    """Make an agent whose vectors are made private where the run or the owner asks for it."""
    return with_local_privacy(ThompsonAgent(setup, evaluator, records, seed), setup, records, owner)
