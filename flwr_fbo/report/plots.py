"""The charts of a report: each function returns HTML figures, or nothing without data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.space import Categorical, Float, Int, Parameter, Space
from flwr_fbo.report.runs import Curve, Run, best_so_far
from flwr_fbo.report.style import CURVE_COLOURS, SHADES
from flwr_fbo.report.svg import Axis, Chart, linear_axis, round_step, short_number
from flwr_fbo.report.tree import tree_chart

#: Dots of one chart. Of more evaluations, an even share is drawn.
MAX_DOTS = 1500
#: Charts of pairs of parameters.
MAX_PAIRS = 10
#: Ticks on an axis of categories.
MAX_CATEGORY_TICKS = 8
#: Height of a chart of the search space.
SPACE_HEIGHT = 380

#: An evaluation and its shade, -1 for a failure.
Shaded: TypeAlias = tuple[Evaluation, int]


def curves(
    name: str, title: str, metric: str, by_label: Mapping[str, Curve], bands: int = 1
) -> str:
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
    """
    if not by_label:
        return ""
    shown = list(by_label.items())[:CURVE_COLOURS]
    drawn = [curve for _, curve in shown]
    counts = np.concatenate([curve.count for curve in drawn])
    heights = [v for curve in drawn[:bands] for v in (curve.low, curve.high)]
    heights += [curve.median for curve in drawn]
    x = linear_axis(counts, "evaluations of an agent", whole=True)
    chart = Chart(name, title, x, linear_axis(np.concatenate(heights), metric))
    # All bands lie below all curves, so that no band hides a curve.
    for colour, curve in enumerate(drawn[:bands]):
        chart.band(curve.count, curve.low, curve.high, f"c{colour}")
    for colour, (label, curve) in enumerate(shown):
        chart.line(curve.count, curve.median, f"c{colour}", label)
    return chart.figure()


def progress(run: Run, prefix: str) -> list[str]:
    """Return the best score so far and, where known, the regret, of a run and its baselines."""
    figures = []
    for field, largest, title in (
        ("score", True, f"Best {run.metric} so far"),
        ("regret", False, "Simple regret"),
    ):
        label = str(run.config.get("strategy", "this run"))
        by_label = {
            name: curve
            for name, other in {label: run, **run.compared}.items()
            if (curve := best_so_far(other.histories, field, largest)) is not None
        }
        caption = f"{title}: median over agents, band from quartile to quartile"
        axis = run.metric if field == "score" else "regret"
        figures.append(curves(f"{prefix}{field}", caption, axis, by_label))
    return [figure for figure in figures if figure]


def epsilon(run: Run, prefix: str) -> str:
    """Return a figure of the privacy spent by round, and of the budget where one is set."""
    rows = [(int(r["round"]), float(r["epsilon"])) for r in run.rounds if r.get("epsilon")]
    if not rows:
        return ""
    rounds, spent = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    budget = run.config.get("epsilon")
    heights = np.r_[spent, [] if budget is None else [float(budget)]]
    chart = Chart(
        f"{prefix}epsilon",
        "Privacy spent by round",
        linear_axis(rounds, "round", whole=True),
        linear_axis(heights * 1.04, "epsilon", zero=True),  # room for the label of the budget
    )
    if budget is not None:
        chart.level(float(budget), "budget")
    chart.steps(rounds, spent, "c0")
    return chart.figure()


def replies(run: Run, prefix: str) -> str:
    """Return a figure of the number of agents asked and of agents that answered, by round."""
    if not run.rounds:
        return ""
    rounds = np.array([int(r["round"]) for r in run.rounds], dtype=np.float64)
    asked = np.array([int(r["asked"]) for r in run.rounds], dtype=np.float64)
    answered = np.array([int(r["replied"]) for r in run.rounds], dtype=np.float64)
    x = linear_axis(rounds, "round", whole=True)
    y = linear_axis(asked * 1.02, "agents", zero=True)
    chart = Chart(f"{prefix}replies", "Agents asked and answering", x, y)
    # Where all agents answer, the second curve covers the first.
    chart.steps(rounds, asked, "c1", "asked")
    chart.steps(rounds, answered, "c0", "answered")
    return chart.figure()


def space(run: Run, prefix: str) -> list[str]:
    """Return figures of the evaluations in the search space, one for each pair of parameters."""
    shaded = [item for h in run.histories for item in zip(h, rank_shades(h), strict=True)]
    if run.space is None or not shaded:
        return []
    if len(shaded) > MAX_DOTS:  # chosen evenly, not at random: a report can be made again
        shaded = [shaded[i] for i in np.linspace(0, len(shaded) - 1, MAX_DOTS).astype(int)]
    shaded.sort(key=lambda item: item[1])  # the best are drawn last, on top
    if run.space.dimension == 1:
        return [_one_parameter(run, run.space, shaded, prefix)]
    pairs = list(itertools.combinations(range(run.space.dimension), 2))[:MAX_PAIRS]
    return [_two_parameters(run, run.space, shaded, pair, prefix) for pair in pairs]


def _two_parameters(
    run: Run, space: Space, shaded: Sequence[Shaded], pair: tuple[int, int], prefix: str
) -> str:
    a, b = pair
    names, parameters = space.names, list(space.parameters.values())
    chart = Chart(
        f"{prefix}space-{a}-{b}",
        f"{names[a]} and {names[b]}",
        parameter_axis(names[a], parameters[a]),
        parameter_axis(names[b], parameters[b]),
        height=SPACE_HEIGHT,
    )
    units = np.array([evaluation.unit for evaluation, _ in shaded])
    chart.dots(units[:, a], units[:, b], [_dot_style(shade) for _, shade in shaded])
    best = _best_units(run)
    if len(best):
        chart.dots(best[:, a], best[:, b], ["ring"] * len(best), radius=4.5)
    recommended = _recommended_unit(run, space)
    if recommended is not None:
        chart.star(recommended[a], recommended[b], "recommended to all")
    return chart.figure()


def _one_parameter(run: Run, space: Space, shaded: Sequence[Shaded], prefix: str) -> str:
    """Return the figure of a space of one parameter: the scores over its values."""
    ((name, parameter),) = space.parameters.items()
    scored = [(e, shade) for e, shade in shaded if e.score is not None]
    scores = np.array([e.score for e, _ in scored], dtype=np.float64)
    chart = Chart(
        f"{prefix}space-0",
        f"{name} and {run.metric}",
        parameter_axis(name, parameter),
        linear_axis(scores, run.metric),
        height=SPACE_HEIGHT,
    )
    units = np.array([e.unit[0] for e, _ in scored])
    chart.dots(units, scores, [_dot_style(shade) for _, shade in scored])
    recommended = _recommended_unit(run, space)
    if recommended is not None:  # no agent need have evaluated the point: it has no score
        chart.star(recommended[0], chart.y.high, "recommended to all")
    return chart.figure()


def _recommended_unit(run: Run, space: Space) -> Array | None:
    """Return the point recommended to all agents in the unit cube, or None without one."""
    recommended = None if run.result is None else run.result.recommended
    return None if recommended is None else space.to_unit(recommended)


def _best_units(run: Run) -> Array:
    """Return the point of each agent's best evaluation, for agents with a score: (N, D)."""
    scored = [[e for e in history if e.score is not None] for history in run.histories]
    return np.array([max(history, key=_score).unit for history in scored if history])


def _score(evaluation: Evaluation) -> float:
    """Return the score for comparisons, in which a failure is worst."""
    return -math.inf if evaluation.score is None else evaluation.score


def rank_shades(history: Sequence[Evaluation]) -> list[int]:
    """Return the shade of each evaluation of an agent, from its rank; -1 for a failure.

    Scores of different agents are not comparable, as each agent has its own data. Their ranks are.
    """
    scores = np.array([_score(e) for e in history])
    if not len(scores):
        return []
    rank = scores.argsort(kind="stable").argsort(kind="stable")
    shade = np.minimum(SHADES * (rank + 1) // (len(scores) + 1), SHADES - 1)
    return [int(s) if np.isfinite(v) else -1 for s, v in zip(shade, scores, strict=True)]


def _dot_style(shade: int) -> str:
    return "failed" if shade < 0 else f"s{shade}"


def parameter_axis(name: str, parameter: Parameter) -> Axis:
    """Return the unit interval as an axis, with the parameter's own values as ticks."""
    # A margin on either side keeps dots at the ends of the interval inside the chart.
    return Axis(-0.02, 1.02, name, [(parameter.to_unit(v), t) for v, t in _ticks(parameter)])


def _ticks(parameter: Parameter) -> list[tuple[Any, str]]:
    """Return values of the parameter and their labels."""
    if isinstance(parameter, Categorical):
        stride = math.ceil(parameter.size / MAX_CATEGORY_TICKS)
        return [(choice, str(choice)) for choice in parameter.choices[::stride]]
    if parameter.log:
        return _log_ticks(parameter)
    step = round_step((parameter.high - parameter.low) / 5)
    if isinstance(parameter, Int):
        stride = max(parameter.step, round(step / parameter.step) * parameter.step)
        values: list[float] = list(range(parameter.low, parameter.high + 1, stride))
        return [(v, short_number(v)) for v in values]
    first, last = math.ceil(parameter.low / step), math.floor(parameter.high / step)
    return [(k * step, short_number(k * step)) for k in range(first, last + 1)]


def _log_ticks(parameter: Float | Int) -> list[tuple[Any, str]]:
    """Return ticks at powers of ten, with 2 and 5 times a power on a short axis."""
    low, high = math.log10(parameter.low), math.log10(parameter.high)
    stride = max(1, math.ceil((high - low) / 6))
    powers = range(math.floor(low), math.ceil(high) + 1, stride)
    digits = (1, 2, 5) if high - low < 2.5 else (1,)
    values = [d * 10.0**k for k in powers for d in digits]
    slack = 1e-9 * parameter.high  # 10**-3 need not be 0.001 to the last digit
    inside = [v for v in values if parameter.low - slack <= v <= parameter.high + slack]
    kept = [min(max(v, parameter.low), parameter.high) for v in inside]
    shown = kept or [parameter.low, parameter.high]
    if isinstance(parameter, Int):
        return [(k, short_number(k)) for k in dict.fromkeys(map(round, shown))]
    return [(v, short_number(v)) for v in shown]


def tree(run: Run, prefix: str) -> str:
    """Return a figure of the partition that Fed-PNE explored; other strategies have none."""
    rows = [] if run.result is None else run.result.findings.get("tree") or []
    if not rows:
        return ""
    return tree_chart(rows, int(run.config["arity"]), f"{prefix}tree").figure()
