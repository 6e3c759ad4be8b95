r"""Regression on features, with a cost per step that does not grow with the number of plays.

Notation

=========================  ==========================================================  ======
paper                      here                                                        shape
=========================  ==========================================================  ======
``phi(x)``                 features of a point                                         (m,)
``Phi``                    features of everything tracked: arms, or a basis            (n, m)
``lambda``                 ``regularisation``                                          scalar
``V = Phi'Phi + lambda I`` kept as ``root = V^(-1/2) Phi^T``, for any square root      (m, n)
``u_i`` (Alg. 1, line 8)   row of ``root``                                             (n,)
``ln|I + K/lambda| / 2``   ``information``                                             scalar
=========================  ==========================================================  ======

Everything that the learners need comes from the root U. Posterior variances are
:math:`\lambda \|U_x\|^2`. A mean is :math:`U_x^T h` for some h in :math:`R^m` that the learner
chooses, and :math:`\|\theta\|_V` is the Euclidean length of its h.

*Which square root?* Algorithm 1 writes :math:`V^{-1/2}`. Its proof uses only that
:math:`W V W^T = I`, which holds for every W with :math:`W^T W = V^{-1}`. After a play at x with
:math:`z = W \phi(x)`, one such root is :math:`(I - \kappa z z^T) W` with
:math:`\kappa = (1 - (1+|z|^2)^{-1/2}) / |z|^2`: a rank-one update of U, without factorisation.
All eigenvalues of the factor lie in (0, 1], so rounding errors are never amplified.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from flwr_fbo.core.arrays import Array, Indices


class Posterior:
    """A root of the posterior covariance over tracked points, updated play by play.

    Parameters
    ----------
    root
        The root U: (m, n).
    regularisation
        The lambda of the regression.
    residual
        Prior variance outside the features (n,); None where the features are exact.
    """

    def __init__(self, root: Array, regularisation: float, residual: Array | None = None) -> None:
        self.root = root
        self.regularisation = regularisation
        self.residual = residual
        self.information = 0.0

    @classmethod
    def prior(cls, features: Array, regularisation: float) -> Posterior:
        """Return the posterior before the first play, V = lambda I, from features (n, m)."""
        return cls(np.ascontiguousarray(features.T) / math.sqrt(regularisation), regularisation)

    @property
    def dimension(self) -> int:
        """Return the number of features (m_t)."""
        return len(self.root)

    def add(self, direction: Array) -> None:
        """Condition on one play whose column of the root is ``direction`` (m,)."""
        square = float(direction @ direction)
        stretch = math.sqrt(1.0 + square)
        shrink = 1.0 / (stretch * (stretch + 1.0))  # kappa, without cancellation
        along = direction @ self.root  # (n,)
        self.root -= np.multiply.outer(shrink * direction, along)
        self.information += 0.5 * math.log1p(square)  # |V + phi phi'| = |V| (1 + |z|^2)

    def variances(self) -> Array:
        """Return the posterior variance of every tracked point (Algorithm 1, line 12): (n,)."""
        within = self.regularisation * np.einsum("mn,mn->n", self.root, self.root)  # (n,)
        return np.asarray(within if self.residual is None else self.residual + within)

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        residual = None if self.residual is None else self.residual.copy()
        return {"root": self.root.copy(), "residual": residual, "information": self.information}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a stored state."""
        self.root = np.array(state["root"], dtype=np.float64)
        residual = state["residual"]
        self.residual = None if residual is None else np.array(residual, dtype=np.float64)
        self.information = float(state["information"])


def nystrom_posterior(
    covariance: Array, counts: Array, chosen: Indices, regularisation: float
) -> Posterior:
    """Return the posterior over arms from the features that a dictionary of arms spans.

    The features ``phi(x) = K_D^(-1/2) k_D(x)`` are the projection on the span of the dictionary.
    The weights of the dictionary's members (their inclusion probabilities) and the choice of the
    square root therefore do not matter, and a Cholesky factor serves. An empty dictionary leaves
    the prior: no features, mean zero, variance k(x, x).

    Parameters
    ----------
    covariance
        The covariance of all arms: (n, n).
    counts
        How often each arm was played: (n,).
    chosen
        The arms of the dictionary: (m,).
    regularisation
        The lambda of the regression.
    """
    if not len(chosen):
        return Posterior(np.zeros((0, len(covariance))), regularisation, np.diag(covariance).copy())
    jitter = 1e-10 * float(np.diag(covariance).max())
    inner = covariance[np.ix_(chosen, chosen)] + jitter * np.eye(len(chosen))  # K_D: (m, m)
    across = covariance[chosen]  # k_D: (m, n)
    features = solve_triangular(cholesky(inner, lower=True), across, lower=True)  # (m, n)
    design = (features * counts) @ features.T + regularisation * np.eye(len(chosen))  # V: (m, m)
    factor = cholesky(design, lower=True)
    root = solve_triangular(factor, features, lower=True)  # (m, n)
    # The part of the prior variance that the dictionary does not span.
    residual = np.maximum(np.diag(covariance) - np.einsum("mn,mn->n", features, features), 0.0)
    posterior = Posterior(root, regularisation, residual)
    posterior.information = float(
        np.log(np.diag(factor)).sum() - 0.5 * len(chosen) * math.log(regularisation)
    )
    return posterior
