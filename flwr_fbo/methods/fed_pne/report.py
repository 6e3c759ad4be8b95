"""The findings of a Fed-PNE run: the recommended point, its interval, and the tree searched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.fed_pne.search import PhaseResult

if TYPE_CHECKING:  # the server reports through this module
    from flwr_fbo.methods.fed_pne.server import FedPNEServer

#: Confidence level of the recommended point's interval.
LEVEL = 0.95


def summarise(server: FedPNEServer) -> dict[str, Any]:
    """Return the recommended point, rounds, numbers sent and guarantees, JSON-ready.

    ``recommended`` is the pulled node with the highest lower bound ``mean - width``, or None
    before the end of the first phase.
    """
    results = [result for _, result in server.results()]
    private = server.guarantees()
    return {
        "recommended": _recommended(server, results) if results else None,
        "rounds": server.round,
        "phases": server.phase,
        "pulls_per_agent": sum(int(r.pulls.sum()) for r in results),
        "numbers_sent_per_agent": float(server.sent.mean()),
        "stopped": server.stopped,
        "guarantees": None if private is None else private.to_dict(),
    }


def _recommended(server: FedPNEServer, results: list[PhaseResult]) -> dict[str, Any]:
    """Return the node with the highest lower bound, its box, and its mean score's interval."""
    bounds = [r.means - r.widths for r in results]
    which = max(range(len(results)), key=lambda n: float(bounds[n].max()))
    result, row = results[which], int(bounds[which].argmax())
    low, high = server.settings.reward_low, server.settings.reward_high
    mean = float(result.means[row])
    half = half_interval(server, result, row)
    return {
        "params": server.space.from_unit(result.points[row]),
        "unit": result.points[row].tolist(),
        "depth": result.depth,
        "index": result.index[row],
        "low": result.low[row].tolist(),
        "high": result.high[row].tolist(),
        # Rewards are scaled back to scores.
        "mean": low + (high - low) * mean,
        "interval": [low + (high - low) * (mean + side * half) for side in (-1, 1)],
        "level": LEVEL,
        "pulls": int(result.pulls[row]) * result.replies,
    }


def half_interval(server: FedPNEServer, result: PhaseResult, row: int) -> float:
    """Return half the confidence interval of a node's reward, for any rewards in [0, 1].

    A mean of n rewards in [0, 1] is sub-Gaussian of variance 1/(4n) (Hoeffding), and the privacy
    noise adds its own variance. The interval holds for all pulled nodes together, because the
    node was chosen among them. The constants that steered the search play no part.
    """
    pulls = np.array([result.pulls[row]])
    noise = float(server.noise.variance(pulls)[0]) / result.replies
    variance = 0.25 / float(pulls[0] * result.replies) + noise
    chosen_from = sum(len(r.means) for _, r in server.results())
    return math.sqrt(2 * variance * math.log(2 * chosen_from / (1 - LEVEL)))


def tree_rows(server: FedPNEServer) -> list[dict[str, Any]]:
    """Return one JSON-ready row for every node that was pulled, in the order of the phases."""
    return [
        {
            "search": search,
            "phase": r.phase,
            "depth": r.depth,
            "index": index,
            "low": r.low[j].tolist(),
            "high": r.high[j].tolist(),
            "pulls": int(r.pulls[j]) * r.replies,
            "mean": float(r.means[j]),
            "width": float(r.widths[j]),
            "eliminated": bool(r.eliminated[j]),
        }
        for search, r in server.results()
        for j, index in enumerate(r.index)
    ]


def tree_text(server: FedPNEServer, columns: int = 72) -> str:
    """Return one line of text for each phase: # is the best node, + kept, . eliminated.

    A line lays the whole space out in the order of the partition.
    """
    lines = []
    for search, r in server.results():
        line = [" "] * columns
        spans = _spans(server, r) * columns
        # The best node is drawn last, so that no neighbour in the same column hides it.
        order = np.argsort(r.means - 1e9 * r.eliminated, kind="stable")
        for j in order:
            start, stop = int(spans[j, 0]), max(int(spans[j, 0]) + 1, math.ceil(spans[j, 1]))
            mark = "#" if j == r.means.argmax() else "." if r.eliminated[j] else "+"
            line[start:stop] = mark * (min(stop, columns) - start)
        name = f"{search}/{r.phase}" if len(server.searches) > 1 else f"{r.phase}"
        lines.append(f"phase {name:>4} depth {r.depth:>3} |{''.join(line)}|")
    return "\n".join(lines)


def _spans(server: FedPNEServer, result: PhaseResult) -> Array:
    """Return where each node lies when the partition's order is laid out on [0, 1]: (K, 2)."""
    count = server.settings.arity**result.depth  # Python integers: exact at any depth
    return np.array([[(i - 1) / count, i / count] for i in result.index])
