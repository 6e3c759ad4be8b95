"""The pictures of a report, each a figure or nothing where the run has nothing to show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.space import Categorical, Float, Int, Parameter, Space
from flwr_fbo.report.runs import Curve, Run, best_so_far
from flwr_fbo.report.svg import Axis, Chart, linear_axis, number, round_step

#: Curves that have a colour of their own.
COLOURS = 6
#: Dots of one picture; of more, an even share is drawn.
MOST_DOTS = 1500
#: Pictures of pairs of parameters.
MOST_PAIRS = 10
#: Marks of an axis of categories.
MOST_MARKS = 8
#: Shades from worst to best.
SHADES = 8


def curves(name: str, title: str, metric: str, found: Mapping[str, Curve], band: int = 1) -> str:
    """Medians of several runs, the first ``band`` of them with their quartiles."""
    if not found:
        return ""
    each = list(found.values())[:COLOURS]
    x = linear_axis(np.concatenate([c.count for c in each]), "evaluations of an agent", whole=True)
    shown = [v for c in each[:band] for v in (c.low, c.high)] + [c.median for c in each]
    chart = Chart(name, title, x, linear_axis(np.concatenate(shown), metric))
    for colour, curve in enumerate(each[:band]):
        chart.band(curve.count, curve.low, curve.high, f"c{colour}")
    for colour, (label, curve) in enumerate(list(found.items())[:COLOURS]):
        chart.line(curve.count, curve.median, f"c{colour}", label)
    return chart.svg()


def progress(run: Run, prefix: str) -> list[str]:
    """Best so far of the run and of those it is compared with, and regret where it is known."""
    pictures = []
    for what, largest, title in (
        ("score", True, f"Best {run.metric} so far"),
        ("regret", False, "Simple regret"),
    ):
        label = str(run.config.get("strategy", "this run"))
        sources = {label: run, **run.compared}
        found = {
            name: curve
            for name, other in sources.items()
            if (curve := best_so_far(other.histories, what, largest)) is not None
        }
        caption = f"{title}: median over agents, and where half of them lie"
        axis = run.metric if what == "score" else "regret"
        pictures.append(curves(f"{prefix}{what}", caption, axis, found))
    return [p for p in pictures if p]


def epsilon(run: Run, prefix: str) -> str:
    """Privacy spent by round, and the budget."""
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
        linear_axis(heights * 1.04, "epsilon", zero=True),
    )
    if budget is not None:
        chart.level(float(budget), "budget")
    chart.steps(rounds, spent, "c0")
    return chart.svg()


def replies(run: Run, prefix: str) -> str:
    """Who was asked and who answered, by round."""
    if not run.rounds:
        return ""
    rounds = np.array([int(r["round"]) for r in run.rounds], dtype=np.float64)
    asked = np.array([int(r["asked"]) for r in run.rounds], dtype=np.float64)
    answered = np.array([int(r["replied"]) for r in run.rounds], dtype=np.float64)
    x = linear_axis(rounds, "round", whole=True)
    y = linear_axis(asked * 1.02, "agents", zero=True)
    chart = Chart(f"{prefix}replies", "Agents asked and answering", x, y)
    chart.steps(rounds, asked, "c1", "asked")
    chart.steps(rounds, answered, "c0", "answered")
    return chart.svg()


def space(run: Run, prefix: str) -> list[str]:
    """The search space seen from above: a picture a pair of parameters."""
    tried = [(e, shade) for h in run.histories for e, shade in zip(h, _shades(h), strict=True)]
    if run.space is None or not tried:
        return []
    if len(tried) > MOST_DOTS:  # evenly, and in a fixed way
        tried = [tried[i] for i in np.linspace(0, len(tried) - 1, MOST_DOTS).astype(int)]
    tried.sort(key=lambda item: item[1])  # the best are drawn last
    names = run.space.names
    if len(names) == 1:
        return [_line_of_sight(run, tried, prefix)]
    pairs = list(itertools.combinations(range(len(names)), 2))[:MOST_PAIRS]
    return [_from_above(run, run.space, tried, pair, prefix) for pair in pairs]


def _from_above(
    run: Run,
    space: Space,
    tried: Sequence[tuple[Evaluation, int]],
    pair: tuple[int, int],
    prefix: str,
) -> str:
    a, b = pair
    names, parameters = space.names, list(space.parameters.values())
    chart = Chart(
        f"{prefix}space-{a}-{b}",
        f"{names[a]} and {names[b]}",
        parameter_axis(names[a], parameters[a]),
        parameter_axis(names[b], parameters[b]),
        height=380,
    )
    units = np.array([e.unit for e, _ in tried])
    chart.dots(units[:, a], units[:, b], [_dot(shade) for _, shade in tried])
    best = _agents_best(run)
    if len(best):
        chart.dots(best[:, a], best[:, b], ["ring"] * len(best), radius=4.5)
    _star(chart, run, space, lambda unit: (unit[a], unit[b]))
    return chart.svg()


def _line_of_sight(run: Run, tried: Sequence[tuple[Evaluation, int]], prefix: str) -> str:
    """One parameter: its value and the score."""
    assert run.space is not None
    ((name, parameter),) = run.space.parameters.items()
    scored = [(e, shade) for e, shade in tried if e.score is not None]
    scores = np.array([e.score for e, _ in scored], dtype=np.float64)
    chart = Chart(
        f"{prefix}space-0",
        f"{name} and {run.metric}",
        parameter_axis(name, parameter),
        linear_axis(scores, run.metric),
        height=380,
    )
    units = np.array([e.unit[0] for e, _ in scored])
    chart.dots(units, scores, [_dot(shade) for _, shade in scored])
    _star(chart, run, run.space, lambda unit: (unit[0], chart.y.high))
    return chart.svg()


def _star(
    chart: Chart, run: Run, space: Space, place: Callable[[Array], tuple[float, float]]
) -> None:
    recommended = None if run.result is None else run.result.findings.get("recommended")
    if recommended:
        x, y = place(space.to_unit(recommended["params"]))
        chart.star(x, y, "recommended to all")


def _agents_best(run: Run) -> Array:
    best = [max(scored, key=_score).unit for h in run.histories if (scored := _scored(h))]
    return np.array(best)


def _scored(history: Sequence[Evaluation]) -> list[Evaluation]:
    return [e for e in history if e.score is not None]


def _score(evaluation: Evaluation) -> float:
    return -math.inf if evaluation.score is None else evaluation.score


def _shades(history: Sequence[Evaluation]) -> list[int]:
    """The rank of each score among the agent's own, in SHADES steps; -1 is a failure.

    Agents' scores are not comparable with one another; their ranks are.
    """
    scores = np.array([_score(e) for e in history])
    if not len(scores):
        return []
    rank = scores.argsort(kind="stable").argsort(kind="stable")
    shade = np.minimum(SHADES * (rank + 1) // (len(scores) + 1), SHADES - 1)
    return [int(s) if np.isfinite(v) else -1 for s, v in zip(shade, scores, strict=True)]


def _dot(shade: int) -> str:
    return "failed" if shade < 0 else f"s{shade}"


def parameter_axis(name: str, parameter: Parameter) -> Axis:
    """The unit interval with the parameter's own values as marks."""
    return Axis(-0.02, 1.02, name, [(parameter.to_unit(v), t) for v, t in _marks(parameter)])


def _marks(parameter: Parameter) -> list[tuple[Any, str]]:
    if isinstance(parameter, Categorical):
        stride = math.ceil(parameter.size / MOST_MARKS)
        return [(choice, str(choice)) for choice in parameter.choices[::stride]]
    if parameter.log:
        return _log_marks(parameter)
    step = round_step((parameter.high - parameter.low) / 5)
    if isinstance(parameter, Int):
        stride = max(parameter.step, round(step / parameter.step) * parameter.step)
        values: list[float] = list(range(parameter.low, parameter.high + 1, stride))
        return [(v, number(v)) for v in values]
    first, last = math.ceil(parameter.low / step), math.floor(parameter.high / step)
    return [(k * step, number(k * step)) for k in range(first, last + 1)]


def _log_marks(parameter: Float | Int) -> list[tuple[Any, str]]:
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
        return [(k, number(k)) for k in dict.fromkeys(map(round, shown))]
    return [(v, number(v)) for v in shown]


def tree(run: Run, prefix: str) -> str:
    """Fed-PNE's partition: a row a phase, darker for better, hollow where eliminated."""
    rows = [] if run.result is None else run.result.findings.get("tree") or []
    if not rows:
        return ""
    phases = list(dict.fromkeys((r["search"], r["phase"]) for r in rows))
    arity = int(run.config.get("arity", 2))
    ticks = [(-i - 0.5, f"{p[1]}") for i, p in enumerate(phases)]
    height = 60 + 22 * len(phases)
    chart = Chart(
        f"{prefix}tree",
        "Partition by phase: stronger is better, hollow was eliminated",
        Axis(0.0, 1.0, "the space in the partition's order", [(0.0, "0"), (1.0, "1")]),
        Axis(-float(len(phases)), 0.0, "phase", ticks[:: max(1, len(ticks) // 24)]),
        height=max(height, 140),
    )
    for level, phase in enumerate(phases):
        here = [r for r in rows if (r["search"], r["phase"]) == phase]
        shades = _ranked([r["mean"] for r in here])
        for row, shade in zip(here, shades, strict=True):
            count = arity ** row["depth"]
            chart.bar(
                (row["index"] - 1) / count,
                row["index"] / count,
                -level - 0.9,
                -level - 0.1,
                "out" if row["eliminated"] else f"s{shade}",
                f"depth {row['depth']}: mean {row['mean']:.4g} +- {row['width']:.2g}, "
                f"{row['pulls']} pulls",
            )
    return chart.svg()


def _ranked(values: Sequence[float]) -> list[int]:
    low, high = min(values), max(values)
    spread = max(high - low, 1e-12)
    return [min(int(SHADES * (v - low) / spread), SHADES - 1) for v in values]
