r"""The choice of the rounds that release and of the sampling rate, for a given budget.

The paper releases in every round, at one q and z. But the shared function helps an agent most
while the agent has few scores of its own, so late releases are hardly used. And the more
releases share a budget, the more noise each one has. The schedule of greatest worth is chosen;
the worth is defined below.

Notation

================================================  =====================  =======
symbol                                            here                   shape
================================================  =====================  =======
``N, T, epsilon, delta``                          the arguments          scalars
``L``, the norm bound of an agent's vector        ``norm_bound``         scalar
``n_t = n_0 + k t``, an agent's scores, round t   ``known``              (T + 1,)
``u_t = 1 / n_t``, use of a release in round t    ``use``                (T,)
``A_t = A n_t / (n_t + h)``, signal of a release  root of ``signal``     (K,)
``sigma = z L / (N q)``, its noise at any point   ``noise``              scalar
``tau^2 = (c L)^2 / (N q)``, sampling variance    in ``error``           scalar
``A``, ``h``, ``c``                               the constants below    scalars
================================================  =====================  =======

A released function has noise of standard deviation sigma at every point of the space, because
features have norm one. Its signal, the spread of the agents' mean function over the space, grows
with the agents' scores. The share of the released function that is signal is
:math:`g_t = A_t^2 / (A_t^2 + \sigma^2 + \tau^2)`. The worth of a schedule is the mean of
:math:`g_{r(t)}` over the rounds with weights u_t, where r(t) is the latest release before round
t. A part ``NEWCOMERS`` of the worth is the share of the last release, which agents that join
later and the recommendation use.

Candidates are schedules 0, 1, ... whose gaps grow by a factor (factor 1: all gaps are equal), cut
after K releases, for all K and a few factors, with and without one more release in the last
round. Each has the z with which its releases cost epsilon; all releases of a run share one z.

Only for this search, the cost of sampled releases is approximated by the central limit theorem of
Gaussian differential privacy (Dong, Roth and Su 2022, Section 5.2):
:math:`\mu = q \sqrt{K (e^{1/z^2} - 1)}`. The run's noise and its charges come from an accountant
that bounds epsilon from above. With a smaller q fewer vectors enter a sum, which for many agents
loses almost nothing: the smallest q is chosen that keeps ``KEPT`` of the worth at q = 1.

A and h were estimated from the development runs of docs/evidence/defaults.md. They decide only
between
schedules of nearly the same worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.calibration import gaussian_multiplier

#: A: the spread of the agents' mean function, in standardised scores, after many scores.
SIGNAL = 0.5
#: h: the number of scores after which an agent's function has half of its final signal.
HALF_KNOWN = 5.0
#: c: the spread of agents' functions about their mean at a point, over their norm bound.
DISAGREEMENT = 0.25
#: Factors by which the gaps between releases grow.
GROWTHS = (1.0, 1.5, 2.0, 3.0)
#: Sampling rates to choose from, the largest first.
RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4, 1e-5)
#: Share of the worth at q = 1 that a smaller q must keep.
KEPT = 0.99
#: Share of the worth that is the share of signal in the last release.
NEWCOMERS = 0.3


@dataclass(frozen=True)
class ReleasePlan:
    """The rounds that release, the sampling rate, and the worth of the schedule, 1 at most."""

    rounds: tuple[int, ...]
    sampling_rate: float = 1.0
    worth: float = math.nan


def plan_releases(
    agents: int,
    rounds: int,
    epsilon: float,
    delta: float,
    norm_bound: float,
    initial: int,
    sampling_rate: float | None = None,
    use: Array | None = None,
    per_round: int = 1,
    others: int = 0,
    last_share: float = NEWCOMERS,
) -> ReleasePlan:
    """Return the schedule of greatest worth for a budget.

    Parameters
    ----------
    agents, rounds : int
        N and T.
    epsilon, delta : float
        The budget of all releases together.
    norm_bound : float
        L, the norm to which an agent's vector is clipped.
    initial : int
        n_0, the scores of an agent before the first round.
    sampling_rate : float, optional
        q; by default the smallest that costs almost no worth.
    use : Array, optional
        u_t of the rounds 1, ..., T, (T,); by default 1 / n_t. The papers' is 1 - p_t.
    per_round : int
        k, the scores that an agent adds in each round.
    others : int
        The number of other releases of the run, with the same noise and from the same budget.
    last_share : float
        The share of the worth that is the share of signal in the last release.
    """
    if rounds < 1:
        return ReleasePlan((), sampling_rate or 1.0, 0.0)
    mu = 1.0 / gaussian_multiplier(epsilon, delta)  # of all releases together
    known = initial + per_round * np.arange(rounds + 1.0)  # n_t: (T + 1,)
    used = 1.0 / known[1:] if use is None else use
    schedules = _candidates(rounds)
    made = []
    for rate in RATES if sampling_rate is None else (sampling_rate,):
        # The other releases leave less of the budget to those of a schedule.
        left = [mu * math.sqrt(len(s) / (len(s) + others)) for s in schedules]
        worths = [
            _worth(s, agents, rate, m, norm_bound, known, used, last_share)
            for s, m in zip(schedules, left, strict=True)
        ]
        best = int(np.argmax(worths))
        made.append(ReleasePlan(schedules[best], rate, worths[best]))
    good = [plan for plan in made if plan.worth >= KEPT * made[0].worth]
    return good[-1]  # the smallest rate, as RATES fall


def expected_signal(scores: float) -> float:
    """Return A_t: the spread of the agents' mean function after this many scores of each."""
    return SIGNAL * scores / (scores + HALF_KNOWN)


def _candidates(rounds: int) -> list[tuple[int, ...]]:
    """Return the schedules to choose from, in the rounds 0 .. T-1, fewest releases first."""
    found: set[tuple[int, ...]] = set()
    for growth in GROWTHS:
        ends, gap = [0], 1.0
        while ends[-1] + math.ceil(gap) < rounds:
            ends.append(ends[-1] + math.ceil(gap))
            gap *= growth
        for count in range(1, len(ends) + 1):
            found |= {tuple(ends[:count]), tuple(sorted({*ends[:count], rounds - 1}))}
    return sorted(found, key=lambda s: (len(s), s))


def _worth(
    schedule: tuple[int, ...],
    agents: int,
    rate: float,
    mu: float,
    norm_bound: float,
    scores: Array,
    use: Array,
    last_share: float = NEWCOMERS,
) -> float:
    """Return the worth of a schedule, 1 for releases of pure signal in every round."""
    noise = _multiplier(mu, len(schedule), rate) * norm_bound / (agents * rate)
    error = noise**2 + (DISAGREEMENT * norm_bound) ** 2 / (agents * rate)
    known = scores[list(schedule)]
    signal = (SIGNAL * known / (known + HALF_KNOWN)) ** 2
    share: Array = signal / (signal + error)  # (K,), g_t
    later = np.arange(1, len(use) + 1)
    latest = np.searchsorted(schedule, later, side="left") - 1  # (T,), r(t)
    during = float((use * share[latest]).sum() / max(use.sum(), 1e-300))
    return (1.0 - last_share) * during + last_share * float(share[-1])


def _multiplier(mu: float, releases: int, rate: float) -> float:
    """Return the z with which all releases together are mu-Gaussian private.

    The result is exact at rate 1 and an approximation below.
    """
    each = mu / math.sqrt(releases)
    if rate == 1.0:
        return 1.0 / each
    return 1.0 / math.sqrt(math.log1p((each / rate) ** 2))  # the central limit theorem, for z
