"""What the search of a surface misses: against scipy from the twenty best of 1,000 candidates.

    OMP_NUM_THREADS=1 python -m benchmarks.maxima [--surfaces 100] [--dimensions 1 2 4 6]

Surfaces are an agent's: functions drawn from its posterior and log expected improvement, with and
without advice in the prior mean, and advice with one function a sub-region. Observations, length
scales and noise are random; in "a loop's" half of the observations are close to the best one, as
after many queries. Prints the loss: how much higher scipy's best is. A negative loss is a gain.
All are in units of the scores' spread, or of the logarithm of an improvement.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy.optimize import minimize

from flwr_fbo.core.acquisition import CANDIDATES, STARTS, argmax, quasi_random
from flwr_fbo.core.features import RandomFeatures, feature_scales
from flwr_fbo.core.gp import GaussianProcess, Path
from flwr_fbo.core.improvement import Improvement
from flwr_fbo.core.kernels import kernel_named
from flwr_fbo.core.regions import Regions, split_space
from flwr_fbo.core.space import Float, Space
from flwr_fbo.core.trend import TrendedProcess

#: Kinds of surfaces, and the sub-regions that each has.
KINDS = {
    "path": 1, "path, advised": 1, "improvement": 1, "improvement, advised": 1,
    "improvement, a loop's": 1, "improvement, P = 4": 4, "advice, P = 4": 4,
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
    shared = kernel_named("se", feature_scales(200, dimension))
    features = RandomFeatures.draw(shared, 200, dimension, rng)
    weights = rng.uniform(0.1, 2.0) * rng.standard_normal((regions.count, 200))
    advice = Path(features, weights)
    if kind.startswith("advice"):
        return advice, space, regions, incumbents
    if kind == "path":
        return process.sample_path(rng), space, regions, incumbents
    told = advice if "advised" in kind or "P = 4" in kind else None
    model = TrendedProcess(process, told, regions.locate(x))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surfaces", type=int, default=100)
    parser.add_argument("--dimensions", type=int, nargs="*", default=[1, 2, 4, 6])
    given = parser.parse_args()
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
