"""What watches a run: callbacks, and the report of each round that they are given."""

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
    """What a round looked like to the server. No agent's scores are in it.

    Parameters
    ----------
    round
        The number of the round, from 0.
    rounds
        How many rounds there are; None where that depends on what is found.
    asked, replied, missing, refused
        How many agents were asked, sent a good reply, sent nothing in time, or sent a reply
        that is not what was asked for.
    declined
        How often agents gave each reason for having no answer.
    seconds
        How long the round took.
    privacy
        What the run has spent so far; None where nothing is private.
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
        """Return how many of the asked agents gave no answer that counts."""
        return self.missing + self.refused + sum(self.declined.values())


class RunView(Protocol):
    """What a callback sees of a run: the Flower strategy that carries its messages."""

    settings: Settings

    @property
    def server(self) -> MethodServer:
        """Return the method's server."""

    @property
    def parameters(self) -> RunParameters:
        """Return the run's space, agents, rounds and seed."""

    @property
    def history(self) -> RunHistory | None:
        """Return the agents' evaluations in a simulation; None in a deployment."""


class Callback:
    """Something that watches a run: derive from it and fill in what is of interest.

    Examples
    --------
    >>> class Bell(Callback):
    ...     def on_end(self, run):
    ...         print("the run is over")
    """

    def on_start(self, run: RunView) -> None:
        """React to the start: all agents are registered, the first round is about to begin."""

    def on_reply(self, run: RunView, replied: int, asked: int) -> None:
        """React to a reply: ``replied`` of those ``asked`` have answered in this round."""

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """React to a closed round, whose state is stored."""

    def on_end(self, run: RunView) -> None:
        """React to the end: no further round will come."""


def describe(report: RoundReport) -> str:
    """Return a round in one line, for logs and progress."""
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
    """Return what a run has spent of what it may, such as ``epsilon 1.240 of 5``."""
    of = "" if privacy.budget is None else f" of {privacy.budget:g}"
    return f"epsilon {privacy.epsilon if privacy.spent is None else privacy.spent:.3f}{of}"
