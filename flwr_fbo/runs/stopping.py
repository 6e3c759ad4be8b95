"""The rules that end a run before its rounds are over."""

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

#: The rules that need evaluations, which only a simulation has: it owns all journals.
NEEDS_HISTORY = ("patience", "target-score", "max-evaluations")


class Stopper:
    """The stopping rules of a run; called after every round, it returns whether the run ends.

    Parameters
    ----------
    run
        The settings ``max_seconds``, ``max_evaluations``, ``patience`` and ``target_score``.
    history
        The agents' evaluations in a simulation. A server in a deployment has no history, and
        rules that need a history are refused.
    """

    def __init__(self, run: RunSettings, history: RunHistory | None = None) -> None:
        self._run, self.history = run, history
        self._started = time.monotonic()
        self._interrupted = threading.Event()
        #: The rule that ended the run and what it saw; empty while the run goes on.
        self.reason = ""
        asked = [key for key in NEEDS_HISTORY if self._rule(key) is not None]
        if asked and history is None:
            raise SettingsError(
                f"`{asked[0]}` must be left unset outside simulations: it needs the agents' "
                "own journals, which a server does not have"
            )

    def _rule(self, key: str) -> float | None:
        """Return the value of a rule; None where the rule is unset."""
        value: float | None = getattr(self._run, key.replace("-", "_"))
        return value

    @property
    def interrupted(self) -> bool:
        """Return whether a person asked for the end."""
        return self._interrupted.is_set()

    @property
    def looks_at_scores(self) -> bool:
        """Return whether the end of the run may depend on scores, which epsilon does not cover."""
        return self._run.patience is not None or self._run.target_score is not None

    def interrupt(self) -> None:
        """End the run after the current round."""
        self._interrupted.set()

    def __call__(self, report: RoundReport) -> bool:
        """Return whether the run ends with this round."""
        # The last planned round needs no rule to be the last one.
        if report.rounds is None or report.round + 1 < report.rounds:
            self.reason = self._why(report.round)
        return bool(self.reason)

    def _why(self, round: int) -> str:
        """Return the rule that ends the run with this round; empty if none does."""
        run, elapsed = self._run, time.monotonic() - self._started
        if self.interrupted:
            return "interrupted"
        if run.max_seconds is not None and elapsed >= run.max_seconds:
            return f"max-seconds: {elapsed:.0f} s have passed"
        if self.history is None or all(self._rule(key) is None for key in NEEDS_HISTORY):
            return ""
        return self._why_by_history(round, self.history)

    def _why_by_history(self, round: int, history: RunHistory) -> str:
        """Return the rule on evaluations that ends the run; empty if none does."""
        run, made = self._run, history.made
        if run.max_evaluations is not None and made >= run.max_evaluations:
            return f"max-evaluations: {made} evaluations were made"
        best = [np.nan if b is None else b for b in history.by_round(round).best]
        if run.target_score is not None and best[-1] >= run.target_score:
            return f"target-score: the mean best score is {best[-1]:.6g}"
        rounds = run.patience
        # Without any score both are NaN, which counts as no gain.
        if rounds is not None and len(best) > rounds and not best[-1] > best[-1 - rounds]:
            return f"patience: no gain in {rounds} rounds"
        return ""


@contextlib.contextmanager
def finishing_on_interrupt(stopper: Stopper, stream: TextIO | None) -> Iterator[None]:
    """Make the first Ctrl-C end the run after its round, and the second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
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
