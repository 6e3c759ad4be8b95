r"""Finalists: settings that all parties evaluate in the last rounds, to recommend one to all.

The maximum of a noisy function over a whole space finds the peaks of the noise. A few points that
every party evaluates are compared exactly, and their scores are few numbers, so that little noise
protects them. The *finalists* follow from the releases so far, which are public. In the *final
round* a party sends its scores of them in place of its vector of weights: as long as that vector,
and within the same bound. So the release of the scores is one more release of the plan, with the
same sensitivity, noise and charge (docs/reference/proofs.md, lemma 27).

Notation

==============================================  =================================  ======
symbol                                          here                               shape
==============================================  =================================  ======
``K``                                           ``finals.count``                   int
``y_n``, a party's scores of the finalists      ``scores``                         (K,)
``u_n = (y_n - mean) / |y_n - mean|``, zeros    ``score_vector``, see below        (M,)
``s = mean_n u_n`` with noise                   ``scores`` of a recommendation     (K,)
``sigma``, the noise in each number of s        ``deviation``                      scalar
``A = AGREEMENT / sqrt(K)``, spread of s        ``spread``                         scalar
``m``, what the releases before say             ``expected``                       (K,)
==============================================  =================================  ======

The recommended finalist has the largest posterior mean, with the prior :math:`s \sim N(w A
\tilde m, A^2)`, where m is standardised over the finalists and w is :data:`TRUST`. With much noise
the releases before decide, with little the scores do.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import special

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space
from flwr_fbo.methods.thompson.recommendation import LEVEL, Recommendation
from flwr_fbo.methods.thompson.released_model import ReleasedModel, best_together
from flwr_fbo.models.score_scale import LEAST_SPREAD

#: Functions of the posterior of which the finalists are the best points.
DRAWS = 256
#: Norm of the mean of the parties' unit vectors of scores, where their objectives are similar.
AGREEMENT = 0.7
#: w: how far the prior mean of the scores follows the releases before, in spreads.
TRUST = 0.5


def choose_finalists(
    model: ReleasedModel, count: int, rng: np.random.Generator, maximum: Array | None = None
) -> Array:
    """Return ``count`` points whose best is expected to be best, the expected best first: (K, D).

    The ``maximum`` (D,) of the released function comes second: in few dimensions and with little
    noise it is better than any point of a design. A design with fewer points than are needed gives
    some of them twice.
    """
    drawn = model.sample(DRAWS, rng)  # (G, DRAWS)
    chosen = best_together(drawn, count, int(np.argmax(model.mean)))
    points = model.points[np.resize(chosen, count)]
    if maximum is not None and count > 1:
        points = np.vstack([points[:1], maximum, points[1:-1]])
    return np.asarray(points)


def best_finalist(
    space: Space,
    finalists: Array,
    scores: Array,
    deviation: float,
    expected: Array,
    releases: int,
) -> Recommendation:
    """Return the finalist of the largest posterior mean as the recommendation to all.

    Parameters
    ----------
    space : Space
        The search space.
    finalists : Array
        The finalists, (K, D).
    scores : Array
        s, the mean of the parties' unit vectors with noise, (K,).
    deviation : float
        sigma.
    expected : Array
        m, what the releases before the final round say of the finalists, (K,).
    releases : int
        The number of releases of the run.
    """
    count = len(finalists)
    spread = AGREEMENT / math.sqrt(count)
    varied = float(expected.std())
    prior = TRUST * spread * (expected - expected.mean()) / max(varied, LEAST_SPREAD)
    posterior = (spread**2 * scores + deviation**2 * prior) / (spread**2 + deviation**2)
    order = np.argsort(-posterior, kind="stable")
    ranking = [{"params": space.from_unit(finalists[i]), "score": float(scores[i])} for i in order]
    best = recommended_of(space, finalists, scores, deviation, int(order[0]), releases)
    return replace(best, finalists=ranking)


def recommended_of(
    space: Space, points: Array, scores: Array, deviation: float, best: int, releases: int
) -> Recommendation:
    """Return the ``best`` of some points (K, D) with released scores (K,) as the recommendation."""
    # Where all parties' scores are equal, this is what the noise reaches in one run of twenty.
    reach = deviation * float(special.ndtri(LEVEL ** (1.0 / len(points))))
    return Recommendation(
        params=space.from_unit(points[best]),
        unit=points[best].tolist(),
        value=float(scores[best]),
        noise=float(deviation),
        noise_reach=reach,
        clear=bool(scores[best] > reach),
        releases=releases,
    )
