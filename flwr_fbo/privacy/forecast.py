r"""What a run will cost before it is started, and what else it could cost.

Notation

==========  =============================  ========
paper       here                           shape
==========  =============================  ========
``N``       ``agents``                     scalar
``T``       ``rounds``                     scalar
``z``       ``noise_multiplier``           scalar
``q``       ``sampling_rate``              scalar
``P``       ``regions``                    scalar
``M``       ``features``                   scalar
==========  =============================  ========

**Noise against signal.** With uniform weights the exact sensitivity is S/N, so each of the P
released vectors has noise of norm about :math:`z \sqrt M S / (N q)`, and its signal, a mean of
clipped vectors, is at most :math:`S / \sqrt P` long. The ratio is

.. math:: z \sqrt{M P} / (N q).

Above 1 the noise is longer than any signal can be. At a given epsilon z grows slower than q, so
the ratio is least at q = 1: sampling saves traffic, not noise, unless the noise is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.calibration import default_delta, epsilon_of, noise_multiplier_for
from flwr_fbo.privacy.events import GaussianRelease

VIEWS = ("moments", "rdp", "pld")
_MOST_ROWS = 100


@dataclass(frozen=True)
class Plan:
    """A schedule of releases and its price; made by :func:`plan`."""

    agents: int
    rounds: int
    noise_multiplier: float
    sampling_rate: float
    delta: float
    #: Which of the rounds 1, ..., T release.
    schedule: tuple[bool, ...]
    #: The epsilon that was asked for; None where the noise was given.
    target: float | None = None
    features: int = 100
    regions: int = 1
    #: Whether delta was given, and so does not follow the number of agents.
    own_delta: bool = False

    @property
    def releases(self) -> int:
        """How many releases the whole run makes."""
        return sum(self.schedule)

    @property
    def noise_to_signal(self) -> float:
        """The length of a release's noise over the most its signal can have."""
        spread = math.sqrt(self.features * self.regions)
        return self.noise_multiplier * spread / (self.agents * self.sampling_rate)

    @cached_property
    def epsilon(self) -> dict[str, float]:
        """What the whole run costs, in each view."""
        rates = [self.sampling_rate] * self.releases
        return {v: epsilon_of(self.noise_multiplier, self.delta, rates, v) for v in VIEWS}

    @cached_property
    def by_round(self) -> list[dict[str, Any]]:
        """The cost after each round (after about a hundred of them, where there are more)."""
        event = GaussianRelease(self.noise_multiplier, self.sampling_rate)
        shown = set(np.unique(np.linspace(1, self.rounds, min(self.rounds, _MOST_ROWS)).round()))
        views, rows = {name: make_accountant(name) for name in VIEWS}, []
        for number, releases in enumerate(self.schedule, 1):
            if releases:
                for view in views.values():
                    view.compose(event)
            if number in shown:
                cost = {name: view.epsilon(self.delta) for name, view in views.items()}
                rows.append({"round": number, "release": releases, **cost})
        return rows

    @cached_property
    def alternatives(self) -> list[dict[str, Any]]:
        """The same plan with q, N, and T or the releases halved or doubled, in the default view."""
        changes: list[dict[str, Any]] = [
            {"sampling_rate": self.sampling_rate / 2},
            {"sampling_rate": min(1.0, self.sampling_rate * 2)},
            {"agents": max(2, self.agents // 2)},
            {"agents": self.agents * 2},
            *(self._with_releases(k) for k in (max(1, self.releases // 2), 2 * self.releases)),
        ]
        rows = []
        for change in changes:
            name, value = next(iter(change.items()))
            fields = {k: v for k, v in change.items() if k != "releases"}
            other = self._changed(fields)
            if value != getattr(self, name) and other.releases:
                cost = other.epsilon["pld"]
                row = {name: value, "noise_multiplier": other.noise_multiplier, "epsilon": cost}
                rows.append({**row, "noise_to_signal": other.noise_to_signal})
        return rows

    def _with_releases(self, count: int) -> dict[str, Any]:
        """So many releases; where every round has one, that is so many rounds."""
        change = {"schedule": (True,) * count}
        if all(self.schedule):
            return {"rounds": count, **change}
        return {"releases": count, **change}

    def _changed(self, change: dict[str, Any]) -> Plan:
        other = replace(self, **change)
        if not self.own_delta:
            other = replace(other, delta=default_delta(other.agents))
        if self.target is None or not other.releases:
            return other
        rates = [other.sampling_rate] * other.releases
        return replace(
            other, noise_multiplier=noise_multiplier_for(self.target, other.delta, rates)
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON can hold it."""
        return {
            "agents": self.agents,
            "rounds": self.rounds,
            "releases": self.releases,
            "noise_multiplier": self.noise_multiplier,
            "sampling_rate": self.sampling_rate,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "epsilon_budget": self.target,
            "noise_to_signal": self.noise_to_signal,
            "by_round": self.by_round,
            "alternatives": self.alternatives,
        }

    def to_text(self) -> str:
        """The plan as people read it."""
        return "\n".join([*self._head(), "", *self._rounds_table(), "", *self._what_if()])

    def _head(self) -> list[str]:
        asked = "" if self.target is None else f" (asked for: {self.target:g})"
        ratio = self.noise_to_signal
        verdict = "the noise drowns any signal" if ratio > 1 else "the signal can come through"
        rounds = [t for t, releases in enumerate(self.schedule) if releases]
        which = "" if len(rounds) in (1, self.rounds) or len(rounds) > 12 else ", in the rounds "
        listed = which and which + ", ".join(map(str, rounds))
        return [
            f"{self.agents} agents, {self.rounds} rounds, {self.releases} releases{listed}",
            f"noise multiplier z   {self.noise_multiplier:.4f}",
            f"sampling rate q      {self.sampling_rate:g}",
            f"delta                {self.delta:.3g}",
            f"epsilon              {self.epsilon['pld']:.3f} by pld{asked}",
            f"noise against signal {ratio:.3f}: {verdict} (M={self.features}, P={self.regions})",
            "An epsilon bounds what all releases together tell about one agent's messages.",
        ]

    def _rounds_table(self) -> list[str]:
        rows = self.by_round
        if len(rows) > 12:
            picks = np.unique(np.rint(np.geomspace(1, len(rows), 12)).astype(int)) - 1
            rows = [rows[i] for i in picks]
        lines = ["epsilon after round   " + "".join(f"{name:>10}" for name in VIEWS)]
        for row in rows:
            costs = "".join(f"{row[name]:>10.3f}" for name in VIEWS)
            lines.append(f"{row['round']:>19}   {costs}")
        return lines

    def _what_if(self) -> list[str]:
        named = {"sampling_rate": "q", "agents": "N", "rounds": "T", "releases": "releases"}
        lines = ["instead                      z   epsilon   noise/signal"]
        for row in self.alternatives:
            key = next(iter(row))
            label = f"{named[key]} = {row[key]:g}"
            lines.append(
                f"{label:<19}{row['noise_multiplier']:>11.4f}{row['epsilon']:>10.3f}"
                f"{row['noise_to_signal']:>15.3f}"
            )
        if not self.own_delta:
            lines.append("(delta is N^-1.1 in each)")
        return lines


def plan(
    agents: int,
    rounds: int,
    *,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    sampling_rate: float | None = None,
    delta: float | None = None,
    schedule: Sequence[bool] | None = None,
    features: int = 100,
    regions: int = 1,
) -> Plan:
    """The plan for an epsilon (z is found), or for a noise multiplier and a sampling rate.

    Every round releases, as in the paper, unless ``schedule`` says which do. With an epsilon
    the sampling rate is 1 unless given.
    """
    checks.count("agents", agents, low=2)
    which = (True,) * checks.count("rounds", rounds) if schedule is None else tuple(schedule)
    if len(which) != rounds or not any(which):
        raise checks.PrivacyError(
            f"`schedule` must say for each of {rounds} rounds whether it releases, and one must"
        )
    if (epsilon is None) == (noise_multiplier is None):
        raise checks.PrivacyError(
            "either `epsilon` or `noise_multiplier` must be given, but got "
            f"(epsilon={epsilon!r}, noise_multiplier={noise_multiplier!r})"
        )
    if epsilon is None and sampling_rate is None:
        raise checks.PrivacyError("`sampling_rate` must be given with `noise_multiplier`")
    rate = checks.rate("sampling_rate", 1.0 if sampling_rate is None else sampling_rate)
    used = default_delta(agents) if delta is None else checks.open_unit("delta", delta)
    if epsilon is not None:
        z = noise_multiplier_for(epsilon, used, [rate] * sum(which))
    else:
        z = checks.positive("noise_multiplier", noise_multiplier)
    return Plan(
        agents=agents,
        rounds=rounds,
        noise_multiplier=z,
        sampling_rate=rate,
        delta=used,
        schedule=tuple(map(bool, which)),
        target=epsilon,
        features=checks.count("features", features),
        regions=checks.count("regions", regions),
        own_delta=delta is not None,
    )
