"""What the search of a surface misses: against scipy from the twenty best of 1,000 candidates.

    OMP_NUM_THREADS=1 python -m benchmarks.maxima [--surfaces 100] [--dimensions 1 2 4 6]
    OMP_NUM_THREADS=1 python -m benchmarks.maxima --regret [--seeds 128] [--dimensions 1 2 4]
    OMP_NUM_THREADS=1 python -m benchmarks.maxima --mixed [--surfaces 40]

Surfaces are an agent's: functions drawn from its posterior and log expected improvement, with and
without a shared function as prior mean, and shared functions, one a sub-region. Observations,
length scales and noise are random; in "a loop's" half of the observations are close to the best
one, as after many queries. Prints the loss: how much higher scipy's best is. A negative loss is a
gain.
All are in units of the scores' spread, or of the logarithm of an improvement.

With ``--regret``: what it means for optimisations of random functions by ask and tell, 30 queries,
half of them with noise. The search near incumbents, taken for spaces of that many coordinates,
against the wide one with the same seeds: mean and last regret in units of the function's spread.

With ``--mixed``: log expected improvement over spaces of reals, integers and categories. The loss
is against the best of three searches with all the effort that other surfaces get.
"""

from __future__ import annotations

import argparse
import time
from typing import Any
from unittest import mock

import numpy as np
from scipy import stats
from scipy.optimize import minimize

from benchmarks.agent_iteration import MIXED, mixed_sampler
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures, feature_lengthscales
from flwr_fbo.models.gp import GaussianProcess, Path
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.models.prior_mean import PriorMeanProcess
from flwr_fbo.search import acquisition
from flwr_fbo.search.acquisition import CANDIDATES, STARTS, argmax, quasi_random
from flwr_fbo.search.candidates import NearIncumbents
from flwr_fbo.search.expected_improvement import Improvement
from flwr_fbo.search.regions import Regions, split_space

#: Kinds of surfaces, and the sub-regions that each has.
KINDS = {
    "path": 1, "path, with prior mean": 1, "improvement": 1, "improvement, with prior mean": 1,
    "improvement, a loop's": 1, "improvement, P = 4": 4, "shared function, P = 4": 4,
}  # fmt: skip


#: How many of the best observations a search is told, as an agent does.
INCUMBENTS = 5


def surface(kind: str, dimension: int, seed: int) -> tuple[Any, Space, Regions, np.ndarray]:
    """A surface of a kind, over a cube, and the best points so far."""
    rng = np.random.default_rng([seed, dimension])
    space = Space({f"x{i}": Float(0.0, 1.0) for i in range(dimension)})
    regions = split_space(space, KINDS[kind])
    count, noise = int(rng.integers(2, 80)), 10 ** rng.uniform(-6, -0.5)
    scales = np.exp(rng.normal(np.log(0.35 * np.sqrt(dimension)), 0.8, dimension))
    kernel = kernel_named(("se", "matern52")[seed % 2], scales)
    x = rng.random((count, dimension))
    if kind.endswith("a loop's"):
        close = rng.standard_normal((count // 2, dimension)) * 10 ** rng.uniform(-3, -0.7)
        x[1 : 1 + count // 2] = np.clip(x[0] + close, 0.0, 1.0)
    factor = np.linalg.cholesky(kernel(x, x) + (noise + 1e-10) * np.eye(count))
    y = factor @ rng.standard_normal(count)
    if kind.endswith("a loop's"):
        y *= np.sign(y[0])  # the close ones are the good ones
    incumbents = x[np.argsort(y)[-INCUMBENTS:]]
    process = GaussianProcess(kernel, noise, x, (y - y.mean()) / y.std())
    shared = kernel_named("se", feature_lengthscales(200, dimension))
    features = RandomFeatures.draw(shared, 200, dimension, rng)
    weights = rng.uniform(0.1, 2.0) * rng.standard_normal((regions.count, 200))
    advice = Path(features, weights)
    if kind.startswith("shared function"):
        return advice, space, regions, incumbents
    if kind == "path":
        return process.sample_path(rng), space, regions, incumbents
    told = advice if "with prior mean" in kind or "P = 4" in kind else None
    model = PriorMeanProcess(process, told, regions.locate(x))
    if kind.startswith("path"):
        return model.sample_path(rng), space, regions, incumbents
    return Improvement.over(model), space, regions, incumbents


def by_scipy(path: Any, space: Space, regions: Regions, incumbents: np.ndarray, seed: int) -> float:
    """The best of scipy's climbs from the starts that the widest search has."""
    points = quasi_random(CANDIDATES, space.dimension, np.random.default_rng(seed))
    points = np.vstack([points, incumbents])
    starts = points[np.argsort(-path.value(points, regions.locate(points)))[:STARTS]]
    best = -np.inf
    for start, place in zip(starts, regions.locate(starts), strict=True):

        def negative(x: np.ndarray, place: int = place) -> tuple[float, np.ndarray]:
            value, gradient = path.value_and_gradient(x[None], np.array([place]))
            return -float(value[0]), -gradient[0]

        bounds = list(zip(regions.low[place], regions.high[place], strict=True))
        best = max(best, -float(minimize(negative, start, jac=True, bounds=bounds).fun))
    return best


def loss(kind: str, dimension: int, seed: int) -> tuple[float, float]:
    """How much higher scipy's best is than what is found, and the search's CPU milliseconds."""
    path, space, regions, incumbents = surface(kind, dimension, seed)
    start = time.process_time()
    found = argmax(path, space, np.random.default_rng(seed), regions, incumbents)[None]
    took = 1e3 * (time.process_time() - start)
    reached = float(path.value(found, regions.locate(found))[0])
    return by_scipy(path, space, regions, incumbents, seed) - reached, took


#: Queries of an optimisation, and where functions are looked through for their best value.
QUERIES, LOOKED_AT = 30, 20_000
#: Our default agent's own model.
AGENT: dict[str, Any] = {"acquisition": "improvement", "initial-points": 2, "refit-every": 3}


def regrets(dimension: int, seed: int) -> np.ndarray:
    """Regret after each query (2, QUERIES), searched widely and near the incumbents."""
    rng = np.random.default_rng([seed, dimension, 1])
    space = Space({f"x{i}": Float(0.0, 1.0) for i in range(dimension)})
    scales = np.exp(rng.normal(np.log(0.35 * np.sqrt(dimension)), 0.5, dimension))
    kernel = kernel_named(("se", "matern52")[seed % 2], scales)
    basis = RandomFeatures.draw(kernel, 500, dimension, rng)
    weights = rng.standard_normal(500)
    grid = rng.random((LOOKED_AT, dimension))
    values = basis.scan(grid, weights)
    best, spread = float(values.max()), float(values.std())
    noise = 0.1 * spread if seed % 4 >= 2 else 0.0
    searches = (NearIncumbents(max_dimension=0), NearIncumbents(max_dimension=dimension))
    found = np.empty((2, QUERIES))
    for row, search in zip(found, searches, strict=True):
        sampler = ThompsonSampler(space, ThompsonSettings.from_mapping(AGENT), None, (seed,))
        errors, at = np.random.default_rng([seed, 2]), []
        with mock.patch.object(acquisition, "NEAR_INCUMBENTS", search):
            for t in range(QUERIES):
                unit = sampler.explore(2)[t] if t < 2 else sampler.ask(t).unit
                at.append(float(basis.value(unit[None], weights)[0]))
                sampler.tell(unit, at[-1] + noise * errors.standard_normal())
        row[:] = (best - np.maximum.accumulate(at)) / spread
    return found


def compare(dimensions: list[int], seeds: int) -> None:
    print("| D | regret, wide search | near incumbents less wide, 95 % | seeds |")
    print("| --- | --- | --- | --- |")
    for dimension in dimensions:
        curves = np.array([regrets(dimension, seed) for seed in range(seeds)])
        for name, each in (("mean", curves.mean(axis=2)), ("last", curves[:, :, -1])):
            wide, difference = each[:, 0], each[:, 1] - each[:, 0]
            half = stats.t.ppf(0.975, seeds - 1) * stats.sem(difference)
            told = f"{difference.mean():+.4f} +- {half:.4f}"
            print(f"| {dimension} | {name}: {wide.mean():.4f} | {told} | {seeds} |", flush=True)


def mixed_losses(dimension: int, seeds: int) -> dict[str, np.ndarray]:
    """Losses and CPU milliseconds by effort over a mixed space: (seeds, 2) each."""
    found: dict[str, list[tuple[float, float]]] = {"as it is": [], "wide": []}
    for seed in range(seeds):
        count = int(np.random.default_rng(seed).integers(4, 45))
        sampler = mixed_sampler(dimension, count, seed)
        surface = Improvement.over(sampler.own_model.process_with_prior_mean())
        space, incumbents = sampler.space, sampler.own_model.incumbents()

        def height(key: int) -> float:
            unit = argmax(surface, space, np.random.default_rng(key), None, incumbents)  # noqa: B023
            return float(surface.value(space.embed(unit))[0])  # noqa: B023

        start = time.process_time()
        ours = height(seed)
        took = 1e3 * (time.process_time() - start)
        with mock.patch.object(acquisition, "MIXED_IMPROVEMENT", acquisition.WIDE):
            start = time.process_time()
            wide = height(seed)
            wide_took = 1e3 * (time.process_time() - start)
            best = max(ours, wide, *(height(10_000 + 3 * seed + k) for k in range(3)))
        found["as it is"].append((best - ours, took))
        found["wide"].append((best - wide, wide_took))
    return {name: np.array(pairs) for name, pairs in found.items()}


def show_mixed(seeds: int) -> None:
    print(f"| mixed D | effort | CPU ms | mean loss | 90 % | above 0.05 of {seeds} |")
    print("| --- | --- | --- | --- | --- | --- |")
    for dimension in MIXED:
        for name, pairs in mixed_losses(dimension, seeds).items():
            losses, times = pairs.T
            told = f"{losses.mean():.4f} | {np.quantile(losses, 0.9):.4f} | {(losses > 0.05).sum()}"
            print(f"| {dimension} | {name} | {np.median(times):.2f} | {told} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--surfaces", type=int, default=100)
    parser.add_argument("--dimensions", type=int, nargs="*", default=[1, 2, 4, 6])
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--seeds", type=int, default=128)
    parser.add_argument("--mixed", action="store_true")
    given = parser.parse_args()
    if given.mixed:
        show_mixed(given.surfaces)
        return
    if given.regret:
        compare(given.dimensions, given.seeds)
        return
    print(f"| D | surface | CPU ms | median loss | 90 % | mean | above 0.01 of {given.surfaces} |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for dimension in given.dimensions:
        for kind in KINDS:
            pairs = [loss(kind, dimension, seed) for seed in range(given.surfaces)]
            losses, times = np.array(pairs).T
            told = [f"{v:.0e}" for v in (*np.quantile(losses, [0.5, 0.9]), losses.mean())]
            cells = [dimension, kind, f"{np.median(times):.2f}", *told, int((losses > 0.01).sum())]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
