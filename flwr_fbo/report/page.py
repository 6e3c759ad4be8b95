"""The page around a report's pictures: one HTML file that asks nothing of the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from flwr_fbo import __version__
from flwr_fbo.methods.citation import citation
from flwr_fbo.report import plots
from flwr_fbo.report.runs import Curve, Run, best_so_far
from flwr_fbo.report.style import STYLE
from flwr_fbo.runs.summary import compared_text, params_text, privacy_text

#: Rows of a table that is open from the start.
FEW = 12


def page(runs: Sequence[Run]) -> str:
    """All runs on one page; several are compared first."""
    title = runs[0].title if len(runs) == 1 else f"{len(runs)} runs compared"
    body = [f"<h1>{escape(title)}</h1>"]
    body.append("<p class=lead>Federated Bayesian optimisation, by flwr-fbo.</p>")
    if len(runs) > 1:
        body.append(_comparison(runs))
    for number, run in enumerate(runs):
        body.append(_run(run, f"r{number}-", heading=len(runs) > 1))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main>"
        f"<footer>Made by flwr-fbo {__version__}.</footer></body></html>\n"
    )


def _comparison(runs: Sequence[Run]) -> str:
    """Runs of one metric on common axes, and the figures of all in a table."""
    figures: list[str] = []
    for metric in dict.fromkeys((r.config.get("task"), r.metric) for r in runs):
        found: dict[str, Curve] = {}
        for run in runs:
            curve = best_so_far(run.histories)
            if (run.config.get("task"), run.metric) == metric and curve is not None:
                found[run.name] = curve
        title = f"{metric[0]}: best {metric[1]} so far, median and half of the agents"
        name = f"compare-{len(figures)}"
        figures.append(plots.curves(name, title, metric[1], found, band=len(found)))
    header = ("run", "strategy", "task", "agents", "evaluations", "best", "epsilon", "failures")
    table = _table(header, [_figures(run) for run in runs])
    charts = f'<div class="charts">{"".join(figures)}</div>'
    return f"<section><h2>Comparison</h2>{charts}{table}</section>"


def _figures(run: Run) -> list[str]:
    head = [run.name, str(run.config.get("strategy")), str(run.config.get("task"))]
    agents = str(run.config.get("agents"))
    r = run.result
    if r is None:
        return [*head, agents, "", "", "", "not finished"]
    spent = f"{r.evaluations[-1]:g}" if r.evaluations else ""
    best = f"{r.best[-1]:.4f}" if r.best and r.best[-1] is not None else ""
    epsilon = "" if r.epsilon is None else f"{r.epsilon:.3g}"
    return [*head, agents, spent, best, epsilon, str(r.failures)]


def _run(run: Run, prefix: str, heading: bool) -> str:
    title = f"<h2>{escape(run.name)}: {escape(run.title)}</h2>" if heading else ""
    return "<section>" + title + "".join(
        [
            _outcome(run),
            _figures_of("Progress", _by_round(run, prefix), "", _why_no_curves(run)),
            _figures_of("Search space", plots.space(run, prefix), "", _SPACE_KEY),
            _figures_of("Partition", [plots.tree(run, prefix)], ""),
            _failures(run),
            _settings(run),
            f"<h3>How to cite</h3><pre>{escape(citation(str(run.config.get('strategy'))))}</pre>",
        ]
    ) + "</section>"  # fmt: skip


_SPACE_KEY = (
    "<p>A dot is an evaluation of any agent, stronger in colour where it was better among that "
    "agent's own; a red dot failed. Rings are the agents' best, a star is what is recommended "
    "to all.</p>"
)


def _why_no_curves(run: Run) -> str:
    if run.evaluations:
        return ""
    return "<p>Scores are in the agents' own journals, which are not here.</p>"


def _figures_of(title: str, figures: Iterable[str], otherwise: str, note: str = "") -> str:
    shown = [figure for figure in figures if figure]
    if not shown:
        return f"<h3>{title}</h3>{otherwise}" if otherwise else ""
    return f'<h3>{title}</h3>{note}<div class="charts">{"".join(shown)}</div>'


def _outcome(run: Run) -> str:
    r = run.result
    if r is None:
        return f"<p class=warn>This run is not finished: {len(run.rounds)} rounds are closed.</p>"
    facts = []
    if r.best and r.best[-1] is not None:
        facts.append((f"mean best {r.metric}", f"{r.best[-1]:.4f}"))
        facts.append(("evaluations of an agent", f"{r.evaluations[-1]:g}"))
    facts.append(("agents", str(r.agents)))
    if r.epsilon is not None:
        facts.append(("epsilon" if r.private else "epsilon, NOT PRIVATE", f"{r.epsilon:.3f}"))
    facts.append(("failures", str(r.failures)))
    tiles = "".join(f"<div><b>{escape(v)}</b>{escape(k)}</div>" for k, v in facts)
    lines = [f'<div class="tiles">{tiles}</div>']
    if not r.complete:
        reason = r.stopped_early or "not all evaluations that were planned were made"
        lines.append(f"<p class=warn>Incomplete: {escape(reason)}.</p>")
    gains = [(name, compared_text(r, other)) for name, other in r.compared.items()]
    if gains:
        lines.append(_table(("gain over", "mean difference of the agents' best"), gains))
    recommended = r.findings.get("recommended")
    if recommended:
        params = escape(params_text(recommended["params"]))
        doubt = "" if recommended.get("clear", True) else ", but no clearer than noise would be"
        lines.append(f"<p>Recommended to all: <b>{params}</b>{doubt}.</p>")
    lines.append(f"<p>Privacy: {escape(privacy_text(r))}.</p>")
    return "".join(lines) + _agents(r.agents_best)


def _agents(best: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [str(a["agent"]), f"{a['best']:.4f}", str(a["evaluations"]), params_text(a["params"])]
        for a in best
        if a["best"] is not None
    ]
    if not rows:
        return ""
    table = _table(("agent", "best", "evaluations", "parameters"), rows)
    opened = " open" if len(rows) <= FEW else ""
    return f"<details{opened}><summary>Each agent's own best</summary>{table}</details>"


def _by_round(run: Run, prefix: str) -> list[str]:
    return [*plots.progress(run, prefix), plots.epsilon(run, prefix), plots.replies(run, prefix)]


def _failures(run: Run) -> str:
    failed = [e for e in run.evaluations if e.failed]
    counts, first = Counter(e.failure for e in failed), {e.failure: e for e in failed[::-1]}
    kinds = ("declined", "missing", "refused")
    lost = {name: sum(int(r[name]) for r in run.rounds) for name in kinds}
    parts = ["<h3>Failures</h3>"]
    if counts:
        rows = [
            (str(n), text, params_text(first[text].params)) for text, n in counts.most_common(FEW)
        ]
        parts.append(_table(("evaluations", "failed with", "first at"), rows))
    if any(lost.values()):
        names = [(str(n), f"replies {name}") for name, n in lost.items() if n]
        parts.append(_table(("times", "what"), names))
    if not counts and not any(lost.values()):
        parts.append("<p>No evaluation failed, and every reply arrived.</p>")
    return "".join(parts)


def _settings(run: Run) -> str:
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
