"""The learner of a method of LDP-BO."""

from __future__ import annotations

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.methods.ldp.domain import domain_of
from flwr_fbo.methods.ldp.learner import Learner
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.method import located
from flwr_fbo.methods.registry import find_method
from flwr_fbo.models.kernels import kernel_named


def learner_class(method: str) -> type[Learner]:
    """Return the class of a method's learner; its registration names the class."""
    found: type[Learner] = located(find_method(method).options["learner"])
    return found


def make_learner(
    method: str,
    space: Space,
    settings: LDPSettings,
    seed: int = 0,
    covariance: Array | None = None,
) -> Learner:
    """Make the learner of a method by the method's name.

    ``covariance`` (n, n) over the points of a finite space replaces the kernel.
    """
    learner = learner_class(method)
    private = settings.epsilon is not None
    if method.startswith("ldp-") and not private:
        raise SettingsError(f"`{method}` needs `epsilon`; without privacy use `{method[4:]}`")
    if private and method in ("ata", "tgp", "moma"):
        raise SettingsError(f"`{method}` is not private; with `epsilon` use `ldp-{method}`")
    kernel = kernel_named(settings.kernel, settings.lengthscale)
    domain = domain_of(space, kernel, settings.features, seed, covariance)
    return learner(domain, settings, seed)
