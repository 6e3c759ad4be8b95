r"""Bounds for the best of a random number of independent trainings.

The search that these bounds are for draws the number of trainings at random, keeps the number
secret, draws the settings of each training independently (random search), and publishes the model
with the best score only. The bounds hardly grow with the mean number of trainings. They hold for
no other search: for a fixed number of trainings, or for settings that follow from earlier scores,
the cost can be as large as that of all trainings together.

Notation (PS is Papernot and Steinke 2022, "Hyperparameter tuning with Renyi differential privacy")

==================================  ==============================================  ========
PS                                  here                                            shape
==================================  ==============================================  ========
``E[K]``                            ``mean``                                        scalar
``eta``, ``gamma``                  ``shape``, ``stopping_probability(...)``        scalars
``lambda``                          ``orders``, all > 1                             (a,)
``epsilon``, a function of lambda   ``divergences``, of one training                (a,)
``epsilon'``                        ``selection_curve(...)``                        (a,)
``delta-hat(epsilon-hat)``          ``profile(epsilons)``, of one training          (a,)
==================================  ==============================================  ========

PS give the law of K a shape: 1 is the geometric law, 0 the logarithmic law (both are truncated
negative binomial laws), and infinity the Poisson law.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks

#: A training's privacy profile: epsilons (a,) to the least delta of each (a,).
Profile = Callable[[Array], Array]

#: The laws of a random number of trainings for which bounds are given, with their shapes.
LAWS = {"Poisson": math.inf, "geometric": 1.0, "logarithmic": 0.0}


def law_mean(stopping: float, shape: float) -> float:
    """Return the mean of the truncated negative binomial law (PS, Definition 1)."""
    if shape == 0.0:
        return (1.0 - stopping) / (stopping * -math.log(stopping))
    survive = -math.expm1(shape * math.log(stopping))  # 1 - gamma^eta
    return shape * (1.0 - stopping) / (stopping * survive)


def stopping_probability(mean: float, shape: float) -> float:
    """Return gamma of the law with this mean, to the last digits and never above gamma."""
    if not mean > 1.0:
        raise checks.PrivacyError(f"`mean` must be > 1, but got {mean!r}")
    low, high = 0.0, 1.0  # in gamma, with mean infinity and 1
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if law_mean(middle, shape) > mean else (low, middle)
    return low


def selection_curve(
    orders: Array,
    divergences: Array,
    mean: float,
    shape: float,
    profile: Profile,
    limit: float = math.inf,
) -> Array:
    """Return the Renyi divergences of the best of a random number of trainings: (a,).

    Parameters
    ----------
    orders, divergences : Array
        The Renyi divergences of one training, (a,) each.
    mean : float
        The mean number of trainings, > 1.
    shape : float
        The law of the number; infinity is the Poisson law.
    profile : Callable
        The privacy profile of one training, which only the Poisson law needs.
    limit : float
        The divergence of order infinity, where the training is private with delta 0.
    """
    if not mean > 1.0:
        raise checks.PrivacyError(f"`mean` must be > 1, but got {mean!r}")
    growth = math.log(mean) / (orders - 1.0)
    if shape == math.inf:
        # PS, Theorem 6, with the largest epsilon-hat that the theorem allows at each order
        failing = profile(np.log1p(1.0 / (orders - 1.0)))
        return np.asarray(divergences + mean * failing + growth)
    # PS, Theorem 2; the second order of the theorem is chosen for the smallest bound
    log_stop = -math.log(stopping_probability(mean, shape))
    second = (1.0 - 1.0 / orders) * divergences + log_stop / orders
    return np.asarray(divergences + (1.0 + shape) * min(float(second.min()), limit) + growth)


def epsilon_from_renyi(orders: Array, divergences: Array, delta: float) -> float:
    """Return the least epsilon that any order proves (Canonne et al. 2020, Proposition 12)."""
    checks.open_unit("delta", delta)
    rest = np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)
    return max(0.0, float(np.min(divergences + rest)))
