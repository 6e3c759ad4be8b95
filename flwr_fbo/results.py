"""What a run achieved, computed from the agents' own journals.

A simulator owns the agents' journals and may read them; in a deployment they stay with their
owners, and the server's outcome is about rounds and privacy only. ``best`` and ``regret``
follow the agents' best score so far from the initial points (round 0) on; a round in which an
agent made no successful evaluation leaves its best as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.clients.base import journal_path
from flwr_fbo.core.evaluation import Evaluation, Evaluator
from flwr_fbo.core.space import Array
from flwr_fbo.journal import Journal

RESULT_SCHEMA = 1


@dataclass(frozen=True)
class Outcome:
    """The part of a result that can be computed from evaluations alone.

    Lists run over the rounds from 0; means are over the agents that have a score by then.
    """

    evaluations: list[float]
    best: list[float | None]
    regret: list[float | None] | None
    failed_evaluations: int
    agents: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def read_evaluations(folder: Path, agents: int) -> list[list[Evaluation]]:
    """Each agent's evaluations, in the order in which they were made."""
    histories = []
    for agent in range(agents):
        path = journal_path(folder, agent)
        records = Journal(path, reading=True).read(Evaluator.KIND)
        histories.append([Evaluation(**record) for record in records])
    return histories


def outcome(histories: Sequence[Sequence[Evaluation]], rounds: int) -> Outcome:
    """What agents achieved by each of the rounds 0 .. rounds."""
    count = np.zeros((len(histories), rounds + 1))
    score = np.full((len(histories), rounds + 1), -math.inf)
    regret = np.full((len(histories), rounds + 1), math.inf)
    for agent, history in enumerate(histories):
        for e in history:
            if e.round > rounds:
                continue
            count[agent, e.round] += 1
            if e.score is not None:
                score[agent, e.round] = max(score[agent, e.round], e.score)
            if e.score is not None and e.regret is not None:
                regret[agent, e.round] = min(regret[agent, e.round], e.regret)
    known = bool(np.isfinite(regret).any())
    return Outcome(
        evaluations=[_tidy(v) for v in count.cumsum(axis=1).mean(axis=0)],
        best=_means(np.maximum.accumulate(score, axis=1)),
        regret=_means(np.minimum.accumulate(regret, axis=1)) if known else None,
        failed_evaluations=sum(e.failed for history in histories for e in history),
        agents=[_best_of(agent, history) for agent, history in enumerate(histories)],
    )


def _means(values: Array) -> list[float | None]:
    """Mean over the agents that have a finite value, by column; None where nobody has."""
    return [
        float(np.mean(column[np.isfinite(column)])) if np.isfinite(column).any() else None
        for column in values.T
    ]


def _best_of(agent: int, history: Sequence[Evaluation]) -> dict[str, Any]:
    scored = [e for e in history if e.score is not None]
    if not scored:
        return {"agent": agent, "evaluations": len(history), "best": None, "params": None}
    best = max(scored, key=lambda e: -math.inf if e.score is None else e.score)
    return {
        "agent": agent,
        "evaluations": len(history),
        "best": best.score,
        "params": best.params,
    }


def _tidy(value: float) -> float:
    return int(value) if float(value).is_integer() else float(value)
