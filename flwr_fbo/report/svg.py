"""Small charts as SVG text: axes, curves, bands, dots. Colours are left to the page's CSS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from flwr_fbo.core.arrays import Array

#: Size of a chart in its own units. Narrow, so that text is legible where a phone shrinks it.
WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 80, 26, 14, 46
#: Longest label of a mark, in letters: below the chart, and beside it, where it may have more room.
LONGEST, LONGEST_BESIDE = 7, 12
#: Width of a letter of such a label, at most on average.
LETTER = 9.5


@dataclass(frozen=True)
class Axis:
    """Values from low to high, and where marks with labels stand."""

    low: float
    high: float
    label: str
    ticks: Sequence[tuple[float, str]]


def linear_axis(values: Array, label: str, *, whole: bool = False, zero: bool = False) -> Axis:
    """An axis around these values, with marks at round numbers."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    low = float(finite.min()) if len(finite) else 0.0
    high = float(finite.max()) if len(finite) else 1.0
    low = min(low, 0.0) if zero else low
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - (0 if zero else 0.5), high + (1.0 if whole else 0.5)
    step = round_step((high - low) / 5)
    step = max(1.0, step) if whole else step
    first, last = math.floor(low / step), math.ceil(high / step)
    if whole:  # rounds and counts: no room beyond what happened
        ticks = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return Axis(low, high, label, [(t, number(t)) for t in ticks])
    ticks = [k * step for k in range(first, last + 1)]
    return Axis(first * step, last * step, label, [(t, number(t)) for t in ticks])


def round_step(rough: float) -> float:
    """The next of 1, 2, 5, 10, ... times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return float(next(k * power for k in (1, 2, 5, 10) if k * power >= rough * (1 - 1e-9)))


def number(value: float) -> str:
    """A number as short as it can be told."""
    text = f"{value:.6g}"
    return "0" if float(text) == 0 else text.replace("e-0", "e-").replace("e+0", "e")


def shortened(text: str, longest: int = LONGEST) -> str:
    """A label that fits at its mark, with the whole of it as a tooltip."""
    if len(text) <= longest:
        return escape(text)
    return f"{escape(text[: longest - 1])}…<title>{escape(text)}</title>"


@dataclass
class Chart:
    """A pair of axes that things are drawn on; see :meth:`svg`."""

    name: str
    title: str
    x: Axis
    y: Axis
    height: int = HEIGHT
    parts: list[str] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Where the plot begins: beside the labels of the vertical axis, and its name."""
        letters = max((len(text) for _, text in self.y.ticks), default=0)
        return max(float(LEFT), 36 + LETTER * min(letters, LONGEST_BESIDE))

    def px(self, values: Array) -> Array:
        """Horizontal positions."""
        share = (np.asarray(values, dtype=np.float64) - self.x.low) / (self.x.high - self.x.low)
        return np.asarray(self.left + share * (WIDTH - self.left - RIGHT))

    def py(self, values: Array) -> Array:
        """Vertical positions; y points up."""
        share = (np.asarray(values, dtype=np.float64) - self.y.low) / (self.y.high - self.y.low)
        return np.asarray(self.height - BOTTOM - share * (self.height - TOP - BOTTOM))

    def line(self, x: Array, y: Array, style: str, label: str = "") -> None:
        """A curve; ``style`` is a class of the page's CSS."""
        points = _points(self.px(x), self.py(y))
        self.parts.append(f'<polyline class="line {style}" points="{points}"/>')
        if label:
            self.legend.append((style, label))

    def steps(self, x: Array, y: Array, style: str, label: str = "") -> None:
        """A curve that keeps its value until the next."""
        if len(x):
            self.line(np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1], style, label)

    def band(self, x: Array, low: Array, high: Array, style: str) -> None:
        """The space between two curves."""
        there, back = self.px(x), self.px(x)[::-1]
        points = _points(np.r_[there, back], np.r_[self.py(high), self.py(low)[::-1]])
        self.parts.append(f'<polygon class="band {style}" points="{points}"/>')

    def level(self, value: float, label: str) -> None:
        """A dashed line across the chart."""
        y = float(self.py(np.array([value]))[0])
        ends = f'x1="{self.left:g}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        self.parts.append(
            f'<line class="level" {ends}/>'
            f'<text class="small" x="{self.left + 6:g}" y="{y - 5:.1f}">{escape(label)}</text>'
        )

    def dots(self, x: Array, y: Array, styles: Sequence[str], radius: float = 2.6) -> None:
        """A dot each, with a class each."""
        for cx, cy, style in zip(self.px(x), self.py(y), styles, strict=True):
            self.parts.append(
                f'<circle class="{style}" cx="{cx:.1f}" cy="{cy:.1f}" r="{radius:g}"/>'
            )

    def star(self, x: float, y: float, title: str) -> None:
        """The one point that must be seen."""
        cx, cy = float(self.px(np.array([x]))[0]), float(self.py(np.array([y]))[0])
        angles = -np.pi / 2 + np.arange(10) * np.pi / 5
        radii = np.where(np.arange(10) % 2 == 0, 11.0, 4.6)
        points = _points(cx + radii * np.cos(angles), cy + radii * np.sin(angles))
        self.parts.append(
            f'<polygon class="star" points="{points}"><title>{escape(title)}</title></polygon>'
        )

    def bar(self, x0: float, x1: float, y0: float, y1: float, style: str, title: str) -> None:
        """A rectangle."""
        left, right = self.px(np.array([x0, x1]))
        bottom, top = self.py(np.array([y0, y1]))
        self.parts.append(
            f'<rect class="{style}" x="{left:.2f}" y="{top:.2f}" '
            f'width="{max(right - left, 0.8):.2f}" height="{max(bottom - top, 0.8):.2f}">'
            f"<title>{escape(title)}</title></rect>"
        )

    def svg(self) -> str:
        """The whole chart as a figure with its caption."""
        return (
            f'<figure id="{escape(self.name)}"><figcaption>{escape(self.title)}</figcaption>'
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" '
            f'aria-label="{escape(self.title)}">{self._axes()}{"".join(self.parts)}</svg>'
            f"{self._legend()}</figure>"
        )

    def _axes(self) -> str:
        floor, parts = self.height - BOTTOM, []
        for value, text in self.x.ticks:
            x = float(self.px(np.array([value]))[0])
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{floor}"/>')
            parts.append(
                f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{shortened(text)}</text>'
            )
        for value, text in self.y.ticks:
            y = float(self.py(np.array([value]))[0])
            right = WIDTH - RIGHT
            parts.append(
                f'<line class="grid" x1="{self.left:g}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(
                f'<text x="{self.left - 7:g}" y="{y + 4.5:.1f}" text-anchor="end">'
                f"{shortened(text, LONGEST_BESIDE)}</text>"
            )
        middle, centre = (self.left + WIDTH - RIGHT) / 2, (TOP + floor) / 2
        parts.append(
            f'<text x="{middle:g}" y="{self.height - 8}" text-anchor="middle">'
            f"{escape(_fitting(self.x.label, 44))}</text>"
            f'<text transform="translate(15 {centre}) rotate(-90)" text-anchor="middle">'
            f"{escape(_fitting(self.y.label, 26))}</text>"
        )
        return "".join(parts)

    def _legend(self) -> str:
        items = "".join(
            f'<li><svg viewBox="0 0 22 10"><line class="line {style}" x1="0" x2="22" y1="5" '
            f'y2="5"/></svg>{escape(text)}</li>'
            for style, text in self.legend
        )
        return f'<ul class="legend">{items}</ul>' if items else ""


def _fitting(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _points(x: Array, y: Array) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
