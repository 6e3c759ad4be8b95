r"""The books of an audited run: whether what was charged and declared is what was drawn.

Notation

===================  ==============================================  ==========
symbol               here                                            shape
===================  ==============================================  ==========
``z``, ``q``         what each event of the ledger charges           scalars
``y``                ``present``, releases with the canary           (t, K, P M)
``x``                the canary's share of a release, see below      (t, K)
===================  ==============================================  ==========

**Noise.** Where nobody replies, a release is noise, in deviations of the claimed noise. The sum
of the squares has a chi-squared distribution. Noise of too few bits, or from a seed, gives the same
number twice: correct noise has at least 2^28 lattice steps to a deviation, so two numbers are equal
with probability :math:`1 / (2 \sqrt\pi\, 2^{28})` at most, and the number of equal pairs is
nearly a Poisson number.

**Sampling.** With the canary, :math:`x_k = \langle y_k, r_k \rangle / |r_k|^2` has mean q and
variance :math:`q (1 - q) + 1 / |r_k|^2`. Bernstein's inequality bounds how far the mean over all
trials can lie from q. Independent samples make the x_k of a trial uncorrelated; the bound of
their products is that of a Gaussian chaos (Laurent and Massart 2000).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.dp_fts_de.audited_run import AuditedRun, restart
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.entropy import Entropy, Words, system_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.ledger import MemoryLedger
from flwr_fbo.privacy.mechanisms import RESOLUTION

#: The number of one-sided tests here that share the error probability of an audit.
TESTS = 7
#: Two ways to the same epsilon may differ by this much, relatively (the grid of the accountant).
_GRID = 2e-3

Interval = tuple[float, float]


# ------------------------------------------------------------------ what was drawn


def noise_drawn(run: AuditedRun, noise: Array, error: float) -> Interval:
    """Return an interval that holds the noise multiplier of the drawn noise (t, K, P M)."""
    ends = stats.chi2.ppf([1.0 - error, error], noise.size)
    low, high = run.schedule.noise_multiplier * np.sqrt(float((noise**2).sum()) / ends)
    return float(low), float(high)


def shares(run: AuditedRun, present: Array) -> tuple[Array, Array]:
    """Return x, (t, K), and the variance of each x_k under the claim, (K,)."""
    q, precision = run.schedule.sampling_rate, (run.response**2).sum(axis=1)
    x = np.einsum("tkd,kd->tk", present, run.response) / precision
    return x, q * (1.0 - q) + 1.0 / precision


def sampling_drawn(run: AuditedRun, present: Array, error: float) -> Interval:
    """Return an interval that holds the rate at which the canary's message is counted."""
    x, variance = shares(run, present)
    far = -math.log(error)
    # The range of the two-valued part of x, whose Gaussian part has none.
    extent = 1.0 if run.schedule.sampling_rate < 1.0 else 0.0
    radius = math.sqrt(2.0 * float(variance.mean()) * far / x.size) + extent * far / (3.0 * x.size)
    return float(x.mean()) - radius, float(x.mean()) + radius


def correlation_of_samples(run: AuditedRun, present: Array, error: float) -> tuple[float, float]:
    """Return the mean correlation between the samples of two releases, and its largest chance."""
    x, variance = shares(run, present)
    trials, count = x.shape
    if count < 2:
        return 0.0, 0.0
    u = (x - run.schedule.sampling_rate) / np.sqrt(variance)  # mean 0, variance 1
    products = 0.5 * (u.sum(axis=1) ** 2 - (u**2).sum(axis=1))  # sum over j < k of u_j u_k
    far, pairs = -math.log(error), count * (count - 1) / 2.0
    largest = math.sqrt(2.0 * pairs * far / trials) + (count - 1) * far / trials
    return float(products.mean()) / pairs, largest / pairs


def repeated_numbers(noise: Array) -> tuple[int, int]:
    """Return how many numbers had occurred before in the same release, and how many may."""
    trials, count, size = noise.shape
    numbers = np.sort(noise.transpose(1, 0, 2).reshape(count, -1), axis=1)
    pairs = count * (trials * size) ** 2 / 2.0
    expected = pairs / (2.0 * math.sqrt(math.pi) * 2.0**RESOLUTION)
    # A Poisson number exceeds this with probability 10^-9 at most, whatever the confidence.
    most = int(stats.poisson.isf(1e-9, expected))
    return int((numbers[:, 1:] == numbers[:, :-1]).sum()), most


def faults_of_draws(
    run: AuditedRun, present: Array, noise: Array, error: float
) -> tuple[Interval, Interval, list[str]]:
    """Return the z and q that were drawn, and in what they differ from what is charged."""
    found = []
    z, q = run.schedule.noise_multiplier, run.schedule.sampling_rate
    noise_ends, sampling_ends = noise_drawn(run, noise, error), sampling_drawn(run, present, error)
    if not noise_ends[0] <= z <= noise_ends[1]:
        found.append(
            f"noise multiplier {z:.4g} is charged, but "
            f"{noise_ends[0]:.4g} to {noise_ends[1]:.4g} was drawn"
        )
    if not sampling_ends[0] <= q <= sampling_ends[1]:
        found.append(
            f"sampling rate {q:.4g} is charged, but {sampling_ends[0]:.4g} to "
            f"{sampling_ends[1]:.4g} of an agent's message was counted"
        )
    correlation, largest = correlation_of_samples(run, present, error)
    if abs(correlation) > largest:
        found.append(
            f"samples of different releases are charged as independent, but their correlation is "
            f"{correlation:.2g}, where {largest:.2g} is the most by chance"
        )
    repeated, most = repeated_numbers(noise)
    if repeated > most:
        found.append(
            f"{repeated} numbers of the noise occurred twice, where {most} are the most by chance: "
            "the noise has too few bits, or is from a seed"
        )
    return noise_ends, sampling_ends, found


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
    # At least one word of 64 bits for each number and, where there is a sample, for each agent.
    sampled = run.agents if run.schedule.sampling_rate < 1.0 else 0
    words = run.response[0].size + sampled
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
        if watched.count < words:
            found.append(
                f"the release of round {t} was drawn from {watched.count} random words, but needs "
                f"{words} or more"
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
