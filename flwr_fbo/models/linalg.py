"""Cholesky factors of covariance matrices, repaired by jitter where rounding requires it.

The functions call LAPACK directly: for matrices as small as an agent's, the checks of scipy's
own functions take longer than the factorisation. Matrices of several agents, (A, n, n), are
factorised one by one.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from flwr_fbo.core.arrays import Array

#: Jitter tried in turn, relative to the mean of the diagonal. Repeated points with almost no
#: noise are the usual cause; 1e-6 of the variance changes no decision.
JITTER = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
#: A row is appended to a factor only if more than this share of its variance is new.
LEAST_NEW_VARIANCE = 1e-10


class FactorisationError(ArithmeticError):
    """A covariance matrix is not positive definite, even after jitter."""


def factorise(square: Array) -> Array:
    """Return the lower Cholesky factor of a positive (semi-)definite matrix (..., n, n)."""
    if square.ndim > 2:
        return np.stack([factorise(matrix) for matrix in square])
    if not np.isfinite(square).all():
        raise FactorisationError("a covariance matrix must be finite, but has NaN or infinity")
    if not len(square):
        return np.zeros((0, 0))
    for jitter in JITTER:
        repaired = square
        if jitter:
            repaired = add_to_diagonal(square.copy(), jitter * np.diag(square).mean())
        factor, failed = lapack.dpotrf(repaired, lower=1)
        if not failed:
            return np.asarray(factor)
    raise FactorisationError(
        f"a covariance matrix of {len(square)} points is not positive definite, even with "
        f"{JITTER[-1]:g} of its variance added to the diagonal"
    )


def add_to_diagonal(square: Array, amount: float | Array) -> Array:
    """Add an amount to the diagonal of a square matrix in place, and return the matrix.

    An amount for each of A matrices is (A, 1).
    """
    diagonal = np.einsum("...ii->...i", square)  # a view
    diagonal += amount
    return square


def append_row(factor: Array, cross: Array, corner: float) -> Array | None:
    """Return the Cholesky factor (n + 1, n + 1) of a matrix that has one more row.

    ``cross`` (n,) are the covariances with the rows already there, ``corner`` is the variance of
    the new row. Return None where the new row is so nearly dependent on the others that the
    factor must be computed anew.
    """
    n = len(factor)
    row = lapack.dtrtrs(factor, cross, lower=1)[0] if n else cross
    rest = corner - float(row @ row)
    if not rest > LEAST_NEW_VARIANCE * corner:
        return None
    larger = np.zeros((n + 1, n + 1))
    larger[:n, :n] = factor
    larger[n, :n] = row
    larger[n, n] = np.sqrt(rest)
    return larger


def solve(factor: Array, right: Array) -> Array:
    """Return (L L')^-1 right for a lower factor L (n, n) and right (n,) or (n, m).

    For A factors (A, n, n), right is (A, n).
    """
    if factor.ndim > 2:
        return np.stack([solve(f, r) for f, r in zip(factor, right, strict=True)])
    if not right.size:
        return np.zeros_like(right)
    return np.asarray(lapack.dpotrs(factor, right, lower=1)[0])


def inverse_root(square: Array) -> Array:
    """Return lower triangular R (..., n, n) with R'R the inverse of a positive definite matrix."""
    if square.ndim > 2:
        return np.stack([inverse_root(matrix) for matrix in square])
    factor = factorise(square)
    if not len(factor):
        return factor
    # By rows, as the matrices of several agents are: products round by the order in memory.
    return np.ascontiguousarray(lapack.dtrtri(factor, lower=1)[0])
