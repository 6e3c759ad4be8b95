"""Callbacks that watch a run, and the report of a round that they receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from flwr_fbo.core.settings import Settings
from flwr_fbo.methods.method import MethodServer, RunParameters
from flwr_fbo.privacy.statement import PrivacyStatement
from flwr_fbo.runs.history import RunHistory


@dataclass(frozen=True)
class RoundReport:
    """The server's view of a closed round, without any score of an agent.

    Parameters
    ----------
    round
        The number of the round, from 0.
    rounds
        The number of planned rounds; None where the scores decide how many there are.
    asked, replied, missing, refused
        How many agents were asked, sent a good reply, sent no reply in time, or sent a reply
        other than the request expects.
    declined
        How many agents declined, by the reason.
    seconds
        The duration of the round.
    privacy
        The privacy statement after the round; None where nothing is private.
    best
        The mean best score, where agents send their scores (research only).
    """

    round: int
    rounds: int | None
    asked: int
    replied: int
    missing: int
    declined: Mapping[str, int]
    refused: int
    seconds: float
    privacy: PrivacyStatement | None = None
    best: float | None = None

    @property
    def lost(self) -> int:
        """Return how many of the asked agents sent no reply that counts."""
        return self.missing + self.refused + sum(self.declined.values())


class RunView(Protocol):
    """The view of a run that a callback receives; the Flower strategy implements it."""

    settings: Settings

    @property
    def server(self) -> MethodServer:
        """Return the method's server."""

    @property
    def parameters(self) -> RunParameters:
        """Return the space, the agents, the rounds and the seed of the run."""

    @property
    def history(self) -> RunHistory | None:
        """Return the agents' evaluations in a simulation; None in a deployment."""


class Callback:
    """An object that watches a run. Subclasses override the methods that they need.

    A callback has no parameters. Every method receives the run, which has ``settings``,
    ``parameters``, ``server`` and ``history``.

    Examples
    --------
    >>> from flwr_fbo import Float, simulate, task
    >>> import tempfile
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> class Bell(Callback):
    ...     def on_end(self, run):
    ...         print("the run of", run.parameters.agents, "agents has ended")
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> result = simulate(
    ...     hill, agents=2, strategy="random", rounds=3, run_dir=folder, callbacks=[Bell()]
    ... )
    the run of 2 agents has ended
    """

    def on_registration(self, run: RunView, registered: int, asked: int) -> None:
        """React to each node that acknowledges its setup, before the start or between rounds.

        Parameters
        ----------
        run : RunView
            The run.
        registered, asked : int
            How many nodes have acknowledged their setup, and how many were sent it.
        """

    def on_start(self, run: RunView) -> None:
        """React to the start, after registration and before the first round.

        Parameters
        ----------
        run : RunView
            The run.
        """

    def on_reply(self, run: RunView, replied: int, asked: int) -> None:
        """React to the start of a round (``replied`` is 0), and to each reply in the round.

        Parameters
        ----------
        run : RunView
            The run.
        replied, asked : int
            How many agents have replied in this round, and how many were asked.
        """

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """React to a closed round, whose state is stored.

        Parameters
        ----------
        run : RunView
            The run.
        report : RoundReport
            The server's view of the round.
        """

    def on_end(self, run: RunView) -> None:
        """React to the end, after the last round and before the result is written.

        Parameters
        ----------
        run : RunView
            The run.
        """


def round_text(report: RoundReport) -> str:
    """Return a round as one line, for logs and progress."""
    last = "" if report.rounds is None else f"/{report.rounds - 1}"
    parts = [f"round {report.round}{last}", f"replies {report.replied}/{report.asked}"]
    declined = sum(report.declined.values())
    for name, count in (
        ("declined", declined), ("missing", report.missing), ("refused", report.refused)
    ):  # fmt: skip
        if count:
            why = f" ({', '.join(sorted(report.declined))})" if name == "declined" else ""
            parts.append(f"{name} {count}{why}")
    if report.privacy is not None:
        parts.append(spent_text(report.privacy))
        if not report.privacy.private:
            parts.append("NOT PRIVATE")
    parts.append(f"{report.seconds:.1f} s")
    return "  ".join(parts)


def spent_text(privacy: PrivacyStatement) -> str:
    """Return the spent epsilon and the budget as text, such as ``epsilon 1.240 of 5``."""
    of = "" if privacy.budget is None else f" of {privacy.budget:g}"
    return f"epsilon {privacy.epsilon if privacy.spent is None else privacy.spent:.3f}{of}"
