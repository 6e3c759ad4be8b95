"""All agents' evaluations of a run, and what they come to round by round.

A simulation owns the agents' journals and may read them; in a deployment the journals stay with
their owners, and there is no history. Progress, stopping rules, trackers, report and result
all read the same :class:`RunHistory`, so that each journal is parsed once.

Means are over the agents that have a score by then. The best so far begins with the initial
points (round 0); a round without a successful evaluation leaves an agent's best as it was.
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
    """What the agents achieved by each of the rounds 0, 1, ...

    Parameters
    ----------
    evaluations
        Mean number of evaluations an agent has made.
    best
        Mean of the agents' best scores; None before any agent has a score.
    regret
        Mean of the agents' lowest regrets; None where the optimum is not known.
    """

    evaluations: list[float]
    best: list[float | None]
    regret: list[float | None] | None = None

    @property
    def best_score(self) -> float | None:
        """Return the mean of the agents' best scores in the end; None without any score."""
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
        self._files = [_Growing(journal_path(folder, agent)) for agent in range(agents)]

    def refresh(self) -> RunHistory:
        """Read what was appended to the journals since the last time."""
        for file in self._files:
            file.refresh()
        return self

    @property
    def evaluations(self) -> list[list[Evaluation]]:
        """Return each agent's evaluations, in the order in which they were made."""
        return [file.evaluations for file in self._files]

    @property
    def made(self) -> int:
        """Return how many evaluations all agents together have made."""
        return sum(len(file.evaluations) for file in self._files)

    @property
    def best_scores(self) -> list[float]:
        """Return each agent's best score; agents without a score are left out."""
        return [file.best for file in self._files if file.best > -math.inf]

    @property
    def best_score(self) -> float | None:
        """Return the mean of the agents' best scores; None without any score."""
        known = self.best_scores
        return float(np.mean(known)) if known else None

    def by_round(self, rounds: int) -> RoundHistory:
        """Return what the agents achieved by each of the rounds 0 .. ``rounds``."""
        return by_round(self.evaluations, rounds)


class _Growing:
    """The evaluations in one journal, which other processes append to.

    Only lines that end are taken in, from where the last reading ended. A journal that became
    shorter is read anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._end = 0
        self.evaluations: list[Evaluation] = []
        self.best = -math.inf

    def refresh(self) -> None:
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._end:
                    self._forget()
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        marker = b'"kind":"' + Evaluator.KIND.encode() + b'"'
        for line in whole.split(b"\n"):
            if marker in line:
                self._take(json.loads(line))
        self._end += len(whole)

    def _take(self, record: dict[str, Any]) -> None:
        if record.pop("kind") != Evaluator.KIND:
            return
        evaluation = Evaluation(**record)
        self.evaluations.append(evaluation)
        if evaluation.score is not None:
            self.best = max(self.best, evaluation.score)


def read_evaluations(folder: Path, agents: int) -> list[list[Evaluation]]:
    """Return each agent's evaluations from its journal; a damaged journal is an error."""
    histories = []
    for agent in range(agents):
        records = Journal(journal_path(folder, agent), reading=True).read(Evaluator.KIND)
        histories.append([Evaluation(**record) for record in records])
    return histories


def by_round(histories: Sequence[Sequence[Evaluation]], rounds: int) -> RoundHistory:
    """Return what agents achieved by each of the rounds 0 .. ``rounds``."""
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
        evaluations=[_tidy(v) for v in count.cumsum(axis=1).mean(axis=0)] if len(count) else [],
        best=_means(np.maximum.accumulate(score, axis=1)),
        regret=_means(np.minimum.accumulate(regret, axis=1)) if has_regret else None,
    )


def best_of_agent(agent: int, history: Sequence[Evaluation]) -> dict[str, Any]:
    """Return an agent's number, its evaluations, its best score and the parameters of that."""
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
    """Return the mean of each column over its finite values; None where there is none."""
    if not len(values):
        return []
    return [
        float(np.mean(column[np.isfinite(column)])) if np.isfinite(column).any() else None
        for column in values.T
    ]


def _tidy(value: float) -> float:
    return int(value) if float(value).is_integer() else float(value)
