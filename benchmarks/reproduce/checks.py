"""How a verdict follows from measurements; the rule is the same for every figure.

A figure's claim is split into checks. All hold: *holds*. None: *not reproduced*. Otherwise
*holds in part*. A check rests on the mean paired difference over the seeds and its 95 % interval
(Student's t): "below" means that the interval is clear of zero, "comparable" that it lies within a
quarter of the reference's mean, "not above" that it ends below that. The best of several is below
each of the others; curves are in order if their means are and the first is below the last. With
too few seeds an interval is wide, and nothing holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Verdict: TypeAlias = Literal["holds", "holds in part", "not reproduced"]
Numbers: TypeAlias = Mapping[str, NDArray[np.float64]]
Results: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Finding:
    """One check: what it says, whether it holds, and on what evidence."""

    says: str
    holds: bool
    evidence: str
    #: Where it does not hold: in what way.
    why: str = ""


Check: TypeAlias = Callable[[Numbers, Results], Finding]


#: An interval that includes zero: the seeds are too few for what difference there may be.
UNDECIDED = "undecided"
#: Share of a mean by which a comparable one may differ.
MARGIN = 0.25


def finding(says: str, holds: bool, evidence: str, why_not: str) -> Finding:
    """A finding that says why only where it does not hold."""
    return Finding(says, holds, evidence, "" if holds else why_not)


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """All, none, or some."""
    held = sum(f.holds for f in findings)
    if held == len(findings):
        return "holds"
    return "holds in part" if held else "not reproduced"


def interval(difference: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of paired differences, and its 95 % interval; the whole line for a single one."""
    mean, count = float(difference.mean()), len(difference)
    if count < 2:
        return mean, -np.inf, np.inf
    error = float(difference.std(ddof=1)) / np.sqrt(count)
    half = float(stats.t.ppf(0.975, count - 1)) * error
    return mean, mean - half, mean + half


def _told(difference: NDArray[np.float64]) -> str:
    mean, low, high = interval(difference)
    if not np.isfinite(low):
        return f"difference {mean:+.4g}, one seed"
    told = f"difference {mean:+.4g}, 95 % [{low:+.4g}, {high:+.4g}]"
    return told + (f"; {needed(difference)} would tell" if low <= 0 <= high and mean else "")


def needed(difference: NDArray[np.float64]) -> str:
    """How many seeds a difference needs, if it stays, for an interval clear of zero."""
    ratio = float(difference.std(ddof=1) / abs(difference.mean()))
    seeds = max(len(difference) + 1.0, (1.96 * ratio) ** 2)
    return "over 1,000 seeds" if seeds > 1000 else f"about {float(f'{seeds:.2g}'):.0f} seeds"


def below(a: str, b: str) -> Check:
    """Curve a lies below curve b."""

    def check(numbers: Numbers, results: Results) -> Finding:
        found = interval(numbers[a] - numbers[b])
        opposite = "the other way round" if found[1] > 0 else UNDECIDED
        return finding(f"{a} below {b}", found[2] < 0, _told(numbers[a] - numbers[b]), opposite)

    return check


def below_all(a: str, *others: str) -> Sequence[Check]:
    """Curve a lies below each of the others."""
    return [below(a, b) for b in others]


def comparable(a: str, b: str) -> Check:
    """Curves a and b come to the same, within a margin."""

    def check(numbers: Numbers, results: Results) -> Finding:
        mean, low, high = interval(numbers[a] - numbers[b])
        margin = MARGIN * abs(float(numbers[b].mean()))
        apart = (low > 0 or high < 0) and abs(mean) > margin
        return finding(
            f"{a} comparable with {b}", -margin <= low and high <= margin,
            _within(numbers[a] - numbers[b], margin), "they differ" if apart else UNDECIDED,
        )  # fmt: skip

    return check


def not_above(a: str, b: str) -> Check:
    """Curve a lies below curve b, or no further above it than a margin."""

    def check(numbers: Numbers, results: Results) -> Finding:
        _, low, high = interval(numbers[a] - numbers[b])
        margin = MARGIN * abs(float(numbers[b].mean()))
        return finding(
            f"{a} not above {b}", high <= margin, _within(numbers[a] - numbers[b], margin),
            "it is above" if low > 0 else UNDECIDED,
        )  # fmt: skip

    return check


def _within(difference: NDArray[np.float64], margin: float) -> str:
    mean, low, high = interval(difference)
    if not np.isfinite(low):
        return f"difference {mean:+.4g}, one seed"
    return f"difference {mean:+.4g}, 95 % [{low:+.4g}, {high:+.4g}], margin {margin:.4g}"


def prints(label: str, key: str, expected: float, tolerance: float = 0.006) -> Check:
    """A number that the paper prints: every seed's ``key`` is within the tolerance of it."""

    def check(numbers: Numbers, results: Results) -> Finding:
        found = [r[key] for r in results[label]]
        holds = all(v is not None and abs(v - expected) <= tolerance for v in found)
        shown = "none" if found[0] is None else f"{found[0]:.4g}"
        return finding(f"{key} of {label} is {expected:g}", holds, f"{shown}", "another number")

    return check


def least(a: str, others: Sequence[str]) -> Check:
    """Curve a lies below all others."""

    def check(numbers: Numbers, results: Results) -> Finding:
        means = {label: float(numbers[label].mean()) for label in (a, *others)}
        shown = ", ".join(f"{label} {mean:.4g}" for label, mean in means.items())
        gaps = [interval(numbers[a] - numbers[other]) for other in others]
        beaten = any(low > 0 for _, low, _ in gaps)
        return finding(
            f"{a} is the best", all(high < 0 for _, _, high in gaps), shown,
            "another is best" if beaten else UNDECIDED,
        )  # fmt: skip

    return check


def ordered(*labels: str) -> Check:
    """The means rise from the first to the last curve, and the first lies below the last."""

    def check(numbers: Numbers, results: Results) -> Finding:
        means = [float(numbers[label].mean()) for label in labels]
        shown = ", ".join(f"{x} {m:.4g}" for x, m in zip(labels, means, strict=True))
        gap = numbers[labels[0]] - numbers[labels[-1]]
        clear, rises = interval(gap)[2] < 0, all(x <= y for x, y in pairwise(means))
        falls = interval(gap)[1] > 0
        return finding(
            " <= ".join(labels), rises and clear, f"{shown}; ends: {_told(gap)}",
            "another order" if falls or (clear and not rises) else UNDECIDED,
        )  # fmt: skip

    return check


def inside(*labels: str) -> Check:
    """The curve with the least mean is neither the first nor the last, and lies below both."""

    def check(numbers: Numbers, results: Results) -> Finding:
        best = min(labels, key=lambda label: float(numbers[label].mean()))
        gaps = [numbers[best] - numbers[end] for end in (labels[0], labels[-1])]
        within = best not in (labels[0], labels[-1])
        told = "; ".join(
            f"to {end} {_told(gap)}"
            for end, gap in zip((labels[0], labels[-1]), gaps, strict=True) if end != best
        )  # fmt: skip
        return finding(
            f"{labels[0]} and {labels[-1]} are worse than one between",
            within and all(interval(gap)[2] < 0 for gap in gaps), f"{best} is best: {told}",
            UNDECIDED if within else "an end is best",
        )  # fmt: skip

    return check


def value(
    says: str, compute: Callable[[Numbers, Results], float], holds: Callable[[float], bool]
) -> Check:
    """Any number of the measurements, and what must be true of it."""

    def check(numbers: Numbers, results: Results) -> Finding:
        found = compute(numbers, results)
        return finding(says, bool(holds(found)), f"{found:.4g}", "not so")

    return check
