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
``t``       ``secure.threshold``           scalar
``c``       ``secure.colluding``           scalar
==========  =============================  ========

**Noise against signal.** With uniform weights the exact sensitivity is S/N, so each of the P
released vectors has noise of norm about :math:`z \sqrt M S / (N q)`, and its signal, a mean of
clipped vectors, is at most :math:`S / \sqrt P` long. The ratio is

.. math:: z \sqrt{M P} / (N q).

Above 1 the noise is longer than any signal can be. At a given epsilon z grows slower than q, so
the ratio is least at q = 1: sampling lowers the noise multiplier, but not the noise of the mean.

Releases that hold the scores of a public list of settings are read number by number. There the
ratio is that of the noise in one score to the score of a good setting (:class:`ListedScores`).

**Without a trusted server** (:class:`SecureForecast`) the parties make the noise, so that any t - c
of them make enough. Where all N answer, the noise is :math:`\sqrt{N / (t - c)}` times as large; the
ratio above has this factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.accountants import Accountant, make_accountant
from flwr_fbo.privacy.calibration import default_delta, epsilon_of, noise_multiplier_for
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.secure.noise_share import charged_delta
from flwr_fbo.privacy.secure.terms import check_threshold, default_threshold

ACCOUNTANTS = ("moments", "rdp", "pld")
_MOST_ROWS = 100


@dataclass(frozen=True)
class SecureForecast:
    """The facts about secure sums in a planned run.

    Parameters
    ----------
    share
        The share of the agents without whose answers a sum is abandoned.
    colluding
        c, the agents that may tell the server all they know.
    """

    share: float = 2.0 / 3.0
    colluding: int = 1

    def threshold(self, agents: int) -> int:
        """Return t for N agents; raise PrivacyError where no sum is possible."""
        found = default_threshold(agents, self.colluding, self.share)
        check_threshold(agents, found, self.colluding)
        return found

    def excess(self, agents: int) -> float:
        """Return the noise where all N agents answer, over the noise that is charged."""
        return math.sqrt(agents / (self.threshold(agents) - self.colluding))


class ListedScores(Protocol):
    """What the releases of a planned run tell of a public list of settings."""

    def __call__(self, agents: int, deviation: float) -> tuple[int, float]:
        """Return the length of the list and the expected score of a good setting in it.

        Scores, and the ``deviation`` of the noise in each, are parts of agents' vectors of norm 1.
        """


@dataclass(frozen=True)
class PrivacyForecast:
    """A schedule of releases and its cost, as :func:`forecast_privacy` returns it."""

    agents: int
    rounds: int
    noise_multiplier: float
    sampling_rate: float
    delta: float
    #: Whether each of the rounds 0 .. T-1 releases, or of 0 .. T where the last does.
    schedule: tuple[bool, ...]
    #: The epsilon that was asked for; None where the noise was given.
    epsilon_target: float | None = None
    features: int = 100
    regions: int = 1
    #: Whether delta was given, and so does not follow the number of agents.
    delta_given: bool = False
    #: The secure sums of the run; None where the server adds the noise.
    secure: SecureForecast | None = None
    #: The round whose release holds the agents' scores of the finalists; None without finalists.
    final_round: int | None = None
    #: The scores of the public list that finalists come from; None without a list.
    listed: ListedScores | None = None

    @property
    def releases(self) -> int:
        """Return the number of releases of the whole run."""
        return sum(self.schedule)

    @property
    def noise_to_signal(self) -> float:
        """Return a release's noise over its signal.

        Of a function both are norms, and the signal is the largest possible. Of a public list both
        are those of one score, and the signal is what is expected of a good setting.
        """
        noise = self._charged_noise * self.excess_noise
        if self.listed is not None:
            return noise / self.listed(self.agents, self._charged_noise)[1]
        return noise * math.sqrt(self.features * self.regions)

    @property
    def _charged_noise(self) -> float:
        """Return the noise in one number of a mean of vectors of norm 1."""
        return self.noise_multiplier / (self.agents * self.sampling_rate)

    @property
    def excess_noise(self) -> float:
        """Return the noise where all agents answer, over the noise that is charged."""
        return 1.0 if self.secure is None else self.secure.excess(self.agents)

    @property
    def _charged_delta(self) -> float:
        return self.delta if self.secure is None else charged_delta(self.delta)

    @cached_property
    def epsilon(self) -> dict[str, float]:
        """Return the epsilon of the whole run, by each accountant."""
        rates, z = [self.sampling_rate] * self.releases, self.noise_multiplier
        return {name: epsilon_of(z, self._charged_delta, rates, name) for name in ACCOUNTANTS}

    @cached_property
    def by_round(self) -> list[dict[str, Any]]:
        """Return the epsilon after each round 0, 1, ..., or about 100 of them in a longer run."""
        event, count = (
            GaussianRelease(self.noise_multiplier, self.sampling_rate),
            len(self.schedule),
        )
        # Rounds that are shown: all, or evenly spaced ones with the first and the last.
        shown = set(np.unique(np.linspace(0, count - 1, min(count, _MOST_ROWS)).round()))
        running: dict[str, Accountant] = {name: make_accountant(name) for name in ACCOUNTANTS}
        rows = []
        for round, releases in enumerate(self.schedule):
            if releases:
                for accountant in running.values():
                    accountant.compose(event)
            if round in shown:
                cost = {name: a.epsilon(self._charged_delta) for name, a in running.items()}
                rows.append({"round": round, "release": releases, **cost})
        return rows

    @cached_property
    def alternatives(self) -> list[dict[str, Any]]:
        """Return the same run with q, N, and T or the releases, halved or doubled.

        Where an epsilon was asked for, each row has the noise for that epsilon; otherwise each
        row has the epsilon of the given noise, by ``pld``.
        """
        changes: list[tuple[str, Any]] = [
            ("sampling_rate", self.sampling_rate / 2),
            ("sampling_rate", min(1.0, self.sampling_rate * 2)),
            ("agents", max(2, self.agents // 2)),
            ("agents", self.agents * 2),
        ]
        if self.listed is None:  # a list and its finalists are always two releases
            number = "rounds" if all(self.schedule) else "releases"
            changes += [(number, max(1, self.releases // 2)), (number, self.releases * 2)]
        rows = []
        if self.secure is not None:
            changes = [("aggregation", "central"), *(c for c in changes if c[0] != "sampling_rate")]
        elif self.sampling_rate == 1.0:
            changes.append(("aggregation", "secure"))
        for name, value in changes:
            if value == getattr(self, name, None):  # at a limit, such as q = 1
                continue
            try:
                other = self._changed(name, value)
            except checks.PrivacyError:  # too few agents for a secure sum
                continue
            cost = {"noise_multiplier": other.noise_multiplier, "epsilon": other.epsilon["pld"]}
            rows.append({name: value, **cost, "noise_to_signal": other.noise_to_signal})
        return rows

    def _changed(self, name: str, value: Any) -> PrivacyForecast:
        """Return the forecast with one field, or the number of releases, changed."""
        change: dict[str, Any] = {} if name == "releases" else {name: value}
        if name == "aggregation":
            change = {"secure": SecureForecast() if value == "secure" else None}
        if name in ("rounds", "releases"):
            change["schedule"] = (True,) * value  # the cost depends on the number of releases only
        other = replace(self, **change)
        if other.secure is not None:
            other.secure.threshold(other.agents)  # raises where no sum is possible
        if not self.delta_given:
            other = replace(other, delta=default_delta(other.agents))
        if self.epsilon_target is None:
            return other
        rates = [other.sampling_rate] * other.releases
        z = noise_multiplier_for(self.epsilon_target, other._charged_delta, rates)
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
            "final_round": self.final_round,
            **self._trust(),
            "by_round": self.by_round,
            "alternatives": self.alternatives,
        }

    def _trust(self) -> dict[str, Any]:
        """Return whom the parties must trust, as a privacy statement says it."""
        if self.secure is None:
            return {"trust": "central", "excess_noise": 1.0}
        return {
            "trust": "secure-sum",
            "threshold": self.secure.threshold(self.agents),
            "colluding": self.secure.colluding,
            "excess_noise": self.excess_noise,
        }

    def to_text(self) -> str:
        """Return the forecast as a text of at most 80 columns."""
        tables = [*self._rounds_table(), "", *self._alternatives_table()]
        return "\n".join([*self._head(), "", *tables])

    def _head(self) -> list[str]:
        target = self.epsilon_target
        asked = "" if target is None else f" (asked for: {target:g})"
        rounds = [t for t, releases in enumerate(self.schedule) if releases]
        listed = ""
        if len(rounds) < self.rounds and len(rounds) <= 12:  # a list that is worth its space
            listed = ", in the rounds " if len(rounds) > 1 else ", in round "
            listed += ", ".join(map(str, rounds))
        return [
            f"{self.agents} agents, {self.rounds} rounds, "
            f"{self.releases} release{'' if self.releases == 1 else 's'}{listed}",
            *self._final_lines(),
            f"noise multiplier z   {self.noise_multiplier:.4f}",
            f"sampling rate q      {self.sampling_rate:g}",
            f"delta                {self.delta:.3g}",
            f"epsilon              {self.epsilon['pld']:.3f} by pld{asked}",
            f"noise against signal {self.noise_to_signal:.3f}: {self._verdict()}",
            *self._trust_lines(),
        ]

    def _verdict(self) -> str:
        """Return what the noise against the signal says."""
        large = self.noise_to_signal > 1
        if self.listed is not None:
            length, _ = self.listed(self.agents, self._charged_noise)
            what = "more than a good setting's score" if large else "good settings stand out"
            return f"{what} (list of {length})"
        what = "more noise than any signal" if large else "a signal can exceed the noise"
        return f"{what} (M={self.features}, P={self.regions})"

    def _final_lines(self) -> list[str]:
        if self.final_round is None:
            return []
        return [f"finalists            scored by all agents, released in round {self.final_round}"]

    def _trust_lines(self) -> list[str]:
        bound = "Epsilon, at this delta, bounds what all releases together reveal about the"
        if self.secure is None:
            return [
                "trust                central: the server adds the noise",
                bound,
                "messages of one agent to anybody but the server, which sees the messages.",
            ]
        t, c = self.secure.threshold(self.agents), self.secure.colluding
        return [
            "trust                secure-sum: the agents add the noise",
            f"                     {t} of {self.agents} must answer, "
            f"{c} may collude with the server",
            f"excess noise         {self.excess_noise:.3f} times where all answer (in the line of "
            "the signal)",
            bound,
            "vector of one agent to anybody, the server too, which sees noisy sums only.",
        ]

    def _rounds_table(self) -> list[str]:
        rows = self.by_round
        if self.releases < 12:  # epsilon changes in the rounds that release only
            rows = [row for row in rows if row["release"] or row is rows[-1]]
        elif len(rows) > 12:  # early rounds closely, as epsilon grows fastest there
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
            label = (
                f"aggregation={row[key]}"
                if key == "aggregation"
                else f"{named[key]} = {row[key]:g}"
            )
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
    secure: SecureForecast | None = None,
    final_round: int | None = None,
    listed: ListedScores | None = None,
) -> PrivacyForecast:
    """Return the cost of a run with central privacy, before the run starts.

    With ``secure``, the sums are secure sums: the same epsilon holds against the server.

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
        Whether each of the rounds 0 .. T-1 releases, or each of 0 .. T. By default every one of
        0 .. T-1 does, as in the paper.
    features, regions : int
        M and P, which decide the noise against the signal only.
    secure : SecureForecast, optional
        The secure sums of the run; by default the server adds the noise.
    final_round : int, optional
        The round whose release holds the agents' scores of the finalists, where there are any.
    listed : ListedScores, optional
        The scores of the public list that the finalists come from, where they do.
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
    if secure is not None:
        secure.threshold(agents)  # raises where no sum is possible
        if rate < 1.0:
            raise checks.PrivacyError(
                f"`sampling_rate` must be 1 with secure sums, but got {rate:g}: the server sees "
                "who sends"
            )
    if epsilon is not None:
        charged = used if secure is None else charged_delta(used)
        z = noise_multiplier_for(epsilon, charged, [rate] * sum(which))
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
        secure=secure,
        final_round=final_round,
        listed=listed,
    )


def _checked_schedule(schedule: Sequence[bool] | None, rounds: int) -> tuple[bool, ...]:
    """Return whether each round releases; by default every round does."""
    which = (True,) * rounds if schedule is None else tuple(map(bool, schedule))
    if len(which) not in (rounds, rounds + 1) or not any(which):
        raise checks.PrivacyError(
            f"`schedule` must say for each of {rounds} rounds whether the round releases, or for "
            f"each of {rounds + 1} with the last one, and at least one round must release"
        )
    return which
