r"""When to release and from how many agents, for the most that agents can use of an epsilon.

The paper releases every round at one q and z. But what the others know is worth most to an
agent that knows little itself, so late releases are hardly used; and the more releases share a
budget, the noisier each is. So a schedule is chosen by what it is worth.

Notation

==============================================  ===========================  ========
symbol                                          here                         shape
==============================================  ===========================  ========
``N, T, epsilon, delta``                        the arguments                scalars
``L``, the norm of an agent's vector            ``longest``                  scalar
``n_t = n_0 + t``, an agent's scores in round t  ``initial + t``             scalar
``u_t = 1 / n_t``                               what advice is worth in round t
``A_t = A n_t / (n_t + h)``                     signal of a release (below)  scalar
``sigma = z L / (N q)``                         its noise at any point       scalar
``tau^2 = L^2 c / (N q)``                       its sampling error, squared  scalar
==============================================  ===========================  ========

A released function has noise of standard deviation sigma at every point of the space, because
features have norm one. Its signal, the spread of the agents' mean function over the space, grows
with what they have seen. The part of the released function that is signal is
:math:`g_t = A_t^2 / (A_t^2 + \sigma^2 + \tau^2)`, and the worth of a schedule is
:math:`\sum_t u_t \, g_{r(t)}` over the rounds, r(t) being the latest release before round t,
with a part for those who join later and for the recommendation, who have the last one.

Candidates are schedules 0, 1, ... whose gaps grow by a factor (1: evenly), cut after K releases,
for all K and a few factors, with and without one more in the last round that can be used, each
at the z that makes K releases cost epsilon. All releases share one
z. For this search the cost of sampled releases is taken from the central limit theorem of
Gaussian differential privacy (Dong, Roth and Su 2022, Section 5.2):
:math:`\mu = q \sqrt{K (e^{1/z^2} - 1)}`; what a run is charged is exact. A smaller q saves
messages, and for many agents costs nothing that matters: the smallest is taken that keeps
``KEPT`` of what q = 1 is worth.

A and h were read off the development runs of docs/defaults.md. They decide only between
schedules of nearly the same worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.calibration import gaussian_multiplier

#: Spread of the agents' mean function, in standardised scores, once they know theirs well.
SIGNAL = 0.5
#: Scores with which an agent's function says half of what it will say.
HALF_KNOWN = 5.0
#: Spread of agents' functions about their mean at a point, over the norm of their vectors.
DISAGREEMENT = 0.25
#: Factors by which the gaps between releases grow.
GROWTHS = (1.0, 1.5, 2.0, 3.0)
RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4, 1e-5)
KEPT = 0.99
#: Share of the worth that is what the last release says to those who come after the run.
NEWCOMERS = 0.3


@dataclass(frozen=True)
class ReleasePlan:
    """Rounds that release, how likely each counts an agent, and what that is worth of 1."""

    rounds: tuple[int, ...]
    sampling_rate: float = 1.0
    worth: float = math.nan


def plan_releases(
    agents: int,
    rounds: int,
    epsilon: float,
    delta: float,
    longest: float,
    initial: int,
    sampling_rate: float | None = None,
    use: Array | None = None,
) -> ReleasePlan:
    """The best schedule for this budget; ``sampling_rate`` is kept where it is given.

    ``use`` (T,) is u_t of the rounds 1 .. T, where it is not 1 / n_t: 1 - p_t of the papers.
    """
    if rounds < 1:
        return ReleasePlan((), sampling_rate or 1.0, 0.0)
    privacy = 1.0 / gaussian_multiplier(epsilon, delta)  # mu, of all releases together
    later = np.arange(1.0, rounds + 1)
    used = 1.0 / (initial + later) if use is None else use
    schedules = _candidates(rounds)
    made = []
    for rate in RATES if sampling_rate is None else (sampling_rate,):
        worths = [_worth(s, agents, rate, privacy, longest, initial, used) for s in schedules]
        best = int(np.argmax(worths))
        made.append(ReleasePlan(schedules[best], rate, worths[best]))
    good = [plan for plan in made if plan.worth >= KEPT * made[0].worth]
    return good[-1]


def _candidates(rounds: int) -> list[tuple[int, ...]]:
    """Schedules of releases in the rounds 0 .. T-1, fewest releases first."""
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
    privacy: float,
    longest: float,
    initial: int,
    use: Array,
) -> float:
    """What a schedule is worth, over what perfect advice in every round would be."""
    noise = _multiplier(privacy, len(schedule), rate) * longest / (agents * rate)
    error = noise**2 + (DISAGREEMENT * longest) ** 2 / (agents * rate)
    known = initial + np.array(schedule, dtype=np.float64)
    signal = (SIGNAL * known / (known + HALF_KNOWN)) ** 2
    share: Array = signal / (signal + error)  # (K,)
    later = np.arange(1, len(use) + 1)
    latest = np.searchsorted(schedule, later, side="left") - 1  # released before the round
    during = float((use * share[latest]).sum() / max(use.sum(), 1e-300))
    return (1.0 - NEWCOMERS) * during + NEWCOMERS * float(share[-1])


def _multiplier(privacy: float, releases: int, rate: float) -> float:
    """z of so many releases that together are mu-Gaussian private, nearly for rate < 1."""
    each = privacy / math.sqrt(releases)
    if rate == 1.0:
        return 1.0 / each
    return 1.0 / math.sqrt(math.log1p((each / rate) ** 2))
