"""Figures of the scores: the history with single agents, evaluations saved, and agents compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.report.runs import Curve, Run, best_so_far, best_table
from flwr_fbo.report.style import CURVE_COLOURS
from flwr_fbo.report.svg import Axis, Chart, linear_axis

#: Curves of single agents in one figure. Of more agents, an even share is drawn.
MAX_SINGLES = 40
#: Height of a row of bars, and of everything else in such a chart.
BAR_HEIGHT, BAR_FRAME = 44, 76


def curves(
    name: str,
    title: str,
    metric: str,
    by_label: Mapping[str, Curve],
    bands: int = 1,
    singles: Array | None = None,
) -> Chart | None:
    """Return a figure of the medians of several runs.

    Parameters
    ----------
    name
        Identifier of the figure in its page.
    title
        Caption of the figure.
    metric
        Name of the vertical axis.
    by_label
        Curves by their labels in the legend. At most :data:`CURVE_COLOURS` of them are drawn.
    bands
        How many of the curves, from the first, show their quartiles as a band.
    singles
        The best value so far of single agents after 1, 2, ... evaluations, NaN where there is none:
        (N, K).
    """
    if not by_label:
        return None
    shown = list(by_label.items())[:CURVE_COLOURS]
    drawn = [curve for _, curve in shown]
    counts = np.concatenate([curve.count for curve in drawn])
    heights = [v for curve in drawn[:bands] for v in (curve.low, curve.high)]
    heights += [curve.median for curve in drawn]
    x = linear_axis(counts, "evaluations of an agent", whole=True)
    y = linear_axis(np.concatenate(heights), metric)
    chart = Chart(name, title, x, y)
    chart.note = "Line: median over agents. Band: from quartile to quartile."
    if singles is not None and len(singles):
        chart.note += " Thin lines: single agents."
        _draw_singles(chart, singles)
    # All bands lie below all curves, so that no band hides a curve.
    for colour, curve in enumerate(drawn[:bands]):
        chart.band(curve.count, curve.low, curve.high, f"c{colour}")
    for colour, (label, curve) in reversed(list(enumerate(shown))):
        chart.line(curve.count, curve.median, f"c{colour}", label)
    chart.legend.reverse()
    return chart


def _draw_singles(chart: Chart, singles: Array) -> None:
    """Draw the curves of single agents, as steps within the axes."""
    chosen = np.unique(np.linspace(0, len(singles) - 1, MAX_SINGLES).astype(int))
    for row in singles[chosen]:
        known = np.flatnonzero(np.isfinite(row))
        if len(known) > 1:
            # An agent far below all others must not stretch the axis: its line begins at the edge.
            heights = np.clip(row[known], chart.y.low, chart.y.high)
            chart.line(np.asarray(known + 1.0), np.asarray(heights), "single")


def history(run: Run, prefix: str) -> list[Chart]:
    """Return the best score so far and, where known, the regret, of a run and its baselines."""
    charts = []
    for field, largest, title in (
        ("score", True, f"Best {run.metric} so far"),
        ("regret", False, "Simple regret"),
    ):
        by_label = {
            name: curve
            for name, other in with_baselines(run).items()
            if (curve := best_so_far(other.histories, field, largest)) is not None
        }
        axis = run.metric if field == "score" else "regret"
        singles = best_table(run.histories, field, largest)
        chart = curves(f"{prefix}{field}", title, axis, by_label, singles=singles)
        if chart is not None:
            charts.append(chart)
    return charts


def with_baselines(run: Run) -> dict[str, Run]:
    """Return the run and its baselines by their labels, the run first."""
    return {str(run.config.get("strategy", "this run")): run, **run.compared}


def saved(run: Run, prefix: str) -> Chart | None:
    """Return bars of the evaluations to the same score, ours and theirs for each baseline."""
    if run.result is None or not run.result.savings:
        return None
    savings = run.result.savings
    names = list(savings)
    most = max(max(s.ours, s.theirs) for s in savings.values())
    rows = [(-float(k) - 0.5, name) for k, name in enumerate(names)]
    chart = Chart(
        f"{prefix}saved",
        "Evaluations to the same score",
        linear_axis(np.array([0.0, most * 1.12]), "evaluations of an agent", whole=True, zero=True),
        Axis(-float(len(names)), 0.0, "", rows),
        height=BAR_FRAME + BAR_HEIGHT * len(names),
    )
    ours = str(run.config.get("strategy"))
    chart.note = "The score is the highest mean best that both runs reached. Fewer is better."
    for k, (name, s) in enumerate(savings.items()):
        for style, label, count, low in (
            ("b0", ours, s.ours, -k - 0.48),
            ("b1", name, s.theirs, -k - 0.9),
        ):
            title = f"{label}: {count} evaluations to {s.score:.4g}"
            chart.bar((0.0, count), (low, low + 0.38), style, title)
            chart.text(count + most * 0.015, low + 0.19, str(count))
    chart.legend += [("b0", ours), ("b1", "the baseline")]
    return chart


def distribution(run: Run, prefix: str) -> Chart | None:
    """Return the share of agents whose best score is at most x, for the run and its baselines."""
    lasts = {
        name: np.sort([max(known) for h in other.histories if (known := _scores(h))])
        for name, other in with_baselines(run).items()
    }
    lasts = {name: values for name, values in lasts.items() if len(values)}
    shown = list(lasts.items())[:CURVE_COLOURS]
    if not shown or len(shown[0][1]) < 2:
        return None
    x = linear_axis(np.concatenate([v for _, v in shown]), f"best {run.metric} of an agent")
    y = linear_axis(np.array([0.0, 1.0]), "share of the agents", zero=True)
    chart = Chart(f"{prefix}edf", "How the agents did", x, y)
    chart.note = "Share of the agents with at most this best score. Further right is better."
    for colour, (name, values) in reversed(list(enumerate(shown))):
        share = np.arange(len(values) + 1) / len(values)
        places = np.r_[x.low, values]
        chart.steps(np.r_[places, x.high], np.r_[share, 1.0], f"c{colour}", name)
    chart.legend.reverse()
    return chart


def _scores(history: Sequence[Evaluation]) -> list[float]:
    """Return the scores of an agent's evaluations, without failures."""
    return [e.score for e in history if e.score is not None]
