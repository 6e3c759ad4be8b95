"""The partition that a run of Fed-PNE explored, as a chart: one row of nodes for each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr_fbo.report.style import FILE_STYLE, SHADES
from flwr_fbo.report.svg import Axis, Chart

#: Height of a phase's row, of the axis below, and of the smallest chart.
ROW_HEIGHT, AXIS_HEIGHT, LEAST_HEIGHT = 22, 60, 140
#: Most phases with a label of their own.
MAX_LABELS = 24


def tree_svg(rows: Sequence[Mapping[str, Any]], arity: int) -> str:
    """Return the tree as the text of an SVG file.

    Parameters
    ----------
    rows
        The nodes that were evaluated, as ``result.json`` holds them under ``tree``.
    arity
        Most children of a node: the setting ``arity`` of the run.

    Examples
    --------
    >>> from flwr_fbo.report.tree import tree_svg
    >>> node = {"search": 0, "phase": 0, "depth": 1, "pulls": 40, "width": 0.1}
    >>> left = {**node, "index": 1, "mean": 0.8, "eliminated": False}
    >>> right = {**node, "index": 2, "mean": 0.3, "eliminated": True}
    >>> text = tree_svg([left, right], arity=2)
    >>> text.count("<rect ")
    2
    """
    return tree_chart(rows, arity, "tree").file(FILE_STYLE)


def tree_chart(rows: Sequence[Mapping[str, Any]], arity: int, name: str) -> Chart:
    """Return the chart of the tree: a stronger shade is better, hollow was eliminated."""
    phases: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        phases.setdefault((row["search"], row["phase"]), []).append(row)
    chart = Chart(
        name,
        "Partition by phase: stronger is better, hollow was eliminated",
        Axis(0.0, 1.0, "the space in the partition's order", [(0.0, "0"), (1.0, "1")]),
        _phase_axis(list(phases)),
        height=max(AXIS_HEIGHT + ROW_HEIGHT * len(phases), LEAST_HEIGHT),
    )
    for level, nodes in enumerate(phases.values()):
        for node, style in zip(nodes, _styles(nodes), strict=True):
            chart.bar(_span(node, arity), (-level - 0.9, -level - 0.1), style, _tooltip(node))
    return chart


def _phase_axis(phases: Sequence[tuple[int, int]]) -> Axis:
    """Return the vertical axis: the first phase is the top row, a unit high."""
    several = len({search for search, _ in phases}) > 1  # searches that ran side by side
    names = [f"{search}/{phase}" if several else f"{phase}" for search, phase in phases]
    ticks = [(-level - 0.5, name) for level, name in enumerate(names)]
    label = "search/phase" if several else "phase"
    return Axis(-float(max(len(phases), 1)), 0.0, label, ticks[:: 1 + len(ticks) // MAX_LABELS])


def _span(node: Mapping[str, Any], arity: int) -> tuple[float, float]:
    """Return where a node lies when the nodes of its depth share [0, 1] equally, in order."""
    count = arity ** node["depth"]  # Python integers: exact at any depth
    return (node["index"] - 1) / count, node["index"] / count


def _styles(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the class of each node of a phase: its mean's shade, or hollow if eliminated.

    Shades run from the worst to the best of the nodes that were kept. An eliminated node may lie
    far below, and would leave the kept nodes a single shade.
    """
    kept = [node["mean"] for node in nodes if not node["eliminated"]]
    low, high = min(kept, default=0.0), max(kept, default=0.0)
    spread = max(high - low, 1e-12)  # equal means share a shade

    def style(node: Mapping[str, Any]) -> str:
        if node["eliminated"]:
            return "out"
        return f"s{min(int(SHADES * (node['mean'] - low) / spread), SHADES - 1)}"

    return [style(node) for node in nodes]


def _tooltip(node: Mapping[str, Any]) -> str:
    """Return what a node's bar says where the reader points at it."""
    return (
        f"search {node['search']}, phase {node['phase']}, "
        f"node ({node['depth']}, {node['index']}): "
        f"mean {node['mean']:.4g} +- {node['width']:.2g}, {node['pulls']} pulls"
    )
