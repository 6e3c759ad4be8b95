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
from typing import Any, Literal

import numpy as np

from flwr_fbo.core.acquisition import all_points, argmax
from flwr_fbo.core.features import RandomFeatures, WeightPosterior
from flwr_fbo.core.gp import GaussianProcess, Path
from flwr_fbo.core.hyperparameters import Hyperparameters, fit, prior
from flwr_fbo.core.regions import Regions
from flwr_fbo.core.settings import Settings, above, at_least, setting, within
from flwr_fbo.core.space import Array, Space

#: What a draw is for; part of the key of its generator.
EXPLORE, COIN, OWN, MESSAGE, FIT, ESCAPE = range(6)
#: Random points among which one that has not failed is looked for.
ESCAPES = 64


@dataclass(frozen=True)
class ThompsonSettings(Settings):
    """How an agent models its scores and what it shares. The same for all agents of a run."""

    initial_points: int = setting(5, "random points before the first round", at_least(1))
    kernel: Literal["matern52", "matern32", "se"] = setting(
        "matern52", "kernel of the agent's own model"
    )
    lengthscale: float | None = setting(
        None, "its length scale in the unit cube; learned where unset", above(0)
    )
    noise: float | None = setting(None, "its noise variance; learned where unset", above(0))
    refit_every: int = setting(
        5, "observations between fits of the model's parameters; 0 is never", at_least(0)
    )
    standardise: bool = setting(True, "give an agent's scores mean 0 and spread 1 first")
    beta: float = setting(1.0, "width of the posterior that is sampled", above(0))
    beta_rule: Literal["constant", "theory"] = setting(
        "constant", "`theory`: beta is the norm bound B of Theorem 1, and grows with what was seen"
    )
    features: int = setting(100, "M, length of the vectors that are shared", at_least(1))
    feature_kernel: Literal["se", "matern52", "matern32"] = setting(
        "se", "kernel that the shared random features stand for"
    )
    feature_lengthscale: float = setting(0.2, "its length scale in the unit cube", above(0))
    feature_noise: float = setting(0.01, "lambda, noise variance in the shared posterior", above(0))
    message: Literal["sample", "mean"] = setting(
        "sample", "share a draw from the posterior of omega, or its mean"
    )
    diagnostics: bool = setting(
        False, "send scores to the server, for research only: the run is then NOT PRIVATE"
    )
    local_epsilon: float | None = setting(
        None, "budget of each agent against the server itself, over all it sends", above(0)
    )
    local_delta: float = setting(1e-5, "its delta", within(0, 1, open_low=True, open_high=True))
    local_clip: float | None = setting(
        None, "bound on the vector before local noise; sqrt(M) where unset", above(0)
    )
    local_answers: int = setting(10, "vectors that the local budget is to last for", at_least(1))


@dataclass(frozen=True, eq=False)
class Advice:
    """What others' vectors say: one function a sub-region."""

    weights: Array
    regions: Regions


@dataclass(frozen=True)
class Proposal:
    """Where to evaluate next, and on whose word."""

    unit: Array
    source: Literal["initial", "own", "advice", "escape"]


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
        self._scores: list[float] = []
        self._failed: list[Array] = []
        self._fits: dict[int, Hyperparameters] = {}
        self._model: GaussianProcess | None = None
        self._modelled_with: Hyperparameters | None = None

    def _rng(self, purpose: int, round: int) -> np.random.Generator:
        return np.random.default_rng([*self._seed, purpose, round])

    def explore(
        self, count: int, low: float | Array = 0.0, high: float | Array = 1.0, round: int = 0
    ) -> Array:
        """Random points of a box of the space, to begin with: (count, D)."""
        return self.space.sample(count, self._rng(EXPLORE, round), low, high)

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

    def ask(
        self, round: int, own_probability: float = 1.0, advice: Advice | None = None
    ) -> Proposal:
        """Where to evaluate in a round (Algorithm 2, lines 4-8)."""
        own = advice is None or self._rng(COIN, round).random() <= own_probability
        rng = self._rng(OWN, round)
        path = self.model().sample_path(rng, self._beta(round)) if own else self._advised(advice)
        regions = None if own or advice is None else advice.regions
        unit = argmax(path, self.space, rng, regions, self._incumbents())
        if self._has_failed(unit):
            return Proposal(self._escape(self._rng(ESCAPE, round)), "escape")
        return Proposal(unit, "own" if own else "advice")

    def _has_failed(self, unit: Array) -> bool:
        return any(np.array_equal(unit, failed) for failed in self._failed)

    def _escape(self, rng: np.random.Generator) -> Array:
        """A random point that has not failed; any point where all there are have."""
        points = all_points(self.space)
        if points is None:
            points = self.space.sample(ESCAPES, rng)
        left = [point for point in points if not self._has_failed(point)]
        return np.asarray(rng.choice(left if left else points))

    def _advised(self, advice: Advice | None) -> Path:
        if advice is None or self.features is None:
            raise ValueError("advice can only be followed with the features it was made for")
        return Path(self.features, advice.weights)

    def message(self, round: int) -> Array:
        """omega_{n,t}, what the agent shares of its model (equation 2): (M,)."""
        if self.features is None:
            raise ValueError("an agent without shared features has no message")
        design = self.features(self._embedded())
        posterior = WeightPosterior(design, self._targets(), self.settings.feature_noise)
        if self.settings.message == "mean":
            return posterior.mean()
        return posterior.sample(self._rng(MESSAGE, round))

    def model(self) -> GaussianProcess:
        """The posterior over the agent's own objective, in standardised scores."""
        parameters, known = self._parameters(), self._model
        x, y = self._embedded(), self._targets()
        if known is None or self._modelled_with != parameters:
            kernel = parameters.kernel(self.settings.kernel, self.space)
            self._model = GaussianProcess(kernel, parameters.noise, x, y)
        elif len(known.y) < len(y):
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
        return self.space.embed(np.array(self._units[:count]))

    def _targets(self, count: int | None = None) -> Array:
        y = np.array(self._scores[:count])
        if not self.settings.standardise or not y.any():
            return y
        y /= np.abs(y).max()  # squares of huge scores would overflow
        y -= y.mean()
        spread = y.std()
        return y / spread if spread > 1e-12 else np.zeros_like(y)

    def _parameters(self) -> Hyperparameters:
        """The last due fit: a function of the observations up to then, made at most once."""
        s = self.settings
        due = len(self._scores) // s.refit_every * s.refit_every if s.refit_every else 0
        if due == 0:
            return prior(self.space.dimension, s.lengthscale, s.noise)
        if due not in self._fits:
            x, y, rng = self._embedded(due), self._targets(due), self._rng(FIT, due)
            found = fit(s.kernel, self.space, x, y, rng, s.lengthscale, s.noise)
            self._fits[due] = found
            if self._on_fit is not None:
                self._on_fit(due, found)
        return self._fits[due]

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
        return np.array(self._units)[np.argsort(self._scores)[-5:]]

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
        self._scores = [float(s) for s in state["scores"]]
        self._failed = [np.array(u) for u in state["failed"]]
        self._fits, self._model = {}, None
        for count, parameters in state["fits"].items():
            self.remember_fit(int(count), parameters)
