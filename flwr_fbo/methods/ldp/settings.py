"""Settings of optimisation under local differential privacy (LDP-BO)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from flwr_fbo.core.settings import Settings, SettingsError, above, at_least, setting, within
from flwr_fbo.privacy.calibration import default_delta


@dataclass(frozen=True)
class LDPSettings(Settings):
    """Settings of every learner of LDP-BO; without an epsilon rewards are not private."""

    #: The budget is one of all agents together.
    shares_budget: ClassVar[bool] = True

    # The run and its privacy
    budget: int = setting(
        1000, "plays in the whole run, each one reward of one agent (T)", at_least(1)
    )
    epsilon: float | None = setting(
        None,
        "privacy budget of one agent for the whole run, against everybody; unset: none, or as "
        "`epsilon-per-answer` says",
        above(0),
    )
    epsilon_per_answer: float | None = setting(
        None,
        "epsilon of one reply; unset: `epsilon` divided by the number of replies of an agent",
        above(0),
    )
    mechanism: Literal["laplace", "gaussian"] = setting(
        "laplace", "noise of an answer: laplace is epsilon-LDP, gaussian is (epsilon, delta)-LDP"
    )
    delta: float | None = setting(
        None,
        "delta of an agent's whole run where `mechanism` is gaussian; unset: min(1e-5, 1/(10 N))",
        within(0, 1, open_low=True, open_high=True),
    )
    delta_per_answer: float | None = setting(
        None,
        "delta of one reply; unset: `delta` divided by the number of replies of an agent",
        within(0, 1, open_low=True, open_high=True),
    )
    # What is known of the rewards
    bound: float = setting(1.0, "bound on the absolute mean of a reward (B)", above(0))
    noise_bound: float = setting(1.0, "bound on the absolute noise of a reward (R)", above(0))
    reward_offset: float = setting(
        0.0, "number that is subtracted from every reward before the reward is clipped"
    )
    norm: float | None = setting(
        None, "bound on the function's RKHS norm in the confidence widths; unset: `bound`", above(0)
    )
    second_moment: float | None = setting(
        None,
        "bound on a reward's second moment before privacy noise (v); unset: from the bounds",
        above(0),
    )
    noise_variance: float | None = setting(
        None,
        "variance of a reward's own noise, before privacy noise (c); unset: from `noise-bound`",
        above(0),
    )
    # The learners
    kernel: Literal["se", "matern12", "matern32", "matern52"] = setting(
        "matern52", "kernel of the mean reward, where the task states no covariance of its own"
    )
    lengthscale: float = setting(0.2, "length scale of `kernel` in the unit cube", above(0))
    constants: Literal["practical", "orders", "theory"] = setting(
        "practical",
        "constants of the learners: those that work in practice, the theorems' orders with "
        "factors of 1, or the theorems'",
    )
    exploration: float | None = setting(
        None, "factor on the confidence width; unset: as `constants` says", above(0)
    )
    regularisation: float | None = setting(
        None, "regularisation of the regression (lambda); unset: as `constants` says", above(0)
    )
    failure: float = setting(
        0.1,
        "probability that a confidence bound may fail (the theorems' delta)",
        within(0, 1, open_low=True, open_high=True),
    )
    epoch: int | None = setting(
        None, "plays in one epoch of MoMA (k); unset: as `constants` says", at_least(1)
    )
    embedding: Literal["exact", "nystrom"] = setting(
        "exact", "features of finite arms in ATA and MoMA: exact, or a Nystrom sample"
    )
    accuracy: float = setting(
        0.5,
        "accuracy of the Nystrom sample (the theorems' epsilon)",
        within(0, 1, open_low=True, open_high=True),
    )
    features: int = setting(
        200, "random features that stand for the kernel on a space that is not finite", at_least(1)
    )

    def check(self) -> None:
        """Raise SettingsError where ``epsilon`` pays for no answer."""
        whole, each = self.epsilon, self.epsilon_per_answer
        if whole is not None and each is not None and whole < each:
            raise SettingsError(
                "`epsilon` must pay for at least one answer of `epsilon-per-answer`, "
                f"but got (epsilon={whole:g}, epsilon-per-answer={each:g})"
            )

    @property
    def private(self) -> bool:
        """Say whether answers are private."""
        return self.epsilon is not None or self.epsilon_per_answer is not None

    def for_agents(self, agents: int) -> LDPSettings:
        """Return the settings of a run with N agents, in which what follows from N is stated.

        An agent gives ceil(T / N) answers when all plays are made, and k answers cost k times
        what one costs (basic composition).
        """
        if not self.private:
            return self
        answers = math.ceil(self.budget / agents)
        whole, each = self.epsilon, self.epsilon_per_answer
        delta = default_delta(agents) if self.delta is None else self.delta
        return replace(
            self,
            epsilon=each * answers if whole is None and each is not None else whole,
            epsilon_per_answer=whole / answers if each is None and whole is not None else each,
            delta=delta,
            delta_per_answer=self.delta_per_answer or delta / answers,
        )

    @property
    def clip(self) -> float:
        """Return the largest absolute reward that is answered, before noise: B + R."""
        return self.bound + self.noise_bound
