"""Paying for evaluations: each is made once, recorded before anything else, and never lost.

An agent's memory is an append-only list of records. It is the agent's state: what an agent
would do next is a function of its setup, its seed and its records, so storing them is storing
the agent, and an evaluation that has been paid for is never paid for again.
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
        """Store one record; when this returns, it survives."""

    def read(self, kind: str) -> list[dict[str, Any]]:
        """All records of a kind, oldest first."""


class MemoryRecords:
    """Records that live as long as this object."""

    def __init__(self) -> None:
        self._records: dict[str, list[dict[str, Any]]] = {}

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """See :class:`Records`."""
        self._records.setdefault(kind, []).append(dict(record))

    def read(self, kind: str) -> list[dict[str, Any]]:
        """See :class:`Records`."""
        return list(self._records.get(kind, []))


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of an agent's own objective. It never leaves the agent."""

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
        """Whether there is no score."""
        return self.score is None


class Evaluator:
    """Evaluates points of the search space for one agent, and remembers.

    An evaluation is identified by its round and by its number within the round (``play``);
    asking again returns the recorded one. The objective's own randomness is a generator that
    depends on the seed and on that identity only. ``regret`` maps parameter values to the
    noise-free distance from the optimum, where that is known.
    """

    KIND = "evaluation"
    #: Part of the generator's key: no purpose of an agent that happens to have the same seed.
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
        """The evaluation already made under this identity, if any."""
        return self._known.get((round, play))

    def __call__(self, unit: Array, *, round: int, play: int = 0, source: str = "") -> Evaluation:
        """The evaluation of a point of the unit cube, made now unless it has been before."""
        known = self.recorded(round, play)
        if known is not None:
            return known
        params = self.space.from_unit(unit)
        regret = None if self._regret is None else self._regret(params)  # may fail: before paying
        rng = np.random.default_rng([*self._seed, self.STREAM, round, play])
        start = time.perf_counter()
        score, failure = self._score(params, rng)
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
        # Whatever the owner's code does wrong is the owner's to see, and the run goes on.
        try:
            score = self._function(params, rng)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"
        plain: Any = score.item() if isinstance(score, np.generic) else score
        if isinstance(plain, bool) or not isinstance(plain, (int, float)):
            return None, f"the score must be a number, but got {score!r}"
        if not abs(plain) <= sys.float_info.max:
            return None, f"the score must be finite, but got {score!r}"
        return float(plain), ""
