"""When a run ends before its rounds are over, and why."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

import numpy as np

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.result import outcome, read_evaluations
from flwr_fbo.runs.spec import RunSettings
from flwr_fbo.strategies.base import RoundReport

#: Rules that look at scores; only a simulator, who owns all journals, can.
STOPPING = ("max_seconds", "max_evaluations", "patience", "target_score")
LOCAL = ("patience", "target-score", "max-evaluations")


class Stopper:
    """Asked after every round; see the settings of the same names.

    ``journals`` is the folder of the agents' journals in a simulation. Nothing that an agent
    would have to send is ever looked at.
    """

    def __init__(self, run: RunSettings, journals: Path | None = None, agents: int = 0) -> None:
        self._run, self._journals, self._agents = run, journals, agents
        self._started = time.monotonic()
        self._interrupted = threading.Event()
        #: Why the run was stopped; empty while it was not.
        self.reason = ""
        asked = [key for key in LOCAL if getattr(run, key.replace("-", "_")) is not None]
        if asked and journals is None:
            raise SettingsError(
                f"`{asked[0]}` must be left unset outside simulations: it needs the agents' "
                "own journals, which a server does not have"
            )

    @property
    def interrupted(self) -> bool:
        """Whether a person asked for the end."""
        return self._interrupted.is_set()

    @property
    def looks_at_scores(self) -> bool:
        """Whether the time of the end may depend on scores, which no epsilon covers."""
        return self._run.patience is not None or self._run.target_score is not None

    def interrupt(self) -> None:
        """End after the round under way."""
        self._interrupted.set()

    def __call__(self, report: RoundReport) -> bool:
        """Whether the run ends with this round."""
        if report.rounds is None or report.round + 1 < report.rounds:  # else it ends anyway
            self.reason = self._why(report.round)
        return bool(self.reason)

    def _why(self, round: int) -> str:
        run, elapsed = self._run, time.monotonic() - self._started
        if self.interrupted:
            return "interrupted"
        if run.max_seconds is not None and elapsed >= run.max_seconds:
            return f"max-seconds: {elapsed:.0f} s have passed"
        return "" if self._journals is None else self._why_by_journals(round, self._journals)

    def _why_by_journals(self, round: int, journals: Path) -> str:
        run = self._run
        if all(getattr(run, key.replace("-", "_")) is None for key in LOCAL):
            return ""
        histories = read_evaluations(journals, self._agents)
        made = sum(map(len, histories))
        if run.max_evaluations is not None and made >= run.max_evaluations:
            return f"max-evaluations: {made} were made"
        best = [np.nan if b is None else b for b in outcome(histories, round).best]
        if run.target_score is not None and best[-1] >= run.target_score:
            return f"target-score: the mean best is {best[-1]:.6g}"
        waited = run.patience
        if waited is not None and len(best) > waited and not best[-1] > best[-1 - waited]:
            return f"patience: no gain in {waited} rounds"
        return ""


@contextlib.contextmanager
def finishing_on_interrupt(stopper: Stopper, stream: TextIO | None) -> Iterator[None]:
    """The first Ctrl-C ends the run after its round, the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears of signals
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if stopper.interrupted:
            raise KeyboardInterrupt
        stopper.interrupt()
        if stream is not None:
            text = "stopping after this round; Ctrl-C again stops at once"
            print(text, file=stream, flush=True)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
