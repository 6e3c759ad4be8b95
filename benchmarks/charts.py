"""Charts as files: those of flwr_fbo.report.svg, with colours, and their legend below."""

from __future__ import annotations

import math
import re
from html import escape
from typing import Any

import numpy as np

from flwr_fbo.report.svg import WIDTH, Axis, Chart

COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490")
DASHES = ("", "7 4", "2 4")
#: Rows of a legend are so high, and have so many entries.
ROW, COLUMNS = 18, 2
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#333}.grid{stroke:#ddd}.line{fill:none;"
    "stroke-width:2}"
    + "".join(f".c{i}{{stroke:{c}}}circle.c{i}{{fill:{c}}}" for i, c in enumerate(COLOURS))
    + "".join(f".d{i}{{stroke-dasharray:{d}}}" for i, d in enumerate(DASHES) if d)
    + "</style>"
)
#: The figures stand on pages of any colour.
_GROUND = '<rect width="100%" height="100%" fill="#fff"/>'


def style(number: int) -> str:
    """What the so-and-so-manyeth curve looks like: a colour, then the same colours dashed."""
    return f"c{number % len(COLOURS)} d{number // len(COLOURS) % len(DASHES)}"


def log_axis(powers: Any, label: str) -> Axis:
    """An axis for values that are given as powers of ten, with marks at whole ones."""
    low, high = math.floor(np.min(powers)), math.ceil(np.max(powers) + 1e-9)
    high = max(high, low + 1)
    return Axis(low, high, label, [(k, f"{10.0**k:g}") for k in range(low, high + 1)])


def alone(drawn: Chart) -> str:
    """A chart as the text of an SVG file."""
    found = re.search(r"<svg viewBox[^>]*>(.*?)</svg>", drawn.figure(), re.DOTALL)
    assert found is not None
    entries = "".join(
        _entry(i, look, label, drawn.height) for i, (look, label) in enumerate(drawn.legend)
    )
    height = drawn.height + ROW * -(-len(drawn.legend) // COLUMNS) + 6 * bool(drawn.legend)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(drawn.title)}">{_STYLE}{_GROUND}{found[1]}{entries}</svg>\n'
    )


def _entry(number: int, look: str, label: str, top: int) -> str:
    x = 40 + number % COLUMNS * (WIDTH - 40) // COLUMNS
    y = top + ROW * (number // COLUMNS) + 10
    return (
        f'<line class="line {look}" x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}"/>'
        f'<text x="{x + 33}" y="{y + 4}">{escape(label)}</text>'
    )
