"""The chart of the partition that Fed-PNE explored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from flwr_fbo import FedPNE, simulate
from flwr_fbo.report.style import SHADES
from flwr_fbo.report.svg import RIGHT, WIDTH
from flwr_fbo.report.tree import tree_chart, tree_svg

SVG = "{http://www.w3.org/2000/svg}"


def node(phase: int, depth: int, index: int, mean: float, eliminated: bool = False) -> Any:
    return {
        "search": 0, "phase": phase, "depth": depth, "index": index, "low": [0.0], "high": [1.0],
        "pulls": 40, "mean": mean, "width": 0.1, "eliminated": eliminated,
    }  # fmt: skip


def bars(text: str) -> list[dict[str, str]]:
    return [bar.attrib for bar in ET.fromstring(text).iter(f"{SVG}rect")]


def test_the_tree_of_a_run(tmp_path: Path) -> None:
    result = simulate("garland", agents=10, strategy=FedPNE(budget=200), run_dir=tmp_path / "run")
    rows = result.findings["tree"]
    boxes = bars(tree_svg(rows, arity=2))
    assert len(boxes) == len(rows)
    first = [row for row in rows if row["phase"] == 0]
    plot = WIDTH - tree_chart(rows, 2, "t").left - RIGHT
    widths = [float(box["width"]) for box in boxes[: len(first)]]
    # The nodes of the first phase are all the nodes of their depth: they share the width.
    assert len(first) == 2 ** first[0]["depth"]
    np.testing.assert_allclose(widths, plot / len(first), atol=0.01)


def test_bars_by_hand() -> None:
    rows = [node(0, 1, 1, 0.8), node(0, 1, 2, 0.3, eliminated=True),
            node(1, 3, 1, 0.7), node(1, 3, 2, 0.9), node(1, 3, 4, 0.8)]  # fmt: skip
    boxes = bars(tree_svg(rows, arity=2))
    assert [box["class"] for box in boxes] == [
        "s0",
        "out",
        "s0",
        f"s{SHADES - 1}",
        f"s{SHADES // 2}",
    ]
    plot, left = float(boxes[0]["width"]) * 2, float(boxes[0]["x"])
    share = [(float(b["x"]) - left) / plot for b in boxes]
    np.testing.assert_allclose(share, [0.0, 0.5, 0.0, 0.125, 0.375], atol=1e-4)
    assert len({box["y"] for box in boxes}) == 2  # a row for each phase


def test_no_nodes_at_all() -> None:
    assert bars(tree_svg([], arity=2)) == []


@pytest.mark.parametrize("depth", [40, 200])
def test_nodes_of_any_depth_are_drawn_where_they_are(depth: int) -> None:
    """Beyond depth 53 a count of nodes leaves the integers that floating point holds."""
    (box,) = bars(tree_svg([node(0, depth, 3**depth // 3 + 1, 0.5)], arity=3))
    chart = tree_chart([node(0, 1, 2, 0.5)], 3, "t")
    assert float(box["x"]) == pytest.approx(float(chart.px(np.array([1 / 3]))[0]), abs=0.01)
    assert float(box["width"]) > 0.5  # thin, but visible


def test_searches_that_ran_side_by_side_have_rows_of_their_own() -> None:
    rows = [node(0, 1, 1, 0.8), {**node(0, 1, 1, 0.7), "search": 1}]
    chart = tree_chart(rows, 2, "t")
    assert [label for _, label in chart.y.ticks] == ["0/0", "1/0"]
    assert len({box["y"] for box in bars(tree_svg(rows, 2))}) == 2


@pytest.mark.parametrize("phases", [1, 24, 25, 47, 60, 200])
def test_labels_of_phases_never_crowd(phases: int) -> None:
    chart = tree_chart([node(p, 1, 1, 0.5) for p in range(phases)], 2, "t")
    assert 1 <= len(chart.y.ticks) <= 25


def test_a_file_depends_on_no_page() -> None:
    """Many viewers of SVG read neither variables of CSS nor a style sheet elsewhere."""
    text = tree_svg([node(0, 1, 1, 0.8), node(0, 1, 2, 0.3)], arity=2)
    assert "var(" not in text
    assert not re.search(r"<script|<image|href=|url\(|@import", text)
    used = {name for box in bars(text) for name in box["class"].split()}
    assert all(f".{name} {{" in text for name in used)
