r"""Finalists from a public list of settings, of which every agent evaluates a part.

In many parameters a shared function is too smooth to show the few settings that are good. With
``finalists-from = list`` the agents' evaluations before the finalists are parts of one public list.
Together the agents evaluate every setting of it several times. Then they send their scores once, as
they do for the finalists: an agent's vector holds zeros where it evaluated nothing
(docs/reference/proofs.md, lemma 27). The finalists are the best of the list.

Notation

==============================================  =======================  =======
symbol                                          here                     shape
==============================================  =======================  =======
``G``                                           ``len(listed)``          int
``n``, an agent's evaluations of the list       ``evaluations``          int
``v``, mean of the agents' unit vectors, noisy  ``scores``               (G,)
``sigma``, the noise in each number of v        ``deviation``            scalar
``f``, standardised mean scores of the list     :func:`expected_scores`  (G,)
==============================================  =======================  =======

An agent's n standardised scores, as a vector of norm 1, are about :math:`f / \sqrt n`, and an
agent evaluates a share n/G of the list. So :math:`v = a f + e` with :math:`a = \sqrt n / G`. Half
of the prior variance of f is that of :mod:`~flwr_fbo.methods.thompson.released_model`, in which
near settings have similar scores; the other half is each setting's own.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space
from flwr_fbo.methods.thompson.released_model import (
    ADDITIVE,
    MIDDLE,
    SIZES,
    middle_first,
    mixed_kernel,
)

#: Evaluations of every setting of the list, at the least, where agents are enough.
EACH = 6
#: Settings of the list for each finalist, at the least: with and without enough agents.
FOR_EACH_FINALIST, WITH_FEW_AGENTS = 5, 2
#: f of a good setting, and how many times the noise its score should be.
GOOD, CLEAR = 1.5, 2.0


def list_length(agents: int, evaluations: int, deviation: float, finalists: int) -> int:
    """Return how many settings the list has: few where the noise is large.

    Parameters
    ----------
    agents : int
        N.
    evaluations : int
        n, the evaluations of each agent before the finalists.
    deviation : float
        sigma, of a mean of unit vectors.
    finalists : int
        K, the number of finalists.

    Examples
    --------
    >>> list_length(agents=50, evaluations=12, deviation=0.04, finalists=8)
    64
    """
    most = agents * evaluations // EACH
    clear = most
    if deviation:  # a f = CLEAR * sigma
        clear = math.floor(min(GOOD * math.sqrt(evaluations) / (CLEAR * deviation), most))
    wanted = max(clear, min(FOR_EACH_FINALIST * finalists, most))
    return max(wanted, WITH_FEW_AGENTS * finalists)


def good_score(evaluations: int, length: int) -> float:
    """Return the mean score, of vectors of norm 1, that is expected of a good setting: a GOOD."""
    return GOOD * math.sqrt(evaluations) / length


def first_of(agent: int, agents: int, length: int) -> int:
    """Return the number of the first setting of the list that an agent evaluates."""
    return agent * length // agents


def expected_scores(
    space: Space, listed: Array, scores: Array, deviation: float, agents: int, evaluations: int
) -> Array:
    """Return what is expected of the settings of the list (G, D), by their released scores: (G,).

    Parameters
    ----------
    space : Space
        The search space.
    listed : Array
        The settings of the list, (G, D).
    scores : Array
        v, (G,).
    deviation : float
        sigma.
    agents, evaluations : int
        N and n.
    """
    length = len(listed)
    signal = math.sqrt(evaluations) / length
    # Beside the noise of privacy, v differs by which agents evaluated what: unit vectors' spread.
    variance = deviation**2 + 1.0 / (agents * length)
    prior = MIDDLE * middle_first(space, listed)
    rest = scores - signal * prior
    logs, found = [], []
    for additive in ADDITIVE:
        kernel = 0.5 * (mixed_kernel(space, listed, additive) + np.eye(length))
        spread, axes = np.linalg.eigh(kernel)
        spread, along = np.maximum(spread, 0.0), axes.T @ rest
        for size in SIZES:
            total = size * signal**2 * spread + variance
            logs.append(-0.5 * float((along**2 / total + np.log(total)).sum()))
            found.append(axes @ (size * signal * spread * along / total))
    likely = np.exp(np.array(logs) - max(logs))
    return np.asarray(prior + (likely / likely.sum()) @ np.array(found))
