r"""All agents of a federation on landmine or activity at once, on a lattice of their space.

The agents have an own model with a squared exponential kernel, whose hyperparameters are the
package's fits. On a lattice its covariance is a product of one small matrix for each parameter, so
that a function of the posterior is drawn at all points by a few stacked products, and its maximum
is found exactly. The shared function is not searched on the lattice but as in the package, over the
whole space, as it may have peaks between the lattice's points: the point found is then moved to
the nearest point of the lattice. The server is the package's own.

Notation (DP-FTS-DE Algorithm 2)

==========================  ===========================================  ===============
paper                       here                                         shape
==========================  ===========================================  ===============
``X_t``, ``y_t``            ``points`` (numbers on the lattice), ``scores``  (N, t)
``f ~ GP(mu_t, sigma_t)``   ``own_paths``                                (n, G)
``k`` along parameter d     ``correlations[d]``                          (N, K_d, K_d)
``omega_{n,t}``             ``_messages``                                (n, M)
==========================  ===========================================  ===============
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.thompson.own_model import INCUMBENTS
from flwr_fbo.methods.thompson.sampler import COIN, EXPLORE, FIT, MESSAGE, OWN
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import shared_function_of
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.hyperparameters import (
    Hyperparameters,
    count_at_last_fit,
    fit,
    prior_medians,
)
from flwr_fbo.models.score_scale import standardise_scores
from flwr_fbo.search.acquisition import argmax
from flwr_fbo.search.regions import Regions

from .lattice import Lattice

#: Added to the diagonal of correlations along a parameter, to keep them positive definite.
JITTER = 1e-9


def can_join(settings: Any) -> bool:
    """Return whether :class:`LatticeAgents` knows these agents: those of the figures on data."""
    s = settings
    return (
        isinstance(s, ThompsonSettings)
        and s.kernel == "se"
        and (s.share_scale, s.cut_low_scores, s.spread_points, s.parallel) == (False, False, 0, 1)
        and s.advice_use == "query"
        and (s.acquisition, s.beta_rule, s.first_point, s.message)
        == ("thompson", "constant", "random", "sample")
        and s.vector_bound is None and s.local_epsilon is None
    )  # fmt: skip


class LatticeAgents:
    """The agents 0 .. N - 1 of a federation; all take part in every round.

    ``tables`` (N, G) are the agents' scores at all points of the lattice.
    """

    def __init__(self, setup: Setup, lattice: Lattice, tables: Array, seed: int) -> None:
        self.settings: Any = setup.read(ThompsonSettings)
        self.space, self.lattice, self.tables, self.seed = setup.space, lattice, tables, seed
        self.count = len(tables)
        self.regions = Regions(tuple(int(k) for k in setup.arrays["splits"]))
        self.shared = RandomFeatures(setup.arrays["frequencies"], setup.arrays["phases"])
        self.points: Indices = np.zeros((self.count, 0), dtype=np.int64)
        self.scores = np.zeros((self.count, 0))
        self.features = np.zeros((self.count, 0, self.shared.count))  # at the points
        self.parameters: list[Hyperparameters] = []
        self._fitted = -1
        #: The mean over the agents of 1 less the best score, at the end of each round.
        self.errors: list[float] = []

    def answer(self, asked: Mapping[int, Request]) -> dict[int, Reply]:
        """Return the replies of all agents to the requests of a round."""
        first = asked[0]
        if first.kind == "explore":
            homes = [int(asked[n].values["home"]) for n in range(self.count)]
            self._evaluate(self._initial(homes, int(first.values["count"])))
        else:
            self._evaluate(self._step(first)[:, None])
        senders = [n for n, request in asked.items() if "omega" in request.expects]
        vectors = self._messages(senders, first.round)
        sent = dict(zip(senders, vectors, strict=True))
        return {n: Reply({"omega": sent[n]} if n in sent else {}) for n in asked}

    def _rng(self, agent: int, purpose: int, round: int) -> np.random.Generator:
        """Return the generator with the key that the package's agent has for this draw."""
        return np.random.default_rng([self.seed, agent, 1, purpose, round])

    def _initial(self, homes: Sequence[int], count: int) -> Indices:
        """Return the points nearest to the initial points of the package's agents: (N, count)."""
        rows = []
        for n, home in enumerate(homes):
            low: float | Array = 0.0 if home < 0 else self.regions.low[home]
            high: float | Array = 1.0 if home < 0 else self.regions.high[home]
            units = self.space.sample(count, self._rng(n, EXPLORE, 0), low, high)
            rows.append(self.lattice.nearest(units))
        return np.array(rows)

    def _step(self, request: Request) -> Indices:
        """Return the point that each agent evaluates in a round (lines 4 to 8): (N,)."""
        own = np.ones(self.count, dtype=bool)
        chosen = np.zeros(self.count, dtype=np.int64)
        if "advice" in request.arrays:
            share = float(request.values["own-probability"])
            coins = [self._rng(n, COIN, request.round).random() for n in range(self.count)]
            own = np.array(coins) <= share
            followers = np.flatnonzero(~own)
            chosen[followers] = self._advised(request, followers)
        agents = np.flatnonzero(own)
        if len(agents):
            chosen[agents] = self.own_paths(agents, request.round).argmax(axis=1)
        return chosen

    def _advised(self, request: Request, followers: Indices) -> Indices:
        """Return where each follower finds phi(x)' omega^(i[x]) largest (line 8): (n,)."""
        if not len(followers):
            return np.zeros(0, dtype=np.int64)
        shared = shared_function_of(request.arrays["advice"], self.regions, self.settings)
        path, units = shared.path(self.shared), self.lattice.points[self.points]
        found = []
        for n in followers:
            best = units[n, np.argsort(self.scores[n])[-INCUMBENTS:]]
            rng = self._rng(n, OWN, request.round)
            found.append(argmax(path, self.space, rng, shared.regions, best))
        return self.lattice.nearest(np.array(found))

    # -- the own models ----------------------------------------------------------------------

    def targets(self, agent: int, count: int | None = None) -> Array:
        """Return the first ``count`` scores (default: all) as an agent's model sees them: (t,)."""
        y = self.scores[agent, :count]
        return standardise_scores(y) if self.settings.standardise else y

    def _fit(self) -> None:
        """Learn the hyperparameters of all agents again, if they are due."""
        s, count = self.settings, self.points.shape[1]
        due = count_at_last_fit(count, s.refit_every)
        if due == self._fitted:
            return
        before = self.parameters if self._fitted > 0 else [None] * self.count
        self.parameters = [self._fit_of(n, due, before[n]) for n in range(self.count)]
        self._fitted = due
        scales = np.array([p.lengthscales for p in self.parameters])  # (N, D)
        self.variance = np.array([p.variance for p in self.parameters])
        self.noise = np.array([p.noise for p in self.parameters])
        self.correlations = [
            np.exp(-0.5 * ((axis[:, None] - axis) / scales[:, d, None, None]) ** 2)
            for d, axis in enumerate(self.lattice.axes)
        ]  # (N, K_d, K_d)
        self.roots = [
            np.linalg.cholesky(c + JITTER * np.eye(c.shape[1])).astype(np.float32)
            for c in self.correlations
        ]

    def _fit_of(self, agent: int, due: int, before: Hyperparameters | None) -> Hyperparameters:
        """Return one agent's hyperparameters, learned from its first ``due`` scores."""
        s = self.settings
        if due == 0 or np.ptp(self.scores[agent, :due]) == 0:
            return prior_medians(self.space.dimension, s.lengthscale, s.noise)
        x, y = self.lattice.points[self.points[agent, :due]], self.targets(agent, due)
        rng = self._rng(agent, FIT, due)
        return fit(s.kernel, self.space, x, y, rng, s.lengthscale, s.noise, before)

    def own_paths(self, agents: Indices, round: int) -> Array:
        """Return a function of each agent's posterior on the lattice: (n, G)."""
        self._fit()
        rng = np.random.default_rng([self.seed, OWN, round])
        deviation = np.sqrt(self.variance[agents])[:, None]
        prior = self.settings.beta * deviation * self._prior_draws(agents, rng)  # (n, G)
        points = self.points[agents]
        here = np.take_along_axis(prior, points, axis=1)
        noise = np.sqrt(self.noise[agents])[:, None] * rng.standard_normal(here.shape)
        residual = np.array([self.targets(n) for n in agents]) - here - self.settings.beta * noise
        across = self._across(agents)
        pull = (
            self.variance[agents][:, None]
            * np.linalg.solve(self._covariance(agents, across), residual[..., None])[..., 0]
        )  # (n, t)
        return np.asarray(prior + self._spread(pull, across))

    def _prior_draws(self, agents: Indices, rng: np.random.Generator) -> Array:
        """Return draws with unit variance: a normal draw times a root along each axis: (n, G)."""
        shape = self.lattice.shape
        drawn = rng.standard_normal((len(agents), *shape), dtype=np.float32)
        for d, root in enumerate(self.roots):
            moved = np.moveaxis(drawn, d + 1, -1)  # (n, ..., K_d)
            turned = root[agents].transpose(0, 2, 1)[(slice(None), *[None] * (len(shape) - 2))]
            drawn = np.moveaxis(moved @ turned, -1, d + 1)
        return drawn.reshape(len(agents), -1).astype(np.float64)

    def _across(self, agents: Indices) -> list[Array]:
        """Return the correlation of an agent's points with each axis: (n, K_d, t) each."""
        places = self.lattice.places(self.points[agents])
        return [
            np.take_along_axis(c[agents], place[:, None, :], axis=2)
            for c, place in zip(self.correlations, places, strict=True)
        ]

    def _covariance(self, agents: Indices, across: Sequence[Array]) -> Array:
        """Return the covariance of the scores: (n, t, t)."""
        places = self.lattice.places(self.points[agents])
        product = np.ones((len(agents), self.points.shape[1], self.points.shape[1]))
        for part, place in zip(across, places, strict=True):
            product *= np.take_along_axis(part, place[:, :, None], axis=1)
        product *= self.variance[agents][:, None, None]
        return product + self.noise[agents][:, None, None] * np.eye(product.shape[1])

    def _spread(self, pull: Array, across: Sequence[Array]) -> Array:
        """Return sum_t pull_t k(x, x_t) at every point of the lattice: (n, G)."""
        left, right = across[0] * pull[:, None, :], across[1]  # (n, K, t)
        for part in across[2:]:
            wide = right[:, :, None, :] * part[:, None, :, :]
            right = wide.reshape(len(pull), -1, pull.shape[1])
        return np.asarray((left @ right.transpose(0, 2, 1)).reshape(len(pull), -1))

    # -- evaluations and messages ------------------------------------------------------------

    def _evaluate(self, chosen: Indices) -> None:
        """Take in the scores at points (N, k)."""
        self.points = np.hstack([self.points, chosen])
        self.scores = np.hstack([self.scores, np.take_along_axis(self.tables, chosen, axis=1)])
        new = self.shared(self.lattice.points[chosen.ravel()])
        self.features = np.hstack([self.features, new.reshape(*chosen.shape, -1)])
        self.errors.append(float(1.0 - self.scores.max(axis=1).mean()))

    def _messages(self, agents: Sequence[int], round: int) -> Array:
        """Return omega of some agents, equation (2), by correcting a draw of the prior: (n, M)."""
        if not agents:
            return np.zeros((0, self.shared.count))
        rows, noise = self.features[list(agents)], self.settings.feature_noise  # (n, t, M)
        normal, error = [], []
        for n in agents:
            rng = self._rng(n, MESSAGE, round)
            normal.append(rng.standard_normal(rows.shape[2]))
            error.append(np.sqrt(noise) * rng.standard_normal(rows.shape[1]))
        omega = np.array(normal)
        targets = np.array([self.targets(n) for n in agents])
        residual = targets - np.einsum("ntm,nm->nt", rows, omega) - np.array(error)
        square = rows @ rows.transpose(0, 2, 1) + noise * np.eye(rows.shape[1])
        pull = np.linalg.solve(square, residual[..., None])[..., 0]
        return np.asarray(omega + np.einsum("nt,ntm->nm", pull, rows))
