r"""How much each parameter matters: shares of a function's variance over the space.

Notation

=====================  ===========================================  ==========
symbol                 here                                         shape
=====================  ===========================================  ==========
``f``                  ``function``: units (n, D) to values         (n,)
``m_i(v)``             ``marginals``: the mean of f over all other  (D, G)
                       parameters, with parameter i at value v
``S_i``                share of parameter i: var m_i / var f        (D,)
=====================  ===========================================  ==========

This is the first-order part of functional ANOVA, as Optuna's default evaluator computes it (Hutter,
Hoos and Leyton-Brown 2014). What is left to 1 are interactions.

In a simulation the function is a random forest on the evaluations of all agents. Scores of
different agents are not comparable, so the forest learns ranks. In a deployment the function is the
released one, which costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.parameters import Categorical
from flwr_fbo.core.space import Space
from flwr_fbo.report.released import spread_points

#: Values of a parameter at which its marginal is computed, and points of the other parameters.
GRID, OTHERS = 24, 256
#: The most evaluations that the pooled model learns from.
MOST_EVALUATIONS = 4000
#: Evaluations that the pooled model needs at least, for each parameter.
EVALUATIONS_PER_PARAMETER = 5

Function: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True)
class Marginals:
    """The means of a function over all parameters but one, and what they explain.

    Parameters
    ----------
    units
        For each parameter, the places (G,) in [0, 1] at which its marginal was computed.
    means
        For each parameter, the mean of the function there, (G,).
    shares
        The share of the function's variance that each parameter explains by itself, (D,).
    """

    units: Sequence[Array]
    means: Sequence[Array]
    shares: Array

    @property
    def order(self) -> list[int]:
        """Return the numbers of the parameters, from the largest share to the smallest."""
        return [int(i) for i in np.argsort(-self.shares, kind="stable")]


def marginals(space: Space, function: Function) -> Marginals:
    """Return the marginals of a function over the space.

    Examples
    --------
    >>> from flwr_fbo import Float
    >>> both = Space({"a": Float(0.0, 1.0), "b": Float(0.0, 1.0)})
    >>> found = marginals(both, lambda units: 2.0 * units[:, 0] + units[:, 1])
    >>> [round(float(share), 1) for share in found.shares]  # variances 4 and 1
    [0.8, 0.2]
    """
    others = spread_points(space, OTHERS)
    places = [_places(space, i) for i in range(space.dimension)]
    # One call for everything: a forest answers many rows much faster than many calls.
    rows = [others]
    for i, values in enumerate(places):
        block = np.repeat(others[None], len(values), axis=0)  # (G, n, D)
        block[:, :, i] = values[:, None]
        rows.append(block.reshape(-1, space.dimension))
    found = function(np.vstack(rows))
    variance = float(found[: len(others)].var())
    means, start = [], len(others)
    for values in places:
        block = found[start : start + len(values) * len(others)]
        means.append(block.reshape(len(values), -1).mean(axis=1))
        start += len(values) * len(others)
    shares = np.array([m.var() for m in means]) / variance if variance > 0 else np.zeros(len(means))
    # Marginals and variance are means over different points: their ratio can pass 1 by a little.
    return Marginals(places, means, shares / max(1.0, float(shares.sum())))


def _places(space: Space, i: int) -> Array:
    """Return the places of a parameter in [0, 1]: its categories, or an even grid."""
    parameter = list(space.parameters.values())[i]
    if isinstance(parameter, Categorical):
        return np.array([parameter.to_unit(choice) for choice in parameter.choices])
    grid = (np.arange(GRID) + 0.5) / GRID
    return np.array([parameter.to_unit(parameter.from_unit(float(v))) for v in grid])


def ranks(history: Sequence[Evaluation]) -> Array:
    """Return the rank of each evaluation of an agent: 0 is its worst score, 1 its best, NaN failed.

    Equal scores share the mean of their ranks.
    """
    scores = np.array([np.nan if e.score is None else e.score for e in history], dtype=np.float64)
    known = scores[np.isfinite(scores)]
    if not len(known):
        return scores
    below = (known[None, :] < scores[:, None]).sum(axis=1)
    equal = (known[None, :] == scores[:, None]).sum(axis=1)
    rank = (below + (equal - 1) / 2) / max(len(known) - 1, 1)
    return np.where(np.isfinite(scores), rank if len(known) > 1 else 0.5, np.nan)


def pooled_model(space: Space, histories: Sequence[Sequence[Evaluation]]) -> Function | None:
    """Return a forest on the ranks of all agents' evaluations; None where there are too few."""
    from sklearn.ensemble import RandomForestRegressor  # slow to import, and needed here only

    units = np.array([e.unit for h in histories for e in h]).reshape(-1, space.dimension)
    targets = np.concatenate([ranks(h) for h in histories]) if histories else np.empty(0)
    kept = np.flatnonzero(np.isfinite(targets))
    if len(kept) < EVALUATIONS_PER_PARAMETER * space.dimension + 5:
        return None
    if len(kept) > MOST_EVALUATIONS:
        kept = kept[np.linspace(0, len(kept) - 1, MOST_EVALUATIONS).astype(int)]
    forest = RandomForestRegressor(64, min_samples_leaf=3, random_state=0)
    forest.fit(space.embed(units[kept]), targets[kept])
    return lambda rows: np.asarray(forest.predict(space.embed(rows)))
