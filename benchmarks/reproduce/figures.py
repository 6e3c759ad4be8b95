"""What a figure of a paper is: its claim, the runs that it needs, and the rule of its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .checks import UNKNOWN, Check, Finding, Verdict, verdict_of
from .printed import Effect, effect_of

SizeName: TypeAlias = Literal["quick", "medium", "full"]
SIZES: tuple[SizeName, ...] = ("quick", "medium", "full")


@dataclass(frozen=True)
class Run:
    """One curve of a figure: which driver makes it, and with which settings."""

    kind: str
    settings: Mapping[str, Any]

    def with_(self, **settings: Any) -> Run:
        """The same with some settings changed."""
        return replace(self, settings={**self.settings, **settings})


@dataclass(frozen=True)
class Size:
    """How much of the paper's experiment is run: seeds, and settings made smaller.

    ``smaller`` replaces settings that a run has, ``besides`` also gives it those that it has not.
    """

    seeds: int
    smaller: Mapping[str, Any] = field(default_factory=dict)
    besides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A figure. ``curves`` are measured on the same seeds, so that they can be paired."""

    name: str
    figure: str
    claim: str
    curves: Mapping[str, Run]
    checks: Sequence[Check]
    sizes: Mapping[SizeName, Size]
    #: What one number a run comes to: the mean of its curve, its end, or another measurement.
    measure: str = "mean"
    #: The unit of that number.
    unit: str = "regret"
    #: What is drawn: curves by iteration, the number against epsilon or a message's length.
    plot: Literal["curves", "privacy", "message", "nothing"] = "curves"
    #: What differs from the paper, at any size.
    note: str = ""
    #: Why no run of ours can decide the claim: data that are not available, for instance.
    obstacle: str = ""
    #: What the page shows while the figure has no runs: another form of it that has some.
    instead: Figure | None = None
    #: Packages and data it cannot do without.
    needs: tuple[str, ...] = ()

    def runs(self, size: SizeName) -> dict[str, Run]:
        """The curves at a size."""
        chosen = self.sizes[size]
        return {
            label: run.with_(
                **{k: v for k, v in chosen.smaller.items() if k in run.settings}, **chosen.besides
            )
            for label, run in self.curves.items()
        }

    def seeds(self, size: SizeName, wanted: int | None = None) -> range:
        """Seeds of a size, or as many as wanted. Reported seeds begin at 100."""
        return range(100, 100 + (wanted or self.sizes[size].seeds))

    def number(self, result: Mapping[str, Any]) -> float:
        """What a run comes to."""
        if self.measure in result or self.measure not in ("mean", "end"):
            return float(result[self.measure])
        curve = np.asarray(result["curve"], dtype=np.float64)
        return float(curve[-1] if self.measure == "end" else curve.mean())

    def verdict(
        self, results: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> tuple[Verdict, list[Finding]]:
        """From one list of results a curve, paired by seed."""
        numbers: dict[str, NDArray[np.float64]] = {
            label: np.array([self.number(r) for r in runs]) for label, runs in results.items()
        }
        findings = [check(numbers, results, self.effect) for check in self.checks]
        return UNKNOWN if self.obstacle else verdict_of(findings), findings

    @property
    def paper(self) -> str:
        """The paper that the figure is of, and what of the setting is ours."""
        if self.name.startswith("own-"):
            return "Our own"
        name, _, rest = self.figure.partition(" Fig.")
        return name + ", our constants" * rest.endswith("our constants")

    @property
    def effect(self) -> Effect:
        """The least difference that the paper's claim means."""
        return effect_of(self.name)
