"""Which parties missed which rounds, as rows of texts for summaries and reports."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_fbo.runs.result import Result
from flwr_fbo.runs.texts import listed

#: The most parties whose missed rounds a summary lists, those that missed most first.
MOST_ABSENT = 5


def absence_rows(result: Result, most: int = MOST_ABSENT) -> list[tuple[str, str]]:
    """Return the share of replies that came and the rounds that parties missed, as rows."""
    if not result.missed or result.answered is None:
        return []
    rows = [("replies", f"{100 * result.answered:.3g} % of those expected came")]
    longest = sorted(result.missed, key=lambda m: -_rounds_missed(m["rounds"]))
    rows += [(f"party {m['party']}", missed_text(m["rounds"])) for m in longest[:most]]
    if len(longest) > most:
        rows.append(("more parties", f"{len(longest) - most} missed rounds too (result.json)"))
    return rows


def missed_text(spans: Sequence[Sequence[int]]) -> str:
    """Return which rounds a party missed, as people read it.

    Examples
    --------
    >>> missed_text([[4, 15], [18, 18]])
    'missed rounds 4 to 15 and 18'
    >>> missed_text([[7, 7]])
    'missed round 7'
    """
    parts = [f"{a}" if a == b else f"{a} to {b}" for a, b in spans]
    word = "round" if _rounds_missed(spans) == 1 else "rounds"
    return f"missed {word} {listed(parts)}"


def _rounds_missed(spans: Sequence[Sequence[int]]) -> int:
    """Return the number of rounds in spans of rounds."""
    return sum(last - first + 1 for first, last in spans)
