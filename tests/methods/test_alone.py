"""What an agent alone finds: with the defaults, and with what the defaults replaced."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.suite.federations.hartmann import hartmann6
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Categorical, Float, Space
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.sampler import ThompsonSampler

BEFORE = {"cut_low_scores": False, "spread_points": 0, "pick": "score"}
CUBE = Space({f"x{i}": Float(0, 1) for i in range(6)})
MODELS = Space(
    {"model": Categorical(list("abcde")), "scaler": Categorical(list("xyz"))}
    | {f"x{i}": Float(0, 1) for i in range(4)}
)


def hartmann(unit: Array) -> float:
    """A smooth function of six numbers without plateau or cliff, between 0 and 1."""
    return hartmann6(unit) / 3.32237


def models(unit: Array) -> float:
    """A table of models: each has a number of its own that matters, and the last is the best."""
    model, scaler = int(5 * unit[0]), int(3 * unit[1])
    own = unit[2 + model % 4]
    return 0.6 + 0.06 * model - 0.3 * (own - 0.3) ** 2 - 0.05 * (scaler != 1)


SPACES: dict[str, tuple[Space, Callable[[Array], float], float]] = {
    "hartmann": (CUBE, hartmann, 1.0), "models": (MODELS, models, 0.84),
}  # fmt: skip


def regrets(name: str, seed: int, at: tuple[int, ...], noise: float, **changes: object) -> Array:
    """Return the regrets of what the agent gives out after so many evaluations."""
    space, height, top = SPACES[name]
    sampler = ThompsonSampler(space, DPFTSDESettings(features=30, **changes), seed=(seed,))
    errors, found = np.random.default_rng([seed, 5]), []
    for t in range(max(at)):
        unit = sampler.explore(2)[t] if t < 2 else sampler.ask(t).unit
        sampler.tell(unit, height(unit) + noise * errors.standard_normal())
        if t + 1 in at:
            best = sampler.best()
            assert best is not None
            found.append(top - height(best[0]))
    return np.array(found)


def means(name: str, seeds: int, at: tuple[int, ...], **changes: object) -> Array:
    return np.mean([regrets(name, s, at, 0.02, **changes) for s in range(seeds)], axis=0)


def tried(seed: int, **changes: object) -> tuple[int, int]:
    """Return how many models and how many scalers are among the first five points."""
    space, height, _ = SPACES["models"]
    sampler = ThompsonSampler(space, DPFTSDESettings(features=30, **changes), seed=(seed,))
    points = []
    for t in range(5):
        points.append(sampler.explore(2)[t] if t < 2 else sampler.ask(t).unit)
        sampler.tell(points[-1], height(points[-1]))
    return len({int(5 * u[0]) for u in points}), len({int(3 * u[1]) for u in points})


def test_spread_points_try_every_category():
    for seed in range(8):
        # The two initial points are random, and may have one model between them.
        assert tried(seed) >= (4, 3)
        assert tried(seed, **BEFORE) <= (2, 2)


def test_spread_points_help_at_first_and_lose_nothing_later():
    now, before = means("models", 8, (5, 20)), means("models", 8, (5, 20), **BEFORE)
    # Of 24 seeds, the regrets were .066 and .040, and before .091 and .044; the standard errors of
    # the differences .025 and .004 are .013 and .009, and .021 for the second with eight seeds.
    assert now[0] < before[0]
    assert now[1] < before[1] + 0.02


def test_nothing_is_lost_on_a_smooth_function():
    now, before = means("hartmann", 6, (20,)), means("hartmann", 6, (20,), **BEFORE)
    # Twelve seeds had .184 and .229, with standard errors of .03 and .05: .07 with six.
    assert now[0] < before[0] + 0.1
