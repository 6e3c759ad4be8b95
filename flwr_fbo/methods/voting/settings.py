"""Settings of voting: the public list of settings, the votes, and the noise of their sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from flwr_fbo.core.children import MOST_PARALLEL
from flwr_fbo.core.settings import Settings, SettingsError, above, at_least, setting, within
from flwr_fbo.methods.secure_settings import colluding_setting, threshold_setting
from flwr_fbo.privacy.calibration import default_delta


@dataclass(frozen=True)
class VotingSettings(Settings):
    """Settings of voting; a run is private if ``epsilon`` is set."""

    budget: int = setting(
        100,
        "length of the public list of settings; every agent evaluates all of them",
        at_least(2),
    )
    epsilon: float | None = setting(
        None, "privacy budget: the epsilon of the one sum of votes; unset: no noise", above(0)
    )
    delta: float | None = setting(
        None,
        "delta of the run's epsilon; unset: min(1e-5, 1/(10 N)) for N agents",
        within(0, 1, open_low=True, open_high=True),
    )
    votes: int = setting(5, "k, number of its best settings that an agent votes for", at_least(1))
    design: Literal["spread", "grid"] = setting(
        "spread",
        "the list of settings: quasi-random points of the space, or a full grid",
    )
    batch: int = setting(5, "evaluations that an agent makes for one message", at_least(1))
    parallel: int = setting(
        1,
        "number of evaluations of a message that an agent makes at once, each in a process",
        within(1, MOST_PARALLEL),
    )
    neighbours: Literal["absent", "replaced"] = setting(
        "absent",
        "what epsilon hides: whether a party voted (as in dp-fts-de), or how it voted (the paper)",
    )
    aggregation: Literal["central", "secure"] = setting(
        "central",
        "who adds the noise: a trusted server, or the agents in secure sums, whose total is all "
        "that the server sees",
    )
    secure_threshold: float = threshold_setting()
    secure_colluding: int = colluding_setting()
    noise_seed: int | None = setting(
        None,
        "seed of the privacy noise, for research only: the run is then NOT PRIVATE",
        at_least(0),
    )

    @property
    def private(self) -> bool:
        """Return whether noise is added to the votes."""
        return self.epsilon is not None

    @property
    def secure(self) -> bool:
        """Return whether the votes are added up by a secure sum."""
        return self.aggregation == "secure"

    @property
    def sensitivity(self) -> float:
        """Return the largest distance of two neighbours' sums (docs/reference/proofs.md, 25)."""
        # Two lists of k votes have distance sqrt(2k) if they have no setting in common.
        return math.sqrt(self.votes if self.neighbours == "absent" else 2 * self.votes)

    def check(self) -> None:
        """Raise SettingsError where an agent has as many votes as there are settings.

        A secure sum needs noise, which the agents draw themselves.
        """
        if self.secure and self.epsilon is None:
            raise SettingsError("`aggregation=secure` needs `epsilon`, but it is unset")
        if self.secure and self.noise_seed is not None:
            raise SettingsError(
                "`noise-seed` must be unset with `aggregation=secure`, but got "
                f"{self.noise_seed}: the parties draw the noise of the sum themselves"
            )
        if self.votes >= self.budget:
            raise SettingsError(
                f"`votes` must be < `budget`, but got votes={self.votes} and "
                f"budget={self.budget}: an agent that votes for every setting prefers none"
            )

    def delta_for(self, agents: int) -> float:
        """Return the run's delta for this number of agents."""
        return default_delta(agents) if self.delta is None else self.delta
