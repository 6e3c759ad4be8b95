r"""Many bounded minimisations at once, by BFGS with a trust region for each.

Most of what a small minimisation costs is calls of numpy, and a call on a hundred rows costs little
more than a call on one. Rows never mix: a row ends at the same point, to the last bit, whatever the
other rows are.

Notation

==================================  ===================  ===================
symbol                              here                 shape
==================================  ===================  ===================
``x``, ``f``, ``g``                 a :class:`_Rows`     S rows
``H``, learned from gradients       ``at.curvature``     (S, D, D)
``p = -H^-1 g``                     ``move``             (S, D)
``-(g'p + p'Hp / 2)``               ``predicted``        (S,)
``r``, each row's trust radius      ``radius``           (S,)
==================================  ===================  ===================

The first H is the identity. Coordinates should therefore be such that one unit matters about as
much along each of them, as the spreads of a prior make them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array

#: From rows (n, D) and their numbers (n,) among all rows, values (n,) and gradients (n, D).
Loss: TypeAlias = Callable[[Array, np.ndarray], tuple[Array, Array]]
#: A step is taken if the function falls by at least this share of what was predicted.
LEAST_SHARE = 1e-4
#: A row ends where a step changes the function by less than this share of its value.
LEAST_CHANGE = 2e-9
#: The curvature along a step is learned as at least this share of what it was (Powell's damping),
#: so that H stays positive definite where the function is not convex.
DAMPING = 0.2


@dataclass(frozen=True)
class DescentOptions:
    """When a minimisation stops, and how far its first step may go."""

    #: A row ends where no coordinate that can move has a larger slope.
    slope: float = 0.03
    iterations: int = 50
    radius: float = 1.0


@dataclass
class _Rows:
    """Points of rows, with values, gradients and learned Hessians."""

    x: Array
    value: Array
    gradient: Array
    curvature: Array

    def __getitem__(self, rows: np.ndarray) -> _Rows:
        return _Rows(self.x[rows], self.value[rows], self.gradient[rows], self.curvature[rows])


def minimise(
    loss: Loss, starts: Array, low: Array, high: Array, options: DescentOptions | None = None
) -> tuple[Array, Array]:
    """Return minimisers (S, D) and minima (S,), from starts (S, D), within ``[low, high]`` (D,)."""
    options = options or DescentOptions()
    count, dimension = starts.shape
    x = np.minimum(np.maximum(starts, low), high)
    curvature = np.broadcast_to(np.eye(dimension), (count, dimension, dimension)).copy()
    at = _Rows(x, *loss(x, np.arange(count)), curvature)
    radius, ended = np.full(count, options.radius), np.zeros(count, dtype=bool)
    for _ in range(options.iterations):
        rows = np.flatnonzero(~ended & (_slope(at, low, high) > options.slope))
        if not len(rows):
            break
        here = at[rows]
        trial, predicted = _step(here, radius[rows], low, high)
        value, gradient = loss(trial, rows)
        fallen, moved = here.value - value, trial - here.x
        taken = fallen > LEAST_SHARE * predicted
        at.curvature[rows] = _learned(here.curvature, moved, gradient - here.gradient)
        new = rows[taken]
        at.x[new], at.value[new], at.gradient[new] = trial[taken], value[taken], gradient[taken]
        radius[rows] = _next_radius(radius[rows], fallen, predicted, moved)
        ended[rows] = np.abs(fallen) <= LEAST_CHANGE * np.maximum(1.0, np.abs(here.value))
    return at.x, at.value


def _slope(at: _Rows, low: Array, high: Array) -> Array:
    """Return the largest slope along a coordinate that can move, as the bounds leave it: (S,)."""
    ahead = np.minimum(np.maximum(at.x - at.gradient, low), high)
    return np.asarray(np.abs(ahead - at.x).max(axis=1))


def _step(at: _Rows, radius: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return where steps lead (S, D), and how far the function should fall (S,)."""
    free = ~(((at.x <= low) & (at.gradient >= 0.0)) | ((at.x >= high) & (at.gradient <= 0.0)))
    downhill = np.where(free, -at.gradient, 0.0)
    # Coordinates that cannot move are taken out of the quadratic model.
    both, identity = free[:, :, None] & free[:, None, :], np.eye(free.shape[1])
    model = np.where(both, at.curvature, identity)
    move = np.linalg.solve(model, downhill[:, :, None])[:, :, 0]
    trial, predicted = _within(at, move, radius, low, high)
    cut_off = (trial != at.x + move).any(axis=1)
    if not cut_off.any():
        return trial, predicted
    # What bounds and radius leave of a step may lead up, and a short step along the gradient does
    # not. Rows whose step was cut off take whichever of the two promises more.
    slope = np.einsum("sd,sd->s", downhill, downhill)
    bent = np.einsum("sd,sd->s", (model @ downhill[:, :, None])[:, :, 0], downhill)
    along = downhill * (slope / np.maximum(bent, 1e-300))[:, None]
    other, alternative = _within(at, along, radius, low, high)
    better = cut_off & (alternative > predicted)
    return np.where(better[:, None], other, trial), np.where(better, alternative, predicted)


def _within(at: _Rows, move: Array, radius: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return where moves lead within radius and bounds (S, D), and the predicted fall (S,)."""
    longer = np.sqrt(np.einsum("sd,sd->s", move, move)) / radius
    trial = at.x + move / np.maximum(longer, 1.0)[:, None]
    trial = np.minimum(np.maximum(trial, low), high)
    moved = trial - at.x
    slope = 0.5 * (at.curvature @ moved[:, :, None])[:, :, 0]
    slope += at.gradient
    return trial, np.asarray(-np.einsum("sd,sd->s", slope, moved))


def _learned(curvature: Array, moved: Array, change: Array) -> Array:
    """Return H (S, D, D) after BFGS's update, given moves and changes of the gradient (S, D)."""
    bent = (curvature @ moved[:, :, None])[:, :, 0]  # H s
    known = np.einsum("sd,sd->s", bent, moved)  # s'H s
    found = np.einsum("sd,sd->s", change, moved)  # s'y
    low = found < DAMPING * known
    if low.any():
        share = (1.0 - DAMPING) * known / np.where(low, known - found, 1.0)
        share = np.where(low, share, 1.0)
        change = share[:, None] * change + (1.0 - share)[:, None] * bent
        found = np.where(low, DAMPING * known, found)
    valid = known > 1e-300
    known, found = np.where(valid, known, 1.0), np.where(valid & (found > 0.0), found, 1.0)
    gain = change[:, :, None] * (change / found[:, None])[:, None, :]
    loss = bent[:, :, None] * (bent / known[:, None])[:, None, :]
    return np.where(valid[:, None, None], curvature + gain - loss, curvature)


def _next_radius(radius: Array, fallen: Array, predicted: Array, moved: Array) -> Array:
    """Return each row's trust radius after a step, by the ratio of actual to predicted fall."""
    length = np.sqrt(np.einsum("sd,sd->s", moved, moved))
    ratio = fallen / np.maximum(predicted, 1e-300)
    farther = (ratio > 0.75) & (length > 0.8 * radius)
    return np.where(ratio < 0.25, 0.25 * length, np.where(farther, 2.0 * radius, radius))
