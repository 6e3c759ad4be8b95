r"""All agents of a federation on landmine or activity at once, with scores from tables.

The agents have an own model with a squared exponential kernel, whose hyperparameters are the
package's fits. On a lattice its covariance is a product of one small matrix for each parameter, so
that a function of the posterior is drawn at all points by a few stacked products. Its maximum on
the lattice is moved to the top of a parabola through its neighbours, where scores may be
interpolated. The shared function is not searched on the lattice but as in the package, over the
whole space, as it may have peaks between the lattice's points. The server is the package's own.

Notation (DP-FTS-DE Algorithm 2)

==========================  ===========================================  ===============
paper                       here                                         shape
==========================  ===========================================  ===============
``X_t``, ``y_t``            ``units``, ``scores``                        (N, t, D), (N, t)
``f ~ GP(mu_t, sigma_t)``   ``own_paths``, on the lattice                (n, G)
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


def top_of_parabola(
    left: tuple[Array, Array], middle: tuple[Array, Array], right: tuple[Array, Array]
) -> Array:
    """Return where parabolas through three points each are largest; the middle is the highest."""
    (a, fa), (b, fb), (c, fc) = left, middle, right
    up, down = (fb - fa) / (b - a), (fb - fc) / (c - b)  # slopes towards the middle, >= 0
    bend = up + down
    # The slopes are those halfway to the neighbours: the top is where the line between them is 0.
    share = np.divide(up, bend, out=np.full_like(bend, 0.5), where=bend > 0)
    top = (a + b) / 2.0 + share * (c - a) / 2.0
    return np.asarray(np.where(bend > 0, top, b))


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
        self.units = np.zeros((self.count, 0, len(lattice.axes)))
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

    def _initial(self, homes: Sequence[int], count: int) -> Array:
        """Return the initial points of the package's agents: (N, count, D)."""
        rows = []
        for n, home in enumerate(homes):
            low: float | Array = 0.0 if home < 0 else self.regions.low[home]
            high: float | Array = 1.0 if home < 0 else self.regions.high[home]
            rows.append(self.space.sample(count, self._rng(n, EXPLORE, 0), low, high))
        return np.array(rows)

    def _step(self, request: Request) -> Array:
        """Return the point that each agent evaluates in a round (lines 4 to 8): (N, D)."""
        own = np.ones(self.count, dtype=bool)
        chosen = np.zeros((self.count, self.units.shape[2]))
        if "advice" in request.arrays:
            share = float(request.values["own-probability"])
            coins = [self._rng(n, COIN, request.round).random() for n in range(self.count)]
            own = np.array(coins) <= share
            followers = np.flatnonzero(~own)
            chosen[followers] = self._advised(request, followers)
        agents = np.flatnonzero(own)
        if len(agents):
            chosen[agents] = self._tops(self.own_paths(agents, request.round))
        return chosen

    def _advised(self, request: Request, followers: Indices) -> Array:
        """Return where each follower finds phi(x)' omega^(i[x]) largest (line 8): (n, D)."""
        shared = shared_function_of(request.arrays["advice"], self.regions, self.settings)
        path, found = shared.path(self.shared), np.zeros((len(followers), self.units.shape[2]))
        for row, n in enumerate(followers):
            best = self.units[n, np.argsort(self.scores[n])[-INCUMBENTS:]]
            rng = self._rng(n, OWN, request.round)
            found[row] = argmax(path, self.space, rng, shared.regions, best)
        return found

    def _tops(self, paths: Array) -> Array:
        """Return where paths (n, G) are largest: (n, D)."""
        shape, rows = self.lattice.shape, np.arange(len(paths))
        best = paths.argmax(axis=1)
        tops = self.lattice.points[best]
        if not self.lattice.interpolates:
            return tops
        places = np.unravel_index(best, shape)
        for d, axis in enumerate(self.lattice.axes):
            stride = int(np.prod(shape[d + 1 :]))
            inside = (places[d] > 0) & (places[d] < len(axis) - 1)
            place, centre, row = places[d][inside], best[inside], rows[inside]
            near = [(axis[place + k], paths[row, centre + k * stride]) for k in (-1, 0, 1)]
            tops[inside, d] = top_of_parabola(*near)
        return tops

    # -- the own models ----------------------------------------------------------------------

    def targets(self, agent: int, count: int | None = None) -> Array:
        """Return the first ``count`` scores (default: all) as an agent's model sees them: (t,)."""
        y = self.scores[agent, :count]
        return standardise_scores(y) if self.settings.standardise else y

    def _fit(self) -> None:
        """Learn the hyperparameters of all agents again, if they are due."""
        s, count = self.settings, self.units.shape[1]
        due = count_at_last_fit(count, s.refit_every)
        if due == self._fitted:
            return
        before = self.parameters if self._fitted > 0 else [None] * self.count
        self.parameters = [self._fit_of(n, due, before[n]) for n in range(self.count)]
        self._fitted = due
        self.scales = scales = np.array([p.lengthscales for p in self.parameters])  # (N, D)
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
        x, y = self.units[agent, :due], self.targets(agent, due)
        rng = self._rng(agent, FIT, due)
        return fit(s.kernel, self.space, x, y, rng, s.lengthscale, s.noise, before)

    def own_paths(self, agents: Indices, round: int) -> Array:
        """Return a function of each agent's posterior on the lattice: (n, G)."""
        self._fit()
        rng = np.random.default_rng([self.seed, OWN, round])
        deviation = np.sqrt(self.variance[agents])[:, None]
        prior = self.settings.beta * deviation * self._prior_draws(agents, rng)  # (n, G)
        across = self._across(agents)
        here = self._at_points(prior, agents, across)
        noise = np.sqrt(self.noise[agents])[:, None] * rng.standard_normal(here.shape)
        residual = np.array([self.targets(n) for n in agents]) - here - self.settings.beta * noise
        solved = np.linalg.solve(self._covariance(agents), residual[..., None])[..., 0]
        pull = self.variance[agents][:, None] * solved  # (n, t)
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
        """Return the correlation of each axis with an agent's points: (n, K_d, t) each."""
        found = []
        for d, axis in enumerate(self.lattice.axes):
            apart = axis[:, None] - self.units[agents, None, :, d]  # (n, K_d, t)
            found.append(np.exp(-0.5 * (apart / self.scales[agents, d, None, None]) ** 2))
        return found

    def _at_points(self, prior: Array, agents: Indices, across: Sequence[Array]) -> Array:
        """Return draws (n, G) of the prior at the agents' own points: (n, t).

        Between the points of a lattice that is finer than its length scale, a smooth function is
        its own conditional mean given the lattice.
        """
        if not self.lattice.interpolates:
            flat = self.units[agents].reshape(-1, self.units.shape[2])
            numbers = self.lattice.nearest(flat).reshape(len(agents), -1)
            return np.take_along_axis(prior, numbers, axis=1)
        left, right = (
            np.linalg.solve(c[agents] + JITTER * np.eye(c.shape[1]), part)
            for c, part in zip(self.correlations, across, strict=True)
        )  # (n, K_1, t), (n, K_2, t)
        table = prior.reshape(len(agents), *self.lattice.shape)
        return np.asarray(((table @ right) * left).sum(axis=1))

    def _covariance(self, agents: Indices) -> Array:
        """Return the covariance of the scores: (n, t, t)."""
        scaled = self.units[agents] / self.scales[agents, None, :]  # (n, t, D)
        apart = scaled[:, :, None, :] - scaled[:, None, :, :]
        product = np.exp(-0.5 * np.einsum("nstd,nstd->nst", apart, apart))
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

    def _evaluate(self, chosen: Array) -> None:
        """Take in the scores at points (N, k, D)."""
        flat = self.lattice.used(chosen.reshape(-1, chosen.shape[2]))
        chosen = flat.reshape(chosen.shape)
        self.units = np.concatenate([self.units, chosen], axis=1)
        self.scores = np.hstack([self.scores, self.lattice.scores(self.tables, chosen)])
        new = self.shared(flat).reshape(*chosen.shape[:2], -1)
        self.features = np.concatenate([self.features, new], axis=1)
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
