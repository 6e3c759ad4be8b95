"""What can be set for optimisation under local differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flwr_fbo.core.settings import Settings, SettingsError, above, at_least, setting, within


@dataclass(frozen=True)
class LDPSettings(Settings):
    """Settings of every learner of this folder; without ``epsilon`` rewards are not private."""

    budget: int = setting(1000, "how many plays there are in all (the paper's T)", at_least(1))
    epsilon: float | None = setting(None, "privacy that one answer costs its agent", above(0))
    epsilon_limit: float | None = setting(
        None, "privacy an agent spends in all; unset: an equal share of the plays", above(0)
    )
    mechanism: Literal["laplace", "gaussian"] = setting(
        "laplace", "the noise: laplace is epsilon-LDP, gaussian (epsilon, delta)-LDP"
    )
    delta: float = setting(
        1e-6, "the delta of the gaussian mechanism", within(0, 1, open_low=True, open_high=True)
    )
    bound: float = setting(1.0, "bound on the mean reward (the paper's B)", above(0))
    noise_bound: float = setting(1.0, "bound on the noise of a reward (R)", above(0))
    reward_offset: float = setting(0.0, "subtracted from every reward before it is clipped")
    norm: float | None = setting(
        None, "bound on the RKHS norm in confidence widths; unset: `bound`", above(0)
    )
    second_moment: float | None = setting(
        None, "bound on a raw reward's second moment (v); unset: from the bounds", above(0)
    )
    noise_variance: float | None = setting(
        None, "variance of a raw reward's noise (c); unset: from the bounds", above(0)
    )
    kernel: Literal["se", "matern12", "matern32", "matern52"] = setting(
        "matern52", "covariance of the mean reward, unless the task brings its own"
    )
    lengthscale: float = setting(0.2, "length scale of the kernel in the unit cube", above(0))
    constants: Literal["practical", "theory"] = setting(
        "practical", "constants as the theorems state them, or such as work in practice"
    )
    exploration: float | None = setting(
        None, "factor on the confidence width; unset: what the preset says", above(0)
    )
    regularisation: float | None = setting(
        None, "lambda of the regression; unset: what the preset says", above(0)
    )
    failure: float = setting(
        0.1,
        "probability that a confidence bound may fail (the theorems' delta)",
        within(0, 1, open_low=True, open_high=True),
    )
    epoch: int | None = setting(
        None, "plays per epoch of MoMA (k); unset: what the preset says", at_least(1)
    )
    embedding: Literal["exact", "nystrom"] = setting(
        "exact", "features of finite arms in ATA and MoMA: all of them, or a Nystrom sample"
    )
    accuracy: float = setting(
        0.5,
        "accuracy of the Nystrom embedding (the theorems' epsilon)",
        within(0, 1, open_low=True, open_high=True),
    )
    features: int = setting(200, "random features on spaces that are not finite", at_least(1))

    def check(self) -> None:
        """See :class:`Settings`."""
        limit, epsilon = self.epsilon_limit, self.epsilon
        if limit is not None and epsilon is None:
            raise SettingsError(
                f"`epsilon-limit` needs `epsilon`, but got epsilon-limit={limit:g} alone"
            )
        if limit is not None and epsilon is not None and limit < epsilon:
            raise SettingsError(
                "`epsilon-limit` must pay for at least one answer of `epsilon`, "
                f"but got (epsilon={epsilon:g}, epsilon-limit={limit:g})"
            )

    @property
    def clip(self) -> float:
        """Largest absolute reward that is answered, before noise."""
        return self.bound + self.noise_bound
