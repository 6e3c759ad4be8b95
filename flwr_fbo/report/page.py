"""The page of a report: one HTML file with its own style sheet, which loads nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from flwr_fbo import __version__
from flwr_fbo.methods.citation import citation
from flwr_fbo.report import history_plots, round_plots, space_plots
from flwr_fbo.report.answers import answers_html, comparison_html
from flwr_fbo.report.runs import Run
from flwr_fbo.report.side_by_side import comparison, differing_settings
from flwr_fbo.report.style import PAGE_STYLE
from flwr_fbo.report.svg import Chart
from flwr_fbo.report.tables import table
from flwr_fbo.runs.absent import absence_rows
from flwr_fbo.runs.summary import privacy_text, steps_text
from flwr_fbo.runs.texts import params_text

#: Rows of a table that is open from the start, and rows of the table of failures.
FEW_ROWS = 12

_NO_JOURNALS = (
    "<p>No scores are shown: scores are in the agents' journals, which are not here. In a "
    "deployment, each journal stays on its party's machine.</p>"
)
#: Columns of a run's table of rounds that count lost replies, and what each one means.
_LOST_REPLIES = {
    "declined": "an agent declined the request",
    "missing": "no reply arrived in time",
    "refused": "the server refused an invalid reply",
}


def render_page(runs: Sequence[Run]) -> str:
    """Return the HTML text of a report; a report of several runs begins with a comparison.

    Two runs stand side by side, part by part. More runs follow one another.
    """
    title = runs[0].title if len(runs) == 1 else f"{len(runs)} runs compared"
    body = [f"<h1>{escape(title)}</h1>"]
    if len(runs) == 1:
        body += [f"<p class=lead>{escape(_size(runs[0]))}</p>", *_sections(runs[0], "r0-").values()]
    else:
        body += [comparison(runs), differing_settings(runs)]
        # The prefix keeps the identifiers of figures apart, which must be unique in a page.
        parts = [_sections(run, f"r{number}-") for number, run in enumerate(runs)]
        body.append(_paired(runs, parts) if len(runs) == 2 else _stacked(runs, parts))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'  # without an icon, browsers ask the server for one
        f"<title>{escape(title)}</title><style>{PAGE_STYLE}</style></head>"
        f"<body><main{' class=pair' if len(runs) == 2 else ''}>{''.join(body)}</main>"
        f"<footer>Made by flwr-fbo {__version__}.</footer></body></html>\n"
    )


def _size(run: Run) -> str:
    """Return how large a run was, in one line."""
    r = run.result
    parts = [f"{run.config.get('agents', '?')} agents", f"{len(run.rounds)} rounds"]
    if r is not None:
        parts += [f"{r.evaluations:g} evaluations of each agent"] if r.evaluations else []
        parts += [f"steps: {steps_text(r)}"] if "steps" in r.findings else []
        parts.append(f"{r.seconds:.1f} s")
    return ", ".join(parts)


def _paired(runs: Sequence[Run], parts: Sequence[Mapping[str, str]]) -> str:
    """Return the parts of two runs side by side, each part beside its like."""
    names = "".join(f"<div><h2>{escape(run.name)}: {escape(run.title)}</h2></div>" for run in runs)
    rows = [f'<div class="beside">{names}</div>']
    for key in dict.fromkeys(key for part in parts for key in part):
        cells = "".join(f"<div>{part.get(key, '')}</div>" for part in parts)
        rows.append(f'<div class="beside">{cells}</div>')
    return "".join(rows)


def _stacked(runs: Sequence[Run], parts: Sequence[Mapping[str, str]]) -> str:
    """Return the runs one after another."""
    titles = [f"<h2>{escape(run.name)}: {escape(run.title)}</h2>" for run in runs]
    return "".join(
        f"<section>{title}{''.join(part.values())}</section>"
        for title, part in zip(titles, parts, strict=True)
    )


def _sections(run: Run, prefix: str) -> dict[str, str]:
    """Return the parts of a run by their names, without those that have nothing to show."""
    found = space_plots.landscape(run)
    scores = [*history_plots.history(run, prefix)]
    scores[1:1] = [c for c in (history_plots.saved(run, prefix),) if c is not None]
    r = run.result
    privacy = "" if r is None else f"<p>{escape(privacy_text(r))}.</p>"
    charts: dict[str, tuple[Sequence[Chart | None], str]] = {
        "Scores": (scores, "" if run.evaluations else _NO_JOURNALS),
        "Privacy": ([round_plots.epsilon(run, prefix), round_plots.releases(run, prefix)], privacy),
        "Search space": (
            [
                space_plots.importances(run, found, prefix),
                space_plots.contour(run, found, prefix),
                space_plots.parallel(run, found, prefix),
                *space_plots.slices(run, found, prefix),
            ],
            _slices_note(run),
        ),
        "Partition": ([round_plots.tree(run, prefix)], ""),
        "Agents": ([history_plots.distribution(run, prefix)], ""),
        "Rounds": (
            [round_plots.timeline(run, prefix), round_plots.replies(run, prefix)],
            _replies_note(run) + _absent_note(run),
        ),
    }
    notices = "".join(f"<p class=warn>{escape(notice)}.</p>" for notice in run.notices)
    parts = {"notices": notices, "answers": answers_html(run)}
    for title, (shown, note) in charts.items():
        parts[title] = _figures_part(title, shown, note)
    if r is not None:
        parts["Scores"] += comparison_html(r)
        parts["Agents"] += _agents_part(r.agents_best)
    parts["failures"] = _failures_part(run)
    parts["settings"] = _settings_part(run)
    cite = escape(citation(str(run.config.get("strategy"))))
    parts["cite"] = f"<h3>How to cite</h3><pre>{cite}</pre>"
    return {key: part for key, part in parts.items() if part}


def _absent_note(run: Run) -> str:
    """Return which parties missed which rounds; nothing where no party missed one."""
    rows = [] if run.result is None else absence_rows(run.result)
    text = "; ".join(f"{who}: {what}" for who, what in rows)
    return f"<p>Absent: {escape(text)}.</p>" if text else ""


def _slices_note(run: Run) -> str:
    """Return that some parameters have no figure, where there are too many."""
    count = 0 if run.space is None else run.space.dimension
    if count <= space_plots.MAX_SLICES or not run.evaluations:
        return ""
    return (
        f"<p>Slices of the {space_plots.MAX_SLICES} most important of {count} parameters are "
        "shown. In Python, the agents' journals hold all of them.</p>"
    )


def _replies_note(run: Run) -> str:
    """Return in one sentence that every reply arrived; a figure shows those that did not."""
    if not run.rounds or round_plots.lost_replies(run):
        return ""
    asked = {int(r["asked"]) for r in run.rounds}
    many = f"All {asked.pop()} agents" if len(asked) == 1 else "All agents that were asked"
    return f"<p>{many} answered in each of {len(run.rounds)} rounds.</p>"


def _figures_part(title: str, figures: Iterable[Chart | None], note: str = "") -> str:
    """Return figures under a heading, or nothing where there is neither a figure nor a note."""
    shown = [chart.figure() for chart in figures if chart is not None]
    if not shown and not note:
        return ""
    charts = f'<div class="charts">{"".join(shown)}</div>' if shown else ""
    return f"<h3>{title}</h3>{note}{charts}"


def _agents_part(best: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [str(a["agent"]), f"{a['best']:.4f}", str(a["evaluations"]), params_text(a["params"])]
        for a in best
        if a["best"] is not None
    ]
    if not rows:
        return ""
    rows_html = table(("agent", "best", "evaluations", "parameters"), rows)
    opened = " open" if len(rows) <= FEW_ROWS else ""
    return f"<details{opened}><summary>Each agent's own best</summary>{rows_html}</details>"


def _failures_part(run: Run) -> str:
    failed = [e for e in run.evaluations if e.failed]
    counts = Counter(e.failure for e in failed)
    first = {e.failure: e for e in reversed(failed)}  # the first of each kind overwrites the rest
    lost = {column: sum(int(row[column]) for row in run.rounds) for column in _LOST_REPLIES}
    parts = ["<h3>Failures</h3>"]
    if counts:
        rows = [
            (str(n), text, params_text(first[text].params))
            for text, n in counts.most_common(FEW_ROWS)
        ]
        parts.append(table(("failed evaluations", "error", "parameters of the first"), rows))
    if any(lost.values()):
        events = [(str(n), _LOST_REPLIES[column]) for column, n in lost.items() if n]
        parts.append(table(("times", "what happened"), events))
    if not counts and not any(lost.values()):
        parts.append("<p>No evaluation failed, and every reply arrived.</p>")
    return "".join(parts)


def _settings_part(run: Run) -> str:
    config = table(("setting", "value"), [(k, str(v)) for k, v in run.config.items()])
    versions = table(("package", "version"), list(run.environment.items()))
    return (
        f"<details><summary>Configuration</summary>{config}</details>"
        f"<details><summary>Environment</summary>{versions}</details>"
    )
