r"""Models of the other agents for RGPE and TAF, and how many numbers each model sends.

Notation (FTS Sec. 3.2; Feurer et al. 2018; Wistuba et al. 2018)

============================  ===============================  ============
paper                         here                             shape
============================  ===============================  ============
``N``                         ``surrogates.count``             int
``mu_n(x)``                   ``surrogates.mean(x)``           (N, n)
``sigma_n^2(x)``              ``surrogates.posterior(x)[1]``   (N, n)
joint draws of ``f_n``        ``surrogates.sample(x, S, rng)`` (N, S, n)
``nu_n``                      ``WeightSurrogates.means``       (N, M)
``sigma^2 Sigma_n^-1``        ``WeightSurrogates.covariances`` (N, M, M)
============================  ===============================  ============

Both methods were made for one target and past tasks whose data are at hand. In a federation the
other agents must send something first. They send their raw observations (:class:`GPSurrogates`)
or, as in FTS, the posterior of the weights of shared random features (:class:`WeightSurrogates`).
Neither is private. :func:`numbers_sent` counts what each sends.

Each surrogate models its agent's scores scaled to mean 0 and spread 1, because only the ranks of
the scores carry over to another agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Space
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.hyperparameters import Hyperparameters, fit, prior_medians
from flwr_fbo.models.kernels import Kernel, kernel_named
from flwr_fbo.models.linalg import add_to_diagonal, factorise


@dataclass(frozen=True, eq=False)
class History:
    """The observations of one agent: points of the unit cube (t, D) and their scores (t,)."""

    units: Array
    scores: Array

    def __post_init__(self) -> None:
        if self.units.ndim != 2 or self.scores.shape != self.units.shape[:1]:
            raise ValueError(
                "`units` must be (t, D) and `scores` (t,), but got "
                f"{self.units.shape} and {self.scores.shape}"
            )
        if not (np.all(np.isfinite(self.units)) and np.all(np.isfinite(self.scores))):
            raise ValueError("`units` and `scores` must be finite, but some are not")


class Surrogates(Protocol):
    """One model of each other agent, of standardised scores; rows of x are embedded points."""

    @property
    def count(self) -> int:
        """Return the number N of modelled agents."""

    def mean(self, x: Array) -> Array:
        """Return posterior means at the rows of x (n, E): (N, n)."""

    def posterior(self, x: Array, which: Indices | None = None) -> tuple[Array, Array]:
        """Return means and variances of the agents ``which``, or of all: (N, n) and (N, n)."""

    def sample(self, x: Array, draws: int, rng: np.random.Generator) -> Array:
        """Return joint draws at the rows of x (n, E): (N, draws, n)."""


class GPSurrogates:
    """Exact Gaussian processes on the other agents' raw observations, all solved together.

    Every agent has its own kernel parameters. Histories may differ in length: shorter ones are
    padded with points that covary with nothing, which changes no prediction.

    Parameters
    ----------
    shape
        The kernel without its parameters.
    x, y
        Embedded points (t, E) and standardised scores (t,) of each agent.
    scales, variances, noises
        Length scales (N, E), kernel variances (N,) and noise variances (N,) of the agents.
    """

    def __init__(self, shape: Kernel, x: Sequence[Array], y: Sequence[Array],
                 scales: Array, variances: Array, noises: Array) -> None:  # fmt: skip
        self._shape, self._scales = shape, scales  # (N, E)
        self._variances, self.count = variances, len(x)
        longest = max((len(rows) for rows in x), default=0)
        sizes = np.array([len(rows) for rows in x], dtype=np.int64)
        self._real = np.arange(longest) < sizes[:, None]  # (N, t)
        self._x = np.zeros((self.count, longest, scales.shape[1]))
        targets = np.zeros((self.count, longest))
        for n, (rows, values) in enumerate(zip(x, y, strict=True)):
            self._x[n, : len(rows)], targets[n, : len(rows)] = rows, values
        self._x /= scales[:, None, :]
        square = self._covariance(self._x, self._x)
        # Padding covaries with nothing, and has variance 1.
        square *= self._real[:, :, None] & self._real[:, None, :]
        square += (noises[:, None] + ~self._real)[:, :, None] * np.eye(longest)
        self._inverse_root = np.linalg.inv(np.linalg.cholesky(square))  # (N, t, t)
        half = np.einsum("nij,nj->ni", self._inverse_root, targets)
        self._coefficients = np.einsum("nij,ni->nj", self._inverse_root, half)  # (N, t)

    @classmethod
    def of(
        cls, space: Space, histories: Sequence[History], settings: ThompsonSettings, seed: int = 0
    ) -> GPSurrogates:
        """Fit a model to each history, with the settings of the agents' own models."""
        x = [space.embed(h.units) for h in histories]
        y = [zero_mean_unit_spread(h.scores) for h in histories]
        found: list[Hyperparameters] = []
        for rows, values in zip(x, y, strict=True):
            if settings.refit_every and len(values) >= settings.refit_every:
                rng = np.random.default_rng([seed, len(found)])
                given = (settings.lengthscale, settings.noise)
                found.append(fit(settings.kernel, space, rows, values, rng, *given))
            else:
                found.append(prior_medians(space.dimension, settings.lengthscale, settings.noise))
        kernels = [f.kernel(settings.kernel, space) for f in found]
        wide = (len(kernels), space.embedding_dimension)
        scales = np.array([np.broadcast_to(k.lengthscales, wide[1]) for k in kernels])
        variances, noises = (
            np.array([getattr(f, n) for f in found]) for n in ("variance", "noise")
        )
        shape = kernel_named(settings.kernel)
        return cls(shape, x, y, scales.reshape(wide), variances, noises)

    def _covariance(self, a: Array, b: Array) -> Array:
        """Return covariances of rows a (N, n, E) and b (N, m, E) in length scales: (N, n, m)."""
        squared = (a * a).sum(-1)[:, :, None] + (b * b).sum(-1)[:, None, :]
        squared = np.maximum(squared - 2.0 * (a @ b.transpose(0, 2, 1)), 0.0)
        return np.asarray(self._variances[:, None, None] * self._shape.profile(squared)[0])

    def _scaled(self, x: Array) -> Array:
        return np.asarray(x[None, :, :] / self._scales[:, None, :])

    def _cross(self, x: Array) -> Array:
        return self._covariance(self._scaled(x), self._x) * self._real[:, None, :]  # (N, n, t)

    def mean(self, x: Array) -> Array:
        """Return posterior means at the rows of x (n, E): (N, n)."""
        return np.asarray(np.einsum("nit,nt->ni", self._cross(x), self._coefficients))

    def posterior(self, x: Array, which: Indices | None = None) -> tuple[Array, Array]:
        """Return means and variances of the agents ``which``, or of all: (N, n) and (N, n)."""
        some = self if which is None else self._only(which)
        cross = some._cross(x)
        mean = np.asarray(np.einsum("nit,nt->ni", cross, some._coefficients))
        half = cross @ some._inverse_root.transpose(0, 2, 1)  # (N, n, t)
        variance = some._variances[:, None] - (half * half).sum(-1)
        return mean, np.maximum(variance, 0.0)

    def sample(self, x: Array, draws: int, rng: np.random.Generator) -> Array:
        """Return joint draws at the rows of x (n, E): (N, draws, n)."""
        cross, scaled = self._cross(x), self._scaled(x)
        half = cross @ self._inverse_root.transpose(0, 2, 1)
        square = self._covariance(scaled, scaled) - half @ half.transpose(0, 2, 1)
        mean = np.einsum("nit,nt->ni", cross, self._coefficients)
        normal = rng.standard_normal((self.count, draws, len(x)))
        return np.asarray(mean[:, None, :] + normal @ roots(square).transpose(0, 2, 1))

    def _only(self, which: Indices) -> GPSurrogates:
        """Return the surrogates of some agents, without solving again."""
        some = object.__new__(GPSurrogates)
        some._shape, some.count = self._shape, len(which)
        for name in ("_scales", "_variances", "_real", "_x", "_inverse_root", "_coefficients"):
            setattr(some, name, getattr(self, name)[which])
        return some


class WeightSurrogates:
    """Posteriors of the weights of shared features, as FTS has the other agents send them.

    Parameters
    ----------
    features
        The random features that all agents share.
    means, covariances
        The posterior of each agent's weights: (N, M) and (N, M, M).
    """

    def __init__(self, features: RandomFeatures, means: Array, covariances: Array) -> None:
        count = (len(means), features.count)
        if means.shape != count or covariances.shape != (*count, features.count):
            raise ValueError(
                f"`means` must be (N, {features.count}) and `covariances` (N, {features.count}, "
                f"{features.count}), but got {means.shape} and {covariances.shape}"
            )
        self.features, self.means, self.covariances = features, means, covariances
        self.count = len(means)
        self._root: Array | None = None

    @classmethod
    def of(
        cls, space: Space, histories: Sequence[History], features: RandomFeatures, noise: float
    ) -> WeightSurrogates:
        """Return the posterior of equation (3) of FTS for each history, scores standardised."""
        pairs = [
            weight_posterior(features(space.embed(h.units)), zero_mean_unit_spread(h.scores), noise)
            for h in histories
        ]
        size = features.count
        means = np.array([mean for mean, _ in pairs]).reshape(-1, size)
        return cls(features, means, np.array([c for _, c in pairs]).reshape(-1, size, size))

    def mean(self, x: Array) -> Array:
        """Return posterior means at the rows of x (n, E): (N, n)."""
        return np.asarray(self.means @ self.features(x).T)

    def posterior(self, x: Array, which: Indices | None = None) -> tuple[Array, Array]:
        """Return means and variances of the agents ``which``, or of all: (N, n) and (N, n)."""
        rows, chosen = self.features(x), slice(None) if which is None else which
        means, covariances = self.means[chosen], self.covariances[chosen]
        variance = ((rows @ covariances) * rows).sum(-1)  # (N, n)
        return np.asarray(means @ rows.T), np.maximum(variance, 0.0)

    def sample(self, x: Array, draws: int, rng: np.random.Generator) -> Array:
        """Return joint draws at the rows of x (n, E): (N, draws, n)."""
        if self._root is None:
            self._root = roots(self.covariances)
        normal = rng.standard_normal((self.count, draws, self.features.count))
        weights = self.means[:, None, :] + normal @ self._root.transpose(0, 2, 1)
        return np.asarray(weights @ self.features(x).T)


def weight_posterior(design: Array, scores: Array, noise: float) -> tuple[Array, Array]:
    """Return nu (M,) and sigma^2 Sigma^-1 (M, M) from t points' features (t, M): FTS eq. (3)."""
    root = np.linalg.inv(factorise(add_to_diagonal(design.T @ design, noise)))
    inverse = root.T @ root
    return inverse @ (design.T @ scores), noise * inverse


def zero_mean_unit_spread(scores: Array) -> Array:
    """Return scores with mean 0 and spread 1; all 0 where the scores do not differ."""
    centred = scores - scores.mean() if len(scores) else scores
    spread = centred.std() if len(scores) else 0.0
    return centred / spread if spread > 1e-12 else np.zeros_like(centred)


def roots(squares: Array) -> Array:
    """Return square roots of positive semi-definite matrices, which may be singular: (N, k, k)."""
    values, vectors = np.linalg.eigh(squares)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def numbers_sent(
    method: Literal["rgpe", "taf", "fts"],
    share: Literal["history", "posterior"] = "posterior",
    *,
    features: int = 100,
    observations: int = 50,
    dimension: int = 2,
) -> int:
    """Return how many numbers each agent sends in a message, as FTS Sec. 3.2 counts them.

    FTS sends omega: M. RGPE needs nu and Sigma^-1: M + M^2. TAF in the paper's count also needs
    the incumbent: M + M^2 + 1. Raw histories instead are t (D + 1) for either method. The TAF
    here reads only means, for which M would be enough. RGPE needs all, but Sigma^-1 is symmetric,
    and M + M (M + 1) / 2 would be enough. Each number takes eight bytes.
    """
    if method == "fts":
        return features
    if method not in ("rgpe", "taf"):
        raise ValueError(f"`method` must be fts, rgpe or taf, but got {method!r}")
    if share == "history":
        return observations * (dimension + 1)
    return features + features**2 + (method == "taf")
