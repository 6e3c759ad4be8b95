"""The summary of a finished run in plain text, with lines that the report shows too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.result import Result


def summary(result: Result) -> str:
    """Return the summary of a finished run: gains over the baselines, privacy, failures, files."""
    rows = []
    if result.best_score is not None:
        spent = f"after {result.evaluations:g} evaluations each"
        rows.append((f"mean best {result.metric}", f"{result.best_score:.4f}   {spent}"))
    for name, other in result.compared.items():
        rows.append((f"gain over {name}", compared_text(result, other)))
    if result.recommended is not None:
        clear = (result.recommendation or {}).get("clear", True)
        doubt = "" if clear else "   (no clearer than noise)"
        rows.append(("recommended to all", params_text(result.recommended) + doubt))
    rows.append(("privacy", privacy_text(result)))
    if result.failures:
        rows.append(("failures", f"{result.failures}   (see the agents' journals)"))
        rows += _first_failure(result)
    if result.stopped_early:
        rows.append(("stopped early", result.stopped_early))
    if not result.complete:
        rows.append(("continue with", f"flwr-fbo resume {result.run_dir}"))
    rows += [("time", f"{result.seconds:.1f} s"), ("results", result.run_dir)]
    title = f"{result.strategy} on {result.task}: {result.agents} agents"
    return "\n".join(["", title, *(f"  {label:<28} {text}" for label, text in rows)])


def _first_failure(result: Result) -> list[tuple[str, str]]:
    """Return the first failed evaluation as a row; no row without journals or failures."""
    for agent, history in enumerate(
        read_evaluations(Path(result.run_dir) / "agents", result.agents)
    ):
        for e in history:
            if e.failed:
                return [(f"first of agent {agent}", f"{e.failure}   ({params_text(e.params)})")]
    return []


def compared_text(result: Result, other: Result) -> str:
    """Return the mean gain of the agents' best scores over those of another run."""
    mine = {a["agent"]: a["best"] for a in result.agents_best if a["best"] is not None}
    theirs = {a["agent"]: a["best"] for a in other.agents_best if a["best"] is not None}
    # Differences agent by agent, as agents differ in their data far more than strategies do.
    gains = np.array([mine[n] - theirs[n] for n in mine if n in theirs])
    if not len(gains):
        return "-"
    # The standard error over agents, which are the units of the comparison.
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else float("nan")
    won, lost = int((gains > 0).sum()), int((gains < 0).sum())
    return (
        f"{gains.mean():+.4f} +- {error:.4f}   "
        f"better for {won}, equal for {len(gains) - won - lost}, worse for {lost} agents"
    )


def privacy_text(result: Result) -> str:
    """Return the privacy guarantee of the run in one line."""
    return str(result.privacy)


def params_text(params: Mapping[str, Any]) -> str:
    """Return the parameter values in one line."""
    return ", ".join(
        f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in params.items()
    )
