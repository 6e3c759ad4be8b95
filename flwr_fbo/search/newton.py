r"""Many bounded maximisations at once, by Newton's method with a trust region for each.

A call of numpy on sixty rows costs little more than a call on twenty. Each evaluation therefore
also takes the gradient a small step aside along every coordinate. The Hessian follows from
differences of gradients, and an ascent takes three or four evaluations where a method that
learns the curvature on the way takes ten.

Notation

==================================  ==================  ===================
symbol                              here                shape
==================================  ==================  ===================
``x``, ``f``, ``g``, ``H``          a :class:`_Points`  S rows
``H = V diag(e) V'``                ``eigh``            (S, D), (S, D, D)
``p = V diag(1 / |e|) V' g``        ``step``            (S, D)
``g'p + p'Hp / 2``                  ``predicted``       (S,)
``r``, each row's trust radius      ``radius``          (S,)
==================================  ==================  ===================

Steps lead uphill along directions of either curvature, because eigenvalues enter by their size.
Steps, gradients and Hessians are in units of the box, and each row's quadratic model is trusted
within that row's radius.

Several searches can be made together: the rows are then groups of equally many, one after another,
and only rows of the same group are compared. No row of a group changes another group to the last
bit, as far as the objective keeps groups apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array

#: From rows (n, D) and their numbers (n,) in the batch, values (n,) and gradients (n, D).
Objective = Callable[[Array, np.ndarray], tuple[Array, Array]]
#: The step aside that gives the Hessian, as a share of the box. Gradients in single precision,
#: good to 1e-6 or so of their size, then give a Hessian that is good to a hundredth.
DIFFERENCE_STEP = 3e-4
#: A quadratic model is reliable if it predicted the last gain to within this share.
RELIABLE_WITHIN = 0.2
#: With a reliable model whose top is within the radius, a row is expected to gain at most this
#: many times what its next step predicts.
RELIABLE_GAIN = 1.1
#: A row is taken to climb to the same top as the best row if the ends of their next steps are
#: nearer to each other than this many lengths of the row's step.
SAME_TOP = 1.0
#: Low ends, high ends and widths: (S, D) each.
Box: TypeAlias = tuple[Array, ...]


@dataclass(frozen=True)
class AscentOptions:
    """How closely a maximisation looks, and when it stops."""

    #: A row stops when its next step predicts a gain below the tolerance. That step is taken, and
    #: the predicted gain is added to the value without another evaluation. Groups of rows may have
    #: a tolerance each.
    tolerance: float | Array = 1e-8
    #: Whether only the largest maximum matters. A row then waits, perhaps for ever, while it is
    #: not expected to become the largest by more than the tolerance.
    only_best: bool = False
    #: The most that a row may gain, as a multiple of the predicted gain, while its quadratic model
    #: has not proved to be reliable.
    unproven_gain: float = 10.0
    #: First radius of the trust region, as a share of the box.
    radius: float = 0.25
    iterations: int = 30


@dataclass
class _Points:
    """Points with their values, and with gradients and Hessians in units of the box."""

    x: Array
    value: Array
    gradient: Array
    hessian: Array

    def replace(self, rows: np.ndarray, new: _Points, chosen: np.ndarray) -> None:
        """Overwrite the given rows by the chosen ones of the new points."""
        rows = rows[chosen]
        self.x[rows], self.value[rows] = new.x[chosen], new.value[chosen]
        self.gradient[rows], self.hessian[rows] = new.gradient[chosen], new.hessian[chosen]

    def __getitem__(self, rows: np.ndarray) -> _Points:
        return _Points(self.x[rows], self.value[rows], self.gradient[rows], self.hessian[rows])


def climb(
    objective: Objective,
    starts: Array,
    low: Array,
    high: Array,
    options: AscentOptions | None = None,
    present: NDArray[np.bool_] | None = None,
) -> tuple[Array, Array]:
    """Return maximisers (S, D) and maxima (S,), from starts (S, D), within ``[low, high]``.

    ``present`` (A, S / A) says which rows of A groups there are, as groups have unequally many; the
    maxima of the others are -inf. Without it, the rows are one group.
    """
    options = options or AscentOptions()
    groups = 1 if present is None else len(present)
    tolerance = np.broadcast_to(np.reshape(options.tolerance, (-1, 1)), (groups, 1))
    tolerance = np.broadcast_to(tolerance, (groups, len(starts) // groups)).ravel()
    if low.shape != starts.shape:
        low, high = np.broadcast_to(low, starts.shape), np.broadcast_to(high, starts.shape)
    box, rows = (low, high, high - low), np.arange(len(starts))
    at = _first(objective, np.minimum(np.maximum(starts, low), high), box, present)
    radius, reliable = np.full(len(rows), options.radius), np.zeros(len(rows), dtype=bool)
    trial, predicted, to_top = _step(at, radius, box)
    for _ in range(options.iterations):
        active = predicted > tolerance
        if options.only_best:
            state = at, trial, predicted, reliable & to_top, tolerance
            active &= _may_become_best(*state, options.unproven_gain, groups)
        rows = np.flatnonzero(active)
        if not len(rows):
            break
        active_box = tuple(side[rows] for side in box)
        new = _evaluate(objective, trial[rows], rows, active_box)
        # The usual update of a trust region, by the ratio of actual to predicted gain.
        ratio = (new.value - at.value[rows]) / predicted[rows]
        reliable[rows] = np.abs(ratio - 1.0) < RELIABLE_WITHIN
        radius[rows] *= np.where(ratio > 0.75, 2.0, np.where(ratio < 0.25, 0.25, 1.0))
        at.replace(rows, new, ratio > 0.0)
        trial[rows], predicted[rows], to_top[rows] = _step(at[rows], radius[rows], active_box)
    last = (predicted > 0.0) & (predicted <= tolerance)
    return np.where(last[:, None], trial, at.x), at.value + np.where(last, predicted, 0.0)


def _first(objective: Objective, x: Array, box: Box, present: NDArray[np.bool_] | None) -> _Points:
    """Return the starts x (S, D), evaluated as far as they are present."""
    if present is None or present.all():
        return _evaluate(objective, x, np.arange(len(x)), box)
    rows, (count, width) = np.flatnonzero(present), x.shape
    at = _Points(
        x, np.full(count, -np.inf), np.zeros((count, width)), np.zeros((count, width, width))
    )
    some = _evaluate(objective, x[rows], rows, tuple(side[rows] for side in box))
    at.replace(rows, some, np.ones(len(rows), dtype=bool))
    return at


def _may_become_best(
    at: _Points,
    trial: Array,
    predicted: Array,
    reliable: np.ndarray,
    tolerance: Array,
    unproven_gain: float,
    groups: int,
) -> np.ndarray:
    """Return which rows may end highest and do not climb to the top of their group's best: (S,)."""
    expected = at.value + np.where(reliable, predicted, 0.0)
    size = len(expected) // groups
    first = np.arange(0, len(expected), size)
    leader = first + expected.reshape(groups, size).argmax(axis=1)  # (A,)
    best = leader.repeat(size)  # each row's
    factor = np.where(reliable, RELIABLE_GAIN, unproven_gain)
    most = at.value + factor * predicted - tolerance
    most[leader] = np.inf
    # Rows that climb to the same top are redundant, once the best row's model is reliable.
    apart, ahead = trial - trial[best], trial - at.x
    distance, length = np.einsum("sd,sd->s", apart, apart), np.einsum("sd,sd->s", ahead, ahead)
    redundant = distance < SAME_TOP**2 * length
    redundant &= reliable[best]
    redundant[leader] = False
    return np.asarray((most > expected[best]) & ~redundant)


def _evaluate(objective: Objective, x: Array, rows: np.ndarray, box: Box) -> _Points:
    """Return the points x (S, D) with values, gradients, and Hessians by differences."""
    (_, high, width), (count, dimension) = box, x.shape
    aside = DIFFERENCE_STEP * width
    # The step aside is forwards, or backwards where a step forwards would leave the box.
    share = np.where(x + aside > high, -DIFFERENCE_STEP, DIFFERENCE_STEP)  # (S, D)
    points = x.repeat(dimension + 1, axis=0)  # (S (D + 1), D)
    # Of each D + 1 rows the first is x, the second is aside along the first coordinate, and so on.
    points.reshape(count, -1)[:, dimension :: dimension + 1] += share * width
    value, gradient = objective(points, rows.repeat(dimension + 1))
    gradients = gradient.reshape(count, dimension + 1, dimension) * width[:, None, :]
    hessian = gradients[:, 1:] - gradients[:, :1]
    hessian *= (0.5 / share)[:, :, None]
    hessian = hessian + hessian.transpose(0, 2, 1)  # the half above makes this the mean
    return _Points(x, value[:: dimension + 1].astype(np.float64), gradients[:, 0], hessian)


def _step(at: _Points, radius: Array, box: Box) -> tuple[Array, Array, np.ndarray]:
    """Return where steps lead (S, D), the predicted gains (S,), and which steps reach a top (S,).

    A step reaches a top if the Hessian has no positive eigenvalue, and neither the radius nor the
    box cuts the step off.
    """
    (low, high, width), (gradient, hessian) = box, _free_derivatives(at, box)
    values, vectors = np.linalg.eigh(hessian)
    sizes = np.abs(values)
    most = np.maximum(sizes[:, 0], sizes[:, -1])  # eigenvalues ascend
    least = 1e-3 * np.maximum(most, np.abs(gradient).max(axis=1)) + 1e-300
    along = gradient[:, None, :] @ vectors  # (S, 1, D)
    along /= np.maximum(sizes, least[:, None])[:, None, :]
    step, shortened = _within_radius((vectors @ along.transpose(0, 2, 1))[:, :, 0], radius)
    target = at.x + step * width
    trial = np.minimum(np.maximum(target, low), high)
    to_top = ~shortened & (values[:, -1] <= 1e-9 * most)
    cut_off = (trial != target).any(axis=1)
    if not cut_off.any():
        return trial, _predicted_gain(step, gradient, hessian), to_top
    # What the box leaves of a Newton step may lead down. A step along the gradient does not, so
    # rows that are cut off take whichever of the two predicts more.
    taken = np.where(cut_off[:, None], _in_box_units(trial - at.x, width), step)
    predicted = _predicted_gain(taken, gradient, hessian)
    step = _within_radius(gradient / np.maximum(most, least)[:, None], radius)[0]
    other = np.minimum(np.maximum(at.x + step * width, low), high)
    alternative = _predicted_gain(_in_box_units(other - at.x, width), gradient, hessian)
    better = cut_off & (alternative > predicted)
    trial = np.where(better[:, None], other, trial)
    return trial, np.where(better, alternative, predicted), to_top & ~cut_off


def _free_derivatives(at: _Points, box: Box) -> tuple[Array, Array]:
    """Return gradients (S, D) and Hessians (S, D, D), zero for coordinates that cannot move.

    A coordinate cannot move at an end of the box if the gradient points outwards.
    """
    (low, high, _), gradient, hessian = box, at.gradient, at.hessian
    fixed = ((at.x <= low) & (gradient <= 0)) | ((at.x >= high) & (gradient >= 0))
    if not fixed.any():
        return gradient, hessian
    gradient = np.where(fixed, 0.0, gradient)
    return gradient, np.where(fixed[:, :, None] | fixed[:, None, :], 0.0, hessian)


def _within_radius(step: Array, radius: Array) -> tuple[Array, np.ndarray]:
    """Return steps of at most the radius (S, D), and which steps had to be shortened (S,)."""
    longer = np.sqrt(np.einsum("sd,sd->s", step, step)) / radius
    return step / np.maximum(longer, 1.0)[:, None], longer > 1.0


def _predicted_gain(step: Array, gradient: Array, hessian: Array) -> Array:
    """Return g'p + p'Hp / 2 for each row's step p: (S,)."""
    slope = 0.5 * (hessian @ step[:, :, None])[:, :, 0]
    slope += gradient
    return np.asarray(np.einsum("sd,sd->s", slope, step))


def _in_box_units(move: Array, width: Array) -> Array:
    """Return moves (S, D) divided by the box's widths; 0 where the box has no width."""
    return np.divide(move, width, out=np.zeros_like(move), where=width > 0)
