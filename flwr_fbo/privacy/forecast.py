r"""The epsilon of a run before the run starts, and the epsilon of similar runs.

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
the ratio is least at q = 1: sampling lowers the noise multiplier, but not the noise of the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.accountants import Accountant, make_accountant
from flwr_fbo.privacy.calibration import default_delta, epsilon_of, noise_multiplier_for
from flwr_fbo.privacy.events import GaussianRelease

ACCOUNTANTS = ("moments", "rdp", "pld")
_MOST_ROWS = 100


@dataclass(frozen=True)
class PrivacyForecast:
    """A schedule of releases and its cost, as :func:`forecast_privacy` returns it."""

    agents: int
    rounds: int
    noise_multiplier: float
    sampling_rate: float
    delta: float
    #: Whether each of the T rounds releases.
    schedule: tuple[bool, ...]
    #: The epsilon that was asked for; None where the noise was given.
    epsilon_target: float | None = None
    features: int = 100
    regions: int = 1
    #: Whether delta was given, and so does not follow the number of agents.
    delta_given: bool = False

    @property
    def releases(self) -> int:
        """Return the number of releases of the whole run."""
        return sum(self.schedule)

    @property
    def noise_to_signal(self) -> float:
        """Return the norm of a release's noise over the largest possible norm of its signal."""
        spread = math.sqrt(self.features * self.regions)
        return self.noise_multiplier * spread / (self.agents * self.sampling_rate)

    @cached_property
    def epsilon(self) -> dict[str, float]:
        """Return the epsilon of the whole run, by each accountant."""
        rates, z = [self.sampling_rate] * self.releases, self.noise_multiplier
        return {name: epsilon_of(z, self.delta, rates, name) for name in ACCOUNTANTS}

    @cached_property
    def by_round(self) -> list[dict[str, Any]]:
        """Return the epsilon after each round, or after about 100 of them in a longer run."""
        event = GaussianRelease(self.noise_multiplier, self.sampling_rate)
        # Rounds that are shown: all, or evenly spaced ones with the first and the last.
        shown = set(np.unique(np.linspace(1, self.rounds, min(self.rounds, _MOST_ROWS)).round()))
        running: dict[str, Accountant] = {name: make_accountant(name) for name in ACCOUNTANTS}
        rows = []
        for number, releases in enumerate(self.schedule, 1):
            if releases:
                for accountant in running.values():
                    accountant.compose(event)
            if number in shown:
                cost = {name: a.epsilon(self.delta) for name, a in running.items()}
                rows.append({"round": number, "release": releases, **cost})
        return rows

    @cached_property
    def alternatives(self) -> list[dict[str, Any]]:
        """Return the same run with q, N, and T or the releases, halved or doubled.

        Where an epsilon was asked for, each row has the noise for that epsilon; otherwise each
        row has the epsilon of the given noise, by ``pld``.
        """
        number = "rounds" if all(self.schedule) else "releases"
        changes: list[tuple[str, Any]] = [
            ("sampling_rate", self.sampling_rate / 2),
            ("sampling_rate", min(1.0, self.sampling_rate * 2)),
            ("agents", max(2, self.agents // 2)),
            ("agents", self.agents * 2),
            (number, max(1, self.releases // 2)),
            (number, self.releases * 2),
        ]
        rows = []
        for name, value in changes:
            if value == getattr(self, name):  # at a limit, such as q = 1
                continue
            other = self._changed(name, value)
            cost = {"noise_multiplier": other.noise_multiplier, "epsilon": other.epsilon["pld"]}
            rows.append({name: value, **cost, "noise_to_signal": other.noise_to_signal})
        return rows

    def _changed(self, name: str, value: Any) -> PrivacyForecast:
        """Return the forecast with one field, or the number of releases, changed."""
        change = {} if name == "releases" else {name: value}
        if name in ("rounds", "releases"):
            change["schedule"] = (True,) * value  # the cost depends on the number of releases only
        other = replace(self, **change)
        if not self.delta_given:
            other = replace(other, delta=default_delta(other.agents))
        if self.epsilon_target is None:
            return other
        rates = [other.sampling_rate] * other.releases
        z = noise_multiplier_for(self.epsilon_target, other.delta, rates)
        return replace(other, noise_multiplier=z)

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as a JSON object."""
        return {
            "agents": self.agents,
            "rounds": self.rounds,
            "releases": self.releases,
            "noise_multiplier": self.noise_multiplier,
            "sampling_rate": self.sampling_rate,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "epsilon_budget": self.epsilon_target,
            "noise_to_signal": self.noise_to_signal,
            "by_round": self.by_round,
            "alternatives": self.alternatives,
        }

    def to_text(self) -> str:
        """Return the forecast as a text of at most 80 columns."""
        tables = [*self._rounds_table(), "", *self._alternatives_table()]
        return "\n".join([*self._head(), "", *tables])

    def _head(self) -> list[str]:
        target = self.epsilon_target
        asked = "" if target is None else f" (asked for: {target:g})"
        ratio = self.noise_to_signal
        verdict = "more noise than any signal" if ratio > 1 else "a signal can exceed the noise"
        rounds = [t for t, releases in enumerate(self.schedule) if releases]
        listed = ""
        if 1 < len(rounds) < self.rounds and len(rounds) <= 12:  # a list that is worth its space
            listed = ", in the rounds " + ", ".join(map(str, rounds))
        return [
            f"{self.agents} agents, {self.rounds} rounds, {self.releases} releases{listed}",
            f"noise multiplier z   {self.noise_multiplier:.4f}",
            f"sampling rate q      {self.sampling_rate:g}",
            f"delta                {self.delta:.3g}",
            f"epsilon              {self.epsilon['pld']:.3f} by pld{asked}",
            f"noise against signal {ratio:.3f}: {verdict} (M={self.features}, P={self.regions})",
            "Epsilon, at this delta, bounds what all releases together reveal about the",
            "messages of one agent to anybody but the server, which sees the messages.",
        ]

    def _rounds_table(self) -> list[str]:
        rows = self.by_round
        if len(rows) > 12:  # early rounds closely, as epsilon grows fastest there
            picks = np.unique(np.rint(np.geomspace(1, len(rows), 12)).astype(int)) - 1
            rows = [rows[i] for i in picks]
        lines = ["epsilon after round   " + "".join(f"{name:>10}" for name in ACCOUNTANTS)]
        for row in rows:
            costs = "".join(f"{row[name]:>10.3f}" for name in ACCOUNTANTS)
            lines.append(f"{row['round']:>19}   {costs}")
        return lines

    def _alternatives_table(self) -> list[str]:
        named = {"sampling_rate": "q", "agents": "N", "rounds": "T", "releases": "releases"}
        lines = ["instead                      z   epsilon   noise/signal"]
        for row in self.alternatives:
            key = next(iter(row))
            label = f"{named[key]} = {row[key]:g}"
            lines.append(
                f"{label:<19}{row['noise_multiplier']:>11.4f}{row['epsilon']:>10.3f}"
                f"{row['noise_to_signal']:>15.3f}"
            )
        if not self.delta_given:
            lines.append("(delta is min(1e-5, 1/(10 N)) in each line)")
        return lines


def forecast_privacy(
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
) -> PrivacyForecast:
    """Return the cost of a run with central privacy, before the run starts.

    Either ``epsilon`` is given, and the noise multiplier follows; or ``noise_multiplier`` and
    ``sampling_rate`` are given, and epsilon follows.

    Parameters
    ----------
    agents, rounds : int
        N, at least 2, and T.
    epsilon : float, optional
        The epsilon that all releases together may cost, by ``pld``.
    noise_multiplier : float, optional
        z, the noise over the sensitivity.
    sampling_rate : float, optional
        q; 1 by default where epsilon is given.
    delta : float, optional
        delta; min(1e-5, 1/(10 N)) by default.
    schedule : sequence of bool, optional
        Whether each round releases. By default every round does, as in the paper.
    features, regions : int
        M and P, which decide the noise against the signal only.
    """
    checks.count("agents", agents, low=2)
    if (epsilon is None) == (noise_multiplier is None):
        raise checks.PrivacyError(
            "either `epsilon` or `noise_multiplier` must be given, but got "
            f"(epsilon={epsilon!r}, noise_multiplier={noise_multiplier!r})"
        )
    if epsilon is None and sampling_rate is None:
        raise checks.PrivacyError("`sampling_rate` must be given with `noise_multiplier`")
    which = _checked_schedule(schedule, checks.count("rounds", rounds))
    rate = checks.rate("sampling_rate", 1.0 if sampling_rate is None else sampling_rate)
    used = default_delta(agents) if delta is None else checks.open_unit("delta", delta)
    if epsilon is not None:
        z = noise_multiplier_for(epsilon, used, [rate] * sum(which))
    else:
        z = checks.positive("noise_multiplier", noise_multiplier)
    return PrivacyForecast(
        agents=agents,
        rounds=rounds,
        noise_multiplier=z,
        sampling_rate=rate,
        delta=used,
        schedule=which,
        epsilon_target=epsilon,
        features=checks.count("features", features),
        regions=checks.count("regions", regions),
        delta_given=delta is not None,
    )


def _checked_schedule(schedule: Sequence[bool] | None, rounds: int) -> tuple[bool, ...]:
    """Return whether each round releases; by default every round does."""
    which = (True,) * rounds if schedule is None else tuple(map(bool, schedule))
    if len(which) != rounds or not any(which):
        raise checks.PrivacyError(
            f"`schedule` must say for each of {rounds} rounds whether the round releases, and "
            "at least one round must release"
        )
    return which
