"""Many bounded maximisations at once: a batch of quasi-Newton ascents, one a row.

Every row is an independent BFGS ascent with projection onto its own box; all rows advance
together, so that twenty restarts cost little more than one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flwr_fbo.core.space import Array

#: From rows (n, D) and their numbers (n,) in the batch, values (n,) and gradients (n, D).
Objective = Callable[[Array, np.ndarray], tuple[Array, Array]]


def maximise(
    objective: Objective,
    starts: Array,
    low: Array,
    high: Array,
    iterations: int = 40,
    tolerance: float = 1e-7,
) -> tuple[Array, Array]:
    """Maximisers (S, D) and maxima (S,) reached from the starts (S, D) within ``[low, high]``.

    A row stops when its projected gradient is below ``tolerance`` times the box, or when no
    step along it improves any more.
    """
    x = np.clip(starts, low, high)
    count, dimension = x.shape
    width = np.broadcast_to(high - low, x.shape)
    value, gradient = objective(x, np.arange(count))
    inverse = np.tile(np.eye(dimension), (count, 1, 1))  # inverse Hessians of -f, scaled below
    inverse *= _first_step(gradient, width)[:, None, None]
    active = np.arange(count)
    for _ in range(iterations):
        free = ~(((x <= low) & (gradient < 0)) | ((x >= high) & (gradient > 0)))
        slope = np.where(free, gradient, 0.0)
        active = active[(np.abs(slope[active]) * width[active]).max(axis=1) > tolerance]
        if not len(active):
            break
        direction = _direction(inverse[active], slope[active])
        moved, new_x, new_value, new_gradient = _line_search(
            objective, active, x[active], value[active], slope[active], direction,
            np.broadcast_to(low, x.shape)[active], np.broadcast_to(high, x.shape)[active],
        )  # fmt: skip
        active = active[moved]
        if not len(active):
            break
        step = new_x - x[active]
        bend = gradient[active] - new_gradient
        inverse[active] = _bfgs(inverse[active], step, bend)
        gain = new_value - value[active]
        x[active], value[active], gradient[active] = new_x, new_value, new_gradient
        active = active[gain > 1e-12 * (1.0 + np.abs(new_value))]
    return x, value


def _first_step(gradient: Array, width: Array) -> Array:
    # The first step is to move a twentieth of the box along the steepest coordinate.
    relative = np.divide(np.abs(gradient), width, out=np.zeros_like(gradient), where=width > 0)
    return np.asarray(0.05 / np.maximum(relative.max(axis=1), 1e-12))


def _direction(inverse: Array, slope: Array) -> Array:
    direction = np.einsum("sij,sj->si", inverse, slope) * (slope != 0)
    uphill = (direction * slope).sum(axis=1) > 0
    return np.where(uphill[:, None], direction, slope)


def _line_search(
    objective: Objective,
    rows: np.ndarray,
    x: Array,
    value: Array,
    slope: Array,
    direction: Array,
    low: Array,
    high: Array,
) -> tuple[np.ndarray, Array, Array, Array]:
    """Backtracking with Armijo's rule, each row on its own: which rows moved, and to where."""
    scale = np.ones(len(rows))
    new_x, new_value, new_gradient = x.copy(), value.copy(), np.zeros_like(x)
    waiting = np.arange(len(rows))
    moved = np.zeros(len(rows), dtype=bool)
    for _ in range(12):
        trial = x[waiting] + scale[waiting, None] * direction[waiting]
        trial = np.clip(trial, low[waiting], high[waiting])
        f, g = objective(trial, rows[waiting])
        promised = (slope[waiting] * (trial - x[waiting])).sum(axis=1)
        good = (f >= value[waiting] + 1e-4 * promised) & (promised > 0)
        done = waiting[good]
        new_x[done], new_value[done], new_gradient[done] = trial[good], f[good], g[good]
        moved[done] = True
        waiting = waiting[~good]
        if not len(waiting):
            break
        scale[waiting] *= 0.3
    return moved, new_x[moved], new_value[moved], new_gradient[moved]


def _bfgs(inverse: Array, step: Array, bend: Array) -> Array:
    """The BFGS update of the inverse Hessians, skipped where the curvature has the wrong sign."""
    curvature = (step * bend).sum(axis=1)
    usable = curvature > 1e-12 * np.sqrt((step**2).sum(axis=1) * (bend**2).sum(axis=1)) + 1e-300
    rho = np.where(usable, 1.0 / np.where(usable, curvature, 1.0), 0.0)[:, None, None]
    left = np.eye(step.shape[1]) - rho * step[:, :, None] * bend[:, None, :]
    updated = left @ inverse @ left.transpose(0, 2, 1) + rho * step[:, :, None] * step[:, None, :]
    return np.where(usable[:, None, None], updated, inverse)
