"""The page of the suite: ranks at each epsilon, one figure for each federation, all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.charts import alone, style
from benchmarks.pages import filled
from benchmarks.suite.contestants import EPSILONS
from benchmarks.suite.federation import Federation
from benchmarks.suite.ranking import (
    FROM,
    Standing,
    gains,
    interval,
    overall,
    reaches,
    standings,
)
from benchmarks.suite.results import Record
from flwr_fbo.report.svg import Chart, linear_axis

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence" / "suite.md"
IMAGES = ROOT / "docs" / "evidence" / "images" / "suite"
MARK = "suite"
#: The methods of the figures, where they were run; the tables have all of them.
DRAWN = ("tpe", "gp", "random", "alone", "ours", "ours-8", "ours-2", "ours-1", "taf", "voting-8")
#: How they are drawn: ours with whole lines, others dashed; neighbours in colours far apart.
STYLES = {"tpe": 7, "gp": 8, "random": 6, "alone": 2, "ours": 3, "ours-8": 0, "ours-2": 5,
          "ours-1": 4, "taf": 11, "voting-8": 9}  # fmt: skip
NOTHING = [
    "No reported run is saved yet. `python -m benchmarks.suite run` makes all of them, and "
    "`python -m benchmarks.suite page` writes this part."
]
DEVELOPMENT = "**Development seeds: these figures are no results and must not be reported.**"


def by_federation(
    records: Sequence[Record], federations: Sequence[Federation]
) -> dict[str, dict[str, Standing]]:
    """Return the standings of all federations that have records of their present version."""
    found = {}
    for f in federations:
        rows = [r for r in records if r["federation"] == f.name and r["version"] == f.version]
        if rows:
            found[f.name] = standings(rows, f.initial)
    return found


def content(records: Sequence[Record], federations: Sequence[Federation]) -> list[str]:
    """Return the generated part of the page as lines."""
    tables = by_federation(records, federations)
    if not tables:
        return list(NOTHING)
    titles = {f.name: f for f in federations}
    lines = [DEVELOPMENT, ""] if any(r["development"] for r in records) else []
    lines += ["### Ranks", "", *_ranks(tables, None)]
    for epsilon in EPSILONS:
        lines += _ranks(tables, epsilon)
    for name, table in tables.items():
        lines += [f"### {titles[name].title}", "", titles[name].about, ""]
        lines += [f"![Loss by evaluation: {titles[name].title}.](images/suite/{name}.svg)", ""]
        lines += [*_losses(table), "", *_gains(table), *_recommended(table)]
    return lines


def _pm(value: tuple[float, float], digits: int = 3) -> str:
    return f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


def _ranks(tables: Mapping[str, Mapping[str, Standing]], epsilon: float | None) -> list[str]:
    if epsilon is not None and not any(
        s.epsilon == epsilon for table in tables.values() for s in table.values()
    ):
        return []
    title = "Without a guarantee" if epsilon is None else f"At epsilon {epsilon:g}, or alone"
    starts = {name: next(iter(table.values())).start for name, table in tables.items()}
    late = "".join(f", on {name} from {t} on" for name, t in starts.items() if t > FROM)
    lines = [
        f"**{title}**: mean rank over federations, and mean loss from evaluation {FROM} on{late} "
        "(rank).", "",
        f"| method | mean rank | {' | '.join(tables)} |", f"|---|---:|{'---:|' * len(tables)}",
    ]  # fmt: skip
    for row in overall(tables, epsilon):
        cells = [
            f"{_pm(row['losses'][name])} ({row['ranks'][name]:g})" if name in row["losses"] else "-"
            for name in tables
        ]
        lines.append(f"| {row['label']} | {_pm(row['rank'], 1)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _losses(table: Mapping[str, Standing]) -> list[str]:
    shown = next(iter(table.values())).shown
    base = table.get("tpe")
    target = None if base is None else float(base.curve[-1])
    head = " | ".join(f"after {t}" for t in shown)
    lines = [
        f"| loss | seeds | epsilon | {head} | TPE's last loss after | CPU ms an ask |",
        f"|---|---:|---:|{'---:|' * len(shown)}---:|---:|",
    ]
    for s in table.values():
        cells = " | ".join(map(_pm, s.at))
        epsilon = "-" if s.guarantee is None else f"{s.guarantee:.3g}"
        when = None if target is None else reaches(s, target)
        lines.append(
            f"| {s.label} | {len(s.seeds)} | {epsilon} | {cells} | "
            f"{'never' if when is None else when} | {s.ask_milliseconds:.1f} |"
        )
    return lines


def _gains(table: Mapping[str, Standing]) -> list[str]:
    base = table.get("tpe")
    if base is None:
        return []
    head = " | ".join(f"after {t}" for t in base.shown)
    lines = [
        f"Gained over *{base.label}* (positive is better), in pairs of the same party and seed:",
        "", f"| gain | {head} |", f"|---|{'---:|' * len(base.shown)}",
    ]  # fmt: skip
    for s in table.values():
        found = gains(s, base) if s.method != base.method else []
        if found:
            cells = " | ".join(f"{g:+.3f} ± {half:.3f}" for g, half in found)
            lines.append(f"| {s.label} | {cells} |")
    return [*lines, ""]


def _recommended(table: Mapping[str, Standing]) -> list[str]:
    rows = [s for s in table.values() if s.recommended is not None]
    if not rows:
        return []
    lines = ["One setting for all:", "", "| method | loss of what it recommends |", "|---|---:|"]
    lines += [f"| {s.label} | {_pm(interval(s.recommended))} |" for s in rows]  # type: ignore[arg-type]
    return [*lines, ""]


def figure(federation: Federation, table: Mapping[str, Standing]) -> str:
    """Return the figure of one federation: mean loss by evaluation, with intervals."""
    drawn = [table[name] for name in DRAWN if name in table] or list(table.values())[:10]
    first = federation.initial or 1  # before, a method that evaluates these together has no pick
    at = [[(t, m, h) for t, (m, h) in zip(s.shown, s.at, strict=True) if t >= first] for s in drawn]
    lows = [m - h for points in at for t, m, h in points if t > 1]
    highs = [m + h for points in at for t, m, h in points if t > 1]
    times = np.arange(float(first), drawn[0].shown[-1] + 1)
    chart = Chart(
        f"suite-{federation.name}", f"Mean loss by evaluation: {federation.title}",
        linear_axis(times, "evaluations of each party", whole=True),
        linear_axis(np.array([*lows, *highs]), "loss"),
    )  # fmt: skip
    for i, (s, points) in enumerate(zip(drawn, at, strict=True)):
        inside = np.clip(s.curve[first - 1 :], chart.y.low, chart.y.high)
        how = style(STYLES.get(s.method, i))
        chart.line(times, inside, how, s.label)
        for t, mean, half in points:
            if chart.y.low <= mean <= chart.y.high:
                ends = np.clip([mean - half, mean + half], chart.y.low, chart.y.high)
                # Beside one another: intervals at one place could not be told apart.
                place = np.full(2, t + 0.12 * (i - len(drawn) / 2) * len(times) / 30)
                chart.line(np.clip(place, times[0], times[-1]), ends, how)
    return alone(chart)


def write(
    records: Sequence[Record], federations: Sequence[Federation], page: Path, images: Path
) -> None:
    """Write the generated part of a page, and the figures."""
    lines = content(records, federations)
    page.write_text(filled(page.read_text(), MARK, lines))
    tables = by_federation(records, federations)
    if tables:
        images.mkdir(parents=True, exist_ok=True)
    for f in federations:
        if f.name in tables:
            (images / f"{f.name}.svg").write_text(figure(f, tables[f.name]))


def missing(
    records: Sequence[Record], federations: Sequence[Federation], among_: Sequence[str]
) -> list[str]:
    """Return what a page would rank although not every method has the same seeds."""
    found = []
    for f in federations:
        table = standings([r for r in records if r["federation"] == f.name])
        seeds = {s for standing in table.values() for s in standing.seeds}
        for name in among_:
            left = seeds - set(table[name].seeds if name in table else ())
            if left:
                found.append(f"{f.name}: {name} lacks the seeds {sorted(left)}")
    return found
