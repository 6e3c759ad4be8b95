"""Figures of "Federated X-armed Bandit" (Fed-PNE): Sec. 4 and App. E.

Ten clients and T = 1000 unless said. Centralised methods run on the global objective; one of
their evaluations is one of every client. A client's pulls of one point of a data set are one
training, as its score is deterministic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .checks import below, inside, ordered, value
from .figures import Figure, Run, Size, SizeName

TASKS: dict[str, tuple[str, str, str]] = {
    "a": ("garland", "", "Garland"),
    "b": ("doublesine", "", "DoubleSine"),
    "c": ("landmine-global", "scale=linear", "landmine"),
    "d": ("vaccine", "", "COVID-19 vaccine dosage"),
    "m": ("mnist", "scale=linear", "MNIST"),
}
PAPERS_ARMS = 10
#: Our KernelTS, on the whole interval and with a narrower posterior, beside the public code's.
OURS = "KernelTS, ours"
OFFSETS = "clients' offsets are constants, as the paper says; FN-UCB is ours"


def fed_pne(letter: str, clients: int = 10, **settings: Any) -> Run:
    """Fed-PNE with the paper's nu, rho, c and c_1."""
    task, given, _ = TASKS[letter]
    base = {"method": "fed-pne", "task": task, "task-settings": given, "clients": clients}
    return Run("pulls", {**base, "budget": 1000, **settings})


def other(letter: str, method: str, **settings: Any) -> Run:
    """A comparator."""
    task, given, _ = TASKS[letter]
    base = {"method": method, "task": task, "task-settings": given, "clients": 10}
    return Run("pulls", {**base, "budget": 1000, **settings})


def on_arms(letter: str, method: str, **settings: Any) -> Run:
    """A comparator on finitely many arms (finite_arms.py)."""
    return Run("finite_arms", dict(other(letter, method, **settings).settings))


def size(
    quick: dict[str, Any], medium: int, smaller: dict[str, Any] | None = None
) -> dict[SizeName, Size]:
    return {
        "quick": Size(2, {"budget": 60, **quick}),
        "medium": Size(medium, smaller or {}),
        "full": Size(10),
    }


def regrets() -> list[Figure]:
    """Fig. 2: cumulative regret against the comparators."""
    found = []
    for letter in "abcd":
        ours = other(letter, "kernel-ts")
        public = {"KernelTS": on_arms(letter, "kernel-ts-public"), OURS: ours}
        told = "KernelTS is the public code's, with 100 arms; ours stands beside it without a check"
        figure = against(letter, public, f"{OFFSETS}; {told}")
        stand_in = against(letter, {"KernelTS": ours}, f"{OFFSETS}; KernelTS is ours")
        found.append(replace(figure, instead=stand_in))
    return found


def against(letter: str, kernel_ts: dict[str, Run], note: str) -> Figure:
    """One panel of Fig. 2, with some form of KernelTS."""
    name = TASKS[letter][2]
    curves = {
        "Fed-PNE": fed_pne(letter),
        "HCT": other(letter, "hct"),
        "Fed1-UCB": other(letter, "fed1-ucb", arms=PAPERS_ARMS),
        "FN-UCB": other(letter, "fn-ucb"),
        **kernel_ts,
    }
    return Figure(
        f"fed-pne-2{letter}", f"Fed-PNE Fig. 2{letter}",
        f"{name}: Fed-PNE has the smallest cumulative regret",
        curves, [below("Fed-PNE", x) for x in curves if x not in ("Fed-PNE", OURS)],
        size({"clients": 3}, 10 if letter in "ab" else 5), measure="end", unit="regret at T",
        note=note, needs=("PyXAB",),
    )  # fmt: skip


def arms() -> list[Figure]:
    """Fig. 3: too few arms miss the optimum, too many leave no budget."""
    found = []
    for letter in "ab":
        name = TASKS[letter][2]
        counts = (3, 5, 10, 20, 50, 100)
        curves = {f"K={k}": other(letter, "fed1-ucb", arms=k) for k in counts}
        found.append(
            Figure(
                f"fed-pne-3{letter}", f"Fed-PNE Fig. 3 ({name})",
                f"{name}: Fed1-UCB does worse with too few and with too many arms",
                curves,
                [inside(*curves)],
                size({"clients": 3}, 10), measure="end", unit="regret at T",
                note="the paper's K are not printed",
            )
        )  # fmt: skip
    return found


def with_bo() -> list[Figure]:
    """Fig. 4: Bayesian optimisation of the global objective, and batched."""
    found = []
    for letter in "ab":
        name = TASKS[letter][2]
        improvement = beside_bo(
            letter, on_arms(letter, "gp-ei"),
            "KernelTS is the public code's with 100 arms; BO is a Gaussian process with "
            "expected improvement on 1,001 arms, GPyOpt's default",
        )  # fmt: skip
        bounds = beside_bo(letter, other(letter, "gp-ucb"),
                           "KernelTS is the public code's with 100 arms; BO is GP-UCB")  # fmt: skip
        batched = {
            "Fed-PNE": fed_pne(letter, budget=100),
            "BBO": other(letter, "optuna-batch", budget=100),
        }
        found += [
            replace(improvement, instead=bounds),
            Figure(
                f"fed-pne-4{letter}-batched", f"Fed-PNE Fig. 4 ({name}), batched BO",
                f"{name}: batched BO does no better than Fed-PNE in the T = 100 that it can do",
                batched, [below("Fed-PNE", "BBO")], size({"clients": 3}, 4), measure="end",
                unit="regret at T", note="batched BO is Optuna's TPE", needs=("optuna",),
            ),
        ]  # fmt: skip
    return found


def beside_bo(letter: str, bo: Run, note: str) -> Figure:
    """One panel of Fig. 4, with some form of BO."""
    name = TASKS[letter][2]
    curves = {
        "Fed-PNE": fed_pne(letter), "HCT": other(letter, "hct"),
        "KernelTS": on_arms(letter, "kernel-ts-public"), "BO": bo,
    }  # fmt: skip
    return Figure(
        f"fed-pne-4{letter}", f"Fed-PNE Fig. 4 ({name})",
        f"{name}: neither HCT, KernelTS nor BO does better than Fed-PNE",
        curves, [below("Fed-PNE", x) for x in curves if x != "Fed-PNE"],
        size({"clients": 3}, 4), measure="end", unit="regret at T", needs=("PyXAB",), note=note,
    )  # fmt: skip


def plots() -> Figure:
    """Fig. 5: the functions themselves."""
    curves = {
        TASKS[letter][2]: Run("shape", {"task": TASKS[letter][0], "points": 200_001})
        for letter in "ab"
    }

    def peaks(label: str) -> Any:
        return lambda n, r: float(r[label][0]["local_maxima"])

    def gap(label: str) -> Any:
        return lambda n, r: abs(r[label][0]["value"] - r[label][0]["optimum"])

    many = [value(f"{x}: local maxima", peaks(x), lambda v: v >= 10) for x in curves]
    found = [value(f"{x}: stated optimum missed by", gap(x), lambda v: v < 1e-3) for x in curves]
    one: dict[SizeName, Size] = {"quick": Size(1), "medium": Size(1), "full": Size(1)}
    return Figure(
        "fed-pne-5", "Fed-PNE Fig. 5", "both functions have many local optima and one best",
        curves, [*many, *found], one, measure="value", unit="maximum", plot="nothing",
    )  # fmt: skip


def clients() -> list[Figure]:
    """Fig. 6: more clients, less regret."""
    found = []
    for letter in "abcd":
        name = TASKS[letter][2]
        counts = (5, 10, 20, 29) if letter == "c" else (10, 50, 100)
        curves = {f"M={m}": fed_pne(letter, m) for m in counts}
        labels = [f"M={m}" for m in counts]
        found.append(
            Figure(
                f"fed-pne-6{letter}", f"Fed-PNE Fig. 6{letter}",
                f"{name}: more clients have less regret each",
                curves, [ordered(*labels[::-1]), below(labels[-1], labels[0])],
                size({"budget": 30}, 10 if letter in "ab" else 5), measure="end",
                unit="regret at T",
                note="" if letter in "ab" else "the paper's M are not printed",
            )
        )  # fmt: skip
    return found


def communication() -> Figure:
    """Fig. 7: rounds and numbers sent grow with the logarithm of T."""
    curves = {
        TASKS[letter][2]: Run("phases", {"task": TASKS[letter][0], "clients": 10, "digits": 4})
        for letter in "ab"
    }

    def straight(label: str, key: str) -> Any:
        """R^2 of a straight line in log T."""

        def compute(numbers: Any, results: Any) -> float:
            found = results[label][0]
            return float(np.corrcoef(np.log(found["budgets"]), found[key])[0, 1] ** 2)

        return compute

    checks = [
        value(f"{label}, {key}: R^2 of a line in log T", straight(label, key), lambda v: v >= 0.9)
        for label in curves
        for key in ("rounds", "sent")
    ]
    one: dict[SizeName, Size] = {
        "quick": Size(1, {"digits": 2}), "medium": Size(1), "full": Size(1),
    }  # fmt: skip
    return Figure(
        "fed-pne-7", "Fed-PNE Fig. 7",
        "communication rounds and numbers sent are logarithmic in T",
        curves, checks, one, measure="value", unit="rounds", plot="nothing",
        note="without noise, so that T can grow to 10^7",
    )  # fmt: skip


def mnist() -> list[Figure]:
    """Fig. 8: networks on MNIST."""
    curves = {
        "Fed-PNE": fed_pne("m"), "HCT": other("m", "hct"),
        "Fed1-UCB": other("m", "fed1-ucb", arms=5), "FN-UCB": other("m", "fn-ucb", arms=5),
    }  # fmt: skip
    by_count = {f"M={m}": fed_pne("m", m) for m in (5, 10, 20)}
    return [
        Figure(
            "fed-pne-8a", "Fed-PNE Fig. 8a", "MNIST: Fed-PNE has the smallest cumulative regret",
            curves, [below("Fed-PNE", x) for x in curves if x != "Fed-PNE"],
            size({"clients": 2, "budget": 20, "arms": 2}, 3), measure="end", unit="regret at T",
            note="regret is of the clients' own accuracies; five arms in each dimension",
            needs=("PyXAB",),
        ),
        Figure(
            "fed-pne-8b", "Fed-PNE Fig. 8b", "MNIST: more clients have less regret each",
            by_count, [ordered("M=20", "M=10", "M=5"), below("M=20", "M=5")],
            size({"budget": 10}, 3), measure="end", unit="regret at T",
            note="the paper's M are not printed",
        ),
    ]  # fmt: skip


FIGURES = [*regrets(), *arms(), *with_bo(), plots(), *clients(), communication(), *mnist()]
