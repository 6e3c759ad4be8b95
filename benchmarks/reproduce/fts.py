"""Figures of "Federated Bayesian Optimization via Thompson Sampling".

Sec. 5 and App. D: one target, N helpers with histories of their own. RGPE and TAF get the
helpers' posteriors over the shared features, as the paper adapts them. Google glasses' recording
is not at hand: generated data of the same shape take its place, and say so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .checks import Check, Finding, below, comparable, not_above, somewhere, value
from .figures import Figure, Run, Size, SizeName
from .printed import Effect

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
        "generated data of the recording's shape: the original is not available",
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
#: Agent 1 alone: the paper has 5 starts.
ONE: dict[SizeName, Size] = {
    "quick": Size(2, {"helpers": 3, "observations": 6, "rounds": 4}),
    "medium": Size(5),
    "full": Size(20),
}
#: "TAF" is the paper's form, in which helpers send their incumbents. "TAF, published" compares
#: with what the helpers' models predict at the target's points, as the method's own paper does.
PUBLISHED = {"TAF": "TAF, published"}
METHODS = {"TS": "ts", "FTS": "fts", "RGPE": "rgpe", "TAF": "taf-incumbent",
           "TAF, published": "taf"}  # fmt: skip


def real(letter: str, method: str, features: int = 100, **settings: Any) -> Run:
    """One method on one data set, averaged over the first agents as targets."""
    task, given, helpers, _, _ = DATA[letter]
    base = {
        "task": task, "task-settings": given, "helpers": helpers, "observations": 50,
        "rounds": 50, "features": features, "method": METHODS.get(method, method), "targets": 6,
    }  # fmt: skip
    return Run("targets", {**base, **settings})


def first(letter: str, method: str) -> Run:
    """One method on one data set, with agent 1 as the target."""
    given = {k: v for k, v in real(letter, method).settings.items() if k != "targets"}
    return Run("target", {**given, "target": 0})


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
    """Figs. 2 to 7; what stands in for Figs. 2 to 4 is what was run before their present form."""
    found = [replace(messages(letter, True), instead=messages(letter, False)) for letter in DATA]
    found += [
        replace(convergence(letter, True), instead=convergence(letter, False)) for letter in DATA
    ]
    found.append(_scaling())
    found += [replace(growing(letter, True), instead=growing(letter, False)) for letter in DATA]
    for number, letter in ((5, "a"), (6, "b"), (7, "c")):
        found.append(_by_target(number, letter))
    return found


def messages(letter: str, incumbents: bool) -> Figure:
    """Fig. 2: the error at the end against the length of a message."""
    _, _, _, name, note = DATA[letter]
    sent = (50, 100, 150, 200)
    curves = {
        f"{method} M={m}": real(letter, PUBLISHED.get(method, method), m)
        for m in sent
        for method in ("FTS", "RGPE", "TAF")
    }
    checks: list[Check] = [
        below(f"FTS M={m}", f"{other} M={m}") for m in sent for other in ("RGPE", "TAF")
    ]
    form = "TAF as published"
    if incumbents:
        curves["TAF, incumbents M=100"] = real(letter, "TAF", 100)
        checks.append(below("FTS M=100", "TAF, incumbents M=100"))
        form += "; at M = 100 also in FTS's form, with the helpers' incumbents"
    checks.append(
        value(
            "numbers sent by RGPE over FTS, M=50",
            lambda n, r: r["RGPE M=50"][0]["numbers_sent"] / r["FTS M=50"][0]["numbers_sent"],
            lambda v: v > 1,
        )
    )
    return Figure(
        f"fts-2{letter}", f"FTS Fig. 2{letter}",
        f"{name}: FTS ends ahead of RGPE and TAF at every M, and sends far less",
        curves, checks, REAL, measure="end", unit="error", plot="message",
        note=_joined(form, note), obstacle=_obstacle(letter),
    )  # fmt: skip


#: What stands in for figures of agent 1.
MEAN = "the mean over agents 1 to 6 instead of agent 1"


def convergence(letter: str, agent_1: bool) -> Figure:
    """Figs. 3a to 3c: the error by iteration and by run time."""
    _, _, _, name, note = DATA[letter]
    others = ("TS", "RGPE", "TAF")
    if agent_1:
        curves = {method: first(letter, method) for method in METHODS}
        form = (
            "agent 1; TAF with the helpers' incumbents, as in FTS; seconds are of CPU time, "
            "evaluations included"
        )
    else:
        curves = {m: real(letter, PUBLISHED.get(m, m)) for m in ("TS", "FTS", "RGPE", "TAF")}
        form = f"{MEAN}; TAF as published"
    checks: list[Check] = [below("FTS", other) for other in others]
    if agent_1:
        checks += [error_at_end_of("FTS", other) for other in ("RGPE", "TAF")]
    checks += [
        value(
            f"agent's seconds, {other} over FTS",
            lambda n, r, other=other: _seconds(r[other]) / _seconds(r["FTS"]),
            lambda v: v > 1,
        )
        for other in ("RGPE", "TAF")
    ]
    return Figure(
        f"fts-3{letter}", f"FTS Fig. 3{letter}",
        f"{name}: FTS converges faster than TS, RGPE and TAF, and computes faster than "
        "RGPE and TAF",
        curves, checks, ONE if agent_1 else REAL, unit="error", obstacle=_obstacle(letter),
        note=_joined(form, note),
    )  # fmt: skip


def growing(letter: str, agent_1: bool) -> Figure:
    """Fig. 4: helpers that go on learning."""
    _, _, _, name, note = DATA[letter]
    run = first if agent_1 else real
    curves = {
        "TS": run(letter, "TS"), "FTS": run(letter, "FTS"),
        "FTS, t_n grows": run(letter, "fts-growing"),
    }  # fmt: skip
    return Figure(
        f"fts-4{letter}", f"FTS Fig. 4{letter}",
        f"{name}: FTS is ahead of TS whether or not helpers go on learning",
        curves, [below("FTS", "TS"), below("FTS, t_n grows", "TS")], ONE if agent_1 else REAL,
        unit="error", note=_joined("agent 1" if agent_1 else MEAN, note),
        obstacle=_obstacle(letter),
    )  # fmt: skip


def _joined(*notes: str) -> str:
    """Notes as one."""
    return "; ".join(note for note in notes if note)


def _obstacle(letter: str) -> str:
    """Why a figure on this data cannot be decided, if it cannot."""
    if DATA[letter][0] != "glasses":
        return ""
    return "the recording is not available, and generated data prove nothing about it"


def error_at_end_of(a: str, other: str) -> Check:
    """Return the check that curve a ends below where another is after the same CPU time.

    The paper's horizontal axis is run time. A method that is slower is read where ``a`` has ended;
    one that has ended before, at its end.
    """

    def check(numbers: Any, results: Any, effect: Effect) -> Finding:
        ends = np.array([r["curve"][-1] for r in results[a]])
        reached = np.array([
            _error_after(theirs, ours["clock"][-1])
            for ours, theirs in zip(results[a], results[other], strict=True)
        ])  # fmt: skip
        told = below(a, other)({a: ends, other: reached}, results, effect)
        return replace(told, says=f"{a} below {other} when {a} has ended")

    return check


def _error_after(result: Any, seconds: float) -> float:
    """Return the error of a run after so many CPU seconds; at the first iteration at the least."""
    done = int(np.searchsorted(result["clock"], seconds, side="right"))
    return float(result["curve"][max(done - 1, 0)])


def _seconds(made: Any) -> float:
    """What an agent computes for, in the middle of the seeds."""
    return float(np.median([r["agent_seconds"] for r in made]))


def _scaling() -> Figure:
    """Fig. 3d: total run time against the number of agents."""
    counts = (7, 14, 28)
    curves = {
        f"{method} N={n}": real("a", PUBLISHED.get(method, method), helpers=n, targets=1)
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
        [*checks, somewhere("FTS ahead for some", [
            below(f"FTS, agent {n}", f"TS, agent {n}") for n in range(2, 7)])],
        sizes, unit="error", note=note, obstacle=_obstacle(letter),
    )  # fmt: skip


FIGURES = [*synthetic(), *on_data()]
