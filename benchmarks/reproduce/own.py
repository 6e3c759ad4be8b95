"""Figures of our own, of two questions that the papers' figures leave.

What is the broadcast worth beside a random vector? And where does sharing pay on the papers' data,
once the shared function is readable?

DP-FTS-DE's features have a length scale of .01 of the box and fit raw scores, so that a shared
function is flat but for spikes at the points evaluated. Here the length scale is .2 and scores are
standardised; everything else is the paper's. Without privacy, as the question is what sharing can
give: how many parties it takes, and for how many rounds the gain lasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .checks import below, interval
from .dp_fts_de import (
    ACTIVITY,
    HAR_NOTE,
    LANDMINE,
    NO_CLIP,
    TABLES,
    TABLES_NOTE,
    Settings,
    de,
    dp,
    ts,
)
from .figures import Figure, Run, Size, SizeName

#: Rounds of our own figures.
ROUNDS = 20
READABLE = {"feature-lengthscale": 0.2, "standardise": True}
SIZES: dict[SizeName, Size] = {
    "quick": Size(2, {"agents": 4, "rounds": 2}), "medium": Size(3), "full": Size(5),
}  # fmt: skip


#: What the tables of where sharing pays come to.
PAYS: Mapping[str, str] = {
    "own-a": "Sharing gains a little between rounds 5 and 15: .005 to .02, of an error of .2 to "
    ".25. The gain is clear of chance for 10 parties from round 5 on, and for 5 and 29 parties "
    "around rounds 8 and 10.",
    "own-b": "With 30 parties sharing gains .02 in rounds 2 to 5, of an error of .08 to .13, and "
    "nothing by round 20. With 10 parties it gains nothing, and with 5 it costs. At the start it "
    "costs with any number, as agents begin in their own sub-region.",
}


def pays(of: Settings, letter: str, data: str, counts: tuple[int, ...], note: str) -> Figure:
    """TS and FTS-DE in federations of several sizes, over the first twenty rounds."""
    curves: dict[str, Run] = {}
    for count in counts:
        given: dict[str, Any] = {
            **of,
            **TABLES[of["task"]],
            "rounds": ROUNDS,
            "agents": count,
            **READABLE,
        }
        curves[f"TS N={count}"] = ts(given)
        curves[f"FTS-DE N={count}"] = de(given, clip=NO_CLIP)
    return Figure(
        f"own-{letter}", f"Our own, {data}",
        f"{data}, length scale .2 and standardised scores: FTS-DE is ahead of TS in the first "
        "twenty rounds, whatever N",
        curves, [below(f"FTS-DE N={n}", f"TS N={n}") for n in counts], SIZES, unit="error",
        note=f"{note}{'; ' * bool(note)}length scale of the features .2 instead of .01, "
        f"standardised scores, 20 rounds; {TABLES_NOTE[of['task']]}",
    )  # fmt: skip


def paying(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return a table of how far FTS-DE is ahead of TS: rows are numbers of parties, columns rounds.

    A star marks rounds in which the 95 % interval of the difference lies below zero.
    """
    counts = [label.removeprefix("TS ") for label in results if label.startswith("TS ")]
    kept = len(next(iter(results.values()))[0]["curve"])
    rounds = [round(i * ROUNDS / (kept - 1)) for i in range(kept)]
    lines = [f"| after round | {' | '.join(map(str, rounds))} |", "|---" * (kept + 1) + "|"]
    for count in counts:
        curves = [np.array([r["curve"] for r in results[f"{name} {count}"]])
                  for name in ("FTS-DE", "TS")]  # fmt: skip
        cells = [_cell(column) for column in (curves[0] - curves[1]).T]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(difference: Any) -> str:
    """Return a mean difference, with a star where its interval lies below zero."""
    mean, _, high = interval(difference)
    star = "*" if high < 0 else ""
    return f"{mean:+.4f}{star}"


def placebo(of: Settings, letter: str, data: str, note: str) -> Figure:
    """Is the broadcast of DP-FTS-DE worth more than a random vector, or than points at random?"""
    private = dp(of, 0.35, 1.0).settings
    return Figure(
        f"own-{letter}", f"Our own, {data}, placebo",
        f"{data}, the paper's settings: points that the broadcast proposes have smaller errors "
        "than those of a random vector of its length, and than points at random",
        {"broadcast": Run("advice", private),
         "random vector": Run("advice", {**private, "placebo": True}),
         "points at random": Run("random_points", {**of, "draws": 30})},
        [below("broadcast", "random vector"), below("broadcast", "points at random")],
        {**SIZES, "full": Size(10)}, measure="advised", unit="error", plot="nothing",
        note=f"{note}{'; ' * bool(note)}q = .35, z = 1, the first ten rounds",
    )  # fmt: skip


FIGURES = [
    pays(LANDMINE, "a", "landmine", (5, 10, 29), ""),
    pays(ACTIVITY, "b", "activity", (5, 10, 30), HAR_NOTE),
    placebo(LANDMINE, "c", "landmine", ""),
    placebo(ACTIVITY, "d", "activity", HAR_NOTE),
]
