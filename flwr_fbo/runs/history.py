"""The history of a run: the evaluations of all agents, and their means by round.

A simulation owns the journals of its agents and may read them. In a deployment the journals stay
with their owners, so there is no history. Progress, stopping rules, trackers, report and result
read the same :class:`RunHistory`, so that each journal is parsed once.

A mean is over the agents that have a score by the end of the round. The best score begins with the
initial points (round 0). A round without a successful evaluation does not change an agent's best.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation, Evaluator
from flwr_fbo.runs.files.journal import Journal, journal_path


@dataclass(frozen=True)
class RoundHistory:
    """The means over the agents at the end of each of the rounds 0, 1, ...

    Parameters
    ----------
    evaluations
        The mean number of evaluations that an agent has made.
    best
        The mean of the agents' best scores; None before any agent has a score.
    regret
        The mean of the agents' lowest regrets; None where the optimum is not known.
    """

    evaluations: list[float]
    best: list[float | None]
    regret: list[float | None] | None = None

    @property
    def best_score(self) -> float | None:
        """Return the mean of the agents' best scores after the last round; None without scores."""
        return self.best[-1] if self.best else None


class RunHistory:
    """The evaluations of all agents of a simulated run.

    Parameters
    ----------
    folder
        The folder of the agents' journals.
    agents
        How many agents there are.
    """

    def __init__(self, folder: Path, agents: int) -> None:
        self.agents = agents
        self._files = [_GrowingJournal(journal_path(folder, agent)) for agent in range(agents)]

    def refresh(self) -> RunHistory:
        """Read what was appended to the journals since the last call, and return the history."""
        for file in self._files:
            file.refresh()
        return self

    @property
    def evaluations(self) -> list[list[Evaluation]]:
        """Return each agent's evaluations, in the order in which they were made."""
        return [file.evaluations for file in self._files]

    @property
    def made(self) -> int:
        """Return the number of evaluations that all agents together have made."""
        return sum(len(file.evaluations) for file in self._files)

    @property
    def best_scores(self) -> list[float]:
        """Return the best score of each agent that has a score."""
        return [file.best for file in self._files if file.best > -math.inf]

    @property
    def best_score(self) -> float | None:
        """Return the mean of the agents' best scores; None without any score."""
        known = self.best_scores
        return float(np.mean(known)) if known else None

    def by_round(self, rounds: int) -> RoundHistory:
        """Return the means over the agents at the end of each of the rounds 0 .. ``rounds``."""
        return by_round(self.evaluations, rounds)


class _GrowingJournal:
    """The evaluations in one journal, to which other processes append.

    Reading continues where the last reading ended, and takes in complete lines only. A journal
    that became shorter is read from the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        """Drop all evaluations, before the file is read from the start."""
        self._end = 0
        self.evaluations: list[Evaluation] = []
        self.best = -math.inf

    def refresh(self) -> None:
        """Read the lines that are new."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._end:
                    self._forget()
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            return
        complete = data[: data.rfind(b"\n") + 1]
        # Parsing is slow, so lines of other kinds are skipped as text.
        marker = b'"kind":"' + Evaluator.KIND.encode() + b'"'
        for line in complete.split(b"\n"):
            if marker in line:
                self._add(json.loads(line))
        self._end += len(complete)

    def _add(self, record: dict[str, Any]) -> None:
        """Add an evaluation; any other record is skipped."""
        if record.pop("kind") != Evaluator.KIND:
            return
        evaluation = Evaluation(**record)
        self.evaluations.append(evaluation)
        if evaluation.score is not None:
            self.best = max(self.best, evaluation.score)


def read_evaluations(folder: Path, agents: int) -> list[list[Evaluation]]:
    """Return each agent's evaluations from its journal; raise JournalError for a damaged one."""
    histories = []
    for agent in range(agents):
        records = Journal(journal_path(folder, agent), reading=True).read(Evaluator.KIND)
        histories.append([Evaluation(**record) for record in records])
    return histories


def by_round(histories: Sequence[Sequence[Evaluation]], rounds: int) -> RoundHistory:
    """Return the means over the agents at the end of each of the rounds 0 .. ``rounds``."""
    # One row per agent and one column per round: first the evaluations made in the round, and
    # the best of the round, then sums and maxima along the rows.
    shape = (len(histories), rounds + 1)
    count, score, regret = np.zeros(shape), np.full(shape, -math.inf), np.full(shape, math.inf)
    rows = [
        (agent, e.round, e.score, e.regret)
        for agent, history in enumerate(histories)
        for e in history
        if e.round <= rounds
    ]
    if rows:
        agent, place = (np.array(column) for column in list(zip(*rows, strict=True))[:2])
        scored = np.array([r[2] is not None for r in rows])
        scores = np.array([-math.inf if r[2] is None else r[2] for r in rows])
        known = np.array([math.inf if r[3] is None else r[3] for r in rows])
        np.add.at(count, (agent, place), 1.0)
        np.maximum.at(score, (agent, place), scores)
        np.minimum.at(regret, (agent, place), np.where(scored, known, math.inf))
    has_regret = bool(np.isfinite(regret).any())
    return RoundHistory(
        evaluations=[_plain(v) for v in count.cumsum(axis=1).mean(axis=0)] if len(count) else [],
        best=_means(np.maximum.accumulate(score, axis=1)),
        regret=_means(np.minimum.accumulate(regret, axis=1)) if has_regret else None,
    )


def best_of_agent(agent: int, history: Sequence[Evaluation]) -> dict[str, Any]:
    """Return an agent's number, its number of evaluations, and its best score with parameters."""
    best = max(
        (e for e in history if e.score is not None),
        key=lambda e: -math.inf if e.score is None else e.score,
        default=None,
    )
    return {
        "agent": agent,
        "evaluations": len(history),
        "best": None if best is None else best.score,
        "params": None if best is None else best.params,
    }


def _means(values: Array) -> list[float | None]:
    """Return the mean of the finite values in each column; None where a column has none."""
    if not len(values):
        return []
    return [
        float(np.mean(column[np.isfinite(column)])) if np.isfinite(column).any() else None
        for column in values.T
    ]


def _plain(value: float) -> float:
    """Return a whole number as an int, so that files and summaries show ``5`` and not ``5.0``."""
    return int(value) if float(value).is_integer() else float(value)
