"""Problems shared by the tests of this folder."""

from __future__ import annotations

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.ldp.domain import Arms, Domain
from flwr_fbo.methods.ldp.learner import Learner
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.method import load_attribute
from flwr_fbo.methods.registry import find_method
from flwr_fbo.models.kernels import kernel_named

GRID = np.linspace(0.0, 1.0, 25)[:, None]


def learner_class(method: str) -> type[Learner]:
    """The learner that a method's registration names."""
    found: type[Learner] = load_attribute(find_method(method).options["learner"])
    return found


def grid_space(points: Array = GRID) -> Space:
    return Space({"x": Float(0.0, 1.0)}, points)


def objective(seed: int, points: Array = GRID, name: str = "matern52") -> tuple[Array, float]:
    """A function of the paper's recipe over the points, and its RKHS norm."""
    rng = np.random.default_rng([11, seed])
    covariance = kernel_named(name, 0.2)(points, points)
    weights = rng.uniform(-1.0, 1.0, len(points))
    return covariance @ weights, float(np.sqrt(weights @ covariance @ weights))


def arms(name: str = "matern52", points: Array = GRID) -> Arms:
    return Arms(grid_space(points), kernel_named(name, 0.2))


def private_rewards(
    means: Array, arm: int, count: int, settings: LDPSettings, rng: np.random.Generator
) -> Array:
    """Uniform noise within R, clipped, and (not private: seeded) Laplace noise."""
    raw = means[arm] + rng.uniform(-settings.noise_bound, settings.noise_bound, count)
    if settings.epsilon_per_answer is None:
        return raw
    scale = 2.0 * settings.clip / settings.epsilon_per_answer
    return np.clip(raw, -settings.clip, settings.clip) + rng.laplace(0.0, scale, count)


def play(learner: Learner, rewards, plays: int) -> Array:
    """Let a learner play; ``rewards(arm, count)`` pays. The arms it played: (plays,)."""
    domain: Domain = learner.domain
    played: list[int] = []
    while len(played) < plays:
        points = learner.suggest()
        arm = int(domain.keys(points[:1])[0])
        count = min(len(points), plays - len(played))
        paid = rewards(arm, len(points))
        played += [arm] * count
        if count == len(points):
            learner.update(points, paid)
    return np.array(played)
