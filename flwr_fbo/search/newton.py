r"""Many bounded maximisations at once by Newton's method, where a row costs next to nothing.

A call of numpy on sixty rows costs little more than one on twenty. So each evaluation also looks
a little aside along every coordinate, which gives the Hessian by differences of gradients, and a
climb takes three or four evaluations where one that learns its curvature on the way takes ten.

Notation

==================================  =================  ===================
symbol                              here               shape
==================================  =================  ===================
``x``, ``f``, ``g``, ``H``          a :class:`_View`   S rows
``H = V diag(e) V'``                ``eigh``           (S, D), (S, D, D)
``p = V diag(1 / |e|) V' g``        ``step``           (S, D)
``g'p + p'Hp / 2``                  ``promised``       (S,)
==================================  =================  ===================

Steps lead uphill along directions of either curvature, for eigenvalues are taken by their size.
Each row has a radius in which its quadratic is trusted. Steps are in units of the box.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array

#: From rows (n, D) and their numbers (n,) in the batch, values (n,) and gradients (n, D).
Objective = Callable[[Array, np.ndarray], tuple[Array, Array]]
#: How far aside an evaluation looks, as a share of the box. Gradients in single precision, good to
#: 1e-6 or so of their size, then give a Hessian that is good to a hundredth.
ASIDE = 3e-4
#: Where only the best row matters: how many times what its next step promises a row may yet gain,
#: if its quadratic foretold its last step to within a fifth and has its top in reach.
BELIEVED = 1.1
#: A row follows the best one if its step leads to nearer where the best one's leads than so many
#: times the step's length. That is believed once the best one's quadratic has foretold a step.
FOLLOWS = 1.0
#: Low and high ends, and widths: (S, D) each.
Box: TypeAlias = tuple[Array, ...]


@dataclass(frozen=True)
class Care:
    """How closely a maximisation looks."""

    #: A row stops when a step promises less than this: that step is taken, and its value is what is
    #: promised.
    tolerance: float = 1e-8
    #: Only the largest maximum matters: a row waits, perhaps for ever, while it is not expected to
    #: become that, by more than the tolerance.
    only_best: bool = False
    #: It may gain so many times what its step promises while its quadratic has not proved right.
    doubted: float = 10.0
    #: First radius of trust, as a share of the box.
    radius: float = 0.25
    iterations: int = 30


@dataclass
class _View:
    """Points, and what was seen there: values, slopes and bends in units of the box."""

    x: Array
    value: Array
    slope: Array
    bend: Array

    def replace(self, rows: np.ndarray, new: _View, good: np.ndarray) -> None:
        """Put the good ones of new points in the place of some rows."""
        rows = rows[good]
        self.x[rows], self.value[rows] = new.x[good], new.value[good]
        self.slope[rows], self.bend[rows] = new.slope[good], new.bend[good]

    def __getitem__(self, rows: np.ndarray) -> _View:
        return _View(self.x[rows], self.value[rows], self.slope[rows], self.bend[rows])


def maximise(
    objective: Objective,
    starts: Array,
    low: Array,
    high: Array,
    care: Care | None = None,
) -> tuple[Array, Array]:
    """Maximisers (S, D) and maxima (S,) reached from the starts (S, D) within ``[low, high]``."""
    care = care or Care()
    if low.shape != starts.shape:
        low, high = np.broadcast_to(low, starts.shape), np.broadcast_to(high, starts.shape)
    box, rows = (low, high, high - low), np.arange(len(starts))
    at = _look(objective, np.minimum(np.maximum(starts, low), high), rows, box)
    radius, foretold = np.full(len(rows), care.radius), np.zeros(len(rows), dtype=bool)
    trial, promised, whole = _step(at, radius, box)
    for _ in range(care.iterations):
        going = promised > care.tolerance
        if care.only_best:
            going &= _hopeful(at, trial, promised, foretold & whole, care)
        rows = np.flatnonzero(going)
        if not len(rows):
            break
        here = tuple(side[rows] for side in box)
        new = _look(objective, trial[rows], rows, here)
        share = (new.value - at.value[rows]) / promised[rows]
        foretold[rows] = np.abs(share - 1.0) < 0.2
        radius[rows] *= np.where(share > 0.75, 2.0, np.where(share < 0.25, 0.25, 1.0))
        at.replace(rows, new, share > 0.0)
        trial[rows], promised[rows], whole[rows] = _step(at[rows], radius[rows], here)
    last = (promised > 0.0) & (promised <= care.tolerance)
    return np.where(last[:, None], trial, at.x), at.value + np.where(last, promised, 0.0)


def _hopeful(
    at: _View, trial: Array, promised: Array, believed: np.ndarray, care: Care
) -> np.ndarray:
    """Which rows may yet become the best one, and do not follow it to the same place: (S,)."""
    sure = at.value + np.where(believed, promised, 0.0)
    best = int(np.argmax(sure))
    most = at.value + np.where(believed, BELIEVED, care.doubted) * promised - care.tolerance
    most[best] = np.inf
    apart, ahead = trial - trial[best], trial - at.x
    follows = np.einsum("sd,sd->s", apart, apart) < FOLLOWS**2 * np.einsum("sd,sd->s", ahead, ahead)
    follows &= believed[best]
    follows[best] = False
    return np.asarray((most > sure[best]) & ~follows)


def _look(objective: Objective, x: Array, rows: np.ndarray, box: Box) -> _View:
    (_, high, width), (count, dimension) = box, x.shape
    aside = ASIDE * width
    share = np.where(x + aside > high, -ASIDE, ASIDE)  # (S, D)
    points = x.repeat(dimension + 1, axis=0)  # (S (D + 1), D)
    # Of each D + 1 rows the second looks aside along the first coordinate, and so on.
    points.reshape(count, -1)[:, dimension :: dimension + 1] += share * width
    value, gradient = objective(points, rows.repeat(dimension + 1))
    slopes = gradient.reshape(count, dimension + 1, dimension) * width[:, None, :]
    bend = slopes[:, 1:] - slopes[:, :1]
    bend *= (0.5 / share)[:, :, None]
    bend = bend + bend.transpose(0, 2, 1)
    return _View(x, value[:: dimension + 1].astype(np.float64), slopes[:, 0], bend)


def _step(at: _View, radius: Array, box: Box) -> tuple[Array, Array, np.ndarray]:
    """Where Newton's steps lead (S, D), what they promise, and which lead to a top: (S,), (S,)."""
    slope, bend, (low, high, width) = at.slope, at.bend, box
    fixed = ((at.x <= low) & (slope <= 0)) | ((at.x >= high) & (slope >= 0))
    if fixed.any():
        slope = np.where(fixed, 0.0, slope)
        bend = np.where(fixed[:, :, None] | fixed[:, None, :], 0.0, bend)
    values, vectors = np.linalg.eigh(bend)
    sizes = np.abs(values)
    most = np.maximum(sizes[:, 0], sizes[:, -1])  # eigenvalues ascend
    least = 1e-3 * np.maximum(most, np.abs(slope).max(axis=1)) + 1e-300
    along = slope[:, None, :] @ vectors  # (S, 1, D)
    along /= np.maximum(sizes, least[:, None])[:, None, :]
    step, cut = _shortened((vectors @ along.transpose(0, 2, 1))[:, :, 0], radius)
    wished = at.x + step * width
    trial = np.minimum(np.maximum(wished, low), high)
    whole = ~cut & (values[:, -1] <= 1e-9 * most)
    outside = (trial != wished).any(axis=1)
    if not outside.any():
        return trial, _promised(step, slope, bend), whole
    # Of a step that the box cuts off, the rest may lead down; one along the gradient does not.
    taken = np.where(outside[:, None], _over(trial - at.x, width), step)
    promised = _promised(taken, slope, bend)
    step = _shortened(slope / np.maximum(most, least)[:, None], radius)[0]
    other = np.minimum(np.maximum(at.x + step * width, low), high)
    instead = _promised(_over(other - at.x, width), slope, bend)
    better = outside & (instead > promised)
    trial = np.where(better[:, None], other, trial)
    return trial, np.where(better, instead, promised), whole & ~outside


def _shortened(step: Array, radius: Array) -> tuple[Array, np.ndarray]:
    """Steps of at most the radius (S, D), and which had to be shortened (S,)."""
    longer = np.sqrt(np.einsum("sd,sd->s", step, step)) / radius
    return step / np.maximum(longer, 1.0)[:, None], longer > 1.0


def _promised(step: Array, slope: Array, bend: Array) -> Array:
    climb = 0.5 * (bend @ step[:, :, None])[:, :, 0]
    climb += slope
    return np.asarray(np.einsum("sd,sd->s", climb, step))


def _over(move: Array, width: Array) -> Array:
    return np.divide(move, width, out=np.zeros_like(move), where=width > 0)
