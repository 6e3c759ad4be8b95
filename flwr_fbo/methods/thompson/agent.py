"""The agent of FTS and DP-FTS-DE behind the common protocol: evaluate, remember, share omega.

Requests it knows (see :mod:`flwr_fbo.core.protocol`):

==============  ================================  ============================
kind            values                            arrays
==============  ================================  ============================
``explore``     ``count``, ``home`` (or -1)       -
``history``     ``count``                         -
``step``        ``own-probability``               ``advice`` (P, M), or none
==============  ================================  ============================

Any may expect ``omega`` in the reply: (M,), or (M + 2,) where agents share the scale of their
scores too. Nothing else is ever sent, but ``diagnostics`` (2,) in runs that say they are not
private. Advice has as many columns.
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
from flwr_fbo.methods.thompson.sampler import ThompsonSampler, advice_of
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures, feature_lengthscales
from flwr_fbo.models.hyperparameters import Hyperparameters
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.regions import Regions

KIND = "thompson"
#: Rounds of an agent's history before the start are keyed apart from the federation's.
HISTORY = 1_000_000


def thompson_setup(
    space: Space, settings: ThompsonSettings, regions: Regions, rng: np.random.Generator
) -> Setup:
    """What the server tells every agent once: settings, shared features, sub-regions."""
    mixed = feature_lengthscales(settings.features, space.dimension)
    kernel = kernel_named(settings.feature_kernel, settings.feature_lengthscale or mixed)
    features = RandomFeatures.draw(kernel, settings.features, space.embedding_dimension, rng)
    agent_keys = ThompsonSettings.keys()
    values = {k: v for k, v in settings.to_mapping().items() if k in agent_keys}
    arrays = {
        "frequencies": features.frequencies,
        "phases": features.phases,
        "splits": np.array(regions.splits, dtype=np.float64),
    }
    return Setup(KIND, space, values, arrays)


class ThompsonAgent:
    """One party. Its records are its state: evaluations, and fits that took time."""

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
        for evaluation in evaluator.history:
            self._tell(evaluation)
        for record in records.read("fit"):
            self.sampler.remember_fit(record["observations"], record)

    def answer(self, request: Request) -> Reply:
        """See :class:`flwr_fbo.core.protocol.Agent`."""
        self.work(request)
        return self.share(request)

    @property
    def ignorant(self) -> bool:
        """Whether nothing was evaluated yet."""
        return not self._evaluator.history

    def due(self, request: Request) -> bool:
        """Whether :meth:`work` would evaluate anything."""
        plays = int(request.values.get("count", 1))
        return any(self._evaluator.recorded(request.round, p) is None for p in range(plays))

    def work(self, request: Request) -> None:
        """Evaluate what is asked for and is not recorded yet."""
        self._heed(request)
        if request.kind == "explore":
            self._explore(request)
        elif request.kind == "history":
            self._history(request)
        elif request.kind == "step":
            self._step(request)
        else:
            raise ValueError(f"a Thompson agent does not know the request {request.kind!r}")

    def share(self, request: Request) -> Reply:
        """What is expected, of what is known now."""
        self._heed(request)
        arrays: dict[str, Array] = {}
        if "omega" in request.expects:
            arrays["omega"] = self.sampler.message(request.round)
        if "diagnostics" in request.expects:
            arrays["diagnostics"] = self._diagnostics()
        return Reply(arrays)

    def _diagnostics(self) -> Array:
        """Evaluations and best score so far (0 before the first): research only, not private."""
        best = self.sampler.best()
        count = len(self._evaluator.history)
        return np.array([count, 0.0 if best is None else best[1]], dtype=np.float64)

    def _explore(self, request: Request) -> None:
        count, home = int(request.values["count"]), int(request.values["home"])
        low: float | Array = 0.0 if home < 0 else self._regions.low[home]
        high: float | Array = 1.0 if home < 0 else self._regions.high[home]
        points = self.sampler.explore(count, low, high, request.round)
        for play, unit in enumerate(points):
            self._evaluate(unit, request.round, play, "initial")

    def _history(self, request: Request) -> None:
        """A Bayesian optimisation of one's own before the start: t_n evaluations (FTS D.2.1)."""
        count = int(request.values["count"])
        first = self.sampler.explore(self.sampler.settings.initial_points)[:count]
        for play in range(count):
            if self._evaluator.recorded(request.round, play) is None:
                alone = play >= len(first)
                unit = self.sampler.ask(HISTORY + play).unit if alone else first[play]
                self._evaluate(unit, request.round, play, "own" if alone else "initial")

    def _step(self, request: Request) -> None:
        if self._evaluator.recorded(request.round) is not None:
            return  # the message was delivered twice, or the agent crashed after evaluating
        probability = float(request.values["own-probability"])
        proposal = self.sampler.ask(request.round, probability)
        self._evaluate(proposal.unit, request.round, 0, proposal.source)

    def _heed(self, request: Request) -> None:
        """Take in the advice that comes with a request; without any, that of before stays."""
        if "advice" in request.arrays:
            settings = self.sampler.settings
            self.sampler.heed(advice_of(request.arrays["advice"], self._regions, settings))

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
