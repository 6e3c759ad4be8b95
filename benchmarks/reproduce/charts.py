"""A figure of a paper drawn again, from the saved runs and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.charts import COLOURS, alone, log_axis, style
from flwr_fbo.report.svg import Chart, linear_axis

from .figures import Figure, Run

Results: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
#: What of a run's settings says how long it is.
LENGTHS = {"rounds": "iterations", "budget": "evaluations", "plays": "plays"}


def drawn(figure: Figure, runs: Mapping[str, Run], results: Results) -> str | None:
    """The text of an SVG file, means over the seeds; None if the figure is no chart of these."""
    title = f"{figure.figure}: {figure.claim}"
    if figure.plot == "privacy":
        return _privacy(title, figure, results)
    if figure.plot == "message":
        return _message(title, figure, results)
    return _curves(title, figure, runs, results) if figure.plot == "curves" else None


def _curves(title: str, figure: Figure, runs: Mapping[str, Run], results: Results) -> str:
    """By iteration. Of a long run some points are kept (store.py), evenly over its length."""
    lines: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for label, made in results.items():
        y = np.mean([r["curve"] for r in made], axis=0)
        lines[label] = np.linspace(0.0, _length(runs[label])[1], len(y)), y
    unit = ", ".join(sorted({_length(run)[0] for run in runs.values()}))
    chart = Chart(
        figure.name, title,
        linear_axis(np.concatenate([x for x, _ in lines.values()]), unit, whole=True),
        linear_axis(np.concatenate([y for _, y in lines.values()]), figure.unit),
    )  # fmt: skip
    for i, (label, (x, y)) in enumerate(lines.items()):
        chart.line(x, y, style(i), label)
    return alone(chart)


def _length(run: Run) -> tuple[str, float]:
    """How long a run is, and in what."""
    return next((LENGTHS[k], float(v)) for k, v in run.settings.items() if k in LENGTHS)


def _privacy(title: str, figure: Figure, results: Results) -> str:
    """Epsilon against the measured number, a curve for settings that share a word of their labels;
    what is not private is a level."""
    means = {label: float(np.mean([figure.number(r) for r in made]))
             for label, made in results.items()}  # fmt: skip
    epsilons = {label: made[0].get("epsilon") for label, made in results.items()}
    private = {label: float(e) for label, e in epsilons.items() if e is not None}
    chart = Chart(
        figure.name, title, linear_axis(np.array(list(private.values())), "epsilon", zero=True),
        linear_axis(np.array(list(means.values())), figure.unit),
    )  # fmt: skip
    for i, (shared, labels) in enumerate(_families(list(private)).items()):
        x, y = np.array(sorted((private[label], means[label]) for label in labels)).T
        chart.line(x, y, style(i), shared)
        chart.dots(x, y, [style(i)] * len(x), 4.0)
    ends = np.array([chart.x.low, chart.x.high])
    for i, label in enumerate(label for label in means if label not in private):
        chart.line(ends, np.full(2, means[label]), style(len(COLOURS) + i), label)
    return alone(chart)


def _families(labels: Sequence[str]) -> dict[str, list[str]]:
    """Labels by their first word where others have it too, and by their last one otherwise."""
    firsts = Counter(label.split()[0] for label in labels)
    found: dict[str, list[str]] = {}
    for label in labels:
        first, last = label.split()[0], label.split()[-1]
        found.setdefault(first if firsts[first] > 1 else last, []).append(label)
    return found


def _message(title: str, figure: Figure, results: Results) -> str:
    """Numbers in a message against the measured number, a curve a method; labels end in M=..."""
    methods: dict[str, list[tuple[float, float]]] = {}
    for label, made in results.items():
        mean = float(np.mean([figure.number(r) for r in made]))
        methods.setdefault(label.split()[0], []).append((float(made[0]["numbers_sent"]), mean))
    points = {method: np.array(found) for method, found in methods.items()}
    every = np.concatenate(list(points.values()))
    chart = Chart(
        figure.name, title, log_axis(np.log10(every[:, 0]), "numbers in a message"),
        linear_axis(every[:, 1], figure.unit),
    )  # fmt: skip
    for i, (method, found) in enumerate(points.items()):
        chart.line(np.log10(found[:, 0]), found[:, 1], style(i), method)
        chart.dots(np.log10(found[:, 0]), found[:, 1], [style(i)] * len(found), 4.0)
    return alone(chart)
