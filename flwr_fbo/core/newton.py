r"""Many bounded maximisations at once by Newton's method, where a row costs next to nothing.

A call of numpy on twenty rows costs what it costs on sixty. So each evaluation also looks a
little aside along every coordinate, which gives the Hessian by differences of gradients, and a
climb takes three or four evaluations where one that learns its curvature on the way takes ten.

Notation

==================================  ==================  ==============
symbol                              here                shape
==================================  ==================  ==============
``x``, ``f``, ``g``                 rows of a batch     (S, D), (S,), (S, D)
``H = V diag(e) V'``                ``hessian``         (S, D, D)
``p = V diag(1 / |e|) V' g``        ``step``            (S, D)
``g'p + p'Hp / 2``                  ``promised``        (S,)
==================================  ==================  ==============

Steps go uphill along directions of either curvature, for the eigenvalues are taken by their size.
Each row has a radius in which its quadratic is trusted. All is in units of the box.
"""

from __future__ import annotations

import numpy as np

from flwr_fbo.core.ascent import Objective
from flwr_fbo.core.space import Array

#: How far aside an evaluation looks, as a share of the box. Gradients in single precision, good to
#: 1e-6 or so of their size, then give a Hessian that is good to a hundredth.
ASIDE = 3e-4
#: First radius of trust.
RADIUS = 0.25


def climb(
    objective: Objective,
    starts: Array,
    low: Array,
    high: Array,
    tolerance: float = 1e-8,
    hopeless: float | None = None,
    iterations: int = 20,
) -> tuple[Array, Array]:
    """Maximisers (S, D) and maxima (S,) reached from the starts (S, D) within ``[low, high]``.

    A row stops when a step promises less than ``tolerance``: that step is taken, and its value is
    what is promised. With ``hopeless`` only the largest maximum matters: a row stops too when so
    many times what a step promises would leave it below the best row.
    """
    count, dimension = starts.shape
    width = np.broadcast_to(high - low, starts.shape)
    low, high = np.broadcast_to(low, starts.shape), np.broadcast_to(high, starts.shape)
    x, rows = np.clip(starts, low, high), np.arange(count)
    value, gradient, hessian = _look(objective, x, rows, high, width)
    radius = np.full(count, RADIUS)
    found, maxima = x.copy(), value.copy()
    for _ in range(iterations):
        trial, promised = _step(x, gradient, hessian, radius, low[rows], high[rows], width[rows])
        going = promised > tolerance
        last = ~going & (promised > 0.0)
        found[rows[last]], maxima[rows[last]] = trial[last], (value + promised)[last]
        if hopeless is not None:
            going &= value + hopeless * promised >= maxima.max()
        if not going.any():
            break
        if not going.all():
            x, value, gradient, hessian, radius, trial, promised, rows = (
                part[going]
                for part in (x, value, gradient, hessian, radius, trial, promised, rows)
            )
        new_value, new_gradient, new_hessian = _look(objective, trial, rows, high[rows], width[rows])
        gain = new_value - value
        radius = np.where(gain > 0.75 * promised, 2.0 * radius, radius)
        length = np.abs((trial - x) / np.where(width[rows] > 0, width[rows], 1.0)).max(axis=1)
        radius = np.where(gain < 0.25 * promised, 0.3 * length, radius)
        good = gain > 0
        x = np.where(good[:, None], trial, x)
        value = np.where(good, new_value, value)
        gradient = np.where(good[:, None], new_gradient, gradient)
        hessian = np.where(good[:, None, None], new_hessian, hessian)
        found[rows], maxima[rows] = x, value
    return found, maxima


def _look(
    objective: Objective, x: Array, rows: np.ndarray, high: Array, width: Array
) -> tuple[Array, Array, Array]:
    """Values, gradients and Hessians in units of the box: (S,), (S, D) and (S, D, D)."""
    count, dimension = x.shape
    aside = ASIDE * width
    aside = np.where(x + aside > high, -aside, aside)  # (S, D)
    points = np.repeat(x[:, None, :], dimension + 1, axis=1)
    each = np.arange(dimension)
    points[:, 1 + each, each] += aside
    value, gradient = objective(
        points.reshape(-1, dimension), np.repeat(rows, dimension + 1)
    )
    gradient = gradient.reshape(points.shape) * width[:, None, :]
    share = np.where(aside > 0, ASIDE, -ASIDE)
    hessian = (gradient[:, 1:] - gradient[:, :1]) / share[:, :, None]
    hessian = 0.5 * (hessian + hessian.transpose(0, 2, 1))
    return value[:: dimension + 1], gradient[:, 0], hessian


def _step(
    x: Array, gradient: Array, hessian: Array, radius: Array, low: Array, high: Array, width: Array
) -> tuple[Array, Array]:
    """Where Newton's steps lead within radius and box (S, D), and what they promise (S,)."""
    fixed = ((x <= low) & (gradient <= 0)) | ((x >= high) & (gradient >= 0))
    slope = np.where(fixed, 0.0, gradient)
    bend = hessian
    if fixed.any():
        bend = np.where(fixed[:, :, None] | fixed[:, None, :], 0.0, hessian)
    values, vectors = np.linalg.eigh(bend)
    sizes = np.abs(values)
    steepest = np.abs(slope).max(axis=1)
    least = np.maximum(1e-3 * sizes.max(axis=1), 1e-3 * steepest) + 1e-300
    along = (slope[:, None, :] @ vectors)[:, 0, :] / np.maximum(sizes, least[:, None])
    step = (vectors @ along[:, :, None])[:, :, 0]
    length = np.sqrt(np.einsum("sd,sd->s", step, step))
    step *= np.minimum(1.0, radius / np.maximum(length, 1e-300))[:, None]
    wished = x + step * width
    trial = np.minimum(np.maximum(wished, low), high)
    promised = _promised(trial - x, slope, bend, width)
    if not (trial == wished).all():
        # Of a step that the box cut off the rest may lead down; one along the gradient does not.
        shorter = slope / np.maximum(sizes.max(axis=1), least)[:, None]
        length = np.sqrt(np.einsum("sd,sd->s", shorter, shorter))
        shorter *= np.minimum(1.0, radius / np.maximum(length, 1e-300))[:, None]
        other = np.minimum(np.maximum(x + shorter * width, low), high)
        instead = _promised(other - x, slope, bend, width)
        trial = np.where((instead > promised)[:, None], other, trial)
        promised = np.maximum(instead, promised)
    return trial, promised


def _promised(move: Array, slope: Array, bend: Array, width: Array) -> Array:
    step = np.divide(move, width, out=np.zeros_like(move), where=width > 0)
    return np.asarray(
        np.einsum("sd,sd->s", slope, step)
        + 0.5 * np.einsum("sd,sd->s", step, (bend @ step[:, :, None])[:, :, 0])
    )
