"""When a run ends before its rounds are over, and why."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TextIO

import numpy as np

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.runs.spec import RunSettings

#: The rules that look at evaluations; only a simulation, which owns all journals, can.
NEEDS_HISTORY = ("patience", "target-score", "max-evaluations")


class Stopper:
    """Decides after every round whether the run ends.

    Parameters
    ----------
    run
        The settings ``max_seconds``, ``max_evaluations``, ``patience`` and ``target_score``.
    history
        The agents' evaluations in a simulation. A server in a deployment has none, and then
        the rules that need them are refused.
    """

    def __init__(self, run: RunSettings, history: RunHistory | None = None) -> None:
        self._run, self.history = run, history
        self._started = time.monotonic()
        self._interrupted = threading.Event()
        #: Why the run was stopped; empty while it was not.
        self.reason = ""
        asked = [key for key in NEEDS_HISTORY if self._rule(key) is not None]
        if asked and history is None:
            raise SettingsError(
                f"`{asked[0]}` must be left unset outside simulations: it needs the agents' "
                "own journals, which a server does not have"
            )

    def _rule(self, key: str) -> float | None:
        value: float | None = getattr(self._run, key.replace("-", "_"))
        return value

    @property
    def interrupted(self) -> bool:
        """Say whether a person asked for the end."""
        return self._interrupted.is_set()

    @property
    def looks_at_scores(self) -> bool:
        """Say whether the time of the end may depend on scores, which no epsilon covers."""
        return self._run.patience is not None or self._run.target_score is not None

    def interrupt(self) -> None:
        """End the run after the round under way."""
        self._interrupted.set()

    def __call__(self, report: RoundReport) -> bool:
        """Say whether the run ends with this round."""
        if report.rounds is None or report.round + 1 < report.rounds:  # else it ends anyway
            self.reason = self._why(report.round)
        return bool(self.reason)

    def _why(self, round: int) -> str:
        run, elapsed = self._run, time.monotonic() - self._started
        if self.interrupted:
            return "interrupted"
        if run.max_seconds is not None and elapsed >= run.max_seconds:
            return f"max-seconds: {elapsed:.0f} s have passed"
        if self.history is None or all(self._rule(key) is None for key in NEEDS_HISTORY):
            return ""
        return self._why_by_history(round, self.history)

    def _why_by_history(self, round: int, history: RunHistory) -> str:
        run, made = self._run, history.made
        if run.max_evaluations is not None and made >= run.max_evaluations:
            return f"max-evaluations: {made} were made"
        best = [np.nan if b is None else b for b in history.by_round(round).best]
        if run.target_score is not None and best[-1] >= run.target_score:
            return f"target-score: the mean best is {best[-1]:.6g}"
        waited = run.patience
        if waited is not None and len(best) > waited and not best[-1] > best[-1 - waited]:
            return f"patience: no gain in {waited} rounds"
        return ""


@contextlib.contextmanager
def finishing_on_interrupt(stopper: Stopper, stream: TextIO | None) -> Iterator[None]:
    """Let the first Ctrl-C end the run after its round, and the second at once."""
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
