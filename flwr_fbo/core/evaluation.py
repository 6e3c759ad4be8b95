"""Evaluations: each is made once, and recorded before anything else happens.

An agent's records are an append-only list, and they are the agent's whole state: what the agent
does next is a function of its setup, its seed and its records. Storing the records therefore
stores the agent, and no evaluation is ever paid for twice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space, Value

ScoreFunction = Callable[[Mapping[str, Value], np.random.Generator], float]


class Records(Protocol):
    """An append-only list of JSON-ready records, each of a named kind."""

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store one record durably: the record survives a crash after this call returns."""

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return all records of a kind, oldest first."""


class MemoryRecords:
    """Records in memory, which last as long as this object."""

    def __init__(self) -> None:
        self._records: dict[str, list[dict[str, Any]]] = {}

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store a copy of one record."""
        self._records.setdefault(kind, []).append(dict(record))

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return all records of a kind, oldest first."""
        return list(self._records.get(kind, []))


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of an agent's own objective, which never leaves the agent.

    ``unit`` is the point of the unit cube, ``failure`` the reason where there is no score, and
    ``source`` what proposed the point. ``regret`` is known only where the optimum is known.
    """

    round: int
    play: int
    params: dict[str, Value]
    unit: list[float]
    score: float | None
    failure: str = ""
    source: str = ""
    seconds: float = 0.0
    regret: float | None = None

    @property
    def failed(self) -> bool:
        """Return whether the evaluation has no score."""
        return self.score is None


class Evaluator:
    """The evaluations of one agent: points are evaluated once, and looked up from then on.

    An evaluation is identified by its round and by its number within the round (``play``). The
    objective's random numbers come from a generator that depends on the seed and on this
    identity alone. ``regret`` maps parameter values to the noise-free distance from the optimum,
    where the optimum is known.
    """

    KIND = "evaluation"
    #: Part of the generators' keys. The number is far from those of an agent's own generators, so
    #: that an agent with the same seed draws other random numbers.
    STREAM = 2**31

    def __init__(
        self,
        space: Space,
        function: ScoreFunction,
        records: Records,
        seed: tuple[int, ...] = (0,),
        regret: Callable[[Mapping[str, Value]], float | None] | None = None,
    ) -> None:
        self.space = space
        self._function, self._records, self._seed = function, records, seed
        self._regret = regret
        self.history = [Evaluation(**record) for record in records.read(self.KIND)]
        self._known = {(e.round, e.play): e for e in self.history}

    def recorded(self, round: int, play: int = 0) -> Evaluation | None:
        """Return the recorded evaluation of a round and play, or None."""
        return self._known.get((round, play))

    def __call__(self, unit: Array, *, round: int, play: int = 0, source: str = "") -> Evaluation:
        """Evaluate a point of the unit cube, or return the recorded evaluation of this play."""
        known = self.recorded(round, play)
        if known is not None:
            return known
        params = self.space.from_unit(unit)
        # The regret may raise an error, so it is computed before the evaluation is paid for.
        regret = None if self._regret is None else self._regret(params)
        rng = np.random.default_rng([*self._seed, self.STREAM, round, play])
        start = time.perf_counter()
        score, failure = self._score(params, rng)
        # Failures are recorded as well, so that a failing point is not paid for twice either.
        evaluation = Evaluation(
            round=round,
            play=play,
            params=params,
            unit=[float(u) for u in unit],
            score=score,
            failure=failure,
            source=source,
            seconds=time.perf_counter() - start,
            regret=regret,
        )
        self._records.append(self.KIND, vars(evaluation))
        self.history.append(evaluation)
        self._known[round, play] = evaluation
        return evaluation

    def _score(
        self, params: Mapping[str, Value], rng: np.random.Generator
    ) -> tuple[float | None, str]:
        """Return the score and no failure, or no score and the reason."""
        # An error in the party's own code must not end the run; the record shows the error.
        try:
            score = self._function(params, rng)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"
        # numpy's numbers are accepted, but not its arrays, nor Python's bool.
        plain: Any = score.item() if isinstance(score, np.generic) else score
        if isinstance(plain, bool) or not isinstance(plain, (int, float)):
            return None, f"the score must be a number, but got {score!r}"
        if not abs(plain) <= sys.float_info.max:
            return None, f"the score must be finite, but got {score!r}"
        return float(plain), ""
