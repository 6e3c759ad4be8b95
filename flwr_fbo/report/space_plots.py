"""Figures of the search space: importance, slices, parallel coordinates, and the contour.

Scores of different agents are not comparable, as each agent has its own data. So a score is shown
by its rank among the evaluations of the same agent: 0 is the agent's worst, 1 its best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.report.axes import parameter_axis
from flwr_fbo.report.importance import Function, Marginals, marginals, pooled_model, ranks
from flwr_fbo.report.runs import Run
from flwr_fbo.report.style import SHADES
from flwr_fbo.report.svg import WIDTH, Axis, Chart, linear_axis, short_number, truncated

#: The most dots of a slice, lines of parallel coordinates, and slices of a report.
MAX_DOTS, MAX_LINES, MAX_SLICES = 700, 250, 12
#: Cells of a contour along each parameter.
CELLS = 26
#: Height of the charts of a space, and of a row of bars.
SPACE_HEIGHT, BAR_HEIGHT, BAR_FRAME = 340, 30, 60
#: Size of parallel coordinates that span the page, and the most axes of those that do not.
BROAD, BROAD_HEIGHT, FEW_AXES = 960, 320, 3
#: Share of a range at either end within which a point counts as lying at the end.
END = 0.01


@dataclass(frozen=True)
class Landscape:
    """A function over the space that stands for all agents, and its marginals.

    Parameters
    ----------
    space
        The search space.
    function
        The released function, or the pooled model of a simulation.
    deviation
        The standard deviation of the noise in the function; 0 for a pooled model.
    words
        What the function is, for captions.
    shape
        The marginals of the function.
    """

    space: Space
    function: Function
    deviation: float
    words: str
    shape: Marginals

    @property
    def order(self) -> list[int]:
        """Return the numbers of the parameters, the most important first."""
        return self.shape.order


def landscape(run: Run) -> Landscape | None:
    """Return the function that stands for all agents of a run; None where nothing is known.

    A simulation has the evaluations of all agents, and shows more by them. A deployment has only
    what was released.
    """
    if run.space is None or run.space.dimension == 0:
        return None
    model = pooled_model(run.space, run.histories)
    if model is not None:
        words = "a random forest on the ranks of all agents' evaluations"
        return Landscape(run.space, model, 0.0, words, marginals(run.space, model))
    if run.released is None:
        return None
    return released_landscape(run)


def released_landscape(run: Run) -> Landscape | None:
    """Return the function that a run released, with its noise; None without releases."""
    if run.released is None or run.space is None:
        return None
    function, known = run.released.values, None if run.result is None else run.result.recommendation
    # With local noise; the noise of a chosen finalist is in the scale of its scores.
    known = None if "finalists" in (known or {}) else known
    noise = float((known or {}).get("noise", run.released.deviation))
    words = f"the released function, the mean of {len(run.released.releases)} releases"
    return Landscape(run.space, function, noise, words, marginals(run.space, function))


def importances(run: Run, found: Landscape | None, prefix: str) -> Chart | None:
    """Return bars of the share of the variance that each parameter explains by itself."""
    if found is None or found.space.dimension < 2:
        return None
    shares, names = found.shape.shares, found.space.names
    rows = [(-k - 0.5, names[i]) for k, i in enumerate(found.order)]
    axis = linear_axis(
        np.array([0.0, min(1.0, float(shares.max()) * 1.15) or 1.0]), "share", zero=True
    )
    chart = Chart(
        f"{prefix}importances",
        "Parameter importances",
        axis,
        Axis(-float(len(names)), 0.0, "", rows),
        height=BAR_FRAME + BAR_HEIGHT * len(names),
    )
    for k, i in enumerate(found.order):
        share = float(shares[i])
        title = f"{names[i]}: {share:.0%}"
        chart.bar((0.0, max(share, 0.0)), (-k - 0.82, -k - 0.18), "b0", title)
        if share > 0.85 * axis.high:  # no room beside the bar
            chart.text(share - 0.01 * axis.high, -k - 0.5, f"{share:.0%}", "end", "small inside")
        else:
            chart.text(share + 0.01 * axis.high, -k - 0.5, f"{share:.0%}")
    rest = max(0.0, 1.0 - float(shares.sum()))
    chart.note = f"Of {found.words}; {rest:.0%} of its variance are interactions."
    return chart


def slices(run: Run, found: Landscape | None, prefix: str) -> list[Chart]:
    """Return a figure for each parameter: rank of the evaluations, and the mean of the model."""
    if run.space is None or not run.evaluations:
        return []
    order = found.order if found is not None else list(range(run.space.dimension))
    units, rank = _units_and_ranks(run.histories)
    return [_slice(run, run.space, i, units, rank, found, prefix) for i in order[:MAX_SLICES]]


def _slice(
    run: Run, space: Space, i: int, units: Array, rank: Array, found: Landscape | None, prefix: str
) -> Chart:
    name, parameter = space.names[i], list(space.parameters.values())[i]
    # The room at the top is for the label of the recommended value.
    y = Axis(-0.04, 1.16, "rank within its agent", [(0.0, "worst"), (0.5, "0.5"), (1.0, "best")])
    chart = Chart(f"{prefix}slice-{i}", name, parameter_axis(name, parameter), y)
    values = units[:, i]
    if isinstance(parameter, Categorical):  # dots of one category would cover one another
        values = values + np.random.default_rng(0).uniform(-0.3, 0.3, len(values)) / parameter.size
    failed = ~np.isfinite(rank)
    chart.dots(values, np.where(failed, 0.0, rank), _styles(rank))
    if found is not None and found.deviation == 0.0:
        style = "c1" if not isinstance(parameter, Categorical) else "c1 thin"
        chart.line(found.shape.units[i], found.shape.means[i], style, "mean of the pooled model")
    recommended = recommended_unit(run, space)
    if recommended is not None:
        chart.mark(float(recommended[i]), "recommended")
    chart.note = _ends_note(run, i, units[:, i], isinstance(parameter, Categorical))
    return chart


def _ends_note(run: Run, i: int, values: Array, category: bool) -> str:
    """Return how many evaluations, and best ones, lie at an end of a parameter's range."""
    if category:
        return ""
    best = best_units(run.histories)
    at_end = float(((values < END) | (values > 1 - END)).mean())
    tops = int(((best[:, i] < END) | (best[:, i] > 1 - END)).sum()) if len(best) else 0
    if at_end < 0.05 and not tops:
        return ""
    wider = " A wider range may be better." if tops > len(best) / 3 else ""
    return (
        f"{at_end:.0%} of the evaluations lie at an end of this range. {tops} of {len(best)} "
        f"agents have their best evaluation there.{wider}"
    )


def parallel(run: Run, found: Landscape | None, prefix: str) -> Chart | None:
    """Return parallel coordinates: a line for each evaluation, the best one of an agent strong."""
    space = run.space
    if space is None or space.dimension < 2 or not run.evaluations:
        return None
    order = found.order if found is not None else list(range(space.dimension))
    units, rank = _units_and_ranks(run.histories)
    chosen = np.flatnonzero(np.isfinite(rank))
    chosen = (
        chosen[np.unique(np.linspace(0, len(chosen) - 1, MAX_LINES).astype(int))]
        if len(chosen)
        else chosen
    )
    last = len(order)
    names = [*(space.names[i] for i in order), "rank"]
    chart = Chart(
        f"{prefix}parallel",
        "Parallel coordinates",
        Axis(-0.3, last + 0.3, "", []),
        Axis(-0.14, 1.12, "", []),
        height=BROAD_HEIGHT,
        width=WIDTH if len(names) <= FEW_AXES else BROAD,
    )
    chart.note = (
        "A line is an evaluation, stronger where it ranks higher within its agent; thick lines are "
        "the agents' best evaluations."
    )
    rows = np.column_stack([units[:, order], np.nan_to_num(rank)])
    for row, value in sorted(
        zip(rows[chosen].tolist(), rank[chosen].tolist(), strict=True), key=lambda r: r[1]
    ):
        chart.line(np.arange(last + 1.0), np.array(row), f"thread t{_shade(value)}")
    for unit in best_units(run.histories)[:MAX_LINES]:
        chart.line(np.arange(last + 1.0), np.r_[unit[order], 1.0], "thread top")
    for k, name in enumerate(names):
        _parallel_axis(chart, space, order, k, name)
    return chart


def _parallel_axis(chart: Chart, space: Space, order: list[int], k: int, name: str) -> None:
    """Draw one vertical axis with its name and the values at its ends."""
    letters = max(4, 110 // (len(order) + 1))
    chart.line(np.array([k, k], dtype=float), np.array([0.0, 1.0]), "rail")
    low, high = "worst", "best"
    if k < len(order):
        parameter = list(space.parameters.values())[order[k]]
        ends = [parameter.from_unit(0.0), parameter.from_unit(1.0)]
        low, high = (short_number(v) if isinstance(v, (int, float)) and not isinstance(v, bool)
                     else str(v) for v in ends)  # fmt: skip
    chart.text(k, -0.05, truncated(low, letters), "middle")
    chart.text(k, 1.04, truncated(high, letters), "middle")
    chart.text(
        k, -0.12 if k % 2 == 0 or len(order) < 7 else -0.17, truncated(name, letters), "middle"
    )


def contour(run: Run, known: Landscape | None, prefix: str) -> Chart | None:
    """Return the released function over the two most important parameters, or over the only one.

    The other parameters are as recommended. A shade is never thinner than the noise, so that a
    difference in shade is a difference in the function.
    """
    found = released_landscape(run) or known
    if found is None or run.space is None or run.space.points is not None:
        return None
    if run.space.dimension == 1:
        return _one_parameter(run, found, prefix)
    # The importances are those of the other figure, which a simulation knows better. The axes are
    # in the space's order, so that contours of two runs of one task have the same axes.
    return _two_parameters(run, found, sorted((known or found).order[:2]), prefix)


def _two_parameters(run: Run, found: Landscape, pair: list[int], prefix: str) -> Chart:
    space, (a, b) = found.space, pair
    names, parameters = space.names, list(space.parameters.values())
    x, y = (parameter_axis(names[i], parameters[i]) for i in (a, b))
    chart = Chart(f"{prefix}contour", f"{names[a]} and {names[b]}", x, y, height=SPACE_HEIGHT)
    centre = recommended_unit(run, space)
    base = np.full(space.dimension, 0.5) if centre is None else centre
    middles = (np.arange(CELLS) + 0.5) / CELLS
    rows = np.repeat(base[None], CELLS * CELLS, axis=0)
    rows[:, a], rows[:, b] = np.repeat(middles, CELLS), np.tile(middles, CELLS)
    values = found.function(space.snap(rows))
    step, level = _levels(values, found.deviation)
    for row, value, shade in zip(rows, values, level, strict=True):
        low = row[[a, b]] - 0.5 / CELLS
        high = low + 1.0 / CELLS
        chart.cell((low[0], high[0]), (low[1], high[1]), f"s{shade}", f"{value:.3g}")
    best = best_units(run.histories)
    if len(best):
        chart.dots(best[:, a], best[:, b], ["ring"] * len(best), radius=4.5)
    if centre is not None:
        chart.star(centre[a], centre[b], "recommended to all")
    chart.note = _contour_note(found, step, centre is not None, len(best) > 0)
    return chart


def _levels(values: Array, deviation: float) -> tuple[float, Array]:
    """Return the height of a shade, at least the noise, and the shade of each value."""
    low, high = float(values.min()), float(values.max())
    step = max((high - low) / SHADES, deviation, 1e-12)
    shade = np.minimum(((values - low) / step).astype(int), SHADES - 1)
    # Few levels: spread over the shades, so that they can be told from one another.
    levels = int(shade.max()) + 1
    return step, (shade * (SHADES - 1) // max(levels - 1, 1)) if levels > 1 else shade + SHADES // 2


def _contour_note(found: Landscape, step: float, star: bool, rings: bool) -> str:
    """Return how to read a contour."""
    words = f"{found.words[0].upper()}{found.words[1:]}. A stronger colour is better."
    if found.deviation > 0:
        words += f" A shade is {step:.2g} high; the noise's deviation is {found.deviation:.2g}."
    words += " Star: recommended to all." if star else ""
    words += " Rings: the agents' best evaluations." if rings else ""
    return words


def _one_parameter(run: Run, found: Landscape, prefix: str) -> Chart:
    """Return the function of a space of one parameter, with twice its noise as a band."""
    ((name, parameter),) = found.space.parameters.items()
    rows = np.linspace(0.0, 1.0, 200)[:, None]
    values = found.function(found.space.snap(rows))
    width = 2.0 * found.deviation
    heights = np.r_[values - width, values + width]
    y = linear_axis(heights, "released function" if found.deviation else "function")
    chart = Chart(f"{prefix}contour", name, parameter_axis(name, parameter), y, height=SPACE_HEIGHT)
    if width:
        chart.band(rows[:, 0], values - width, values + width, "c0")
    chart.line(rows[:, 0], values, "c0")
    recommended = recommended_unit(run, found.space)
    if recommended is not None:  # on the curve: the star's height is the function's value there
        height = float(found.function(found.space.snap(recommended[None]))[0])
        chart.star(float(recommended[0]), height, "recommended to all")
    chart.note = f"{found.words[0].upper()}{found.words[1:]}."
    if width:
        chart.note += " Band: two standard deviations of the noise."
    return chart


def recommended_unit(run: Run, space: Space) -> Array | None:
    """Return the point recommended to all agents in the unit cube, or None without one."""
    recommended = None if run.result is None else run.result.recommended
    return None if recommended is None else space.to_unit(recommended)


def best_units(histories: Sequence[Sequence[Evaluation]]) -> Array:
    """Return the point of each agent's best evaluation, for agents with a score: (N, D)."""
    scored = [[e for e in h if e.score is not None] for h in histories]
    return np.array([max(h, key=_score).unit for h in scored if h])


def _score(evaluation: Evaluation) -> float:
    """Return the score for comparisons, in which a failure is worst."""
    return -np.inf if evaluation.score is None else evaluation.score


def _units_and_ranks(histories: Sequence[Sequence[Evaluation]]) -> tuple[Array, Array]:
    """Return points and ranks of the evaluations to draw, an even share of them: (n, D), (n,)."""
    units = np.array([e.unit for h in histories for e in h])
    rank = np.concatenate([ranks(h) for h in histories])
    chosen = np.unique(np.linspace(0, len(rank) - 1, MAX_DOTS).astype(int))
    best_last = chosen[np.argsort(np.nan_to_num(rank[chosen], nan=2.0), kind="stable")]
    return units[best_last], rank[best_last]


def _shade(rank: float) -> int:
    """Return the shade of a rank in [0, 1]."""
    return int(min(rank * SHADES, SHADES - 1))


def _styles(rank: Array) -> list[str]:
    """Return the class of each evaluation's dot."""
    return ["failed" if not np.isfinite(r) else f"s{_shade(float(r))}" for r in rank]
