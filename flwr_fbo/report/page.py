"""The page of a report: one HTML file with its own style sheet, which loads nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from flwr_fbo import __version__
from flwr_fbo.methods.citation import citation
from flwr_fbo.report import plots
from flwr_fbo.report.runs import Curve, Run, best_so_far
from flwr_fbo.report.style import PAGE_STYLE
from flwr_fbo.runs.result import Result
from flwr_fbo.runs.summary import compared_text, params_text, privacy_text

#: Rows of a table that is open from the start, and rows of the table of failures.
FEW_ROWS = 12

_SPACE_KEY = (
    "<p>Each dot is an evaluation. A stronger colour is a better score among the evaluations of "
    "the same agent; a red dot is a failure. Each ring is the best evaluation of an agent. "
    "A star is the point recommended to all agents.</p>"
)
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
    """Return the HTML text of a report; a report of several runs begins with a comparison."""
    title = runs[0].title if len(runs) == 1 else f"{len(runs)} runs compared"
    body = [f"<h1>{escape(title)}</h1>"]
    body.append("<p class=lead>Federated Bayesian optimisation, by flwr-fbo.</p>")
    if len(runs) > 1:
        body.append(_comparison(runs))
    for number, run in enumerate(runs):
        # The prefix keeps the identifiers of figures apart, which must be unique in a page.
        body.append(_run_section(run, f"r{number}-", heading=len(runs) > 1))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'  # without an icon, browsers ask the server for one
        f"<title>{escape(title)}</title><style>{PAGE_STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main>"
        f"<footer>Made by flwr-fbo {__version__}.</footer></body></html>\n"
    )


def _comparison(runs: Sequence[Run]) -> str:
    """Return one figure for each task and metric, and a table of all runs."""
    figures: list[str] = []
    for task, metric in dict.fromkeys((r.config.get("task"), r.metric) for r in runs):
        by_label: dict[str, Curve] = {}
        for run in runs:
            curve = best_so_far(run.histories)
            if (run.config.get("task"), run.metric) == (task, metric) and curve is not None:
                by_label[run.name] = curve
        title = f"{task}: best {metric} so far, median over agents, band from quartile to quartile"
        name = f"compare-{len(figures)}"
        figures.append(plots.curves(name, title, metric, by_label, bands=len(by_label)))
    header = ("run", "strategy", "task", "agents", "evaluations per agent", "mean best", "epsilon")
    table = _table((*header, "failures"), [_comparison_row(run) for run in runs])
    charts = f'<div class="charts">{"".join(figures)}</div>'
    return f"<section><h2>Comparison</h2>{charts}{table}</section>"


def _comparison_row(run: Run) -> list[str]:
    config, r = run.config, run.result
    head = [run.name, *(str(config.get(key)) for key in ("strategy", "task", "agents"))]
    if r is None:
        return [*head, "", "", "", "not finished"]
    spent = f"{r.evaluations:g}" if r.evaluations else ""
    best = "" if r.best_score is None else f"{r.best_score:.4f}"
    epsilon = "" if r.epsilon is None else f"{r.epsilon:.3g}"
    return [*head, spent, best, epsilon, str(r.failures)]


def _run_section(run: Run, prefix: str, heading: bool) -> str:
    title = f"<h2>{escape(run.name)}: {escape(run.title)}</h2>" if heading else ""
    by_round = [
        *plots.progress(run, prefix),
        plots.epsilon(run, prefix),
        plots.replies(run, prefix),
    ]
    parts = [
        title,
        _result_part(run),
        _figures_part("Progress", by_round, "" if run.evaluations else _NO_JOURNALS),
        _figures_part("Search space", plots.space(run, prefix), _SPACE_KEY),
        _figures_part("Partition", [plots.tree(run, prefix)]),
        _failures_part(run),
        _settings_part(run),
        f"<h3>How to cite</h3><pre>{escape(citation(str(run.config.get('strategy'))))}</pre>",
    ]
    return f"<section>{''.join(parts)}</section>"


def _figures_part(title: str, figures: Iterable[str], note: str = "") -> str:
    """Return figures under a heading, or nothing where all of them are empty."""
    shown = [figure for figure in figures if figure]
    if not shown:
        return ""
    return f'<h3>{title}</h3>{note}<div class="charts">{"".join(shown)}</div>'


def _result_part(run: Run) -> str:
    r = run.result
    if r is None:
        return f"<p class=warn>This run is not finished: {len(run.rounds)} rounds are closed.</p>"
    parts = [_tiles(r)]
    if not r.complete:
        reason = r.stopped_early or "agents made fewer evaluations than planned"
        parts.append(f"<p class=warn>Incomplete: {escape(reason)}.</p>")
    gains = [(name, compared_text(r, other)) for name, other in r.compared.items()]
    if gains:
        parts.append(_table(("gain over", "mean difference between the agents' best"), gains))
    if r.recommended is not None:
        params = escape(params_text(r.recommended))
        # Only methods with released functions say whether the recommendation is clear.
        clear = (r.recommendation or {}).get("clear", True)
        doubt = "" if clear else " Noise alone could have given this recommendation."
        parts.append(f"<p>Recommended to all: <b>{params}</b>.{doubt}</p>")
    parts.append(f"<p>Privacy: {escape(privacy_text(r))}.</p>")
    parts.append(_agents_part(r.agents_best))
    return "".join(parts)


def _tiles(r: Result) -> str:
    """Return the main figures of a result in large letters."""
    facts = []
    if r.best_score is not None:
        facts.append((f"mean best {r.metric}", f"{r.best_score:.4f}"))
        facts.append(("evaluations per agent", f"{r.evaluations:g}"))
    facts.append(("agents", str(r.agents)))
    if r.epsilon is not None:
        facts.append(("epsilon" if r.private else "epsilon, NOT PRIVATE", f"{r.epsilon:.3f}"))
    facts.append(("failures", str(r.failures)))
    tiles = "".join(f"<div><b>{escape(v)}</b>{escape(k)}</div>" for k, v in facts)
    return f'<div class="tiles">{tiles}</div>'


def _agents_part(best: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [str(a["agent"]), f"{a['best']:.4f}", str(a["evaluations"]), params_text(a["params"])]
        for a in best
        if a["best"] is not None
    ]
    if not rows:
        return ""
    table = _table(("agent", "best", "evaluations", "parameters"), rows)
    opened = " open" if len(rows) <= FEW_ROWS else ""
    return f"<details{opened}><summary>Each agent's own best</summary>{table}</details>"


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
        parts.append(_table(("failed evaluations", "error", "parameters of the first"), rows))
    if any(lost.values()):
        events = [(str(n), _LOST_REPLIES[column]) for column, n in lost.items() if n]
        parts.append(_table(("times", "what happened"), events))
    if not counts and not any(lost.values()):
        parts.append("<p>No evaluation failed, and every reply arrived.</p>")
    return "".join(parts)


def _settings_part(run: Run) -> str:
    config = _table(("setting", "value"), [(k, str(v)) for k, v in run.config.items()])
    versions = _table(("package", "version"), list(run.environment.items()))
    return (
        f"<details><summary>Configuration</summary>{config}</details>"
        f"<details><summary>Environment</summary>{versions}</details>"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
