"""What a run of Fed-PNE found: the best point, how sure it is, and the tree that was explored."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.fed_pne.search import Outcome

if TYPE_CHECKING:  # the server reports through this module
    from flwr_fbo.methods.fed_pne.server import FedPNEServer

LEVEL = 0.95


def result(server: FedPNEServer) -> dict[str, Any]:
    """JSON-ready: ``recommended`` (None before the first phase), rounds, numbers, guarantees.

    Recommended is the pulled node with the highest lower bound ``mean - width``.
    """
    outcomes = [outcome for _, outcome in server.outcomes()]
    private = server.guarantees()
    return {
        "recommended": _recommended(server, outcomes) if outcomes else None,
        "rounds": server.round,
        "phases": server.phase,
        "pulls_per_agent": sum(int(o.pulls.sum()) for o in outcomes),
        "numbers_sent_per_agent": float(server.sent.mean()),
        "stopped": server.stopped,
        "guarantees": None if private is None else private.to_dict(),
    }


def _recommended(server: FedPNEServer, outcomes: list[Outcome]) -> dict[str, Any]:
    bounds = [o.means - o.widths for o in outcomes]
    which = max(range(len(outcomes)), key=lambda n: float(bounds[n].max()))
    outcome, row = outcomes[which], int(bounds[which].argmax())
    low, high = server.settings.reward_low, server.settings.reward_high
    mean = float(outcome.means[row])
    half = half_interval(server, outcome, row)
    return {
        "params": server.space.from_unit(outcome.points[row]),
        "unit": outcome.points[row].tolist(),
        "depth": outcome.depth,
        "index": outcome.index[row],
        "low": outcome.low[row].tolist(),
        "high": outcome.high[row].tolist(),
        "mean": low + (high - low) * mean,
        "interval": [low + (high - low) * (mean + side * half) for side in (-1, 1)],
        "level": LEVEL,
        "pulls": int(outcome.pulls[row]) * outcome.replies,
    }


def half_interval(server: FedPNEServer, outcome: Outcome, row: int) -> float:
    """Half a confidence interval of a node's reward, true of any rewards in [0, 1].

    A mean of n rewards in [0, 1] is sub-Gaussian of variance 1/(4n) (Hoeffding), and the privacy
    noise adds its own. The node was chosen among all that were pulled, so the interval holds
    for all of them together. It is independent of the constants that steered the search.
    """
    pulls = np.array([outcome.pulls[row]])
    noise = float(server.noise.variance(pulls)[0]) / outcome.replies
    variance = 0.25 / float(pulls[0] * outcome.replies) + noise
    chosen_from = sum(len(o.means) for _, o in server.outcomes())
    return math.sqrt(2 * variance * math.log(2 * chosen_from / (1 - LEVEL)))


def tree(server: FedPNEServer) -> list[dict[str, Any]]:
    """Every node that was pulled, JSON-ready, in the order of the phases."""
    rows: list[dict[str, Any]] = []
    for search, o in server.outcomes():
        for j, index in enumerate(o.index):
            rows.append(
                {
                    "search": search,
                    "phase": o.phase,
                    "depth": o.depth,
                    "index": index,
                    "low": o.low[j].tolist(),
                    "high": o.high[j].tolist(),
                    "pulls": int(o.pulls[j]) * o.replies,
                    "mean": float(o.means[j]),
                    "width": float(o.widths[j]),
                    "eliminated": bool(o.eliminated[j]),
                }
            )
    return rows


def tree_text(server: FedPNEServer, columns: int = 72) -> str:
    """One line a phase over the space in the partition's order: # best, + kept, . eliminated."""
    lines = []
    for search, o in server.outcomes():
        line = [" "] * columns
        spans = _spans(server, o) * columns
        order = np.argsort(o.means - 1e9 * o.eliminated, kind="stable")  # the best is drawn last
        for j in order:
            start, stop = int(spans[j, 0]), max(int(spans[j, 0]) + 1, math.ceil(spans[j, 1]))
            mark = "#" if j == o.means.argmax() else "." if o.eliminated[j] else "+"
            line[start:stop] = mark * (min(stop, columns) - start)
        name = f"{search}/{o.phase}" if len(server.searches) > 1 else f"{o.phase}"
        lines.append(f"phase {name:>4} depth {o.depth:>3} |{''.join(line)}|")
    return "\n".join(lines)


def _spans(server: FedPNEServer, outcome: Outcome) -> Array:
    """Where each node lies when the partition's order is laid out on [0, 1]: (K, 2)."""
    count = server.settings.arity**outcome.depth  # Python integers: exact at any depth
    return np.array([[(i - 1) / count, i / count] for i in outcome.index])
