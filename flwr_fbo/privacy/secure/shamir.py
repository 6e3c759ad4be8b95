"""Shamir's secret sharing (1979) over the integers modulo the prime 2^255 - 19.

A secret is the value at 0 of a random polynomial of degree t - 1. Party x gets the value at x.
Any t values determine the polynomial; t - 1 values say nothing about the secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr_fbo.privacy.entropy import Entropy
from flwr_fbo.privacy.secure.terms import SecureSumError

PRIME = 2**255 - 19


def share(secret: int, threshold: int, points: Sequence[int], entropy: Entropy) -> list[int]:
    """Return one share for each point; any ``threshold`` of them recover the secret."""
    _check_points(points)
    if not 1 <= threshold <= len(points):
        raise SecureSumError(
            f"`1 <= threshold <= shares` must hold, but got ({threshold=}, shares={len(points)})"
        )
    if not 0 <= secret < PRIME:
        raise SecureSumError("a secret must be in [0, 2^255 - 19), but is not")
    rest = [_uniform(entropy) for _ in range(threshold - 1)]
    shares = []
    for point in points:
        value = 0
        for coefficient in reversed(rest):  # Horner's rule
            value = (value + coefficient) * point % PRIME
        shares.append((value + secret) % PRIME)
    return shares


def recover(shares: Mapping[int, int], threshold: int) -> int:
    """Return the secret from its shares by point; raise SecureSumError for too few of them."""
    if len(shares) < threshold:
        raise SecureSumError(
            f"a secret needs {threshold} shares of different parties, but got {len(shares)}"
        )
    points = sorted(shares)[:threshold]
    _check_points(points)
    weights = _at_zero(points)
    return sum(w * shares[x] for x, w in zip(points, weights, strict=True)) % PRIME


def _at_zero(points: Sequence[int]) -> list[int]:
    """Return the Lagrange weights of the points at 0."""
    above, below = [], []
    for x in points:
        up = down = 1
        for other in points:
            if other != x:
                up, down = up * other % PRIME, down * (other - x) % PRIME
        above.append(up)
        below.append(down)
    return [u * i % PRIME for u, i in zip(above, _inverses(below), strict=True)]


def _inverses(values: Sequence[int]) -> list[int]:
    """Return the inverses modulo the prime, by one inversion of the product of all values."""
    products = [1]
    for value in values:
        products.append(products[-1] * value % PRIME)
    inverse, found = pow(products[-1], -1, PRIME), []
    for i in range(len(values) - 1, -1, -1):
        found.append(inverse * products[i] % PRIME)
        inverse = inverse * values[i] % PRIME
    return found[::-1]


def _uniform(entropy: Entropy) -> int:
    """Return a uniform integer in [0, PRIME)."""
    while True:
        drawn = int.from_bytes(entropy.words(4).tobytes(), "little") >> 1
        if drawn < PRIME:
            return drawn


def _check_points(points: Sequence[int]) -> None:
    """Raise SecureSumError for points that repeat, or that are 0 modulo the prime."""
    if len(set(points)) != len(points) or not all(0 < x < PRIME for x in points):
        raise SecureSumError("the points of shares must differ and lie in [1, 2^255 - 19)")
