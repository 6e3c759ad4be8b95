r"""Log moments of the privacy loss, which the Renyi accountants turn into epsilon.

Notation

===================================  ===============================  ==============
paper                                here                             shape
===================================  ===============================  ==============
``z``, ``q``                         ``noise``, ``rate``              scalars
``lambda + 1``                       ``orders``, all > 1              (k,)
``alpha(lambda)``                    ``log_moments``                  (k,)
===================================  ===============================  ==============

With :math:`\mu_0 = N(0, z^2)` and :math:`\mu_1 = N(1, z^2)`, the Poisson-sampled Gaussian
mechanism has the log moment

.. math:: \alpha(\lambda) = \log E_{\mu_0}\big[(1 - q + q \mu_1/\mu_0)^{\lambda + 1}\big],

the larger of the two directions (Mironov, Talwar, Zhang 2019, Theorem 5). Log moments of
independent releases add up. The Renyi divergence of order a is the log moment over a - 1.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.events import Event, FixedSizeRelease, GaussianRelease

#: What decides the cost of an event: its kind and two numbers. (Its round does not.)
CostKey: TypeAlias = tuple[str, float, float]

#: Every integer order to 256, then fewer: the best order of a small loss is large.
INTEGER_ORDERS = np.unique(
    np.concatenate([np.arange(2, 257), np.rint(np.geomspace(257, 16385, 40))])
).astype(np.float64)
FRACTIONAL_ORDERS = np.concatenate([[1.02, 1.05], np.arange(11, 110) / 10.0])
#: The orders of the Renyi accountant: those of the moments accountant and some fractional ones.
RENYI_ORDERS = np.union1d(FRACTIONAL_ORDERS, INTEGER_ORDERS)
#: Fewer: the bound for fixed-size samples costs more for each order, and is for integers only.
FIXED_SIZE_ORDERS = np.concatenate([np.arange(2.0, 65.0), np.arange(68.0, 257.0, 4.0)])


def cost_key(event: Event) -> CostKey:
    """Return the key of the event's cost: events with equal keys cost the same."""
    if isinstance(event, GaussianRelease):
        return ("gaussian", event.noise_multiplier, event.sampling_rate)
    if isinstance(event, FixedSizeRelease):
        return ("fixed-size", event.noise_multiplier, event.sample_size / event.population)
    return ("laplace", event.epsilon, 1.0)


@lru_cache(maxsize=4096)
def log_moments(key: CostKey, accountant: str) -> Array:
    """Return the log moments of one event at the orders of this accountant: (k,)."""
    name, first, second = key
    if name == "fixed-size":
        return fixed_size(first, second, FIXED_SIZE_ORDERS)
    orders = INTEGER_ORDERS if accountant == "moments" else RENYI_ORDERS
    if name == "laplace":
        return laplace(first, orders)
    return poisson_gaussian(first, second, orders)


def poisson_gaussian(noise: float, rate: float, orders: Array) -> Array:
    """Return the log moments of one Poisson-sampled Gaussian release: (k,)."""
    if rate == 1.0:  # no sampling: the divergence of two Gaussians, a / (2 z^2), times a - 1
        return np.asarray(orders * (orders - 1.0) / (2.0 * noise**2))
    whole = orders == np.floor(orders)
    values = np.empty(orders.shape)  # (k,)
    values[whole] = [_binomial(noise, rate, int(a)) for a in orders[whole]]
    if not np.all(whole):
        values[~whole] = _quadrature(noise, rate, orders[~whole])
    return np.maximum(values, 0.0)  # a log moment is never negative; rounding can be


def _binomial(noise: float, rate: float, order: int) -> float:
    """Return the log moment of an integer order, by expanding the power of the mixture."""
    # E[(mu_1/mu_0)^k] = e^(k(k-1)/2z^2)
    k = np.arange(order + 1.0)
    terms = _log_binomials(order) + (order - k) * math.log1p(-rate) + k * math.log(rate)
    return float(_log_sum(terms + k * (k - 1.0) / (2.0 * noise**2)))


def _quadrature(noise: float, rate: float, orders: Array) -> Array:
    """Return the log moments of any orders, by the trapezoidal rule: (k,).

    The rule's error falls exponentially in 1/step for an analytic integrand. In u = x / z the
    integrand is analytic to the distance pi z from the real line. A step of z / 4 leaves an
    error of e^-79 there, and a step of 1/8 leaves e^-1000 for the Gaussian factor.
    """
    if noise < 0.1:  # the grid would grow as 1/z^2; infinity leaves the choice to integer orders
        return np.full(orders.shape, np.inf)
    step = min(0.125, noise / 4.0)
    u = np.arange(-14.0, orders.max() / noise + 14.0, step)  # (g,)
    # log(1 - q + q mu_1/mu_0) at x = z u
    ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + u / noise - 1.0 / (2.0 * noise**2))
    exponent = orders[:, None] * ratio - 0.5 * u * u  # (k, g)
    constant = math.log(step) - 0.5 * math.log(2.0 * math.pi)
    return np.asarray(_log_sum(exponent) + constant)


def laplace(epsilon: float, orders: Array) -> Array:
    """Return the log moments of the Laplace mechanism (Mironov 2017, Table II): (k,)."""
    low = np.log((orders - 1.0) / (2.0 * orders - 1.0)) - orders * epsilon
    high = np.log(orders / (2.0 * orders - 1.0)) + (orders - 1.0) * epsilon
    return np.logaddexp(low, high)


def fixed_size(noise: float, rate: float, orders: Array) -> Array:
    r"""Return the log moments of a fixed-size sample in which one message is replaced: (k,).

    App. B.2.4 and Wang et al. (2019), Theorem 27. The theorem's noise multiplier is relative to
    how far a *replacement* moves the sum, which is twice the largest contribution. The
    multiplier of an event is relative to one contribution, so z here is half the event's. With
    :math:`B(l) = E_{\mu_0}[(\mu_1/\mu_0 - 1)^l]`, the log moment of integer order a is at most

    .. math:: \log\Big(1 + \sum_{j=2}^a \binom{a}{j} q^j \min\big(
        4 \sqrt{B(2\lfloor j/2 \rfloor) B(2\lceil j/2 \rceil)},\; 2 e^{j(j-1)/2z^2} \big)\Big).
    """
    z = noise / 2.0
    if rate == 1.0:  # everybody takes part: the divergence of two Gaussians
        return np.asarray(orders * (orders - 1.0) / (2.0 * z**2))
    j = np.arange(2.0, orders.max() + 1.0)  # (J,)
    even = _log_even_moments(z, int(orders.max()) // 2 + 1)  # l = 2, 4, ...
    low, high = (j // 2).astype(int) - 1, (-(-j // 2)).astype(int) - 1  # floor, ceiling of j/2
    term = np.minimum(
        math.log(4.0) + 0.5 * (even[low] + even[high]),
        math.log(2.0) + j * (j - 1.0) / (2.0 * z**2),
    ) + j * math.log(rate)
    values = []
    for order in orders:
        mine = j <= order
        inner = np.append(term[mine] + _log_binomials(int(order))[2:], 0.0)  # log 1 is the 0
        values.append(_log_sum(inner))
    return np.array(values)


def _log_even_moments(noise: float, count: int) -> Array:
    """Return log B(2), log B(4), ..., log B(2 count), as integrals of positive functions."""
    # For little noise B(j) is e^(j(j-1)/2z^2) to twelve digits, so the second bound is smaller.
    if noise < 0.2:
        return np.full(count, np.inf)
    step = min(0.125, noise / 4.0)
    top = 2.0 * count
    u = np.arange(-14.0, top / noise + 14.0, step)  # (g,)
    exponent = u / noise - 1.0 / (2.0 * noise**2)
    with np.errstate(divide="ignore"):
        distance = np.where(  # log |e^x - 1|, without overflow where x is large
            exponent > 30.0, exponent, np.log(np.abs(np.expm1(np.minimum(exponent, 30.0))))
        )
    constant = math.log(step) - 0.5 * math.log(2.0 * math.pi)
    powers = 2.0 * np.arange(1, count + 1)
    values = [_log_sum(power * distance - 0.5 * u * u) for power in powers]
    return np.array(values) + constant


@lru_cache(maxsize=512)
def _log_binomials(n: int) -> Array:
    """Return log(n over k) for k = 0, ..., n: (n + 1,)."""
    from scipy import special  # slow to import

    k = np.arange(n + 1.0)
    return np.asarray(
        special.gammaln(n + 1.0) - special.gammaln(k + 1.0) - special.gammaln(n - k + 1.0)
    )


def _log_sum(exponents: Array) -> Array:
    """Return log sum exp over the last axis, at a fifth of the cost of scipy's logsumexp."""
    top = exponents.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(exponents - top).sum(axis=-1)) + top[..., 0])
