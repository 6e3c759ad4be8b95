r"""All agents of a synthetic federation at once, as products of stacked matrices.

On a grid with fixed hyperparameters every agent does the same arithmetic in a round, so that 200 of
them are a few stacked matrices. The server is the package's own, with its aggregation, noise and
accounting. A test compares these agents with the package's (same starts, same law of a proposal).

Notation (DP-FTS-DE Algorithm 2)

==========================  ==========================================  =============
paper                       here                                        shape
==========================  ==========================================  =============
``X_t``, ``y_t``            ``points`` (numbers on the grid), ``scores``  (N, t)
``f ~ GP(mu_t, sigma_t)``   ``_own_paths``                              (n, G)
``omega_{n,t}``             ``_messages``                               (N, M)
``phi(x)``                  ``features``, on the whole grid             (G, M)
==========================  ==========================================  =============

One thing is exact here and approximate in the package: the prior part of a path, which the package
draws by 256 random features, has the covariance of the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.thompson.sampler import EXPLORE
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.regions import Regions
from flwr_fbo.tasks.papers.synthetic import SyntheticTask
from flwr_fbo.tasks.task import Partition

#: Eigenvalues of the prior below this share of the largest are left out.
RANK = 1e-11
#: Purposes of draws, apart from those of the package's samplers.
COIN, PATH, MESSAGE, NOISE = range(101, 105)


def can_batch(settings: Any, task: Any) -> bool:
    """Return whether :class:`GridAgents` knows these agents: those of the synthetic figures."""
    s = settings
    return (
        isinstance(task, SyntheticTask)
        and isinstance(s, ThompsonSettings)
        and (s.refit_every, s.standardise, s.share_scale) == (0, False, False)
        and s.advice_use == "query"
        and (s.acquisition, s.beta_rule, s.first_point, s.message)
        == ("thompson", "constant", "random", "sample")
        and s.vector_bound is None and s.local_epsilon is None
    )  # fmt: skip


class GridAgents:
    """The agents 0 .. count - 1 of a federation on a grid; all take part in every round."""

    def __init__(self, setup: Setup, task: SyntheticTask, count: int, seed: int,
                 data_seed: int) -> None:  # fmt: skip
        self.settings: Any = setup.read(ThompsonSettings)
        self.space, self.seed, self.count = setup.space, seed, count
        assert self.space.points is not None
        self.grid = self.space.embed(self.space.points)  # (G, 1)
        self.values = _functions(task.settings, count, data_seed)  # (N, G)
        self.deviation = float(np.sqrt(task.settings.observation_noise))
        self.regions = Regions(tuple(int(k) for k in setup.arrays["splits"]))
        s = self.settings
        drawn = RandomFeatures(setup.arrays["frequencies"], setup.arrays["phases"])
        self.features = drawn(self.grid)
        self.root = _root(s.kernel, float(s.lengthscale), len(self.grid))  # (G, r)
        # Numbers of the grid's points and scores, and what a message needs of them.
        self.points: Indices = np.zeros((count, 0), dtype=np.int64)
        self.scores = np.zeros((count, 0))
        width = self.features.shape[1]
        self.square = np.broadcast_to(s.feature_noise * np.eye(width), (count, width, width)).copy()
        self.product = np.zeros((count, width))
        #: Least regret of each agent at the end of each round.
        self.regret: list[Array] = []

    def answer(self, asked: Mapping[int, Request]) -> dict[int, Reply]:
        """Return the replies of all agents to the requests of a round."""
        first = asked[0]
        if first.kind == "explore":
            chosen = self._initial([int(asked[n].values["home"]) for n in range(self.count)],
                                   int(first.values["count"]))  # fmt: skip
        else:
            chosen = self._step(first)[:, None]
        self._evaluate(chosen, first.round)
        if "omega" not in first.expects:
            return {n: Reply({}) for n in asked}
        vectors = self._messages(first.round)
        return {n: Reply({"omega": vectors[n]}) for n in asked}

    def _rng(self, purpose: int, round: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, round])

    def _initial(self, homes: Sequence[int], count: int) -> Indices:
        """Return the same initial points as the package's agents have: (N, count)."""
        rows = []
        for n, home in enumerate(homes):
            low: float | Array = 0.0 if home < 0 else self.regions.low[home]
            high: float | Array = 1.0 if home < 0 else self.regions.high[home]
            rng = np.random.default_rng([self.seed, n, 1, EXPLORE, 0])
            rows.append(self.space.sample(count, rng, low, high)[:, 0])
        return np.rint(np.array(rows) * (len(self.grid) - 1)).astype(np.int64)

    def _step(self, request: Request) -> Indices:
        """Return the point that each agent evaluates in a round (lines 4 to 8): (N,)."""
        own = np.ones(self.count, dtype=bool)
        chosen = np.zeros(self.count, dtype=np.int64)
        if "advice" in request.arrays:
            coins = self._rng(COIN, request.round).random(self.count)
            own = coins <= float(request.values["own-probability"])
            chosen[~own] = self._advised(request.arrays["advice"])
        chosen[own] = self._own_paths(np.flatnonzero(own), request.round).argmax(axis=1)
        return chosen

    def _advised(self, weights: Array) -> int:
        """Return where phi(x)' omega^(i[x]) is largest (line 8), which is the same for everyone."""
        if len(weights) == 1:
            return int((self.features @ weights[0]).argmax())
        assert self.space.points is not None
        place = self.regions.locate(self.space.points)
        return int((self.features * weights[place]).sum(axis=1).argmax())

    def _own_paths(self, agents: Indices, round: int) -> Array:
        """Return a function of each agent's posterior on the grid, by pathwise conditioning."""
        rng, s = self._rng(PATH, round), self.settings
        points, scores = self.points[agents], self.scores[agents]  # (n, t)
        prior = rng.standard_normal((len(agents), self.root.shape[1]))  # (n, r)
        here = self.root[points]  # (n, t, r)
        square = here @ here.transpose(0, 2, 1) + s.noise * np.eye(points.shape[1])
        noise = np.sqrt(s.noise) * rng.standard_normal(points.shape)
        residual = scores - s.beta * (np.einsum("ntr,nr->nt", here, prior) + noise)
        pull = np.linalg.solve(square, residual[..., None])[..., 0]  # (n, t)
        weights = s.beta * prior + np.einsum("nt,ntr->nr", pull, here)
        return np.asarray(weights @ self.root.T)

    def _evaluate(self, chosen: Indices, round: int) -> None:
        """Take in the noisy values at points (N, k)."""
        true = np.take_along_axis(self.values, chosen, axis=1)
        noise = self._rng(NOISE, round).standard_normal(chosen.shape)
        scores = true + self.deviation * noise
        self.points = np.hstack([self.points, chosen])
        self.scores = np.hstack([self.scores, scores])
        rows = self.features[chosen]  # (N, k, M)
        self.square += rows.transpose(0, 2, 1) @ rows
        self.product += np.einsum("nk,nkm->nm", scores, rows)
        found = (self.values.max(axis=1)[:, None] - true).min(axis=1)
        self.regret.append(np.minimum(found, self.regret[-1]) if self.regret else found)

    def _messages(self, round: int) -> Array:
        """Return omega ~ N(Sigma^-1 Phi y, lambda Sigma^-1) of all agents, equation (2): (N, M)."""
        factor = np.linalg.cholesky(self.square)  # L L' = Sigma
        inverse = np.linalg.inv(factor)
        mean = np.einsum("nji,nj->ni", inverse, np.einsum("nij,nj->ni", inverse, self.product))
        normal = self._rng(MESSAGE, round).standard_normal(mean.shape)
        spread = np.sqrt(self.settings.feature_noise)
        return np.asarray(mean + spread * np.einsum("nji,nj->ni", inverse, normal))


@lru_cache(maxsize=40)
def _functions(settings: Any, count: int, seed: int) -> Array:
    """Return every agent's function on the grid: (N, G)."""
    rows = []
    for n in range(count):
        task = SyntheticTask(settings)
        task.prepare(Partition(n, count, seed))
        rows.append(task._function())
    return np.array(rows)


@lru_cache(maxsize=4)
def _root(kernel: str, lengthscale: float, points: int) -> Array:
    """Return R (G, r) with R R' the covariance of the grid's points, but for its smallest part."""
    x = np.linspace(0.0, 1.0, points)[:, None]
    values, vectors = np.linalg.eigh(kernel_named(kernel, lengthscale)(x, x))
    kept = values > RANK * values.max()
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))
