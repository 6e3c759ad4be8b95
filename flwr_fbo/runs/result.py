"""What a run achieved, computed from the agents' own journals.

A simulator owns the agents' journals and may read them; in a deployment they stay with their
owners, and the server's outcome is about rounds and privacy only. ``best`` and ``regret``
follow the agents' best score so far from the initial points (round 0) on; a round in which an
agent made no successful evaluation leaves its best as it was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation, Evaluator
from flwr_fbo.runs.journal import Journal, journal_path

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


@dataclass(frozen=True)
class Result:
    """What a run came to. Everything of ``result.json`` is here, under the same names.

    ``best``, ``regret`` and ``evaluations`` run over the rounds from 0 and are means over the
    agents; ``agents_best`` holds each agent's own best, with its parameter values. What only
    some strategies find (``recommended``, ``tree``, ...) is in ``findings``, and can be read
    like the rest: ``result.recommended``.
    """

    task: str
    metric: str
    strategy: str
    agents: int
    rounds: int
    seed: int
    evaluations: list[float]
    best: list[float | None]
    regret: list[float | None] | None
    epsilon: float | None
    delta: float | None
    private: bool
    local: bool
    failures: int
    complete: bool
    seconds: float
    run_dir: str
    agents_best: list[dict[str, Any]]
    #: What must be known before its privacy is trusted; empty where nothing is.
    notice: str = ""
    #: Why the run ended before its rounds were over; empty where it did not.
    stopped_early: str = ""
    findings: Mapping[str, Any] = field(default_factory=dict)
    compared: Mapping[str, Result] = field(default_factory=dict)
    schema: int = RESULT_SCHEMA

    def __getattr__(self, name: str) -> Any:
        findings = self.__dict__.get("findings", {})
        if name in findings:
            return findings[name]
        raise AttributeError(f"a result of {self.__dict__.get('strategy')} has no {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """JSON values, as ``result.json`` holds them."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        findings, compared = plain.pop("findings"), plain.pop("compared")
        clash = {*plain, "compared"} & set(findings)
        if clash:
            raise ValueError(f"findings must not be named as other results are, but {clash} are")
        others = {name: other.to_dict() for name, other in compared.items()}
        return {**plain, **findings, **({"compared": others} if others else {})}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The result that :meth:`to_dict` wrote."""
        if content.get("schema") != RESULT_SCHEMA:
            raise ValueError(
                f"a result must have schema {RESULT_SCHEMA}, but has {content.get('schema')!r}"
            )
        own = {f.name for f in fields(cls)} - {"findings", "compared"}
        rest = {k: v for k, v in content.items() if k not in own and k != "compared"}
        others = {n: Result.from_dict(other) for n, other in content.get("compared", {}).items()}
        plain = {key: value for key, value in content.items() if key in own}
        return cls(**plain, findings=rest, compared=others)

    @classmethod
    def read(cls, run_dir: Path | str) -> Self:
        """The result of a run that is over, wherever its directory is now."""
        content = json.loads((Path(run_dir) / "result.json").read_text())
        return cls.from_dict({**content, "run_dir": str(run_dir)})

    def to_json(self) -> str:
        """:meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row an evaluation, from the agents' journals: for a table or a data frame."""
        histories = read_evaluations(Path(self.run_dir) / "agents", self.agents)
        columns = ("round", "play", "source", "score", "failure", "seconds", "regret")
        return [
            {
                "agent": agent,
                **{name: getattr(e, name) for name in columns},
                **{f"params_{name}": value for name, value in e.params.items()},
            }
            for agent, history in enumerate(histories)
            for e in history
        ]


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
