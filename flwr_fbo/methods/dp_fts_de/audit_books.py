r"""The books of an audited run: whether what was charged and declared is what was drawn.

Notation

===================  ==============================================  ==========
symbol               here                                            shape
===================  ==============================================  ==========
``z``, ``q``         what each event of the ledger charges           scalars
``y``                ``fresh.absent``, ``fresh.present``             (t, K, P M)
``x``                the canary's share of a trial, see below        (t,)
===================  ==============================================  ==========

Without the canary, nothing but noise lies in the canary's direction, in each sub-region. The sum
of these squares has a chi-squared distribution under the claim. With the canary, x is the mean
over the releases of :math:`\langle y_k, r_k \rangle / |r_k|^2`, weighted by :math:`|r_k|^2`. The
mean of x is q, and Bernstein's inequality bounds how far the mean over trials can lie from q.

Noise of too few bits, or from a seed, gives the same number twice. Correct noise has at least
2^28 lattice steps to a deviation, so two numbers are equal with probability
:math:`1 / (2 \sqrt\pi\, 2^{28})` at most, and the number of equal pairs is nearly a Poisson number.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from flwr_fbo.methods.dp_fts_de.audited_run import AuditedRun, restart
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.attack import Trials
from flwr_fbo.privacy.entropy import Entropy, Words, system_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.ledger import MemoryLedger
from flwr_fbo.privacy.mechanisms import RESOLUTION

#: The number of one-sided tests here that share the error probability of an audit.
TESTS = 5
#: The fewest random bits that a number of a release needs: its lattice has 2^28 steps a deviation.
LEAST_BITS = 32
#: Two ways to the same epsilon may differ by this much, relatively (the grid of the accountant).
_GRID = 2e-3

Interval = tuple[float, float]


# ------------------------------------------------------------------ what was drawn


def noise_drawn(run: AuditedRun, fresh: Trials, error: float) -> Interval:
    """Return an interval that holds the noise multiplier of the drawn noise."""
    shape = (*fresh.absent.shape[:2], run.settings.regions, -1)
    along = np.einsum("tkpm,km->tkp", fresh.absent.reshape(shape), run.directions)  # N(0, 1)
    squares, count = float((along**2).sum()), along.size
    ends = stats.chi2.ppf([1.0 - error, error], count)
    low, high = run.schedule.noise_multiplier * np.sqrt(squares / ends)
    return float(low), float(high)


def sampling_drawn(run: AuditedRun, fresh: Trials, error: float) -> Interval:
    """Return an interval that holds the rate at which the canary's message is counted."""
    q, precision = run.schedule.sampling_rate, (run.response**2).sum(axis=1)  # (K,)
    x = np.einsum("tkd,kd->t", fresh.present, run.response) / precision.sum()  # (t,)
    share = precision / precision.sum()
    variance = float((share**2 * (q * (1.0 - q) + 1.0 / precision)).sum())
    # Bernstein's inequality, for a sum of Gaussians and of two-valued numbers of this range.
    far = -math.log(error)
    range_ = float(share.max()) if q < 1.0 else 0.0
    radius = math.sqrt(2.0 * variance * far / len(x)) + range_ * far / (3.0 * len(x))
    return float(x.mean()) - radius, float(x.mean()) + radius


def repeated_numbers(pilot: Trials, fresh: Trials) -> int:
    """Return how many released numbers had occurred before at the same place."""
    every = np.concatenate([pilot.absent, pilot.present, fresh.absent, fresh.present])
    places = np.sort(every.reshape(len(every), -1), axis=0)
    return int((places[1:] == places[:-1]).sum())


def most_repeated(trials: int, places: int, error: float) -> float:
    """Return the number of repetitions that correct noise exceeds with this probability."""
    pairs = places * trials * (trials - 1) / 2.0
    return float(stats.poisson.isf(error, pairs / (2.0 * math.sqrt(math.pi) * 2.0**RESOLUTION)))


def faults_of_draws(
    run: AuditedRun, pilot: Trials, fresh: Trials, noise: Interval, sampling: Interval, error: float
) -> list[str]:
    """Return in what the noise and the samples that were drawn differ from what is charged."""
    found = []
    z, q = run.schedule.noise_multiplier, run.schedule.sampling_rate
    if not noise[0] <= z <= noise[1]:
        found.append(
            f"noise multiplier {z:.4g} is charged, but {noise[0]:.4g} to {noise[1]:.4g} was drawn"
        )
    if not sampling[0] <= q <= sampling[1]:
        found.append(
            f"sampling rate {q:.4g} is charged, but {sampling[0]:.4g} to {sampling[1]:.4g} of an "
            "agent's message was counted"
        )
    repeated = repeated_numbers(pilot, fresh)
    trials = 2 * (len(pilot.absent) + len(fresh.absent))
    most = most_repeated(trials, run.response.size, error)
    if repeated > most:
        found.append(
            f"{repeated} numbers of the noise occurred twice, where {most:.0f} are the most by "
            "chance: the noise has too few bits, or is from a seed"
        )
    return found


# ------------------------------------------------------------------ what was charged


class _Watched:
    """Entropy that remembers how many charges the ledger held at every draw, and its words."""

    def __init__(self, source: Entropy, ledger: MemoryLedger) -> None:
        self._source, self._ledger = source, ledger
        self.private = source.private
        self.charges: list[int] = []
        self.count = 0

    def words(self, count: int) -> Words:
        self.charges.append(len(self._ledger.events))
        self.count += count
        return self._source.words(count)

    def begin(self) -> None:
        """Forget all draws so far."""
        self.charges, self.count = [], 0


def faults_of_charges(run: AuditedRun, entropy: Entropy | None = None) -> tuple[float, list[str]]:
    """Return the epsilon that a run declares, and what is wrong with its charges."""
    ledger = MemoryLedger()
    watched = _Watched(entropy or system_entropy(), ledger)
    server = run.server(watched)
    restart(server, server.state_dict(), ledger)
    declared = server.statement().epsilon or 0.0  # stated before the first release
    made, found = _close_all_rounds(run, server, watched)
    if tuple(made) != run.rounds:
        found.append(f"releases were made in the rounds {made}, but {list(run.rounds)} are planned")
    expected = tuple(
        GaussianRelease(run.schedule.noise_multiplier, run.schedule.sampling_rate, t) for t in made
    )
    if ledger.events != expected:
        found.append(
            f"{len(ledger.events)} charges are in the ledger, but they are not those of the "
            f"{len(made)} releases that were made"
        )
    return declared, [*found, *_faults_of_epsilon(run, server, declared, expected)]


def _close_all_rounds(
    run: AuditedRun, server: DPFTSDEServer, watched: _Watched
) -> tuple[list[int], list[str]]:
    """Close every round with vectors, and return the rounds that released and the faults."""
    made: list[int] = []
    found: list[str] = []
    numbers = run.response[0].size
    # Vectors are sent in every round, so that a release that is not planned shows.
    while not server.finished:
        t = server.round
        watched.begin()
        server.close(run.replies[min(len(made), len(run.replies) - 1)][1])
        release = server.release()
        if release is None or release.round != t:
            continue
        if any(charges <= len(made) for charges in watched.charges):
            found.append(f"noise or sample of round {t} was drawn before the release was charged")
        if 64 * watched.count < LEAST_BITS * numbers:
            found.append(
                f"the {numbers} numbers of round {t} were drawn from {watched.count} random words"
            )
        made.append(t)
    return made, found


def _faults_of_epsilon(
    run: AuditedRun,
    server: DPFTSDEServer,
    declared: float,
    events: tuple[GaussianRelease, ...],
) -> list[str]:
    """Return what is wrong with the epsilon that is declared and the epsilon that is spent."""
    budget, delta = server.budget, run.schedule.delta
    assert budget is not None
    found = []
    if not server.delta == budget.delta == delta:
        found.append(f"delta {delta:g} is claimed, but {budget.delta:g} is charged")
    accountant = make_accountant(run.settings.account)
    for event in events:
        accountant.compose(event)
    spent = accountant.epsilon(delta)
    if not math.isclose(budget.spent, spent, rel_tol=1e-9):
        found.append(f"the releases cost epsilon {spent:.4g}, but {budget.spent:.4g} is spent")
    # A second way to epsilon: all releases as one power of a distribution, without an accountant.
    least = max(spent, run.schedule.epsilon())
    if declared < least * (1.0 - _GRID):
        found.append(
            f"epsilon {declared:.4g} is declared at the start, but the releases cost {least:.4g}"
        )
    limit = run.settings.epsilon
    if limit is not None and spent > limit:
        found.append(f"the releases cost epsilon {spent:.4g}, more than the budget of {limit:g}")
    return found
