"""The making of a learner: its domain, from a space and a kernel, and its settings."""

from __future__ import annotations

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.ldp.domain import domain_of
from flwr_fbo.methods.ldp.learner import Learner
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.models.kernels import kernel_named


def make_learner(
    learner: type[Learner],
    space: Space,
    settings: LDPSettings,
    seed: int = 0,
    covariance: Array | None = None,
) -> Learner:
    """Make a learner over a space.

    Parameters
    ----------
    learner
        The class of the learner.
    space
        The search space.
    settings
        The settings of the method.
    seed
        Seed of the learner's draws.
    covariance
        A covariance (n, n) over the points of a finite space, in place of the kernel.
    """
    kernel = kernel_named(settings.kernel, settings.lengthscale)
    domain = domain_of(space, kernel, settings.features, seed, covariance)
    return learner(domain, settings, seed)


def check_privacy(method: str, private: bool | None, settings: LDPSettings) -> None:
    """Raise SettingsError where a method and its ``epsilon`` contradict each other.

    Parameters
    ----------
    method
        The name of the method.
    private
        Whether the method is for private rewards; None is for both.
    settings
        The settings of the method.
    """
    if private is True and not settings.private:
        other = method.removeprefix("ldp-")
        raise SettingsError(f"`{method}` needs `epsilon`; without privacy use `{other}`")
    if private is False and settings.private:
        raise SettingsError(
            f"`{method}` is not private; with `epsilon` or `epsilon-per-answer` use `ldp-{method}`"
        )
