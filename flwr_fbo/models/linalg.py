"""Factorising covariance matrices: repaired by jitter where rounding requires it, or refused.

LAPACK is called as it is: what scipy's functions do around it takes longer than a matrix of an
agent's observations.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from flwr_fbo.core.arrays import Array

#: Jitter tried in turn, relative to the mean of the diagonal. Repeated points with almost no
#: noise are the usual cause; 1e-6 of the variance changes no decision.
JITTER = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)


class FactorisationError(ArithmeticError):
    """A covariance matrix is not positive definite, even after jitter."""


def factorise(square: Array) -> Array:
    """Lower Cholesky factor of a symmetric positive (semi-)definite matrix (n, n)."""
    if not np.isfinite(square).all():
        raise FactorisationError("a covariance matrix must be finite, but has NaN or infinity")
    if not len(square):
        return np.zeros((0, 0))
    for jitter in JITTER:
        lifted = lift(square.copy(), jitter * np.diag(square).mean()) if jitter else square
        factor, failed = lapack.dpotrf(lifted, lower=1)
        if not failed:
            return np.asarray(factor)
    raise FactorisationError(
        f"a covariance matrix of {len(square)} points is not positive definite, even with "
        f"{JITTER[-1]:g} of its variance added to the diagonal"
    )


def lift(square: Array, amount: float) -> Array:
    """A square matrix with something added to its diagonal, in place."""
    diagonal = np.einsum("ii->i", square)  # a view
    diagonal += amount
    return square


def extend(factor: Array, cross: Array, corner: float) -> Array | None:
    """The factor after one more row: (n + 1, n + 1), or None where it must be made anew.

    ``cross`` (n,) are the covariances with the rows already there, ``corner`` the variance.
    """
    n = len(factor)
    row = lapack.dtrtrs(factor, cross, lower=1)[0] if n else cross
    rest = corner - float(row @ row)
    if not rest > 1e-10 * corner:
        return None
    larger = np.zeros((n + 1, n + 1))
    larger[:n, :n] = factor
    larger[n, :n] = row
    larger[n, n] = np.sqrt(rest)
    return larger


def solve(factor: Array, right: Array) -> Array:
    """(L L')^-1 right for a lower factor L (n, n) and right (n,) or (n, m)."""
    if not right.size:
        return np.zeros_like(right)
    return np.asarray(lapack.dpotrs(factor, right, lower=1)[0])


def inverse_root(square: Array) -> Array:
    """R (n, n), lower triangular, with R'R the inverse of a positive definite matrix."""
    factor = factorise(square)
    if not len(factor):
        return factor
    return np.asarray(lapack.dtrtri(factor, lower=1)[0])
