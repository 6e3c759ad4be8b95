r"""RGPE (Feurer, Letham and Bakshy 2018): an ensemble of Gaussian processes weighted by ranking.

Notation

======================  ==========================================  ============
paper                   here                                        shape
======================  ==========================================  ============
``L(f, D_t)``           ``losses``, misranked pairs of a draw       (N + 1, S)
``w_i``                 ``weights``; the target's own is the last   (N + 1,)
``mu, sigma^2``         ``sum w_i mu_i``, ``sum w_i^2 sigma_i^2``   (n,)
======================  ==========================================  ============

A model's loss is the number of pairs of the target's observations that a draw from the model
ranks wrongly. The target's own draws are from the model without the observation that is compared.
A model's weight is the share of draws in which the model has the least loss; the target wins
ties. Many other models would dilute the weights: a model is left out if its median loss exceeds
the 95th percentile of the target's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import at_least, setting, within
from flwr_fbo.methods.comparators.transfer import (
    TransferAgent,
    TransferSettings,
    expected_improvement,
)
from flwr_fbo.models.gp import GaussianProcess

#: With fewer observations, leaving one out teaches nothing, and all models have equal weights.
LEAST_OBSERVATIONS = 3


@dataclass(frozen=True)
class RGPESettings(TransferSettings):
    """Settings of the ensemble's weights."""

    draws: int = setting(256, "draws from every model whose rankings are compared (S)", at_least(1))
    discard: float = setting(
        95.0,
        "percentile of the target's losses; a model with a larger median loss is left out",
        within(0, 100),
    )


class RGPEAgent(TransferAgent[RGPESettings]):
    """Expected improvement under the ensemble of all agents' models."""

    #: Weights of the other models and, last, of the target's own model: (N + 1,).
    weights: Array

    def _weigh(self, model: GaussianProcess, rng: np.random.Generator) -> None:
        count, seen = self.surrogates.count, len(model.y)
        if seen < LEAST_OBSERVATIONS:
            self.weights = np.full(count + 1, 1.0 / (count + 1))
            return
        drawn = self.surrogates.sample(model.x, self.settings.draws, rng)  # (N, S, t)
        left_out = leave_one_out_draws(model, self.settings.draws, rng)  # (S, t, t)
        own = left_out_losses(left_out, model.y)
        losses = np.vstack([ranking_losses(drawn, model.y), own[None, :]])  # (N + 1, S)
        self.weights = ensemble_weights(losses, self.settings.discard)

    def _acquisition(self, model: GaussianProcess, x: Array) -> Array:
        mean, variance = model.posterior(x)
        own = self.weights[-1]
        mean, variance = own * mean, own**2 * variance
        used = np.flatnonzero(self.weights[:-1])
        if len(used):  # most models have no weight, and need no prediction
            means, variances = self.surrogates.posterior(x, used)
            mean = mean + self.weights[used] @ means
            variance = variance + self.weights[used] ** 2 @ variances
        return expected_improvement(mean, variance, float(model.y.max()))


def ensemble_weights(losses: Array, discard: float = 95.0) -> Array:
    """Return how often each model has the least loss (N + 1, S) of a draw: (N + 1,).

    The last model is the target's, which wins ties. The weights sum to one.
    """
    target = losses[-1]
    out = np.median(losses[:-1], axis=1) > np.percentile(target, discard)
    kept = np.where(out[:, None], np.inf, losses[:-1])
    best = np.vstack([target, kept]).argmin(axis=0)  # the target first: it wins ties
    counts = np.bincount(best, minlength=len(losses)) / losses.shape[1]
    return np.concatenate([counts[1:], counts[:1]])


def ranking_losses(drawn: Array, y: Array) -> Array:
    """Return the number of pairs of scores y (t,) that draws (..., t) rank wrongly: (...)."""
    losses = np.zeros(drawn.shape[:-1])
    for j in range(len(y)):  # a row of pairs at a time: all at once would not fit in memory
        losses += ((drawn[..., j, None] < drawn) ^ (y[j] < y)).sum(axis=-1)
    return losses


def left_out_losses(drawn: Array, y: Array) -> Array:
    """Return the ranking losses of leave-one-out draws (S, t, t): (S,).

    Row j of a draw is from the model without observation j. The row's own point j is compared
    with its other points.
    """
    diagonal = np.einsum("sjj->sj", drawn)[..., None]  # each row at the point it has not seen
    return np.asarray(((diagonal < drawn) ^ (y[:, None] < y)).sum(axis=(1, 2)), dtype=np.float64)


def leave_one_out_draws(model: GaussianProcess, draws: int, rng: np.random.Generator) -> Array:
    r"""Return draws at the model's points, row j from the model without observation j.

    The shape is (draws, t, t). With :math:`A = (K + \sigma^2 I)^{-1}` and :math:`\alpha = A y`,
    the posterior at the points is :math:`N(y - \sigma^2 \alpha, \sigma^2 I - \sigma^4 A)`. Taking
    observation j away adds :math:`d_j / \sqrt{A_{jj}}` times a standard normal to a draw, and
    :math:`-d_j \alpha_j / A_{jj}` to the mean, where :math:`d_j = e_j - \sigma^2 A_j`. One
    inverse therefore serves all t models.
    """
    count, noise = len(model.y), model.noise
    inverse = model.solve(np.eye(count))  # A
    alpha, diagonal = inverse @ model.y, np.diag(inverse)
    values, vectors = np.linalg.eigh(noise * np.eye(count) - noise**2 * inverse)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    common = model.y - noise * alpha + rng.standard_normal((draws, count)) @ root.T  # (S, t)
    direction = np.eye(count) - noise * inverse  # rows d_j: (t, t), symmetric
    extra = rng.standard_normal((draws, count)) / np.sqrt(diagonal) - alpha / diagonal
    return np.asarray(common[:, None, :] + extra[:, :, None] * direction[None, :, :])
