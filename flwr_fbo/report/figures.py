"""The figures of a run in Python: one function for each, under the names that Optuna's users know.

::

    result = flwr_fbo.simulate("digits", agents=30, epsilon=5.0, compare=["alone", "random"])
    flwr_fbo.plot_optimization_history(result)              # in a notebook: shown at once
    flwr_fbo.plot_contour("flwr-fbo-runs/spring").save("contour.svg")

Each function takes a :class:`~flwr_fbo.Result` or the directory of a run, and returns a
:class:`Figure`.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TypeAlias

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.report import history_plots, round_plots, space_plots
from flwr_fbo.report.runs import Run, read_run
from flwr_fbo.report.style import FILE_STYLE
from flwr_fbo.report.svg import WIDTH, Chart
from flwr_fbo.runs.result import Result

#: Space between the charts of a figure, and heights of a title and a row of the legend.
GAP, TITLE, LEGEND_ROW = 24, 30, 20
#: Height of a line of a note, its distance from the left, and the width of a letter in wide fonts.
NOTE_ROW, NOTE_LEFT, NOTE_LETTER = 16, 12, 7.0

RunOrResult: TypeAlias = Result | Path | str


@dataclass(frozen=True, repr=False)
class Figure:
    """One or more charts as a picture: shown by a notebook, or saved as a file.

    Parameters
    ----------
    charts : sequence of Chart
        The charts, from the most important one to the least.

    Examples
    --------
    >>> import tempfile
    >>> from flwr_fbo import Float, plot_slice, simulate, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> folder = tempfile.mkdtemp()
    >>> result = simulate(hill, agents=2, strategy="random", rounds=5, run_dir=folder + "/run")
    >>> plot_slice(result).save(folder + "/slice.svg").name
    'slice.svg'
    """

    charts: Sequence[Chart]

    def svg(self) -> str:
        """Return the figure as the text of an SVG file, with two charts in a row."""
        columns = 1 if len(self.charts) == 1 or any(c.width > WIDTH for c in self.charts) else 2
        parts, y, widest = [], 0.0, 0.0
        for row in (self.charts[k : k + columns] for k in range(0, len(self.charts), columns)):
            # The plots of a row begin at one height, below the longest note.
            head = TITLE + NOTE_ROW * max(len(_note_lines(chart)) for chart in row)
            x = 0.0
            for chart in row:
                parts.append(
                    f'<g transform="translate({x:g} {y:g})">{_with_title(chart, head)}</g>'
                )
                x += chart.width + GAP
            widest = max(widest, x - GAP)
            y += head + max(chart.height + LEGEND_ROW * len(chart.legend) for chart in row) + GAP
        frame = f'viewBox="0 0 {widest:g} {y - GAP:g}" width="{widest:g}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {frame}><style>{FILE_STYLE}</style>'
            f'<rect class="paper" width="{widest:g}" height="{y - GAP:g}"/>'
            f"{''.join(parts)}</svg>\n"
        )

    def __repr__(self) -> str:
        """Return what the figure shows, without the drawing."""
        titles = ", ".join(chart.title for chart in self.charts)
        return f"<Figure: {titles}; save('figure.svg') writes it to a file>"

    def save(self, path: Path | str) -> Path:
        """Write the figure as an SVG file, and return the path.

        Parameters
        ----------
        path : Path or str
            The file, whose name must end in ``.svg``.
        """
        target = Path(path)
        if target.suffix != ".svg":
            raise SettingsError(f"`path` must end in .svg, but got {str(path)!r}")
        target.write_text(self.svg(), encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        """Return the figure for a notebook, as a picture: its styles must not reach the page."""
        data = base64.b64encode(self.svg().encode()).decode()
        title = escape(", ".join(chart.title for chart in self.charts))
        return f'<img alt="{title}" src="data:image/svg+xml;base64,{data}"/>'


def _note_lines(chart: Chart) -> list[str]:
    """Return the note of a chart in lines that are no wider than the chart."""
    return textwrap.wrap(chart.note, int((chart.width - 2 * NOTE_LEFT) / NOTE_LETTER))


def _with_title(chart: Chart, head: float) -> str:
    """Return the drawing of a chart below its title and its note, with its legend at the bottom."""
    legend = "".join(
        f'<g transform="translate({chart.left:g} {head + chart.height + LEGEND_ROW * k + 6:g})">'
        f'<line class="line {style}" x1="0" x2="22"/>'
        f'<text class="small" x="30" y="4">{escape(text)}</text></g>'
        for k, (style, text) in enumerate(chart.legend)
    )
    title = f'<text class="title" x="{NOTE_LEFT}" y="20">{escape(chart.title)}</text>'
    note = "".join(
        f'<text class="small" x="{NOTE_LEFT}" y="{20 + NOTE_ROW * k}">{escape(line)}</text>'
        for k, line in enumerate(_note_lines(chart), start=1)
    )
    drawing = f'<g transform="translate(0 {head:g})">{chart.drawing()}</g>'
    return f"{title}{note}{drawing}{legend}"


def _figure(run: RunOrResult, make: Callable[[Run], Sequence[Chart | None]], what: str) -> Figure:
    """Return the figure of a run; raise SettingsError where the run does not hold what it needs."""
    folder = run.run_dir if isinstance(run, Result) else run
    charts = [chart for chart in make(read_run(folder)) if chart is not None]
    if not charts:
        raise SettingsError(f"the run must have {what}, but {folder} has none")
    return Figure(charts)


def plot_optimization_history(run: RunOrResult) -> Figure:
    """Return the best score after each evaluation: quartiles, single agents, and baselines.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """
    return _figure(
        run, lambda r: history_plots.history(r, ""), "scores, which agents' journals hold"
    )


def plot_evaluations_saved(run: RunOrResult) -> Figure:
    """Return the evaluations that the run and each baseline needed for the same score.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """
    return _figure(
        run, lambda r: [history_plots.saved(r, "")], "baselines, such as --compare alone"
    )


def plot_edf(run: RunOrResult) -> Figure:
    """Return the share of agents with at most a best score, for the run and its baselines.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """
    return _figure(run, lambda r: [history_plots.distribution(r, "")], "scores of two agents")


def plot_param_importances(run: RunOrResult) -> Figure:
    """Return the share of the variance that each parameter explains by itself (fANOVA).

    In a simulation the shares are those of a random forest on all agents' evaluations. In a
    deployment they are those of the released function.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """

    def make(r: Run) -> list[Chart | None]:
        return [space_plots.importances(r, space_plots.landscape(r), "")]

    return _figure(run, make, "two parameters, and enough evaluations or releases")


def plot_slice(run: RunOrResult) -> Figure:
    """Return each parameter's values against the rank of the evaluation within its agent.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """

    def make(r: Run) -> Sequence[Chart | None]:
        return space_plots.slices(r, space_plots.landscape(r), "")

    return _figure(run, make, "evaluations, which agents' journals hold")


def plot_parallel_coordinate(run: RunOrResult) -> Figure:
    """Return a line for each evaluation through all parameters, the best ones of agents strong.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """

    def make(r: Run) -> list[Chart | None]:
        return [space_plots.parallel(r, space_plots.landscape(r), "")]

    return _figure(run, make, "two parameters, and evaluations")


def plot_contour(run: RunOrResult) -> Figure:
    """Return the released function over its two most important parameters, with its noise.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """

    def make(r: Run) -> list[Chart | None]:
        return [space_plots.contour(r, space_plots.landscape(r), "")]

    return _figure(run, make, "releases, or enough evaluations")


def plot_timeline(run: RunOrResult) -> Figure:
    """Return the evaluations of each agent over time, with the ends of the rounds.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """
    return _figure(run, lambda r: [round_plots.timeline(r, "")], "rounds and evaluations")


def plot_privacy(run: RunOrResult) -> Figure:
    """Return the epsilon spent by round, and the signal and the noise of each release.

    Parameters
    ----------
    run : Result, Path or str
        A result, or the directory of a run.
    """
    return _figure(
        run, lambda r: [round_plots.epsilon(r, ""), round_plots.releases(r, "")], "an epsilon"
    )
