"""Figures of "Federated Bayesian Optimization via Thompson Sampling".

Sec. 5 and App. D: one target, N helpers with histories of their own. RGPE and TAF get the
helpers' posteriors over the shared features, as the paper adapts them. Google glasses' recording
is not at hand: generated data of the same shape take its place, and say so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .checks import UNDECIDED, Check, below, comparable, finding, not_above, value
from .figures import Figure, Run, Size, SizeName

GRID = {
    "task": "synthetic", "strategy": "fts", "agents": 51, "rounds": 50, "measured": 1,
    "unshifted": 1, "targets": 1, "initial-points": 1, "p-schedule": "1-1/sqrt(t)",
    "messages": "once", "history-design": "random", "features": 100, "history": 40,
    "difference": 0.02,
}  # fmt: skip
ALONE = {
    "task": "synthetic", "strategy": "local-ts", "agents": 51, "rounds": 50, "measured": 1,
    "unshifted": 1, "initial-points": 1, "difference": 0.02,
}  # fmt: skip
ON_GRID: dict[SizeName, Size] = {
    "quick": Size(3, {"agents": 9, "rounds": 8, "history": 20}),
    "medium": Size(10),
    "full": Size(25),  # the paper: 5 functions, 5 initialisations of each
}
#: task, its settings, helpers, what it is called, and what must be said of the data.
DATA: dict[str, tuple[str, str, int, str, str]] = {
    "a": ("landmine", "scale=linear", 28, "landmine", ""),
    "b": (
        "glasses", "scale=linear generated=true", 37, "glasses",
        "generated data of the recording's shape: the original is not at hand",
    ),
    "c": (
        "activity", "scale=linear split=random ranges=fts", 29, "activity",
        "the 561 features derived again from the inertial windows",
    ),
}  # fmt: skip
REAL: dict[SizeName, Size] = {
    "quick": Size(2, {"helpers": 3, "observations": 6, "rounds": 4, "targets": 2}),
    "medium": Size(3, {"targets": 2}),
    "full": Size(5),
}
METHODS = {"TS": "ts", "FTS": "fts", "RGPE": "rgpe", "TAF": "taf"}


def real(letter: str, method: str, features: int = 100, **settings: Any) -> Run:
    """One method on one data set, averaged over the first agents as targets."""
    task, given, helpers, _, _ = DATA[letter]
    base = {
        "task": task, "task-settings": given, "helpers": helpers, "observations": 50,
        "rounds": 50, "features": features, "method": METHODS.get(method, method), "targets": 6,
    }  # fmt: skip
    return Run("targets", {**base, **settings})


def synthetic() -> list[Figure]:
    """Fig. 1: how M, t_n and d_n matter."""

    def fts(**settings: Any) -> Run:
        given = {k.replace("_", "-"): v for k, v in settings.items()}
        return Run("federation", {**GRID, **given})

    alone = Run("federation", ALONE)
    far = {"difference": 1.2}
    few = {f"M={m}": fts(features=m, history=40) for m in (20, 50, 100)}
    many = {f"M={m}": fts(features=m, history=100) for m in (20, 50, 100)}
    told = "each seed another function; the paper: 5 functions, 5 initialisations of each"
    return [
        Figure(
            "fts-1a", "FTS Fig. 1a", "t_n = 40: FTS is ahead of TS whatever M",
            {"TS": alone, **few}, [*[below(m, "TS") for m in few], comparable("M=100", "M=50")],
            ON_GRID, note=f"{told}; M other than 100 is not printed",
        ),
        Figure(
            "fts-1b", "FTS Fig. 1b",
            "t_n = 100: a larger M helps, and M = 100 gains from more observations",
            {"TS": alone, **many, "M=100, t=40": few["M=100"]},
            [below("M=100", "TS"), below("M=100", "M=20"), below("M=100", "M=100, t=40")],
            ON_GRID, note=told,
        ),
        Figure(
            "fts-1c", "FTS Fig. 1c",
            "agents that differ by 1.2: FTS is no worse than TS, and matches it if p_t grows "
            "faster",
            {"TS": Run("federation", {**ALONE, **far}), "FTS": fts(**far),
             "FTS, 1-1/t^2": fts(**far, p_schedule="1-1/t^2")},
            [not_above("FTS", "TS"), comparable("FTS, 1-1/t^2", "TS")],
            ON_GRID, note=told,
        ),
    ]  # fmt: skip


def on_data() -> list[Figure]:
    """Figs. 2 to 7."""
    found = []
    for letter, (_, _, _, name, note) in DATA.items():
        curves = {
            f"{method} M={m}": real(letter, method, m)
            for m in (50, 100, 150, 200)
            for method in ("FTS", "RGPE", "TAF")
        }
        checks: list[Check] = [
            below(f"FTS M={m}", f"{other} M={m}")
            for m in (50, 100, 150, 200)
            for other in ("RGPE", "TAF")
        ]
        checks.append(
            value(
                "numbers sent by RGPE over FTS, M=50",
                lambda n, r: r["RGPE M=50"][0]["numbers_sent"] / r["FTS M=50"][0]["numbers_sent"],
                lambda v: v > 1,
            )
        )
        found.append(
            Figure(
                f"fts-2{letter}", f"FTS Fig. 2{letter}",
                f"{name}: FTS ends ahead of RGPE and TAF at every M, and sends far less",
                curves, checks, REAL, measure="end", unit="error", plot="message", note=note,
            )
        )  # fmt: skip
    for letter, (_, _, _, name, note) in DATA.items():
        four = {method: real(letter, method) for method in METHODS}
        faster = [
            value(
                f"agent's seconds, {other} over FTS",
                lambda n, r, other=other: _seconds(r[other]) / _seconds(r["FTS"]),
                lambda v: v > 1,
            )
            for other in ("RGPE", "TAF")
        ]
        found.append(
            Figure(
                f"fts-3{letter}", f"FTS Fig. 3{letter}",
                f"{name}: FTS converges faster than TS, RGPE and TAF, and computes faster than "
                "RGPE and TAF",
                four, [*[below("FTS", other) for other in ("TS", "RGPE", "TAF")], *faster],
                REAL, unit="error", note=note,
            )
        )  # fmt: skip
    found.append(_scaling())
    for letter, (_, _, _, name, note) in DATA.items():
        three = {
            "TS": real(letter, "TS"), "FTS": real(letter, "FTS"),
            "FTS, t_n grows": real(letter, "fts-growing"),
        }  # fmt: skip
        found.append(
            Figure(
                f"fts-4{letter}", f"FTS Fig. 4{letter}",
                f"{name}: FTS is ahead of TS whether or not helpers go on learning",
                three, [below("FTS", "TS"), below("FTS, t_n grows", "TS")], REAL, unit="error",
                note=note,
            )
        )  # fmt: skip
    for number, letter in ((5, "a"), (6, "b"), (7, "c")):
        found.append(_by_target(number, letter))
    return found


def _seconds(made: Any) -> float:
    """What an agent computes for, in the middle of the seeds."""
    return float(np.median([r["agent_seconds"] for r in made]))


def _scaling() -> Figure:
    """Fig. 3d: total run time against the number of agents."""
    counts = (7, 14, 28)
    curves = {
        f"{method} N={n}": real("a", method, helpers=n, targets=1)
        for method in ("FTS", "RGPE", "TAF")
        for n in counts
    }

    def grows(method: str) -> Any:
        return lambda n, r: float(
            np.median(n[f"{method} N=28"]) / max(float(np.median(n[f"{method} N=7"])), 1e-9)
        )

    sizes: dict[SizeName, Size] = {
        "quick": Size(1, {"observations": 5, "rounds": 4}),
        "medium": Size(3),
        "full": Size(5),
    }
    return Figure(
        "fts-3d", "FTS Fig. 3d",
        "landmine: more agents hardly slow FTS, but slow RGPE and TAF",
        curves,
        [value("FTS, seconds at N=28 over N=7", grows("FTS"), lambda v: v < 1.5),
         value("RGPE, N=28 over N=7", grows("RGPE"), lambda v: v > 1.5),
         value("TAF, N=28 over N=7", grows("TAF"), lambda v: v > 1.5)],
        sizes, measure="agent_seconds", unit="seconds", plot="nothing",
    )  # fmt: skip


def _by_target(number: int, letter: str) -> Figure:
    """Figs. 5 to 7: each of agents 2 to 6 as the target."""
    _, _, _, name, note = DATA[letter]
    curves, checks = {}, []
    for n in range(1, 6):
        for method in ("TS", "FTS"):
            run = real(letter, method)
            given = {k: v for k, v in run.settings.items() if k != "targets"}
            curves[f"{method}, agent {n + 1}"] = Run("target", {**given, "target": n})
        checks.append(not_above(f"FTS, agent {n + 1}", f"TS, agent {n + 1}"))
    sizes: dict[SizeName, Size] = {
        "quick": Size(2, {"helpers": 6, "observations": 5, "rounds": 3}),
        "medium": Size(5),
        "full": Size(5),
    }
    return Figure(
        f"fts-{number}", f"FTS Fig. {number}",
        f"{name}, agents 2 to 6: FTS is ahead of TS for some and comparable for the others",
        curves,
        [*checks, _ahead_somewhere([f"FTS, agent {n}" for n in range(2, 7)],
                                   [f"TS, agent {n}" for n in range(2, 7)])],
        sizes, unit="error", note=note,
    )  # fmt: skip


def _ahead_somewhere(ones: list[str], others: list[str]) -> Check:
    """At least one of the pairs is clearly ahead."""
    pairs = [below(a, b) for a, b in zip(ones, others, strict=True)]

    def check(numbers: Any, results: Any) -> Any:
        ahead = [p(numbers, results) for p in pairs]
        names = [f.says for f in ahead if f.holds]
        shown = "; ".join(names) or "for none"
        return finding("FTS ahead for some", bool(names), shown, UNDECIDED)

    return check


FIGURES = [*synthetic(), *on_data()]
