"""The progress of a simulation for people: a live view in a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO, cast

from flwr_fbo.runs.callbacks import Callback, RoundReport, RunView, round_text, spent_text
from flwr_fbo.runs.texts import failing_text

#: The number of lines, about, that show a run with more rounds than this.
LINES = 100
#: The seconds without a line after which a line is printed.
SILENT_SECONDS = 5.0


class _Progress(Callback):
    """The part that both views share: where other lines go, and the estimate of the time left.

    Parameters
    ----------
    stream
        Where the view is shown.
    baseline
        The name of the baseline that is shown; empty for the run itself.
    """

    def __init__(self, stream: TextIO, baseline: str = "") -> None:
        self._stream, self._baseline = stream, baseline
        #: Where lines that are no part of the view are printed while the view is shown.
        self.lines = stream
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


def _failing_text(run: RunView) -> str:
    """Return a sentence if most evaluations fail; empty if not, or where it is not known."""
    return "" if run.history is None else failing_text(run.history.failed, run.history.made)


class PrintProgress(_Progress):
    """A view of one line per round: the agents' mean best, replies, epsilon and time left.

    Of a baseline only a line every few seconds is shown.
    """

    def __init__(self, stream: TextIO, baseline: str = "") -> None:
        super().__init__(stream, baseline)
        self._printed = time.monotonic()

    def on_registration(self, run: RunView, registered: int, asked: int) -> None:
        """Print how many agents are registered, after some seconds without a line."""
        self._say_after_silence(f"{registered} of {asked} agents are registered")

    def on_reply(self, run: RunView, replied: int, asked: int) -> None:
        """Print how many agents have replied, after some seconds without a line."""
        if replied < asked:
            self._say_after_silence(f"round {run.server.round}: {replied} of {asked} replies")

    def _say_after_silence(self, text: str) -> None:
        """Print a line if there was none for some seconds."""
        if time.monotonic() - self._printed >= SILENT_SECONDS:
            self._printed = time.monotonic()
            name = f"{self._baseline}: " if self._baseline else ""
            print(f"{name}{text}", file=self._stream, flush=True)

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """Print the line of a closed round."""
        if self._baseline and time.monotonic() - self._printed < SILENT_SECONDS:
            return
        if report.rounds is not None and report.round % max(1, report.rounds // LINES):
            return
        self._printed = time.monotonic()
        best = None if run.history is None else run.history.best_score
        mean = "best -  " if best is None else f"best {best:.4f}  "
        left = self._seconds_left(report)
        rest = "" if left is None or left < 1 or report.round == 0 else f"  {left:.0f} s left"
        name = f"{self._baseline}: " if self._baseline else ""
        failing = _failing_text(run)
        rest += f"  {failing}" if failing else ""
        print(f"{name}{mean}{round_text(report)}{rest}", file=self._stream, flush=True)


class _AboveView(io.TextIOBase):
    """A stream whose lines appear above a live view.

    In a forked process, lines go to the terminal itself. The view's lock may be held there without
    an end, because the thread that holds the lock was not forked.
    """

    def __init__(self, console: Any, terminal: TextIO) -> None:
        from rich.file_proxy import FileProxy

        self._terminal, self._drawing = terminal, os.getpid()
        self._proxy = FileProxy(console, terminal)

    def _stream(self) -> Any:
        return self._proxy if os.getpid() == self._drawing else self._terminal

    def write(self, text: str) -> int:
        """Write a text; its lines appear when they are complete."""
        return int(self._stream().write(text))

    def flush(self) -> None:
        """Show what was written."""
        self._stream().flush()


@contextlib.contextmanager
def _logs_printed_to(lines: TextIO, terminal: TextIO) -> Iterator[None]:
    """Print what is logged to a terminal as ``lines``; handlers with other streams are left alone.

    Flower's handler holds the terminal's stream since its import, so it would print into a view.
    """
    known = [logging.getLogger(name) for name in (None, "flwr", "flwr_fbo")]
    terminals = {terminal, *(s for s in (sys.stdout, sys.stderr) if s is not None and s.isatty())}
    changed = [
        (handler, handler.setStream(lines))
        for handler in {h for logger in known for h in logger.handlers}
        if isinstance(handler, logging.StreamHandler) and handler.stream in terminals
    ]
    try:
        yield
    finally:
        for handler, stream in changed:
            if handler.stream is lines:
                handler.setStream(stream)


class LiveProgress(_Progress):
    """A view in a terminal that changes with every reply and disappears at the end."""

    def __init__(self, stream: TextIO, baseline: str = "") -> None:
        super().__init__(stream, baseline)
        from rich.console import Console
        from rich.live import Live

        self._round = 0
        self._rounds: int | None = None
        self._replied = self._asked = self._lost = 0
        self._registered = "Registering agents ..."
        self._facts: list[tuple[str, ...]] = []
        self._ends: float | None = None
        console = Console(file=stream)
        self.lines = cast(TextIO, _AboveView(console, stream))
        self.live = Live(
            console=console,
            transient=True,
            refresh_per_second=4,
            get_renderable=self._view,
        )

    def on_registration(self, run: RunView, registered: int, asked: int) -> None:
        """Store how many agents are registered, for the next time that the view is drawn."""
        self._registered = f"Registering agents: {registered} of {asked}"

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
        failing = _failing_text(run)
        if failing:
            self._facts.append(("failures", failing))
        left = self._seconds_left(report)
        self._ends = None if left is None else time.monotonic() + left
        self.live.refresh()

    def _view(self) -> Any:
        """Return the view; rich calls this method four times a second."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        if not self._asked:
            return self._registered
        now, last = time.monotonic(), "" if self._rounds is None else f" of {self._rounds - 1}"
        part = self._replied / max(self._asked, 1)
        bar = ProgressBar(total=self._rounds, completed=self._round + part, width=40)
        left = "" if self._ends is None else f"about {max(0, self._ends - now):.0f} s left"
        table = Table.grid(padding=(0, 2))
        if self._baseline:
            table.add_row("baseline", self._baseline)
        table.add_row("round", f"{self._round}{last}", bar)
        table.add_row("replies", f"{self._replied} of {self._asked}", f"{self._lost} lost so far")
        for fact in self._facts:
            table.add_row(*fact)
        table.add_row("time", f"{now - self._started:.0f} s", left)
        return table


@contextlib.contextmanager
def progress_views(stream: TextIO | None, baseline: str = "") -> Iterator[list[_Progress]]:
    """Yield the view for a stream: live in a terminal, lines elsewhere, none without a stream."""
    if stream is None:
        yield []
    elif stream.isatty():
        view = LiveProgress(stream, baseline)
        with _logs_printed_to(view.lines, stream), view.live:
            yield [view]
    else:
        yield [PrintProgress(stream, baseline)]
