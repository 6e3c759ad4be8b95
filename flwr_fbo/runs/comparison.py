r"""The comparison of a run with a baseline: evaluations saved, and the difference in score.

Notation

=====================  ==============================================  ==========
symbol                 here                                            shape
=====================  ==============================================  ==========
b_nk                   ``best_after(histories)[n, k - 1]``: the best    (N, K)
                       score of agent n after k evaluations
B_k                    its mean over the agents                        (K,)
d_n                    the difference of agent n: ours less theirs     (N,)
=====================  ==============================================  ==========

**Evaluations saved.** The score to reach is min(B_K of ours, B_K of theirs), so both runs reach it.
``ours`` and ``theirs`` are the smallest k with B_k at least this score. So a baseline that reached
its last score early is not charged for the evaluations that it made afterwards.

**Difference.** Agents differ in their data far more than strategies do, so scores are compared
agent by agent. The interval is Student's, over the agents of this run. A private run draws its
noise once for all agents, and another run draws other noise: the interval does not hold that part.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from scipy import stats

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation

#: Probability that an interval is made for.
LEVEL = 0.95
#: Means of the same scores differ by rounding; a score this close below counts as reached.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Difference:
    """A mean difference over the agents, ours less theirs, and its 95 % interval.

    Parameters
    ----------
    mean : float
        The mean difference.
    low, high : float, optional
        The ends of the interval; None with a single agent, which has no interval.

    Examples
    --------
    >>> Difference(0.02, 0.01, 0.03).verdict
    'better'
    >>> str(Difference(0.02, -0.01, 0.05))
    '+0.020 (-0.010 to 0.050)'
    """

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        """Return what the interval says: better, worse, equal or unclear."""
        if self.low is None or self.high is None:
            return "unclear"
        if self.low == self.high == 0.0:
            return "equal"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "unclear"

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:+.3f}"
        return f"{self.mean:+.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Saving:
    """What a run saved and gained, compared with one baseline.

    Parameters
    ----------
    score : float
        The score that both runs reached: the lower of their last mean best scores.
    ours, theirs : int
        The evaluations of an agent after which the mean best score of this run, and of the
        baseline, was at least ``score``.
    at_end : Difference
        The difference between the best scores after the last evaluation.
    over_run : Difference
        The difference between the best scores, averaged over all numbers of evaluations.
    agents : int
        The number of agents compared: those with a score in both runs.
    won, lost : int
        The number of agents whose last best score is higher, and lower, than in the baseline.

    Examples
    --------
    >>> end = Difference(0.02, 0.01, 0.03)
    >>> saving = Saving(0.8, 9, 22, end, end, agents=30, won=20, lost=2)
    >>> saving.text
    '9 instead of 22'
    """

    score: float
    ours: int
    theirs: int
    at_end: Difference
    over_run: Difference
    agents: int
    won: int
    lost: int

    @property
    def text(self) -> str:
        """Return the evaluations of both runs in words."""
        if self.ours == self.theirs:
            return f"{self.ours}, the same"
        return f"{self.ours} instead of {self.theirs}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the saving that :meth:`to_dict` wrote."""
        both = {name: Difference(**content[name]) for name in ("at_end", "over_run")}
        return cls(**{**content, **both})


def best_after(histories: Sequence[Sequence[Evaluation]], length: int) -> Array:
    """Return the best score of each agent after 1, 2, ... evaluations; -inf before a score: (N, K).

    An agent with fewer evaluations keeps its last best score.
    """
    scores = np.full((len(histories), length), -np.inf)  # a failure has no score
    for agent, history in enumerate(histories):
        values = [-np.inf if e.score is None else e.score for e in history]
        scores[agent, : len(values)] = values
    return np.asarray(np.maximum.accumulate(scores, axis=1))


def compare(
    ours: Sequence[Sequence[Evaluation]], theirs: Sequence[Sequence[Evaluation]]
) -> Saving | None:
    """Return the comparison of two runs of the same agents; None where no agent has two scores.

    Parameters
    ----------
    ours, theirs
        Each agent's evaluations, in the order in which they were made.
    """
    length = max((len(h) for h in (*ours, *theirs)), default=0)
    if not length or len(ours) != len(theirs):
        return None
    mine, others = best_after(ours, length), best_after(theirs, length)
    scored = np.isfinite(mine[:, -1]) & np.isfinite(others[:, -1])
    if not scored.any():
        return None
    mine, others = mine[scored], others[scored]
    curve, their_curve = mine.mean(axis=0), others.mean(axis=0)
    target = float(min(curve[-1], their_curve[-1]))
    last = mine[:, -1] - others[:, -1]
    # A mean over evaluations begins when both runs have a score at every agent.
    both = np.isfinite(mine).all(axis=0) & np.isfinite(others).all(axis=0)
    along = (mine[:, both] - others[:, both]).mean(axis=1)
    return Saving(
        score=target,
        ours=_first(curve, target),
        theirs=_first(their_curve, target),
        at_end=_difference(last),
        over_run=_difference(along),
        agents=int(scored.sum()),
        won=int((last > 0).sum()),
        lost=int((last < 0).sum()),
    )


def _first(curve: Array, target: float) -> int:
    """Return the smallest number of evaluations after which the mean best is the target."""
    slack = ROUNDING * max(1.0, abs(target))
    return int(np.flatnonzero(curve >= target - slack)[0]) + 1


def _difference(values: Array) -> Difference:
    """Return the mean of differences and Student's interval around the mean."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return Difference(mean)
    error = float(values.std(ddof=1)) / np.sqrt(count)
    half = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * error
    return Difference(mean, mean - half, mean + half)


def folder_of(label: str) -> str:
    """Return the name of a baseline's folder: its label, without characters that paths lack.

    Examples
    --------
    >>> folder_of("random"), folder_of("dp-fts-de epsilon=2")
    ('random', 'dp-fts-de_epsilon=2')
    """
    plain = re.sub(r"[^A-Za-z0-9.=-]", "_", label)
    if len(plain) <= 80:
        return plain
    return f"{plain[:60]}-{hashlib.sha256(label.encode()).hexdigest()[:12]}"
