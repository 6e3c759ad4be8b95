r"""The server of voting: one list of settings, one noisy sum of votes, one setting for all.

Notation

=======================  ==========================================  =======
symbol                   here                                        shape
=======================  ==========================================  =======
``N``, ``G``             ``agents``, ``len(server.listed)``          int
``k``                    ``settings.votes``                          int
noisy numbers of votes   ``server.released.latest``                  (1, G)
argmax                   ``server.recommend(...)``
=======================  ==========================================  =======

The method is that of DP-Hype: a vote over a public list, with client-level privacy. Every round
has the agents evaluate a further part of the list. The last round asks for the votes, and only
then anything that depends on data leaves an agent. The sum is released once, so its noise does not
depend on how many settings are evaluated or how many agents there are.

What differs from the published method, and why: by default the list is quasi-random and not a
grid, as a grid of 100 points has less than three values of each parameter in five dimensions; the
default neighbouring relation is that of ``dp-fts-de``, so that two epsilons can be compared
(``neighbours=replaced`` is the published one); the noise is exact, and calibrated by the exact
condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import special

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.secure_sum import MORE_COLLUDING, PLAN, SecurePlan, SecureSum, plan_sums
from flwr_fbo.methods.summing_server import SummingServer
from flwr_fbo.methods.voting.agent import KIND
from flwr_fbo.methods.voting.secure import open_sum
from flwr_fbo.methods.voting.settings import VotingSettings
from flwr_fbo.methods.voting.tally import Tally
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.calibration import epsilon_of, gaussian_epsilon, noise_multiplier_for
from flwr_fbo.privacy.entropy import Entropy, seeded_entropy, system_entropy
from flwr_fbo.privacy.events import Event
from flwr_fbo.privacy.ledger import Ledger, MemoryLedger
from flwr_fbo.privacy.mechanisms import Integers
from flwr_fbo.privacy.releases import Release, ReleaseMemory
from flwr_fbo.privacy.secure.noise_share import charged_delta
from flwr_fbo.privacy.statement import DELTAS, NEVER_COVERED, PrivacyStatement, versions
from flwr_fbo.search.listed import listed_settings

#: Secure sums that may be abandoned, before their votes are asked for, until the run ends.
MOST_ATTEMPTS = 5
#: A recommendation is clear if noise alone reaches as many votes in one run of twenty at most.
LEVEL = 0.95
#: The number of settings in the ranking of a result.
RANKED = 10


class VotingServer(SummingServer):
    """The server of voting, with one release that is paid for before its noise is drawn.

    Parameters
    ----------
    space : Space
        The search space.
    agents : int
        N, the number of agents.
    settings : VotingSettings
        The settings of the run.
    seed : int
        The seed of the public list; the noise does not depend on the seed.
    entropy : Entropy, optional
        The source of the noise, by default the operating system's. Any other source makes the run
        NOT PRIVATE.
    """

    name = "voting"
    repeats_silent_rounds = True

    def __init__(
        self,
        space: Space,
        agents: int,
        settings: VotingSettings,
        seed: int = 0,
        entropy: Entropy | None = None,
    ) -> None:
        if agents < 1:
            raise SettingsError(f"`agents` must be >= 1, but got {agents!r}")
        self.space, self.agents, self.settings = space, agents, settings
        rng = np.random.default_rng([seed, 2**31])
        self.listed = listed_settings(space, settings.budget, settings.design, rng)
        self.rounds: int | None = math.ceil(len(self.listed) / settings.batch)
        self._last = self.rounds - 1
        self.round = 0
        seeded = None if settings.noise_seed is None else seeded_entropy(settings.noise_seed)
        self._entropy = entropy or seeded or system_entropy()
        self.delta = settings.delta_for(agents)
        self.noise_multiplier: float | None = None
        if settings.epsilon is not None:
            charged = self._charged_delta
            self.noise_multiplier = noise_multiplier_for(settings.epsilon, charged, [1.0])
            self.budget = PrivacyBudget(settings.epsilon, charged, MemoryLedger())
        self.tally = Tally(settings, len(self.listed), self.noise_multiplier)
        self.released = ReleaseMemory()
        self.exhausted = False
        self._attempts = 0  # secure sums that were abandoned
        if settings.secure and self.noise_multiplier is not None:
            share, colluding = settings.secure_threshold, settings.secure_colluding
            self.secure_plan = plan_sums(agents, share, colluding, self.noise_multiplier, 1)

    @property
    def _charged_delta(self) -> float:
        """Return the delta to account with; in a secure sum a part of delta pays for rounding."""
        return charged_delta(self.delta) if self.settings.secure else self.delta

    @classmethod
    def for_run(cls, run: RunParameters, settings: VotingSettings, **options: Any) -> Self:
        """Make the server of one run, with the run's ledger file, continued if the file exists."""
        if settings.private and run.quorum < 1:
            # With a quorum, the time that one agent takes decides which other votes are counted.
            raise SettingsError(
                f"`round-quorum` must be 1 in a private run, but got {run.quorum:g}: one "
                "agent's speed would decide which others count; use `timeout`"
            )
        server = cls(run.space, run.agents, settings, run.seed)
        if settings.private and run.ledger is not None:
            server._open_ledger(run.ledger)
        return server

    def _open_ledger(self, path: Path) -> None:
        """Charge the release to the ledger in this file."""
        assert self.settings.epsilon is not None
        header = {
            "strategy": "voting",
            "agents": self.agents,
            "releases": [self._last],
            "delta": self.delta,
            "epsilon": self.settings.epsilon,
            "accountant": "pld",
        }
        self._ledger = Ledger.open(path, header)
        self.budget = PrivacyBudget(self.settings.epsilon, self._charged_delta, self._ledger)

    @property
    def finished(self) -> bool:
        """Return whether the votes were counted, or could not be paid for."""
        return self.round > self._last

    @property
    def completed(self) -> bool:
        """Return whether the votes were counted."""
        return self.finished and not self.exhausted

    @property
    def private(self) -> bool:
        """Return whether the run is private: its noise is secret."""
        return self.settings.private and self._entropy.private

    def setup(self) -> Setup:
        """Return the settings of the run and the list to vote on, which are public."""
        arrays = {"settings": self.listed}
        if self.secure_plan is not None:
            arrays[PLAN] = self.secure_plan.to_array()
        return Setup(KIND, self.space, self.settings.to_mapping(), arrays)

    def _round_requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request for a further part of the list, and in the last round for votes."""
        if self.finished:
            return {}
        until = min((self.round + 1) * self.settings.batch, len(self.listed))
        asks = self.round == self._last and self.secure_plan is None
        expects = {"votes": (len(self.listed),)} if asks else {}
        request = Request("evaluate", self.round, {"until": until}, {}, expects)
        return {n: request for n in present if 0 <= n < self.agents}

    def _close_round(self, replies: Mapping[int, Reply]) -> None:
        """Take in a round; in the last one, charge the ledger and release the sum of the votes."""
        for n in replies:
            if self.finished or not 0 <= n < self.agents:
                raise ReplyError(f"agent {n} answers round {self.round} without being asked")
        if self.round == self._last and self.secure_plan is not None:
            self._open_sum(self.secure_plan)
        elif self.round == self._last:
            self._count({n: r.arrays["votes"] for n, r in replies.items() if not r.declined})
        self.round += 1

    def _open_sum(self, plan: SecurePlan) -> None:
        """Open the secure sum of the votes, unless an earlier process has charged one."""
        assert self.budget is not None
        if self.budget.would_exceed(self.tally.event(self.round)):
            self.exhausted = True
            return
        self._sum = open_sum(plan, self.settings, self._bound_to, self.round, len(self.listed))

    def _sum_event(self, opened: SecureSum) -> Event:
        return self.tally.event(self._last)

    def _take_sum(self, opened: SecureSum, total: Integers) -> None:
        votes = opened.noise.lattice.values(total)[None, :]
        self.released.add(votes, opened.noise.deviation(opened.survivors), self._last)

    def _sum_failed(self) -> None:
        """Ask for the last round again where nothing was charged, unless in vain too often."""
        self._attempts += 1
        self.exhausted = self.charges > 0 or self._attempts >= MOST_ATTEMPTS
        if not self.exhausted:
            self.round = self._last

    def _count(self, votes: Mapping[int, Array]) -> None:
        if self.budget is None:
            self.released.add(self.tally.without_noise(votes, self.round), 0.0, self.round)
            return
        event = self.tally.event(self.round)
        if self.budget.would_exceed(event):
            # An earlier process charged the release, and ended before it stored it.
            self.exhausted = True
            return
        self.budget.charge(event)  # on disk before anything is drawn
        drawn = self.tally.draw_release(votes, self.round, self._entropy)
        self.released.add(drawn, self.tally.deviation(self.round), self.round)

    def state_dict(self) -> dict[str, Any]:
        """Return the round, the release, and whether the budget is exhausted."""
        # The ledger is a file of its own, and the state of the noise's source is never stored.
        state = {
            "round": self.round,
            "released": self.released.to_dict(),
            "exhausted": self.exhausted,
        }
        return state if self._ledger is None else {**state, "ledger": self._ledger.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that :meth:`state_dict` returned."""
        self.round = int(state["round"])
        self.released = ReleaseMemory.from_dict(state["released"])
        self.exhausted = bool(state["exhausted"])
        if self._ledger is not None and "ledger" in state:
            self._ledger.require(state["ledger"])

    # -- what a run reports ------------------------------------------------------------------

    def evaluations_per_agent(self) -> int | None:
        """Return the length of the list."""
        return len(self.listed)

    def release(self) -> Release | None:
        """Return the noisy numbers of votes; None before the last round."""
        return self.released.releases[-1] if len(self.released) else None

    def recommend(self, released: Sequence[Release]) -> dict[str, Any] | None:
        """Return the setting with the most votes, noise included; None before the release."""
        if not released:
            return None
        votes, noise = released[-1].vector[0], released[-1].deviation
        best = int(np.argmax(votes))
        # With equal votes for all settings, this is what the noise reaches in one run of twenty.
        reach = float(votes.mean()) + noise * self._largest_noise
        return {
            "params": self.space.from_unit(self.listed[best]),
            "unit": self.listed[best].tolist(),
            "value": float(votes[best]),
            "noise": float(noise),
            "noise_reach": reach,
            "clear": bool(votes[best] > reach),
            "releases": 1,
        }

    @property
    def _largest_noise(self) -> float:
        """Return the LEVEL quantile of the largest of G standard normal numbers."""
        return float(special.ndtri(LEVEL ** (1.0 / len(self.listed))))

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """Return the settings with the most votes, noise included, the best first."""
        latest = self.released.latest
        if latest is None:
            return {}
        order = np.argsort(-latest[0], kind="stable")[:RANKED]
        return {
            "ranking": [
                {"params": self.space.from_unit(self.listed[i]), "votes": float(latest[0, i])}
                for i in order
            ]
        }

    def notice(self) -> str:
        """Return why the run is not private, or nothing where the run is private."""
        if not self.settings.private:
            return "NOT PRIVATE: no epsilon was given"
        return "" if self._entropy.private else "NOT PRIVATE: the noise is seeded"

    def statement(self) -> PrivacyStatement:
        """Return what the one release guarantees, and whether it was made."""
        z, s = self.noise_multiplier, self.settings
        if self.budget is None or z is None or s.epsilon is None:
            return super().statement()
        spent = self.budget.spent
        absent = s.neighbours == "absent"
        return PrivacyStatement(
            method=self.name,
            agents=self.agents,
            relation=(
                "a party's votes replaced by none, as if it had not replied"
                if absent
                else "a party's votes replaced by any others"
            ),
            trust="central" if self.secure_plan is None else "secure-sum",
            secure_sum=self._sum_facts,
            mechanism=(
                f"one sum of {s.votes} votes a party over {len(self.listed)} settings, with "
                f"Gaussian noise of {self.tally.deviation(self._last):.4g} votes"
            ),
            # A release that a crash repeated would have been charged twice, but is refused.
            epsilon=max(spent, min(epsilon_of(z, self._charged_delta, [1.0]), s.epsilon)),
            delta=self.delta,
            spent=spent,
            mu=1.0 / z,
            epsilon_at={f"{d:g}": epsilon_of(z, d, [1.0]) for d in DELTAS},
            budget=s.epsilon,
            exhausted=self.exhausted,
            notice=self.notice(),
            not_covered=(
                "the server itself, which sees each party's votes"
                if self.secure_plan is None
                else MORE_COLLUDING,
                *NEVER_COVERED,
            ),
            versions=versions(),
        )

    def warnings(self) -> list[str]:
        """Return a warning where noise alone gets more votes than there are agents."""
        if self.noise_multiplier is None:
            return []
        excess = 1.0 if self.secure_plan is None else self.secure_plan.excess
        reach = excess * self.tally.deviation(self._last) * self._largest_noise
        if self.agents > reach:
            return []
        z = self.agents / self._largest_noise / self.settings.sensitivity / excess
        epsilon = gaussian_epsilon(z, self.delta)
        return [
            f"noise alone gives one of {len(self.listed)} settings {reach:.3g} votes in one run "
            f"of twenty, more than {self.agents} agents can give: the recommendation will be "
            f"nearly random. About {math.ceil(reach)} agents that agree, or about epsilon "
            f"{epsilon:.2g}, would be enough"
        ]
