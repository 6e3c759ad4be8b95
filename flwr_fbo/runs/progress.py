"""The progress of a simulation for people: a live view in a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, TextIO

from flwr_fbo.runs.callbacks import Callback, RoundReport, RunView, round_text, spent_text

#: The number of lines, about, that show a run with more rounds than this.
LINES = 100


class _Progress(Callback):
    """The part that both views share: the estimate of the time left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started, self._first = time.monotonic(), 0

    def on_start(self, run: RunView) -> None:
        """Store the time of the start and the first round of this process."""
        self._started, self._first = time.monotonic(), run.server.round

    def _seconds_left(self, report: RoundReport) -> float | None:
        """Return the seconds to the end of the last round, if all rounds take equally long."""
        if report.rounds is None:
            return None
        closed = report.round + 1 - self._first  # by this process
        elapsed = time.monotonic() - self._started
        return elapsed / max(closed, 1) * (report.rounds - 1 - report.round)


class PrintProgress(_Progress):
    """A view of one line per round: the agents' mean best, replies, epsilon and time left."""

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """Print the line of a closed round."""
        if report.rounds is not None and report.round % max(1, report.rounds // LINES):
            return
        best = None if run.history is None else run.history.best_score
        mean = "best -  " if best is None else f"best {best:.4f}  "
        left = self._seconds_left(report)
        rest = "" if left is None or left < 1 or report.round == 0 else f"  {left:.0f} s left"
        print(f"{mean}{round_text(report)}{rest}", file=self._stream, flush=True)


class LiveProgress(_Progress):
    """A view in a terminal that changes with every reply and disappears at the end."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
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

    def on_reply(self, run: RunView, replied: int, asked: int) -> None:
        """Store how many agents have replied, for the next time that the view is drawn."""
        self._round, self._rounds = run.server.round, run.server.rounds
        self._replied, self._asked = replied, asked

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """Show the closed round."""
        self._replied, self._asked = report.replied, report.asked
        self._lost += report.lost
        best = None if run.history is None else run.history.best_score
        self._facts = [("mean best", "-" if best is None else f"{best:.4f}")]
        if report.privacy is not None:
            self._facts.append(("privacy", spent_text(report.privacy)))
        left = self._seconds_left(report)
        self._ends = None if left is None else time.monotonic() + left
        self.live.refresh()

    def _view(self) -> Any:
        """Return the view; rich calls this method four times a second."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        if not self._asked:
            return "registering agents ..."
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
def progress_views(stream: TextIO | None) -> Iterator[list[Callback]]:
    """Yield the view for a stream: live in a terminal, lines elsewhere, none without a stream."""
    if stream is None:
        yield []
    elif stream.isatty():
        view = LiveProgress(stream)
        with view.live:
            yield [view]
    else:
        yield [PrintProgress(stream)]
