"""How a verdict follows from measurements; the rule is the same for every figure.

A figure's claim is split into checks. All hold: *holds*. None: *not reproduced*. Otherwise
*holds in part*. "Below" means that the mean paired difference over the seeds has a 95 % interval
(Student's t) that is clear of zero; "comparable" that the interval includes zero or the means
differ by less than a tenth. Too few seeds can therefore never make an ordering hold by luck.
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


def comparable(a: str, b: str, margin: float = 0.1) -> Check:
    """Curves a and b come to the same, within a margin."""

    def check(numbers: Numbers, results: Results) -> Finding:
        found = interval(numbers[a] - numbers[b])
        near = abs(found[0]) <= margin * abs(float(numbers[b].mean()))
        includes = np.isfinite(found[1]) and found[1] <= 0 <= found[2]
        not_far = abs(found[0]) <= max(0.25, margin) * abs(float(numbers[b].mean()))
        holds = near or (includes and not_far)
        far = UNDECIDED if includes or not np.isfinite(found[1]) else "they differ"
        return finding(f"{a} comparable with {b}", bool(holds), _told(numbers[a] - numbers[b]), far)

    return check


def prints(label: str, key: str, expected: float, tolerance: float = 0.006) -> Check:
    """A number that the paper prints: every seed's ``key`` is within the tolerance of it."""

    def check(numbers: Numbers, results: Results) -> Finding:
        found = [r[key] for r in results[label]]
        holds = all(v is not None and abs(v - expected) <= tolerance for v in found)
        shown = "none" if found[0] is None else f"{found[0]:.4g}"
        return finding(f"{key} of {label} is {expected:g}", holds, f"{shown}", "another number")

    return check


def least(a: str, others: Sequence[str]) -> Check:
    """Curve a has the least mean of all (no interval: the paper shows a best setting)."""

    def check(numbers: Numbers, results: Results) -> Finding:
        means = {label: float(numbers[label].mean()) for label in (a, *others)}
        shown = ", ".join(f"{label} {mean:.4g}" for label, mean in means.items())
        best = min(means, key=lambda k: means[k])
        return finding(f"{a} is the best", best == a, shown, "another is best")

    return check


def ordered(*labels: str) -> Check:
    """The means rise from the first to the last curve."""

    def check(numbers: Numbers, results: Results) -> Finding:
        means = [float(numbers[label].mean()) for label in labels]
        shown = ", ".join(f"{x} {m:.4g}" for x, m in zip(labels, means, strict=True))
        rises = all(a <= b for a, b in pairwise(means))
        return finding(" <= ".join(labels), rises, shown, "another order")

    return check


def value(
    says: str, compute: Callable[[Numbers, Results], float], holds: Callable[[float], bool]
) -> Check:
    """Any number of the measurements, and what must be true of it."""

    def check(numbers: Numbers, results: Results) -> Finding:
        found = compute(numbers, results)
        return finding(says, bool(holds(found)), f"{found:.4g}", "not so")

    return check
