"""What a person sees while a simulation runs, and when it is over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from flwr_fbo.results import Result, read_evaluations
from flwr_fbo.serverapp import describe
from flwr_fbo.strategies.base import Callback, FBOStrategy, RoundReport

#: A run of more rounds than this is shown by about so many lines.
LINES = 100


class PrintProgress(Callback):
    """One line a round: the agents' best so far, replies, epsilon, time left.

    The best is read from the agents' own journals, which only a simulator can do.
    """

    def __init__(self, journals: Path, stream: TextIO) -> None:
        self._journals, self._stream = journals, stream
        self._started = time.monotonic()

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        """See :class:`Callback`."""
        if report.rounds is not None and report.round % max(1, report.rounds // LINES):
            return
        histories = read_evaluations(self._journals, strategy.run_plan.agents)
        best = [max((e.score for e in h if e.score is not None), default=None) for h in histories]
        known = [b for b in best if b is not None]
        mean = f"best {np.mean(known):.4f}  " if known else "best -  "
        print(f"{mean}{describe(report)}{self._time_left(report)}", file=self._stream, flush=True)

    def _time_left(self, report: RoundReport) -> str:
        if report.rounds is None or report.round == 0:
            return ""
        elapsed = time.monotonic() - self._started
        left = elapsed / (report.round + 1) * (report.rounds - 1 - report.round)
        return f"  {left:.0f} s left" if left >= 1 else ""


def summary(result: Result) -> str:
    """The end of a run for people: what was gained over whom, at which price, and where it is."""
    rows = []
    if result.best and result.best[-1] is not None:
        spent = f"after {result.evaluations[-1]:g} evaluations each"
        rows.append((f"mean best {result.metric}", f"{result.best[-1]:.4f}   {spent}"))
    for name, other in result.compared.items():
        rows.append((f"gain over {name}", compared_text(result, other)))
    recommended = result.findings.get("recommended")
    if recommended:
        doubt = "" if recommended.get("clear", True) else "   (no clearer than noise)"
        rows.append(("recommended to all", params_text(recommended["params"]) + doubt))
    rows.append(("privacy", privacy_text(result)))
    if result.failures:
        rows.append(("failures", f"{result.failures}   (see the agents' journals)"))
    if result.stopped_early:
        rows.append(("stopped early", result.stopped_early))
    rows += [("time", f"{result.seconds:.1f} s"), ("results", result.run_dir)]
    title = f"{result.strategy} on {result.task}: {result.agents} agents"
    return "\n".join(["", title, *(f"  {label:<28} {text}" for label, text in rows)])


def params_text(params: Mapping[str, Any]) -> str:
    """Parameter values in one line."""
    return ", ".join(
        f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in params.items()
    )


def compared_text(result: Result, other: Result) -> str:
    """By how much the agents' best are better than under another strategy, agent by agent."""
    mine = {a["agent"]: a["best"] for a in result.agents_best if a["best"] is not None}
    theirs = {a["agent"]: a["best"] for a in other.agents_best if a["best"] is not None}
    gains = np.array([mine[n] - theirs[n] for n in mine if n in theirs])
    if not len(gains):
        return "-"
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else float("nan")
    won, lost = int((gains > 0).sum()), int((gains < 0).sum())
    return (
        f"{gains.mean():+.4f} +- {error:.4f}   "
        f"better for {won}, equal for {len(gains) - won - lost}, worse for {lost} agents"
    )


def privacy_text(result: Result) -> str:
    """What the run guarantees, in one line."""
    if result.epsilon is None or result.delta is None:
        return result.notice or "none: vectors were shared as they are, or not at all"
    text = f"epsilon {result.epsilon:.3f} at delta {result.delta:.2e}, per agent, whole run"
    text += ", against the server too" if result.local else ""
    return f"{result.notice} (otherwise {text})" if result.notice else text
