r"""What releases say about the mean objective of all parties: a posterior over a design of points.

The maximum of a released function is often a peak of its noise. Here the noise is known, and what
mean objectives look like is a prior, so the released weights become a posterior of the values of
the mean objective at points that are spread over the space. All of it is post-processing of
releases, and costs no privacy.

Notation

=========================================  ==========================  ==========
symbol                                     here                        shape
=========================================  ==========================  ==========
``X``, the design                          ``model.points``            (G, D)
``f``, the mean objective at the design                                (G,)
``v = L f + e``, ``e ~ N(0, tau^2 I)``     ``weights``                 (M,)
``L``, from values to weights              ``response``                (M, G)
``tau``, with the parties' disagreement    ``deviation``               scalar
``f ~ N(b, s^2 K)``                        ``prior_mean``, ``kernel``  (G,), (G, G)
=========================================  ==========================  ==========

**L.** From its own n points a party sends :math:`(\Phi^\top \Phi + \lambda I)^{-1} \Phi^\top y`
With points spread like the design, that is about :math:`L y` with :math:`L = (\tfrac nG
\Phi^\top \Phi + \lambda I)^{-1} \tfrac nG \Phi^\top`.

**K** mixes a sum of kernels of single parameters with a kernel of all parameters. The mixture and
the size s are weighted by how likely they make the release (empirical Bayes).

**b** falls from the middle of every numeric range towards its ends: ranges are chosen around what
is expected to work. Where a release is nothing but noise, a point near the middle is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import qr

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.linalg import add_to_diagonal, factorise
from flwr_fbo.search.acquisition import all_points, quasi_random

#: G: the number of points of the design.
DESIGN = 512
#: Length scale of the kernels of the prior, in the unit cube; that of all parameters together is
#: multiplied by the square root of their number.
LENGTHSCALE = 0.4
#: Shares of the sum of single parameters in the kernel, and values of s^2, that are weighted.
ADDITIVE = (1.0, 0.7, 0.3)
SIZES = (0.0025, 0.01, 0.04, 0.16, 0.5, 1.0)
#: Standard deviation of b over the space, in standardised scores.
MIDDLE = 0.2
#: A party's vector differs from the mean of all vectors by about this norm.
DISAGREEMENT = 0.5
#: Models with less weight than this are left out.
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True, eq=False)
class _Hypothesis:
    """One prior of f, how likely it makes the release, and the gain that corrects f by it."""

    kernel: Array  # (G, G), s^2 included
    gain: Array  # (G, r), from what v and the prior differ by to f
    weight: float


@dataclass(frozen=True, eq=False)
class ReleasedModel:
    """The posterior of the mean objective at the points of a design.

    Parameters
    ----------
    space : Space
        The search space.
    features : RandomFeatures
        The random features that the weights refer to.
    weights : Array
        The released weights, (M,).
    deviation : float
        The standard deviation of the noise in each weight.
    evaluations : int
        n, the scores of each party at the time of the release.
    feature_noise : float
        lambda.
    agents : int
        The number of parties in the mean.
    """

    space: Space
    features: RandomFeatures
    weights: Array
    deviation: float
    evaluations: int
    feature_noise: float
    agents: int

    @cached_property
    def points(self) -> Array:
        """Return the design, spread over the space; all points of a small finite space: (G, D)."""
        every = all_points(self.space)
        if every is not None and len(every) <= DESIGN:
            return every
        rng = np.random.default_rng(0)  # the same for every reader of the releases
        if every is not None:
            return every[np.sort(rng.choice(len(every), DESIGN, replace=False))]
        return np.unique(self.space.snap(quasi_random(DESIGN, self.space.dimension, rng)), axis=0)

    @cached_property
    def prior_mean(self) -> Array:
        """Return b: (G,)."""
        return MIDDLE * middle_first(self.space, self.points)

    @cached_property
    def _response(self) -> tuple[Array, Array]:
        """Return L and v, in at most G coordinates that hold all that v says of f."""
        phi = self.features(self.space.embed(self.points))  # (G, M)
        share = self.evaluations / len(phi)
        square = add_to_diagonal(share * (phi.T @ phi), self.feature_noise)
        response = np.asarray(np.linalg.solve(square, share * phi.T), dtype=np.float64)  # (M, G)
        if len(response) <= response.shape[1]:
            return response, self.weights
        basis = np.asarray(qr(response, mode="economic")[0], dtype=np.float64)
        return basis.T @ response, basis.T @ self.weights

    @property
    def _variance(self) -> float:
        """Return tau^2."""
        own = DISAGREEMENT**2 / (self.agents * self.features.count)
        return self.deviation**2 + own

    @cached_property
    def _hypotheses(self) -> list[_Hypothesis]:
        """Return the priors that the release leaves likely, with their weights."""
        response, seen = self._response
        rest, found, logs = seen - response @ self.prior_mean, [], []
        for additive in ADDITIVE:
            kernel = mixed_kernel(self.space, self.points, additive)
            cross = response @ kernel  # (r, G)
            spread, axes = np.linalg.eigh(cross @ response.T)
            along = axes.T @ rest
            for size in SIZES:
                total = size * np.maximum(spread, 0.0) + self._variance  # (r,)
                logs.append(-0.5 * float((np.log(total) + along**2 / total).sum()))
                found.append((size * kernel, axes / total, axes, size * cross))
        likely = np.exp(np.array(logs) - max(logs))
        likely /= likely.sum()
        return [
            _Hypothesis(kernel, cross.T @ (scaled @ axes.T), float(weight))
            for (kernel, scaled, axes, cross), weight in zip(found, likely, strict=True)
            if weight >= LEAST_WEIGHT
        ]

    @cached_property
    def mean(self) -> Array:
        """Return the posterior mean of f: (G,)."""
        response, seen = self._response
        rest = seen - response @ self.prior_mean
        total = sum(h.weight for h in self._hypotheses)
        correction = sum(h.weight / total * (h.gain @ rest) for h in self._hypotheses)
        return np.asarray(self.prior_mean + correction)

    def mean_at(self, units: Array) -> Array:
        """Return the posterior mean at the point of the design next to each of n points: (n,)."""
        here, design = self.space.embed(units), self.space.embed(self.points)
        apart = ((here[:, None, :] - design) ** 2).sum(axis=2)  # (n, G)
        return np.asarray(self.mean[apart.argmin(axis=1)])

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Draw functions from the posterior: (G, count)."""
        response, seen = self._response
        rest = seen - response @ self.prior_mean
        weights = np.array([h.weight for h in self._hypotheses])
        drawn = []
        counts = rng.multinomial(count, weights / weights.sum())
        for h, n in zip(self._hypotheses, counts.tolist(), strict=True):
            factor = factorise(h.kernel.copy())
            prior = factor @ rng.standard_normal((len(factor), n))
            noise = math.sqrt(self._variance) * rng.standard_normal((len(seen), n))
            # Matheron: a draw from the prior, corrected by what it would have released.
            drawn.append(prior + h.gain @ (rest[:, None] - response @ prior - noise))
        return np.asarray(self.prior_mean[:, None] + np.hstack(drawn))


def middle_first(space: Space, units: Array) -> Array:
    """Return a bowl that is highest in the middle of all numeric ranges: (n,).

    Over the whole space the bowl has mean 0 and standard deviation 1; without a numeric parameter
    the bowl is flat.
    """
    numeric = [not isinstance(p, Categorical) for p in space.parameters.values()]
    sides = (2.0 * units[:, numeric] - 1.0) ** 2 - 1.0 / 3.0  # (n, d); variance 4/45 each
    return np.asarray(-sides.sum(axis=1) / math.sqrt(4.0 / 45.0 * max(1, sum(numeric))))


def mixed_kernel(space: Space, units: Array, additive: float) -> Array:
    """Return the prior correlations of values at points (n, D): (n, n)."""
    embedded, ends = space.embed(units), np.cumsum(space.embedding_widths)
    total, single = np.zeros((len(units), len(units))), np.zeros((len(units), len(units)))
    for columns in np.split(embedded, ends[:-1], axis=1):
        squared = ((columns[:, None, :] - columns[None, :, :]) ** 2).sum(axis=2)
        single += np.exp(-squared / (2.0 * LENGTHSCALE**2))
        total += squared
    count = space.dimension
    joint = np.exp(-total / (2.0 * LENGTHSCALE**2 * count))
    return np.asarray(additive * single / count + (1.0 - additive) * joint)


def best_together(functions: Array, count: int, first: int) -> list[int]:
    """Return ``count`` different rows of functions (G, S) whose best is expected to be best.

    Rows are added to ``first`` one by one. Each added row raises the mean, over the functions, of
    the largest value by the most. So the chosen rows differ from one another: neighbours of the
    best row would add little.
    """
    chosen, largest = [first], functions[first]
    while len(chosen) < min(count, len(functions)):
        gain = np.maximum(functions, largest).mean(axis=1)  # (G,)
        gain[chosen] = -np.inf
        chosen.append(int(np.argmax(gain)))
        largest = np.maximum(largest, functions[chosen[-1]])
    return chosen


def combined(
    vectors: Sequence[Array], deviations: Sequence[float], signals: Sequence[float]
) -> tuple[Array, float]:
    """Return the mean of releases (M,) of growing signal, in the scale of the last, and its noise.

    Release k is :math:`a_k v + \\tau_k e_k` with the signal :math:`a_k` over the last one's. The
    weights :math:`a_k / \\tau_k^2` give the unbiased estimate of v of least variance.
    """
    noise = np.array(deviations, dtype=np.float64)
    if not noise[-1]:  # without noise the last release says all
        return np.asarray(vectors[-1]), 0.0
    share = np.array(signals) / signals[-1]
    precise = share / noise**2
    precise /= float((precise * share).sum())
    return np.asarray(np.tensordot(precise, np.stack(vectors), 1)), float(
        np.linalg.norm(precise * noise)
    )
