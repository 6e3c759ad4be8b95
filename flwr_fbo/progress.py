"""What a person sees while a simulation runs, and when it is over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from flwr_fbo.results import Outcome, read_evaluations
from flwr_fbo.server_app import describe
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


def summary(
    result: Mapping[str, Any], found: Outcome, others: Mapping[str, Outcome], metric: str
) -> str:
    """The end of a run for people: what was gained over whom, at which price, and where it is."""
    evaluations = found.evaluations[-1] if found.evaluations else 0
    best = found.best[-1] if found.best else None
    lines = ["", f"{result['strategy']} on {result['task']}: {result['agents']} agents"]
    if best is not None:
        lines.append(
            f"  {'mean best ' + metric:<28} {best:.4f}   after {evaluations:g} evaluations each"
        )
    for name, other in others.items():
        lines.append(_compared(name, found, other))
    lines.append(f"  {'privacy':<28} {_privacy(result)}")
    if result["failures"]:
        lines.append(f"  {'failures':<28} {result['failures']}   (see the agents' journals)")
    lines.append(f"  {'time':<28} {result['seconds']:.1f} s")
    lines.append(f"  {'results':<28} {result['run_dir']}")
    return "\n".join(lines)


def _compared(name: str, found: Outcome, other: Outcome) -> str:
    mine = {a["agent"]: a["best"] for a in found.agents if a["best"] is not None}
    theirs = {a["agent"]: a["best"] for a in other.agents if a["best"] is not None}
    gains = np.array([mine[n] - theirs[n] for n in mine if n in theirs])
    if not len(gains):
        return f"  {'gain over ' + name:<28} -"
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else float("nan")
    won, lost = int((gains > 0).sum()), int((gains < 0).sum())
    return (
        f"  {'gain over ' + name:<28} {gains.mean():+.4f} +- {error:.4f}   "
        f"better for {won}, equal for {len(gains) - won - lost}, worse for {lost} agents"
    )


def _privacy(result: Mapping[str, Any]) -> str:
    if result["epsilon"] is None:
        return result["notice"] or "none: vectors were shared as they are, or not at all"
    text = f"epsilon {result['epsilon']:.3f} at delta {result['delta']:.2e}, per agent, whole run"
    text += ", against the server too" if result["local"] else ""
    return f"{result['notice']} (otherwise {text})" if result["notice"] else text
