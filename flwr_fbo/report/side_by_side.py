"""Several runs beside one another: curves, key figures, and the settings that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from flwr_fbo.report import history_plots
from flwr_fbo.report.runs import Curve, Run, best_so_far
from flwr_fbo.report.tables import table
from flwr_fbo.runs.comparison import compare
from flwr_fbo.runs.texts import params_text

#: Settings that differ between any two runs, and say nothing.
UNINTERESTING = frozenset({"run-name"})


def comparison(runs: Sequence[Run]) -> str:
    """Return one figure for each task and metric, and a table of all runs."""
    figures: list[str] = []
    for task, metric in dict.fromkeys((r.config.get("task"), r.metric) for r in runs):
        by_label: dict[str, Curve] = {}
        for run in runs:
            curve = best_so_far(run.histories)
            if (run.config.get("task"), run.metric) == (task, metric) and curve is not None:
                by_label[run.name] = curve
        title = f"{task}: best {metric} so far"
        name = f"compare-{len(figures)}"
        chart = history_plots.curves(name, title, metric, by_label, bands=len(by_label))
        figures += [] if chart is None else [chart.figure()]
    facts = [_facts(run) for run in runs]
    rows = [(key, *(fact[key] for fact in facts)) for key in facts[0]]
    key_figures = table(("", *(run.name for run in runs)), rows)
    words = f"<div>{key_figures}{_difference(runs)}</div>"
    # One figure has the table beside it; several figures have it below.
    charts = f'<div class="charts">{"".join(figures)}</div>' if len(figures) > 1 else ""
    first = figures[0] if len(figures) == 1 else ""
    return (
        f"<section><h2>Comparison</h2>{charts}"
        f'<div class="{"beside" if first else "below"}">{first}{words}</div></section>'
    )


def _facts(run: Run) -> dict[str, str]:
    """Return the key figures of a run by their names."""
    config, r = run.config, run.result
    facts = {key: str(config.get(key)) for key in ("strategy", "task", "agents")}
    facts |= dict.fromkeys(
        ("evaluations per agent", "mean best", "epsilon", "recommended to all", "failures"), ""
    )
    if r is None:
        return {**facts, "failures": "not finished"}
    if r.evaluations:
        facts["evaluations per agent"] = f"{r.evaluations:g}"
    if r.best_score is not None:
        facts["mean best"] = f"{r.best_score:.4f}"
    facts["epsilon"] = "none" if r.epsilon is None else f"{r.epsilon:.3g}"
    if r.recommended is not None:
        facts["recommended to all"] = params_text(r.recommended)
    facts["failures"] = str(r.failures)
    return facts


def _difference(runs: Sequence[Run]) -> str:
    """Return the difference between two runs of the same agents in words; empty for other runs."""
    same = {(r.config.get("task"), r.config.get("agents"), r.config.get("seed")) for r in runs}
    if len(runs) != 2 or len(same) != 1:
        return ""
    saving = compare(runs[0].histories, runs[1].histories)
    if saving is None:
        return ""
    first, second = (escape(run.name) for run in runs)
    return (
        f"<p><b>{first}</b> beside <b>{second}</b>: the same score came after {saving.ours} "
        f"evaluations of {first} and {saving.theirs} of {second}. Difference at the end "
        f"{saving.at_end}, over all evaluations {saving.over_run} (mean over agents, with the 95 % "
        "interval).</p>"
    )


def differing_settings(runs: Sequence[Run]) -> str:
    """Return a table of the settings in which the runs differ; empty where they are the same."""
    configs: list[Mapping[str, Any]] = [run.config for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = [
        (key, *("-" if config.get(key) is None else str(config[key]) for config in configs))
        for key in keys
        if key not in UNINTERESTING and len({str(config.get(key)) for config in configs}) > 1
    ]
    if not rows:
        return ""
    shown = table(("setting", *(run.name for run in runs)), rows)
    return f"<details><summary>Settings that differ</summary>{shown}</details>"
