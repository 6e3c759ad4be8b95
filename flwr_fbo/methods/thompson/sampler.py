r"""One agent's optimiser: it proposes points, takes in their scores, and makes shared vectors.

Notation (DP-FTS-DE Algorithm 2, FTS Algorithm 1)

==========================  =====================================  ==========
paper                       here                                   shape
==========================  =====================================  ==========
``N_init``                  ``sampler.explore(count, low, high)``  (count, D)
``p_t``                     ``own_probability``                    scalar
``x_t^n``                   ``sampler.ask(t, ...).unit``           (D,)
``y_t^n``                   ``sampler.tell(unit, score)``          scalar
``omega_{n,t}``             ``sampler.message(t)``                 (M,)
``omega_{t-1}^(i)``         ``shared.weights[i]``                  (M,)
``f_t^n``                   a path of ``sampler.own_model``        a function
==========================  =====================================  ==========

Two things differ from the papers where the settings say so. With ``advice-use = prior`` an agent
does not choose between its own model and the shared function: the shared function is the prior
mean of its own model. With ``acquisition = improvement`` the own model is searched for the
largest expected improvement, and not for the maximum of a sampled function.

The sampler is a restartable state machine. Its state is the evaluations that it has taken in.
Every draw comes from a generator with a key of seed, purpose and round. A repeated question, or
a question to a copy restored from :meth:`ThompsonSampler.state_dict`, therefore gives the same
answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.methods.thompson.failures import Failures
from flwr_fbo.methods.thompson.own_model import OwnModel
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.models.features import RandomFeatures, WeightPosterior
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.hyperparameters import Hyperparameters
from flwr_fbo.models.success import SuccessModel
from flwr_fbo.models.surface import Surface
from flwr_fbo.search.acquisition import all_points, argmax
from flwr_fbo.search.expected_improvement import Improvement
from flwr_fbo.search.regions import Regions
from flwr_fbo.search.spread import spread_point
from flwr_fbo.search.subspace import SubSpace

#: The purposes of draws. The number of a purpose is part of the key of the draw's generator.
EXPLORE, COIN, OWN, MESSAGE, FIT, ESCAPE, MIDDLE, SPREAD = range(8)
#: Share of a range that lies outside its middle, at either end.
MARGIN = 0.25
#: Points of the unit cube that are nearer to one another than this are the same point.
SAME = 1e-9
#: Number of random points among which a point that has not failed is chosen.
ESCAPES = 64


#: What proposed a point: a random draw, the own model, the shared function, a random draw in place
#: of a point that has failed before, or the server for all agents. Journals hold these words.
Source: TypeAlias = Literal["initial", "own", "advice", "escape", "finalist", "list"]


@dataclass(frozen=True)
class Proposal:
    """A point of the unit cube (D,) to evaluate next, and what proposed the point."""

    unit: Array
    source: Source


@dataclass(frozen=True)
class _Draw:
    """The identity of a proposal, which keys its draws, and the part of the space to search."""

    round: int
    play: int
    part: SubSpace | None


class ThompsonSampler:
    """An ask-and-tell optimiser for one agent.

    Parameters
    ----------
    space : Space
        The search space.
    settings : ThompsonSettings
        The agent's model, acquisition and messages.
    features : RandomFeatures, optional
        The shared random features; an agent that neither sends nor receives needs none.
    seed : tuple of int
        The seed of all draws.
    on_fit : Callable, optional
        Called with the number of scores and the result after each fit of hyperparameters.

    Examples
    --------
    >>> from flwr_fbo.core.space import Float
    >>> sampler = ThompsonSampler(Space({"x": Float(0.0, 1.0)}), ThompsonSettings(), seed=(1,))
    >>> for unit in sampler.explore(3):
    ...     sampler.tell(unit, -((unit[0] - 0.3) ** 2))
    >>> for round in range(1, 8):
    ...     unit = sampler.ask(round).unit
    ...     sampler.tell(unit, -((unit[0] - 0.3) ** 2))
    >>> unit, score = sampler.best()
    >>> abs(float(unit[0]) - 0.3) < 0.1
    True
    """

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
        self.own_model = OwnModel(space, settings, features, partial(_key, seed, FIT), on_fit)
        self._failures = Failures(space, settings.kernel, settings.learn_failures)
        #: What was computed with the proposals and vectors of other agents, until something new is
        #: taken in: proposals by round and play, and the mean of omega.
        self._prepared_points: dict[tuple[int, int], Proposal] = {}
        self._prepared_mean: Array | None = None

    def generator(self, purpose: int, round: int, play: int = 0) -> np.random.Generator:
        """Return the generator of the draws for a purpose, in one play of a round."""
        return np.random.default_rng(self.key(purpose, round, play))

    def key(self, purpose: int, round: int, play: int = 0) -> tuple[int, ...]:
        """Return the key of the generator of the draws for a purpose, in one play of a round."""
        return _key(self._seed, purpose, round, play)

    # -- taking in ---------------------------------------------------------------------------

    def tell(self, unit: Array, score: float | None) -> None:
        """Take in an evaluation; the score of a failed one is None (see `failures.py`)."""
        point = np.asarray(unit, dtype=np.float64)
        self.forget_prepared()
        if score is None:
            self._failures.add(point)
            return
        if not math.isfinite(score):
            raise ValueError(f"`score` must be finite (None for a failure), but got {score!r}")
        self.own_model.add(point, float(score))

    def set_shared_function(self, shared: SharedFunction | None) -> None:
        """Use this shared function for points and messages from now on; None uses none."""
        if shared is not self.own_model.shared_function:
            self.forget_prepared()
        self.own_model.shared_function = shared

    def remember_fit(self, observations: int, parameters: Mapping[str, Any]) -> None:
        """Put back a recorded fit, so that the fit is not made again."""
        self.own_model.remember_fit(observations, parameters)

    # -- what is known -----------------------------------------------------------------------

    def best(self) -> tuple[Array, float] | None:
        """Return the point to use (setting ``pick``) and its score; None before the first score."""
        return self.own_model.best()

    def model(self) -> GaussianProcess:
        """Return the posterior of the agent's own objective, in standardised scores."""
        return self.own_model.process()

    def success(self) -> SuccessModel | None:
        """Return where evaluations succeed; None where no failures are known or learned."""
        return self._failures.success(self.own_model.units)

    # -- points ------------------------------------------------------------------------------

    def explore(
        self, count: int, low: float | Array = 0.0, high: float | Array = 1.0, round: int = 0
    ) -> Array:
        """Draw initial points from a box of the unit cube (Algorithm 2, line 2): (count, D)."""
        points = self.space.sample(count, self.generator(EXPLORE, round), low, high)
        if self.settings.first_point == "middle" and round == 0 and count:
            points = np.vstack([self._middle_point(), points[1:]])
        return points

    def _middle_point(self) -> Array:
        """Draw a point from the middle half of every range, and any category: (1, D)."""
        parameters = self.space.parameters.values()
        side = np.array([0.0 if isinstance(p, Categorical) else MARGIN for p in parameters])
        return self.space.snap(self.generator(MIDDLE, 0).uniform(side, 1.0 - side)[None, :])

    def ask(
        self,
        round: int,
        own_probability: float = 1.0,
        shared: SharedFunction | None = None,
        *,
        play: int = 0,
        pending: Sequence[Array] = (),
        part: SubSpace | None = None,
    ) -> Proposal:
        """Return the point to evaluate in a round (Algorithm 2, lines 4-8).

        Parameters
        ----------
        round : int
            The round, counted from 1.
        own_probability : float
            p_t; without effect where the shared function is the prior mean.
        shared : SharedFunction, optional
            A new shared function, which replaces the one before.
        play : int
            The number of the point within the round, which keys its draws.
        pending : sequence of Array
            Points (D,) that are being evaluated: the improvement is sought elsewhere, and none of
            them is proposed again while there are others.
        part : SubSpace, optional
            The part of the space to search; the whole space where unset.
        """
        if shared is not None:
            self.set_shared_function(shared)
        prepared = self._prepared_points.pop((round, play), None)
        if prepared is not None and part is None and not len(pending):
            self.own_model.report_fits()
            return prepared
        draw = _Draw(round, play, part)
        proposal = self._propose(draw, own_probability, pending)
        if _is_among(proposal.unit[None, :], pending)[0]:
            return Proposal(self._random_point(draw, pending), "escape")
        return proposal

    def _propose(self, draw: _Draw, own_probability: float, pending: Sequence[Array]) -> Proposal:
        """Return the point that the own model or the shared function proposes."""
        function = self.own_model.shared_function
        if function is None or self.own_model.uses_prior_mean:
            return self._from_own_model(draw, pending)
        # Lines 4 and 5: r ~ U(0, 1), and the own model if r <= p_t.
        if self.generator(COIN, draw.round, draw.play).random() <= own_probability:
            return self._from_own_model(draw, pending)
        # Line 8: arg max phi(x)' omega_{t-1}^(i[x]).
        return self._largest(function.path(self.features), draw, "advice", function.regions)

    def _from_own_model(self, draw: _Draw, pending: Sequence[Array]) -> Proposal:
        """Return where the acquisition of the agent's own model is largest (line 6)."""
        spread = self._spread(draw, pending)
        if spread is not None:
            return spread
        model = self.own_model
        prior, improvement = model.prior_mean, self.settings.acquisition == "improvement"
        if improvement and prior is None and model.all_scores_equal():
            # Of a flat model the expected improvement is largest in the corners, always the same.
            return Proposal(self._random_point(draw), "initial")
        surface: Surface
        rng = self.generator(OWN, draw.round, draw.play)
        if improvement:
            surface = Improvement.over(model.process_with_prior_mean(pending))
        elif model.uses_prior_mean:
            surface = model.process_with_prior_mean().sample_path(rng, model.beta())
        else:
            surface = model.process().sample_path(rng, model.beta())  # f_t^n of line 6
        # Without scores, all that the own model knows is its prior mean.
        source: Source = "own" if len(model.scores) or prior is None else "advice"
        regions = None if prior is None else prior.regions
        return self._largest(surface, draw, source, regions, rng)

    def _spread(self, draw: _Draw, pending: Sequence[Array]) -> Proposal | None:
        """Return a point with values that were hardly tried yet; None after enough points."""
        # A model of two or three scores takes their noise for a slope, and follows it.
        width, count = self.space.dimension, self.settings.spread_points
        if not self._spreads(len(pending)):
            return None
        known = [self.own_model.units, self._failures.units, np.array(pending)]
        seen = np.vstack([np.reshape(points, (-1, width)) for points in known])
        rng = self.generator(SPREAD, draw.round, draw.play)
        unit = spread_point(self.space, seen, count, rng, draw.part)
        if self._failures.reaches(unit[None, :])[0]:
            return Proposal(self._random_point(draw), "escape")
        return Proposal(unit, "initial")

    def _spreads(self, pending: int) -> bool:
        """Return whether the next point is spread over the space, with ``pending`` under way."""
        seen = len(self.own_model) + len(self._failures) + pending
        return seen < self.settings.spread_points and self.own_model.shared_function is None

    def _largest(
        self,
        surface: Surface,
        draw: _Draw,
        source: Source,
        regions: Regions | None,
        rng: np.random.Generator | None = None,
    ) -> Proposal:
        """Return where a surface is largest, or a random point if that point has failed."""
        rng = rng or self.generator(OWN, draw.round, draw.play)
        surface = self._failures.weigh(surface, self.own_model.units, regions)
        incumbents = self.own_model.incumbents()
        if draw.part is not None:
            unit = draw.part.argmax(surface, rng, regions, incumbents)
        else:
            unit = argmax(surface, self.space, rng, regions, incumbents)
        if self._failures.reaches(unit[None, :])[0]:
            return Proposal(self._random_point(draw), "escape")
        return Proposal(unit, source)

    def _random_point(self, draw: _Draw, pending: Sequence[Array] = ()) -> Array:
        """Draw a point where a success is likely, away from failed and pending points: (D,)."""
        rng = self.generator(ESCAPE, draw.round, draw.play)
        space = self.space if draw.part is None else draw.part.own
        points = all_points(space)
        if points is None:
            points = space.sample(ESCAPES, rng)
        if draw.part is not None:
            points = draw.part.lift(points)
        new = ~_is_among(points, pending)
        points = points[new] if new.any() else points
        return self._failures.choose(points, self.own_model.units, rng)

    # -- messages ----------------------------------------------------------------------------

    def message(self, round: int) -> Array:
        """Return the shared vector: omega_{n,t} (M,), or (M + 2,) with the scale of the scores."""
        if self.features is None:
            raise ValueError("an agent without shared features has no message")
        s, model = self.settings, self.own_model
        # Equation (2): omega ~ N(nu_t, lambda Sigma_t^-1), or its mean nu_t (Algorithm 2, line 10).
        if s.message == "sample":
            omega = self._weights(self.features).sample(self.generator(MESSAGE, round))
        elif self._prepared_mean is not None:
            omega = self._prepared_mean
        else:
            omega = self._weights(self.features).mean()
        if s.vector_bound is not None:
            norm = float(np.linalg.norm(omega))
            omega = omega * min(1.0, s.vector_bound / max(norm, 1e-300))
        if s.scale is None:
            return omega
        return np.concatenate([omega, s.scale.encode(model.scores_to_scale)])

    def _weights(self, features: RandomFeatures) -> WeightPosterior:
        """Return the posterior of omega."""
        x, y = self._failures.add_scores(self.own_model.embedded(), self.own_model.targets())
        deviations = self.own_model.weight_deviations
        return WeightPosterior.at(features, x, y, self.settings.feature_noise, deviations)

    # -- together with other agents ----------------------------------------------------------

    @property
    def searches_near_incumbents(self) -> bool:
        """Return whether the next point is where the improvement near incumbents is largest."""
        model = self.own_model
        if self.settings.acquisition != "improvement" or not model or self._failures:
            return False
        if model.shared_function is not None and not model.uses_prior_mean:
            return False  # a coin decides whether the agent follows the shared function
        flat = model.prior_mean is None and model.all_scores_equal()
        return not (flat or self._spreads(0))

    @property
    def shares_mean_of_scores(self) -> bool:
        """Return whether the shared vector is the mean of omega given scores alone."""
        return self.settings.message == "mean" and bool(self.own_model) and not self._failures

    def keep_point(self, round: int, unit: Array) -> None:
        """Keep the point (D,) that :meth:`ask` would find in a round, so that it is not sought."""
        self._prepared_points[round, 0] = Proposal(unit, "own")

    def keep_mean(self, omega: Array) -> None:
        """Keep the mean of omega (M,) for :meth:`message`, so that it is not computed."""
        self._prepared_mean = omega

    def forget_prepared(self) -> None:
        """Forget what was kept, as something new is known."""
        if self._prepared_points:
            self._prepared_points.clear()
        self._prepared_mean = None

    # -- restart -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return evaluations and fits as JSON values."""
        return {**self.own_model.state_dict(), "failed": self._failures.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that :meth:`state_dict` returned."""
        self.forget_prepared()
        self.own_model.load_state_dict(state)
        self._failures.restore(state["failed"])


def _key(seed: tuple[int, ...], purpose: int, round: int, play: int = 0) -> tuple[int, ...]:
    """Return the key of the generator of an agent's draws for a purpose."""
    # The first play has the key of a round with one play.
    return (*seed, purpose, round, play) if play else (*seed, purpose, round)


def _is_among(points: Array, others: Sequence[Array]) -> np.ndarray:
    """Return which points (n, D) are among other points: (n,)."""
    if not len(others):
        return np.zeros(len(points), dtype=bool)
    apart = np.abs(points[:, None, :] - np.array(others)).max(axis=2)  # (n, k)
    return np.asarray((apart < SAME).any(axis=1))
