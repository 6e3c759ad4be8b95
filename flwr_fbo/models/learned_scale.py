r"""The length scale of the parties' mean objective, learned from the first release.

Random features are drawn before anybody has evaluated anything, with many length scales
(:func:`~flwr_fbo.models.features.feature_lengthscales`). The first release says which of them
matter. No party has enough scores to know this by itself. What is learned is post-processing of a
release, and costs no privacy.

Notation

=================================================  ====================  ===========
symbol                                             here                  shape
=================================================  ====================  ===========
``X_1, ..., X_J``: n random points, J times        ``points``            (J, n, E)
``A_j``, from scores at ``X_j`` to a vector        ``_responses``        (J, M, n)
``v``, the released weights                        ``weights``           (M,)
``sigma``, the noise of the release                ``deviation``         scalar
``N``, ``lambda``                                  ``agents``, ``noise``
``l``, the length scale, and ``s^2``               ``LENGTHSCALES`` of   scalars
                                                   them, ``SIZES``
=================================================  ====================  ===========

A party with the scores y of n random points sends :math:`A y`, with :math:`A = \Phi^\top (\Phi
\Phi^\top + \lambda I)^{-1}` after y is centred. If the mean objective is a draw from
:math:`GP(0, s^2 k_l)`, the release is Gaussian with mean 0 and covariance

.. math:: s^2 B K_l B^\top + \tfrac1N \overline{A A^\top} + \sigma^2 I,

where B is the mean of all :math:`A_j` side by side, :math:`K_l` is the kernel of all random
points, and the second term is what the parties' own points and noise leave in a mean of N vectors.
So each length scale has a likelihood. It is computed in the span of B, at most J n dimensions.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.models.features import RandomFeatures, feature_lengthscales
from flwr_fbo.models.kernels import SquaredExponential
from flwr_fbo.models.linalg import factorise

#: How many length scales are compared, from the features' shortest to their longest.
LENGTHSCALES = 8
#: Values of s^2 that are compared.
SIZES = (0.03, 0.1, 0.3, 0.6, 1.0)
#: A length scale is learned if the release is exp(20) times as likely by it as by any wide one:
#: the likelihood leaves out that objectives are no Gaussian processes.
DECISIVE = 20.0
#: Length scales of at least this share of the features' longest are wide.
WIDE = 0.5
#: Added to the variance of each coordinate, so that a release without noise has a likelihood.
LEAST_VARIANCE = 1e-8


def learn_lengthscale(
    features: RandomFeatures,
    points: Array,
    weights: Array,
    deviation: float,
    noise: float,
    agents: int,
    dimension: int,
) -> float | None:
    """Return the length scale of a mean objective that is clearly narrow; None of any other.

    Parameters
    ----------
    features : RandomFeatures
        The shared random features, with many length scales.
    points : Array
        J times n random points of the space in embedded coordinates, (J, n, E), where n is the
        number of scores that each party had.
    weights : Array
        The released weights, (M,).
    deviation : float
        The standard deviation of the noise in each weight.
    noise : float
        lambda, the noise variance in the posterior of a party's weights.
    agents : int
        N, the number of parties in the mean.
    dimension : int
        D, the number of parameters, on which the features' length scales depend.
    """
    scales = _lengthscales(features.count, dimension)
    widest = scales >= WIDE * scales[-1]
    if widest.all():  # in five dimensions and more, few features represent nothing narrow
        return None
    responses = _responses(features, points, noise)  # (J, M, n)
    side_by_side = np.concatenate(list(responses), axis=1) / len(points)  # B: (M, J n)
    basis = np.linalg.qr(side_by_side)[0]  # (M, r)
    inside = basis.T @ responses  # (J, r, n)
    own = (inside @ inside.swapaxes(1, 2)).mean(axis=0) / agents  # (r, r)
    own[np.diag_indices(len(own))] += deviation**2 + LEAST_VARIANCE
    mean, seen = basis.T @ side_by_side, basis.T @ weights
    rows = points.reshape(-1, points.shape[2])
    found = np.array([_log_likelihood(mean, rows, own, seen, scale) for scale in scales])
    best = int(np.argmax(found))
    return float(scales[best]) if found[best] > found[widest].max() + DECISIVE else None


def _lengthscales(features: int, dimension: int) -> Array:
    """Return the length scales to compare, the longest last."""
    every = feature_lengthscales(features, dimension)[:, 0]
    return np.geomspace(every.min(), every.max(), LENGTHSCALES)


def _responses(features: RandomFeatures, points: Array, noise: float) -> Array:
    """Return A_j: what each score at the points (J, n, E) adds to a party's vector: (J, M, n)."""
    phi = features(points)  # (J, n, M)
    square = phi @ phi.swapaxes(-1, -2) + noise * np.eye(points.shape[1])
    response = np.linalg.solve(square, phi).swapaxes(-1, -2)
    # Scores are standardised: their mean does not count.
    return np.asarray(response - response.mean(axis=2, keepdims=True))


def _log_likelihood(mean: Array, rows: Array, own: Array, seen: Array, scale: float) -> float:
    """Return the log likelihood of a length scale, at the size s^2 that suits it best."""
    spread = mean @ SquaredExponential(scale)(rows, rows) @ mean.T
    values = []
    for size in SIZES:
        factor = factorise(size * spread + own)
        half = np.linalg.solve(factor, seen)
        values.append(-0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum()))
    return max(values)


def weight_deviations(features: RandomFeatures, lengthscale: float, dimension: int) -> Array:
    r"""Return the prior deviations of the weights for a kernel of this length scale: (M,).

    Features are drawn from the mean q(s) of the spectra of many length scales. Weighted by
    :math:`p(s) / q(s)`, they approximate the squared exponential kernel with the spectrum p. The
    deviations are the roots of these weights, whose mean is 1.
    """
    scales = feature_lengthscales(features.count, dimension)  # (M, 1)
    width = features.frequencies.shape[1]
    squared = np.einsum("me,me->m", features.frequencies, features.frequencies)
    logs = width * np.log(scales) - 0.5 * scales**2 * squared  # (M, M), of N(0, l^-2 I)
    largest = logs.max(axis=0)
    drawn = largest + np.log(np.exp(logs - largest).mean(axis=0))
    wanted = width * math.log(lengthscale) - 0.5 * lengthscale**2 * squared
    ratio = np.exp(wanted - drawn)
    return np.asarray(np.sqrt(ratio / ratio.mean()))
