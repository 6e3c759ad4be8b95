"""The audit of a whole run of the real server, which ``flwr-fbo audit`` runs.

A trial closes the rounds of :class:`DPFTSDEServer
<flwr_fbo.methods.dp_fts_de.server.DPFTSDEServer>` one after the other, with the plan, noise,
sampling and weights of the run's own settings, and collects all releases. Thousands of trials
with and without one agent give bounds on epsilon (:mod:`flwr_fbo.privacy.attack`). The same
trials, and the ledger of one more run, show whether what was charged is what was drawn
(:mod:`flwr_fbo.methods.dp_fts_de.audit_books`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from flwr_fbo.methods.dp_fts_de import audit_books
from flwr_fbo.methods.dp_fts_de.audited_run import AuditedRun
from flwr_fbo.methods.dp_fts_de.release_audit import check_settings
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.privacy import attack, checks
from flwr_fbo.privacy.attack import BOUNDS
from flwr_fbo.privacy.audit import AuditResult
from flwr_fbo.privacy.entropy import Entropy

#: The default number of trials draws this many releases: about half a minute on one core.
WORK = 200_000
#: The most trials by default, and the fewest for a very long schedule.
MOST_TRIALS, FEWEST_TRIALS = 20_000, 200


@dataclass(frozen=True)
class ScheduleAudit:
    """The result of an audit of all releases of a run.

    Parameters
    ----------
    attack : AuditResult
        The bounds of the attack.
    agents : int
        N.
    rounds : tuple of int
        The rounds that release.
    noise_drawn, sampling_drawn : tuple of float
        Intervals that hold the z of the drawn noise and the q of the drawn samples.
    epsilon_declared : float
        The epsilon that the server declares before the first release.
    faults : tuple of str
        In what the books differ from what was drawn; empty where they agree.
    """

    attack: AuditResult
    agents: int
    rounds: tuple[int, ...]
    noise_drawn: tuple[float, float]
    sampling_drawn: tuple[float, float]
    epsilon_declared: float
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Return whether no bound contradicts the claim, and the books agree with the draws."""
        return self.attack.passed and not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Return the result as one flat JSON object."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)[1:]}
        own = {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}
        return {**self.attack.to_dict(), **own, "passed": self.passed}

    def to_text(self) -> str:
        """Return the result as a text."""
        lines = [
            f"{self.agents} agents, releases in the rounds {', '.join(map(str, self.rounds))}",
            *self.attack.lines(),
            "drawn:    noise multiplier in [{:.4g}, {:.4g}], sampling rate in "
            "[{:.4g}, {:.4g}]".format(*self.noise_drawn, *self.sampling_drawn),
            f"declared: epsilon {self.epsilon_declared:.3f}",
            *(f"FAULT: {fault}" for fault in self.faults),
            "PASSED: no observation contradicts the claim."
            if self.passed
            else "FAILED: the run reveals more than is claimed, or its books are wrong.",
        ]
        return "\n".join(lines)


def audit_schedule(
    settings: DPFTSDESettings,
    agents: int,
    rounds: int,
    trials: int | None = None,
    confidence: float = 0.99,
    entropy: Entropy | None = None,
) -> ScheduleAudit:
    """Attack all releases of a run with these settings, and compare its books with the draws.

    Parameters
    ----------
    settings : DPFTSDESettings
        The settings of a private run with Poisson sampling.
    agents, rounds : int
        N and T.
    trials : int, optional
        The number of fresh trials on each of two neighbouring inputs, beside half as many pilot
        trials; by default as many as half a minute allows.
    confidence : float
        The probability, at least, with which a correct run passes.
    entropy : Entropy, optional
        The source of noise and samples; by default the server's own.
    """
    check_settings(settings)
    checks.open_unit("confidence", confidence)
    run = AuditedRun(settings, agents, rounds, entropy)
    if trials is None:
        # Fresh trials of two inputs, half as many pilot trials, and as many without any reply.
        releases = 4 * len(run.rounds)
        affordable = int(WORK / (releases * (1.0 + agents / 2000)))  # a sample of all agents each
        trials = max(FEWEST_TRIALS, min(MOST_TRIALS, affordable))
    checks.count("trials", trials, low=100)
    error = (1.0 - confidence) / (BOUNDS + audit_books.TESTS)
    pilot, fresh = run.trials(trials // 2), run.trials(trials)
    found = attack.bounds(pilot, fresh, run.schedule, error, run.response)
    noise, sampling, drawn = audit_books.faults_of_draws(
        run, fresh.present, run.noise(trials), error
    )
    declared, charged = audit_books.faults_of_charges(run, entropy)
    return ScheduleAudit(
        attack=AuditResult.of(run.schedule, found, trials, confidence),
        agents=agents,
        rounds=run.rounds,
        noise_drawn=noise,
        sampling_drawn=sampling,
        epsilon_declared=declared,
        faults=(*drawn, *charged),
    )
