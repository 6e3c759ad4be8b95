r"""One agent's optimiser: Thompson sampling on its own model, or following others' advice.

Notation (DP-FTS-DE Algorithm 2, FTS Algorithm 1)

==========================  =====================================  ==========
paper                       here                                   shape
==========================  =====================================  ==========
``N_init``                  ``sampler.explore(count, low, high)``  (count, D)
``p_t``                     ``own_probability``                    scalar
``x_t^n``                   ``sampler.ask(t, ...).unit``           (D,)
``y_t^n``                   ``sampler.tell(unit, score)``          scalar
``omega_{n,t}``             ``sampler.message(t)``                 (M,)
``omega_{t-1}^(i)``         ``advice.weights``                     (P, M)
``beta_t``                  ``settings.beta``, ``beta_rule``       scalar
==========================  =====================================  ==========

The sampler is a restartable state machine. Its state is what it was told; every draw comes from
a generator keyed by the seed, the purpose and the round, so that asking again, or asking a
copy restored from :meth:`ThompsonSampler.state_dict`, gives the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures, WeightPosterior
from flwr_fbo.models.gp import GaussianProcess, Path
from flwr_fbo.models.hyperparameters import Hyperparameters, count_at_last_fit, fit, prior_medians
from flwr_fbo.models.prior_mean import PRIOR_MEAN, PriorMeanProcess
from flwr_fbo.models.score_scale import standardise_scores
from flwr_fbo.models.surface import Surface
from flwr_fbo.search.acquisition import all_points, argmax
from flwr_fbo.search.expected_improvement import Improvement
from flwr_fbo.search.regions import Regions

#: What a draw is for; part of the key of its generator.
EXPLORE, COIN, OWN, MESSAGE, FIT, ESCAPE, MIDDLE = range(7)
#: What the middle of a range leaves out at either end.
MARGIN = 0.25
#: Random points among which one that has not failed is looked for.
ESCAPES = 64


Source: TypeAlias = Literal["initial", "own", "advice", "escape"]


@dataclass(frozen=True, eq=False)
class Advice:
    """What others' vectors say: one function a sub-region."""

    weights: Array
    regions: Regions
    #: The others' mean score and its spread, where they were told.
    scale: tuple[float, float] | None = None


def advice_of(weights: Array, regions: Regions, settings: ThompsonSettings) -> Advice:
    """What a sum of agents' vectors (P, M) or (P, M + 2) says; one row is for all sub-regions."""
    if len(weights) == 1:
        regions = Regions((1,) * len(regions.splits))
    expected = (regions.count, settings.vector_length)
    if weights.shape != expected or not np.all(np.isfinite(weights)):
        raise ValueError(f"`advice` must be finite and {expected}, but got {weights.shape}")
    functions, numbers = weights[:, : settings.features], weights[:, settings.features :]
    scale = None if settings.scale is None else settings.scale.decode(numbers.mean(axis=0))
    return Advice(functions, regions, scale)


@dataclass(frozen=True)
class Proposal:
    """Where to evaluate next, and on whose word."""

    unit: Array
    source: Source


class ThompsonSampler:
    """Explore, then ask and tell in turn; see the module's notation."""

    def __init__(
        self,
        space: Space,
        settings: ThompsonSettings,
        features: RandomFeatures | None = None,
        seed: tuple[int, ...] = (0,),
        on_fit: Callable[[int, Hyperparameters], None] | None = None,
    ) -> None:
        self.space, self.settings, self.features = space, settings, features
        self._seed = seed
        self._on_fit = on_fit
        self._units: list[Array] = []
        self._stacked = np.zeros((0, space.dimension))
        self._scores: list[float] = []
        self._values = np.zeros(0)
        self._standard: tuple[Array, tuple[float, float] | None, Array] | None = None
        self._failed: list[Array] = []
        self._fits: dict[int, Hyperparameters] = {}
        self._model: GaussianProcess | None = None
        self._modelled_with: Hyperparameters | None = None
        self._advice: Advice | None = None

    def _rng(self, purpose: int, round: int) -> np.random.Generator:
        return np.random.default_rng([*self._seed, purpose, round])

    def explore(
        self, count: int, low: float | Array = 0.0, high: float | Array = 1.0, round: int = 0
    ) -> Array:
        """Points of a box of the space, to begin with: (count, D)."""
        points = self.space.sample(count, self._rng(EXPLORE, round), low, high)
        if self.settings.first_point == "middle" and round == 0 and count:
            points = np.vstack([self._middle(), points[1:]])
        return points

    def _middle(self) -> Array:
        """A random point of the middle half of every range, and any category: (1, D)."""
        parameters = self.space.parameters.values()
        side = np.array([0.0 if isinstance(p, Categorical) else MARGIN for p in parameters])
        return self.space.snap(self._rng(MIDDLE, 0).uniform(side, 1.0 - side)[None, :])

    def tell(self, unit: Array, score: float | None) -> None:
        """Take in an evaluation; a failed one (None) is avoided and otherwise ignored."""
        point = np.asarray(unit, dtype=np.float64)
        if score is None:
            self._failed.append(point)
            return
        if not math.isfinite(score):
            raise ValueError(f"`score` must be finite (None for a failure), but got {score!r}")
        self._units.append(point)
        self._scores.append(float(score))

    def heed(self, advice: Advice | None) -> None:
        """Take in what the others say, for the points and messages from now on."""
        self._advice = advice

    def ask(
        self, round: int, own_probability: float = 1.0, advice: Advice | None = None
    ) -> Proposal:
        """Where to evaluate in a round (Algorithm 2, lines 4-8)."""
        if advice is not None:
            self.heed(advice)
        return self._alone(round) if self._is_prior else self._tossed(round, own_probability)

    @property
    def _is_prior(self) -> bool:
        return self.settings.advice_use == "prior"

    def _tossed(self, round: int, own_probability: float) -> Proposal:
        """The papers' agent: its own model, or with probability 1 - p_t the others' function."""
        advice = self._advice
        if advice is None or self._rng(COIN, round).random() <= own_probability:
            return self._alone(round)
        rng = self._rng(OWN, round)
        return self._searched(self._told(advice), rng, round, "advice", advice.regions)

    def _alone(self, round: int) -> Proposal:
        """By the agent's own model, in which advice may be the prior mean."""
        rng, prior = self._rng(OWN, round), self._prior
        if self.settings.acquisition == "improvement" and prior is None and self._is_flat():
            # On a plateau improvement is largest in the corners, and again in the corners.
            return Proposal(self._untried(self._rng(ESCAPE, round)), "initial")
        surface: Surface
        if self.settings.acquisition == "improvement":
            surface = Improvement.over(self.trended())
        elif self._is_prior:
            surface = self.trended().sample_path(rng, self._beta(round))
        else:
            surface = self.model().sample_path(rng, self._beta(round))
        source: Source = "own" if self._scores or prior is None else "advice"
        return self._searched(surface, rng, round, source, None if prior is None else prior.regions)

    def _is_flat(self, count: int | None = None) -> bool:
        """Whether the first scores are all the same, so that they teach nothing of f's shape."""
        known = self._scores[:count]
        return all(score == known[0] for score in known)

    @property
    def _prior(self) -> Advice | None:
        return self._advice if self._is_prior else None

    def _searched(
        self,
        surface: Surface,
        rng: np.random.Generator,
        round: int,
        source: Source,
        regions: Regions | None,
    ) -> Proposal:
        unit = argmax(surface, self.space, rng, regions, self._incumbents())
        if self._has_failed(unit):
            return Proposal(self._untried(self._rng(ESCAPE, round)), "escape")
        return Proposal(unit, source)

    def _has_failed(self, unit: Array) -> bool:
        return any(np.array_equal(unit, failed) for failed in self._failed)

    def _untried(self, rng: np.random.Generator) -> Array:
        """A random point that has not failed; any point where all there are have."""
        points = all_points(self.space)
        if points is None:
            points = self.space.sample(ESCAPES, rng)
        left = [point for point in points if not self._has_failed(point)]
        return np.asarray(rng.choice(left if left else points))

    def _told(self, advice: Advice) -> Path:
        if self.features is None:
            raise ValueError("advice can only be followed with the features it was made for")
        return Path(self.features, advice.weights)

    def message(self, round: int) -> Array:
        """What the agent shares: omega_{n,t} (equation 2) and, where it can, its scores' scale."""
        if self.features is None:
            raise ValueError("an agent without shared features has no message")
        s = self.settings
        known = self._embedded(), self._targets()
        posterior = WeightPosterior.at(self.features, *known, s.feature_noise)
        omega = posterior.mean() if s.message == "mean" else None
        if omega is None:
            omega = posterior.sample(self._rng(MESSAGE, round))
        if s.vector_bound is not None:
            omega = omega * min(1.0, s.vector_bound / max(float(np.linalg.norm(omega)), 1e-300))
        if s.scale is None:
            return omega
        return np.concatenate([omega, s.scale.encode(self._known)])

    def trended(self) -> PriorMeanProcess:
        """The posterior over the agent's own objective, with the advice as its prior mean."""
        advice, process = self._prior, self.model()
        if advice is None:
            return PriorMeanProcess(process)
        return PriorMeanProcess(process, self._told(advice), self._places(advice))

    def _places(self, advice: Advice, count: int | None = None) -> Indices:
        return advice.regions.locate(self._rows[:count])

    @property
    def _rows(self) -> Array:
        """The units that have scores (t, D), stacked once."""
        if len(self._stacked) != len(self._units):
            self._stacked = np.array(self._units)
        return self._stacked

    @property
    def _known(self) -> Array:
        """The scores (t,), as one array."""
        if len(self._values) != len(self._scores):
            self._values = np.array(self._scores)
        return self._values

    def model(self) -> GaussianProcess:
        """The posterior over the agent's own objective, in standardised scores."""
        parameters, known = self._parameters(), self._model
        x, y = self._embedded(), self._targets()
        if known is None or self._modelled_with != parameters:
            kernel = parameters.kernel(self.settings.kernel, self.space)
            self._model = GaussianProcess(kernel, parameters.noise, x, y)
        elif not np.array_equal(known.y, y):
            self._model = known.with_data(x, y)
        self._modelled_with = parameters
        assert self._model is not None
        return self._model

    def best(self) -> tuple[Array, float] | None:
        """The best point and score so far; None before the first success."""
        if not self._scores:
            return None
        index = int(np.argmax(self._scores))
        return self._units[index], self._scores[index]

    def _embedded(self, count: int | None = None) -> Array:
        if not self._units:
            return np.zeros((0, self.space.embedding_dimension))
        return self.space.embed(self._rows[:count])

    def _targets(self, count: int | None = None) -> Array:
        y, told = self._known, None if self._advice is None else self._advice.scale
        if not self.settings.standardise:
            return y[:count]
        if count is not None:
            return standardise_scores(y[:count], told)
        if self._standard is None or self._standard[0] is not y or self._standard[1] != told:
            self._standard = y, told, standardise_scores(y, told)
        return self._standard[2]

    def _parameters(self) -> Hyperparameters:
        """The last due fit: of the observations up to then, made at most once."""
        s = self.settings
        due = count_at_last_fit(len(self._scores), s.refit_every)
        if due == 0 or self._is_flat(due):
            return prior_medians(self.space.dimension, s.lengthscale, s.noise)
        if due not in self._fits:
            x, y, rng = self._embedded(due), self._unexplained(due), self._rng(FIT, due)
            before = self._fits.get(count_at_last_fit(due - 1, s.refit_every))
            found = fit(s.kernel, self.space, x, y, rng, s.lengthscale, s.noise, before)
            self._fits[due] = found
            if self._on_fit is not None:
                self._on_fit(due, found)
        return self._fits[due]

    def _unexplained(self, count: int) -> Array:
        """The first scores less what the advice foretold: what the agent's kernel is to model."""
        y, advice = self._targets(count), self._prior
        if advice is None:
            return y
        foretold: Array = self._told(advice).value(
            self._embedded(count), self._places(advice, count)
        )
        return np.asarray(y - PRIOR_MEAN[1] * (foretold - foretold.mean()))

    def _beta(self, round: int) -> float:
        """beta_t: constant, or B + sigma sqrt(2 (gamma + 1 + log(4 / delta))) with delta = .1.

        For gamma we take the information gained by the agent's actual observations: the bound
        it stands for holds with it, and the maximum over all point sets is not computable.
        """
        if self.settings.beta_rule == "constant":
            return self.settings.beta
        model = self.model()
        width = 2.0 * (model.information_gain() + 1.0 + math.log(4.0 / 0.1))
        return self.settings.beta + math.sqrt(model.noise * width)

    def _incumbents(self) -> Array | None:
        if not self._scores:
            return None
        return np.asarray(self._rows[np.argsort(self._known)[-5:]])

    def remember_fit(self, observations: int, parameters: Mapping[str, Any]) -> None:
        """Put back a fit that was made before, so that it need not be made again."""
        self._fits[observations] = Hyperparameters(
            tuple(parameters["lengthscales"]), parameters["variance"], parameters["noise"]
        )

    def state_dict(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "units": [u.tolist() for u in self._units],
            "scores": list(self._scores),
            "failed": [u.tolist() for u in self._failed],
            "fits": {str(n): asdict(f) for n, f in self._fits.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        self._units = [np.array(u) for u in state["units"]]
        self._stacked = np.array(self._units).reshape(-1, self.space.dimension)
        self._scores = [float(s) for s in state["scores"]]
        self._values = np.array(self._scores)
        self._failed = [np.array(u) for u in state["failed"]]
        self._fits, self._model = {}, None
        for count, parameters in state["fits"].items():
            self.remember_fit(int(count), parameters)
