"""What a person sees while a simulation runs, and when it is over."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from flwr_fbo.runs.result import Result, params_text, read_evaluations
from flwr_fbo.strategies.base import Callback, FBOStrategy, RoundReport
from flwr_fbo.strategies.server_app import describe

#: A run of more rounds than this is shown by about so many lines.
LINES = 100


class _Progress(Callback):
    """What both views share: the best so far, and the time left."""

    def __init__(self, journals: Path, stream: TextIO) -> None:
        self._journals, self._stream = journals, stream
        self._started, self._first = time.monotonic(), 0

    def on_start(self, strategy: FBOStrategy) -> None:
        """See :class:`Callback`."""
        self._started, self._first = time.monotonic(), strategy.server.round

    def _best(self, agents: int) -> float | None:
        """Mean of the agents' best, from their own journals, which only a simulator can read."""
        histories = read_evaluations(self._journals, agents)
        best = [max((e.score for e in h if e.score is not None), default=None) for h in histories]
        known = [b for b in best if b is not None]
        return float(np.mean(known)) if known else None

    def _seconds_left(self, report: RoundReport) -> float | None:
        """From the end of a round to that of the last one, if all rounds take as long."""
        if report.rounds is None:
            return None
        closed = report.round + 1 - self._first  # by this process
        elapsed = time.monotonic() - self._started
        return elapsed / max(closed, 1) * (report.rounds - 1 - report.round)


class PrintProgress(_Progress):
    """One line a round: the agents' best so far, replies, epsilon, time left."""

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        """See :class:`Callback`."""
        if report.rounds is not None and report.round % max(1, report.rounds // LINES):
            return
        best = self._best(strategy.run_plan.agents)
        mean = "best -  " if best is None else f"best {best:.4f}  "
        left = self._seconds_left(report)
        rest = "" if left is None or left < 1 or report.round == 0 else f"  {left:.0f} s left"
        print(f"{mean}{describe(report)}{rest}", file=self._stream, flush=True)


class LiveProgress(_Progress):
    """A view in a terminal that changes with every reply, and vanishes when the run is over."""

    def __init__(self, journals: Path, stream: TextIO) -> None:
        super().__init__(journals, stream)
        from rich.console import Console
        from rich.live import Live

        self._round = 0
        self._rounds: int | None = None
        self._replied = self._asked = self._lost = 0
        self._facts: list[tuple[str, ...]] = []
        self._ends: float | None = None
        self.live = Live(
            console=Console(file=stream),
            transient=True,
            refresh_per_second=4,
            get_renderable=self._view,
        )

    def on_reply(self, strategy: FBOStrategy, replied: int, asked: int) -> None:
        """See :class:`Callback`."""
        self._round, self._rounds = strategy.server.round, strategy.server.rounds
        self._replied, self._asked = replied, asked

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        """See :class:`Callback`."""
        self._replied, self._asked = report.replied, report.asked
        self._lost += report.missing + report.refused + sum(report.declined.values())
        best = self._best(strategy.run_plan.agents)
        self._facts = [("mean best", "-" if best is None else f"{best:.4f}")]
        if report.privacy is not None:
            budget, spent = report.privacy["budget"], report.privacy["epsilon"]
            of = "" if budget is None else f" of {budget:g}"
            self._facts.append(("epsilon", f"{spent:.3f}{of}"))
        left = self._seconds_left(report)
        self._ends = None if left is None else time.monotonic() + left
        self.live.refresh()

    def _view(self) -> Any:
        """Drawn some times a second, whatever happens."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        if not self._asked:
            return "starting; agents are being told what is sought"
        now, last = time.monotonic(), "" if self._rounds is None else f" of {self._rounds - 1}"
        part = self._replied / max(self._asked, 1)
        bar = ProgressBar(total=self._rounds, completed=self._round + part, width=40)
        left = "" if self._ends is None else f"about {max(0, self._ends - now):.0f} s left"
        table = Table.grid(padding=(0, 2))
        table.add_row("round", f"{self._round}{last}", bar)
        table.add_row("replies", f"{self._replied} of {self._asked}", f"{self._lost} lost so far")
        for fact in self._facts:
            table.add_row(*fact)
        table.add_row("time", f"{now - self._started:.0f} s", left)
        return table


@contextlib.contextmanager
def watching(journals: Path, stream: TextIO | None) -> Iterator[list[Callback]]:
    """The view that suits a stream: live in a terminal, lines elsewhere, nothing without one."""
    if stream is None:
        yield []
    elif stream.isatty():
        view = LiveProgress(journals, stream)
        with view.live:
            yield [view]
    else:
        yield [PrintProgress(journals, stream)]


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
        rows += _first_failure(result)
    if result.stopped_early:
        rows.append(("stopped early", result.stopped_early))
    if not result.complete:
        rows.append(("go on with", f"flwr-fbo resume {result.run_dir}"))
    rows += [("time", f"{result.seconds:.1f} s"), ("results", result.run_dir)]
    title = f"{result.strategy} on {result.task}: {result.agents} agents"
    return "\n".join(["", title, *(f"  {label:<28} {text}" for label, text in rows)])


def _first_failure(result: Result) -> list[tuple[str, str]]:
    """What went wrong first in the user's own code, where the journals are at hand."""
    for agent, history in enumerate(
        read_evaluations(Path(result.run_dir) / "agents", result.agents)
    ):
        for e in history:
            if e.failed:
                return [(f"first of agent {agent}", f"{e.failure}   ({params_text(e.params)})")]
    return []


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
        return result.notice or "none: what agents share, they share as it is"
    text = f"epsilon {result.epsilon:.3f} at delta {result.delta:.2e}, per agent, whole run"
    text += ", against the server too" if result.local else ""
    return f"{result.notice} (otherwise {text})" if result.notice else text
