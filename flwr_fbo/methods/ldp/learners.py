"""The learners by name."""

from __future__ import annotations

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.core.space import Space
from flwr_fbo.methods.ldp.ata import ATA
from flwr_fbo.methods.ldp.domain import domain_of
from flwr_fbo.methods.ldp.learner import GPUCB, Learner, Uniform
from flwr_fbo.methods.ldp.moma import MoMA
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.ldp.tgp import TGP
from flwr_fbo.models.kernels import kernel_named

#: Every strategy name, and its learner. ``ldp-...`` are those for private rewards.
LEARNERS: dict[str, type[Learner]] = {
    "ldp-ata": ATA,
    "ldp-tgp": TGP,
    "ldp-moma": MoMA,
    "ata": ATA,
    "tgp": TGP,
    "moma": MoMA,
    "gp-ucb": GPUCB,
    "uniform": Uniform,
}


def make_learner(
    name: str,
    space: Space,
    settings: LDPSettings,
    seed: int = 0,
    covariance: Array | None = None,
) -> Learner:
    """A learner by name. ``covariance`` (n, n) over a finite space's points replaces the kernel."""
    try:
        unknown_keys([name], LEARNERS)
    except SettingsError as error:
        raise SettingsError(str(error).replace("setting", "strategy")) from None
    private = settings.epsilon is not None
    if name.startswith("ldp-") and not private:
        raise SettingsError(f"`{name}` needs `epsilon`; without privacy use `{name[4:]}`")
    if private and f"ldp-{name}" in LEARNERS:
        raise SettingsError(f"`{name}` is not private; with `epsilon` use `ldp-{name}`")
    kernel = kernel_named(settings.kernel, settings.lengthscale)
    domain = domain_of(space, kernel, settings.features, seed, covariance)
    return LEARNERS[name](domain, settings, seed)
