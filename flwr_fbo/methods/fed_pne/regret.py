"""The regret of agents that seek one optimum for all agents together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation


def cumulative_regret(evaluations: Iterable[Evaluation]) -> Array:
    """Return one agent's cumulative regret after each of its evaluations, in the order made."""
    return np.cumsum([e.regret if e.regret is not None else math.nan for e in evaluations])


def regret_per_agent(histories: Sequence[Sequence[Evaluation]]) -> float | None:
    """Return the mean over agents of their final cumulative regret; None where unknown."""
    sums = [float(cumulative_regret(h)[-1]) for h in histories if len(h)]
    return float(np.mean(sums)) if sums and np.all(np.isfinite(sums)) else None
