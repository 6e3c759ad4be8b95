"""How a verdict follows from measurements; the rule is the same for every figure.

A figure's claim is split into checks. A check rests on the mean paired difference over the seeds
and its 95 % interval (Student's t), held against zero and against the least difference that the
paper's claim can mean (its *effect*, see ``printed.py``). Each check has one of three outcomes:

=====================  ===========================================================================
outcome                "a below b": the difference a - b is claimed to be <= -effect
=====================  ===========================================================================
holds                  the interval lies below zero
contradicted           the interval lies above -effect, and not below zero
cannot be decided      the interval holds both zero and -effect: the seeds are too few
=====================  ===========================================================================

"Comparable" holds where the interval lies within a quarter of the reference's mean, and is
contradicted where it lies outside; "not above" looks at the upper side alone. The best of several
is below each of the others; curves are in order if their means are and the first is below the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .printed import Effect

Outcome: TypeAlias = Literal["holds", "contradicted", "cannot be decided"]
Verdict: TypeAlias = Literal["holds", "holds in part", "contradicted", "cannot be decided"]
HOLDS: Outcome = "holds"
CONTRADICTED: Outcome = "contradicted"
UNKNOWN: Outcome = "cannot be decided"
Numbers: TypeAlias = Mapping[str, NDArray[np.float64]]
Results: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
#: Share of a mean by which a comparable one may differ.
MARGIN = 0.25
#: More seeds than this are no experiment that anyone will run.
MANY = 1000


@dataclass(frozen=True)
class Finding:
    """One check: what it says, how it comes out, and on what evidence."""

    says: str
    outcome: Outcome
    evidence: str
    #: Seeds after which it would be decided if the mean and the spread stay; 0 where it is.
    seeds_needed: int = 0

    @property
    def holds(self) -> bool:
        """Return whether the claim holds."""
        return self.outcome == HOLDS


Check: TypeAlias = Callable[[Numbers, Results, Effect], Finding]


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Return a figure's verdict: all checks hold, some do, or none does and some are refuted."""
    outcomes = [f.outcome for f in findings]
    if all(o == HOLDS for o in outcomes):
        return "holds"
    if HOLDS in outcomes:
        return "holds in part"
    return CONTRADICTED if CONTRADICTED in outcomes else UNKNOWN


def interval(difference: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean of paired differences and its 95 % interval; the whole line for one."""
    mean, count = float(difference.mean()), len(difference)
    if count < 2:
        return mean, -np.inf, np.inf
    error = float(difference.std(ddof=1)) / np.sqrt(count)
    half = float(stats.t.ppf(0.975, count - 1)) * error
    return mean, mean - half, mean + half


def decide(difference: NDArray[np.float64], effect: float) -> Outcome:
    """Return how the claim comes out that this difference is at most -effect."""
    _, low, high = interval(difference)
    if high < 0:
        return HOLDS
    return CONTRADICTED if low > -effect else UNKNOWN


def needed(difference: NDArray[np.float64], effect: float) -> int:
    """Return how many seeds would decide, if the mean and the spread stay; at most MANY + 1."""
    if len(difference) < 2:
        return 2
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    # The interval must come clear of zero from below, or of -effect from above.
    room = max(-mean, mean + effect)
    if room <= 0:
        return MANY + 1
    found = max(len(difference) + 1.0, (1.96 * deviation / room) ** 2)
    return int(min(np.ceil(found), MANY + 1))


def _compared(difference: NDArray[np.float64], effect: float) -> tuple[Outcome, str, int]:
    """Return the outcome of one comparison, its evidence, and the seeds that it still needs."""
    outcome = decide(difference, effect)
    seeds = needed(difference, effect) if outcome == UNKNOWN else 0
    told = f"{_interval_text(difference)}, claimed at most {-effect:.3g}"
    return outcome, told + _wanted(seeds), seeds


def _interval_text(difference: NDArray[np.float64]) -> str:
    mean, low, high = interval(difference)
    if not np.isfinite(low):
        return f"difference {mean:+.4g}, one seed"
    return f"difference {mean:+.4g}, 95 % [{low:+.4g}, {high:+.4g}]"


def _wanted(seeds: int) -> str:
    """Return how many seeds would decide, in words; nothing where none are needed."""
    if not seeds:
        return ""
    if seeds > MANY:
        return f"; over {MANY:,} seeds would decide"
    return f"; about {float(f'{seeds:.2g}'):.0f} seeds would decide"


def below(a: str, b: str) -> Check:
    """Return the check that curve a lies below curve b."""

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        least = effect.of(float(numbers[b].mean()))
        return Finding(f"{a} below {b}", *_compared(numbers[a] - numbers[b], least))

    return check


def below_all(a: str, *others: str) -> Sequence[Check]:
    """Return the checks that curve a lies below each of the others."""
    return [below(a, b) for b in others]


def comparable(a: str, b: str) -> Check:
    """Return the check that curves a and b come to the same, within a margin."""

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        difference = numbers[a] - numbers[b]
        _, low, high = interval(difference)
        margin = MARGIN * abs(float(numbers[b].mean()))
        inside = -margin <= low and high <= margin
        outside = low > margin or high < -margin
        outcome = HOLDS if inside else CONTRADICTED if outside else UNKNOWN
        return Finding(f"{a} comparable with {b}", outcome, *_within(difference, margin, outcome))

    return check


def not_above(a: str, b: str) -> Check:
    """Return the check that curve a lies below curve b, or no further above it than a margin."""

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        difference = numbers[a] - numbers[b]
        _, low, high = interval(difference)
        margin = MARGIN * abs(float(numbers[b].mean()))
        outcome = HOLDS if high <= margin else CONTRADICTED if low > margin else UNKNOWN
        return Finding(f"{a} not above {b}", outcome, *_within(difference, margin, outcome))

    return check


def _within(difference: NDArray[np.float64], margin: float, outcome: Outcome) -> tuple[str, int]:
    """Return the evidence of a comparison with a margin, and the seeds that it still needs."""
    seeds = 0
    if outcome == UNKNOWN:
        away = abs(margin - abs(float(difference.mean())))
        spread = float(difference.std(ddof=1)) if len(difference) > 1 else np.inf
        wanted = (1.96 * spread / away) ** 2 if away > 0 else np.inf
        seeds = int(min(max(len(difference) + 1.0, np.ceil(wanted)), MANY + 1))
    return f"{_interval_text(difference)}, margin {margin:.4g}{_wanted(seeds)}", seeds


def prints(label: str, key: str, expected: float, tolerance: float = 0.006) -> Check:
    """Return the check of a printed number: every seed's ``key`` is within the tolerance of it."""

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        found = [r[key] for r in results[label]]
        holds = all(v is not None and abs(v - expected) <= tolerance for v in found)
        shown = "none" if found[0] is None else f"{found[0]:.4g}"
        outcome = HOLDS if holds else CONTRADICTED
        return Finding(f"{key} of {label} is {expected:g}", outcome, shown)

    return check


def least(a: str, others: Sequence[str]) -> Check:
    """Return the check that curve a lies below all others."""

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        means = {label: float(numbers[label].mean()) for label in (a, *others)}
        shown = ", ".join(f"{label} {mean:.4g}" for label, mean in means.items())
        made = [_compared(numbers[a] - numbers[b], effect.of(means[b])) for b in others]
        outcome, seeds = together(made)
        return Finding(f"{a} is the best", outcome, shown + _wanted(seeds), seeds)

    return check


def together(made: Sequence[tuple[Outcome, str, int]]) -> tuple[Outcome, int]:
    """Return how several comparisons come out that must all hold, and the seeds still needed."""
    outcomes = [outcome for outcome, _, _ in made]
    if CONTRADICTED in outcomes:
        return CONTRADICTED, 0
    if UNKNOWN in outcomes:
        return UNKNOWN, max(seeds for _, _, seeds in made)
    return HOLDS, 0


def ordered(*labels: str) -> Check:
    """Return the check that means rise from the first to the last curve, which lie apart.

    Two neighbours that are clearly the other way round contradict it.
    """

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        means = [float(numbers[label].mean()) for label in labels]
        shown = ", ".join(f"{x} {m:.4g}" for x, m in zip(labels, means, strict=True))
        gap = numbers[labels[0]] - numbers[labels[-1]]
        outcome, told, seeds = _compared(gap, effect.of(means[-1]))
        steps = [numbers[x] - numbers[y] for x, y in pairwise(labels)]
        if any(interval(step)[1] > 0 for step in steps):
            outcome, seeds = CONTRADICTED, 0
        elif outcome == HOLDS and any(x > y for x, y in pairwise(means)):
            wrong = [step for step in steps if step.mean() > 0]
            outcome, seeds = UNKNOWN, max(needed(-step, 0.0) for step in wrong)
            told += _wanted(seeds)
        return Finding(" <= ".join(labels), outcome, f"{shown}; ends: {told}", seeds)

    return check


def inside(*labels: str) -> Check:
    """Return the check that a curve between the first and the last lies below both of these."""

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        ends, middle = (labels[0], labels[-1]), labels[1:-1]
        best = min(middle, key=lambda label: float(numbers[label].mean()))
        made = {
            label: [_compared(numbers[label] - numbers[end], effect.of(float(numbers[end].mean())))
                    for end in ends]
            for label in middle
        }  # fmt: skip
        told = "; ".join(f"to {end} {text}" for end, (_, text, _) in zip(ends, made[best],
                                                                        strict=True))  # fmt: skip
        outcomes = [together(found)[0] for found in made.values()]
        outcome = HOLDS if HOLDS in outcomes else UNKNOWN if UNKNOWN in outcomes else CONTRADICTED
        seeds = together(made[best])[1] if outcome == UNKNOWN else 0
        return Finding(
            f"{labels[0]} and {labels[-1]} are worse than one between", outcome,
            f"of those between, {best} is best: {told}", seeds,
        )  # fmt: skip

    return check


def value(
    says: str, compute: Callable[[Numbers, Results], float], holds: Callable[[float], bool]
) -> Check:
    """Return the check of any number of the measurements, and what must be true of it."""

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        found = compute(numbers, results)
        return Finding(says, HOLDS if holds(found) else CONTRADICTED, f"{found:.4g}")

    return check


def somewhere(says: str, pairs: Sequence[Check]) -> Check:
    """Return the check that at least one of several checks holds."""

    def check(numbers: Numbers, results: Results, effect: Effect) -> Finding:
        made = [pair(numbers, results, effect) for pair in pairs]
        outcomes = [f.outcome for f in made]
        names = "; ".join(f.says for f in made if f.holds)
        if names:
            return Finding(says, HOLDS, names)
        if UNKNOWN in outcomes:
            seeds = min(f.seeds_needed for f in made if f.seeds_needed)
            return Finding(says, UNKNOWN, "for none" + _wanted(seeds), seeds)
        return Finding(says, CONTRADICTED, "for none, and each is contradicted")

    return check
