"""Settings of optimisation under local differential privacy (LDP-BO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flwr_fbo.core.settings import Settings, SettingsError, above, at_least, setting, within


@dataclass(frozen=True)
class LDPSettings(Settings):
    """Settings of every learner of LDP-BO; without ``epsilon`` rewards are not private."""

    # The run and its privacy
    budget: int = setting(
        1000, "plays in the whole run, each one reward of one agent (T)", at_least(1)
    )
    epsilon: float | None = setting(
        None, "privacy budget that one answer costs its agent; unset: no privacy", above(0)
    )
    epsilon_limit: float | None = setting(
        None,
        "privacy budget of each agent for the whole run; unset: what its share of the plays costs",
        above(0),
    )
    mechanism: Literal["laplace", "gaussian"] = setting(
        "laplace", "noise of an answer: laplace is epsilon-LDP, gaussian is (epsilon, delta)-LDP"
    )
    delta: float = setting(
        1e-6,
        "delta of one answer where `mechanism` is gaussian",
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
    constants: Literal["practical", "theory"] = setting(
        "practical", "constants of the learners: those that work in practice, or the theorems'"
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
        """Raise SettingsError where ``epsilon_limit`` pays for no answer."""
        limit, epsilon = self.epsilon_limit, self.epsilon
        if limit is not None and epsilon is None:
            raise SettingsError(
                "`epsilon-limit` needs `epsilon`, the cost of one answer, but got "
                f"epsilon-limit={limit:g} without `epsilon`"
            )
        if limit is not None and epsilon is not None and limit < epsilon:
            raise SettingsError(
                "`epsilon-limit` must pay for at least one answer of cost `epsilon`, "
                f"but got (epsilon={epsilon:g}, epsilon-limit={limit:g})"
            )

    @property
    def clip(self) -> float:
        """Return the largest absolute reward that is answered, before noise: B + R."""
        return self.bound + self.noise_bound
