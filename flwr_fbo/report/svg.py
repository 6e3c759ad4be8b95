"""Small charts as SVG text: axes, curves, bands, dots and bars.

A chart holds no colours. Each mark names a class of the style sheet in ``report/style.py``.

Why our own SVG and neither matplotlib nor plotly: the report must open without a network and
without a megabyte of JavaScript, follow the reader's choice of light or dark colours, and stay
legible on a phone. The functions ``plot_*`` in Python return the same charts, so that there is one
figure of each kind, and no extra to install.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from flwr_fbo.core.arrays import Array

#: Size of a chart in its own units. Narrow, so that text is legible where a phone shrinks it.
WIDTH, HEIGHT = 480, 300
#: Margins around the plot, which hold the labels.
LEFT, RIGHT, TOP, BOTTOM = 80, 26, 14, 46
#: Longest label of a tick, in letters, below the chart and beside the chart (more room).
LABEL_LETTERS, SIDE_LABEL_LETTERS = 7, 16
#: Longest name of an axis, in letters, below the chart and beside the chart (less room).
NAME_LETTERS, SIDE_NAME_LETTERS = 44, 26
#: Upper bound on the mean width of a letter in a tick's label.
LETTER_WIDTH = 9.5
#: Radii of a star's points and of the notches between them.
STAR_RADII = 11.0, 4.6


@dataclass(frozen=True)
class Axis:
    """The range of values that an axis shows, its name, and its ticks as (value, label)."""

    low: float
    high: float
    label: str
    ticks: Sequence[tuple[float, str]]


def linear_axis(values: Array, label: str, *, whole: bool = False, zero: bool = False) -> Axis:
    """Return an axis that holds the values, with ticks at round numbers.

    Parameters
    ----------
    values
        Values to show. Values that are not finite are ignored.
    label
        Name of the axis.
    whole
        Whether the values are counts: ticks are whole numbers, and the axis ends at the last value.
    zero
        Whether the axis must include 0.
    """
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    low = float(finite.min()) if len(finite) else 0.0
    high = float(finite.max()) if len(finite) else 1.0
    low = min(low, 0.0) if zero else low
    # A single value needs an interval around it: positions divide by the length of the axis.
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - (0 if zero else 0.5), high + (1.0 if whole else 0.5)
    step = round_step((high - low) / 5)
    step = max(1.0, step) if whole else step
    first, last = math.floor(low / step), math.ceil(high / step)
    if whole:  # rounds and counts: no room beyond the last one
        ticks = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return Axis(low, high, label, [(t, short_number(t)) for t in ticks])
    ticks = [k * step for k in range(first, last + 1)]
    return Axis(first * step, last * step, label, [(t, short_number(t)) for t in ticks])


def round_step(rough: float) -> float:
    """Return the smallest of 1, 2, 5, 10 times a power of ten that is at least ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    # The slack keeps 0.30000000000000004 from being rounded up to 0.5.
    return float(next(k * power for k in (1, 2, 5, 10) if k * power >= rough * (1 - 1e-9)))


def short_number(value: float) -> str:
    """Return the value with at most six digits and no padding in its exponent."""
    text = f"{value:.6g}"
    return "0" if float(text) == 0 else text.replace("e-0", "e-").replace("e+0", "e")


def shortened_label(text: str, letters: int = LABEL_LETTERS) -> str:
    """Return a tick's label cut to some letters; the whole label becomes its tooltip."""
    if len(text) <= letters:
        return escape(text)
    return f"{escape(truncated(text, letters))}<title>{escape(text)}</title>"


def truncated(text: str, letters: int) -> str:
    """Return the text, cut to some letters and ended by an ellipsis where it is longer."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


@dataclass
class Chart:
    """A pair of axes, and the marks drawn on them so far.

    Parameters
    ----------
    name
        Identifier of the figure in its page.
    title
        Caption of the figure.
    x, y
        Axes. The vertical axis points up.
    height, width
        Size in the chart's own units. A chart wider than :data:`WIDTH` spans the page.
    note
        What the figure shows, and how to read it: one or two sentences below the title.
    """

    name: str
    title: str
    x: Axis
    y: Axis
    height: int = HEIGHT
    width: int = WIDTH
    note: str = ""
    parts: list[str] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Left edge of the plot, which leaves room for the vertical axis' name and labels."""
        letters = max((len(text) for _, text in self.y.ticks), default=0)
        return max(float(LEFT), 36 + LETTER_WIDTH * min(letters, SIDE_LABEL_LETTERS))

    def px(self, values: Array) -> Array:
        """Return the horizontal positions of values on the x axis."""
        share = (np.asarray(values, dtype=np.float64) - self.x.low) / (self.x.high - self.x.low)
        return np.asarray(self.left + share * (self.width - self.left - RIGHT))

    def py(self, values: Array) -> Array:
        """Return the vertical positions of values on the y axis."""
        share = (np.asarray(values, dtype=np.float64) - self.y.low) / (self.y.high - self.y.low)
        # SVG counts downwards from the top.
        return np.asarray(self.height - BOTTOM - share * (self.height - TOP - BOTTOM))

    def line(self, x: Array, y: Array, style: str, label: str = "") -> None:
        """Draw a curve in a class of the style sheet, with an entry in the legend if labelled."""
        points = _points(self.px(x), self.py(y))
        self.parts.append(f'<polyline class="line {style}" points="{points}"/>')
        if label:
            self.legend.append((style, label))

    def steps(self, x: Array, y: Array, style: str, label: str = "") -> None:
        """Draw a curve that keeps each value until the next one."""
        if len(x):
            self.line(np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1], style, label)

    def band(self, x: Array, low: Array, high: Array, style: str) -> None:
        """Fill the area between two curves."""
        there, back = self.px(x), self.px(x)[::-1]
        points = _points(np.r_[there, back], np.r_[self.py(high), self.py(low)[::-1]])
        self.parts.append(f'<polygon class="band {style}" points="{points}"/>')

    def level(self, value: float, label: str) -> None:
        """Draw a dashed horizontal line across the chart."""
        y = float(self.py(np.array([value]))[0])
        ends = f'x1="{self.left:g}" x2="{self.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        self.parts.append(
            f'<line class="level" {ends}/>'
            f'<text class="small" x="{self.left + 6:g}" y="{y - 5:.1f}">{escape(label)}</text>'
        )

    def dots(self, x: Array, y: Array, styles: Sequence[str], radius: float = 2.6) -> None:
        """Draw a dot for each pair of values, each in its own class."""
        for cx, cy, style in zip(self.px(x), self.py(y), styles, strict=True):
            self.parts.append(
                f'<circle class="{style}" cx="{cx:.1f}" cy="{cy:.1f}" r="{radius:g}"/>'
            )

    def star(self, x: float, y: float, title: str) -> None:
        """Draw a star with a tooltip."""
        cx, cy = float(self.px(np.array([x]))[0]), float(self.py(np.array([y]))[0])
        angles = -np.pi / 2 + np.arange(10) * np.pi / 5  # the first point is up
        radii = np.where(np.arange(10) % 2 == 0, *STAR_RADII)
        points = _points(cx + radii * np.cos(angles), cy + radii * np.sin(angles))
        self.parts.append(
            f'<polygon class="star" points="{points}"><title>{escape(title)}</title></polygon>'
        )

    def bar(self, x: tuple[float, float], y: tuple[float, float], style: str, title: str) -> None:
        """Draw a rectangle from its lower to its upper corner, with a tooltip."""
        left, right = self.px(np.array(x))
        bottom, top = self.py(np.array(y))
        # A bar thinner than 0.8 would vanish, and deep nodes of a partition are thinner.
        self.parts.append(
            f'<rect class="{style}" x="{left:.2f}" y="{top:.2f}" '
            f'width="{max(right - left, 0.8):.2f}" height="{max(bottom - top, 0.8):.2f}">'
            f"<title>{escape(title)}</title></rect>"
        )

    def cell(self, x: tuple[float, float], y: tuple[float, float], style: str, title: str) -> None:
        """Draw a rectangle within the axes, which touches the next one without a seam."""
        left, right = np.clip(self.px(np.array(x)), self.left, self.width - RIGHT)
        bottom, top = np.clip(self.py(np.array(y)), TOP, self.height - BOTTOM)
        self.parts.append(
            f'<rect class="{style}" x="{left:.1f}" y="{top:.1f}" width="{right - left + 0.4:.1f}" '
            f'height="{bottom - top + 0.4:.1f}"><title>{escape(title)}</title></rect>'
        )

    def text(
        self, x: float, y: float, words: str, anchor: str = "start", style: str = "small"
    ) -> None:
        """Write small words at a point of the axes, raised by half a letter's height."""
        px, py = float(self.px(np.array([x]))[0]), float(self.py(np.array([y]))[0])
        self.parts.append(
            f'<text class="{style}" x="{px:.1f}" y="{py + 4:.1f}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def mark(self, value: float, label: str) -> None:
        """Draw a dashed vertical line across the chart, with a label beside its upper end."""
        x = float(self.px(np.array([value]))[0])
        right = x > (self.left + self.width - RIGHT) / 2  # the label goes where there is room
        anchor = "end" if right else "start"
        place = f'x="{x + (-6 if right else 6):.1f}" text-anchor="{anchor}"'
        ends = f'y1="{TOP}" y2="{self.height - BOTTOM}"'
        self.parts.append(
            f'<line class="level" x1="{x:.1f}" x2="{x:.1f}" {ends}/>'
            f'<text class="small" {place} y="{TOP + 14}">{escape(label)}</text>'
        )

    def figure(self) -> str:
        """Return the chart as an HTML figure with caption and legend, styled by its page."""
        wide = ' class="broad"' if self.width > WIDTH else ""
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return (
            f'<figure id="{escape(self.name)}"{wide}><figcaption>{escape(self.title)}</figcaption>'
            f'{note}<div class="plot"><svg {self._frame()}>{self.drawing()}</svg></div>'
            f"{self._legend()}</figure>"
        )

    def file(self, style: str) -> str:
        """Return the chart without its legend as the text of an SVG file with a style sheet."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {self._frame()}><style>{style}</style>\n'
            + self.drawing()
            + "</svg>\n"
        )

    def drawing(self) -> str:
        """Return the axes and the marks, without the SVG element around them."""
        return self._axes() + "\n".join(self.parts)

    def _frame(self) -> str:
        """Return the attributes of the SVG element."""
        return (
            f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.title)}"'
        )

    def _axes(self) -> str:
        """Return the grid, the labels of the ticks and the names of both axes."""
        floor = self.height - BOTTOM
        middle, centre = (self.left + self.width - RIGHT) / 2, (TOP + floor) / 2
        return (
            "".join(self._x_tick(value, text) for value, text in self.x.ticks)
            + "".join(self._y_tick(value, text) for value, text in self.y.ticks)
            + f'<text x="{middle:g}" y="{self.height - 8}" text-anchor="middle">'
            f"{escape(truncated(self.x.label, NAME_LETTERS))}</text>"
            f'<text transform="translate(15 {centre}) rotate(-90)" text-anchor="middle">'
            f"{escape(truncated(self.y.label, SIDE_NAME_LETTERS))}</text>"
        )

    def _x_tick(self, value: float, text: str) -> str:
        x, floor = float(self.px(np.array([value]))[0]), self.height - BOTTOM
        label = shortened_label(text)
        return (
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{floor}"/>'
            f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{label}</text>'
        )

    def _y_tick(self, value: float, text: str) -> str:
        y, label = float(self.py(np.array([value]))[0]), shortened_label(text, SIDE_LABEL_LETTERS)
        ends = f'x1="{self.left:g}" x2="{self.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        # 4.5 lowers the text by half a letter: the middle of its letters meets the grid's line.
        return (
            f'<line class="grid" {ends}/>'
            f'<text x="{self.left - 7:g}" y="{y + 4.5:.1f}" text-anchor="end">{label}</text>'
        )

    def _legend(self) -> str:
        """Return a list of the labelled curves, or nothing where no curve is labelled."""
        items = "".join(
            f'<li><svg viewBox="0 0 22 10"><line class="line {style}" x1="0" x2="22" y1="5" '
            f'y2="5"/></svg>{escape(text)}</li>'
            for style, text in self.legend
        )
        return f'<ul class="legend">{items}</ul>' if items else ""


def _points(x: Array, y: Array) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
