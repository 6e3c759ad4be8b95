"""What a person sees while a simulation runs, and when it is over."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from flwr_fbo.runs.result import read_evaluations
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
